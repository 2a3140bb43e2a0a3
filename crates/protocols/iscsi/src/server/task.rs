//! The tasks of a connection: a slab of slots and an index by initiator task tag.
//!
//! A slot is free, or live from the command's reception to its response. The window and the limit of
//! immediate commands bound the live tasks; memory is taken for as many as there have been at a time,
//! so that an idle session costs little and a busy one allocates nothing.
//!
//! Most commands end before the next one arrives. So the task that came last is beside the index, and goes
//! into it when another one comes.

use super::command::{DataOutFailure, TaskId, TaskInfo};
use crate::pdu::{CmdSn, DataSn, InitiatorTaskTag, Lun, R2tSn, TargetTransferTag};
use longshore_wire::transmit::OpenPdu;

/// One SCSI command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) initiator_task_tag: InitiatorTaskTag,
    pub(super) lun: Lun,
    pub(super) cmd_sn: CmdSn,
    /// EDTL; 0 for a command with neither R nor W.
    pub(super) expected_data_transfer_length: u32,
    pub(super) live: bool,
    pub(super) immediate: bool,
    pub(super) read: bool,
    pub(super) write: bool,
    /// DataSN of the next Data-In PDU.
    pub(super) data_sn: DataSn,
    /// State of the write data; stale for commands without.
    pub(super) data_out: DataOutState,
}

/// A read that the driver fills into the transmit queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineRead {
    pub(super) task: TaskId,
    pub(super) pdu: OpenPdu,
    pub(super) residual: Residual,
}

/// Difference between what the initiator expected and what the command moves (§11.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Residual {
    pub(super) overflow: bool,
    pub(super) underflow: bool,
    pub(super) count: u32,
}

impl Residual {
    /// `expected` is EDTL, `presented` what the SCSI layer had or wanted (SPDTL).
    pub(super) fn new(expected: u32, presented: u64) -> Self {
        let expected = u64::from(expected);
        Self {
            overflow: presented > expected,
            underflow: presented < expected,
            count: u32::try_from(presented.abs_diff(expected)).unwrap_or(u32::MAX),
        }
    }
}

/// How far the write data of a task is.
#[derive(Debug)]
pub(super) struct DataOutState {
    /// Bytes the driver takes, once it has said so; not beyond EDTL.
    pub(super) wanted: Option<u32>,
    /// Bytes of those that have arrived. Sequences do not overlap, so a count is enough.
    pub(super) received: u32,
    /// Unsolicited Data-Out PDUs are expected.
    pub(super) unsolicited_open: bool,
    /// Where the next unsolicited byte belongs.
    pub(super) unsolicited_offset: u32,
    /// Where unsolicited data ends at the latest.
    pub(super) unsolicited_end: u32,
    pub(super) unsolicited_data_sn: DataSn,
    /// Where the next R2T starts.
    pub(super) solicit_offset: u32,
    pub(super) r2t_sn: R2tSn,
    /// R2Ts sent and not fulfilled, oldest first. Keeps its memory from task to task.
    pub(super) outstanding: Vec<OutstandingR2t>,
    /// Why the data is unusable. Then no R2Ts are sent, and the rest of it is discarded.
    pub(super) failure: Option<DataOutFailure>,
    /// The driver has been told how it ended.
    pub(super) reported: bool,
}

/// An R2T and how far its burst is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutstandingR2t {
    pub(super) target_transfer_tag: TargetTransferTag,
    pub(super) buffer_offset: u32,
    pub(super) length: u32,
    pub(super) received: u32,
    pub(super) data_sn: DataSn,
}

impl DataOutState {
    const fn new() -> Self {
        Self {
            wanted: None,
            received: 0,
            unsolicited_open: false,
            unsolicited_offset: 0,
            unsolicited_end: 0,
            unsolicited_data_sn: DataSn(0),
            solicit_offset: 0,
            r2t_sn: R2tSn(0),
            outstanding: Vec::new(),
            failure: None,
            reported: false,
        }
    }

    /// Starts over for a command with `immediate` bytes of data and, unless `is_final`, more
    /// unsolicited data up to `unsolicited_end`.
    pub(super) fn start(&mut self, immediate: u32, is_final: bool, unsolicited_end: u32) {
        let outstanding = std::mem::take(&mut self.outstanding);
        let end = if is_final { immediate } else { unsolicited_end };
        *self = Self {
            unsolicited_open: !is_final,
            unsolicited_offset: immediate,
            unsolicited_end: end,
            solicit_offset: end,
            outstanding,
            ..Self::new()
        };
        self.outstanding.clear();
    }

    /// Bytes beyond this offset are not wanted.
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        match (self.failure, self.wanted) {
            (Some(_), _) => 0,
            (None, Some(wanted)) => wanted,
            (None, None) => u32::MAX,
        }
    }

    /// Whether the initiator still owes data that was announced or asked for.
    #[inline]
    pub(super) fn owed(&self) -> bool {
        self.unsolicited_open || !self.outstanding.is_empty()
    }
}

