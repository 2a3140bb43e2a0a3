//! Payload memory of one shard, and its distribution.

use longshore_reactor::{Buffer, BufferPool};

use super::line::MemoryLine;
use super::refusals::Refusals;
use crate::address::TaskAddress;

/// What asks for more than this part of all memory keeps nobody waiting.
const CLAIM_PART: usize = 16;
/// Where memory is short but comes back, all get some in turn. It does not come back when nobody got any for so long.
const STARVED_AFTER_MS: u64 = 50;
/// If nobody asked for so long, there may be memory again.
const FORGOTTEN_AFTER_MS: u64 = 10_000;

/// See the module documentation.
pub(crate) struct ShardMemory {
    pub pool: BufferPool,
    /// Tasks that wait for memory.
    pub line: MemoryLine,
    /// Connections that were refused some.
    pub refusals: Refusals,
    /// Somebody found no memory since it was said last.
    pub is_short: bool,
    /// Milliseconds since all shards started, at the beginning of this turn.
    pub now_ms: u64,
    /// Since when all who wanted memory found none.
    failing_since_ms: Option<u64>,
    /// When one of them found none last.
    failed_ms: u64,
}

impl ShardMemory {
    pub(crate) fn new(pool: BufferPool) -> Self {
        Self {
            pool,
            line: MemoryLine::default(),
            refusals: Refusals::default(),
            is_short: false,
            now_ms: 0,
            failing_since_ms: None,
            failed_ms: 0,
        }
    }

    /// What the payload of all shards may take.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.pool.budget().limit_bytes()
    }

    /// Gives memory back, if there is any.
    pub(crate) fn recycle(&mut self, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer {
            self.pool.put(buffer);
        }
    }

    /// Notes that somebody got memory, which ends the time of failures.
    #[inline]
    pub(crate) fn found_some(&mut self) {
        self.failing_since_ms = None;
    }

    /// Nobody waits for memory, and somebody got some since the last one found none.
    pub(crate) fn is_back(&self) -> bool {
        self.failing_since_ms.is_none() && self.line.is_empty()
    }

    /// A connection is over.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.line.forget(slot);
        self.refusals.forget(slot);
    }

    /// Memory for a task, unless others wait for some. `room`: what its host may have yet.
    #[inline]
    pub(crate) fn take(&mut self, task: TaskAddress, length: usize, room: usize) -> Option<Buffer> {
        if !self.line.admits(task) || !self.leaves_enough(length, room) {
            return None;
        }
        let Some(buffer) = self.pool.take(length) else {
            self.found_none();
            return None;
        };
        self.line.granted += length;
        self.found_some();
        Some(buffer)
    }

    /// Whether so much less leaves something to those that cannot wait and were refused.
    #[inline]
    fn leaves_enough(&mut self, length: usize, room: usize) -> bool {
        if self.refusals.is_empty() {
            return true;
        }
        self.refusals.expire(self.now_ms);
        let left = self.pool.budget().limit_bytes() / CLAIM_PART;
        self.refusals.is_empty() || length.next_power_of_two() + left <= self.free().min(room)
    }

    /// Whether a connection that cannot wait in the line may take memory.
    pub(crate) fn admits_at_once(&mut self, slot: u32, length: usize, room: usize) -> bool {
        if !self.refusals.is_empty() {
            let free = self.free().min(room);
            let bytes = length.next_power_of_two();
            if !self.refusals.admits(slot, bytes, free, self.now_ms) {
                return false;
            }
        }
        self.line.admits_at_once(length)
    }

    /// A connection without memory for write data was refused some, or has got it.
    #[inline]
    pub(crate) fn note_refusal(&mut self, slot: u32, length: usize, is_refused: bool) {
        if is_refused && self.has_claim(length) {
            let bytes = length.next_power_of_two();
            self.refusals.refuse(slot, bytes, self.now_ms);
        } else if !self.refusals.is_empty() {
            self.refusals.forget(slot);
        }
    }

    /// Whether a task that wants so much may keep others waiting.
    pub(crate) fn has_claim(&self, length: usize) -> bool {
        length <= self.pool.budget().limit_bytes() / CLAIM_PART
    }

    /// The task that was served has tried. Returns whether there may be memory for another one.
    pub(crate) fn tried(&mut self) -> bool {
        let goes_on = self.line.served();
        self.line.used_then = if goes_on { None } else { Some(self.used()) };
        goes_on
    }

    /// Whether the line may get on: its first one may find now what it did not find in this turn, or nobody waits for
    /// memory and somebody has come behind those that wait for something else.
    #[inline]
    pub(crate) fn came_back(&self) -> bool {
        match self.line.used_then {
            Some(then) => self.used() < then,
            None => self.line.is_news,
        }
    }

    fn free(&self) -> usize {
        let limit = self.pool.budget().limit_bytes();
        limit.saturating_sub(self.used())
    }

    fn used(&self) -> usize {
        let used = self.pool.budget().used_bytes();
        used.saturating_sub(self.pool.kept_bytes())
    }

    /// The budget has none of the memory that somebody wants, who may have it. (Those who have their full share wait
    /// for what they hold themselves, and nobody is to make room for them.)
    #[cold]
    pub(crate) fn found_none(&mut self) {
        self.is_short = true;
        let is_old = self.now_ms.saturating_sub(self.failed_ms) >= FORGOTTEN_AFTER_MS;
        if self.failing_since_ms.is_none() || is_old {
            self.failing_since_ms = Some(self.now_ms);
        }
        self.failed_ms = self.now_ms;
    }

    /// Whether memory does not come back: newcomers get of theirs, and nobody keeps them waiting.
    pub(crate) fn is_starved(&self) -> bool {
        let elapsed = |since| self.now_ms.saturating_sub(since);
        elapsed(self.failed_ms) < FORGOTTEN_AFTER_MS
            && self
                .failing_since_ms
                .is_some_and(|since| elapsed(since) >= STARVED_AFTER_MS)
    }
}
