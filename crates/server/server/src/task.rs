//! A task: one command of one connection, from its arrival to its end.
//!
//! ```text
//!  Command ──┬── write data wanted ──► Receiving ──┐ DataOutComplete
//!            │                                     ▼
//!            └───────────────────────────────────► step ──┬─► Complete
//!                 ▲               ▲     ▲     ▲           │
//!       Deferred ─┤               │     │     └───────────┼─► Storage    (a request is in flight)
//!       Ordering ─┘               │     └─────────────────┼─► Medium     (gate closed, no memory)
//!                                 └───────────────────────┴─► Elsewhere  (storing, aborting)
//! ```
//!
//! While it runs, a task is on the stack; while it waits, it is parked in its connection's [`Tasks`].
//! A parked task that is aborted ends at once, except that a request in `Storage` lives on by itself
//! until the medium has answered (see [`crate::request`]).

use longshore_block::command::DataLocation;
use longshore_block::operation::Operation;
use longshore_reactor::{Buffer, PagePipe};
use longshore_volume::RequestId;

use crate::core::Core;
use crate::message::{ConnectionAddress, TaskAddress};
use crate::observe::stages::Followed;
use crate::write_data::Promised;

/// What a parked task waits for.
#[derive(Debug)]
pub(crate) enum TaskState {
    /// Write data; its arrival is told by the connection machine.
    Receiving,
    /// Memory for so many bytes of write data, which the peer keeps until then; ended by a retry.
    Memory { wanted: u32 },
    /// The other half of a fused command.
    Half,
    /// Room to answer; ended by the connection when it has sent enough.
    Deferred,
    /// Its turn among ordered tasks; ended when an older task ends.
    Ordering,
    /// A request to a volume; ended with it.
    Storage { request: RequestId },
    /// Another try at the medium; ended by [`crate::message::Message::Retry`].
    Medium(MediaRequest),
    /// The medium of a unit to itself; ended by the same.
    Lock { unit: usize },
    /// Stored reservations or aborts on other shards; ended by a message.
    Elsewhere,
}

impl TaskState {
    /// Whether the connection may go to another shard meanwhile: nobody else works for the task, or knows
    /// its address but to let it try again, which the new shard does as well.
    pub(crate) const fn moves(&self) -> bool {
        match self {
            Self::Receiving
            | Self::Memory { .. }
            | Self::Half
            | Self::Deferred
            | Self::Ordering => true,
            Self::Storage { .. } | Self::Medium(_) | Self::Lock { .. } | Self::Elsewhere => false,
        }
    }
}

/// An operation that a command wants done on a medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MediaRequest {
    /// Index of the unit whose medium it is.
    pub unit: usize,
    pub operation: Operation,
    pub payload: DataLocation,
}

/// Where data for the peer is.
#[derive(Debug)]
pub(crate) enum DataIn {
    /// There is none yet.
    None,
    /// In the transmit queue already, behind its header.
    Inline,
    /// So many zero bytes.
    Zeros(u32),
    /// In a buffer, its whole length.
    Buffer(Buffer),
    /// In pages of the page cache, all that the pipe holds.
    Pages(PagePipe),
}

/// See the module documentation. `W` is what the task is to its protocol.
#[derive(Debug)]
pub(crate) struct Task<W> {
    pub address: TaskAddress,
    pub work: W,
    /// Index of the unit it was sent to; `None` when there is none.
    pub unit: Option<usize>,
    pub state: TaskState,
    /// Holds, or waits for, the write gate of its own unit.
    pub exclusive: bool,
    /// Its medium was tried already, and would have to sleep.
    pub sleeps: bool,
    /// Memory for the write data; its length is what is wanted.
    pub data_out: Option<Buffer>,
    /// Memory for the write data that is taken when they come.
    pub promised: Option<Promised>,
    pub scratch: Option<Buffer>,
    /// Parameter data of commands other than reads.
    pub parameter_data: Vec<u8>,
    pub data_in: DataIn,
    /// Its part of what its connection reads at this time.
    pub reading: usize,
    /// Its part of the memory that its connection reads into.
    pub filling: usize,
    /// There was no memory after all for its write data, which come: it fails when they have come.
    pub lacks_memory: bool,
    /// Its part of what its connection holds for write data, or has been promised.
    pub writing: usize,
    /// Whether it is noted when it gets how far.
    pub followed: Followed,
}

impl<W> Task<W> {
    /// A task without memory.
    #[inline(always)]
    pub(crate) fn new(address: TaskAddress, work: W, unit: Option<usize>) -> Self {
        Self {
            address,
            work,
            unit,
            state: TaskState::Receiving,
            exclusive: false,
            sleeps: false,
            data_out: None,
            promised: None,
            scratch: None,
            parameter_data: Vec::new(),
            data_in: DataIn::None,
            reading: 0,
            filling: 0,
            lacks_memory: false,
            writing: 0,
            followed: Followed::NOT,
        }
    }

    /// Gives back all its memory.
    #[inline]
    pub(crate) fn give_back_memory(&mut self, core: &mut Core) {
        self.promised = None;
        core.recycle(self.data_out.take());
        core.recycle(self.scratch.take());
        match std::mem::replace(&mut self.data_in, DataIn::None) {
            DataIn::Buffer(buffer) => core.pool.put(buffer),
            DataIn::Pages(pipe) => core.pipes.put(pipe),
            DataIn::None | DataIn::Inline | DataIn::Zeros(_) => {}
        }
    }

