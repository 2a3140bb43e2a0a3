//! The operations under way.

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_reactor::Buffer;
use rustix::io::Errno;

use crate::error::{Failure, Lost};
use crate::operation::{Completion, Data, Operation, Reply};

/// An operation without an end, of a connection that was given up.
#[derive(Debug)]
pub struct Unfinished {
    /// As it was submitted with.
    pub tag: u64,
    /// What was asked for.
    pub operation: Operation,
    /// Its memory. What a read has brought so far is undefined.
    pub data: Data,
    /// The peer may have seen the command, and have done what it asks for.
    pub was_sent: bool,
    /// The peer's answer, if it had come, and only the kernel had not let go of the memory.
    pub answer: Option<Result<crate::operation::Reply, Failure>>,
}

/// Where an operation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// Waits for the peer.
    UnderWay,
    /// Waits for the kernel to let go of its memory, or, where memory is short, for the end of the
    /// connection; the answer is in [`Table::answers`].
    Answered,
    /// It has ended for its caller. What is left of its data is being sent from a copy.
    Lingering,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) tag: u64,
    pub(super) operation: Operation,
    pub(super) data: Data,
    /// Its data is sent by reference.
    pub(super) by_reference: bool,
    /// Where its command begins, in bytes from the beginning of the connection's stream.
    pub(super) position: u64,
    /// Bytes of its data.
    pub(super) length: usize,
    /// Bytes of it that have come.
    pub(super) received: usize,
    /// References to its data in the transmit queue.
    pub(super) queued: usize,
    /// Sends whose pages the kernel holds.
    pub(super) pinned: usize,
    /// A read of so much that it is worth a call of its own, see [`Table::reads_are_large`].
    is_large_read: bool,
}

/// Two and a half cache lines: a hundred of them stay in the fastest cache, beside the data.
const _: () = assert!(size_of::<Entry>() <= 160);

/// A read of so many bytes is worth receive calls of its own: to copy it once more costs more than those.
const LARGE_READ: usize = 32 << 10;

const UNUSED: Extent = Extent {
    lba: Lba(0),
    blocks: BlockCount(0),
};

impl Entry {
    const FREE: Self = Self {
        state: State::Free,
        tag: 0,
        operation: Operation::Read { extent: UNUSED },
        data: Data::None,
        by_reference: false,
        position: 0,
        length: 0,
        received: 0,
        queued: 0,
        pinned: 0,
        is_large_read: false,
    };
}

/// No entry has this number.
const NONE: u32 = u32::MAX;

/// All operations of a queue. Their number is bounded, and their places are used again.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The entry of each slot of the machine.
    by_slot: Vec<u32>,
    /// Sends whose pages the kernel holds, of all entries.
    pinned: usize,
    /// Entries that are lingering.
    lingering: usize,
    /// The answers of entries that have theirs. They are few, and rare: not in the entries, which are to be small.
    answers: Vec<(u32, Result<Reply, Failure>)>,
    /// Entries that are under way and large reads.
    large_reads: usize,
    /// Memory for copies of data; `None` where the system has none.
    pub(super) allocate: fn(usize) -> Option<Buffer>,
    is_short: bool,
}

impl Table {
    pub(super) fn new(slots: usize) -> Self {
        let count = u32::try_from(slots).expect("slots have 16 bits");
        Self {
            entries: std::iter::repeat_with(|| Entry::FREE).take(slots).collect(),
            free: (0..count).rev().collect(),
            by_slot: vec![NONE; slots],
            pinned: 0,
            lingering: 0,
            answers: Vec::new(),
            large_reads: 0,
            allocate: Buffer::try_allocate,
            is_short: false,
        }
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Operations whose callers wait for them.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.entries.len() - self.free.len() - self.lingering
    }

    #[inline]
    pub(super) const fn pinned(&self) -> usize {
        self.pinned
    }

    /// Entries that wait for the kernel only.
    #[inline]
    pub(super) const fn answered(&self) -> usize {
        self.answers.len()
    }

