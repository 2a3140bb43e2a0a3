//! Peers that take nothing of what they asked for, or send nothing of what they were asked for.
//!
//! Memory that waits for a peer is lost to all others. iSCSI pings a silent peer, but one that goes on sending is not
//! silent; and an NVMe host without a Keep Alive Timeout may be silent for ever. So each connection has two clocks:
//!
//! | clock | runs while | restarts with |
//! |---|---|---|
//! | taking | something waits to be sent, or is with the kernel for sending | each byte that is sent, or that the peer acknowledges |
//! | giving | write data were asked for, and nothing waits to be sent | each byte of write data |
//!
//! A connection whose clock comes to `limits.stall-timeout` is cut. While a connection on any shard finds no memory,
//! a sixth of that is enough for those that hold some: the shard where it is missing asks all of them
//! ([`Message::MemoryShort`](crate::mail::message::Message::MemoryShort)). In that time they also have to move the part
//! due ([`super::trickle`]).
//!
//! The clocks see what this end sends and receives, and that lags behind what the peer does. So before a connection
//! is cut,
//!
//! - its socket is received from: write data may lie there since this end was busy elsewhere;
//! - the kernel is asked how much the peer has acknowledged. A full socket takes more only when a third of its buffer
//!   is free, which a slow reader may need minutes for. A clock counts only once it has been asked, which is soon
//!   after the clock has started, and again when the time is over;
//! - requests for write data (R2Ts) that the peer had not received yet restart the giving clock if it has
//!   acknowledged bytes since;
//! - a shard that stood still for a while restarts all clocks.

use std::time::Duration;

use super::trickle::{Waiting, Window};

/// While memory is short, this part of the time is enough.
const SHORT_PART: u64 = 6;
/// While memory is short, shards are asked so many times in that time.
const ASKED_TIMES: u64 = 10;

/// The kernel is asked what the peer has acknowledged after this part of the time, and when it is over.
const ASKED_AFTER_PART: u64 = 12;
/// A shard that comes so late stood still: half of what is tolerated while memory is short.
const STANDSTILL_PART: u64 = 2 * SHORT_PART;

/// The clocks of a connection. Times are milliseconds of the shards' clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    /// Since when nothing was taken, if something is to be.
    taking_ms: Option<u64>,
    /// Since when nothing was given, if something is to be.
    giving_ms: Option<u64>,
    /// The kernel has been asked since a clock started.
    is_asked: bool,
    /// Bytes that the peer had acknowledged when the kernel was asked last.
    acknowledged: u64,
    /// Bytes that had been sent when the giving clock started, requests for write data among them.
    asked_for_at: u64,
    /// The peer has acknowledged the first request for the write data that memory is held for.
    knows_requests: bool,
    taking: Window,
    giving: Window,
    /// When the connection was last looked at for write data that wait for storage and not for the peer.
    excused_ms: u64,
    /// A clock runs, or a window is open.
    is_running: bool,
    timeout_ms: u64,
}

/// A peer has not moved for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    /// For how long nothing, or too little, has moved.
    pub since_ms: u64,
    /// It has moved something, and less than the part due.
    pub trickles: bool,
}

