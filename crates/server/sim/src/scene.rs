//! What an initiator or host sees of the world while it takes its step, and what it tells the checkers.

use std::fmt;

use crate::checker::Violation;
use crate::checker::history::History;
use crate::environment::Shared;
use crate::random::Random;
use crate::stamp::WriteId;
use crate::workload::{Maker, Purpose, UnitShape};

/// Resets of a unit: tasks of all initiators vanish without an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resets {
    /// Those that may still come into effect.
    open: usize,
    /// When the last one was over.
    last_end: Option<u64>,
}

/// A reservation that a host knows it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub holder: usize,
    /// Nobody else reads either.
    pub exclusive_access: bool,
    /// Others that are registered may do the same.
    pub registrants: bool,
    /// When its holder came to know.
    pub since: u64,
}

/// Reservations of a unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reservations {
    /// The one that stands for certain.
    pub held: Option<Reservation>,
    /// There has been one, so that commands of others may be refused.
    pub used: bool,
    /// How often a command that may end one was sent or answered.
    disturbances: u64,
    /// Commands that may end one and may still come into effect.
    disturbers: usize,
    /// `disturbances` when the target that runs now was started: what was sent before it is not
    /// among `disturbers`.
    started: u64,
}

impl Reservations {
    /// A command is sent; `disturbs` when it may end a reservation. To be remembered for
    /// [`answered`](Self::answered).
    pub fn sent(&mut self, disturbs: bool) -> u64 {
        self.used = true;
        if disturbs {
            self.held = None;
            self.disturbances += 1;
            self.disturbers += 1;
        }
        self.disturbances
    }

    /// The command was answered. Returns whether no other that may end a reservation was under
    /// way at any time since it was sent: only then it is known what stands.
    pub fn answered(&mut self, disturbs: bool, sent: u64) -> bool {
        if disturbs && sent >= self.started {
            self.disturbers -= 1;
        }
        let undisturbed = self.disturbances == sent && self.disturbers == 0;
        if disturbs {
            // For those that were sent meanwhile: it may have come into effect after them.
            self.disturbances += 1;
        }
        undisturbed
    }

    /// It may have ended, for another reason than a command.
    pub fn forget(&mut self) {
        self.held = None;
        self.disturbances += 1;
    }

    /// The target ended, and all reservations with it. Answers that tell of them may still be on
    /// their way.
    pub fn target_ended(&mut self) {
        self.held = None;
        self.disturbances += 1;
        self.disturbers = 0;
        self.started = self.disturbances;
    }
}

/// Times at which a unit has no number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Absence {
    /// It may have none now.
    pub is_now: bool,
    /// It had none at some time before.
    pub until: Option<u64>,
}

impl Absence {
    /// Whether it ever had none.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.is_now || self.until.is_some()
    }

    /// Whether a command that was sent at that time, or later, may not have found it.
    #[must_use]
    pub fn may_miss(self, sent_at: u64) -> bool {
        self.is_now || self.until.is_some_and(|until| sent_at <= until)
    }
}

/// Times at which a unit takes no writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protection {
    /// When it may take none.
    pub times: Absence,
    /// It takes none for certain, since then.
    pub since: Option<u64>,
}

impl Protection {
    /// Whether a write that was sent at that time may have been refused.
    #[must_use]
    pub fn may_refuse(self, sent_at: u64) -> bool {
        self.times.may_miss(sent_at)
    }

    /// Whether a write that was sent at that time cannot have been let pass.
    #[must_use]
    pub fn must_refuse(self, sent_at: u64) -> bool {
        self.since.is_some_and(|since| since < sent_at)
    }
}

/// What parties may notice of changes of the exports.
#[derive(Debug, Default)]
pub struct Noticed {
    /// When units were not to be found.
    pub absences: Vec<Absence>,
    /// When units were read-only.
    pub protections: Vec<Protection>,
    /// When commands for units were ended because these were removed, whatever the medium was about to do.
    pub endings: Vec<Absence>,
    /// When an initiator was not let in, by its number.
    pub denials: Vec<Absence>,
    /// Commands that were ended so: until the volume is closed, what they write may still land.
    ended: Vec<(usize, Purpose)>,
}

impl Noticed {
    pub fn add_unit(&mut self) {
        self.absences.push(Absence::default());
        self.protections.push(Protection::default());
        self.endings.push(Absence::default());
    }

    /// Gives up commands whose volume is closed by now.
    pub fn settle(&mut self, histories: &mut [History]) {
        let endings = &self.endings;
        let (open, over) = std::mem::take(&mut self.ended)
            .into_iter()
            .partition(|(unit, _)| endings[*unit].is_now);
        self.ended = open;
        for (unit, purpose) in over {
            end(&mut histories[unit], &purpose, History::write_over);
        }
    }
}

