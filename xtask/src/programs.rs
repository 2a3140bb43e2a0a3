//! The test programs of the workspace: built by one call of Cargo, then run side by side.
//!
//! `cargo test` runs one program after the other, and most of those in `tests/` wait more than they work. New
//! programs are found by themselves; a program that disturbs others, or is disturbed by them, is named in [`ALONE`].

mod build;
mod skips;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::counts::{Counts, count_tests};
use crate::workspace;
use build::Program;
use skips::Skips;

/// One program, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// The same where tests that draw by lot take more.
const LIMIT_EXHAUSTIVE: Duration = Duration::from_secs(60 * 60);

/// Programs that run while no other does: they measure which cores the server uses, and neighbours on these cores
/// make them wait longer.
const ALONE: &[&str] = &["longshore-tests/placement", "longshore-tests/spread"];

/// The programs with the longest running times. They begin first, so that none is left over at the end.
const LONG: &[&str] = &[
    "longshore-pool/unit",
    "longshore-tests/re_export",
    "longshore-tests/idle",
    "longshore-initiator/unit",
    "longshore-server/sessions",
    "longshore-tests/nvme_rude_peers",
    "longshore-volume/unit",
    "longshore-tests/remote_nvme",
    "longshore-sim/simulation",
    "longshore-tests/memory",
    "longshore-server/turns",
    "longshore-tests/nvme",
    "longshore-tests/remote_volume",
    "longshore-cli/verbs",
];

/// What `make check` leaves out: these take longer than all others together.
const NOT_QUICK: &[&str] = &[
    "longshore-sim/simulation",
    "longshore-tests/idle",
    "longshore-tests/memory",
    "longshore-tests/peers",
    "longshore-tests/placement",
    "longshore-tests/re_export",
    "longshore-tests/spread",
];

/// What another step of CI runs, against more peers.
const ELSEWHERE: &[&str] = &["longshore-tests/peers"];

/// What makes tests that draw by lot take all there is, or more of it.
const EXHAUSTIVE: &[(&str, &str)] = &[
    ("LONGSHORE_RUDE_STEPS", "0"),
    ("LONGSHORE_FLIP_RUNS", "20"),
    ("LONGSHORE_KILLS", "1000"),
    ("LONGSHORE_POOL_OPERATIONS", "1000000"),
];

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let only = arguments.value("--only")?;
    let jobs = arguments.number("--jobs")?;
    let quick = arguments.flag("--quick");
    let exhaustive = arguments.flag("--exhaustive");
    let (alone, together) = (arguments.flag("--alone"), arguments.flag("--together"));
    arguments.finish()?;
    let mut programs = build::test_programs()?;
    // The tests in `tests/` start the optimised server, unless they are to be quick.
    let server = match quick {
        true => workspace::target_folder().join("debug/longshore"),
        false => workspace::server_program()?,
    };
    check_names(&programs)?;
    let left_out = if quick { NOT_QUICK } else { ELSEWHERE };
    match &only {
        Some(only) => programs.retain(|program| program.name.contains(only.as_str())),
        None => programs.retain(|program| !left_out.contains(&program.name.as_str())),
    }
    programs.retain(|program| match ALONE.contains(&program.name.as_str()) {
        true => !together,
        false => !alone,
    });
    if programs.is_empty() {
        bail!("no test program matches {only:?}");
    }
    for program in &mut programs {
        program.variables.push(("LONGSHORE_BIN", server.clone()));
        if exhaustive {
            let more = EXHAUSTIVE.iter().map(|(name, value)| (*name, value.into()));
            program.variables.extend(more);
        }
    }
    let jobs = jobs.map_or(Ok(usual_jobs()), usize::try_from)?;
    // `make check` installs no packages, so a quick test may lack anything.
    let skips = if quick { Skips::Any } else { Skips::Listed };
    Ok(run_side_by_side(programs, jobs.max(1), skips))
}

/// How steps find what [`build_all`] has built.
pub fn built() -> Result<(&'static str, PathBuf)> {
    Ok((workspace::BUILT, build::messages_file()?))
}

