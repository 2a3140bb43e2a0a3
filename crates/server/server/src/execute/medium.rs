//! From a command's operation on the medium to a volume, and back.
//!
//! An operation passes the write gate if it writes, is tried without sleeping, and becomes a storage
//! request if that is not enough. Reads for the peer have shorter ways: no memory at all for known
//! zeros, and the place behind its header in the transmit queue for what is small.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_block::command::{CommandEvent, DataLocation};
use longshore_block::operation::{MediaError, Operation, Reply};
use longshore_volume::{Attempt, Ended, Request, Started, Way};

use super::conversion::outcome;
use super::inline_reads::InlineReads;
use super::plain::Plain;
use super::reads::{InlineRead, inline_read, take_pages};
use super::task::{DataIn, Executed, MediaRequest, Task, TaskState};
use super::tasks::Tasks;
use crate::address::TaskAddress;
use crate::core::Core;
use crate::core::request::{InFlight, Owner};
use crate::counters::stages::{Direction, Stage};
use crate::delayed::Delay;
use crate::exports::Unit;
use crate::gate::Passage;
use crate::transport::channel::Channel;

/// A command that wants something done on a medium.
pub(crate) enum Command<'a, 'u, W> {
    /// One that needs no task, unless it has to wait.
    Plain(&'a mut Plain<'u>),
    Task(&'a mut Task<W>),
}

/// What became of another try at the medium.
pub(crate) enum Retried<W> {
    /// The task goes on with that event.
    Runs(Task<W>, CommandEvent),
    /// The task waits for memory for its write data.
    Memory(Task<W>),
    /// It waits, or has ended.
    Waits,
}

impl<W> Tasks<W> {
    /// Tries the medium again for a task that waited for the gate or for memory.
    pub(crate) fn retry(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        address: TaskAddress,
    ) -> Retried<W> {
        let Some(mut task) = self.take_exact(address) else {
            // It ended meanwhile; whatever it was woken for is somebody else's now.
            return Retried::Waits;
        };
        let wanted = match task.state {
            TaskState::Medium(wanted) => wanted,
            TaskState::Delayed(wanted) => {
                if let Some(left) = core.delayed.asks_again
                    && task.waits_for_limits(core, wanted, Some(left))
                {
                    self.park(task);
                    return Retried::Waits;
                }
                wanted
            }
            TaskState::Lock { unit } => {
                if task.try_lock(core, unit) == Passage::Open {
                    return Retried::Runs(task, CommandEvent::Locked);
                }
                self.park(task);
                return Retried::Waits;
            }
            TaskState::Memory { .. } => return Retried::Memory(task),
            TaskState::Receiving
            | TaskState::Half
            | TaskState::Deferred
            | TaskState::Ordering
            | TaskState::Storage { .. }
            | TaskState::Elsewhere => {
                self.park(task);
                return Retried::Waits;
            }
        };
        match self.pass_gate(core, channel, machine, &mut task, wanted) {
            Executed::Now(result) => {
                core.note_stage(task.followed, Stage::Done);
                Retried::Runs(task, CommandEvent::Media(result))
            }
            Executed::Waits => {
                self.park(task);
                Retried::Waits
            }
        }
    }

    /// Does an operation on the medium, now if that needs no sleep.
    #[inline(always)]
    pub(crate) fn execute(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        command: Command<'_, '_, W>,
        wanted: MediaRequest,
    ) -> Executed {
        match command {
            Command::Plain(plain) => plain.execute(core, channel, machine, wanted),
            Command::Task(task) => self.execute_task(core, channel, machine, task, wanted),
        }
    }

    fn execute_task(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        task: &mut Task<W>,
        wanted: MediaRequest,
    ) -> Executed {
        let unit = core.unit(wanted.unit);
        unit.statistics
            .count(core.shard, wanted.operation, wanted.payload);
        if !task.followed.is() {
            if unit.throttle.is_limited() && task.is_delayed(core, wanted) {
                return Executed::Waits;
            }
            return self.pass_gate(core, channel, machine, task, wanted);
        }
        self.execute_followed(core, channel, machine, task, wanted)
    }

