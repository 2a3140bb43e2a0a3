//! What decides whether a change may land, in three tiers: `cargo xtask check` for each step of the work,
//! `ci` (`make test`) for each landing, and `ci --all` (`make test-all`) for each night.
//!
//! Steps run side by side where they do not disturb each other ([`schedule`]). A step that fails does not keep
//! the others from running, so that one run shows all that is wrong. A step that cannot run on this machine
//! says why; it counts as skipped if [`skips::ALLOWED`] lists the reason, and as failed if not.

mod passed;
mod room;
pub mod schedule;
mod skips;
pub mod source;
mod subjects;

use std::time::Duration;

use anyhow::{Result, bail};

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::rotation::{self, Part};
use crate::{programs, workspace};
use passed::Passed;
use schedule::Step;

/// The turn of the fuzz targets, from 0. To build them with coverage takes as long as a third of the kernel's jobs, which
/// have the other turns. On random bytes and the kept corpus the targets run among the tests, each time.
const FUZZ_TURN: usize = 0;

/// The turn of the packages, from 0: their static program takes a few minutes to build.
const PACKAGES_TURN: usize = 1;

/// How long each step runs that can run for any time.
struct Lengths {
    fuzz_seconds: u64,
    seeds: u64,
    power_cuts: u64,
    siege_minutes: u64,
}

/// Lengths for a change that is about to land.
const SHORT: Lengths = Lengths {
    fuzz_seconds: 6,
    seeds: 40,
    power_cuts: 1,
    siege_minutes: 1,
};

/// Lengths for the nightly run.
const LONG: Lengths = Lengths {
    fuzz_seconds: 300,
    seeds: 4_000,
    power_cuts: 5,
    siege_minutes: 60,
};

/// The time limit of a step of `make check` or `make test`, the first build on a busy machine included.
const STEP_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The time limit of a step that runs a whole matrix, or for as long as in a night.
const FULL_LIMIT: Duration = Duration::from_secs(6 * 60 * 60);

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let everything = arguments.flag("--all");
    let only = arguments.value("--only")?;
    let part = match Part::given(&mut arguments)? {
        Some(part) => part,
        None if everything => Part::All,
        None => match Part::of_environment()? {
            Some(part) => part,
            None => Passed::here()?.due(Part::of_commit()),
        },
    };
    arguments.finish()?;
    room::check()?;
    match part {
        Part::All => println!("everything runs"),
        Part::Turn(turn) => println!(
            "part {} of {} of each matrix runs; {}=1 to {} chooses another (fuzz targets run in part {}), and \
             `make test-all` runs everything",
            turn + 1,
            rotation::TURNS,
            rotation::VARIABLE,
            rotation::TURNS,
            FUZZ_TURN + 1,
        ),
    }
    let mut steps = landing(part, if everything { &LONG } else { &SHORT }, everything)?;
    let is_whole = only.is_none();
    if let Some(only) = only {
        if let Some(unknown) = only
            .split(',')
            .find(|name| !steps.iter().any(|step| step.name == *name))
        {
            let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
            bail!(
                "no step of this part is called {unknown:?}; there are {}",
                names.join(", ")
            );
        }
        steps.retain(|step| only.split(',').any(|name| name == step.name));
    }
    let counts = schedule::run(steps, limit(part, everything))?;
    if is_whole && counts.failed == 0 {
        Passed::here()?.note(part)?;
    }
    Ok(counts)
}

pub fn check(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    let steps = vec![
        Step::new("format", "format", 50),
        Step::new("build", "build --tests", 200)
            .after(&["format"])
            .provides(vec![programs::built()?]),
        Step::new("tests", "tests --quick", 130).needs(&["build"]),
        Step::new("circles", "circles", 50),
        Step::new("comments", "comments", 20),
        Step::new("lints", "lints", 100)
            .after(&["build"])
            .gives_way(),
    ];
    schedule::run(steps, STEP_LIMIT)
}

/// How long a step may take.
fn limit(part: Part, everything: bool) -> Duration {
    if everything || part == Part::All {
        FULL_LIMIT
    } else {
        STEP_LIMIT
    }
}

