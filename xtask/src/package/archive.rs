//! The archive with a static program.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::release::Release;
use super::tar::Part;
use super::{stage, tar, trial};
use crate::workspace;

/// Packs into `target`; gives the archive. `runs` is a program that runs here.
pub fn pack(
    release: &Release,
    runs: &Path,
    program: &Path,
    bill: &Path,
    scratch: &Path,
    target: &Path,
) -> Result<PathBuf> {
    let name = release.stem();
    let above = scratch.join("archive");
    let folder = above.join(&name);
    // The units name the place of the program.
    stage::install(runs, &above, &format!("/{name}"))?;
    stage::put(program, &folder.join("bin/longshore"), 0o755)?;
    let unit = folder.join("lib/systemd/system/longshore.service");
    stage::put(
        &workspace::root().join("dist/longshore.service"),
        &unit,
        0o644,
    )?;
    let documents = folder.join("share/doc/longshore");
    stage::put(
        &workspace::root().join("dist/default.toml"),
        &documents.join("default.toml"),
        0o644,
    )?;
    stage::put(bill, &documents.join("longshore.cdx.json"), 0o644)?;
    let archive = target.join(format!("{name}-linux-musl.tar"));
    let part = Part {
        names: &[&name],
        owner: 0,
    };
    tar::pack(&above, &[part], release.epoch, &archive)?;
    tar::compress(&archive)
}

/// Runs the program where nothing else is: no library, no shell.
pub fn try_in_empty_root(release: &Release, archive: &Path, folder: &Path) -> Result<()> {
    let root = trial::Root::unpacked(&folder.join("trial"), &[archive])?;
    let program = format!("/{}/bin/longshore", release.stem());
    let script = include_str!("../../../tests/packages/archive.sh");
    root.run_beside("archive", script, &[&program, release.version])
}
