//! The way from a command's operation on the medium to a volume, and back.
//!
//! An operation passes the write gate if it writes, is tried without sleeping, and becomes a storage
//! request if that is not enough. Reads for the peer have shorter ways: no memory at all for known
//! zeros, and the place behind its header in the transmit queue for what is small.

use std::sync::Arc;

use longshore_block::command::{CommandEvent, DataLocation};
use longshore_block::extent::Extent;
use longshore_block::operation::{MediaError, Operation, Reply};
use longshore_reactor::PagePipe;
use longshore_volume::{Attempt, Ended, Request, Started, VolumeError};

use crate::connection::{Connection, Protocol};
use crate::copies::pages;
use crate::core::Core;
use crate::exports::Unit;
use crate::gate::Passage;
use crate::message::TaskAddress;
use crate::observe::stages::{Direction, Stage};
use crate::request::{InFlight, Owner};
use crate::task::{DataIn, MediaRequest, Task, TaskState};

/// Data for the peer up to this length is copied behind its header rather than sent by reference.
pub(crate) const COPY_BYTES_MAX: usize = 1024;

/// What became of an operation on the medium.
pub(crate) enum Medium {
    /// It is over.
    Now(Result<Reply, MediaError>),
    /// The task waits in the state it was given.
    Parked,
}

/// How far a read that needs no buffer came.
enum InlineRead {
    /// The data are in the transmit queue, behind room for their header.
    Inline,
    /// They are so many zeros.
    Zeros(u32),
    /// The volume could not.
    Failed(VolumeError),
    /// The volume would have to sleep.
    WouldSleep,
    /// It needs memory of its own.
    NeedsBuffer,
}

impl<P: Protocol> Connection<P> {
    /// Tries the medium again for a task that waited for the gate or for memory.
    pub(crate) fn retry_medium(&mut self, core: &mut Core, address: TaskAddress) {
        let Some(mut task) = self.tasks.take_exact(address) else {
            // It ended meanwhile; whatever it was woken for is somebody else's now.
            return;
        };
        let wanted = match task.state {
            TaskState::Medium(wanted) => wanted,
            TaskState::Lock { unit } => {
                return match self.lock_range(core, &mut task, unit) {
                    Passage::Open => P::run(self, core, task, CommandEvent::Locked),
                    Passage::Wait => self.tasks.park(task),
                };
            }
            TaskState::Memory { .. } => return P::retry_memory(self, core, task),
            _ => return self.tasks.park(task),
        };
        match self.pass_gate(core, &mut task, wanted) {
            Medium::Now(result) => {
                core.note_stage(task.followed, Stage::Done);
                P::run(self, core, task, CommandEvent::Media(result));
            }
            Medium::Parked => self.tasks.park(task),
        }
    }

    /// Does an operation on the medium, now if that needs no sleep.
    pub(crate) fn medium(
        &mut self,
        core: &mut Core,
        task: &mut Task<P::Work>,
        wanted: MediaRequest,
    ) -> Medium {
        let unit = core.shared.unit(wanted.unit);
        unit.statistics
            .count(core.shard, wanted.operation, wanted.payload);
        if !task.followed.is() {
            return self.pass_gate(core, task, wanted);
        }
        self.followed_medium(core, task, wanted)
    }

    /// The same for an operation that is followed.
    #[cold]
    fn followed_medium(
        &mut self,
        core: &mut Core,
        task: &mut Task<P::Work>,
        wanted: MediaRequest,
    ) -> Medium {
        let (direction, bytes) = match (wanted.operation, wanted.payload) {
            (Operation::Read { .. }, DataLocation::DataIn { length }) => (Direction::Read, length),
            (Operation::Write { .. }, DataLocation::DataOut { length, .. }) => {
                (Direction::Write, length)
            }
            _ => (Direction::Other, 0),
        };
        let now = core.clock();
        let stages = &mut core.stages;
        stages.queue(task.followed, wanted.unit, direction, bytes as u64, now);
        let medium = self.pass_gate(core, task, wanted);
        if let Medium::Now(_) = medium {
            core.note_stage(task.followed, Stage::Done);
        }
        medium
    }

    /// Keeps the writes of others from the medium until the task ends. [`Passage::Wait`]: the task waits for
    /// those under way, in the state it was given.
    ///
    /// A unit has one gate, so all of the medium is kept, whatever the range.
    pub(crate) fn lock_range(
        &mut self,
        core: &mut Core,
        task: &mut Task<P::Work>,
        unit: usize,
    ) -> Passage {
        task.exclusive = true;
        let passage = core.shared.unit(unit).gate.enter_exclusive(task.address);
        if passage == Passage::Wait {
            task.state = TaskState::Lock { unit };
        }
        passage
    }