/// The steps of `make test`. A load is processor time by time passed, on an idle machine with two cores; where Cargo
/// builds beside another step, half of what it could use.
///
/// Builds come first. What only reads the sources gives way to what has time limits. Suites with the longest times
/// come before shorter ones, and those that measure, or keep all cores busy, last.
fn landing(part: Part, lengths: &Lengths, everything: bool) -> Result<Vec<Step>> {
    let with_part = |command: &str| format!("{command} --part {}", part.word());
    let fuzz = format!("fuzz --seconds {}", lengths.fuzz_seconds);
    let sim = format!("sim --seeds {}", lengths.seeds);
    let powercut = with_part(&format!("powercut --rounds {}", lengths.power_cuts));
    let siege = with_part(&format!("siege --minutes {}", lengths.siege_minutes));
    let peers = match everything {
        true => "peers --exhaustive".to_owned(),
        false => with_part("peers"),
    };
    let built: &[&str] = &["set-up", "build", "server"];
    let tests = match everything {
        true => "tests --together --exhaustive",
        false => "tests --together",
    };
    // The whole of it builds the static program as users get it, and checks its size.
    let packages = match everything {
        true => "package --check-size",
        false => "package --quick",
    };
    let crates = match everything || part.includes(PACKAGES_TURN) {
        true => "crates --verify",
        false => "crates",
    };
    let mut steps = vec![
        Step::new("format", "format", 20),
        Step::new("circles", "circles", 50),
        Step::new("comments", "comments", 20),
        Step::new("set-up", "setup", 20),
        Step::new("dependencies", "dependencies", 20),
        Step::new("crates", crates, 50).needs(&["set-up"]),
        Step::new("build", "build --tests", 100).provides(vec![programs::built()?]),
        Step::new("server", "build --release", 100).provides(workspace::built()),
        Step::new("tests", tests, 120).needs(built),
        Step::new("lints", "lints", 100)
            .after(&["build"])
            .gives_way(),
        Step::new("documentation", "documentation", 100)
            .after(&["lints"])
            .gives_way(),
        Step::new("kernel", &with_part("kernel"), 160).needs(built),
        Step::new("fuzz-build", &format!("{fuzz} --build"), 100)
            .after(&["lints"])
            .gives_way(),
        Step::new("simulation", &sim, 100)
            .needs(&["build"])
            .gives_way(),
        Step::new("conformance", &with_part("conformance"), 130).needs(built),
        Step::new("peers", &peers, 110).needs(built),
        Step::new("power-cut", &powercut, 100).needs(built),
        Step::new("siege", &siege, 120).needs(&["set-up", "server"]),
        Step::new("qemu", "qemu", 80).needs(built),
        Step::new("prometheus", "prometheus", 60).needs(&["set-up", "server"]),
        Step::new("api-client", "api-client", 60).needs(&["set-up", "server"]),
        Step::new("dashboard", "dashboard", 100).needs(&["set-up", "server"]),
        Step::new("packages", packages, 100).needs(&["set-up", "server"]),
        Step::new("fuzz", &fuzz, 200).needs(&["fuzz-build"]),
        Step::new("tests-alone", "tests --alone", 1_000).needs(built),
        Step::new("instructions", &with_part("instructions"), 200).needs(built),
        Step::new("figures", &with_part("small-figures"), 150).needs(built),
    ];
    if !part.includes(FUZZ_TURN) {
        steps.retain(|step| !step.name.starts_with("fuzz"));
    }
    if !part.includes(PACKAGES_TURN) {
        steps.retain(|step| step.name != "packages");
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_wait_for_steps_that_are_there() {
        for steps in [
            landing(Part::All, &LONG, true).unwrap(),
            landing(Part::Turn(0), &SHORT, false).unwrap(),
        ] {
            for (index, step) in steps.iter().enumerate() {
                for before in step.after {
                    assert!(
                        steps[..index].iter().any(|step| step.name == *before),
                        "{before}"
                    );
                }
            }
        }
    }

    #[test]
    fn whole_matrices_have_more_time() {
        assert_eq!(limit(Part::Turn(0), false), STEP_LIMIT);
        assert_eq!(limit(Part::All, false), FULL_LIMIT);
        assert_eq!(limit(Part::Turn(0), true), FULL_LIMIT);
    }

    #[test]
    fn fuzz_targets_and_packages_have_one_turn_of_four() {
        for name in ["fuzz", "packages"] {
            let has_step = |turn: &usize| {
                let steps = landing(Part::Turn(*turn), &SHORT, false).unwrap();
                steps.iter().any(|step| step.name == name)
            };
            let turns = (0..rotation::TURNS).filter(has_step);
            assert_eq!(turns.count(), 1, "{name}");
        }
    }

    #[test]
    fn each_landing_has_a_minute_of_siege_and_the_night_an_hour() {
        let command = |part, lengths, everything| {
            let steps = landing(part, lengths, everything).unwrap();
            let siege = steps.into_iter().find(|step| step.name == "siege");
            siege.unwrap().command().to_owned()
        };
        for turn in 0..rotation::TURNS {
            let expected = format!("siege --minutes 1 --part {}", turn + 1);
            assert_eq!(command(Part::Turn(turn), &SHORT, false), expected);
        }
        assert_eq!(
            command(Part::All, &LONG, true),
            "siege --minutes 60 --part all"
        );
    }

    #[test]
    fn reasons_are_allowed_for_steps_that_are_there() {
        let steps = landing(Part::All, &LONG, true).unwrap();
        for (name, _) in skips::ALLOWED {
            assert!(steps.iter().any(|step| step.name == *name), "{name}");
        }
    }
}