impl Task {
    const fn free() -> Self {
        Self {
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            lun: Lun::ZERO,
            cmd_sn: CmdSn(0),
            expected_data_transfer_length: 0,
            live: false,
            immediate: false,
            read: false,
            write: false,
            data_sn: DataSn(0),
            data_out: DataOutState::new(),
        }
    }

    pub(super) const fn info(&self) -> TaskInfo {
        TaskInfo {
            lun: self.lun,
            initiator_task_tag: self.initiator_task_tag,
            cmd_sn: self.cmd_sn,
            immediate: self.immediate,
            expected_data_transfer_length: self.expected_data_transfer_length,
        }
    }
}

/// Write commands that ended while the initiator may still be sending their data.
const ENDED_REMEMBERED: usize = 64;

/// The tasks of a connection. See the module documentation.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: Vec<Task>,
    /// Free ones of `slots`; the one freed last is used first, as it is in the cache.
    free: Vec<TaskId>,
    capacity: u32,
    index: TagIndex,
    /// The task that came last, as long as it lives and is not in the index; its tag, or the reserved one.
    latest: Entry,
    immediate_live: usize,
    immediate_max: usize,
    /// A ring of the last write commands that ended with data owed.
    ended: [InitiatorTaskTag; ENDED_REMEMBERED],
    ended_next: usize,
}

/// There is no slot for another immediate command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyImmediate;

impl Tasks {
    /// Room for `ordered` commands inside the window and `immediate` ones beside it.
    pub(super) fn new(ordered: u32, immediate: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            capacity: ordered.saturating_add(immediate),
            index: TagIndex::new(),
            latest: EMPTY,
            immediate_live: 0,
            immediate_max: immediate as usize,
            ended: [InitiatorTaskTag::RESERVED; ENDED_REMEMBERED],
            ended_next: 0,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The live task with this tag.
    #[inline]
    pub(super) fn find(&self, tag: InitiatorTaskTag) -> Option<TaskId> {
        if tag.is_reserved() {
            return None;
        }
        if self.latest.tag == tag {
            return Some(TaskId(self.latest.slot));
        }
        self.index.find(tag)
    }

    /// Takes a slot for a command whose tag is not in use. The window bounds the ordered ones.
    #[inline]
    pub(super) fn insert(
        &mut self,
        tag: InitiatorTaskTag,
        immediate: bool,
    ) -> Result<TaskId, TooManyImmediate> {
        if immediate {
            if self.immediate_live == self.immediate_max {
                return Err(TooManyImmediate);
            }
            self.immediate_live += 1;
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None => self.add_slot(),
        };
        let task = &mut self.slots[id.index()];
        debug_assert!(!task.live, "no task lives in a free slot");
        task.initiator_task_tag = tag;
        task.immediate = immediate;
        task.live = true;
        task.data_sn = DataSn(0);
        if !self.latest.tag.is_reserved() {
            self.index.insert(self.latest.tag, TaskId(self.latest.slot));
        }
        self.latest = Entry { tag, slot: id.0 };
        Ok(id)
    }

    #[cold]
    fn add_slot(&mut self) -> TaskId {
        let slot = u32::try_from(self.slots.len()).expect("bounded by the capacity");
        assert!(
            slot < self.capacity,
            "the window and the immediate limit bound the tasks"
        );
        self.slots.push(Task::free());
        TaskId(slot)
    }

    /// Frees the slot of a live task. Returns whether the task had a place in the window.
    ///
    /// # Panics
    /// When the task is not live: the driver ends each task once.
    #[inline]
    pub(super) fn remove(&mut self, id: TaskId) -> bool {
        let task = &mut self.slots[id.index()];
        assert!(task.live, "{id:?} ended twice");
        task.live = false;
        let tag = task.initiator_task_tag;
        let immediate = task.immediate;
        if task.write && task.data_out.owed() {
            self.ended[self.ended_next % ENDED_REMEMBERED] = tag;
            self.ended_next = self.ended_next.wrapping_add(1);
        }
        if immediate {
            self.immediate_live -= 1;
        }
        if self.latest.tag == tag {
            self.latest = EMPTY;
        } else {
            self.index.remove(tag);
        }
        self.free.push(id);
        !immediate
    }

    /// Whether a write command with this tag ended lately with data owed.
    pub(super) fn ended_lately(&self, tag: InitiatorTaskTag) -> bool {
        !tag.is_reserved() && self.ended.contains(&tag)
    }

    /// The slot of a live task.
    ///
    /// # Panics
    /// When the task is not live.
    #[inline]
    pub(super) fn get(&self, id: TaskId) -> &Task {
        let task = &self.slots[id.index()];
        assert!(task.live, "{id:?} is not live");
        task
    }

    /// The slot of a live task.
    ///
    /// # Panics
    /// When the task is not live.
    #[inline]
    pub(super) fn get_mut(&mut self, id: TaskId) -> &mut Task {
        let task = &mut self.slots[id.index()];
        assert!(task.live, "{id:?} is not live");
        task
    }

    /// The live tasks, by slot.
    pub(super) fn live(&self) -> impl Iterator<Item = TaskId> + '_ {
        (0_u32..)
            .zip(&self.slots)
            .filter(|(_, task)| task.live)
            .map(|(slot, _)| TaskId(slot))
    }
}

