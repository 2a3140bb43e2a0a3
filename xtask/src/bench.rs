//! Operations per second and what each costs the server's processor: ours beside Debian's `tgt`,
//! NVMe beside iSCSI, the numbers to reach, and, with `--before`, this server beside an earlier one.
//!
//! Server and client are pinned to a processor each. Both sides of a comparison run all the time
//! and the load goes to one after the other, several rounds over, so that whatever else the machine
//! does hits both alike. Figures are medians; the spread is (largest − smallest) / median over the
//! rounds.

mod before;
mod beside_tgt;
mod bounds;
mod files;
pub mod gate;
mod instructions;
pub mod load;
pub mod page;
mod plan;
pub mod point;
mod protocols;
pub mod rounds;
pub mod server;
mod targets;

use std::path::PathBuf;

use anyhow::Result;

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::workspace;

pub use plan::Plan;

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let before = arguments.value("--before")?.map(PathBuf::from);
    let label = arguments.value("--label")?;
    let only_targets = arguments.flag("--targets");
    let only_parts = arguments.flag("--parts");
    let quick = arguments.flag("--quick");
    let engine = arguments.value("--engine")?;
    let seconds = arguments.value("--seconds")?;
    let rounds = arguments.number("--rounds")?;
    let mut plan = Plan {
        quick,
        update: arguments.flag("--update"),
        engine: engine.unwrap_or_else(|| "auto".to_owned()),
        only: arguments.value("--only")?,
        rounds: 0,
        seconds: String::new(),
        client: PathBuf::new(),
    };
    arguments.finish()?;
    plan.client = workspace::server_program()?;
    // As often and as long as was asked for, or else as the comparison needs.
    let with = |usual_rounds, usual_seconds: &str| {
        let (usual_rounds, usual_seconds) = match quick {
            true => (1, "0.1"),
            false => (usual_rounds, usual_seconds),
        };
        Plan {
            rounds: rounds.unwrap_or(usual_rounds).max(1),
            seconds: seconds.clone().unwrap_or_else(|| usual_seconds.to_owned()),
            ..plan.clone()
        }
    };
    let measured = match before {
        // Small changes need more rounds to be seen.
        Some(program) => before::run(&with(5, "1"), &program, label)?,
        None if only_targets => targets::run(&with(5, "0.4"))?,
        None if only_parts => protocols::parts(&with(2, "0.4"))?,
        None => {
            let plan = with(5, "1");
            let beside = beside_tgt::run(&plan)? + protocols::run(&plan)?;
            beside + targets::run(&with(5, "0.4"))?
        }
    };
    Ok(Counts {
        passed: measured,
        failed: 0,
        skipped: 0,
    })
}