impl Stall {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            ..Self::default()
        }
    }

    /// The peer took so many bytes.
    #[inline]
    pub(crate) fn taken(&mut self, bytes: usize, now_ms: u64) {
        self.taking.moved(bytes);
        if let Some(since) = &mut self.taking_ms {
            *since = now_ms;
            self.is_asked = false;
        }
    }

    /// So many bytes of write data came.
    #[inline]
    pub(crate) fn given(&mut self, bytes: usize, now_ms: u64) {
        self.giving.moved(bytes);
        if let Some(since) = &mut self.giving_ms {
            *since = now_ms;
            self.is_asked = false;
        }
    }

    /// Nothing waits to be sent.
    pub(super) fn all_taken(&mut self, now_ms: u64) {
        self.taken(0, now_ms);
        self.taking.restart(now_ms);
    }

    /// Write data that have come wait for storage, and no others were asked for.
    pub(crate) fn all_given(&mut self, now_ms: u64) {
        self.given(0, now_ms);
        self.giving.restart(now_ms);
    }

    /// A turn ends: whether something is to be taken, whether memory is held for write data, and what has been sent so
    /// far.
    #[inline]
    pub(super) fn expect(&mut self, takes: bool, holds: bool, sent: u64, now_ms: u64) {
        if takes || holds || self.is_running {
            self.set_clocks(takes, holds, sent, now_ms);
        }
    }

    fn set_clocks(&mut self, takes: bool, holds: bool, sent: u64, now_ms: u64) {
        self.is_running = takes || holds;
        self.knows_requests &= holds;
        self.taking.expect(takes, now_ms);
        self.giving.expect(holds, now_ms);
        self.giving.pause(takes, now_ms);
        // What waits to be sent may be what asks for the data.
        let gives = holds && !takes;
        if takes && self.taking_ms.is_none() || gives && self.giving_ms.is_none() {
            self.is_asked = false;
        }
        if gives && self.giving_ms.is_none_or(|since| since == now_ms) {
            self.asked_for_at = sent;
        }
        self.taking_ms = takes.then(|| self.taking_ms.unwrap_or(now_ms));
        self.giving_ms = gives.then(|| self.giving_ms.unwrap_or(now_ms));
    }

    /// The kernel was asked: the peer has acknowledged so many bytes. `None`: it does not tell.
    pub(super) fn acknowledges(&mut self, acknowledged: Option<u64>, now_ms: u64) {
        self.is_asked = true;
        let Some(acknowledged) = acknowledged else {
            return;
        };
        let before = std::mem::replace(&mut self.acknowledged, acknowledged);
        self.taking.acknowledges(acknowledged, now_ms);
        if before == acknowledged {
            return;
        }
        self.taking_ms = self.taking_ms.map(|_| now_ms);
        if before < self.asked_for_at {
            self.giving_ms = self.giving_ms.map(|_| now_ms);
            // It knows now what it was asked for first. What it acknowledges later may be anything.
            if acknowledged >= self.asked_for_at && !self.knows_requests {
                self.knows_requests = true;
                self.giving.restart(now_ms);
            }
        }
    }

    /// Whether it matters that the clock and window of giving start anew.
    #[inline]
    pub(crate) fn gave_long_ago(&self, now_ms: u64) -> bool {
        let after_ms = self.timeout_ms / ASKED_AFTER_PART;
        let is_long_ago = |since: u64| now_ms.saturating_sub(since) >= after_ms;
        // A window stays open while there is something to write: it is looked at once in that time.
        self.giving_ms.is_some_and(is_long_ago) || self.is_running && is_long_ago(self.excused_ms)
    }

    /// It was found out whether write data wait for storage only.
    pub(crate) fn looked_for_excuse(&mut self, now_ms: u64) {
        self.excused_ms = now_ms;
    }

    /// The shard stood still until then.
    pub(super) fn stood_still_until(&mut self, until_ms: u64) {
        self.taking_ms = self.taking_ms.map(|since| since.max(until_ms));
        self.giving_ms = self.giving_ms.map(|since| since.max(until_ms));
        self.taking.stood_still_until(until_ms);
        self.giving.stood_still_until(until_ms);
    }

    fn since_ms(&self) -> Option<u64> {
        self.taking_ms.into_iter().chain(self.giving_ms).min()
    }

    /// When the connection is to be looked at.
    #[inline]
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let after_ms = if self.is_asked {
            self.timeout_ms
        } else {
            self.timeout_ms / ASKED_AFTER_PART
        };
        Some(self.since_ms()?.saturating_add(after_ms))
    }

    /// Windows with the part due open anew once they are as old as is tolerated while memory is short.
    pub(super) fn open_met_windows(&mut self, waiting: Waiting, now_ms: u64) {
        let [taking, giving] = self.met_windows(waiting, now_ms);
        if taking {
            self.taking.restart(now_ms);
        }
        if giving {
            self.giving.restart(now_ms);
        }
    }

    /// Whether a window has the part due and is as old.
    pub(super) fn has_met_window(&self, waiting: Waiting, now_ms: u64) -> bool {
        self.met_windows(waiting, now_ms).contains(&true)
    }

    /// Whether the windows of taking and of giving are met.
    fn met_windows(&self, waiting: Waiting, now_ms: u64) -> [bool; 2] {
        let tolerated_ms = self.timeout_ms / SHORT_PART;
        [
            self.taking.is_met(waiting.taking, tolerated_ms, now_ms),
            self.giving.is_met(waiting.giving, tolerated_ms, now_ms),
        ]
    }

    /// Whether the peer has not moved for too long. `short`: a connection finds no memory, and so much waits for this
    /// peer, which keeps some.
    pub(super) fn is_over(&self, short: Option<Waiting>, now_ms: u64) -> Option<Stalled> {
        let stalled_ms = self.stalled_ms(now_ms).unwrap_or(0);
        let Some(waiting) = short else {
            return (stalled_ms >= self.timeout_ms).then_some(Stalled {
                since_ms: stalled_ms,
                trickles: false,
            });
        };
        let taking = self.taking.lacking_ms(waiting.taking, now_ms);
        let giving = self.giving.lacking_ms(waiting.giving, now_ms);
        let lacking_ms = taking.max(giving).unwrap_or(0);
        let since_ms = stalled_ms.max(lacking_ms);
        (since_ms >= self.timeout_ms / SHORT_PART).then_some(Stalled {
            since_ms,
            trickles: stalled_ms < self.timeout_ms / SHORT_PART,
        })
    }

    /// For how long nothing has moved.
    fn stalled_ms(&self, now_ms: u64) -> Option<u64> {
        Some(now_ms.saturating_sub(self.since_ms()?))
    }
}

