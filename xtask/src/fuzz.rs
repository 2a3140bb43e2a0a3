//! A short run of each fuzz target under libFuzzer.
//!
//! Neither a nightly compiler nor `cargo-fuzz` is needed: the coverage that libFuzzer steers by is
//! an LLVM pass that stable Rust can ask for, and the crate `libfuzzer-sys` brings libFuzzer
//! itself, which takes a C++ compiler. The address sanitizer is left out; the crates under test
//! forbid `unsafe`. Where there is no C++ compiler the targets have still run among the ordinary
//! tests, on random bytes.

mod record;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::command::{find_program, run_captured, run_shown};
use crate::counts::{Counts, Skipped};
use crate::kernel::last_lines;
use crate::workspace;

/// What `cargo fuzz` passes too, without its sanitizer.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    --cfg fuzzing -Cdebug-assertions -Coverflow-checks";

/// Instrumentation is for the target, not for build scripts; naming the target tells them apart.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Why it cannot run on some machines.
pub const NO_COMPILER: &str = "there is no C++ compiler to build libFuzzer with";

/// Programs at the same time.
const PARALLEL: usize = 2;

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let seconds = arguments.number("--seconds")?.unwrap_or(10);
    let only = arguments.value("--only")?;
    let only_build = arguments.flag("--build");
    let update = arguments.flag("--update");
    arguments.finish()?;
    if !["c++", "g++", "clang++"]
        .into_iter()
        .any(|name| find_program(name).is_some())
    {
        return Err(Skipped(NO_COMPILER.to_owned()).into());
    }
    let mut programs = programs()?;
    programs.retain(|name| {
        only.as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    });
    let folder = build()?;
    if only_build {
        return Ok(Counts::PASSED);
    }
    let queue = Mutex::new(VecDeque::from(programs));
    let total = Mutex::new(Counts::default());
    let inputs = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some(name) = queue.lock().expect("no panics").pop_front() {
                        let executed = fuzz(&folder, &name, seconds)?;
                        let counts = executed.map_or(Counts::FAILED, |_| Counts::PASSED);
                        *total.lock().expect("no panics") += counts;
                        inputs.lock().expect("no panics").insert(name, executed);
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().expect("workers do not panic"))
    })?;
    if update {
        record::add(&inputs.into_inner()?)?;
    }
    Ok(total.into_inner()?)
}

/// Names of the programs in `fuzz/libfuzzer`.
fn programs() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(workspace::root().join("fuzz/libfuzzer/fuzz_targets"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.push(
                path.file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
    }
    names.sort();
    if names.is_empty() {
        bail!("there are no fuzz targets");
    }
    Ok(names)
}

fn build() -> Result<PathBuf> {
    let target_folder = workspace::target_folder().join("fuzz");
    run_shown(
        workspace::cargo()
            .current_dir(workspace::root().join("fuzz/libfuzzer"))
            .args(["build", "--release", "--target", TARGET])
            .env("CARGO_TARGET_DIR", &target_folder)
            .env("RUSTFLAGS", COVERAGE),
    )
    .context("build the fuzz targets")?;
    Ok(target_folder.join(TARGET).join("release"))
}

/// How many inputs it has taken; none if one of them broke it.
fn fuzz(folder: &Path, name: &str, seconds: u64) -> Result<Option<u64>> {
    // New inputs go to the first folder; those that are kept in the tree are read only.
    let found = workspace::work_folder(&format!("fuzz/{name}"))?;
    let artifacts = workspace::work_folder("fuzz/artifacts")?;
    let kept = workspace::root().join("fuzz/corpus").join(name);
    let mut command = Command::new(folder.join(name));
    command.arg(format!("-max_total_time={seconds}"));
    command.args([
        "-timeout=10",
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
        "-verbosity=0",
    ]);
    command.arg(format!("-artifact_prefix={}/{name}-", artifacts.display()));
    command.arg(&found);
    if kept.is_dir() {
        command.arg(&kept);
    }
    let ended = run_captured(&mut command, Duration::from_secs(seconds + 120))?;
    if ended.is_success() {
        let executed = ended
            .output
            .lines()
            .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
            .with_context(|| format!("{name} does not say how many inputs it has taken"))?;
        let executed = executed.trim().parse()?;
        println!("ok   fuzz {name}: {executed} inputs in {seconds} s");
        return Ok(Some(executed));
    }
    println!(
        "FAIL fuzz {name} ended {}:\n{}",
        ended.how(),
        last_lines(&ended.output, 60)
    );
    Ok(None)
}
