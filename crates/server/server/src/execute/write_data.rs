//! Memory for write data: promised when a command arrives, taken when its data come.
//!
//! A peer is asked for the data of all its commands at once, so that whatever the bandwidth and the delay of
//! its network, it always has something to send. It sends the data of one command after the other. If
//! each command had its memory from the start, 128 writes of 1 MiB would go round in 128 MiB, and
//! every byte would come from and go to main memory twice. So a command is only promised its memory; it
//! takes the buffer with its first byte, and that is the one given back last, still in the cache.
//!
//! ```text
//!  promised ──┬── early data, many wait ──► a buffer for those ──┐ copied
//!             │                                                  ▼
//!             └── any other data ──────────────────────► the whole buffer
//! ```
//!
//! iSCSI initiators send the first part of each command unasked (FirstBurstLength). With many commands
//! waiting it lies in a buffer of its own until the rest comes, for the same reason.
//!
//! What is promised counts as used, by the budget of all memory and by the part of a connection, and can be
//! taken whatever others hold. Only where the system has less memory than the budget says (RLIMIT_AS) can there be none
//! when data come. They are thrown away then, and the command is refused like one that found none at first.

use longshore_reactor::Buffer;

use super::task::{Promised, Task, TaskState};
use super::tasks::Tasks;
use crate::core::Core;
use crate::counters::clients::Limit;
use crate::transport::channel::Channel;

/// One connection holds at most this part of all memory for write data, beyond its first command.
const WRITING_PART: usize = 2;
/// Less is taken at once: whole queues of it stay in the cache.
const PROMISED_BYTES_MIN: usize = 32 << 10;
/// While a connection's commands have no more than this for write data, early data go to where they belong.
const APART_BYTES: usize = 2 << 20;
/// Beyond this part of all memory, early data go there too: lying apart costs memory that other commands want.
const APART_PART: usize = 4;

impl<W> Tasks<W> {
    /// Has memory ready for the write data of a task, `early` bytes of which come without being asked for.
    /// `false`: there is none now.
    pub(crate) fn take_data_out(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: &mut Task<W>,
        wanted: usize,
        early: usize,
    ) -> bool {
        if !self.has_part(core, wanted) || !self.holdings.claim(&core.memory, wanted) {
            return false;
        }
        self.begin_giving(channel, core.now_ms);
        let promised = if wanted < PROMISED_BYTES_MIN {
            None
        } else {
            core.memory.pool.reserve(wanted)
        };
        if let Some(whole) = promised {
            core.memory.found_some();
            self.account(channel, task, whole.capacity());
            let apart = 0 < early && early <= wanted / 2;
            let early = if apart && self.has_room_apart(core, early) {
                core.memory.pool.reserve(early)
            } else {
                None
            };
            if let Some(early) = &early {
                self.account(channel, task, early.capacity());
            }
            task.promised = Some(Promised { whole, early });
            return true;
        }
        // Also when all memory is promised, kept or in use: a buffer that is kept serves as it is.
        match core.memory.pool.take(wanted) {
            Some(buffer) => {
                core.memory.found_some();
                self.hold_for_data_out(channel, task, buffer);
                true
            }
            None => {
                self.note_held(channel);
                core.memory.found_none();
                self.take_data_out_as_newcomer(core, channel, task, wanted)
            }
        }
    }

    /// As [`Self::take_data_out`], for a peer that holds next to nothing, although others wait for memory.
    #[cold]
    pub(crate) fn take_data_out_as_newcomer(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: &mut Task<W>,
        wanted: usize,
    ) -> bool {
        let Some(buffer) = self.holdings.take_as_newcomer(&mut core.memory, wanted) else {
            return false;
        };
        self.begin_giving(channel, core.now_ms);
        self.hold_for_data_out(channel, task, buffer);
        true
    }

    /// A task has that memory for its write data.
    pub(crate) fn hold_for_data_out(
        &mut self,
        channel: &Channel,
        task: &mut Task<W>,
        buffer: Buffer,
    ) {
        self.account(channel, task, buffer.capacity());
        task.data_out = Some(buffer);
    }

