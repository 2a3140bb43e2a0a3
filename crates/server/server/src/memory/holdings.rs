//! Payload memory that one connection holds, and its part in the share of its host.

use std::sync::Arc;

use longshore_reactor::Buffer;

use super::shard::ShardMemory;
use super::share::{Share, Stake, holder_max, is_newcomer, may_hold};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// Bytes of memory that tasks read into, or wait for.
    pub reading: usize,
    /// Bytes of memory that tasks hold for write data, or have been promised.
    pub writing: usize,
    /// Bytes of memory that tasks read into.
    pub filling: usize,
    /// What the connection has of its host's share of memory.
    stake: Stake,
}

impl Holdings {
    /// It is known whose connection it is.
    pub(crate) fn belongs_to(&mut self, share: Arc<Share>) {
        self.stake.belongs_to(share);
    }

    /// Payload memory that the connection holds, promises of it included, and `sending` in what waits to be sent.
    #[inline]
    pub(crate) fn held_bytes(&self, sending: usize) -> usize {
        self.filling + self.writing + sending
    }

    /// Has the holder's share count what the connection holds.
    #[inline]
    pub(crate) fn note(&mut self, sending: usize) {
        let held = self.held_bytes(sending);
        self.stake.note(held);
    }

    /// Counts so much more memory as held by the holder, if it may have that. [`Self::note`] is to follow, whether
    /// the connection got it or not.
    #[inline]
    pub(crate) fn claim(&mut self, memory: &ShardMemory, wanted: usize) -> bool {
        let limit = memory.limit_bytes();
        self.stake.claim(wanted, limit)
    }

    /// Whether the holder may have so much more memory.
    #[inline]
    pub(crate) fn may_hold(&self, memory: &ShardMemory, wanted: usize) -> bool {
        let share = &self.stake.share;
        let limit = memory.limit_bytes();
        share.is_alone() || may_hold(share.held_bytes(), wanted, limit)
    }

    /// What the holder may have yet.
    pub(crate) fn room(&self, memory: &ShardMemory) -> usize {
        let limit = memory.limit_bytes();
        let share = &self.stake.share;
        match share.held_bytes() {
            _ if share.is_alone() => usize::MAX,
            0 => limit,
            held => holder_max(limit).saturating_sub(held),
        }
    }

    /// Whether a task that found no memory may keep others waiting. With its full share a host waits for what it holds
    /// itself, and keeps only its own tasks waiting.
    pub(crate) fn has_claim(&self, memory: &ShardMemory, wanted: usize) -> bool {
        memory.has_claim(wanted) && !memory.is_starved() && self.may_hold(memory, wanted)
    }

    /// Memory for a small read or write of a peer that holds next to nothing, although others wait for some.
    #[cold]
    pub(crate) fn take_as_newcomer(
        &self,
        memory: &mut ShardMemory,
        wanted: usize,
    ) -> Option<Buffer> {
        if !memory.is_starved() || !is_newcomer(self.stake.share.held_bytes(), wanted) {
            return None;
        }
        memory.pool.take_as_newcomer(wanted)
    }
}
