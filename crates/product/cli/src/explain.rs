//! `longshore explain`

mod plot;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use longshore_bench::chart::Format;
use longshore_bench::medium::Medium;
use longshore_bench::units;
use longshore_model::identify;
use longshore_model::pipeline::{Pipeline, of_probe, of_server};
use longshore_model::probe::{Direction, Probe};
use longshore_probe::{ServerView, since};
use longshore_report::diagram;
use longshore_report::page::{self, Document};
use serde::Serialize;

use crate::output::{self, OutputFile, OutputFormat, printable};
use crate::probe::statistics::Statistics;
use crate::probe::{Probing, medium, write};

#[derive(Debug, Args)]
pub struct ExplainArguments {
    // Not a doc comment: rustdoc takes brackets for links.
    #[arg(
        value_name = "VOLUME",
        value_parser = medium(),
        help = "The volume: iscsi://HOST[:PORT]/IQN/LUN, nvme+tcp://HOST[:PORT]/NQN/NSID, a file, a block device, or the document of a probe [default: what a running server's clients do now]"
    )]
    volume: Option<Medium>,

    /// Size of the operation, with a volume [default: 4k, or a block]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "volume")]
    bs: Option<u64>,

    /// How long to watch a running server, without a volume
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = interval, conflicts_with = "volume")]
    interval: Duration,

    /// Mean latency that a client measures meanwhile, without a volume: shows what the server does not see
    #[arg(long, value_name = "DURATION", value_parser = interval, conflicts_with = "volume")]
    client_latency: Option<Duration>,

    /// Draw the pipelines to a file
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    plot: Option<PathBuf>,

    /// Write a report as one HTML file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    #[command(flatten)]
    probing: Probing,
}

/// A size of an operation.
pub fn size(text: &str) -> Result<u64, String> {
    let size = units::size(text).map_err(|error| error.to_string())?;
    if (1..=longshore_model::parts_file::SIZE_MAX).contains(&size) {
        Ok(size)
    } else {
        Err("use 1 to 1g".to_owned())
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = units::duration(text).map_err(|error| error.to_string())?;
    if time.is_zero() || time > Duration::from_secs(3600) {
        return Err("use a time up to 1h".to_owned());
    }
    Ok(time)
}

/// Rises when a field goes away or changes its meaning.
const VERSION: u32 = 1;

/// Pipelines of a running server at most: those of the most frequent kinds of operations.
const KINDS_MAX: usize = 6;

/// Why there is no pipeline.
#[derive(Debug, thiserror::Error)]
enum ExplainError {
    #[error("the probe has too few loads to fit the parts; probe for a longer time")]
    TooFew,
    #[error("no operation was followed; choose a longer --interval, or a server with a load")]
    NoLoad,
    #[error(
        "--client-latency belongs to one kind of operation, and {0} kinds were seen; leave it out, or watch a load of one direction and size"
    )]
    Kinds(usize),
    #[error("{0}")]
    Server(String),
}

#[derive(Debug, Serialize)]
struct Explanation {
    version: u32,
    /// The volume; none: a running server.
    subject: Option<String>,
    pipelines: Vec<PipelineRow>,
}

#[derive(Debug, Serialize)]
struct PipelineRow {
    #[serde(flatten)]
    pipeline: Pipeline,
    unexplained_us: Option<f64>,
}

pub fn run(arguments: &ExplainArguments) -> ExitCode {
    match explain(arguments) {
        Ok(status) | Err(status) => status,
    }
}

