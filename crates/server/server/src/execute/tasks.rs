//! The tasks of a connection, and their memory.

use std::collections::VecDeque;
use std::sync::Arc;

use super::task::{Task, TaskState};
use crate::address::{ConnectionAddress, TaskAddress};
use crate::core::Core;
use crate::core::request::{Orphan, Owner};
use crate::mail::abort::AbortOrder;
use crate::memory::holdings::Holdings;
use crate::sessions::activity::Activity;
use crate::transport::channel::Channel;

/// While so much waits to be sent, no more reads are started.
const BACKED_UP_BYTES: usize = 1 << 20;
/// While a connection reads this part of all memory, it starts no more reads.
const READING_PART: usize = 16;

/// A connection's tasks by the number the connection machine gave them, with a generation for each
/// number.
#[derive(Debug)]
pub(crate) struct Tasks<W> {
    /// Memory that they hold.
    pub holdings: Holdings,
    /// Those that wait for room to answer, oldest first.
    deferred: VecDeque<TaskAddress>,
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
            holdings: Holdings::default(),
            deferred: VecDeque::new(),
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

    /// Number of tasks that are parked.
    pub(crate) const fn len(&self) -> usize {
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
            "a number is used again only after its task has ended"
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
        assert!(
            entry.generation == task.address.generation && entry.task.is_none(),
            "a task is parked in the slot that it was given"
        );
        entry.task = Some(task);
        self.parked += 1;
    }

    /// Whether that task is parked here.
    pub(crate) fn is_current(&self, address: TaskAddress) -> bool {
        let slot = self.slots.get(address.slot as usize);
        slot.is_some_and(|slot| slot.generation == address.generation && slot.task.is_some())
    }

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

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Task<W>> + '_ {
        self.slots.iter_mut().filter_map(|slot| slot.task.as_mut())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task<W>> + '_ {
        self.slots.iter().filter_map(|slot| slot.task.as_ref())
    }
}

/// What tasks wait for, and what they hold while they do.
impl<W> Tasks<W> {
    /// So much waits to be sent, or is being read, that further reads had better wait.
    pub(crate) fn is_backed_up(&self, core: &mut Core, channel: &mut Channel) -> bool {
        !self.deferred.is_empty() || !self.has_room(core, channel)
    }

    /// Whether a read may start. Connections that take nothing of what they ask for must not hold
    /// all the memory there is.
    #[inline]
    fn has_room(&self, core: &mut Core, channel: &mut Channel) -> bool {
        let memory = usize::try_from(core.shared.limits.memory).unwrap_or(usize::MAX);
        channel.transmit.pending_bytes() < BACKED_UP_BYTES
            && channel.has_room_for_read(core)
            && self.holdings.reading < (memory / READING_PART).max(BACKED_UP_BYTES)
    }

    /// Gives back the table of tasks, if the machine has given back the transmit queue: it has been silent for long.
    pub(crate) fn release_idle_memory(&mut self, channel: &Channel) {
        if channel.transmit.memory() == 0 {
            self.release_memory();
        }
    }

    /// Keeps a task until there is room for its answer.
    pub(crate) fn defer(&mut self, mut task: Task<W>) {
        task.state = TaskState::Deferred;
        self.deferred.push_back(task.address);
        self.park(task);
    }

    /// The next of the tasks that waited for room, if there is some.
    #[inline]
    pub(crate) fn next_deferred(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
    ) -> Option<Task<W>> {
        if self.deferred.is_empty() {
            return None;
        }
        self.take_deferred(core, channel)
    }

    fn take_deferred(&mut self, core: &mut Core, channel: &mut Channel) -> Option<Task<W>> {
        while self.has_room(core, channel) {
            let address = self.deferred.pop_front()?;
            if let Some(task) = self.take_exact(address) {
                debug_assert!(matches!(task.state, TaskState::Deferred));
                return Some(task);
            }
        }
        None
    }

    /// A task in [`TaskState::Elsewhere`] for which a message came.
    pub(crate) fn take_elsewhere(&mut self, address: TaskAddress) -> Option<Task<W>> {
        let task = self.take_exact(address)?;
        debug_assert!(matches!(task.state, TaskState::Elsewhere));
        Some(task)
    }