    /// Does an operation on the medium if nothing keeps it from there.
    fn pass_gate(
        &mut self,
        core: &mut Core,
        task: &mut Task<P::Work>,
        wanted: MediaRequest,
    ) -> Medium {
        let shared = Arc::clone(&core.shared);
        let unit = shared.unit(wanted.unit);
        let holds_gate = task.exclusive && task.unit == Some(wanted.unit);
        if !wanted.operation.writes() || holds_gate {
            return self.ungated(core, task, unit, wanted, false);
        }
        let passage = unit
            .gate
            .enter(core.shard, task.address, |waiting| shared.retry(waiting));
        if passage == Passage::Wait {
            task.state = TaskState::Medium(wanted);
            return Medium::Parked;
        }
        let medium = self.ungated(core, task, unit, wanted, true);
        // A write in flight leaves the gate when its request ends.
        if !matches!(
            (&medium, &task.state),
            (Medium::Parked, TaskState::Storage { .. })
        ) {
            core.leave_gate(wanted.unit);
        }
        medium
    }

    /// Does an operation that nothing keeps from the medium. `counted`: it is counted at the gate.
    fn ungated(
        &mut self,
        core: &mut Core,
        task: &mut Task<P::Work>,
        unit: &Unit,
        wanted: MediaRequest,
        counted: bool,
    ) -> Medium {
        if task.followed.is() {
            let now = core.clock();
            core.stages.submit(task.followed, now);
        }
        let MediaRequest {
            operation, payload, ..
        } = wanted;
        let range = payload.range();
        let mut asleep = std::mem::take(&mut task.sleeps) || core.is_handed_over(unit, range.len());
        if let (Operation::Read { extent }, DataLocation::DataIn { .. }) = (operation, payload) {
            if let Some(pages) = self.pages(core, unit, extent, range.len()) {
                task.data_in = DataIn::Pages(pages);
                return Medium::Now(Ok(Reply::Done));
            }
            if !asleep {
                match self.inline_read(core, task.address.slot, unit, extent, range.len()) {
                    InlineRead::Inline => {
                        task.data_in = DataIn::Inline;
                        return Medium::Now(Ok(Reply::Done));
                    }
                    InlineRead::Zeros(length) => {
                        task.data_in = DataIn::Zeros(length);
                        return Medium::Now(Ok(Reply::Done));
                    }
                    InlineRead::Failed(error) => {
                        return Medium::Now(media_result(unit, Err(error)));
                    }
                    InlineRead::WouldSleep => asleep = true,
                    InlineRead::NeedsBuffer => {}
                }
            }
            if task.reading == 0 {
                task.reading = range.len();
                self.reading += range.len();
            }
            let room = self.room(core);
            let mut taken = None;
            if self.claim(core, range.len()) {
                taken = core.take_memory(task.address, range.len(), room);
                if taken.is_none() {
                    self.note_held();
                }
            }
            let taken = taken.or_else(|| self.take_as_newcomer(core, range.len()));
            let Some(buffer) = taken else {
                core.stages.wait_again(task.followed);
                task.state = TaskState::Medium(wanted);
                let has_claim = self.has_claim(core, range.len());
                self.wait_for_memory(core, task.address, has_claim);
                return Medium::Parked;
            };
            self.filling -= std::mem::replace(&mut task.filling, buffer.capacity());
            self.filling += task.filling;
            self.note_held();
            task.data_in = DataIn::Buffer(buffer);
        }
        let attempt = if asleep {
            Attempt::WouldSleep
        } else {
            attempt(unit, operation, task, payload)
        };
        let result = match attempt {
            Attempt::Done(result) => {
                core.counters.attempt_done(unit.attempt_cost, range.len());
                result.map(|()| Reply::Done)
            }
            Attempt::WouldSleep => {
                let request = Request {
                    operation,
                    buffer: task.lend(payload),
                    start: range.start,
                    end: range.end,
                };
                let in_flight = InFlight {
                    owner: Owner::Task(task.address),
                    unit: wanted.unit,
                    payload,
                    counted,
                };
                let platform = &mut *core.platform;
                match core
                    .requests
                    .start(&unit.volume, request, in_flight, platform)
                {
                    Started::Waits(request) => {
                        core.counters.storage_submitted += 1;
                        task.state = TaskState::Storage { request };
                        return Medium::Parked;
                    }
                    Started::Ended(_, ended) => {
                        task.take_back(payload, ended.buffer);
                        ended.result
                    }
                }
            }
        };
        let result = media_result(unit, result);
        if result.is_err() {
            core.shared.tell_of_failure(wanted.unit);
        }
        Medium::Now(result)
    }

