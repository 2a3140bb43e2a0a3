//! The settings of a run.

use crate::profile::{Planted, Profile};

/// What a run is to be like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Determines all choices of the run.
    pub seed: u64,
    /// Commands that are sent before the run comes to its end.
    pub steps: u64,
    /// Faults; `None`: as the seed says.
    pub profile: Option<Profile>,
    /// A mistake that the checkers must find.
    pub planted: Option<Planted>,
    /// The trace goes to standard error.
    pub echo: bool,
}

impl Settings {
    /// A run with that seed and so many commands.
    #[must_use]
    pub const fn new(seed: u64, steps: u64) -> Self {
        Self {
            seed,
            steps,
            profile: None,
            planted: None,
            echo: false,
        }
    }
}
