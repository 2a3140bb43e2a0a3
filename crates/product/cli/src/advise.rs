//! `longshore advise`

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use longshore_bench::medium::Medium;
use longshore_bench::units::show_size;
use longshore_model::advice::{self, Advice, Beside, Checked, Gains, Goal, usual_goal};
use longshore_model::identify::{self, FitError};
use longshore_model::pipeline::of_probe;
use longshore_model::probe::{Direction, Probe};
use longshore_probe::Asked;
use longshore_report::page::{self, Document};
use serde::Serialize;

use crate::explain::size;
use crate::output::{self, OutputFile, OutputFormat, printable};
use crate::probe::{Probing, medium, write};

#[derive(Debug, Args)]
pub struct AdviseArguments {
    // Not a doc comment: rustdoc takes brackets for links.
    #[arg(
        value_name = "VOLUME",
        value_parser = medium(),
        help = "The volume: iscsi://HOST[:PORT]/IQN/LUN, nvme+tcp://HOST[:PORT]/NQN/NSID, a file, a block device, or the document of a probe"
    )]
    volume: Medium,

    /// What is to be faster [default: reads]
    #[arg(long, visible_alias = "readwrite", value_name = "read|write", value_parser = PossibleValuesParser::new(["read", "write"]), hide_possible_values = true)]
    rw: Option<String>,

    /// Size of the operations [default: 4k for reads, 256k for writes]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bs: Option<u64>,

    /// Operations in progress [default: 4 for reads, 1 for writes]
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u16).range(1..=1024))]
    iodepth: Option<u16>,

    /// The operations follow one another on the volume: larger ones may be advised
    #[arg(long)]
    sequential: bool,

    /// A load of others on the volume at the same time: read|write,SIZE,DEPTH, such as write,1m,32
    #[arg(long, value_name = "RW,SIZE,DEPTH", value_parser = beside)]
    beside: Option<Beside>,

    /// A setting of a host that no probe sees: client.NAME=VALUE or server.NAME=VALUE, with NAME rx-usecs or tx-usecs
    /// (ethtool -c), or a name of sysctl; repeatable
    #[arg(long, value_name = "SIDE.NAME=VALUE", value_parser = setting)]
    setting: Vec<Setting>,

    /// Compare with the probe from before a change: predicted and achieved gain
    #[arg(long, value_name = "BEFORE.json")]
    check: Option<PathBuf>,

    /// Write a report as one HTML file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    #[command(flatten)]
    probing: Probing,
}

/// A setting of a host, as somebody has read it there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    is_client: bool,
    name: String,
    value: String,
}