    /// The number of the next operation.
    #[inline]
    pub(super) fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Takes the place that [`Self::next`] has named, for an operation with so many bytes of data.
    #[inline]
    pub(super) fn occupy(
        &mut self,
        number: u32,
        slot: u16,
        operation: Operation,
        data: Data,
        length: usize,
    ) -> &mut Entry {
        let taken = self.free.pop();
        assert_eq!(taken, Some(number), "an operation takes the free place");
        let before = std::mem::replace(&mut self.by_slot[usize::from(slot)], number);
        debug_assert_eq!(before, NONE, "a slot of the machine has one operation");
        let entry = &mut self.entries[index(number)];
        debug_assert!(
            entry.state == State::Free && entry.queued == 0 && entry.pinned == 0,
            "nothing refers to the data of a free place"
        );
        entry.state = State::UnderWay;
        entry.is_large_read =
            length >= LARGE_READ && is_read(&operation) && !matches!(data, Data::Discard);
        self.large_reads += usize::from(entry.is_large_read);
        entry.operation = operation;
        entry.data = data;
        entry.length = length;
        entry.received = 0;
        entry
    }

    /// Whether most operations are reads that go to their place with calls of their own.
    #[inline]
    pub(super) fn reads_are_large(&self) -> bool {
        self.large_reads * 2 > self.in_flight()
    }

    #[inline]
    pub(super) fn entry(&self, number: u32) -> &Entry {
        &self.entries[index(number)]
    }

    /// The operation in a slot of the machine.
    #[inline]
    pub(super) fn of_slot(&mut self, slot: u16) -> Option<(u32, &mut Entry)> {
        let number = *self.by_slot.get(usize::from(slot))?;
        let entry = self.entries.get_mut(index(number))?;
        Some((number, entry))
    }

    /// The peer has answered.
    #[inline]
    pub(super) fn end(
        &mut self,
        slot: u16,
        result: Result<Reply, Failure>,
        completions: &mut Vec<Completion>,
    ) {
        let Some(place) = self.by_slot.get_mut(usize::from(slot)) else {
            return;
        };
        let number = std::mem::replace(place, NONE);
        let Some(entry) = self.entries.get_mut(index(number)) else {
            return;
        };
        self.large_reads -= usize::from(entry.is_large_read);
        let result = match result {
            Ok(_) if entry.received < entry.length && is_read(&entry.operation) => {
                Err(Failure::ShortTransfer {
                    expected: entry.length as u64,
                    moved: entry.received as u64,
                })
            }
            other => other,
        };
        if entry.pinned > 0 {
            entry.state = State::Answered;
            self.answers.push((number, result));
        } else {
            self.finish(number, result, completions);
        }
    }

    /// An operation has its answer, and the system no memory for a copy of its unsent data. The end of
    /// the connection gives the memory back to the caller.
    #[inline]
    pub(super) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Gives an operation back to its caller.
    #[inline]
    fn finish(
        &mut self,
        number: u32,
        result: Result<Reply, Failure>,
        completions: &mut Vec<Completion>,
    ) {
        let entry = &mut self.entries[index(number)];
        let data = if entry.queued > 0 {
            let Some(copy) = copy(&entry.data, self.allocate) else {
                entry.state = State::Answered;
                self.answers.push((number, result));
                self.is_short = true;
                return;
            };
            entry.state = State::Lingering;
            self.lingering += 1;
            std::mem::replace(&mut entry.data, copy)
        } else {
            entry.state = State::Free;
            self.free.push(number);
            std::mem::replace(&mut entry.data, Data::None)
        };
        completions.push(Completion {
            tag: entry.tag,
            result,
            data,
        });
    }

