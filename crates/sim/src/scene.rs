//! What an initiator sees of the world while it takes its step, and what it tells the checkers.

use std::fmt;

use crate::checker::Violation;
use crate::checker::history::History;
use crate::environment::Shared;
use crate::workload::{Purpose, Task, UnitShape};

/// Resets of a unit: tasks of all initiators vanish without an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resets {
    /// Those that may still come into effect.
    open: usize,
    /// When the last one was over.
    last_end: Option<u64>,
}

/// See the module documentation.
pub struct Scene<'a> {
    /// Clock and network.
    pub environment: &'a Shared,
    /// What the units may hold.
    pub histories: &'a mut [History],
    /// What the units are.
    pub shapes: &'a [UnitShape],
    /// Resets of the units.
    pub resets: &'a mut [Resets],
    /// Number of the last write.
    pub next_id: &'a mut u64,
    /// Commands sent in this run.
    pub steps: &'a mut u64,
    /// No new commands are to be sent.
    pub quiet: bool,
    /// The server is coming to its end.
    pub closing: bool,
}

impl Scene<'_> {
    /// The time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.environment.lock().now
    }

    /// Notes what happens.
    pub fn trace(&self, line: fmt::Arguments<'_>) {
        self.environment.lock().trace(line);
    }

    /// Whether the unit's disk had errors that a command may have met.
    #[must_use]
    pub fn has_disk_errors(&self, unit: usize) -> bool {
        self.environment.lock().disks[unit].errors > 0
    }

    /// A command was answered with GOOD.
    ///
    /// # Errors
    /// When what it returned or claims cannot be.
    pub fn succeeded(&mut self, task: &Task, data_in: &[u8]) -> Result<(), Violation> {
        let history = &mut self.histories[task.unit];
        match &task.purpose {
            Purpose::Look | Purpose::Stray => {}
            Purpose::Read { started, first } => history.read_done(*started, *first, data_in)?,
            Purpose::Write { id, durable } => history.write_done(*id, *durable),
            Purpose::Flush { started } => history.flush_done(*started),
            Purpose::Compare {
                id,
                started,
                expected,
                durable,
            } => history.compare_won(*id, *started, expected, *durable)?,
        }
        Ok(())
    }

    /// A command was answered with MISCOMPARE. `None`: it is not one that compares.
    pub fn miscompared(&mut self, task: &Task) -> Option<Result<(), Violation>> {
        let Purpose::Compare {
            id,
            started,
            expected,
            ..
        } = &task.purpose
        else {
            return None;
        };
        Some(self.histories[task.unit].compare_lost(*id, *started, expected))
    }

    /// A command was refused before it did anything.
    pub fn refused(&mut self, task: &Task) {
        let history = &mut self.histories[task.unit];
        match &task.purpose {
            Purpose::Look | Purpose::Stray => {}
            Purpose::Read { started, .. } | Purpose::Flush { started } => {
                history.read_over(*started);
            }
            Purpose::Write { id, .. } => history.write_refused(*id),
            Purpose::Compare { id, started, .. } => {
                history.read_over(*started);
                history.write_refused(*id);
            }
        }
    }

    /// A command failed or was aborted: nobody knows how far it came, but it does no more.
    pub fn give_up(&mut self, unit: usize, purpose: &Purpose) {
        let history = &mut self.histories[unit];
        match purpose {
            Purpose::Look | Purpose::Stray => {}
            Purpose::Read { started, .. } | Purpose::Flush { started } => {
                history.read_over(*started);
            }
            Purpose::Write { id, .. } => history.write_over(*id),
            Purpose::Compare { id, started, .. } => {
                history.read_over(*started);
                history.write_over(*id);
            }
        }
    }

    /// A reset of the unit was sent.
    pub fn reset_sent(&mut self, unit: usize) {
        self.resets[unit].open += 1;
    }

    /// It was answered, or can no longer come into effect.
    pub fn reset_over(&mut self, unit: usize) {
        let now = self.now();
        let resets = &mut self.resets[unit];
        resets.open -= 1;
        resets.last_end = Some(now);
    }

    /// Whether a reset may still come into effect.
    #[must_use]
    pub fn is_being_reset(&self, unit: usize) -> bool {
        self.resets[unit].open > 0
    }

    /// Whether a reset may have swallowed a command that was sent at that time.
    #[must_use]
    pub fn is_swallowed(&self, unit: usize, sent_at: u64) -> bool {
        let resets = &self.resets[unit];
        resets.open > 0 || resets.last_end.is_some_and(|end| sent_at <= end)
    }
}