/// See the module documentation.
pub struct Scene<'a> {
    /// The clock and the network of the run.
    pub environment: &'a Shared,
    /// What the units may hold.
    pub histories: &'a mut [History],
    pub shapes: &'a [UnitShape],
    /// Resets of the units.
    pub resets: &'a mut [Resets],
    /// Reservations of the units.
    pub reservations: &'a mut [Reservations],
    /// What comes of changes of the exports.
    pub noticed: &'a mut Noticed,
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
    #[must_use]
    pub fn now(&self) -> u64 {
        self.environment.lock().now
    }

    /// Writes the line to the trace, if one is kept.
    pub fn trace(&self, line: fmt::Arguments<'_>) {
        self.environment.lock().trace(line);
    }

    /// Whether the unit's disk had errors that a command may have met.
    #[must_use]
    pub fn has_disk_errors(&self, unit: usize) -> bool {
        self.environment.lock().disks[unit].errors > 0
    }

    /// What makes up commands for a unit.
    pub fn maker<'m>(&'m mut self, unit: usize, random: &'m mut Random) -> Maker<'m> {
        Maker {
            unit,
            shape: self.shapes[unit],
            random,
            history: &mut self.histories[unit],
            next_id: self.next_id,
        }
    }

    /// A command succeeded.
    ///
    /// # Errors
    /// When what it returned or claims cannot be.
    pub fn succeeded(
        &mut self,
        unit: usize,
        purpose: &Purpose,
        data_in: &[u8],
    ) -> Result<(), Violation> {
        let history = &mut self.histories[unit];
        match purpose {
            Purpose::Look | Purpose::Stray => {}
            Purpose::Read { started, first } => history.read_done(*started, *first, data_in)?,
            Purpose::Write { ids, durable } => {
                for id in ids {
                    history.write_done(*id, *durable);
                }
            }
            Purpose::Flush { started } => history.flush_done(*started),
            Purpose::CompareAndWrite {
                id,
                started,
                expected,
                durable,
            } => history.compare_won(*id, *started, expected, *durable)?,
            Purpose::Compare {
                started,
                first,
                expected,
            } => history.compare_matched(*started, *first, expected)?,
        }
        Ok(())
    }

    /// A command found other data than it hoped for. `None`: it is not one that compares.
    pub fn miscompared(&mut self, unit: usize, purpose: &Purpose) -> Option<Result<(), Violation>> {
        let history = &mut self.histories[unit];
        match purpose {
            Purpose::CompareAndWrite {
                id,
                started,
                expected,
                ..
            } => Some(history.compare_lost(*id, *started, expected)),
            Purpose::Compare {
                started,
                first,
                expected,
            } => Some(history.compare_differed(*started, *first, expected)),
            _ => None,
        }
    }

    /// A command was refused before it did anything.
    pub fn refused(&mut self, unit: usize, purpose: &Purpose) {
        end(&mut self.histories[unit], purpose, History::write_refused);
    }

    /// A command failed or was aborted: nobody knows how far it came, but it does no more.
    pub fn give_up(&mut self, unit: usize, purpose: &Purpose) {
        if self.noticed.endings[unit].is_now {
            self.noticed.ended.push((unit, purpose.clone()));
        } else {
            end(&mut self.histories[unit], purpose, History::write_over);
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
        let is_reset = resets.open > 0 || resets.last_end.is_some_and(|end| sent_at <= end);
        // A write whose data have not come is ended without an answer.
        is_reset || self.noticed.endings[unit].may_miss(sent_at)
    }

    /// Whether a command that was sent at `sent_at` cannot have been let pass, because of a reservation that
    /// stood before and still stands.
    #[must_use]
    pub fn is_excluded(
        &self,
        party: usize,
        registers: bool,
        unit: usize,
        purpose: &Purpose,
        sent_at: u64,
    ) -> bool {
        let Some(held) = self.reservations[unit].held else {
            return false;
        };
        let is_concerned = purpose.writes()
            || held.exclusive_access
                && matches!(purpose, Purpose::Read { .. } | Purpose::Compare { .. });
        held.holder != party
            && held.since < sent_at
            && is_concerned
            && !(registers && held.registrants)
    }
}

/// Nothing more is learnt of a command.
fn end(history: &mut History, purpose: &Purpose, write: impl Fn(&mut History, WriteId)) {
    match purpose {
        Purpose::Look | Purpose::Stray => {}
        Purpose::Read { started, .. }
        | Purpose::Flush { started }
        | Purpose::Compare { started, .. } => history.read_over(*started),
        Purpose::Write { ids, .. } => ids.iter().for_each(|id| write(history, *id)),
        Purpose::CompareAndWrite { id, started, .. } => {
            history.read_over(*started);
            write(history, *id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_stands_when_nothing_else_was_under_way() {
        let mut reservations = Reservations::default();
        let acquire = reservations.sent(false);
        assert!(reservations.answered(false, acquire));
        let preempt = reservations.sent(true);
        assert!(reservations.answered(true, preempt));
    }

    #[test]
    fn a_clear_that_overlaps_an_acquire_at_either_end_leaves_it_open_what_stands() {
        let mut reservations = Reservations::default();
        let clear = reservations.sent(true);
        let acquire = reservations.sent(false);
        reservations.answered(true, clear);
        assert!(!reservations.answered(false, acquire), "sent before");

        let acquire = reservations.sent(false);
        let clear = reservations.sent(true);
        assert!(!reservations.answered(false, acquire), "answered after");
        reservations.answered(true, clear);
    }

    #[test]
    fn nothing_of_an_ended_target_stands() {
        let mut reservations = Reservations::default();
        let acquire = reservations.sent(false);
        let release = reservations.sent(true);
        reservations.target_ended();
        assert!(!reservations.answered(false, acquire));
        assert!(!reservations.answered(true, release));

        let acquire = reservations.sent(false);
        assert!(reservations.answered(false, acquire));
    }
}
