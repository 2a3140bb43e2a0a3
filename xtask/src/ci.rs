//! `cargo xtask ci`: everything that decides whether a change may land, in order of cost.
//!
//! A step that fails does not keep the later ones from running, so that one run shows all that is
//! wrong. A step that cannot run on this machine says why; it counts as skipped if [`ALLOWED`]
//! lists the reason, and as failed if not.

use std::fs::DirEntry;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::command::{run_captured, run_shown};
use crate::counts::{Counts, Skipped};
use crate::{
    bench, conformance, dependencies, figures, fuzz, kernel, peers, powercut, qemu, setup, sim,
    workspace,
};

/// All tests of the workspace, on a machine that is busy.
const TESTS_LIMIT: Duration = Duration::from_secs(20 * 60);

/// What the builds and guests of all steps leave below the target folder, with some room to spare.
const DISK_BYTES: u64 = 5 << 30;

/// One step: what it is called, and what it does.
type Step = (&'static str, fn() -> Result<Counts>);

const STEPS: &[Step] = &[
    ("room", room),
    ("set-up", || setup::run(Arguments::none())),
    ("format", format),
    ("lints", lints),
    ("documentation", documentation),
    ("dependencies", dependencies::check),
    ("tests", tests),
    ("instructions", || bench::gate::run(Arguments::none())),
    ("simulation", || sim::run(Arguments::none())),
    ("conformance", || conformance::run(Arguments::none())),
    ("qemu", || qemu::run(Arguments::none())),
    ("kernel", || kernel::run(Arguments::none())),
    ("peers", || peers::run(Arguments::none())),
    ("power cut", || powercut::run(Arguments::none())),
    ("fuzz", || fuzz::run(Arguments::of(&["--seconds", "6"]))),
    ("benchmark, in small", || {
        bench::run(Arguments::of(&["--quick"]))
    }),
    ("figures, in small", small_figures),
    (NAGLE, || small_figure("adaptive-nagle")),
];

/// The figure that needs a network of its own.
const NAGLE: &str = "figure of transmit policies, in small";

/// Figures that loopback is enough for.
const FIGURES: &[&str] = &["fujita", "fairness", "queue-maps", "clients"];

/// Reasons for which a step may be skipped without failing the run, by step.
const ALLOWED: &[(&str, &str)] = &[
    // The targets have run on random bytes among the tests.
    ("fuzz", "there is no C++ compiler to build libFuzzer with"),
    (NAGLE, figures::NO_NAMESPACES),
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
        let counts = step().unwrap_or_else(|error| without_result(name, &error));
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

fn without_result(name: &str, error: &anyhow::Error) -> Counts {
    match error.downcast_ref::<Skipped>() {
        Some(Skipped(reason)) if ALLOWED.contains(&(name, reason.as_str())) => {
            println!("SKIPPED {name}: {reason}");
            Counts::SKIPPED
        }
        Some(Skipped(reason)) => {
            println!("FAIL {name}: skipped for a reason that is not allowed: {reason}");
            Counts::FAILED
        }
        None => {
            println!("FAIL {name}: {error:#}");
            Counts::FAILED
        }
    }
}

/// A full disk shows late, and as anything but itself. What an earlier run has left counts as room.
fn room() -> Result<Counts> {
    let folder = workspace::work_folder("ci")?;
    let disk = rustix::fs::statvfs(&folder)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let used = folder_bytes(&workspace::target_folder());
    if free + used < DISK_BYTES {
        bail!(
            "{} MiB are free at {}, and a run takes {} MiB: free some, or set CARGO_TARGET_DIR to a \
             folder on a larger disk",
            free >> 20,
            folder.display(),
            DISK_BYTES >> 20
        );
    }
    Ok(Counts::PASSED)
}

/// Bytes of all files below a folder; what cannot be looked at counts as nothing.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let of_entry = |entry: DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
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

/// That the figures can be made; what they say is not judged.
fn small_figures() -> Result<Counts> {
    let mut counts = Counts::default();
    for name in FIGURES {
        counts += small_figure(name).with_context(|| format!("figure {name}"))?;
    }
    Ok(counts)
}

fn small_figure(name: &str) -> Result<Counts> {
    println!("--- {name}");
    figures::run(Arguments::of(&[name, "--quick"]))
}

/// All tests of the workspace, counted one by one. Those that start the server use the optimised
/// one.
fn tests() -> Result<Counts> {
    let program = workspace::server_program()?;
    let mut command = workspace::cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .env("LONGSHORE_BIN", program);
    let ended = run_captured(&mut command, TESTS_LIMIT)?;
    let mut counts = count_tests(&ended.output);
    if ended.is_success() {
        let slow = ended
            .output
            .lines()
            .filter(|line| line.ends_with("... ignored"));
        slow.for_each(|line| println!("{line}"));
    } else {
        println!("{}", ended.output);
        if counts.failed == 0 {
            counts += Counts::FAILED; // it did not build, or hung
        }
    }
    Ok(counts)
}

/// Adds up the lines `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
pub fn count_tests(output: &str) -> Counts {
    let mut counts = Counts::default();
    for line in output
        .lines()
        .filter(|line| line.starts_with("test result:"))
    {
        let number = |what: &str| {
            let words: Vec<&str> = line.split([' ', ';']).collect();
            let at = words.iter().position(|word| *word == what)?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        };
        counts += Counts {
            passed: number("passed").unwrap_or(0),
            failed: number("failed").unwrap_or(0),
            skipped: number("ignored").unwrap_or(0),
        };
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        let output = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      noise\n\
                      test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured\n";
        assert_eq!(
            count_tests(output),
            Counts {
                passed: 7,
                failed: 2,
                skipped: 1
            }
        );
    }

    #[test]
    fn only_listed_reasons_let_a_step_be_skipped() {
        let skipped = |reason: &str| Skipped(reason.to_owned()).into();
        assert_eq!(
            without_result(ALLOWED[0].0, &skipped(ALLOWED[0].1)),
            Counts::SKIPPED
        );
        assert_eq!(
            without_result("kernel", &skipped("no time")),
            Counts::FAILED
        );
    }
}
