//! Reads and writes that need no task.
//!
//! Nearly all commands under load are such. They need nothing of what makes a [`Task`](super::task::Task): no state to
//! wait in, no memory of their own, nothing that another command could refer to. They begin and end while their header
//! lies in the receive buffer; data are written from there, too. Each protocol decides which commands are tried so
//! (`iscsi/fast_path.rs`, `nvme/fast_path.rs`); all others become tasks, and so does a command whose volume would have
//! to sleep.

use std::time::Instant;

use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::{Operation, Reply};
use longshore_volume::{Attempt, AttemptCost, VolumeError};

use super::conversion::outcome;
use super::inline_reads::InlineReads;
use super::pages;
use super::reads::{InlineRead, inline_read};
use super::task::{Executed, MediaRequest};
use crate::core::Core;
use crate::counters::stages::{Direction, Followed, Stage};
use crate::exports::Unit;
use crate::transport::channel::Channel;

/// Whether a command was carried out without a task.
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

/// See the module documentation.
pub(crate) struct Plain<'a> {
    /// The number that its machine gave it.
    pub slot: u32,
    pub unit: &'a Unit,
    /// Index of the unit.
    pub index: usize,
    /// What it writes, in the receive buffer.
    pub data_out: &'a [u8],
    /// Whether its stages are noted.
    pub followed: Followed,
    /// What it reads is all zeros, and not in the transmit queue.
    zeros: bool,
    /// Its volume was tried, and would have to sleep.
    sleeps: bool,
}

impl<'a> Plain<'a> {
    #[inline]
    pub(crate) const fn new(slot: u32, index: usize, unit: &'a Unit, followed: Followed) -> Self {
        Self {
            slot,
            unit,
            index,
            data_out: &[],
            followed,
            zeros: false,
            sleeps: false,
        }
    }

