//! Places at which a test can end the process, to see what a crash there leaves behind.
//!
//! With the feature `fail-points`, the environment variable `FAILPOINTS` names them (crate `fail`):
//! `FAILPOINTS=change::committed=1*off->panic`. Without it there is nothing of them in the program.

/// Marks a step of a change.
#[macro_export]
#[doc(hidden)]
macro_rules! step {
    ($name:literal) => {
        #[cfg(feature = "fail-points")]
        fail::fail_point!(concat!("change::", $name));
    };
}
pub(crate) use step;

/// Reads from the environment at which steps to end.
pub fn prepare_steps() {
    #[cfg(feature = "fail-points")]
    std::mem::forget(fail::FailScenario::setup());
}
