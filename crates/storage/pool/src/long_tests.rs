//! Long histories of random operations, beside a model.

use crate::power_tests::Scene;

/// Says how many operations long histories have together.
const OPERATIONS: &str = "LONGSHORE_POOL_OPERATIONS";

/// The same where nothing says it.
const OPERATIONS_USUAL: u64 = 2_000;

/// A quarter of the operations, so that they run side by side.
fn run_long_histories(first: u64) {
    let given = std::env::var(OPERATIONS).ok();
    let operations = given.map_or(OPERATIONS_USUAL, |it| it.parse().expect("a number"));
    for seed in first..first + operations.div_ceil(4 * 500) {
        let drives = if seed.is_multiple_of(2) { 2 } else { 1 };
        let mut scene = Scene::create(seed, drives, false);
        for _ in 0..500 {
            scene.step().expect("power");
        }
        scene.compare();
        scene.interrupt(seed);
    }
}

#[test]
fn a_long_history_of_random_operations_agrees_with_the_model() {
    run_long_histories(10_000);
}

#[test]
fn a_second_long_history_agrees_with_the_model() {
    run_long_histories(20_000);
}

#[test]
fn a_third_long_history_agrees_with_the_model() {
    run_long_histories(30_000);
}

#[test]
fn a_fourth_long_history_agrees_with_the_model() {
    run_long_histories(40_000);
}
