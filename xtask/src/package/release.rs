//! What all packages of a release have in common.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::run_checked;
use crate::workspace;

/// The time of all files in packages, in seconds since 1970; see <https://reproducible-builds.org/specs/source-date-epoch>.
pub const EPOCH: &str = "SOURCE_DATE_EPOCH";

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct Release {
    pub version: &'static str,
    /// Of all files, in seconds since 1970.
    pub epoch: u64,
    /// The same as RFC 3339 has it.
    pub time: String,
}

impl Release {
    /// The version of this checkout.
    pub fn here() -> Result<Self> {
        let epoch = match std::env::var(EPOCH) {
            Ok(text) => text,
            Err(_) => {
                let mut git = Command::new("git");
                git.current_dir(workspace::root())
                    .args(["log", "-1", "--format=%ct"]);
                run_checked(&mut git, LIMIT).with_context(|| format!("set {EPOCH}"))?
            }
        };
        let epoch = epoch
            .trim()
            .parse()
            .with_context(|| format!("{EPOCH}={epoch}"))?;
        let time = run_checked(
            Command::new("date")
                .args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"])
                .arg(format!("--date=@{epoch}")),
            LIMIT,
        )?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            epoch,
            time: time.trim().to_owned(),
        })
    }

    /// The beginning of names of files with a static program.
    pub fn stem(&self) -> String {
        format!("longshore-{}-x86_64", self.version)
    }
}
