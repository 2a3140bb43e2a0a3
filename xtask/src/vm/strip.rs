//! Programs and modules without debug information, which a guest's memory would hold twice: packed and unpacked.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::command::run_checked;

const LIMIT: Duration = Duration::from_secs(60);

/// The ELF file without debug information; its symbols stay. `folder` holds a file meanwhile.
pub fn strip(file: &[u8], folder: &Path) -> Result<Vec<u8>> {
    // Suites that run side by side make their images in the same folder.
    let scratch = folder.join(format!("strip-{}", std::process::id()));
    fs::write(&scratch, file)?;
    run_checked(
        Command::new("strip").arg("--strip-debug").arg(&scratch),
        LIMIT,
    )?;
    let stripped = fs::read(&scratch)?;
    fs::remove_file(&scratch)?;
    Ok(stripped)
}
