//! Operations per second and what each costs the server's processor: ours beside Debian's `tgt`,
//! NVMe beside iSCSI, and, with `--before`, this server beside an earlier one.
//!
//! Server and client are pinned to a processor each. Both sides of a comparison run all the time
//! and the load goes to one after the other, several rounds over, so that whatever else the machine
//! does hits both alike. Figures are medians; the spread is (largest − smallest) / median over the
//! rounds.

mod before;
mod beside_tgt;
pub mod gate;
mod instructions;
pub mod load;
pub mod page;
pub mod point;
mod protocols;
pub mod rounds;
pub mod server;

use std::path::PathBuf;

use anyhow::Result;

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::workspace;
use point::Point;

/// What the command line asks for.
pub struct Plan {
    /// A few points for a moment, to see that everything works.
    quick: bool,
    /// Keep the tables in the document.
    update: bool,
    engine: String,
    /// Part of the names of the points to measure.
    only: Option<String>,
    rounds: u64,
    seconds: String,
    /// What makes the load: this server's program.
    client: PathBuf,
}

/// `cargo xtask bench`.
pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let before = arguments.value("--before")?.map(PathBuf::from);
    let label = arguments.value("--label")?;
    let quick = arguments.flag("--quick");
    // Small changes need more rounds to be seen.
    let usual_rounds = if before.is_some() { 5 } else { 3 };
    let engine = arguments.value("--engine")?;
    let seconds = arguments.value("--seconds")?;
    let rounds = arguments.number("--rounds")?;
    let mut plan = Plan {
        quick,
        update: arguments.flag("--update"),
        engine: engine.unwrap_or_else(|| "auto".to_owned()),
        only: arguments.value("--only")?,
        rounds: rounds
            .unwrap_or(if quick { 1 } else { usual_rounds })
            .max(1),
        seconds: seconds.unwrap_or_else(|| if quick { "0.1" } else { "1" }.to_owned()),
        client: PathBuf::new(),
    };
    arguments.finish()?;
    plan.client = workspace::server_program()?;
    let measured = match before {
        Some(program) => before::run(&plan, &program, label)?,
        None => beside_tgt::run(&plan)? + protocols::run(&plan)?,
    };
    Ok(Counts {
        passed: measured,
        failed: 0,
        skipped: 0,
    })
}

impl Plan {
    /// Those of the points that were asked for.
    fn chosen(&self, points: Vec<Point>) -> Vec<Point> {
        let is_chosen = |point: &Point| {
            let mut only = self.only.iter();
            only.all(|only| point.name().contains(only.as_str()))
        };
        points.into_iter().filter(is_chosen).collect()
    }

    /// Prints a page and keeps it, if that was asked for.
    fn publish(&self, section: &str, page: &str) -> Result<()> {
        println!("\n{page}");
        if self.update {
            page::update(&workspace::root().join("docs/benchmarks.md"), section, page)?;
        }
        Ok(())
    }
}