    /// The pages of a read that may be sent by reference.
    #[inline]
    fn pages(
        &self,
        core: &mut Core,
        unit: &Unit,
        extent: Extent,
        length: usize,
    ) -> Option<PagePipe> {
        if !unit.splices || !self.channel.link.takes_pages() || self.protocol.has_data_digest() {
            return None;
        }
        pages::take(core, unit, extent, length)
    }

    /// The ways of a read that need no buffer.
    fn inline_read(
        &mut self,
        core: &mut Core,
        slot: u32,
        unit: &Unit,
        extent: Extent,
        length: usize,
    ) -> InlineRead {
        let Ok(wire_length) = u32::try_from(length) else {
            return InlineRead::NeedsBuffer;
        };
        let zeros = unit.volume.known_zeros(extent);
        if zeros && length > COPY_BYTES_MAX {
            core.counters.storage_zeros += 1;
            return InlineRead::Zeros(wire_length);
        }
        let transmit = &mut self.channel.transmit;
        let place = self.protocol.begin_inline_read(slot, wire_length, transmit);
        let Some(place) = place else {
            return InlineRead::NeedsBuffer;
        };
        let attempt = if place.len() != length {
            // The peer expects less than whole blocks.
            None
        } else if zeros {
            place.fill(0);
            Some(Attempt::Done(Ok(())))
        } else {
            Some(unit.volume.try_read(extent.lba, place))
        };
        if let Some(Attempt::Done(Ok(()))) = attempt {
            core.counters.attempt_done(unit.attempt_cost, length);
            return InlineRead::Inline;
        }
        self.protocol
            .rollback_inline_read(slot, &mut self.channel.transmit);
        match attempt {
            Some(Attempt::Done(Err(error))) => InlineRead::Failed(error),
            Some(Attempt::WouldSleep) => {
                core.counters.attempt_declined(unit.attempt_cost);
                InlineRead::WouldSleep
            }
            Some(Attempt::Done(Ok(()))) | None => InlineRead::NeedsBuffer,
        }
    }

    /// A storage request of a task ended.
    pub(crate) fn medium_done(
        &mut self,
        core: &mut Core,
        address: TaskAddress,
        in_flight: InFlight,
        ended: Ended,
    ) {
        let Some(mut task) = self.tasks.take_exact(address) else {
            unreachable!("a task that ends makes orphans of its requests");
        };
        core.note_stage(task.followed, Stage::Done);
        task.take_back(in_flight.payload, ended.buffer);
        let result = media_result(core.shared.unit(in_flight.unit), ended.result);
        if result.is_err() {
            core.shared.tell_of_failure(in_flight.unit);
        }
        P::run(self, core, task, CommandEvent::Media(result));
    }
}

/// Tries to read or write without sleeping.
fn attempt<W>(
    unit: &Unit,
    operation: Operation,
    task: &mut Task<W>,
    payload: DataLocation,
) -> Attempt {
    let Some(buffer) = task.buffer(payload) else {
        return Attempt::WouldSleep;
    };
    let bytes = &mut buffer[payload.range()];
    match operation {
        Operation::Read { extent } => unit.volume.try_read(extent.lba, bytes),
        Operation::Write { extent, fua } => unit.volume.try_write(extent.lba, bytes, fua),
        _ => Attempt::WouldSleep,
    }
}

/// The volume's errors as those of the protocols' machines.
pub(crate) fn media_result(
    unit: &Unit,
    result: Result<Reply, VolumeError>,
) -> Result<Reply, MediaError> {
    result.map_err(|error| media_error(unit, &error))
}

#[cold]
fn media_error(unit: &Unit, error: &VolumeError) -> MediaError {
    tracing::warn!(volume = %unit.volume.identity().name, %error, "operation failed");
    unit.statistics.count_error();
    match error {
        VolumeError::OutOfRange => MediaError::OutOfRange,
        VolumeError::ReadOnly => MediaError::ReadOnly,
        VolumeError::NoSpace => MediaError::NoSpace,
        VolumeError::Unsupported => MediaError::Unsupported,
        // What was written is lost, or will be: of both, a host learns that no retry helps.
        VolumeError::Poisoned | VolumeError::Removed => MediaError::Poisoned,
        VolumeError::Shortened => MediaError::Failed,
        VolumeError::ShortFile { .. } => MediaError::ShortFile,
        VolumeError::OutOfMemory => MediaError::OutOfMemory,
        VolumeError::Io { .. } => MediaError::Io,
    }
}
