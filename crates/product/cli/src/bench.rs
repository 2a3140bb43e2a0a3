//! `longshore bench`

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use clap::{Args, ValueEnum};
use longshore_bench::compare::{Comparison, compare};
use longshore_bench::layout::streams_for;
use longshore_bench::measure::{Measured, Subject, measure};
use longshore_bench::medium::{LocalOptions, Medium};
use longshore_bench::pacing::RateLimits;
use longshore_bench::plot::{Format, PlotError, Sweep, View, Volume};
use longshore_bench::progress::Terminal;
use longshore_bench::report::{self, Report};
use longshore_bench::result::PointResult;
use longshore_bench::spec::{self, Job, Length, Run, SpecError, Verify};
use longshore_bench::units;
use longshore_bench::watch::Interrupt;
use longshore_bench::workload::{BlockSizes, Pattern};
use longshore_daemon::config::words;
use longshore_initiator::options::{Options, QueueMaps, ReceivePath, SendPath};
use longshore_reactor::EngineChoice;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::connection::ConnectionArguments;
use crate::output::OutputFile;

#[derive(Debug, Args)]
pub struct BenchArguments {
    // Not a doc comment: rustdoc takes brackets for links.
    #[arg(
        value_name = "VOLUME",
        value_parser = medium(),
        help = "The volume: iscsi://HOST[:PORT]/IQN/LUN, nvme+tcp://HOST[:PORT]/NQN/NSID, a file, or a block device"
    )]
    volume: Medium,

    /// A volume to compare with; repeatable
    ///
    /// The volumes get the load in turn, for --rounds rounds. Ratios are the first volume's figures
    /// divided by those of this volume, round by round.
    #[arg(long, value_name = "VOLUME", value_parser = medium())]
    vs: Vec<Medium>,

    /// Rounds of a comparison: how often each volume gets the load
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Workload: randread, read; or randwrite, write, randrw, rw, which DESTROY data [default: randread]
    ///
    /// A workload that writes overwrites the data within --offset and --span, without asking.
    #[arg(
        long,
        visible_alias = "readwrite",
        value_name = "PATTERN",
        conflicts_with = "job"
    )]
    rw: Option<Pattern>,

    /// Percentage of reads in randrw and rw
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    rwmixread: u32,

    /// Size of an operation, or a mix such as 4k/60:64k/40; a list measures one after the other
    #[arg(
        long,
        visible_alias = "bssplit",
        value_name = "SIZE[,SIZE]...",
        default_value = "4k"
    )]
    bs: String,

    /// Operations in progress on each session; a list, or a range such as 1..256 (powers of two)
    #[arg(long, value_name = "DEPTH[,DEPTH]...", default_value = "32")]
    iodepth: String,

    /// iSCSI sessions, or NVMe I/O queues
    #[arg(long, visible_aliases = ["queues", "numjobs"], value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: u16,

    /// Queues by kind: reads with queues of their own do not wait behind writes
    ///
    /// Replaces --sessions. Poll queues take the operations of jobs with `poll`.
    #[arg(long, value_name = "default=N,read=N,poll=N", value_parser = spec::maps, conflicts_with = "sessions")]
    map: Option<QueueMaps>,

    /// One of several loads on the same sessions; repeatable
    ///
    /// NAME,rw=PATTERN,bs=SIZE and iodepth=N, numjobs=N (streams of that depth), rwmixread=PERCENT,
    /// rate=IOPS, rate-bytes=SIZE, poll.
    #[arg(long, value_name = "NAME,KEY=VALUE...")]
    job: Vec<Job>,

    /// Threads that make the load [default: one for each session, up to the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// How long to measure [default: 10s, unless --size or --operations is given]
    #[arg(long, visible_alias = "runtime", value_name = "DURATION", value_parser = units::duration)]
    time: Option<Duration>,

    /// Bytes to transfer, instead of --time or as a further limit
    #[arg(long, visible_aliases = ["io-size", "io_size"], value_name = "SIZE", value_parser = units::size)]
    size: Option<u64>,

    /// Operations to complete, instead of --time or as a further limit
    #[arg(long, visible_alias = "number_ios", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,

    /// Time of load before the measurement starts [default: a fifth of --time, at most 2s]
    #[arg(long, visible_aliases = ["ramp-time", "ramp_time"], value_name = "DURATION", value_parser = units::duration)]
    warmup: Option<Duration>,

    /// Limit on operations per second; latency then counts from when an operation was due
    #[arg(long, visible_aliases = ["rate-iops", "rate_iops"], value_name = "IOPS", value_parser = units::rate)]
    rate: Option<u64>,

    /// Limit on bytes per second; latency then counts from when an operation was due
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    rate_bytes: Option<u64>,

    /// Start of the region of the volume to use
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = units::size)]
    offset: u64,

    /// Length of the region of the volume to use [default: to the end of the volume]
    #[arg(long, visible_alias = "region", value_name = "SIZE", value_parser = units::size)]
    span: Option<u64>,

    /// Seed of offsets, sizes and contents; the same seed gives the same operations
    #[arg(
        long,
        visible_alias = "randseed",
        value_name = "N",
        default_value_t = 1
    )]
    seed: u64,

    /// Check contents: stamp all writes, check all reads, and read all written blocks again at the end
    ///
    /// Finds lost, stale, misplaced, torn and corrupt blocks. The first one ends the run, with exit status 1.
    #[arg(long)]
    verify: bool,

    /// Write nothing; read once and check the data of earlier runs with --verify and the same seed
    #[arg(long, conflicts_with_all = ["verify", "vs"])]
    verify_only: bool,

    /// Count failed operations and continue, instead of ending at the first
    #[arg(long, visible_alias = "continue_on_error")]
    continue_on_error: bool,

    /// Process of the server on this machine, to measure its processor time; repeat it for each --vs
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,

    /// Format of the output
    #[arg(
        long,
        value_name = "text|json|csv",
        default_value = "text",
        hide_possible_values = true
    )]
    output: Output,

    /// Draw throughput and latency to a file; needs several depths, such as --iodepth 1..256
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    plot: Option<PathBuf>,

    /// What --plot draws: throughput and latency by depth, or latency against IOPS or bytes per second
    ///
    /// `depth` is for one load at several depths. `iops` and `bytes` show the latency at each throughput: the
    /// line turns upwards where more depth adds latency only.
    #[arg(
        long,
        value_name = "depth|iops|bytes",
        default_value = "depth",
        hide_possible_values = true,
        requires = "plot"
    )]
    plot_view: PlotView,

    #[command(flatten)]
    storage: LocalStorage,

    #[command(flatten)]
    transfer: Transfer,

    #[command(flatten)]
    connection: ConnectionArguments,
}