/// How late a shard is when it stood still, in milliseconds.
pub(crate) fn standstill_ms(timeout: Duration) -> u64 {
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    (timeout_ms / STANDSTILL_PART).max(1)
}

/// How often a shard without memory asks all of them, in milliseconds.
pub(crate) fn asking_interval_ms(timeout: Duration) -> u64 {
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    (timeout_ms / SHORT_PART / ASKED_TIMES).clamp(10, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall() -> Stall {
        Stall::new(Duration::from_secs(60))
    }

    fn asked_at_once() -> Stall {
        let mut stall = stall();
        stall.acknowledges(None, 0);
        stall
    }

    #[test]
    fn each_clock_runs_while_something_is_to_move_and_starts_anew_when_it_does() {
        let mut stall = asked_at_once();
        stall.taken(1, 1);
        stall.expect(false, false, 0, 2);
        assert_eq!(stall.since_ms(), None);
        stall.expect(true, false, 0, 1_000);
        stall.expect(true, false, 0, 5_000);
        assert_eq!(stall.since_ms(), Some(1_000));
        assert_eq!(stall.stalled_ms(6_000), Some(5_000));
        stall.taken(1, 7_000);
        stall.expect(true, true, 0, 8_000);
        assert_eq!(stall.since_ms(), Some(7_000));
        // It cannot give what it has not been asked for yet.
        stall.taken(1, 20_000);
        assert_eq!((stall.taking_ms, stall.giving_ms), (Some(20_000), None));
        stall.expect(false, true, 0, 25_000);
        assert_eq!(stall.since_ms(), Some(25_000));
        stall.taken(1, 29_000);
        stall.given(1, 30_000);
        assert_eq!(stall.since_ms(), Some(30_000));
        // What asks for write data waits to be sent.
        stall.expect(false, false, 0, 31_000);
        assert!(!stall.is_running);
        assert_eq!(stall.since_ms(), None);
        stall.expect(false, true, 0, 32_000);
        assert_eq!(stall.since_ms(), Some(32_000));
    }

    #[test]
    fn what_a_peer_acknowledges_is_taken_although_the_socket_takes_no_more() {
        let mut stall = stall();
        stall.expect(true, false, 9_000, 1_000);
        assert_eq!(stall.deadline_ms(), Some(6_000));
        // What it had acknowledged when the clock started is not known.
        stall.acknowledges(Some(100), 6_000);
        assert_eq!(stall.deadline_ms(), Some(66_000));
        stall.acknowledges(Some(101), 66_000);
        assert_eq!(stall.deadline_ms(), Some(126_000));
        stall.acknowledges(Some(101), 126_000);
        assert_eq!(stall.stalled_ms(126_000), Some(60_000));
        stall.taken(1, 127_000);
        assert_eq!(stall.deadline_ms(), Some(132_000));
        // A link that does not tell counts what it took.
        stall.acknowledges(None, 132_000);
        assert_eq!(stall.deadline_ms(), Some(187_000));
    }

    #[test]
    fn nobody_gives_what_it_does_not_know_to_be_asked_for() {
        let mut stall = stall();
        stall.expect(false, true, 9_000, 1_000);
        stall.acknowledges(Some(8_000), 6_000);
        stall.acknowledges(Some(8_500), 66_000);
        assert_eq!(stall.since_ms(), Some(66_000));
        stall.acknowledges(Some(9_000), 126_000);
        assert_eq!(stall.since_ms(), Some(126_000));
        // It knows now, and takes something else.
        stall.acknowledges(Some(9_500), 186_000);
        assert_eq!(stall.stalled_ms(186_000), Some(60_000));
        // One that does not even take that has stalled as well.
        let mut stall = asked_at_once();
        stall.expect(false, true, 9_000, 1_000);
        stall.acknowledges(Some(8_000), 6_000);
        stall.acknowledges(Some(8_000), 66_000);
        assert_eq!(stall.stalled_ms(66_000), Some(60_000));
    }

    #[test]
    fn a_peer_that_has_moved_its_part_has_to_move_the_next() {
        let mut stall = asked_at_once();
        let waiting = Waiting {
            taking: 0,
            giving: 1 << 20,
        };
        stall.expect(false, true, 0, 0);
        stall.given(64 << 10, 1_000);
        for now_ms in (2_000..10_000).step_by(1_000) {
            stall.given(1, now_ms);
        }
        assert_eq!(stall.is_over(Some(waiting), 10_000), None);
        assert!(stall.has_met_window(waiting, 10_000));
        stall.open_met_windows(waiting, 10_000);
        assert!(!stall.has_met_window(waiting, 10_000));
        for now_ms in (11_000..20_000).step_by(1_000) {
            stall.given(1, now_ms);
        }
        let stalled = stall.is_over(Some(waiting), 20_000).unwrap();
        assert!(stalled.trickles);
    }

    #[test]
    fn what_a_peer_takes_beside_is_no_write_data() {
        let mut stall = stall();
        let waiting = Waiting {
            taking: 0,
            giving: 1 << 20,
        };
        stall.expect(false, true, 1_000, 0);
        stall.acknowledges(Some(1_000), 1_000);
        // Each byte that it gives has the clock run from then on, and each answer is acknowledged.
        for step in 1..=10 {
            let now_ms = 1_000 + step * 1_000;
            let sent = 1_000 + step * 1_000_000;
            stall.given(1, now_ms);
            stall.expect(false, true, sent, now_ms);
            stall.acknowledges(Some(sent), now_ms);
        }
        assert!(stall.is_over(Some(waiting), 11_000).is_some());
    }

    #[test]
    fn a_shard_that_stood_still_starts_all_clocks_anew() {
        let mut stall = stall();
        stall.expect(true, false, 0, 1_000);
        stall.stood_still_until(40_000);
        assert_eq!((stall.taking_ms, stall.giving_ms), (Some(40_000), None));
        let mut stall = self::stall();
        stall.expect(false, true, 0, 1_000);
        stall.given(1, 50_000);
        stall.looked_for_excuse(50_000);
        assert!(!stall.gave_long_ago(54_999) && stall.gave_long_ago(55_000));
        stall.stood_still_until(40_000);
        assert_eq!(stall.giving_ms, Some(50_000));
    }

    #[test]
    fn a_byte_now_and_then_is_enough_until_memory_is_short() {
        const MIB: usize = 1 << 20;
        let takes = Some(Waiting {
            taking: MIB,
            giving: 0,
        });
        let gives = Some(Waiting {
            taking: 0,
            giving: MIB,
        });
        for (is_taking, waiting) in [(true, takes), (false, gives)] {
            let mut stall = asked_at_once();
            stall.expect(is_taking, !is_taking, 0, 1_000);
            for second in 2..=100 {
                stall.taken(1, second * 1_000);
                stall.given(1, second * 1_000);
            }
            assert_eq!(stall.is_over(None, 100_000), None);
            let stalled = Stalled {
                since_ms: 99_000,
                trickles: true,
            };
            assert_eq!(stall.is_over(waiting, 100_000), Some(stalled));
            // With the part due it has a sixth of the time for the next.
            stall.taken(MIB / 16, 101_000);
            stall.given(MIB / 16, 101_000);
            assert_eq!(stall.is_over(waiting, 101_000), None);
            stall.open_met_windows(waiting.unwrap(), 101_000);
            stall.taken(1, 110_000);
            stall.given(1, 110_000);
            assert_eq!(stall.is_over(waiting, 110_999), None);
            assert!(stall.is_over(waiting, 111_000).is_some());
            // Another peer's turn: nothing of this one waits for it.
            assert_eq!(stall.is_over(Some(Waiting::default()), 111_000), None);
        }
    }

    #[test]
    fn write_data_that_wait_for_storage_are_no_fault_of_the_peer() {
        let waiting = Some(Waiting {
            taking: 0,
            giving: 1 << 20,
        });
        let mut stall = asked_at_once();
        stall.expect(false, true, 0, 1_000);
        stall.given(1, 50_000);
        assert!(stall.is_over(waiting, 50_000).is_some());
        stall.all_given(50_000);
        assert_eq!(stall.is_over(waiting, 59_999), None);
    }

    #[test]
    fn a_peer_that_acknowledges_the_part_due_does_not_trickle() {
        let waiting = Waiting {
            taking: 1 << 20,
            giving: 0,
        };
        let mut stall = stall();
        stall.expect(true, false, 9_000_000, 1_000);
        stall.acknowledges(Some(5_000_000), 6_000);
        stall.acknowledges(Some(5_100_000), 16_000);
        assert_eq!(stall.is_over(Some(waiting), 16_000), None);
        stall.open_met_windows(waiting, 16_000);
        stall.acknowledges(Some(5_110_000), 26_000);
        assert!(stall.is_over(Some(waiting), 26_000).is_some());
    }
}