    /// As [`Self::take_data_out`], for a task that is refused if there is none. Reads that wait and connections that
    /// were refused come first.
    pub(crate) fn take_data_out_now(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: &mut Task<W>,
        wanted: usize,
        early: usize,
    ) -> bool {
        let slot = channel.address.slot;
        let had_none = self.holdings.writing == 0;
        let taken = if core
            .memory
            .admits_at_once(slot, wanted, self.holdings.room(&core.memory))
        {
            self.take_data_out(core, channel, task, wanted, early)
        } else {
            self.take_data_out_as_newcomer(core, channel, task, wanted)
        };
        if had_none {
            core.memory.note_refusal(slot, wanted, !taken);
        }
        taken
    }

    /// A task has so many more bytes for write data, until it ends.
    fn account(&mut self, channel: &Channel, task: &mut Task<W>, capacity: usize) {
        task.writing += capacity;
        self.holdings.writing += capacity;
        self.note_held(channel);
    }

    /// Whether so many early bytes lie apart: there is something to gain, and memory enough.
    fn has_room_apart(&self, core: &Core, early: usize) -> bool {
        let memory = usize::try_from(core.shared.limits.memory).unwrap_or(usize::MAX);
        let room = APART_BYTES + 1..=memory / APART_PART;
        room.contains(&self.holdings.writing)
            && room.contains(&(self.holdings.writing + early.next_power_of_two()))
    }

    /// Whether so many bytes of write data may come on this connection. One that announces much and sends none
    /// of it must not hold all the memory there is.
    pub(crate) fn has_part(&self, core: &Core, wanted: usize) -> bool {
        let memory = usize::try_from(core.shared.limits.memory).unwrap_or(usize::MAX);
        // Buffers come in powers of two.
        self.holdings.writing == 0
            || self.holdings.writing + wanted.next_power_of_two() <= memory / WRITING_PART
    }

    /// Puts write data where it belongs.
    pub(crate) fn place(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        slot: u32,
        buffer_offset: u32,
        bytes: &[u8],
    ) {
        if !self.is_receiving(slot) {
            // Nobody wants it: the command runs without, or waits for its turn to be refused.
            return;
        }
        channel.stall.given(bytes.len(), core.now_ms);
        let start = buffer_offset as usize;
        let Some(task) = self.get_mut(slot) else {
            return;
        };
        if let Some(place) = place(task, core, start, bytes.len()) {
            place.copy_from_slice(bytes);
            core.counters.copied_data_out_bytes += bytes.len() as u64;
        } else {
            assert!(
                task.lacks_memory,
                "the machine delivers only what was asked for"
            );
        }
    }

    /// Whether a task waits for its write data.
    pub(crate) fn is_receiving(&mut self, slot: u32) -> bool {
        let task = self.get_mut(slot);
        task.is_some_and(|task| matches!(task.state, TaskState::Receiving))
    }
}

/// The memory that `length` bytes of a task's write data belong in, from `start` on.
#[inline]
pub(crate) fn place<'t, W>(
    task: &'t mut Task<W>,
    core: &mut Core,
    start: usize,
    length: usize,
) -> Option<&'t mut [u8]> {
    if !matches!(task.state, TaskState::Receiving) {
        // What is left of its data is not wanted.
        return None;
    }
    let end = start.checked_add(length)?;
    if task.promised.is_some() {
        call_in(task, core, end);
    }
    task.data_out.as_deref_mut()?.get_mut(start..end)
}

/// Takes memory that was promised, now that data up to `end` come.
fn call_in<W>(task: &mut Task<W>, core: &mut Core, end: usize) {
    if task
        .data_out
        .as_ref()
        .is_some_and(|early| end <= early.len())
    {
        return;
    }
    let Some(Promised { whole, early }) = task.promised.take() else {
        return;
    };
    if let Some(early) = early
        && end <= early.length()
        && let Some(buffer) = core.memory.pool.take_reserved(early)
    {
        task.data_out = Some(buffer);
        task.promised = Some(Promised { whole, early: None });
        return;
    }
    let Some(mut whole) = core.memory.pool.take_reserved(whole) else {
        task.lacks_memory = true;
        core.memory.is_short = true;
        core.shared.clients.reached(Limit::Memory);
        core.memory.recycle(task.data_out.take());
        return;
    };
    if let Some(early) = task.data_out.take() {
        core.counters.copied_data_out_bytes += early.len() as u64;
        whole[..early.len()].copy_from_slice(&early);
        core.memory.pool.put(early);
    }
    task.data_out = Some(whole);
}