/// How files and block devices are used.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Files and block devices")]
struct LocalStorage {
    /// Bypass the page cache (O_DIRECT), to measure the medium rather than memory
    #[arg(long)]
    direct: bool,

    /// I/O engine [default: auto]
    #[arg(long, value_name = "auto|io_uring|epoll", value_parser = words::parse::<EngineChoice>)]
    engine: Option<EngineChoice>,
}

fn medium() -> ValueParser {
    OsStringValueParser::new().try_map(Medium::parse).into()
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Transfer")]
struct Transfer {
    /// Where read data goes: to memory, as for an application, or nowhere
    #[arg(
        long,
        value_name = "place|discard",
        default_value = "place",
        hide_possible_values = true
    )]
    data: Data,

    /// How written data is sent: copied together, gathered from its place, or without the kernel's copy
    ///
    /// `zerocopy` is MSG_ZEROCOPY. Over loopback the kernel copies in any case.
    #[arg(
        long,
        value_name = "copy|gather|zerocopy",
        default_value = "gather",
        hide_possible_values = true
    )]
    send: Send,

    /// With --send zerocopy, copy data that is shorter than this
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    zerocopy_threshold: Option<u64>,

    /// How read data is received: to one buffer and copied, or large data directly to its place
    #[arg(
        long,
        value_name = "buffered|direct",
        default_value = "direct",
        hide_possible_values = true
    )]
    receive: Receive,

    /// Flow control of NVMe submission queues; without it a read needs no response of its own
    #[arg(
        long,
        value_name = "on|off",
        default_value = "on",
        hide_possible_values = true
    )]
    flow_control: Switch,

    /// Let the kernel poll the network card for this many microseconds (SO_BUSY_POLL)
    #[arg(long, value_name = "MICROSECONDS")]
    busy_poll: Option<u32>,

    /// Priority of outgoing packets (SO_PRIORITY)
    #[arg(long, value_name = "N")]
    priority: Option<u32>,

    /// Never sleep: poll for responses all the time
    #[arg(long)]
    spin: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum Output {
    Text,
    Json,
    Csv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum PlotView {
    Depth,
    Iops,
    Bytes,
}

impl From<PlotView> for View {
    fn from(view: PlotView) -> Self {
        match view {
            PlotView::Depth => Self::Depth,
            PlotView::Iops => Self::Iops,
            PlotView::Bytes => Self::Bytes,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum Data {
    Place,
    Discard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum Send {
    Copy,
    Gather,
    ZeroCopy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum Receive {
    Buffered,
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum Switch {
    On,
    Off,
}

/// Why the arguments make no sense together.
#[derive(Debug, thiserror::Error)]
enum UsageError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("--job replaces the options of a single load; remove {0}")]
    BesideJob(&'static str),
    #[error(
        "--server-pid is given {given} times for {volumes} volumes; give it once for each volume, in their order"
    )]
    ServerPids { given: usize, volumes: usize },
    #[error(
        "--direct and --engine are for files and block devices, and none is given; remove them"
    )]
    NothingLocal,
    #[error("{0}")]
    Plot(#[from] PlotError),
}

fn percent(text: &str) -> Result<u32, String> {
    spec::percent(text)
        .ok_or_else(|| format!("`{text}` is not a percentage; give a number from 0 to 100"))
}

/// Everything that is to be measured.
struct Plan {
    runs: Vec<Run>,
    is_sweep: bool,
    subjects: Vec<Subject>,
}

pub fn run(arguments: &BenchArguments) -> ExitCode {
    let options = match arguments.connection.options(arguments.volume.url()) {
        Ok(options) => options,
        Err(error) => return crate::exit::refuse(&error),
    };
    let plan = match arguments.plan(options) {
        Ok(plan) => plan,
        Err(error) => crate::exit::usage(&error),
    };
    // A path that cannot be written does not cost the figures of a long run.
    let plot = match arguments.plot.as_deref().map(OutputFile::open).transpose() {
        Ok(plot) => plot,
        Err(error) => return crate::exit::fail(&error),
    };
    let interrupt = Interrupt::default();
    if let Err(error) = listen_for_signals(&interrupt) {
        return crate::exit::fail(&error);
    }
    let status = if plan.subjects.len() > 1 {
        arguments.compare(&plan, &interrupt)
    } else {
        arguments.measure(&plan, &interrupt)
    };
    drop(plot);
    status
}

/// The first signal stops the load, a second one the process.
fn listen_for_signals(interrupt: &Interrupt) -> std::io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let number = usize::try_from(signal).expect("signals have small numbers");
        let came = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&came))?;
        signal_hook::flag::register(signal, came)?;
        signal_hook::flag::register_usize(signal, interrupt.cell(), number)?;
    }
    Ok(())
}

