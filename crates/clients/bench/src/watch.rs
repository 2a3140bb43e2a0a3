//! Looking on: progress, and the wish to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Whether somebody wants the run to end, such as by a signal.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// The cell that a signal handler sets to the signal's number.
    #[must_use]
    pub fn cell(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0)
    }

    /// The signal that came, if one did.
    #[must_use]
    pub fn signal(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The load runs, and nothing is counted.
    WarmUp,
    /// The load runs, and everything is counted.
    Measure,
    /// What was written is read again.
    ReadBack,
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    pub phase: Phase,
    /// Since the load began.
    pub elapsed: Duration,
    /// How long it will take altogether, where that is known.
    pub total: Option<Duration>,
    /// Operations that have ended.
    pub operations: u64,
    pub bytes: u64,
}

/// Somebody who looks on.
pub trait Watch {
    /// Some times a second while load is made.
    fn progress(&mut self, progress: Progress);

    /// Something worth knowing that is no error.
    fn warn(&mut self, text: &str);
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: Progress) {}

    fn warn(&mut self, _: &str) {}
}
