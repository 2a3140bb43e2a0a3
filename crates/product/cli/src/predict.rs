//! `longshore predict`

mod plot;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use longshore_bench::chart::{Format, PlotError};
use longshore_bench::spec::{self, SpecError};
use longshore_bench::units::{self, UnitError};
use longshore_model::identify::{self, FitError};
use longshore_model::parameter::{Choice, Key, ParameterError, Parts, Source};
use longshore_model::parts_file::{self, PartsFile, PartsFileError};
use longshore_model::prediction::{Difference, Sweep, differences, sweep};
use longshore_model::presets::{PRESETS, preset};
use longshore_model::probe::{DOCUMENT_MAX, Direction, Probe, ProbeError};
use longshore_model::report::{self, Change, Method, Report};
use longshore_model::simulated;

use crate::output::{self, OutputFile, OutputFormat};

#[derive(Debug, Args)]
pub struct PredictArguments {
    /// The parts of a set-up: a TOML file, such as --parts prints, or the document of a probe
    #[arg(
        value_name = "FILE",
        required_unless_present = "preset",
        conflicts_with = "preset"
    )]
    file: Option<PathBuf>,

    /// A published set-up to begin with
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

    /// Simulate the set-up event by event, with the server's own transmit policies, instead of formulas
    ///
    /// Covers responses that wait for others or for acknowledgements, and second loads (mix-size).
    #[arg(long)]
    simulate: bool,

    /// Seed of the simulation; the same seed gives the same figures
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate")]
    seed: u64,

    /// Print all parts as a file, with their meanings, sources and uncertainties
    ///
    /// The changes of --what-if are in the file.
    #[arg(long, conflicts_with_all = ["output", "plot", "simulate"])]
    parts: bool,

    /// Format of the output
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
    #[error("{}: {source}", path.display())]
    Document { path: PathBuf, source: ProbeError },
    #[error("{}: {source}; probe for a longer time, for writes with --write", path.display())]
    Fit { path: PathBuf, source: FitError },
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
    #[error("--bs: {0}")]
    TooLarge(String),
    #[error("{0} operations under way are too many to simulate; reduce --iodepth, mix-depth or connections to {most} in all", most = UNDER_WAY_MAX)]
    TooMany(u64),
    #[error(transparent)]
    Depth(#[from] SpecError),
    #[error(transparent)]
    Plot(#[from] PlotError),
    #[error("mix-size: formulas know one load only; add --simulate, or set it to 0")]
    Mix,
    #[error("--plot needs at least two depths or sizes; give --iodepth a range, such as 1..256")]
    OnePoint,
}

impl PredictError {
    /// Whether the command line is wrong, and not a file.
    fn is_usage(&self) -> bool {
        !matches!(
            self,
            Self::Read { .. } | Self::File { .. } | Self::Document { .. } | Self::Fit { .. }
        )
    }
}

/// Operations under way that a simulation keeps at most.
const UNDER_WAY_MAX: u64 = 100_000;

struct Plan {
    /// The preset or file.
    name: String,
    file: PartsFile,
    /// Parts with the changes applied; `None` without changes.
    changed: Option<Parts>,
    changes: Vec<Change>,
}

pub fn run(arguments: &PredictArguments) -> ExitCode {
    let plan = match arguments.plan() {
        Ok(plan) => plan,
        Err(error) if error.is_usage() => crate::exit::usage(&error),
        Err(error) => return crate::exit::fail(&error),
    };
    if arguments.parts {
        let mut file = plan.file;
        if let Some(changed) = plan.changed {
            file.parts = changed;
        }
        return crate::exit::print(parts_file::render(&file).as_bytes());
    }
    let plot = match arguments.plot.as_deref().map(OutputFile::open).transpose() {
        Ok(plot) => plot,
        Err(error) => return crate::exit::fail(&error),
    };
    let report = plan.report(arguments.simulate.then_some(arguments.seed));
    let text = match arguments.output {
        OutputFormat::Text => report.text().into_bytes(),
        OutputFormat::Json => output::json(&report),
    };
    let drawn = match &arguments.plot {
        Some(path) => plot::draw(path, &report),
        None => Ok(()),
    };
    drop(plot);
    match (crate::exit::print(&text), drawn) {
        (_, Err(error)) => crate::exit::fail(&error),
        (status, Ok(())) => status,
    }
}

impl PredictArguments {
    /// The set-up in a file: TOML, or the document of a probe, which begins with a brace.
    fn read(&self, path: &Path) -> Result<PartsFile, PredictError> {
        let failed = |source| PredictError::Read {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        let most = u64::try_from(DOCUMENT_MAX).unwrap_or(u64::MAX);
        let mut file = File::open(path).map_err(failed)?.take(most + 1);
        file.read_to_end(&mut bytes).map_err(failed)?;
        if bytes.first() == Some(&b'{') {
            return self.read_probe(path, &bytes);
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        let name = path.display().to_string();
        PartsFile::parse(&text, &name).map_err(|source| PredictError::File {
            path: path.to_owned(),
            source,
        })
    }

    fn read_probe(&self, path: &Path, bytes: &[u8]) -> Result<PartsFile, PredictError> {
        let probe = Probe::parse(bytes).map_err(|source| PredictError::Document {
            path: path.to_owned(),
            source,
        })?;
        let direction = match self.rw.as_deref() {
            Some("write") => Direction::Write,
            Some(_) => Direction::Read,
            None => identify::direction(&probe),
        };
        identify::parts(&probe, direction).map_err(|source| PredictError::Fit {
            path: path.to_owned(),
            source,
        })
    }

    fn plan(&self) -> Result<Plan, PredictError> {
        let (name, mut file) = match (&self.preset, &self.file) {
            (Some(name), _) => {
                let file = preset(name).expect("the command line takes known names only");
                (name.clone(), file)
            }
            (None, Some(path)) => (path.display().to_string(), self.read(path)?),
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
            parts_file::check_sizes(&file.sizes).map_err(PredictError::TooLarge)?;
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
        if parts_file::needs_simulation(&changed) && !self.simulate && !self.parts {
            return Err(PredictError::Mix);
        }
        if self.simulate {
            let most = [&file.parts, &changed].map(|parts| under_way(parts, &file.depths));
            let most = most.into_iter().max().unwrap_or(0);
            if most > UNDER_WAY_MAX {
                return Err(PredictError::TooMany(most));
            }
        }
        Ok(Plan {
            name,
            file,
            changed: (!changes.is_empty()).then_some(changed),
            changes,
        })
    }
}

/// Operations under way at the largest depth.
fn under_way(parts: &Parts, depths: &[u16]) -> u64 {
    let depth = depths.iter().copied().max().map_or(0, u64::from);
    (depth + parts.count(Key::MixDepth)) * parts.count(Key::Connections)
}

impl Plan {
    /// Predicts, by simulation where there is a seed.
    fn report(self, seed: Option<u64>) -> Report {
        let PartsFile {
            title,
            parts,
            sizes,
            depths,
        } = self.file;
        let changed = self.changed.as_ref();
        let (prediction, changed, differences) = match seed {
            Some(seed) => simulate(&parts, changed, &sizes, &depths, seed),
            None => (
                sweep(&parts, &sizes, &depths),
                changed.map(|changed| sweep(changed, &sizes, &depths)),
                changed.map_or_else(Vec::new, |changed| {
                    differences(&parts, changed, &sizes, &depths)
                }),
            ),
        };
        Report {
            setup: self.name,
            title,
            method: if seed.is_some() {
                Method::Simulation
            } else {
                Method::ClosedForm
            },
            seed,
            interval_percent: 90,
            parts: report::parts(&parts),
            prediction,
            what_if: self.changes,
            changed,
            differences,
        }
    }
}

/// Simulates, with a bar on a terminal.
fn simulate(
    parts: &Parts,
    changed: Option<&Parts>,
    sizes: &[u64],
    depths: &[u16],
    seed: u64,
) -> (Sweep, Option<Sweep>, Vec<Difference>) {
    let points = sizes.len() * depths.len();
    let bar = ProgressBar::new(u64::try_from(points).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} points, {eta} left");
    bar.set_style(style.expect("the template is in order"));
    let progress = &mut |done: usize| bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
    let results = simulated::sweep(parts, changed, sizes, depths, seed, progress);
    bar.finish_and_clear();
    results
}
