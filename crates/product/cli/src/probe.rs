//! `longshore probe`

mod report;
pub mod statistics;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longshore_bench::medium::{LocalOptions, Medium};
use longshore_bench::units;
use longshore_bench::watch::Interrupt;
use longshore_model::identify;
use longshore_model::probe::{Probe, Remark, RemarkKind};
use longshore_probe::{Asked, Error, Options, ServerView, Watch, WriteRegion};
use longshore_reactor::EngineChoice;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::connection::ConnectionArguments;
use crate::output::{OutputFile, OutputFormat};
use crate::server::ServerArguments;

/// Shortest and longest time of a probe.
const TIMES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

#[derive(Debug, Args)]
pub struct ProbeArguments {
    // Not a doc comment: rustdoc takes brackets for links.
    #[arg(
        value_name = "VOLUME",
        value_parser = medium(),
        help = "The volume: iscsi://HOST[:PORT]/IQN/LUN, nvme+tcp://HOST[:PORT]/NQN/NSID, a file, a block device, or the document of an earlier probe"
    )]
    volume: Medium,

    #[command(flatten)]
    probing: Probing,
}

/// How a volume is probed, in all verbs that do.
#[derive(Debug, Args)]
pub struct Probing {
    /// Measure writes, too, in this region of the volume: OFFSET+LENGTH, such as 0+16m
    ///
    /// Every write writes what the place held when the probe began, so data stays as it is unless somebody else writes
    /// there meanwhile: what they write can get LOST. Only for a volume that nobody uses.
    #[arg(long, value_name = "OFFSET+LENGTH", value_parser = region, requires = "volume")]
    pub write: Option<WriteRegion>,

    /// About how long to measure
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = time, requires = "volume")]
    pub time: Duration,

    /// Seed of the places of random operations
    #[arg(long, value_name = "N", default_value_t = 1, requires = "volume")]
    seed: u64,

    /// Write the document of the probe to a file, for the verbs that take one
    #[arg(long, value_name = "FILE.json", requires = "volume")]
    save: Option<PathBuf>,

    /// Process of the server on this machine, to measure its processor time
    #[arg(long, value_name = "PID", requires = "volume")]
    server_pid: Option<u32>,

    /// Bypass the page cache of a file or block device (O_DIRECT)
    #[arg(long, requires = "volume")]
    direct: bool,

    /// I/O engine for files and block devices [default: auto]
    #[arg(long, value_name = "auto|io_uring|epoll", value_parser = longshore_daemon::config::words::parse::<EngineChoice>)]
    engine: Option<EngineChoice>,

    #[command(flatten)]
    pub server: ServerArguments,

    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Reads what names a volume or a document.
pub fn medium() -> ValueParser {
    OsStringValueParser::new().try_map(Medium::parse).into()
}

fn region(text: &str) -> Result<WriteRegion, String> {
    let form = || "write OFFSET+LENGTH, such as 0+16m".to_owned();
    let (offset, length) = text.split_once('+').ok_or_else(form)?;
    let size = |text: &str| units::size(text).map_err(|error| error.to_string());
    Ok(WriteRegion {
        offset: size(offset)?,
        length: size(length)?,
    })
}

fn time(text: &str) -> Result<Duration, String> {
    let time = units::duration(text).map_err(|error| error.to_string())?;
    let (shortest, longest) = TIMES;
    if (shortest..=longest).contains(&time) {
        Ok(time)
    } else {
        Err("use 1s to 1h".to_owned())
    }
}

pub fn run(arguments: &ProbeArguments) -> ExitCode {
    let probe = match arguments.probing.obtain(&arguments.volume, Vec::new()) {
        Ok(probe) => probe,
        Err(status) => return status,
    };
    match arguments.probing.server.output {
        OutputFormat::Text => crate::exit::print(report::text(&probe).as_bytes()),
        OutputFormat::Json => crate::exit::print(&probe.to_json()),
    }
}