    /// The same for an operation that is followed.
    #[cold]
    fn execute_followed(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        task: &mut Task<W>,
        wanted: MediaRequest,
    ) -> Executed {
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
        if core.unit(wanted.unit).throttle.is_limited() && task.is_delayed(core, wanted) {
            return Executed::Waits;
        }
        let executed = self.pass_gate(core, channel, machine, task, wanted);
        if let Executed::Now(_) = executed {
            core.note_stage(task.followed, Stage::Done);
        }
        executed
    }

    /// Does an operation on the medium if nothing keeps it from there.
    fn pass_gate(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        task: &mut Task<W>,
        wanted: MediaRequest,
    ) -> Executed {
        let view = Arc::clone(&core.view);
        let unit = view.exports.unit(wanted.unit);
        // It was admitted before that began.
        if unit.logical_unit.reservations().sanitize().is_blocked() {
            return Executed::Now(Err(MediaError::Sanitizing));
        }
        if !is_gated(task, wanted) {
            assert!(
                !holds_gate(task, wanted) || unit.gate.is_held_by(task.address),
                "an atomic command has the medium to itself until it ends"
            );
            return self.ungated(core, channel, machine, task, unit, wanted);
        }
        let retry = |waiting| view.shared.retry(wanted.unit, waiting);
        let passage = unit.gate.enter(core.shard, task.address, retry);
        if passage == Passage::Wait {
            task.state = TaskState::Medium(wanted);
            return Executed::Waits;
        }
        let executed = self.ungated(core, channel, machine, task, unit, wanted);
        // A write in flight leaves the gate when its request ends.
        if !matches!(
            (&executed, &task.state),
            (Executed::Waits, TaskState::Storage { .. })
        ) {
            core.leave_gate(wanted.unit);
        }
        executed
    }

    /// Does an operation that nothing keeps from the medium.
    fn ungated(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        machine: &mut impl InlineReads,
        task: &mut Task<W>,
        unit: &Unit,
        wanted: MediaRequest,
    ) -> Executed {
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
            if let Some(pages) = take_pages(core, channel, machine, unit, extent, range.len()) {
                task.data_in = DataIn::Pages(pages);
                return Executed::Now(Ok(Reply::Done));
            }
            if !asleep {
                match inline_read::<false>(
                    core,
                    channel,
                    machine,
                    task.address.slot,
                    unit,
                    (extent, range.len()),
                ) {
                    InlineRead::Inline => {
                        task.data_in = DataIn::Inline;
                        return Executed::Now(Ok(Reply::Done));
                    }
                    InlineRead::Zeros(length) => {
                        task.data_in = DataIn::Zeros(length);
                        return Executed::Now(Ok(Reply::Done));
                    }
                    InlineRead::Failed(error) => {
                        return Executed::Now(outcome(core, wanted.unit, unit, Err(error)));
                    }
                    InlineRead::WouldSleep => asleep = true,
                    InlineRead::NeedsBuffer => {}
                }
            }
            if task.reading == 0 {
                task.reading = range.len();
                self.holdings.reading += range.len();
            }
            let room = self.holdings.room(&core.memory);
            let mut taken = None;
            if self.holdings.claim(&core.memory, range.len()) {
                taken = core.memory.take(task.address, range.len(), room);
                if taken.is_none() {
                    self.note_held(channel);
                }
            }
            let taken = taken.or_else(|| {
                self.holdings
                    .take_as_newcomer(&mut core.memory, range.len())
            });
            let Some(buffer) = taken else {
                core.stages.wait_again(task.followed);
                task.state = TaskState::Medium(wanted);
                let has_claim = self.holdings.has_claim(&core.memory, range.len());
                self.wait_for_memory(core, task.address, has_claim);
                return Executed::Waits;
            };
            self.holdings.filling -= std::mem::replace(&mut task.filling, buffer.capacity());
            self.holdings.filling += task.filling;
            self.note_held(channel);
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
                let buffer = task.lend(payload);
                assert!(
                    buffer.as_deref().map_or(0, <[u8]>::len) >= range.end,
                    "the buffer of a request holds its range"
                );
                let request = Request {
                    operation,
                    buffer,
                    start: range.start,
                    end: range.end,
                };
                let in_flight = InFlight {
                    owner: Owner::Task(task.address),
                    unit: wanted.unit,
                    counted: is_gated(task, wanted),
                };
                let platform = &mut *core.platform;
                match core
                    .requests
                    .start(&unit.volume, request, in_flight, platform)
                {
                    Started::Waits(request) => {
                        core.counters.storage_submitted += 1;
                        task.state = TaskState::Storage { request, payload };
                        return Executed::Waits;
                    }
                    Started::Ended(_, ended) => {
                        task.take_back(payload, ended.buffer);
                        ended.result
                    }
                }
            }
        };
        Executed::Now(outcome(core, wanted.unit, unit, result))
    }

    /// A storage request of a task ended. The task goes on with that event.
    pub(crate) fn storage_done(
        &mut self,
        core: &mut Core,
        address: TaskAddress,
        in_flight: &InFlight,
        ended: Ended,
    ) -> (Task<W>, CommandEvent) {
        let Some(mut task) = self.take_exact(address) else {
            unreachable!("a task that ends makes orphans of its requests");
        };
        core.note_stage(task.followed, Stage::Done);
        let TaskState::Storage { payload, .. } = task.state else {
            unreachable!("a task in storage waits for its request");
        };
        task.take_back(payload, ended.buffer);
        let unit = core.unit(in_flight.unit);
        let result = outcome(core, in_flight.unit, unit, ended.result);
        (task, CommandEvent::Media(result))
    }
}

