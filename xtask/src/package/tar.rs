//! Archives whose bytes depend on names, modes and contents alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::command::run_checked;

const LIMIT: Duration = Duration::from_secs(300);

/// Files of a folder that belong to one user.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Below the folder; folders with all they hold.
    pub names: &'a [&'a str],
    pub owner: u32,
}

/// Writes an archive of these parts of `folder`, with `epoch` as the time of all files.
pub fn pack(folder: &Path, parts: &[Part<'_>], epoch: u64, archive: &Path) -> Result<()> {
    let _ = std::fs::remove_file(archive);
    for part in parts {
        let mut tar = Command::new("tar");
        tar.args(["--append", "--format=gnu", "--sort=name", "--numeric-owner"])
            // Whatever the umask of this process.
            .arg("--mode=u+rwX,go+rX,go-w")
            .arg(format!("--owner={}", part.owner))
            .arg(format!("--group={}", part.owner))
            .arg(format!("--mtime=@{epoch}"))
            .arg("--directory")
            .arg(folder)
            .arg("--file")
            .arg(archive)
            .args(part.names);
        run_checked(&mut tar, LIMIT)?;
    }
    Ok(())
}

/// Compresses a file; adds `.gz` to its name.
pub fn compress(path: &Path) -> Result<PathBuf> {
    let mut gzip = Command::new("gzip");
    run_checked(
        gzip.args(["--force", "--best", "--no-name"]).arg(path),
        LIMIT,
    )?;
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    Ok(name.into())
}
