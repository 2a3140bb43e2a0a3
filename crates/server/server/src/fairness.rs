//! The share of a turn that one connection gets while others wait.
//!
//! A connection that is alone receives and sends as much at a time as there is: a megabyte with one
//! call costs least. As soon as another one is active on the same shard, each gets a quantum of bytes in
//! each direction and turn, and comes again in the next turn. So a small read waits behind a quantum of another
//! connection's large write, not behind several megabytes. Connections with equal load get equal parts, in any order
//! of service.
//!
//! Bytes stand for work: what costs time besides, an operation, is bounded by the queue depth.

/// Bytes that a connection receives in a turn while others are active: what takes some 10 µs.
const RECEIVE_QUANTUM: usize = 64 << 10;
/// Bytes that it sends. Answers to small reads at usual depths fit, so that they leave with one call.
const SEND_QUANTUM: usize = 256 << 10;
/// Less than this is not worth another call in the same turn.
const RECEIVE_LEAST: usize = 4 << 10;
/// Others are active if one of them had its turn among this many last ones.
const RECENT_TURNS: u64 = 256;

/// See the module documentation. Belongs to a shard.
#[derive(Debug)]
pub(crate) struct Fairness {
    /// The connection that had its turn last, by slot.
    last: Option<u32>,
    /// Until this turn connections share.
    shared_until: u64,
    sharing: bool,
    receive_left: usize,
    send_left: usize,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            last: None,
            shared_until: 0,
            sharing: false,
            receive_left: usize::MAX,
            send_left: usize::MAX,
        }
    }
}

impl Fairness {
    /// The connection in `slot` is received from in turn number `turn`.
    #[inline]
    pub(crate) fn begin_receiving(&mut self, slot: u32, turn: u64) {
        if self.last.replace(slot).is_some_and(|last| last != slot) {
            self.shared_until = turn + RECENT_TURNS;
        }
        self.sharing = turn < self.shared_until;
        self.receive_left = if self.sharing {
            RECEIVE_QUANTUM
        } else {
            usize::MAX
        };
    }

    /// How much of `wanted` may be received with the next call.
    #[inline]
    pub(crate) fn receive_room(&self, wanted: usize) -> usize {
        wanted.min(self.receive_left)
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.receive_left = self.receive_left.saturating_sub(bytes);
    }

    /// Whether the connection may receive more in this turn.
    #[inline]
    pub(crate) fn may_receive(&self) -> bool {
        self.receive_left >= RECEIVE_LEAST
    }

    /// A connection sends what it has.
    #[inline]
    pub(crate) fn begin_sending(&mut self) {
        self.send_left = if self.sharing {
            SEND_QUANTUM
        } else {
            usize::MAX
        };
    }

    /// The most that one call may send. Never nothing.
    #[inline]
    pub(crate) fn send_max(&self) -> usize {
        if self.sharing {
            SEND_QUANTUM
        } else {
            usize::MAX
        }
    }

    /// So much was sent.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.send_left = self.send_left.saturating_sub(bytes);
    }

    /// Whether the connection may send more in this turn.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.send_left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a connection with more than enough to receive gets in a turn.
    fn received(fairness: &mut Fairness, slot: u32, turn: u64, calls: usize, call: usize) -> usize {
        fairness.begin_receiving(slot, turn);
        let mut total = 0;
        for _ in 0..calls {
            if !fairness.may_receive() {
                break;
            }
            let room = fairness.receive_room(call);
            fairness.received(room);
            total += room;
        }
        total
    }

    #[test]
    fn nothing_is_cut_for_a_connection_that_is_alone() {
        let mut fairness = Fairness::default();
        for turn in 0..1000 {
            assert_eq!(received(&mut fairness, 7, turn, 4, 1 << 20), 4 << 20);
            fairness.begin_sending();
            assert_eq!(fairness.send_max(), usize::MAX);
            fairness.sent(64 << 20);
            assert!(fairness.may_send());
        }
    }

    #[test]
    fn a_large_writer_gets_a_quantum_beside_others() {
        let mut fairness = Fairness::default();
        received(&mut fairness, 0, 0, 4, 1 << 20);
        for turn in 1..100 {
            assert_eq!(received(&mut fairness, 1, turn, 1, 1536), 1536);
            assert_eq!(
                received(&mut fairness, 0, turn, 4, 1 << 20),
                RECEIVE_QUANTUM
            );
            fairness.begin_sending();
            fairness.sent(SEND_QUANTUM);
            assert!(!fairness.may_send());
        }
    }

    #[test]
    fn quanta_end_some_turns_after_the_other_one_fell_silent() {
        let mut fairness = Fairness::default();
        received(&mut fairness, 0, 0, 1, 1);
        received(&mut fairness, 1, 0, 1, 1);
        received(&mut fairness, 0, 1, 1, 1);
        let last = RECENT_TURNS;
        assert_eq!(
            received(&mut fairness, 0, last, 4, 1 << 20),
            RECEIVE_QUANTUM
        );
        assert_eq!(received(&mut fairness, 0, last + 1, 4, 1 << 20), 4 << 20);
    }

    #[test]
    fn equal_loads_get_equal_shares() {
        let mut fairness = Fairness::default();
        let mut total = [0_usize; 64];
        for turn in 0..500 {
            // Whatever the order in which they are looked at.
            for index in 0..64 {
                let slot = (index * 29 + usize::try_from(turn).unwrap()) % 64;
                let number = u32::try_from(slot).unwrap();
                total[slot] += received(&mut fairness, number, turn, 4, 256 << 10);
            }
        }
        let (least, most) = (total.iter().min().unwrap(), total.iter().max().unwrap());
        // The very first one did not know yet.
        assert!(most - least <= 4 * (256 << 10), "{least} {most}");
        assert!(most * 100 < least * 110, "{least} {most}");
    }
}
