//! Side by side with Debian's `tgt`: operations per second and what each costs the server's
//! processor.
//!
//! Server and client are pinned to a processor each. Both servers run all the time and the load
//! goes to one after the other, several rounds over, so that whatever else the machine does hits
//! both alike. Figures are medians; the spread is (largest − smallest) / median over the rounds.

mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::command::run_checked;
use crate::counts::Counts;
use crate::servers::{Backend, Kind, Running, Setup};
use crate::workspace;
use table::Row;

const SERVER_CORE: &str = "0";
const CLIENT_CORE: &str = "1";

/// Bytes that the load spreads over; both servers hold them in the page cache.
const SPAN: u64 = 64 << 20;

/// Any volume larger than the span will do.
const VOLUME_SIZE: u64 = 256 << 20;

/// One point: what is done, in which size, at which depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    backend: Backend,
    operation: &'static str,
    size: u32,
    depth: u32,
}

/// The median of some rounds.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    median: f64,
    /// (largest − smallest) / median.
    spread: f64,
}

/// `cargo xtask bench`.
pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let quick = arguments.flag("--quick");
    let update = arguments.flag("--update");
    let engine = arguments
        .value("--engine")?
        .unwrap_or_else(|| "auto".to_owned());
    let only = arguments.value("--only")?;
    let rounds = arguments
        .number("--rounds")?
        .unwrap_or(if quick { 1 } else { 3 });
    let seconds = arguments.value("--seconds")?;
    arguments.finish()?;
    let seconds = seconds.unwrap_or_else(|| if quick { "0.1" } else { "1" }.to_owned());

    let loadgen = workspace::build_release("longshore-loadgen", "longshore-loadgen")?;
    let mut rows = Vec::new();
    for backend in [Backend::File, Backend::Null] {
        let mut points = points(backend, quick);
        points.retain(|p| {
            only.as_ref()
                .is_none_or(|only| p.name().contains(only.as_str()))
        });
        let bench = Bench::start(backend, &engine, &loadgen, &seconds)?;
        for point in points {
            let row = bench.measure(point, rounds)?;
            println!("{}", row.in_one_line());
            rows.push(row);
        }
    }
    let independent = if quick {
        String::new()
    } else {
        iscsi_perf(&engine)?
    };
    let page = table::page(&rows, &independent, &engine, rounds, &seconds)?;
    println!("\n{page}");
    if update {
        table::update(&workspace::root().join("docs/benchmarks.md"), &page)?;
    }
    Ok(Counts {
        passed: rows.len(),
        failed: 0,
        skipped: 0,
    })
}

fn points(backend: Backend, quick: bool) -> Vec<Point> {
    let depths: &[u32] = if quick { &[1, 32] } else { &[1, 8, 32, 128] };
    let mut points = Vec::new();
    for (operation, sizes) in [
        ("read", [512, 4_096, 65_536]),
        ("write", [4_096, 65_536, 1_048_576]),
    ] {
        for size in sizes {
            for &depth in depths {
                points.push(Point {
                    backend,
                    operation,
                    size,
                    depth,
                });
            }
        }
    }
    points
}

impl Point {
    fn name(self) -> String {
        format!(
            "{}-{}-{}-{}",
            self.backend.name(),
            self.operation,
            self.size,
            self.depth
        )
    }
}

/// Both servers with a volume of one kind.
struct Bench<'a> {
    ours: Running,
    theirs: Running,
    loadgen: &'a Path,
    seconds: &'a str,
}

impl<'a> Bench<'a> {
    fn start(
        backend: Backend,
        engine: &'a str,
        loadgen: &'a Path,
        seconds: &'a str,
    ) -> Result<Self> {
        let start = |kind, name: &str| {
            let folder = workspace::work_folder(&format!("bench/{name}"))?;
            if backend == Backend::File {
                // Written in full: a hole would be a different kind of page-cache hit.
                let bytes = vec![0x5a; usize::try_from(VOLUME_SIZE)?];
                std::fs::write(folder.join("disk0.img"), bytes)?;
            }
            let below = pinned(SERVER_CORE);
            let below: Vec<&str> = below.iter().map(String::as_str).collect();
            let setup = Setup {
                kind,
                backend,
                size: VOLUME_SIZE,
                block_size: 512,
                engine,
                portals: 1,
                below: &below,
                folder: &folder,
                keep_file: true,
                lockable_bytes: None,
            };
            setup.start()
        };
        let ours = start(Kind::Longshore, "longshore")?;
        let theirs = start(Kind::Tgt, "tgt")?;
        Ok(Self {
            ours,
            theirs,
            loadgen,
            seconds,
        })
    }

