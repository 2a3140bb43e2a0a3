//! Crates that are for others, too: each is packed as a registry wants it.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::command::run_checked;
use crate::counts::Counts;
use crate::workspace;

/// The libraries, behind those that they are made of.
const CRATES: &[&str] = &[
    "longshore-wire",
    "longshore-block",
    "longshore-reactor",
    "longshore-tls",
    "longshore-iscsi",
    "longshore-scsi",
    "longshore-nvme",
    "longshore-initiator",
];

const LIMIT: Duration = Duration::from_secs(1_200);

/// Runs `cargo xtask crates`.
pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let is_verified = arguments.flag("--verify");
    arguments.finish()?;
    let mut cargo = workspace::cargo();
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    let metadata: Value = serde_json::from_str(&run_checked(&mut cargo, LIMIT)?)?;
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for name in CRATES {
        let package = packages.iter().find(|package| package["name"] == *name);
        for key in ["description", "license", "readme", "keywords", "categories"] {
            if package.is_none_or(|package| package[key].is_null()) {
                bail!("{name} has no {key}");
            }
        }
    }
    let mut cargo = workspace::cargo();
    cargo.args(["package", "--quiet", "--allow-dirty", "--locked"]);
    // Building them from their archives builds their dependencies once more.
    if !is_verified {
        cargo.arg("--no-verify");
    }
    cargo.args(CRATES.iter().flat_map(|name| ["--package", name]));
    run_checked(&mut cargo, LIMIT)?;
    let built = if is_verified {
        ", and build from their archives"
    } else {
        ""
    };
    println!("{} crates are packed{built}", CRATES.len());
    Ok(Counts::PASSED)
}