impl BenchArguments {
    fn plan(&self, options: Options) -> Result<Plan, UsageError> {
        let media: Vec<&Medium> = std::iter::once(&self.volume).chain(&self.vs).collect();
        let pids = &self.server_pid;
        if !pids.is_empty() && pids.len() != media.len() {
            let (given, volumes) = (pids.len(), media.len());
            return Err(UsageError::ServerPids { given, volumes });
        }
        if let Some(path) = &self.plot {
            Format::of(path)?;
        }
        let local = LocalOptions {
            direct: self.storage.direct,
            engine: self.storage.engine.unwrap_or_default(),
        };
        if local != LocalOptions::default() && media.iter().all(|medium| medium.url().is_some()) {
            return Err(UsageError::NothingLocal);
        }
        let subjects = media
            .into_iter()
            .enumerate()
            .map(|(number, medium)| Subject {
                medium: medium.clone(),
                local,
                server_pid: pids.get(number).copied(),
            });
        let (sizes, depths) = (spec::block_sizes(&self.bs)?, spec::depths(&self.iodepth)?);
        let options = self.transfer.apply(options);
        let runs = if self.job.is_empty() {
            let points = sizes
                .iter()
                .flat_map(|size| depths.iter().map(move |depth| (size, *depth)));
            points
                .map(|(size, depth)| self.run_of(vec![self.plain_job(size, depth)], &options))
                .collect()
        } else {
            if self.rate.is_some() || self.rate_bytes.is_some() {
                return Err(UsageError::BesideJob("--rate, and give rate= in the job"));
            }
            vec![self.run_of(self.job.clone(), &options)]
        };
        let depths = runs
            .iter()
            .map(|run| run.jobs.iter().map(|job| job.depth).max());
        if self.plot.is_some() && depths.collect::<BTreeSet<_>>().len() < 2 {
            return Err(PlotError::TooFew.into());
        }
        Ok(Plan {
            is_sweep: runs.len() > 1 || is_list(&self.bs) || is_list(&self.iodepth),
            runs,
            subjects: subjects.collect(),
        })
    }

