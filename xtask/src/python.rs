//! Virtual environments with packages from PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::command::{run_captured, run_checked};
use crate::counts::Skipped;

/// The reason for which a step may be skipped.
pub const NO_PACKAGES: &str = "packages cannot be had from PyPI";

/// What pip says where it does not reach the index.
const UNREACHABLE: [&str; 3] = [
    "connection broken by",
    "Could not fetch URL",
    "Failed to establish a new connection",
];

/// How long packages may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

const LIMIT: Duration = Duration::from_secs(120);

/// The folder of programs of a virtual environment with these packages, in `folder`.
pub fn environment(folder: &Path, requirements: &Path) -> Result<PathBuf> {
    let environment = folder.join("environment");
    let programs = environment.join("bin");
    let installed = environment.join("requirements.txt");
    let wanted = std::fs::read_to_string(requirements)?;
    if std::fs::read_to_string(&installed).is_ok_and(|is| is == wanted) {
        return Ok(programs);
    }
    println!("installing packages from PyPI: {}", requirements.display());
    run_checked(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment),
        LIMIT,
    )?;
    let ended = run_captured(
        Command::new(programs.join("pip"))
            .args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--requirement",
            ])
            .arg(requirements),
        INSTALL_LIMIT,
    )?;
    if !ended.is_success() {
        println!("{}", ended.output);
        // Anything else is a mistake in the list.
        let is_away = UNREACHABLE.iter().any(|sign| ended.output.contains(sign));
        if is_away {
            return Err(Skipped(NO_PACKAGES.to_owned()).into());
        }
        bail!("pip ended {}", ended.how());
    }
    std::fs::write(&installed, wanted)?;
    Ok(programs)
}
