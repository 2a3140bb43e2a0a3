//! The share of each connection in the memory for transmit queues.
//!
//! What is read is put behind its header in the transmit queue of its connection, up to 16 KiB. A peer that
//! takes nothing leaves it there. So an eighth of the payload memory is there for transmit queues, in equal parts
//! for the shards, and there for the connections: the more of them, the less for each. It is not
//! taken from the budget of payload buffers but comes on top.
//!
//! A share says when a connection stops; it does not say what there is. Connections that come later make
//! shares smaller, while those that filled theirs hold what they have until their peers take it. So each shard
//! counts what its queues hold ([`Part`]), and lets none grow beyond the least share when its part is used up.
//! The least share each connection has for itself: a peer that takes nothing keeps no other from reading.

/// The most that a connection gets: more in the queue makes nothing faster.
pub(crate) const SHARE_MAX: usize = 1 << 20;
/// The least: one read and what belongs to it.
pub(crate) const SHARE_MIN: usize = 32 << 10;
/// While there is less room than this in a connection's share, it starts no more reads: the largest that
/// is put into the queue, its headers, and some responses of other commands.
pub(crate) const READ_ROOM: usize = 20 << 10;
/// So large a part of the payload memory comes on top of it for transmit queues.
const PART: usize = 8;

const _: () = assert!(READ_ROOM < SHARE_MIN && SHARE_MIN.is_power_of_two());

/// Bytes that all transmit queues together get.
pub(crate) fn total(memory: u64) -> usize {
    usize::try_from(memory).unwrap_or(usize::MAX) / PART
}

/// What the transmit queues of one shard have, and what of it they hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    limit: usize,
    held: usize,
}

impl Part {
    pub(crate) fn new(memory: u64, shards: usize) -> Self {
        Self {
            limit: total(memory) / shards.max(1),
            held: 0,
        }
    }

    /// A queue that held `before` bytes holds `after` now.
    #[inline]
    pub(crate) const fn note(&mut self, before: usize, after: usize) {
        // What is noted as `before` has been added once.
        self.held = self.held - before + after;
    }

    /// Whether a queue may grow from `memory`, which has been noted, so that it holds `wanted`. They grow to powers
    /// of two.
    pub(crate) const fn may_grow(&self, wanted: usize, memory: usize) -> bool {
        let grown = wanted.next_power_of_two();
        grown <= SHARE_MIN || self.held - memory + grown <= self.limit
    }

    /// Whether more is held than there is, and what is beyond the least share should come back.
    #[inline]
    pub(crate) const fn is_short(&self) -> bool {
        self.held > self.limit
    }
}

/// What one of `connections` gets on one of `shards`. A power of two, as arenas are.
pub(crate) fn share(memory: u64, shards: usize, connections: usize) -> usize {
    let part = total(memory) / shards.max(1) / connections.max(1);
    let share = part.checked_ilog2().map_or(0, |exponent| 1 << exponent);
    share.clamp(SHARE_MIN, SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_what_there_is_for_transmit_queues() {
        const GIB: u64 = 1 << 30;
        assert_eq!(share(GIB, 2, 0), SHARE_MAX);
        assert_eq!(share(GIB, 2, 64), SHARE_MAX);
        assert_eq!(share(GIB, 2, 65), SHARE_MAX / 2);
        assert_eq!(share(GIB, 2, 500), 128 << 10);
        assert_eq!(share(GIB, 2, 1 << 20), SHARE_MIN);
        assert_eq!(share(8 << 20, 64, 1), SHARE_MIN);
        for connections in 1..4000 {
            let all = connections * share(GIB, 1, connections);
            assert!(all <= total(GIB), "{connections}");
        }
    }

    #[test]
    fn queues_that_nobody_empties_hold_the_part_and_the_least_share_each() {
        const MEMORY: u64 = 64 << 20;
        for shards in [1, 2] {
            let mut part = Part::new(MEMORY, shards);
            let mut queues = Vec::new();
            for connections in 1..1000 {
                let share = share(MEMORY, shards, connections);
                let (mut used, mut memory) = (0, 0);
                while used + READ_ROOM <= share
                    && (used + READ_ROOM <= memory || part.may_grow(used + READ_ROOM, memory))
                {
                    used += READ_ROOM;
                    let grown = memory.max(used.next_power_of_two());
                    part.note(memory, grown);
                    memory = grown;
                }
                assert!(memory >= SHARE_MIN, "each can read, {connections}");
                queues.push(memory);
                let all: usize = queues.iter().sum();
                let most = total(MEMORY) / shards + connections * SHARE_MIN;
                assert!(all <= most, "{all} of {most}, {connections}");
            }
            assert!(part.is_short());
            for memory in queues {
                part.note(memory, 0);
            }
            assert!(!part.is_short() && part.held == 0);
        }
    }
}