/// Tags to slots: open addressing with linear probing in a table at most half full, which grows.
///
/// A hostile initiator can make tags collide; that costs it, per command, a walk over at most as
/// many entries as its window has places.
#[derive(Debug)]
struct TagIndex {
    entries: Vec<Entry>,
    used: usize,
    mask: usize,
    shift: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: InitiatorTaskTag,
    slot: u32,
}

/// Never a key: the reserved tag names no task.
const EMPTY: Entry = Entry {
    tag: InitiatorTaskTag::RESERVED,
    slot: 0,
};

impl TagIndex {
    fn new() -> Self {
        Self::with_length(16)
    }

    /// `length` is a power of two.
    fn with_length(length: usize) -> Self {
        Self {
            entries: vec![EMPTY; length],
            used: 0,
            mask: length - 1,
            shift: 64 - length.trailing_zeros(),
        }
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_length(self.entries.len() * 2);
        for entry in self.entries.iter().filter(|entry| !entry.tag.is_reserved()) {
            larger.insert(entry.tag, TaskId(entry.slot));
        }
        *self = larger;
    }

    /// Where a tag would be if nothing else were there. Initiators count tags up in either byte
    /// order; multiplying by 2^64 over the golden ratio spreads both over the upper bits.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // After the shift the value is below `entries.len()`.
    fn home(&self, tag: InitiatorTaskTag) -> usize {
        (u64::from(tag.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline]
    fn position(&self, tag: InitiatorTaskTag) -> Option<usize> {
        let mut at = self.home(tag);
        loop {
            let entry = self.entries[at & self.mask];
            if entry.tag == tag {
                return Some(at & self.mask);
            }
            if entry.tag.is_reserved() {
                return None;
            }
            at += 1;
        }
    }

    #[inline]
    fn find(&self, tag: InitiatorTaskTag) -> Option<TaskId> {
        self.position(tag).map(|at| TaskId(self.entries[at].slot))
    }

    #[inline]
    fn insert(&mut self, tag: InitiatorTaskTag, id: TaskId) {
        debug_assert!(!tag.is_reserved(), "a task has a tag");
        if self.used * 2 >= self.entries.len() {
            self.grow();
        }
        self.used += 1;
        let mut at = self.home(tag);
        while !self.entries[at & self.mask].tag.is_reserved() {
            debug_assert_ne!(
                self.entries[at & self.mask].tag,
                tag,
                "one task has the tag"
            );
            at += 1;
        }
        self.entries[at & self.mask] = Entry { tag, slot: id.0 };
    }

    /// Closes the hole by moving back the entries behind it that may move (Knuth 6.4, algorithm R).
    #[inline]
    fn remove(&mut self, tag: InitiatorTaskTag) {
        let mut hole = self.position(tag).expect("a live task is in the index");
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let entry = self.entries[at];
            if entry.tag.is_reserved() {
                break;
            }
            let from_home = at.wrapping_sub(self.home(entry.tag)) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn the_slot_freed_last_is_used_first() {
        let mut tasks = Tasks::new(4, 0);
        let first = tasks.insert(InitiatorTaskTag(1), false).unwrap();
        let second = tasks.insert(InitiatorTaskTag(2), false).unwrap();
        assert_eq!((first, second), (TaskId(0), TaskId(1)));
        assert!(tasks.remove(first));
        assert_eq!(tasks.insert(InitiatorTaskTag(3), false), Ok(first));
        assert_eq!(tasks.live().collect::<Vec<_>>(), [first, second]);
    }

    #[test]
    fn immediate_commands_have_a_limit_of_their_own() {
        let mut tasks = Tasks::new(1, 1);
        tasks.insert(InitiatorTaskTag(1), true).unwrap();
        assert_eq!(
            tasks.insert(InitiatorTaskTag(2), true),
            Err(TooManyImmediate)
        );
        tasks.insert(InitiatorTaskTag(2), false).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Few distinct tags, in both byte orders, so that probes run into each other.
        #[test]
        fn the_index_agrees_with_a_map(steps in prop::collection::vec((0_u32..40, any::<bool>()), 1..300)) {
            let mut tasks = Tasks::new(64, 0);
            let mut model: HashMap<InitiatorTaskTag, TaskId> = HashMap::new();
            for (number, swapped) in steps {
                let tag = InitiatorTaskTag(if swapped { number.swap_bytes() } else { number });
                match model.remove(&tag) {
                    Some(id) => prop_assert!(tasks.remove(id)),
                    None => {
                        model.insert(tag, tasks.insert(tag, false).unwrap());
                    }
                }
                for number in 0..40_u32 {
                    for tag in [InitiatorTaskTag(number), InitiatorTaskTag(number.swap_bytes())] {
                        prop_assert_eq!(tasks.find(tag), model.get(&tag).copied());
                    }
                }
            }
        }
    }
}