    /// A reference in the transmit queue is gone.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        self.entries[index(number)].queued -= 1;
        self.settle(number);
    }

    /// The kernel holds pages of an operation's data, for one more send.
    pub(super) fn pin(&mut self, number: u32) {
        self.entries[index(number)].pinned += 1;
        self.pinned += 1;
    }

    /// The kernel has let go of the pages of a send. An operation that waited for that only ends.
    pub(super) fn unpin(&mut self, number: u32, completions: &mut Vec<Completion>) {
        let entry = &mut self.entries[index(number)];
        assert!(
            entry.pinned > 0,
            "the kernel lets go of the pages of a send once"
        );
        entry.pinned -= 1;
        self.pinned -= 1;
        if entry.pinned > 0 {
            return;
        }
        match self.take_answer(number) {
            Some(result) => self.finish(number, result, completions),
            None => self.settle(number),
        }
    }

    fn take_answer(&mut self, number: u32) -> Option<Result<Reply, Failure>> {
        let at = self.answers.iter().position(|(of, _)| *of == number)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// As [`Self::unpin`], of a connection that was given up: nothing ends by it.
    pub(super) fn unpin_quietly(&mut self, number: u32) {
        self.entries[index(number)].pinned -= 1;
        self.pinned -= 1;
    }

    /// Frees a lingering entry that nothing refers to any more.
    #[inline]
    fn settle(&mut self, number: u32) {
        let entry = &mut self.entries[index(number)];
        if entry.state == State::Lingering && entry.queued == 0 && entry.pinned == 0 {
            entry.state = State::Free;
            entry.data = Data::None;
            self.lingering -= 1;
            self.free.push(number);
        }
    }

    /// All operations without an end, in the order they were submitted. `sent`: bytes of the stream that have left.
    pub(super) fn take_unfinished(&mut self, sent: u64) -> Vec<Unfinished> {
        let mut unfinished = Vec::with_capacity(self.in_flight());
        for (number, entry) in (0..).zip(&mut self.entries) {
            let answer = match entry.state {
                State::UnderWay => None,
                State::Answered => {
                    let at = self.answers.iter().position(|(of, _)| *of == number);
                    at.map(|at| self.answers.swap_remove(at).1)
                }
                State::Free | State::Lingering => continue,
            };
            let data = std::mem::replace(&mut entry.data, Data::None);
            let was_sent = sent > entry.position;
            let (tag, operation) = (entry.tag, entry.operation);
            let rest = Unfinished {
                tag,
                operation,
                data,
                was_sent,
                answer,
            };
            unfinished.push((entry.position, rest));
        }
        self.free.clear();
        self.entries.clear();
        self.lingering = 0;
        unfinished.sort_by_key(|(position, _)| *position);
        unfinished.into_iter().map(|(_, rest)| rest).collect()
    }

    /// Takes out all memory that the kernel holds, with the number of its sends. Operations go on with
    /// copies. `None`: the system has no memory for those, and nothing has changed.
    pub(super) fn take_pinned(&mut self) -> Option<(Vec<Data>, usize)> {
        let pinned = self.entries.iter().filter(|entry| entry.pinned > 0);
        let copies: Option<Vec<Data>> = pinned
            .map(|entry| copy(&entry.data, self.allocate))
            .collect();
        let mut memory = copies?;
        let pinned = self.entries.iter_mut().filter(|entry| entry.pinned > 0);
        for (entry, data) in pinned.zip(&mut memory) {
            std::mem::swap(&mut entry.data, data);
            entry.pinned = 0;
        }
        Some((memory, std::mem::take(&mut self.pinned)))
    }

    /// Takes out all memory that the kernel holds, with the number of its sends, where the system has no memory for copies.
    /// Answers that have come stay, and operations with shared data go on. The others have failed: they cannot be repeated
    /// without their data.
    pub(super) fn give_up_pinned(&mut self) -> (Vec<Data>, usize) {
        let mut memory = Vec::new();
        for (number, entry) in (0..).zip(&mut self.entries) {
            if entry.pinned == 0 {
                continue;
            }
            entry.pinned = 0;
            // Shared data needs no memory for a copy.
            let rest = copy(&entry.data, |_| None);
            let is_lost = rest.is_none();
            memory.push(std::mem::replace(
                &mut entry.data,
                rest.unwrap_or(Data::None),
            ));
            if is_lost && entry.state == State::UnderWay {
                entry.state = State::Answered;
                let lost = Lost::Socket(Errno::NOMEM.raw_os_error());
                self.answers
                    .push((number, Err(Failure::OutcomeUnknown(lost))));
            }
        }
        (memory, std::mem::take(&mut self.pinned))
    }
}

/// The same bytes in other memory, or in memory that is shared.
fn copy(data: &Data, allocate: fn(usize) -> Option<Buffer>) -> Option<Data> {
    Some(match data {
        Data::Buffer { buffer, start } => {
            let mut copy = allocate(buffer.len())?;
            copy.copy_from_slice(buffer);
            Data::Buffer {
                buffer: copy,
                start: *start,
            }
        }
        Data::Shared { buffer, start } => Data::Shared {
            buffer: buffer.clone(),
            start: *start,
        },
        Data::Discard => Data::Discard,
        Data::None => Data::None,
    })
}

const fn is_read(operation: &Operation) -> bool {
    matches!(operation, Operation::Read { .. })
}

#[inline]
fn index(number: u32) -> usize {
    number as usize
}
