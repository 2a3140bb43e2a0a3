//! A share of a processor for a process: `cpu.max` of a cgroup, of version 2 or 1.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::counts::Skipped;

/// Why a process cannot be held to a share.
pub const NO_SHARES: &str = "no cgroup that limits processor time can be made";

/// The shortest time that a kernel lets a group run at once, in microseconds.
const QUOTA_US: u32 = 1000;

/// A group with one process, which goes back to the group above when this value goes away.
pub struct Share {
    group: PathBuf,
    above: PathBuf,
    pid: u32,
}

impl Share {
    /// Holds a process to so many percent of a processor.
    pub fn of(pid: u32, percent: u32) -> Result<Self> {
        let (above, is_unified) = above().ok_or_else(|| Skipped(NO_SHARES.to_owned()))?;
        let group = above.join(format!("longshore-netlab-{pid}"));
        if fs::create_dir(&group).is_err() {
            return Err(Skipped(NO_SHARES.to_owned()).into());
        }
        let share = Self { group, above, pid };
        let period = QUOTA_US * 100 / percent.clamp(1, 100);
        if is_unified {
            share.write("cpu.max", &format!("{QUOTA_US} {period}"))?;
        } else {
            share.write("cpu.cfs_period_us", &period.to_string())?;
            share.write("cpu.cfs_quota_us", &QUOTA_US.to_string())?;
        }
        share.write("cgroup.procs", &pid.to_string())?;
        Ok(share)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.group.join(name);
        fs::write(&path, text).with_context(|| format!("write {text:?} to {}", path.display()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // A group that has a process cannot be removed; the process may have ended.
        let _ = fs::write(self.above.join("cgroup.procs"), self.pid.to_string());
        if let Err(error) = fs::remove_dir(&self.group) {
            eprintln!("remove {}: {error}", self.group.display());
        }
    }
}

/// The folder of groups, and whether it is that of version 2.
fn above() -> Option<(PathBuf, bool)> {
    let unified = Path::new("/sys/fs/cgroup");
    let controllers =
        fs::read_to_string(unified.join("cgroup.subtree_control")).unwrap_or_default();
    if controllers.split_whitespace().any(|word| word == "cpu") {
        return Some((unified.to_owned(), true));
    }
    let first = unified.join("cpu");
    first
        .join("cgroup.procs")
        .exists()
        .then_some((first, false))
}
