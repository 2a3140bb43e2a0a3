//! What of a transfer is safe: flushes, the journal, and what has to be copied again.

use std::time::Instant;

use longshore_volume::{Operation, Reply, VolumeError};

use super::{Checkpoint, TURN_MAX, Transfer, Transferred, plan};
use crate::copy::error::{Cause, CopyError};
use crate::copy::journal::{JournalIoError, Record};
use crate::copy::monitor::Monitor;

/// Flushes in a row that may prove nothing before the copy is given up.
const REPEATS_MAX: u32 = 20;

impl Transfer<'_> {
    pub(super) fn drive_checkpoint(&mut self, now: Instant, monitor: &mut Monitor<'_>) {
        match &self.checkpoint {
            Checkpoint::Resting { since } => {
                let due = now.duration_since(*since) >= self.task.settings.checkpoint;
                let journal = self.task.journal.is_some() && !self.journal_broken;
                let wanted = journal || self.task.destination.may_forget();
                let done = self.done();
                let idle = self.stop.is_none() && !self.rewinding;
                if due && wanted && idle && done > self.flushed {
                    self.checkpoint = Checkpoint::Flushing { done };
                    self.start_flush();
                }
            }
            Checkpoint::Storing { thread, .. } if thread.is_finished() => self.stored(monitor),
            Checkpoint::Flushing { .. } | Checkpoint::Storing { .. } => {}
        }
    }

    fn start_flush(&mut self) {
        let place = self.flush_place();
        let volume = &self.task.destination.volume;
        self.driver.start(place, volume, Operation::Flush, None);
    }

    /// The flush of a checkpoint is over; the journal is written by a thread of its own, since other
    /// writers to its file system may hold it up.
    pub(super) fn flushed(&mut self, result: Result<Reply, VolumeError>) {
        let Checkpoint::Flushing { done } = self.checkpoint else {
            unreachable!("a flush belongs to a checkpoint")
        };
        self.checkpoint = Checkpoint::Resting {
            since: Instant::now(),
        };
        if !self.take_up_flush(done, result) {
            return;
        }
        if let Some((journal, record)) = &self.task.journal
            && !self.journal_broken
        {
            assert!(done <= self.flushed, "the journal records what was flushed");
            let journal = journal.clone();
            let record = Record {
                done,
                ..record.clone()
            };
            let thread = std::thread::spawn(move || journal.store(&record));
            self.checkpoint = Checkpoint::Storing { done, thread };
        }
    }

    /// A flush that began when everything before `done` was written is over. Tells whether all that is
    /// there for good.
    fn take_up_flush(&mut self, done: u64, result: Result<Reply, VolumeError>) -> bool {
        if let Err(source) = result {
            let name = self.task.destination.name.clone();
            self.fail(self.flushed, CopyError::Flush { name, source });
            return false;
        }
        let losses = self.task.destination.losses();
        if losses != self.losses && self.task.destination.may_forget() {
            self.losses = losses;
            self.repeats += 1;
            self.rewinding = true;
            return false;
        }
        assert!(
            (self.flushed..=self.done()).contains(&done),
            "a flush covers what was written before it began"
        );
        self.flushed = done;
        self.repeats = 0;
        true
    }

    /// Copies again what may have been forgotten.
    pub(super) fn rewind(&mut self, monitor: &mut Monitor<'_>) {
        self.rewinding = false;
        if self.repeats > REPEATS_MAX {
            let name = self.task.destination.name.clone();
            return self.fail(self.flushed, CopyError::Unsteady { name });
        }
        monitor.warn(&format!(
            "the connection to {} was lost since the last flush, and its write cache may have \
             lost data; copying again from byte {}",
            self.task.destination.name, self.flushed
        ));
        monitor.rewind(self.flushed);
        self.plan = plan(&self.task, self.flushed);
    }

    fn stored(&mut self, monitor: &mut Monitor<'_>) {
        let resting = Checkpoint::Resting {
            since: Instant::now(),
        };
        let Checkpoint::Storing { done, thread } = std::mem::replace(&mut self.checkpoint, resting)
        else {
            return;
        };
        match thread.join().expect("storing a journal does not panic") {
            Ok(()) => self.recorded = Some(done),
            Err(error) => self.journal_failed(&error, monitor),
        }
    }

    fn journal_failed(&mut self, error: &JournalIoError, monitor: &mut Monitor<'_>) {
        self.journal_broken = true;
        let recorded = self.recorded.unwrap_or(0);
        monitor.warn(&format!(
            "{error}; the copy continues, but after an interruption it resumes from byte {recorded}"
        ));
    }

    // ---- the end

    pub(super) fn end_checkpoint(&mut self, monitor: &mut Monitor<'_>) {
        if matches!(self.checkpoint, Checkpoint::Storing { .. }) {
            self.stored(monitor);
        }
    }

    /// Nothing is under way any more: the last flush.
    pub(super) fn flush_all(&mut self, monitor: &mut Monitor<'_>) {
        let done = self.done();
        let flush_failed = matches!(self.stop, Some(CopyError::Flush { .. }));
        // A copy that stops before it has written anything has nothing to flush.
        if self.rewinding || flush_failed || (self.stop.is_some() && done <= self.flushed) {
            return;
        }
        self.start_flush();
        let result = loop {
            if let Some(finished) = self.driver.finished() {
                break finished.result;
            }
            self.heed(monitor);
            self.tick(Instant::now(), monitor);
            if let Err(error) = self.driver.wait(TURN_MAX) {
                return self.fail(self.flushed, CopyError::Wait(error));
            }
        };
        if let Err(error) = &result
            && self.stop.is_some()
        {
            monitor.warn(&format!("the last flush has failed: {}", Cause(error)));
        }
        self.take_up_flush(done, result);
    }

    /// Writes the journal if there is more to do, now or later.
    pub(super) fn end(mut self, monitor: &mut Monitor<'_>) -> Transferred {
        let done = self.flushed;
        let needed = self.stop.is_some() || self.task.settings.verify;
        if let Some((journal, record)) = &self.task.journal
            && needed
            && self.recorded != Some(done)
        {
            let record = Record {
                done,
                ..record.clone()
            };
            match journal.store(&record) {
                Ok(()) => self.recorded = Some(done),
                Err(error) => self.journal_failed(&error, monitor),
            }
        }
        Transferred {
            done,
            recorded: self.recorded,
            result: self.stop.map_or(Ok(()), Err),
        }
    }
}
