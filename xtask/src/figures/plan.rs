//! What a run of figures measures.

use std::path::PathBuf;

use anyhow::Result;

use crate::bench::page;
use crate::workspace;

/// What the command line asks for.
pub struct Plan {
    /// A few points for a moment, to see that everything works.
    pub quick: bool,
    /// Keep tables and plots in `docs/benchmarks`.
    pub update: bool,
    pub rounds: u64,
    pub seconds: f64,
    /// The `longshore` program, server and client.
    pub program: PathBuf,
    /// A `fio` with its libiscsi engine, for the comparison of clients.
    pub fio: Option<PathBuf>,
    /// SPDK's `spdk_nvme_perf`, for the comparison of ways to wait.
    pub spdk: Option<PathBuf>,
    /// Of measurements of transmit policies.
    pub selection: Selection,
    /// Of set-ups of known truth.
    pub netlab: SetUps,
}

/// The measurements of transmit policies that are made.
#[derive(Default)]
pub struct Selection {
    /// Measures on this network alone.
    pub wire: Option<String>,
    /// Measures with this size alone.
    pub size: Option<u32>,
    /// Tunables, sessions and writes instead of the policies by size.
    pub study: bool,
}

/// The seed of the kept run of set-ups.
const SEED: u64 = 15;

/// The set-ups of known truth that are measured.
#[derive(Debug, Clone, Default)]
pub struct SetUps {
    pub seed: Option<u64>,
    /// How many, where limits are named.
    pub count: Option<usize>,
    /// Runs this part alone.
    pub part: Option<String>,
}

impl SetUps {
    /// The one that was asked for, or that of the kept run.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }
}

impl Plan {
    /// The same with runs of so many seconds at least: shorter ones see too few of the slow operations.
    pub fn lasting(&self, seconds: f64) -> Self {
        Self {
            seconds: self.seconds.max(seconds),
            program: self.program.clone(),
            fio: None,
            spdk: None,
            selection: Selection::default(),
            netlab: self.netlab.clone(),
            ..*self
        }
    }

    /// Prints a page and keeps it, if that was asked for.
    pub fn publish(&self, section: &str, page: &str) -> Result<()> {
        println!("\n{page}");
        if self.update {
            page::update(section, page)?;
        }
        Ok(())
    }

    /// Where a plot goes: into the documentation, or beside what is built.
    pub fn plot(&self, name: &str) -> Result<PathBuf> {
        let folder = if self.update {
            workspace::root().join(page::FOLDER).join("figures")
        } else {
            workspace::work_folder("figures")?
        };
        std::fs::create_dir_all(&folder)?;
        Ok(folder.join(name))
    }

    /// Where a run was made.
    pub fn machine(&self) -> Result<String> {
        page::machine_and_commit()
    }

    /// Where and how a run was made.
    pub fn conditions(&self) -> Result<String> {
        Ok(format!(
            "{}- {} rounds of {} s a point, interleaved; server on processor 0, client on processor 1\n\n",
            page::machine_and_commit()?,
            self.rounds,
            self.seconds
        ))
    }
}
