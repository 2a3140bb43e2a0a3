//! Figures of the founding papers on today's kernel, and our load generator beside those of others.
//!
//! Each figure is a comparison between ways to do the same: all ways of a point are measured one after the
//! other, several rounds over, so that whatever else the machine does hits all alike. Server and
//! client are pinned to a processor each. Tables hold medians.

mod adaptive_nagle;
mod clients;
mod fairness;
mod fujita;
mod load;
mod network;
mod polling;
mod queue_maps;

pub use network::NO_NAMESPACES;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::bench::page;
use crate::counts::Counts;
use crate::workspace;

/// What the command line asks for.
pub struct Plan {
    /// A few points for a moment, to see that everything works.
    quick: bool,
    /// Keep tables and plots in `docs/benchmarks`.
    update: bool,
    rounds: u64,
    seconds: f64,
    /// The `longshore` program, server and client.
    program: PathBuf,
    /// A `fio` with its libiscsi engine, for the comparison of clients.
    fio: Option<PathBuf>,
    /// SPDK's `spdk_nvme_perf`, for the comparison of ways to wait.
    spdk: Option<PathBuf>,
    /// What of the transmit policies is measured.
    selection: adaptive_nagle::Selection,
}

/// `cargo xtask figures`.
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
        selection: adaptive_nagle::Selection {
            wire: arguments.value("--network")?,
            size: arguments.number("--size")?.map(u32::try_from).transpose()?,
            study: arguments.flag("--study"),
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
        Some("adaptive-nagle") => adaptive_nagle::run,
        Some(other) => {
            bail!(
                "no figure {other:?}: fujita, queue-maps, fairness, clients, polling or adaptive-nagle"
            )
        }
        None => {
            bail!("which figure? fujita, queue-maps, fairness, clients, polling or adaptive-nagle")
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

impl Plan {
    /// The same with runs of so many seconds at least: shorter ones see too few of the slow operations.
    fn lasting(&self, seconds: f64) -> Self {
        Self {
            seconds: self.seconds.max(seconds),
            program: self.program.clone(),
            fio: None,
            spdk: None,
            selection: adaptive_nagle::Selection::default(),
            ..*self
        }
    }

    /// Prints a page and keeps it, if that was asked for.
    fn publish(&self, section: &str, page: &str) -> Result<()> {
        println!("\n{page}");
        if self.update {
            page::update(section, page)?;
        }
        Ok(())
    }

    /// Where a plot goes: into the documentation, or beside what is built.
    fn plot(&self, name: &str) -> Result<PathBuf> {
        let folder = if self.update {
            workspace::root().join(page::FOLDER).join("figures")
        } else {
            workspace::work_folder("figures")?
        };
        std::fs::create_dir_all(&folder)?;
        Ok(folder.join(name))
    }

    /// Where and how a run was made.
    fn conditions(&self) -> Result<String> {
        Ok(format!(
            "{}- {} rounds of {} s a point, interleaved; server on processor 0, client on processor 1\n\n",
            page::machine_and_commit()?,
            self.rounds,
            self.seconds
        ))
    }
}
