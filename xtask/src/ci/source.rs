//! The steps that Cargo does: builds, format, lints and documentation.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::subjects;
use crate::arguments::Arguments;
use crate::command::{run_captured, run_shown};
use crate::counts::{Counts, count_tests};
use crate::{programs, workspace};

/// Of the examples in the documentation, on a machine that is busy.
const EXAMPLES_LIMIT: Duration = Duration::from_secs(20 * 60);

/// `cargo xtask build`: what the suites share. Each is built once, and found by them.
pub fn build(mut arguments: Arguments) -> Result<Counts> {
    let tests = arguments.flag("--tests");
    let release = arguments.flag("--release");
    arguments.finish()?;
    if !tests && !release {
        bail!("--tests or --release?");
    }
    if tests {
        let programs = programs::build_all()?;
        println!("{programs} test programs");
    }
    if release {
        workspace::build_release()?;
    }
    Ok(Counts::PASSED)
}

/// `cargo xtask format`: of the source, and of the subjects of commits.
pub fn format(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    subjects::check()?;
    shown(workspace::cargo().args(["fmt", "--all", "--check"]))
}

pub fn lints(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    let words = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ];
    shown(workspace::cargo().args(words))
}

pub fn documentation(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    let words = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ];
    let mut command = workspace::cargo();
    run_shown(command.args(words).env("RUSTDOCFLAGS", "--deny warnings"))?;
    Ok(Counts::PASSED + examples()?)
}

/// The examples in the documentation.
fn examples() -> Result<Counts> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    let ended = run_captured(&mut command, EXAMPLES_LIMIT)?;
    let mut counts = count_tests(&ended.output);
    if !ended.is_success() {
        println!("{}", ended.output);
        if counts.failed == 0 {
            counts += Counts::FAILED; // they did not build, or hung
        }
    }
    Ok(counts)
}

fn shown(command: &mut Command) -> Result<Counts> {
    run_shown(command).map(|()| Counts::PASSED)
}
