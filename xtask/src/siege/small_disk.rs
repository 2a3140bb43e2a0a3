//! A file system with less room than the volume on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command::run_checked;

/// Less than two hosts' blocks.
const SIZE: &str = "size=24m";

const LIMIT: Duration = Duration::from_secs(20);

/// A tmpfs that is unmounted when this goes away.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// None where nobody may mount.
    pub fn mount(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).ok()?;
        // An earlier run may have been killed.
        unmount(path);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(path);
        run_checked(&mut mount, LIMIT).ok()?;
        Some(Self {
            path: path.to_owned(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(&self.path);
    }
}

fn unmount(path: &Path) {
    // It need not be mounted.
    let _ = run_checked(Command::new("umount").arg("-l").arg(path), LIMIT);
}