    fn measure(&self, point: Point, rounds: u64) -> Result<Row> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(self.load(&self.ours, point)?);
            theirs.push(self.load(&self.theirs, point)?);
        }
        let figure = |runs: &[BTreeMap<String, f64>], name| figure(runs, name);
        Ok(Row {
            point,
            ours: [
                figure(&ours, "iops")?,
                figure(&ours, "server_cpu_us_per_operation")?,
                figure(&ours, "p99_us")?,
            ],
            theirs: [
                figure(&theirs, "iops")?,
                figure(&theirs, "server_cpu_us_per_operation")?,
                figure(&theirs, "p99_us")?,
            ],
        })
    }

    fn load(&self, server: &Running, point: Point) -> Result<BTreeMap<String, f64>> {
        let mut words = pinned(CLIENT_CORE);
        words.push(self.loadgen.display().to_string());
        let options = [
            ("--portal", server.portal(0).to_string()),
            ("--lun", server.lun().to_string()),
            ("--operation", point.operation.to_owned()),
            ("--size", point.size.to_string()),
            ("--depth", point.depth.to_string()),
            ("--span", SPAN.to_string()),
            ("--seconds", self.seconds.to_owned()),
            ("--pid", server.pid().to_string()),
        ];
        words.extend(
            options
                .into_iter()
                .flat_map(|(name, value)| [name.to_owned(), value]),
        );
        let output = run_checked(
            Command::new(&words[0]).args(&words[1..]),
            Duration::from_secs(60),
        )
        .with_context(|| format!("{} on {:?}", point.name(), server.portal(0)))?;
        parse(&output)
    }
}

/// `taskset -c CORE`, or nothing where there is one processor only.
fn pinned(core: &str) -> Vec<String> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if processors < 2 {
        return Vec::new();
    }
    ["taskset", "-c", core].map(str::to_owned).to_vec()
}

/// Reads `name=value` pairs.
fn parse(line: &str) -> Result<BTreeMap<String, f64>> {
    line.split_whitespace()
        .map(|pair| {
            let (name, value) = pair.split_once('=').with_context(|| format!("{pair:?}"))?;
            Ok((
                name.to_owned(),
                value.parse().with_context(|| pair.to_owned())?,
            ))
        })
        .collect()
}

fn figure(runs: &[BTreeMap<String, f64>], name: &str) -> Result<Figure> {
    let mut values: Vec<f64> = runs
        .iter()
        .filter_map(|run| run.get(name).copied())
        .collect();
    if values.len() != runs.len() || values.is_empty() {
        bail!("the load generator did not report {name}");
    }
    values.sort_by(f64::total_cmp);
    let median = values[values.len() / 2];
    let spread = (values[values.len() - 1] - values[0]) / median;
    Ok(Figure { median, spread })
}

/// The same question asked by a client we did not write: `iscsi-perf` of libiscsi, which reads
/// sequentially and counts by itself.
fn iscsi_perf(engine: &str) -> Result<String> {
    let mut lines = String::new();
    for kind in [Kind::Longshore, Kind::Tgt] {
        let folder = workspace::work_folder("bench/iscsi-perf")?;
        let below = pinned(SERVER_CORE);
        let below: Vec<&str> = below.iter().map(String::as_str).collect();
        let setup = Setup {
            kind,
            backend: Backend::Null,
            size: VOLUME_SIZE,
            block_size: 512,
            engine,
            portals: 1,
            below: &below,
            folder: &folder,
            keep_file: false,
            lockable_bytes: None,
        };
        let server = setup.start()?;
        let mut words = pinned(CLIENT_CORE);
        words.extend(["iscsi-perf", "-r", "-m", "32", "-b", "8", "-t", "3"].map(str::to_owned));
        words.push(server.url(0));
        let before = server.process().cpu_time()?;
        let output = run_checked(
            Command::new(&words[0]).args(&words[1..]),
            Duration::from_secs(30),
        )?;
        let used = server.process().cpu_time()?.saturating_sub(before);
        // It overwrites its line by carriage returns; the last one holds the average of the run.
        let average = output
            .split(['\r', '\n'])
            .filter_map(|line| line.split_once("iops average "))
            .filter_map(|(_, rest)| rest.split(',').next())
            .next_back()
            .map_or("no figure", str::trim);
        lines += &format!(
            "- {}: {average} IOPS, {used:.1?} of CPU in all\n",
            kind.name()
        );
    }
    Ok(lines)
}