/// Builds all test programs; how many there are.
pub fn build_all() -> Result<usize> {
    Ok(build::test_programs()?.len())
}

/// Runs the test program of this name, `PACKAGE/TARGET`.
pub fn command(name: &str) -> Result<Command> {
    let programs = build::test_programs()?;
    let program = programs.iter().find(|program| program.name == name);
    Ok(program
        .with_context(|| format!("no test program {name}"))?
        .command())
}

fn limit_of(program: &Program) -> Duration {
    let is_exhaustive = |(name, _): &(&str, _)| EXHAUSTIVE.iter().any(|(known, _)| known == name);
    match program.variables.iter().any(is_exhaustive) {
        true => LIMIT_EXHAUSTIVE,
        false => LIMIT,
    }
}

/// More than there are cores: together the programs take a third of the processor time of as many cores, since most
/// wait for time-outs and for the server.
fn usual_jobs() -> usize {
    2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A program that was renamed must not fall off the lists unseen.
fn check_names(programs: &[Program]) -> Result<()> {
    let is_known = |name: &str| programs.iter().any(|program| program.name == name);
    let lists = [ALONE, LONG, NOT_QUICK, ELSEWHERE];
    match lists.into_iter().flatten().find(|name| !is_known(name)) {
        Some(name) => bail!("xtask/src/programs.rs names {name}, which is no test program"),
        None => Ok(()),
    }
}

/// Runs all programs, so many at the same time, and those of [`ALONE`] one by one behind them.
fn run_side_by_side(programs: Vec<Program>, jobs: usize, skips: Skips) -> Counts {
    let (alone, mut together): (Vec<_>, Vec<_>) = programs
        .into_iter()
        .partition(|program| ALONE.contains(&program.name.as_str()));
    together.sort_by_key(|program| {
        LONG.iter()
            .position(|name| *name == program.name)
            .unwrap_or(LONG.len())
    });
    println!(
        "tests: {} programs, {jobs} at a time, then {} one by one",
        together.len(),
        alone.len()
    );
    let queue = Mutex::new(VecDeque::from(together));
    let total = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    // The lock is let go before the program runs.
                    let next = queue.lock().expect("no panics").pop_front();
                    let Some(program) = next else { break };
                    let counts = run_one(&program, skips);
                    *total.lock().expect("no panics") += counts;
                }
            });
        }
    });
    let mut total = total.into_inner().expect("no panics");
    for program in &alone {
        total += run_one(program, skips);
    }
    total
}

/// Runs one program, and prints its result in one piece.
fn run_one(program: &Program, skips: Skips) -> Counts {
    let started = Instant::now();
    let name = &program.name;
    let (ended, skipped) = match skips::run(name, &mut program.command(), limit_of(program)) {
        Ok(ran) => ran,
        Err(error) => {
            println!("FAIL {name}: {error:#}");
            return Counts::FAILED;
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    let mut counts = count_tests(&ended.output);
    // A program without the usual harness is one test.
    if counts == Counts::default() && program.is_one_test(&ended.output) {
        counts = Counts::PASSED;
    }
    if !ended.is_success() && counts.failed == 0 {
        counts += Counts::FAILED; // it crashed, or hung
    }
    skips.move_to(&mut counts, &skipped);
    let skipped: String = skipped
        .iter()
        .map(|skip| format!("\n     {}", skips.describe(skip)))
        .collect();
    if !ended.is_success() {
        println!(
            "FAIL {name} ended {}: {counts} in {seconds:.1} s{skipped}\n{}",
            ended.how(),
            ended.output.trim_end()
        );
        return counts;
    }
    let word = if counts.failed == 0 { "ok  " } else { "FAIL" };
    let ignored: String = ended
        .output
        .lines()
        .filter(|line| line.contains("... ignored"))
        .map(|line| format!("\n     {line}"))
        .collect();
    println!("{word} {name}: {counts} in {seconds:.1} s{ignored}{skipped}");
    counts
}
