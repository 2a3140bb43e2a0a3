//! What the verified volume is kept in: a file, or a pool on a file.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::ledger::Ledger;
use super::plan::Fault;
use super::sweep::{self, Swept};
use crate::command::run_checked;
use crate::workspace;

/// More than the volume, so that what is replaced has time to be cleaned away.
const POOL_SIZE: &str = "256M";

/// A check reads all data.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    File,
    Pool,
}

impl Keeping {
    /// From the value of `--backend`.
    pub fn parse(name: Option<&str>) -> Result<Self> {
        match name {
            None | Some("file") => Ok(Self::File),
            Some("pool") => Ok(Self::Pool),
            Some(other) => bail!("--backend {other}: file or pool"),
        }
    }

    /// Whether this can befall it.
    pub fn knows(self, fault: Fault) -> bool {
        // Volumes of pools have no `delay`.
        self == Self::File || fault != Fault::SlowDisk
    }

    /// Makes what the server does not make itself.
    pub fn prepare(self, path: &Path) -> Result<()> {
        match self {
            Self::File => Ok(()),
            Self::Pool => pool(&["create", "siege", "--size", POOL_SIZE], path),
        }
    }

    /// Keys of the volume, a line each.
    pub fn keys(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::File => format!("backend = \"file\"\npath = \"{path}\""),
            Self::Pool => format!("backend = \"pool\"\npool = \"{path}\""),
        }
    }

    /// Looks at it while the server is down. Of a pool, all checksums: blocks are read through the server only.
    ///
    /// # Errors
    /// It cannot be read, or the pool is not sound.
    pub fn look(self, path: &Path, ledgers: &[Mutex<Ledger>]) -> Result<Swept> {
        match self {
            Self::File => sweep::stored(path, ledgers),
            Self::Pool => pool(&["check", "--data"], path).map(|()| Swept::default()),
        }
    }
}

/// Runs a verb on the pool.
fn pool(words: &[&str], path: &Path) -> Result<()> {
    let mut command = Command::new(workspace::server_program()?);
    command.arg("pool").args(words).arg(path);
    run_checked(&mut command, LIMIT)
        .map(drop)
        .with_context(|| format!("pool on {}", path.display()))
}