    /// It writes that, which lies in the receive buffer.
    #[inline]
    pub(crate) const fn with_data<'d>(self, data_out: &'d [u8]) -> Plain<'d>
    where
        'a: 'd,
    {
        Plain { data_out, ..self }
    }

    /// Reads `length` bytes from `lba` on.
    #[inline(always)]
    pub(crate) const fn read_request(&self, lba: Lba, length: u32) -> MediaRequest {
        let length = length as usize;
        MediaRequest {
            unit: self.index,
            operation: Operation::Read {
                extent: self.extent(lba, length),
            },
            payload: DataLocation::DataIn { length },
        }
    }

    /// Writes its data from `lba` on.
    #[inline(always)]
    pub(crate) const fn write_request(&self, lba: Lba, fua: bool) -> MediaRequest {
        let length = self.data_out.len();
        MediaRequest {
            unit: self.index,
            operation: Operation::Write {
                extent: self.extent(lba, length),
                fua,
            },
            payload: DataLocation::DataOut { start: 0, length },
        }
    }

    #[inline(always)]
    const fn extent(&self, lba: Lba, length: usize) -> Extent {
        let blocks = BlockCount(length as u64 >> self.unit.block_shift);
        Extent { lba, blocks }
    }

    /// Whether what it has read is all zeros. If not, it has been answered, with the data.
    #[inline]
    pub(crate) const fn reads_zeros(&self) -> bool {
        self.zeros
    }

    /// It becomes a task.
    #[inline]
    pub(crate) const fn into_task(self) -> FastPath {
        FastPath::Task(TaskStart {
            sleeps: self.sleeps,
            followed: Some(self.followed),
        })
    }

    #[inline]
    pub(crate) fn answered(&self, core: &mut Core, channel: &mut Channel) {
        channel.counts.operations += 1;
        if self.followed.is() {
            channel.follow_response(core, self.followed);
        }
    }

    /// Carries it out, if that needs no sleep and nothing keeps it from the medium.
    #[inline(always)]
    pub(super) fn execute(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        wanted: MediaRequest,
    ) -> Executed {
        if self.unit.throttle.is_limited() {
            // It may have to wait, as a task.
            return Executed::Waits;
        }
        let began = self.followed.is().then(|| core.clock());
        let done = match (wanted.operation, wanted.payload) {
            (Operation::Read { extent }, DataLocation::DataIn { length }) => {
                self.read(core, channel, machine, extent, length)
            }
            (Operation::Write { extent, fua }, _) => self.write(core, extent.lba, fua),
            _ => Done::No,
        };
        match done {
            Done::Yes => {
                self.note(core, wanted, began);
                Executed::Now(Ok(Reply::Done))
            }
            Done::Failed(error) => self.fail(core, wanted, began, error),
            Done::No => Executed::Waits,
        }
    }

    /// Reads to behind the header of the answer, and sends that.
    #[inline(always)]
    fn read(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        extent: Extent,
        length: usize,
    ) -> Done {
        let unit = self.unit;
        if unit.splices && length >= pages::LENGTH_MIN {
            return Done::No;
        }
        match inline_read::<true>(core, channel, machine, self.slot, unit, (extent, length)) {
            InlineRead::Inline => Done::Yes,
            InlineRead::Zeros(_) => {
                self.zeros = true;
                Done::Yes
            }
            InlineRead::Failed(error) => Done::Failed(error),
            InlineRead::WouldSleep => {
                self.sleeps = true;
                Done::No
            }
            InlineRead::NeedsBuffer => Done::No,
        }
    }

    /// Writes what lies in the receive buffer.
    #[inline(always)]
    fn write(&mut self, core: &mut Core, lba: Lba, fua: bool) -> Done {
        let unit = self.unit;
        if unit.attempt_cost == AttemptCost::SystemCall {
            // It may write a part and decline. What is then written again must not have left the gate.
            return Done::No;
        }
        if !unit.gate.try_enter(core.shard) {
            unit.gate
                .visited_in_vain(|holder| core.shared.retry(self.index, holder));
            return Done::No;
        }
        let attempt = unit.volume.try_write(lba, self.data_out, fua);
        let index = self.index;
        unit.gate
            .leave(core.shard, |task| core.shared.retry(index, task));
        match attempt {
            Attempt::Done(Ok(())) => {
                let length = self.data_out.len();
                core.counters.attempt_done(unit.attempt_cost, length);
                Done::Yes
            }
            Attempt::Done(Err(error)) => Done::Failed(error),
            Attempt::WouldSleep => {
                core.counters.attempt_declined(unit.attempt_cost);
                self.sleeps = true;
                Done::No
            }
        }
    }

    /// The volume has failed it.
    #[cold]
    fn fail(
        &self,
        core: &mut Core,
        wanted: MediaRequest,
        began: Option<Instant>,
        error: VolumeError,
    ) -> Executed {
        self.note(core, wanted, began);
        Executed::Now(outcome(core, wanted.unit, self.unit, Err(error)))
    }

    /// Counts it. What becomes a task counts then.
    #[inline(always)]
    fn note(&self, core: &mut Core, wanted: MediaRequest, began: Option<Instant>) {
        let statistics = &self.unit.statistics;
        statistics.count(core.shard, wanted.operation, wanted.payload);
        if let Some(began) = began {
            self.note_stages(core, wanted, began);
        }
    }

    /// Notes its stages: it is followed, and will not become a task.
    #[cold]
    fn note_stages(&self, core: &mut Core, wanted: MediaRequest, began: Instant) {
        let (direction, bytes) = match wanted.payload {
            DataLocation::DataIn { length } => (Direction::Read, length),
            DataLocation::DataOut { .. } | DataLocation::Scratch { .. } | DataLocation::None => {
                (Direction::Write, self.data_out.len())
            }
        };
        let stages = &mut core.stages;
        stages.queue(self.followed, wanted.unit, direction, bytes as u64, began);
        stages.submit(self.followed, began);
        core.note_stage(self.followed, Stage::Done);
    }
}

/// Whether a plain command is over.
enum Done {
    Yes,
    Failed(VolumeError),
    /// It has to be a task.
    No,
}
