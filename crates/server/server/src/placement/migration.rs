//! The history of a connection's moves.

use crate::address::ConnectionAddress;

/// An operation costs about as much as moving so many bytes.
const BYTES_PER_OPERATION: u64 = 16 << 10;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Migration {
    /// How sessions, controllers and other connections call it: the address it had first.
    pub name: ConnectionAddress,
    /// It is about to go to another shard: takes no input, and lets no waiting task begin.
    pub leaving: bool,
    /// When it last moved, or tried to in vain.
    pub moved_ms: Option<u64>,
    /// How often it has moved.
    pub moves: u64,
    /// What it had done when that was looked at last.
    weighed: u64,
    /// What it did between the last two looks.
    pub weight: u64,
}

impl Migration {
    /// That of a new connection.
    pub(crate) const fn new(address: ConnectionAddress) -> Self {
        Self {
            name: address,
            leaving: false,
            moved_ms: None,
            moves: 0,
            weighed: 0,
            weight: 0,
        }
    }

    /// Looks at what it has done so far: so many operations, and bytes in both directions.
    pub(crate) const fn weigh(&mut self, operations: u64, bytes: u64) {
        let done = operations * BYTES_PER_OPERATION + bytes;
        self.weight = done - self.weighed;
        self.weighed = done;
    }

    /// Whether it moved, or tried to, within that time.
    pub(crate) fn moved_within(&self, now_ms: u64, rest_ms: u64) -> bool {
        self.moved_ms
            .is_some_and(|at| now_ms.saturating_sub(at) < rest_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_is_what_was_done_since_the_last_look() {
        let mut migration = Migration::new(ConnectionAddress {
            shard: 0,
            slot: 0,
            generation: 0,
        });
        migration.weigh(1000, 512_000);
        migration.weigh(1001, 512_100);
        assert_eq!(migration.weight, BYTES_PER_OPERATION + 100);
    }

    #[test]
    fn a_connection_that_moved_rests() {
        let mut migration = Migration::new(ConnectionAddress {
            shard: 0,
            slot: 0,
            generation: 0,
        });
        assert!(!migration.moved_within(5, 100));
        migration.moved_ms = Some(10);
        assert!(migration.moved_within(109, 100));
        assert!(!migration.moved_within(110, 100));
    }
}
