//! Places at which a test can end the process, to see what a crash there leaves behind.
//!
//! With the feature `fail-points`, the environment variable `FAILPOINTS` names them (crate `fail`):
//! `FAILPOINTS="change::committed=panic"`, and `change::refused=return(why)` has the server refuse what is committed.
//! The tests of the command are built with it. Without it there is nothing of them in the program.

/// All steps of a change that is carried out, in their order. Those of writing a file are met several times. Beside them
/// there are `undoing` and `undone` of a change that the server refuses, and `closed` of a volume that has left.
#[cfg(test)]
pub(super) const ALL: [&str; 11] = [
    "change::begun",
    "change::recorded",
    "change::written",
    "change::renamed",
    "change::intended",
    "change::opened",
    "change::grown",
    "change::prepared",
    "change::pruned",
    "change::committed",
    "change::switched",
];

/// Marks a step of a change.
macro_rules! step {
    ($name:literal) => {
        #[cfg(any(test, feature = "fail-points"))]
        fail::fail_point!(concat!("change::", $name));
    };
}
pub(crate) use step;

/// Reads from the environment at which steps to end.
pub fn prepare_steps() {
    #[cfg(feature = "fail-points")]
    std::mem::forget(fail::FailScenario::setup());
}