impl Probing {
    /// Probes a volume, or reads an earlier probe, and fits the parts. A failure has been told.
    ///
    /// `asked`: loads that are measured as well.
    pub fn obtain(&self, volume: &Medium, asked: Vec<Asked>) -> Result<Probe, ExitCode> {
        let connection = self.connection.options(volume.url());
        let connection = connection.map_err(|error| crate::exit::refuse(&error))?;
        // A path that cannot be written does not cost the figures of a minute.
        let save = self.save.as_deref().map(OutputFile::open).transpose();
        let save = save.map_err(|error| crate::exit::fail(&error))?;
        let statistics = if self.server.is_named() {
            let client = self.server.client();
            let client = client.map_err(|error| crate::exit::fail(&error))?;
            let view: Box<dyn ServerView> = Box::new(statistics::Statistics::new(client));
            Some(view)
        } else {
            None
        };
        let options = Options {
            time: self.time,
            writes: self.write,
            asked,
            seed: self.seed,
            statistics,
            server_pid: self.server_pid,
            connection,
            local: LocalOptions {
                direct: self.direct,
                engine: self.engine.unwrap_or_default(),
            },
        };
        let interrupt = Interrupt::default();
        listen_for_signals(&interrupt).map_err(|error| crate::exit::fail(&error))?;
        let mut bar = Bar::new();
        let obtained = longshore_probe::obtain(volume, options, &interrupt, &mut bar);
        bar.0.finish_and_clear();
        let probe = match obtained {
            Ok(probe) => fitted(probe),
            Err(Error::Interrupted(signal)) => {
                eprintln!("error: {}", Error::Interrupted(signal));
                return Err(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)));
            }
            Err(error) => return Err(crate::exit::fail(&error)),
        };
        if let Some(path) = &self.save {
            let written = write(path, &probe.to_json());
            written.map_err(|error| crate::exit::fail(&error))?;
        }
        drop(save);
        Ok(probe)
    }
}

/// With the parts that the points tell, unless the document has them.
fn fitted(mut probe: Probe) -> Probe {
    if probe.fitted.is_none()
        && probe.fitted_writes.is_none()
        && let Err(error) = identify::complete(&mut probe)
    {
        let remark = Remark {
            kind: RemarkKind::NotMeasured,
            text: format!("parts not fitted: {error}"),
        };
        // A document that was saved with it is fitted in vain again.
        if !probe.remarks.contains(&remark) {
            probe.remarks.push(remark);
        }
    }
    probe
}

/// The document cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; correct the path or its permissions", path.display())]
pub struct WriteError {
    path: PathBuf,
    source: std::io::Error,
}

/// Writes a document into a file.
pub fn write(path: &Path, document: &[u8]) -> Result<(), WriteError> {
    fs::write(path, document).map_err(|source| WriteError {
        path: path.to_owned(),
        source,
    })
}

/// The first signal stops the probe, a second one the process.
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

/// A bar on standard error, if that is a terminal.
struct Bar(ProgressBar);

const STEPS: u32 = 1000;

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS.into()), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        bar.set_style(style.expect("the template is in order"));
        Self(bar)
    }
}

impl Watch for Bar {
    fn progress(&mut self, done: f64, what: &str) {
        // Rounded, and within the bar.
        let steps = (0..=STEPS).take_while(|step| f64::from(*step) <= done * f64::from(STEPS));
        self.0.set_position(steps.last().unwrap_or(0).into());
        self.0.set_message(what.to_owned());
    }

    fn warn(&mut self, text: &str) {
        self.0.suspend(|| eprintln!("warning: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_an_offset_and_a_length() {
        let parsed = region("1m+64k").unwrap();
        assert_eq!((parsed.offset, parsed.length), (1 << 20, 64 << 10));
        for wrong in ["", "16m", "+", "0+", "a+b", "0+16m+1"] {
            assert!(region(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_probe_takes_a_second_at_least_and_an_hour_at_most() {
        assert_eq!(time("5s"), Ok(Duration::from_secs(5)));
        assert!(time("100ms").is_err() && time("2h").is_err() && time("soon").is_err());
    }
}
