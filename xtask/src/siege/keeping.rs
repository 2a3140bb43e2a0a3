//! What the verified volume is kept in: a file, or a pool on a file or on a mirror of two.

use std::path::{Path, PathBuf};
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
    Mirror,
}

impl Keeping {
    /// From the value of `--backend`.
    pub fn parse(name: Option<&str>) -> Result<Self> {
        match name {
            None | Some("file") => Ok(Self::File),
            Some("pool") => Ok(Self::Pool),
            Some("mirror") => Ok(Self::Mirror),
            Some(other) => bail!("--backend {other}: file, pool or mirror"),
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
            Self::Pool => pool(&["create", "siege", "--size", POOL_SIZE], &[path.into()]),
            Self::Mirror => {
                let sides = self.sides(path);
                // One that is left from the last time would be taken for a drive of a pool.
                if sides[1].exists() {
                    std::fs::remove_file(&sides[1])?;
                }
                let words = ["create", "siege", "--mirror", "--size", POOL_SIZE];
                pool(&words, &sides)
            }
        }
    }

    /// Keys of the volume, a line each.
    pub fn keys(self, path: &Path) -> String {
        match self {
            Self::File => format!("backend = \"file\"\npath = \"{}\"", path.display()),
            Self::Pool | Self::Mirror => {
                format!("backend = \"pool\"\npool = \"{}\"", self.drives(path))
            }
        }
    }

    /// Looks at it while the server is down. Of a pool, all checksums: blocks are read through the server only.
    ///
    /// # Errors
    /// It cannot be read, or the pool is not sound.
    pub fn look(self, path: &Path, ledgers: &[Mutex<Ledger>]) -> Result<Swept> {
        match self {
            Self::File => sweep::stored(path, ledgers),
            Self::Pool | Self::Mirror => {
                let drives = self.drives(path);
                pool(&["check", "--data"], &[drives.into()]).map(|()| Swept::default())
            }
        }
    }

    /// The files of a pool.
    fn sides(self, path: &Path) -> Vec<PathBuf> {
        match self {
            Self::File | Self::Pool => vec![path.into()],
            Self::Mirror => vec![path.into(), path.with_extension("other")],
        }
    }

    /// All of them, as the configuration names a pool.
    fn drives(self, path: &Path) -> String {
        let sides = self.sides(path);
        let sides: Vec<String> = sides.iter().map(|it| it.display().to_string()).collect();
        sides.join("+")
    }
}

/// Runs a verb on the pool of these drives.
fn pool(words: &[&str], drives: &[PathBuf]) -> Result<()> {
    let mut command = Command::new(workspace::server_program()?);
    command.arg("pool").args(words).args(drives);
    run_checked(&mut command, LIMIT)
        .map(drop)
        .with_context(|| format!("pool on {drives:?}"))
}