    /// The memory where a payload lies.
    pub(crate) fn buffer(&mut self, payload: DataLocation) -> Option<&mut Buffer> {
        match payload {
            DataLocation::None => None,
            DataLocation::DataOut { .. } => self.data_out.as_mut(),
            DataLocation::Scratch { .. } => self.scratch.as_mut(),
            DataLocation::DataIn { .. } => match &mut self.data_in {
                DataIn::Buffer(buffer) => Some(buffer),
                DataIn::None | DataIn::Inline | DataIn::Zeros(_) | DataIn::Pages(_) => None,
            },
        }
    }

    /// Lends that memory to a storage request.
    pub(crate) fn lend(&mut self, payload: DataLocation) -> Option<Buffer> {
        match payload {
            DataLocation::None => None,
            DataLocation::DataOut { .. } => self.data_out.take(),
            DataLocation::Scratch { .. } => self.scratch.take(),
            DataLocation::DataIn { .. } => match std::mem::replace(&mut self.data_in, DataIn::None)
            {
                DataIn::Buffer(buffer) => Some(buffer),
                DataIn::None | DataIn::Inline | DataIn::Zeros(_) | DataIn::Pages(_) => None,
            },
        }
    }

    /// Takes memory back that was lent.
    pub(crate) fn take_back(&mut self, payload: DataLocation, buffer: Option<Buffer>) {
        match (payload, buffer) {
            (DataLocation::DataOut { .. }, buffer) => self.data_out = buffer,
            (DataLocation::Scratch { .. }, buffer) => self.scratch = buffer,
            (DataLocation::DataIn { .. }, Some(buffer)) => self.data_in = DataIn::Buffer(buffer),
            (DataLocation::None, _) | (DataLocation::DataIn { .. }, None) => {}
        }
    }
}

/// A connection's tasks by the number the connection machine gave them, with a generation for each
/// number.
#[derive(Debug)]
pub(crate) struct Tasks<W> {
    slots: Vec<Slot<W>>,
    parked: usize,
    /// Generation of slots that are new: higher than those of slots given back.
    generation: u32,
}

#[derive(Debug)]
struct Slot<W> {
    generation: u32,
    task: Option<Task<W>>,
}

impl<W> Default for Tasks<W> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            parked: 0,
            generation: 0,
        }
    }
}

impl<W> Tasks<W> {
    /// No task is parked.
    pub(crate) fn is_empty(&self) -> bool {
        self.parked == 0
    }

    /// How many tasks are parked.
    pub(crate) fn len(&self) -> usize {
        self.parked
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<W>>()
    }

    /// Gives back the memory of busier times, if no task is parked. Who still knows the address of one that has ended
    /// does not find another by it.
    pub(crate) fn release_memory(&mut self) {
        if self.parked == 0 {
            let slots = std::mem::take(&mut self.slots);
            let generations = slots.iter().map(|slot| slot.generation);
            self.generation = generations.fold(self.generation, u32::max);
        }
    }

    /// The address of a new task with number `slot`.
    #[inline]
    pub(crate) fn begin(&mut self, connection: ConnectionAddress, slot: u32) -> TaskAddress {
        let index = slot as usize;
        if self.slots.len() <= index {
            let generation = self.generation;
            self.slots.resize_with(index + 1, || Slot {
                generation,
                task: None,
            });
        }
        let entry = &mut self.slots[index];
        debug_assert!(
            entry.task.is_none(),
            "numbers are reused only after their task ended"
        );
        entry.generation = entry.generation.wrapping_add(1);
        TaskAddress {
            connection,
            slot,
            generation: entry.generation,
        }
    }

    /// Keeps a task while it waits.
    #[inline]
    pub(crate) fn park(&mut self, task: Task<W>) {
        let entry = &mut self.slots[task.address.slot as usize];
        debug_assert!(entry.generation == task.address.generation && entry.task.is_none());
        entry.task = Some(task);
        self.parked += 1;
    }

    /// Whether that task is parked here.
    pub(crate) fn is_current(&self, address: TaskAddress) -> bool {
        let slot = self.slots.get(address.slot as usize);
        slot.is_some_and(|slot| slot.generation == address.generation && slot.task.is_some())
    }

    /// A parked task.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Task<W>> {
        self.slots.get_mut(slot as usize)?.task.as_mut()
    }

    /// Takes a parked task out.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32) -> Option<Task<W>> {
        let task = self.slots.get_mut(slot as usize)?.task.take();
        self.parked -= usize::from(task.is_some());
        task
    }

    /// Takes a parked task out if it is still the one meant.
    pub(crate) fn take_exact(&mut self, address: TaskAddress) -> Option<Task<W>> {
        let entry = self.slots.get(address.slot as usize)?;
        if entry.generation != address.generation {
            return None;
        }
        let task = self.take(address.slot);
        debug_assert!(
            task.as_ref().is_none_or(|task| task.address == address),
            "whoever knew it before its connection moved knows its new address"
        );
        task
    }

    /// The parked tasks.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task<W>> + '_ {
        self.slots.iter_mut().filter_map(|slot| slot.task.as_mut())
    }

    /// The parked tasks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task<W>> + '_ {
        self.slots.iter().filter_map(|slot| slot.task.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_not_found_by_the_address_of_one_before_memory_was_given_back() {
        let connection = ConnectionAddress {
            shard: 0,
            slot: 0,
            generation: 0,
        };
        let mut tasks = Tasks::default();
        let first = tasks.begin(connection, 7);
        tasks.park(Task::new(first, (), None));
        tasks.release_memory();
        assert!(tasks.is_current(first), "there is a task");
        tasks.take_exact(first).unwrap();
        tasks.release_memory();
        assert_eq!(tasks.memory(), 0);
        let second = tasks.begin(connection, 7);
        tasks.park(Task::new(second, (), None));
        assert_ne!(first, second);
        assert!(tasks.take_exact(first).is_none());
        assert!(tasks.take_exact(second).is_some());
    }
}