    /// What a piece of write data that was received to where it belongs brought.
    pub(crate) fn placed(&mut self, slot: u32, start: usize, length: usize) -> &[u8] {
        let task = self.get_mut(slot);
        let task = task.expect("its memory was received into");
        let bytes = task.data_out.as_deref().unwrap_or_default();
        &bytes[start..start + length]
    }

    /// Whether all of them may go to another shard.
    pub(crate) fn are_at_rest(&self) -> bool {
        self.iter()
            .all(|task| task.state.moves() && !task.exclusive)
    }

    /// They leave their shard.
    pub(crate) fn depart(&mut self, core: &mut Core) {
        for task in self.iter_mut() {
            core.stages.drop(std::mem::take(&mut task.followed));
        }
    }

    /// They come to another shard.
    pub(crate) fn arrive(&mut self, core: &mut Core, address: ConnectionAddress) {
        for task in self.iter_mut() {
            task.address.connection = address;
            if let TaskState::Memory { .. } = task.state {
                // It stands in line anew.
                core.memory.line.wait(task.address, false);
            }
        }
        for task in &mut self.deferred {
            task.connection = address;
        }
    }

    /// Lets the storage request of a task that ends without an answer live on by itself, with what
    /// waits for its end.
    pub(crate) fn orphan(
        core: &mut Core,
        task: &mut Task<W>,
        orders: Vec<Arc<AbortOrder>>,
        activity: Option<&Arc<Activity>>,
    ) {
        let TaskState::Storage { request, .. } = task.state else {
            return;
        };
        let exclusive = std::mem::take(&mut task.exclusive);
        let in_flight = core.requests.owner_mut(request);
        let in_flight = in_flight.expect("the task waits for it");
        in_flight.owner = Owner::Orphan(Orphan {
            connection: task.address.connection,
            orders,
            activity: activity.cloned(),
            exclusive: task
                .unit
                .filter(|_| exclusive)
                .map(|unit| (unit, task.address)),
        });
        core.requests.hurry(request);
    }

    /// Payload memory that the connection holds, promises of it included.
    #[inline]
    pub(crate) fn held_bytes(&self, channel: &Channel) -> usize {
        self.holdings.held_bytes(channel.payloads.bytes())
    }

    /// Has the holder's share count what the connection holds.
    #[inline]
    pub(crate) fn note_held(&mut self, channel: &Channel) {
        self.holdings.note(channel.payloads.bytes());
    }

    #[cold]
    pub(crate) fn wait_for_memory(&self, core: &mut Core, task: TaskAddress, has_claim: bool) {
        let line = &mut core.memory.line;
        line.tidy(task.connection.slot, self.parked, |task| {
            self.is_current(task)
        });
        line.wait(task, has_claim);
    }

    /// Write data are about to be asked for. If none were to come, what was written before has waited for storage.
    pub(crate) fn begin_giving(&self, channel: &mut Channel, now_ms: u64) {
        if channel.stall.gave_long_ago(now_ms) {
            channel.stall.looked_for_excuse(now_ms);
            if !self.awaits_data() {
                channel.stall.all_given(now_ms);
            }
        }
    }

    /// Whether write data are to come.
    pub(crate) fn awaits_data(&self) -> bool {
        let mut tasks = self.iter();
        tasks.any(|task| matches!(task.state, TaskState::Receiving))
    }

    /// Memory for write data that are to come.
    pub(crate) fn awaited_bytes(&self) -> usize {
        let tasks = self.iter();
        let awaited = tasks.filter(|task| matches!(task.state, TaskState::Receiving));
        awaited.map(|task| task.writing).sum()
    }

    /// A task has ended: its memory is free, and others may run.
    #[inline]
    pub(crate) fn let_go(&mut self, core: &mut Core, channel: &mut Channel, mut task: Task<W>) {
        if task.followed.is() {
            channel.follow_response(core, task.followed);
        }
        release_gate(core, &mut task);
        self.holdings.reading -= task.reading;
        self.holdings.writing -= task.writing;
        self.holdings.filling -= task.filling;
        task.give_back_memory(core);
        self.note_held(channel);
    }
}

/// The task no longer keeps others from writing.
fn release_gate<W>(core: &Core, task: &mut Task<W>) {
    if std::mem::take(&mut task.exclusive)
        && let Some(unit) = task.unit
    {
        core.leave_exclusive(unit, task.address);
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