    fn maps(&self) -> QueueMaps {
        self.map.unwrap_or(QueueMaps::plain(self.sessions))
    }

    /// The job of the plain options: a stream for each session.
    fn plain_job(&self, sizes: &BlockSizes, depth: u16) -> Job {
        let randread = "randread".parse().expect("a pattern");
        let mut job = Job {
            name: String::new(),
            pattern: self.rw.unwrap_or(randread),
            read_percent: self.rwmixread,
            sizes: sizes.clone(),
            depth,
            streams: 1,
            rate: RateLimits {
                operations: self.rate,
                bytes: self.rate_bytes.filter(|rate| *rate > 0),
            },
            poll: self.maps().poll > 0,
        };
        job.streams = streams_for(&job, self.maps());
        job
    }

    fn run_of(&self, jobs: Vec<Job>, options: &Options) -> Run {
        let mut length = Length {
            time: self.time,
            operations: self.operations,
            bytes: self.size,
        };
        if length == Length::default() {
            length.time = Some(Duration::from_secs(10));
        }
        let usual = length
            .time
            .filter(|_| length.operations.is_none() && length.bytes.is_none())
            .map_or(Duration::ZERO, |time| {
                (time / 5).min(Duration::from_secs(2))
            });
        let mut options = options.clone();
        options.paths.receive_buffer =
            usize::try_from(spec::receive_bytes(&jobs)).expect("at most 256 KiB");
        Run {
            jobs,
            maps: self.maps(),
            threads: self.threads,
            length,
            warmup: self.warmup.unwrap_or(usual),
            whole: false,
            seed: self.seed,
            verify: match (self.verify, self.verify_only) {
                (_, true) => Verify::Only,
                (true, false) => Verify::On,
                (false, false) => Verify::Off,
            },
            offset: self.offset,
            span: self.span,
            discard: self.transfer.data == Data::Discard,
            spin: self.transfer.spin,
            continue_on_error: self.continue_on_error,
            options,
        }
    }

    /// One volume, point by point.
    fn measure(&self, plan: &Plan, interrupt: &Interrupt) -> ExitCode {
        let mut terminal = Terminal::new();
        let mut report = Report {
            points: Vec::new(),
            is_sweep: plan.is_sweep,
            seed: self.seed,
        };
        let mut failure = None;
        for run in &plan.runs {
            terminal.label(label(run));
            match measure(run, &plan.subjects[0], interrupt, &mut terminal) {
                Ok(measured) => report.points.push(measured),
                Err(error) => failure = Some(error),
            }
            let last = report.points.last().map(|measured| &measured.result);
            if failure.is_some() || last.is_some_and(|last| !last.is_good() || last.interrupted) {
                break;
            }
        }
        terminal.clear();
        if !report.points.is_empty() {
            let text = match self.output {
                Output::Text => report.text(),
                Output::Json => report.json(),
                Output::Csv => report.csv(),
            };
            if crate::exit::print(text.as_bytes()) == ExitCode::FAILURE {
                return ExitCode::FAILURE;
            }
        }
        if let Some(error) = failure {
            return crate::exit::fail(&error);
        }
        let drawn = self.draw(|| {
            let name = report.points.first().map_or("", |first| &first.place.url);
            let points = report.points.iter();
            let volume = Volume {
                name: name.to_owned(),
                points: points.map(|measured| measured.result.clone()).collect(),
            };
            Sweep {
                volumes: vec![volume],
                rounds: 1,
            }
        });
        ending(&report.points, interrupt, drawn)
    }

