//! The way from a command's operation on the medium to a volume, and back.
//!
//! An operation passes the write gate if it writes, is tried without sleeping, and becomes a storage
//! request if that is not enough. Reads for the peer have shorter ways: no memory at all for known
//! zeros, and the place behind its header in the transmit queue for what is small.

use std::ops::Range;
use std::sync::Arc;

use longshore_block::media::{CommandEvent, MediaOperation, MediaOutcome, Place};
use longshore_volume::{Attempt, Ended, Operation, Outcome, Request, Started};

use super::conversion::{outcome, volume_operation};
use super::inline_reads::InlineReads;
use super::plain::Plain;
use super::reads::{Answer, InlineRead, inline_read, take_pages};
use super::task::{DataIn, Executed, MediaRequest, Task, TaskState};
use super::tasks::Tasks;
use crate::address::TaskAddress;
use crate::core::Core;
use crate::core::request::{BufferHome, InFlight, Owner};
use crate::counters::stages::{Direction, Stage};
use crate::exports::Unit;
use crate::gate::Passage;
use crate::transport::channel::Channel;

/// A command that wants something done on a medium.
pub(crate) enum Command<'a, 'u, W> {
    /// One that needs no task, unless it has to wait.
    Plain(&'a mut Plain<'u>),
    /// A task.
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
            TaskState::Memory { .. } => return Retried::Memory(task),
            _ => {
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
        let unit = core.shared.unit(wanted.unit);
        unit.statistics
            .count(core.shard, wanted.operation, wanted.place);
        if !task.followed.is() {
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
        let (direction, bytes) = match (wanted.operation, wanted.place) {
            (MediaOperation::Read { .. }, Place::DataIn { length }) => (Direction::Read, length),
            (MediaOperation::Write { .. }, Place::DataOut { length, .. }) => {
                (Direction::Write, length)
            }
            _ => (Direction::Other, 0),
        };
        let now = core.clock();
        let stages = &mut core.stages;
        stages.queue(task.followed, wanted.unit, direction, bytes as u64, now);
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
        let shared = Arc::clone(&core.shared);
        let unit = shared.unit(wanted.unit);
        if let MediaOperation::LockRange { .. } = wanted.operation {
            task.exclusive = true;
            return match unit.gate.enter_exclusive(task.address) {
                Passage::Open => Executed::Now(Ok(MediaOutcome::Done)),
                Passage::Wait => {
                    task.state = TaskState::Medium(wanted);
                    Executed::Waits
                }
            };
        }
        if !is_gated(task, wanted) {
            return self.ungated(core, channel, machine, task, unit, wanted);
        }
        let passage = unit
            .gate
            .enter(core.shard, task.address, |waiting| shared.retry(waiting));
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
        let operation = volume_operation(wanted.operation, unit.block_shift);
        let (home, range) = match (wanted.operation, wanted.place) {
            (MediaOperation::Read { .. }, Place::DataIn { length }) => {
                (BufferHome::DataIn, 0..length)
            }
            (_, Place::DataOut { start, length }) => (BufferHome::DataOut, start..start + length),
            (_, Place::Scratch { start, length }) => (BufferHome::Scratch, start..start + length),
            (_, Place::None | Place::DataIn { .. }) => (BufferHome::None, 0..0),
        };
        let mut asleep = std::mem::take(&mut task.sleeps) || core.is_handed_over(unit, range.len());
        if home == BufferHome::DataIn {
            let Operation::Read { offset } = operation else {
                unreachable!("only reads have data for the peer");
            };
            let place = (offset, range.len());
            if let Some(pages) = take_pages(core, channel, machine, unit, offset, range.len()) {
                task.data_in = DataIn::Pages(pages);
                return Executed::Now(Ok(MediaOutcome::Done));
            }
            if !asleep {
                match inline_read(
                    core,
                    channel,
                    machine,
                    (task.address.slot, Answer::Later),
                    unit,
                    place,
                ) {
                    InlineRead::Inline => {
                        task.data_in = DataIn::Inline;
                        return Executed::Now(Ok(MediaOutcome::Done));
                    }
                    InlineRead::Zeros(length) => {
                        task.data_in = DataIn::Zeros(length);
                        return Executed::Now(Ok(MediaOutcome::Done));
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
            attempt(unit, operation, task, home, &range)
        };
        let result = match attempt {
            Attempt::Done(result) => {
                core.counters.attempt_done(unit.attempt_cost, range.len());
                result.map(|()| Outcome::Done)
            }
            Attempt::WouldSleep => {
                let request = Request {
                    operation,
                    buffer: task.lend(home),
                    start: range.start,
                    end: range.end,
                };
                let in_flight = InFlight {
                    owner: Owner::Task(task.address),
                    unit: wanted.unit,
                    home,
                    counted: is_gated(task, wanted),
                };
                let platform = &mut *core.platform;
                match core
                    .requests
                    .start(&unit.volume, request, in_flight, platform)
                {
                    Started::Waits(request) => {
                        core.counters.storage_submitted += 1;
                        task.state = TaskState::Storage { request };
                        return Executed::Waits;
                    }
                    Started::Ended(_, ended) => {
                        task.take_back(home, ended.buffer);
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
        task.take_back(in_flight.home, ended.buffer);
        let unit = core.shared.unit(in_flight.unit);
        let result = outcome(core, in_flight.unit, unit, ended.result);
        (task, CommandEvent::Media(result))
    }
}

/// Tries to read or write without sleeping.
fn attempt<W>(
    unit: &Unit,
    operation: Operation,
    task: &mut Task<W>,
    home: BufferHome,
    range: &Range<usize>,
) -> Attempt {
    let Some(buffer) = task.buffer(home) else {
        return Attempt::WouldSleep;
    };
    let bytes = &mut buffer[range.clone()];
    match operation {
        Operation::Read { offset } => unit.volume.try_read(offset, bytes),
        Operation::Write { offset, durability } => unit.volume.try_write(offset, bytes, durability),
        _ => Attempt::WouldSleep,
    }
}

/// Whether an operation has to pass the write gate, and is counted there. A flush changes nothing that others see.
fn is_gated<W>(task: &Task<W>, wanted: MediaRequest) -> bool {
    let holds_gate = task.exclusive && task.unit == Some(wanted.unit);
    let writes = wanted.operation.writes() && !matches!(wanted.operation, MediaOperation::Flush);
    writes && !holds_gate
}