impl<W> Task<W> {
    /// Keeps the writes of others from the medium of a unit until the task ends. [`Passage::Wait`]: the task
    /// is to wait for those under way.
    ///
    /// A unit has one gate, so all of the medium is kept, whatever the range.
    pub(crate) fn lock_range(&mut self, core: &mut Core, unit: usize) -> Passage {
        if self.followed.is() {
            let now = core.clock();
            let stages = &mut core.stages;
            stages.queue(self.followed, unit, Direction::Other, 0, now);
        }
        self.try_lock(core, unit)
    }

    /// Has the task wait if its volume has done as much as it may.
    #[cold]
    fn is_delayed(&mut self, core: &mut Core, wanted: MediaRequest) -> bool {
        self.waits_for_limits(core, wanted, None)
    }

    /// The same for a task that may have waited under other limits, and would have for so long still.
    #[cold]
    fn waits_for_limits(
        &mut self,
        core: &mut Core,
        wanted: MediaRequest,
        left: Option<Duration>,
    ) -> bool {
        let way = if matches!(wanted.operation, Operation::Read { .. }) {
            Way::Read
        } else if wanted.operation.writes() {
            Way::Write
        } else {
            return false;
        };
        let now = core.clock();
        let bytes = wanted.payload.range().len() as u64;
        let unit = core.unit(wanted.unit);
        let throttle = &unit.throttle;
        // Before the limits: those of a later version than that are no harm.
        let version = throttle.version();
        if unit.is_removed.load(Ordering::Relaxed) {
            // Its commands have little time to end.
            left.into_iter().for_each(|left| throttle.waits_less(left));
            return false;
        }
        let delay = match left {
            Some(left) => throttle.delay_again(way, bytes, now, left),
            None => throttle.delay(way, bytes, now),
        };
        // Others wait for what keeps the medium to itself.
        if delay.is_zero() || holds_gate(self, wanted) {
            return false;
        }
        self.state = TaskState::Delayed(wanted);
        core.delayed.add(Delay {
            task: self.address,
            unit: wanted.unit,
            version,
            until: now + delay,
        });
        true
    }

    fn try_lock(&mut self, core: &mut Core, unit: usize) -> Passage {
        self.exclusive = true;
        let passage = core.unit(unit).gate.enter_exclusive(self.address);
        match passage {
            Passage::Open => core.note_stage(self.followed, Stage::Done),
            Passage::Wait => self.state = TaskState::Lock { unit },
        }
        passage
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
        Operation::CompareAndWrite { .. }
        | Operation::Flush
        | Operation::Unmap { .. }
        | Operation::WriteZeroes { .. }
        | Operation::Anchor { .. }
        | Operation::ExtentStatus { .. }
        | Operation::Prefetch { .. } => Attempt::WouldSleep,
    }
}

/// Whether an operation has to pass the write gate, and is counted there.
fn is_gated<W>(task: &Task<W>, wanted: MediaRequest) -> bool {
    wanted.operation.writes() && !holds_gate(task, wanted)
}

/// Whether the task has the medium to itself.
fn holds_gate<W>(task: &Task<W>, wanted: MediaRequest) -> bool {
    task.exclusive && task.unit == Some(wanted.unit)
}