    /// Several volumes, by turns.
    fn compare(&self, plan: &Plan, interrupt: &Interrupt) -> ExitCode {
        let mut terminal = Terminal::new();
        let mut points: Vec<Comparison> = Vec::new();
        let mut bad = Vec::new();
        let mut failure = None;
        for run in &plan.runs {
            terminal.label(label(run));
            let rounds = usize::from(self.rounds);
            match compare(run, &plan.subjects, rounds, interrupt, &mut terminal) {
                Ok((comparison, problems)) => {
                    points.push(comparison);
                    bad = problems;
                }
                Err(error) => failure = Some(error),
            }
            if failure.is_some() || !bad.is_empty() {
                break;
            }
        }
        terminal.clear();
        let text = match self.output {
            Output::Text => report::text_of_comparisons(&points),
            Output::Json => report::json_of_comparisons(&points, self.seed),
            Output::Csv => report::csv_of_comparisons(&points),
        };
        if !points.is_empty() && crate::exit::print(text.as_bytes()) == ExitCode::FAILURE {
            return ExitCode::FAILURE;
        }
        if let Some(error) = failure {
            return crate::exit::fail(&error);
        }
        let drawn = self.draw(|| {
            let volumes = plan.subjects.iter().enumerate().map(|(number, subject)| {
                let sides = points.iter().filter_map(|point| point.sides.get(number));
                let middle = sides.filter_map(|side| middle_round(&side.rounds));
                Volume {
                    name: subject.medium.to_string(),
                    points: middle.cloned().collect(),
                }
            });
            Sweep {
                volumes: volumes.collect(),
                rounds: usize::from(self.rounds),
            }
        });
        ending(&bad, interrupt, drawn)
    }

    fn draw(&self, sweep: impl FnOnce() -> Sweep) -> ExitCode {
        let Some(path) = &self.plot else {
            return ExitCode::SUCCESS;
        };
        match sweep().plot(path, self.plot_view.into()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => crate::exit::fail(&error),
        }
    }
}

/// The round whose IOPS are the median.
fn middle_round(rounds: &[PointResult]) -> Option<&PointResult> {
    let mut rounds: Vec<&PointResult> = rounds.iter().collect();
    rounds.sort_by(|a, b| a.iops.total_cmp(&b.iops));
    rounds.get(rounds.len() / 2).copied()
}

