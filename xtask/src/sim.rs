//! A short run of the simulation with new seeds, on top of those in its tests.

use std::process::Command;

use anyhow::Result;
use longshore_tests::random::Random;

use crate::arguments::Arguments;
use crate::command::run_shown;
use crate::counts::Counts;
use crate::workspace;

/// Seeds of a run without arguments; a few seconds.
const SEEDS: u64 = 40;

/// `cargo xtask sim`. A seed that fails is printed by the simulation with how to repeat it.
pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let first = arguments.number("--seed")?;
    let seeds = arguments.number("--seeds")?.unwrap_or(SEEDS);
    arguments.finish()?;
    let first = first.unwrap_or_else(|| Random::seed_from_clock() % 1_000_000_000);
    let range = format!("{first}..{}", first + seeds);
    println!("seeds {range}");
    let program = workspace::build_for_tests("longshore-sim")?;
    run_shown(Command::new(program).args(["--seeds", &range]))?;
    Ok(Counts {
        passed: usize::try_from(seeds)?,
        ..Counts::default()
    })
}