fn explain(arguments: &ExplainArguments) -> Result<ExitCode, ExitCode> {
    let open = |path: &Option<PathBuf>| {
        let file = path.as_deref().map(OutputFile::open).transpose();
        file.map_err(|error| crate::exit::fail(&error))
    };
    if let Some(path) = &arguments.plot {
        Format::of(path).map_err(|error| crate::exit::fail(&error))?;
    }
    let files = (open(&arguments.plot)?, open(&arguments.report)?);
    let (probe, pipelines) = match &arguments.volume {
        Some(volume) => {
            let probe = arguments.probing.obtain(volume, Vec::new())?;
            let pipelines = of_volume(&probe, arguments.bs);
            (Some(probe), pipelines)
        }
        None => (None, of_running(arguments)?),
    };
    if pipelines.is_empty() {
        let why = match &arguments.volume {
            Some(_) => ExplainError::TooFew,
            None => ExplainError::NoLoad,
        };
        return Err(crate::exit::fail(&why));
    }
    if let Some(path) = &arguments.plot {
        let drawn = plot::drawn(path, &diagram::picture(&pipelines));
        let drawn = drawn.map_err(|error| crate::exit::fail(&error))?;
        write(path, &drawn).map_err(|error| crate::exit::fail(&error))?;
    }
    if let Some(path) = &arguments.report {
        let document = Document {
            probe: probe.as_ref(),
            pipelines: &pipelines,
            advice: None,
        };
        let written = write(path, page::html(&document).as_bytes());
        written.map_err(|error| crate::exit::fail(&error))?;
    }
    drop(files);
    let printed = match arguments.probing.server.output {
        OutputFormat::Text => text(probe.as_ref(), &pipelines).into_bytes(),
        OutputFormat::Json => output::json(&Explanation {
            version: VERSION,
            subject: probe.map(|probe| probe.subject.name),
            pipelines: pipelines
                .into_iter()
                .map(|pipeline| PipelineRow {
                    unexplained_us: pipeline.unexplained_us(),
                    pipeline,
                })
                .collect(),
        }),
    };
    Ok(crate::exit::print(&printed))
}

/// Reads and writes, as far as they were measured.
fn of_volume(probe: &Probe, size: Option<u64>) -> Vec<Pipeline> {
    let size = size.unwrap_or_else(|| probe.subject.block_size.max(4096));
    let directions = [Direction::Read, Direction::Write].into_iter();
    directions
        .filter_map(|direction| {
            let file = identify::parts(probe, direction).ok()?;
            Some(of_probe(probe, &file.parts, direction, size))
        })
        .flatten()
        .collect()
}

/// What a server's clients do now.
fn of_running(arguments: &ExplainArguments) -> Result<Vec<Pipeline>, ExitCode> {
    let client = arguments.probing.server.client();
    let client = client.map_err(|error| crate::exit::fail(&error))?;
    let mut statistics = Statistics::new(client);
    let mut read = || {
        let facts = statistics.read();
        facts.map_err(|error| crate::exit::fail(&ExplainError::Server(error)))
    };
    let before = read()?;
    std::thread::sleep(arguments.interval);
    let facts = since(&before, &read()?);
    let latency = arguments.client_latency.map(|it| it.as_secs_f64() * 1e6);
    if latency.is_some() && facts.stages.len() > 1 {
        return Err(crate::exit::fail(&ExplainError::Kinds(facts.stages.len())));
    }
    let mut pipelines = of_server(&facts, latency);
    pipelines.truncate(KINDS_MAX);
    Ok(pipelines)
}

fn text(probe: Option<&Probe>, pipelines: &[Pipeline]) -> String {
    let mut text = String::new();
    if let Some(probe) = probe {
        text += &format!("{}\n\n", printable(&probe.subject.name));
    }
    let all: Vec<String> = pipelines.iter().map(diagram::text).collect();
    text += &all.join("\n");
    if let Some(probe) = probe {
        for fitted in probe.fitted.iter().chain(&probe.fitted_writes) {
            if let Some(error) = fitted.error {
                text += &format!(
                    "\n- loads that were kept back are predicted with a median error of {:.1} %, {:.1} % at worst\n",
                    error.median_percent, error.worst_percent
                );
            }
        }
        for remark in &probe.remarks {
            text += &format!("\n- {}\n", printable(&remark.text));
        }
    } else if pipelines.iter().all(|it| it.measured_us.is_none()) {
        text += "\n- A server does not see its clients: the round trip of a client is longer by its own time. \
                 --client-latency shows by how much.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_intervals_have_bounds() {
        assert_eq!(size("64k"), Ok(65536));
        assert!(size("0").is_err() && size("2g").is_err() && size("x").is_err());
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        assert!(interval("0s").is_err() && interval("2h").is_err());
    }
}
