//! The files of an installation below a folder, by `make install`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::run_checked;
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(120);

/// Installs below `folder`, which is emptied first, for `prefix`. `runs` is a program that runs here: it writes manual
/// pages and completions.
pub fn install(runs: &Path, folder: &Path, prefix: &str) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    let release = runs.parent().context("a program lies in a folder")?;
    let mut make = Command::new("make");
    make.current_dir(workspace::root())
        // The program is built already.
        .args(["--silent", "--old-file=build", "install"])
        .arg(format!("RELEASE={}", release.display()))
        .arg(format!("DESTDIR={}", folder.display()))
        .arg(format!("PREFIX={prefix}"))
        .env_remove("MAKEFLAGS");
    run_checked(&mut make, LIMIT)?;
    let documents = folder
        .join(prefix.trim_start_matches('/'))
        .join("share/doc/longshore");
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        put(&workspace::root().join(name), &documents.join(name), 0o644)?;
    }
    // Of the charts, which are a part of the program.
    put(
        &workspace::root().join("crates/product/dashboard/assets/uplot/LICENSE"),
        &documents.join("LICENSE-uPlot"),
        0o644,
    )?;
    Ok(())
}

/// Copies a file to a place whose folders may be missing.
pub fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    write(
        to,
        &fs::read(from).with_context(|| format!("read {}", from.display()))?,
        mode,
    )
}

/// Writes a file at a place whose folders may be missing.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}
