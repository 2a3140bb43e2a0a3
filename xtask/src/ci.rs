//! `cargo xtask ci`: everything that decides whether a change may land, in order of cost.
//!
//! A step that fails does not keep the later ones from running, so that one run shows all that is wrong.
//! A step that cannot run here says why and counts as skipped.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::arguments::Arguments;
use crate::command::{find_program, run_captured, run_shown};
use crate::counts::Counts;
use crate::{conformance, kernel, powercut, qemu, setup, workspace};

/// Seeds of the simulation that a run tries, on top of those in its tests.
const SIMULATION_SEEDS: &str = "1000..1040";
/// How long each fuzz target runs.
const FUZZ_SECONDS: u32 = 10;
/// Building and running a fuzz target takes no longer.
const FUZZ_LIMIT: Duration = Duration::from_secs(300);

/// One step: what it is called, and what it does.
type Step = (&'static str, fn() -> Result<Counts>);

const STEPS: &[Step] = &[
    ("set-up", || setup::run(Arguments::none())),
    ("format", format),
    ("lints", lints),
    ("documentation", documentation),
    ("dependencies", dependencies),
    ("tests", tests),
    ("simulation", simulation),
    ("conformance", || conformance::run(Arguments::none())),
    ("qemu", || qemu::run(Arguments::none())),
    ("kernel", || kernel::run(Arguments::none())),
    ("power cut", || powercut::run(Arguments::none())),
    ("fuzz", fuzz),
];

/// `cargo xtask ci`.
pub fn run(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    let begin = Instant::now();
    let mut total = Counts::default();
    let mut report = Vec::new();
    for (name, step) in STEPS {
        println!("\n=== {name}");
        let start = Instant::now();
        let counts = step().unwrap_or_else(|error| {
            println!("{name}: {error:#}");
            Counts::FAILED
        });
        total += counts;
        report.push(format!(
            "{:>5} s  {name}: {counts}",
            start.elapsed().as_secs()
        ));
    }
    println!("\n=== all, in {} s", begin.elapsed().as_secs());
    for line in report {
        println!("{line}");
    }
    Ok(total)
}

fn shown(command: &mut Command) -> Result<Counts> {
    run_shown(command).map(|()| Counts::PASSED)
}

fn format() -> Result<Counts> {
    shown(workspace::cargo().args(["fmt", "--all", "--check"]))
}

fn lints() -> Result<Counts> {
    let arguments = ["clippy", "--quiet", "--workspace", "--all-targets", "--"];
    shown(
        workspace::cargo()
            .args(arguments)
            .args(["--deny", "warnings"]),
    )
}

fn documentation() -> Result<Counts> {
    let arguments = [
        "doc",
        "--quiet",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ];
    shown(
        workspace::cargo()
            .args(arguments)
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )
}

/// Licences, advisories and sources, where `cargo deny` is installed: building it takes longer than
/// all the rest of this.
fn dependencies() -> Result<Counts> {
    if find_program("cargo-deny").is_none() {
        println!("SKIPPED: cargo-deny is not installed (cargo install --locked cargo-deny)");
        return Ok(Counts::SKIPPED);
    }
    shown(workspace::cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]))
}

fn tests() -> Result<Counts> {
    // The tests that start the server use the optimised one.
    let program = workspace::server_program()?;
    shown(
        workspace::cargo()
            .args(["test", "--workspace"])
            .env("LONGSHORE_BIN", program),
    )
}

fn simulation() -> Result<Counts> {
    let arguments = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "longshore-sim",
        "--",
    ];
    shown(
        workspace::cargo()
            .args(arguments)
            .args(["--seeds", SIMULATION_SEEDS]),
    )
}

/// Fuzzing needs a nightly compiler and cargo-fuzz. Where they are not, the bodies of the targets have run
/// on random input among the tests.
fn fuzz() -> Result<Counts> {
    let nightly = Command::new("rustup")
        .args(["run", "nightly", "rustc", "--version"])
        .output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no nightly compiler; the targets ran on random input among the tests");
        return Ok(Counts::SKIPPED);
    }
    if find_program("cargo-fuzz").is_none() && !install_cargo_fuzz()? {
        println!("SKIPPED: cargo-fuzz cannot be installed; the targets ran among the tests");
        return Ok(Counts::SKIPPED);
    }
    let listed = fuzz_command().arg("list").output()?;
    let mut counts = Counts::default();
    for target in String::from_utf8_lossy(&listed.stdout).lines() {
        let limit = format!("-max_total_time={FUZZ_SECONDS}");
        let mut command = fuzz_command();
        command.args(["run", target, "--", &limit]);
        let ended = run_captured(&mut command, FUZZ_LIMIT)?;
        if ended.is_success() {
            println!("fuzz {target}: nothing found in {FUZZ_SECONDS} s");
            counts += Counts::PASSED;
        } else {
            println!("fuzz {target} ended {}:\n{}", ended.how(), ended.output);
            counts += Counts::FAILED;
        }
    }
    Ok(counts)
}

fn fuzz_command() -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["+nightly", "fuzz"])
        .current_dir(workspace::root());
    command
}

fn install_cargo_fuzz() -> Result<bool> {
    println!("installing cargo-fuzz");
    let mut command = Command::new("cargo");
    command.args(["install", "--quiet", "--locked", "cargo-fuzz"]);
    Ok(run_captured(&mut command, Duration::from_secs(400))?.is_success())
}
