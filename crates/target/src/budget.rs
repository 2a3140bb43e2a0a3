//! What connections may have of the memory for transmit queues.
//!
//! What is read is put behind its header in the transmit queue of its connection, up to 16 KiB. A peer that
//! takes nothing leaves it there. So an eighth of the payload memory is there for transmit queues, in equal parts
//! for the shards, and there for the connections: the more of them, the less for each. It is not
//! taken from the budget of payload buffers but comes on top.

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
}
