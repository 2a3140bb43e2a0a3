//! Figures of the founding papers on today's kernel, and our load generator beside third-party ones.
//!
//! Each figure is a comparison between ways to do the same: all ways of a point are measured one after the
//! other, several rounds over, so that whatever else the machine does hits all alike. Server and
//! client are pinned to a processor each. Tables hold medians.

mod adaptive_nagle;
mod changes;
mod clients;
mod fairness;
mod fujita;
mod load;
mod many_volumes;
mod netlab;
mod network;
mod plan;
mod polling;
mod queue_maps;

pub use network::NO_NAMESPACES;
pub use plan::Plan;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::workspace;
use plan::{Selection, SetUps};

const NAMES: &str = "fujita, queue-maps, fairness, clients, polling, many-volumes, changes, adaptive-nagle, \
     adaptive-nagle-model or netlab";

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let name = arguments.next_word();
    let quick = arguments.flag("--quick");
    let seconds = arguments.value("--seconds")?;
    let seconds = seconds.map(|text| text.parse().with_context(|| format!("--seconds {text}")));
    let plan = Plan {
        quick,
        update: arguments.flag("--update"),
        rounds: arguments
            .number("--rounds")?
            .unwrap_or(if quick { 1 } else { 5 })
            .max(1),
        seconds: seconds
            .transpose()?
            .unwrap_or(if quick { 0.1 } else { 0.4 }),
        fio: arguments.value("--fio")?.map(PathBuf::from),
        spdk: arguments.value("--spdk")?.map(PathBuf::from),
        selection: Selection {
            wire: arguments.value("--network")?,
            size: arguments.number("--size")?.map(u32::try_from).transpose()?,
            study: arguments.flag("--study"),
        },
        netlab: SetUps {
            seed: arguments.number("--seed")?,
            count: arguments
                .number("--set-ups")?
                .map(usize::try_from)
                .transpose()?,
            part: arguments.value("--part")?,
        },
        program: PathBuf::new(),
    };
    arguments.finish()?;
    let figure: fn(&Plan) -> Result<usize> = match name.as_deref() {
        Some("fujita") => fujita::run,
        Some("queue-maps") => queue_maps::run,
        Some("fairness") => fairness::run,
        Some("clients") => clients::run,
        Some("polling") => polling::run,
        Some("many-volumes") => many_volumes::run,
        Some("changes") => changes::run,
        Some("adaptive-nagle") => adaptive_nagle::run,
        Some("adaptive-nagle-model") => adaptive_nagle::model::run,
        Some("netlab") => netlab::run,
        Some(other) => {
            bail!("no figure {other:?}: {NAMES}")
        }
        None => {
            bail!("which figure? {NAMES}")
        }
    };
    let program = workspace::server_program()?;
    let passed = figure(&Plan { program, ..plan })?;
    Ok(Counts {
        passed,
        failed: 0,
        skipped: 0,
    })
}
