//! Files for other programs, held to the schemas that these publish.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::run_checked;
use crate::{python, workspace};

const LIMIT: Duration = Duration::from_secs(120);

/// Checks the bill of materials, and `dist/compose.yaml` and `dist/kubernetes`.
pub fn check(bill: &Path) -> Result<()> {
    let sources = workspace::root().join("tests/packages");
    let folder = workspace::work_folder("schemas")?;
    let programs = python::environment(&folder, &sources.join("requirements.txt"))?;
    let mut check = Command::new(programs.join("python3"));
    check
        .arg(sources.join("schemas.py"))
        .arg(workspace::root().join("dist"))
        .arg(bill);
    let output = run_checked(&mut check, LIMIT).context("a file does not meet its schema")?;
    println!("schemas: {}", output.trim());
    Ok(())
}