/// Says what went wrong, and gives the exit status.
fn ending(points: &[Measured], interrupt: &Interrupt, drawn: ExitCode) -> ExitCode {
    for measured in points {
        for line in report::problems(&measured.result) {
            eprintln!("error: {}: {line}", measured.place.url);
        }
    }
    if points.iter().any(|measured| !measured.result.is_good()) {
        return ExitCode::FAILURE;
    }
    match interrupt.signal() {
        Some(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
        None => drawn,
    }
}

fn label(run: &Run) -> String {
    let jobs: Vec<String> = run.jobs.iter().map(ToString::to_string).collect();
    jobs.join(" + ")
}

fn is_list(text: &str) -> bool {
    text.contains(',') || text.contains("..")
}

impl Transfer {
    fn apply(&self, mut options: Options) -> Options {
        let paths = &mut options.paths;
        paths.send = match self.send {
            Send::Copy => SendPath::Copy,
            Send::Gather => SendPath::Gather,
            Send::ZeroCopy => SendPath::ZeroCopy,
        };
        // What was asked for is measured, also where the kernel copies nevertheless.
        paths.zerocopy_fallback = false;
        if let Some(bytes) = self.zerocopy_threshold {
            paths.zerocopy_threshold = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        paths.receive = match self.receive {
            Receive::Buffered => ReceivePath::Buffered,
            Receive::Direct => ReceivePath::Direct,
        };
        paths.busy_poll_us = self.busy_poll;
        paths.socket_priority = self.priority;
        options.nvme.flow_control = self.flow_control == Switch::On;
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, Longshore};
    use clap::Parser;

    const URL: &str = "iscsi://127.0.0.1:1/iqn.2026-11.local.longshore:default/0";

    fn parse(words: &[&str]) -> Result<BenchArguments, clap::Error> {
        let words = ["longshore", "bench", URL].iter().chain(words);
        match Longshore::try_parse_from(words)?.command {
            Command::Bench(bench) => Ok(*bench),
            _ => panic!("bench was asked for"),
        }
    }

    fn plan(words: &[&str]) -> Result<Plan, UsageError> {
        parse(words).unwrap().plan(Options::default())
    }

    #[test]
    fn the_fixed_interface_is_understood() {
        let words = "--rw randread --bs 4k --iodepth 32 --sessions 2 --time 10s --warmup 1s \
                     --server-pid 1 --output json";
        let words: Vec<&str> = words.split_whitespace().collect();
        let plan = plan(&words).unwrap();
        assert!(!plan.is_sweep);
        let [run] = &plan.runs[..] else {
            panic!("one point")
        };
        assert_eq!(run.jobs[0].to_string(), "randread 4k iodepth 32");
        assert_eq!(run.jobs[0].streams, 2);
        assert_eq!(run.maps, QueueMaps::plain(2));
        assert_eq!(run.length.time, Some(Duration::from_secs(10)));
        assert_eq!(run.warmup, Duration::from_secs(1));
        assert_eq!(plan.subjects[0].server_pid, Some(1));
    }

    #[test]
    fn nothing_writes_unless_it_is_asked_for() {
        assert!(!plan(&[]).unwrap().runs[0].writes());
        assert!(plan(&["--rw", "randwrite"]).unwrap().runs[0].writes());
        let only = plan(&["--rw", "randwrite", "--verify-only"]).unwrap();
        assert!(!only.runs[0].writes());
    }

    #[test]
    fn paths_are_measured_as_urls_are() {
        let plan = plan(&["--vs", "/dev/vdb", "--vs", "disk.img", "--direct"]).unwrap();
        let media: Vec<String> = plan
            .subjects
            .iter()
            .map(|it| it.medium.to_string())
            .collect();
        assert_eq!(media, [URL, "/dev/vdb", "disk.img"]);
        assert!(plan.subjects[1].local.direct);
    }

    #[test]
    fn lists_are_measured_one_by_one() {
        let plan = plan(&["--bs", "512,4k,64k", "--iodepth", "1..256"]).unwrap();
        assert_eq!(plan.runs.len(), 27);
        assert!(plan.is_sweep);
        assert_eq!(plan.runs[9].jobs[0].to_string(), "randread 4k iodepth 1");
    }

    #[test]
    fn a_receive_brings_some_dozens_of_small_operations() {
        let bytes = |words: &[&str]| plan(words).unwrap().runs[0].options.paths.receive_buffer;
        assert_eq!(bytes(&["--bs", "512"]), 32 << 10);
        assert_eq!(bytes(&["--bs", "4k"]), 256 << 10);
        assert_eq!(bytes(&["--bs", "1m"]), 256 << 10);
    }

    #[test]
    fn words_of_fio_are_understood() {
        let words = "--readwrite randrw --rwmixread 70 --bssplit 4k/50:8k/50 --numjobs 4 \
                     --runtime 5 --ramp_time 1 --rate_iops 10k --randseed 7";
        let words: Vec<&str> = words.split_whitespace().collect();
        let run = &plan(&words).unwrap().runs[0];
        assert_eq!((run.jobs[0].streams, run.seed), (4, 7));
        assert_eq!(run.jobs[0].rate.operations, Some(10_000));
    }

    #[test]
    fn jobs_share_the_sessions() {
        let words = "--map default=1,read=2 --job readers,rw=randread,bs=4k,numjobs=16 \
                     --job writer,rw=write,bs=1m,iodepth=32";
        let words: Vec<&str> = words.split_whitespace().collect();
        let plan = plan(&words).unwrap();
        assert_eq!(plan.runs[0].jobs.len(), 2);
        assert_eq!(plan.runs[0].maps.read, 2);
        assert!(plan.runs[0].writes());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            &["--bs", "4k,"][..],
            &["--iodepth", "0"],
            &["--vs", URL, "--server-pid", "1"],
            &["--plot", "a.gif"],
            &["--plot", "a.svg"],
            &["--plot", "a.svg", "--bs", "512,4k"],
            &["--direct"],
            &["--rate", "5", "--job", "a,rw=read,bs=4k"],
        ] {
            assert!(plan(words).is_err(), "{words:?}");
        }
        for words in [
            &["--rw", "trim"][..],
            &["--sessions", "0"],
            &["--rwmixread", "101"],
            &["--output", "xml"],
            &["--map", "write=1"],
            &["--rw", "read", "--job", "a,rw=read,bs=4k"],
            &["--time", "soon"],
            &["--verify", "--verify-only"],
            &["--plot", "a.svg", "--plot-view", "latency"],
        ] {
            assert_eq!(parse(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
