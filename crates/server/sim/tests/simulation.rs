//! Runs of fixed seeds, that a seed decides a run, and runs of seeds that the caller chooses.

use longshore_sim::checker::Violation;
use longshore_sim::profile::Profile;
use longshore_sim::{ChangeCounts, Planted, Report, Settings, run};

fn succeed(settings: &Settings) -> Report {
    match run(settings) {
        Ok(report) => report,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn promises_hold_whatever_the_seed() {
    for seed in 1000..1120 {
        succeed(&Settings::new(seed, 300));
    }
}

#[test]
fn promises_hold_in_long_runs() {
    for seed in 0..8 {
        succeed(&Settings::new(seed, 3000));
    }
}

#[test]
fn promises_hold_without_faults() {
    for seed in 0..10 {
        let mut settings = Settings::new(seed, 500);
        settings.profile = Some(Profile::calm());
        succeed(&settings);
    }
}

/// Connections break all the time while writes are on their way to a slow medium: each session is
/// reinstated over one that has not come to its end.
#[test]
fn promises_hold_when_sessions_are_reinstated_again_and_again() {
    for seed in 0..60 {
        let mut settings = Settings::new(seed, 300);
        settings.profile = Some(Profile::reinstating());
        succeed(&settings);
    }
}

/// Connections go from shard to shard all the time, with what they have in progress.
#[test]
fn promises_hold_when_connections_move_again_and_again() {
    let mut moves = 0;
    for seed in 0..60 {
        let mut settings = Settings::new(seed, 300);
        settings.profile = Some(Profile::moving());
        moves += succeed(&settings).moves;
    }
    // One run in three has a single shard.
    assert!(moves > 1000, "{moves}");
}

/// Units lose their numbers and get them back, become read-only and writable, and grow; volumes are removed, closed and
/// opened again, some before their commands have ended; initiators lose their access; other targets come and go: while
/// connections move and break.
#[test]
fn promises_hold_while_exports_change_again_and_again() {
    let mut changes = ChangeCounts::default();
    for seed in 0..60 {
        let mut settings = Settings::new(seed, 400);
        settings.profile = Some(Profile::changing());
        changes += succeed(&settings).changes;
    }
    let ChangeCounts {
        switches,
        protected,
        denied,
        rules,
        others,
        grown,
        overdue,
    } = changes;
    assert!(switches > 1000, "{changes:?}");
    assert!(protected.min(rules).min(others) > 50, "{changes:?}");
    assert!(denied.min(grown).min(overdue) > 10, "{changes:?}");
}

/// The same with a server that is killed and a medium that fails.
#[test]
fn promises_hold_while_exports_change_and_nothing_else_works_well() {
    for seed in 0..40 {
        let mut settings = Settings::new(seed, 300);
        settings.profile = Some(Profile {
            changes: 1000,
            ..Profile::failing_medium()
        });
        succeed(&settings);
    }
}

/// What the checkers are there for: mistakes in a change that are made on purpose.
#[test]
fn mistakes_in_a_change_of_exports_are_found() {
    for planted in [
        Planted::MixedUpMap,
        Planted::ForgottenFlush,
        Planted::ForgottenProtection,
    ] {
        let found = (0..20).find_map(|seed| {
            let mut settings = Settings::new(seed, 400);
            settings.planted = Some(planted);
            settings.profile = Some(Profile {
                cut_every: 0,
                ..Profile::changing()
            });
            run(&settings).err()
        });
        let failure = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        match planted {
            Planted::ForgottenFlush => {
                assert!(matches!(failure.violation, Violation::NotFlushed { .. }));
            }
            Planted::ForgottenProtection => {
                let text = failure.violation.to_string();
                assert!(text.contains("a write to a read-only"), "{text}");
            }
            Planted::MixedUpMap => {
                assert!(!matches!(failure.violation, Violation::NotFlushed { .. }));
            }
        }
    }
}

/// Some clients receive other bytes than the server sent: their machines take them, and other clients
/// do not notice.
#[test]
fn promises_hold_while_clients_are_lied_to() {
    for seed in 0..40 {
        let mut settings = Settings::new(seed, 300);
        settings.profile = Some(Profile::lying());
        succeed(&settings);
    }
}

/// Syncs fail, and the machine is restarted.
#[test]
fn promises_hold_when_data_cannot_be_written_back() {
    for seed in 0..40 {
        let mut settings = Settings::new(seed, 300);
        settings.profile = Some(Profile::failing_medium());
        succeed(&settings);
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in [3, 14, 15, 92] {
        let settings = Settings::new(seed, 400);
        assert_eq!(succeed(&settings), succeed(&settings), "seed {seed}");
    }
    let hashes = [1, 2].map(|seed| succeed(&Settings::new(seed, 100)).trace_hash);
    assert_ne!(hashes[0], hashes[1]);
}

/// `LONGSHORE_SIM_SEEDS=A..B` runs these seeds, `LONGSHORE_SIM_STEPS` commands each.
#[test]
fn promises_hold_for_the_seeds_asked_for() {
    let Ok(text) = std::env::var("LONGSHORE_SIM_SEEDS") else {
        return;
    };
    let (first, end) = text.split_once("..").expect("LONGSHORE_SIM_SEEDS=A..B");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let steps = std::env::var("LONGSHORE_SIM_STEPS").map_or(500, |text| number(&text));
    for seed in number(first)..number(end) {
        succeed(&Settings::new(seed, steps));
    }
}