impl Setting {
    fn note(&self, probe: &mut Probe) {
        let settings = if self.is_client {
            &mut probe.client.settings
        } else {
            &mut probe.server.get_or_insert_default().settings
        };
        settings.insert(self.name.clone(), self.value.clone());
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    let form = || "write client.NAME=VALUE or server.NAME=VALUE".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(form)?;
    let (side, name) = name.split_once('.').ok_or_else(form)?;
    if name.is_empty() || value.is_empty() {
        return Err(form());
    }
    Ok(Setting {
        is_client: match side {
            "client" => true,
            "server" => false,
            _ => return Err(form()),
        },
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

fn beside(text: &str) -> Result<Beside, String> {
    let form = || "write read|write,SIZE,DEPTH, such as write,1m,32".to_owned();
    let [direction, bytes, depth] = text.split(',').collect::<Vec<_>>()[..] else {
        return Err(form());
    };
    Ok(Beside {
        direction: match direction {
            "read" => Direction::Read,
            "write" => Direction::Write,
            _ => return Err(form()),
        },
        size_bytes: size(bytes)?,
        depth: depth
            .parse()
            .ok()
            .filter(|depth| (1..=1024).contains(depth))
            .ok_or_else(|| "use a depth from 1 to 1024".to_owned())?,
    })
}

/// The document of `--output json`.
#[derive(Debug, Serialize)]
struct Advised<'a> {
    subject: &'a str,
    #[serde(flatten)]
    advice: &'a Advice,
    /// What became of the advice for an earlier probe (`--check`).
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<&'a [Checked]>,
}

pub fn run(arguments: &AdviseArguments) -> ExitCode {
    match advise(arguments) {
        Ok(status) | Err(status) => status,
    }
}

fn advise(arguments: &AdviseArguments) -> Result<ExitCode, ExitCode> {
    let failed = |error: FitError| crate::exit::fail(&error);
    let before = arguments.check.as_deref().map(earlier).transpose()?;
    let file = arguments
        .report
        .as_deref()
        .map(OutputFile::open)
        .transpose();
    let file = file.map_err(|error| crate::exit::fail(&error))?;
    let wanted = arguments.goal(before.as_ref().unwrap_or(&Probe::default()));
    if wanted.direction == Direction::Write
        && arguments.volume.url().is_some()
        && arguments.probing.write.is_none()
    {
        crate::exit::usage(&NoWrites);
    }
    let earlier = match &before {
        Some(before) => Some((before, advice::advise(before, &wanted).map_err(failed)?)),
        None => None,
    };
    let loads = match &earlier {
        Some((_, advice)) => advice.loads_to_check(),
        None => vec![wanted],
    };
    let asked = loads.into_iter().map(|load| Asked {
        direction: load.direction,
        size: load.size_bytes,
        depth: load.depth,
    });
    let mut probe = arguments
        .probing
        .obtain(&arguments.volume, asked.collect())?;
    for setting in &arguments.setting {
        setting.note(&mut probe);
    }
    let goal = match &before {
        Some(_) => wanted,
        None => arguments.goal(&probe),
    };
    let advice = advice::advise(&probe, &goal).map_err(failed)?;
    let checked = match &earlier {
        Some((before, advice)) => Some(advice::check(advice, before, &probe).map_err(failed)?),
        None => None,
    };
    if let Some(path) = &arguments.report {
        let parts = identify::parts(&probe, goal.direction).map_err(failed)?;
        let pipelines = of_probe(&probe, &parts.parts, goal.direction, goal.size_bytes);
        let document = Document {
            probe: Some(&probe),
            pipelines: &pipelines,
            advice: Some(&advice),
        };
        let written = write(path, page::html(&document).as_bytes());
        written.map_err(|error| crate::exit::fail(&error))?;
    }
    drop(file);
    let printed = match arguments.probing.server.output {
        OutputFormat::Text => text(&probe, &advice, checked.as_deref()).into_bytes(),
        OutputFormat::Json => output::json(&Advised {
            subject: &probe.subject.name,
            advice: &advice,
            checked: checked.as_deref(),
        }),
    };
    Ok(crate::exit::print(&printed))
}

/// The probe from before a change. Nothing is measured for it.
fn earlier(path: &Path) -> Result<Probe, ExitCode> {
    match longshore_probe::document(path) {
        Ok(Some(probe)) => Ok(probe),
        Ok(None) => Err(crate::exit::fail(&NoDocument(path.to_owned()))),
        Err(error) => Err(crate::exit::fail(&error)),
    }
}

/// What `--check` names is something else.
#[derive(Debug, thiserror::Error)]
#[error("{} is not the document of a probe; write one with --save before the change", .0.display())]
struct NoDocument(PathBuf);

/// Advice for writes rests on a probe of writes, which changes a volume.
#[derive(Debug, thiserror::Error)]
#[error(
    "advice for writes needs a probe of writes; add --write OFFSET+LENGTH, a part of the volume that nobody uses"
)]
struct NoWrites;

impl AdviseArguments {
    fn goal(&self, probe: &Probe) -> Goal {
        let direction = self.rw.as_deref().map(|word| match word {
            "write" => Direction::Write,
            _ => Direction::Read,
        });
        let usual = usual_goal(probe, direction);
        Goal {
            size_bytes: self.bs.unwrap_or(usual.size_bytes),
            depth: self.iodepth.unwrap_or(usual.depth),
            in_order: self.sequential,
            beside: self.beside,
            ..usual
        }
    }
}

fn text(probe: &Probe, advice: &Advice, checked: Option<&[Checked]>) -> String {
    let mut text = format!("{}\n", printable(&probe.subject.name));
    let goal = &advice.goal;
    let direction = match goal.direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
    };
    let ceiling = &advice.ceiling;
    // Writing into a String does not fail.
    let _ = writeln!(
        text,
        "{direction} of {}, depth {}: {:.0} operations a second, {:.0} % of what the limit allows: {}",
        show_size(goal.size_bytes),
        goal.depth,
        advice.iops,
        ceiling.reached_percent,
        ceiling.limit
    );
    for (number, item) in (1..).zip(&advice.items) {
        let gain = item.gain_percent;
        let _ = writeln!(
            text,
            "\n{number}. {} ({}): {:+.0} % ({:+.0} to {:+.0}){}",
            item.what,
            item.place.name(),
            gain.value,
            gain.low,
            gain.high,
            match item.gains {
                Gains::Operations => "",
                Gains::Bytes => " of bytes a second",
            }
        );
        for how in &item.how {
            let _ = writeln!(text, "   {how}");
        }
        let _ = writeln!(
            text,
            "   cost: {}\n   risk: {}\n   check: {}",
            item.cost, item.risk, item.check
        );
    }
    if advice.items.is_empty() {
        let _ = writeln!(
            text,
            "\nThis is as fast as this goes: no change gains more than the {:.1} % that measurement and model leave open.",
            advice.threshold_percent
        );
    }
    if let Some(checked) = checked {
        text.push('\n');
        text += &outcome(checked);
    }
    text
}

fn outcome(checked: &[Checked]) -> String {
    let mut text = String::new();
    if checked.is_empty() {
        text += "There was no advice for the earlier probe.\n";
    }
    for check in checked {
        let predicted = check.predicted_percent;
        let _ = write!(
            text,
            "{}: predicted {:+.0} % ({:+.0} to {:+.0}), ",
            check.id, predicted.value, predicted.low, predicted.high
        );
        let _ = match (check.is_followed, check.achieved_percent) {
            (false, _) => match check.by_hand {
                Some(how) => writeln!(text, "a probe does not show it: {how}"),
                None => writeln!(text, "not followed"),
            },
            (true, None) => writeln!(text, "the probes have no such load in common"),
            (true, Some(achieved)) => {
                let verdict = if check.agrees == Some(true) {
                    "as predicted"
                } else {
                    "not as predicted"
                };
                writeln!(text, "achieved {achieved:+.0} %: {verdict}")
            }
        };
    }
    text
}
