//! Debian's packages.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::command::run_checked;

/// Fetches the lists of packages, once a process.
pub fn update_index() -> Result<()> {
    run_checked(apt_get().args(["update", "-qq"]), Duration::from_secs(300)).map(drop)
}

/// `apt-get` that asks nothing, tries again where the network fails, and starts no services: a server that comes up by being installed
/// would take ports that tests want, and containers have nothing to start it with.
pub fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .args(["-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=120"]);
    command
}
