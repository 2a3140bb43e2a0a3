//! Runs simulations: `longshore-sim --seed N --steps M`, or `--seeds A..B` for many.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use longshore_sim::{Settings, run};

const USAGE: &str = "usage: longshore-sim [--seed N | --seeds A..B] [--steps M] [--trace]";

struct Arguments {
    seeds: std::ops::Range<u64>,
    steps: u64,
    trace: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments {
        seeds: 0..20,
        steps: 500,
        trace: false,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => {
                let seed: u64 = words.next()?.parse().ok()?;
                arguments.seeds = seed..seed.checked_add(1)?;
            }
            "--seeds" => {
                let text = words.next()?;
                let (first, end) = text.split_once("..")?;
                arguments.seeds = first.parse().ok()?..end.parse().ok()?;
            }
            "--steps" => arguments.steps = words.next()?.parse().ok()?,
            "--trace" => arguments.trace = true,
            _ => return None,
        }
    }
    Some(arguments)
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    let seeds = arguments.seeds.clone();
    for seed in arguments.seeds {
        let mut settings = Settings::new(seed, arguments.steps);
        settings.echo = arguments.trace;
        match run(&settings) {
            Ok(report) => println!(
                "seed {seed}: {} commands in {} ms, trace {:016x}",
                report.steps,
                report.time / longshore_sim::time::MILLISECOND,
                report.trace_hash
            ),
            Err(failure) => {
                failed += 1;
                eprintln!("{failure}");
            }
        }
    }
    if failed > 0 {
        eprintln!("{failed} of {} runs failed", seeds.end - seeds.start);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
