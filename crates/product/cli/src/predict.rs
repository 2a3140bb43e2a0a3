//! `longshore predict`

mod plot;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use longshore_bench::chart::{Format, PlotError};
use longshore_bench::spec::{self, SpecError};
use longshore_bench::units::{self, UnitError};
use longshore_model::parameter::{Choice, ParameterError, Parts, Source};
use longshore_model::parts_file::{self, PartsFile, PartsFileError};
use longshore_model::prediction::{differences, sweep};
use longshore_model::presets::{PRESETS, preset};
use longshore_model::report::{self, Change, Method, Report};

use crate::output::{self, OutputFile, OutputFormat};

#[derive(Debug, Args)]
pub struct PredictArguments {
    /// The parts of a set-up: a TOML file, such as --parts prints
    #[arg(
        value_name = "FILE",
        required_unless_present = "preset",
        conflicts_with = "preset"
    )]
    file: Option<PathBuf>,

    /// A published set-up
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PRESETS.iter().map(|(name, _)| *name)))]
    preset: Option<String>,

    /// Change a part, and show the difference; repeatable
    ///
    /// Keys are those of the file, such as max-outstanding-r2t=16, one-way-latency=110us or clock=1.6GHz. A value
    /// may have an uncertainty: 110us±10us or 110us+-10%.
    #[arg(long, value_name = "KEY=VALUE")]
    what_if: Vec<String>,

    /// Direction [default: that of the set-up]
    #[arg(long, visible_alias = "readwrite", value_name = "read|write", value_parser = PossibleValuesParser::new(["read", "write"]), hide_possible_values = true)]
    rw: Option<String>,

    /// Sizes of an operation [default: those of the set-up]
    #[arg(long, value_name = "SIZE[,SIZE]...")]
    bs: Option<String>,

    /// Operations in progress on each connection; a list, or a range such as 1..256 [default: those of the set-up]
    #[arg(long, value_name = "DEPTH[,DEPTH]...")]
    iodepth: Option<String>,

    /// Print all parts as a file, with their meanings, sources and uncertainties
    ///
    /// The changes of --what-if are in the file.
    #[arg(long, conflicts_with_all = ["output", "plot"])]
    parts: bool,

    /// Output format
    #[arg(
        long,
        value_name = "text|json",
        default_value = "text",
        hide_possible_values = true
    )]
    output: OutputFormat,

    /// Draw throughput and latency to a file, by depth, or by size where there is one depth only
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    plot: Option<PathBuf>,
}

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
enum PredictError {
    #[error("cannot read {}: {source}; correct the path", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}:{source}", path.display())]
    File {
        path: PathBuf,
        source: PartsFileError,
    },
    #[error("--what-if {text}: {source}")]
    Change {
        text: String,
        source: ParameterError,
    },
    #[error("--what-if {0}: write KEY=VALUE, such as max-outstanding-r2t=16")]
    NotAChange(String),
    #[error("--bs: {0}")]
    Size(UnitError),
    #[error("--bs: an operation has at least one byte")]
    NoSize,
    #[error(transparent)]
    Depth(#[from] SpecError),
    #[error(transparent)]
    Plot(#[from] PlotError),
    #[error("mix-size: the closed form knows one load only; set it to 0")]
    Mix,
    #[error("--plot needs at least two depths or sizes; give --iodepth a range, such as 1..256")]
    OnePoint,
}

impl PredictError {
    /// Whether the command line is wrong, and not a file.
    fn is_usage(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::File { .. })
    }
}

/// What is predicted.
struct Plan {
    /// The preset or file.
    name: String,
    file: PartsFile,
    /// With the changes.
    changed: Option<Parts>,
    changes: Vec<Change>,
}

/// `longshore predict`
pub fn run(arguments: &PredictArguments) -> ExitCode {
    let plan = match arguments.plan() {
        Ok(plan) => plan,
        Err(error) if error.is_usage() => crate::usage(&error),
        Err(error) => return crate::fail(&error),
    };
    if arguments.parts {
        let mut file = plan.file;
        if let Some(changed) = plan.changed {
            file.parts = changed;
        }
        return crate::print(parts_file::render(&file).as_bytes());
    }
    let plot = match arguments.plot.as_deref().map(OutputFile::open).transpose() {
        Ok(plot) => plot,
        Err(error) => return crate::fail(&error),
    };
    let report = plan.report();
    let text = match arguments.output {
        OutputFormat::Text => report.text().into_bytes(),
        OutputFormat::Json => output::json(&report),
    };
    let drawn = match &arguments.plot {
        Some(path) => plot::draw(path, &report),
        None => Ok(()),
    };
    drop(plot);
    match (crate::print(&text), drawn) {
        (_, Err(error)) => crate::fail(&error),
        (status, Ok(())) => status,
    }
}

impl PredictArguments {
    fn plan(&self) -> Result<Plan, PredictError> {
        let (name, mut file) = match (&self.preset, &self.file) {
            (Some(name), _) => {
                let file = preset(name).expect("the command line takes known names only");
                (name.clone(), file)
            }
            (None, Some(path)) => (path.display().to_string(), read(path)?),
            (None, None) => unreachable!("the command line needs one of both"),
        };
        if let Some(direction) = &self.rw {
            let chosen = file.parts.choose(Choice::Direction, direction);
            chosen.expect("the command line takes known words only");
        }
        if let Some(text) = &self.bs {
            let sizes = text.split(',').map(units::size);
            file.sizes = sizes
                .collect::<Result<_, _>>()
                .map_err(PredictError::Size)?;
            if file.sizes.contains(&0) {
                return Err(PredictError::NoSize);
            }
        }
        if let Some(text) = &self.iodepth {
            file.depths = spec::depths(text)?;
        }
        if let Some(path) = &self.plot {
            Format::of(path)?;
            if file.sizes.len().max(file.depths.len()) < 2 {
                return Err(PredictError::OnePoint);
            }
        }
        let mut changed = file.parts.clone();
        let mut changes = Vec::new();
        for text in &self.what_if {
            let (name, value) = text
                .split_once('=')
                .ok_or_else(|| PredictError::NotAChange(text.clone()))?;
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            let source = Source::Given("--what-if".to_owned());
            changed
                .change(&name, &value, source)
                .map_err(|source| PredictError::Change {
                    text: text.clone(),
                    source,
                })?;
            changes.push(Change { name, value });
        }
        if parts_file::needs_simulation(&changed) {
            return Err(PredictError::Mix);
        }
        Ok(Plan {
            name,
            file,
            changed: (!changes.is_empty()).then_some(changed),
            changes,
        })
    }
}

fn read(path: &Path) -> Result<PartsFile, PredictError> {
    let text = fs::read_to_string(path).map_err(|source| PredictError::Read {
        path: path.to_owned(),
        source,
    })?;
    let name = path.display().to_string();
    PartsFile::parse(&text, &name).map_err(|source| PredictError::File {
        path: path.to_owned(),
        source,
    })
}

impl Plan {
    fn report(self) -> Report {
        let PartsFile {
            title,
            parts,
            sizes,
            depths,
        } = self.file;
        let changed = self.changed.as_ref();
        Report {
            setup: self.name,
            title,
            method: Method::ClosedForm,
            interval_percent: 90,
            parts: report::parts(&parts),
            prediction: sweep(&parts, &sizes, &depths),
            what_if: self.changes,
            changed: changed.map(|changed| sweep(changed, &sizes, &depths)),
            differences: changed.map_or_else(Vec::new, |changed| {
                differences(&parts, changed, &sizes, &depths)
            }),
        }
    }
}
