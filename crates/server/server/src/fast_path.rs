//! The fast path: reads and writes that their volume carries out at once.
//!
//! Nearly all commands under load are such. They need nothing of what makes a [`crate::task::Task`]:
//! no state to wait in, no memory of their own, nothing that another command could refer to. They
//! begin and end while their header lies in the receive buffer; data are written from there, too.
//! Each protocol decides which commands take it (`iscsi/fast_path.rs`, `nvme/fast_path.rs`); all
//! others become tasks, and so does a command whose volume would have to sleep.

use std::time::Instant;

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::MediaError;
use longshore_volume::{Attempt, AttemptCost, VolumeError};

use crate::connection::{Connection, Protocol};
use crate::copies::pages;
use crate::core::{Core, Shared};
use crate::exports::Unit;
use crate::medium::{COPY_BYTES_MAX, media_result};
use crate::observe::stages::{Direction, Followed, Stage};

/// Whether a command took the fast path.
#[derive(Debug)]
pub(crate) enum FastPath {
    /// It has been answered.
    Done,
    /// It becomes a task.
    Task(TaskStart),
}

/// What is known already of a command that becomes a task.
#[derive(Debug, Default)]
pub(crate) struct TaskStart {
    /// Its volume was tried, and would have to sleep.
    pub sleeps: bool,
    /// Whether its stages are noted, if that has been decided.
    pub followed: Option<Followed>,
}

impl FastPath {
    /// Nothing is known of it.
    pub(crate) const NO: Self = Self::Task(TaskStart {
        sleeps: false,
        followed: None,
    });
}

/// A command on the fast path: where it goes, and whether its stages are noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Index of the unit.
    pub unit: usize,
    pub lba: Lba,
    pub followed: Followed,
}

impl Way {
    /// It becomes a task all the same.
    pub(crate) const fn task(self, sleeps: bool) -> FastPath {
        FastPath::Task(TaskStart {
            sleeps,
            followed: Some(self.followed),
        })
    }
}

/// What became of a read.
pub(crate) enum FastRead {
    /// It has been answered, with the data.
    Done,
    /// The data are all zeros.
    Zeros,
    /// The medium failed.
    Failed(MediaError),
    /// It has to be a task.
    Task {
        /// The volume was tried, and would have to sleep.
        sleeps: bool,
    },
}

/// What became of a write.
pub(crate) enum FastWrite {
    /// It is written.
    Done,
    /// The medium failed.
    Failed(MediaError),
    /// It has to be a task.
    Task {
        /// The volume was tried, and would have to sleep.
        sleeps: bool,
    },
}

impl<P: Protocol> Connection<P> {
    /// Reads for the command of that number.
    #[inline]
    pub(crate) fn fast_read(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        way: Way,
        slot: u32,
        length: u32,
    ) -> FastRead {
        let began = began(core, way);
        let unit = shared.unit(way.unit);
        let length = length as usize;
        let extent = Extent {
            lba: way.lba,
            blocks: BlockCount(length as u64 >> unit.block_shift),
        };
        if unit.splices && length >= pages::LENGTH_MIN {
            return FastRead::Task { sleeps: false };
        }
        let zeros = unit.volume.known_zeros(extent);
        let outcome = if zeros && length > COPY_BYTES_MAX {
            core.counters.storage_zeros += 1;
            FastRead::Zeros
        } else {
            match self.fill(unit, slot, way.lba, length, zeros) {
                Ok(()) => {
                    core.counters.attempt_done(unit.attempt_cost, length);
                    FastRead::Done
                }
                Err(Some(Attempt::Done(Err(error)))) => FastRead::Failed(failure(core, way, error)),
                Err(Some(_)) => {
                    core.counters.attempt_declined(unit.attempt_cost);
                    return FastRead::Task { sleeps: true };
                }
                Err(None) => return FastRead::Task { sleeps: false },
            }
        };
        // What becomes a task counts then.
        unit.statistics.count_read(core.shard, length);
        note(core, way, Direction::Read, length, began);
        outcome
    }

    /// Reads to behind the header of the answer, and sends that. Otherwise what the volume said, if it was
    /// asked.
    #[inline]
    fn fill(
        &mut self,
        unit: &Unit,
        slot: u32,
        lba: Lba,
        length: usize,
        zeros: bool,
    ) -> Result<(), Option<Attempt>> {
        let mut refused = None;
        let Ok(wire_length) = u32::try_from(length) else {
            return Err(None);
        };
        let transmit = &mut self.channel.transmit;
        let filled = self
            .protocol
            .read_inline(slot, wire_length, transmit, |place| {
                if place.len() != length {
                    // The peer expects less than whole blocks.
                    return false;
                }
                if zeros {
                    place.fill(0);
                    return true;
                }
                match unit.volume.try_read(lba, place) {
                    Attempt::Done(Ok(())) => true,
                    attempt => {
                        refused = Some(attempt);
                        false
                    }
                }
            });
        match filled {
            Some(true) => Ok(()),
            _ => Err(refused),
        }
    }

    /// A command on the fast path has its answer.
    #[inline]
    pub(crate) fn answered_fast(&mut self, core: &mut Core, way: Way) {
        self.channel.counts.operations += 1;
        if way.followed.is() {
            self.channel.follow_response(core, way.followed);
        }
    }
}

/// Writes bytes that lie in the receive buffer.
#[inline]
pub(crate) fn fast_write(core: &mut Core, way: Way, fua: bool, bytes: &[u8]) -> FastWrite {
    let unit = core.shared.unit(way.unit);
    if unit.attempt_cost == AttemptCost::SystemCall {
        // It may write a part and decline. What is then written again must not have left the gate.
        return FastWrite::Task { sleeps: false };
    }
    let began = began(core, way);
    if !unit.gate.try_enter(core.shard) {
        unit.gate
            .visited_in_vain(|holder| core.shared.retry(holder));
        return FastWrite::Task { sleeps: false };
    }
    let attempt = unit.volume.try_write(way.lba, bytes, fua);
    let cost = unit.attempt_cost;
    core.leave_gate(way.unit);
    let outcome = match attempt {
        Attempt::Done(Ok(())) => {
            core.counters.attempt_done(cost, bytes.len());
            FastWrite::Done
        }
        Attempt::Done(Err(error)) => FastWrite::Failed(failure(core, way, error)),
        Attempt::WouldSleep => {
            core.counters.attempt_declined(cost);
            return FastWrite::Task { sleeps: true };
        }
    };
    // What becomes a task counts then.
    let statistics = &core.shared.unit(way.unit).statistics;
    statistics.count_write(core.shard, bytes.len());
    note(core, way, Direction::Write, bytes.len(), began);
    outcome
}

/// When a command that is followed came to its volume.
#[inline]
fn began(core: &Core, way: Way) -> Option<Instant> {
    way.followed.is().then(|| core.clock())
}

/// Notes the stages of a command that is followed and will not become a task.
#[inline]
fn note(core: &mut Core, way: Way, direction: Direction, length: usize, began: Option<Instant>) {
    if let Some(began) = began {
        let bytes = length as u64;
        let stages = &mut core.stages;
        stages.queue(way.followed, way.unit, direction, bytes, began);
        stages.submit(way.followed, began);
        core.note_stage(way.followed, Stage::Done);
    }
}

#[cold]
fn failure(core: &Core, way: Way, error: VolumeError) -> MediaError {
    let error = media_result(core.shared.unit(way.unit), Err(error))
        .expect_err("a failure stays a failure");
    core.shared.tell_of_failure(way.unit);
    error
}
