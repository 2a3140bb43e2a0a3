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
//! ([`Message::MemoryShort`](crate::mail::message::Message::MemoryShort)).
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
    timeout_ms: u64,
}

impl Stall {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            ..Self::default()
        }
    }

    /// The peer took something.
    #[inline]
    pub(crate) fn taken(&mut self, now_ms: u64) {
        if let Some(since) = &mut self.taking_ms {
            *since = now_ms;
            self.is_asked = false;
        }
    }

    /// Write data came.
    #[inline]
    pub(crate) fn given(&mut self, now_ms: u64) {
        if let Some(since) = &mut self.giving_ms {
            *since = now_ms;
            self.is_asked = false;
        }
    }

    /// A turn ends: whether something is to be taken, and to be given, and what has been sent so far.
    #[inline]
    pub(super) fn expect(&mut self, takes: bool, gives: bool, sent: u64, now_ms: u64) {
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
        if before == acknowledged {
            return;
        }
        self.taking_ms = self.taking_ms.map(|_| now_ms);
        if before < self.asked_for_at {
            self.giving_ms = self.giving_ms.map(|_| now_ms);
        }
    }

    /// Whether it matters that the clock of giving starts anew.
    #[inline]
    pub(crate) fn gave_long_ago(&self, now_ms: u64) -> bool {
        let after_ms = self.timeout_ms / ASKED_AFTER_PART;
        self.giving_ms
            .is_some_and(|since| now_ms.saturating_sub(since) >= after_ms)
    }

    /// The shard stood still until then.
    pub(super) fn stood_still_until(&mut self, until_ms: u64) {
        self.taking_ms = self.taking_ms.map(|since| since.max(until_ms));
        self.giving_ms = self.giving_ms.map(|since| since.max(until_ms));
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

    /// For how long nothing has moved, if that is too long. `for_room`: somebody finds no memory, and the peer keeps some.
    pub(super) fn is_over(&self, for_room: bool, now_ms: u64) -> Option<u64> {
        let tolerated_ms = if for_room {
            self.timeout_ms / SHORT_PART
        } else {
            self.timeout_ms
        };
        let stalled_ms = self.stalled_ms(now_ms);
        stalled_ms.filter(|stalled_ms| *stalled_ms >= tolerated_ms)
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
        stall.taken(1);
        stall.expect(false, false, 0, 2);
        assert_eq!(stall.since_ms(), None);
        stall.expect(true, false, 0, 1_000);
        stall.expect(true, false, 0, 5_000);
        assert_eq!(stall.since_ms(), Some(1_000));
        assert_eq!(stall.stalled_ms(6_000), Some(5_000));
        stall.taken(7_000);
        stall.expect(true, true, 0, 8_000);
        assert_eq!(stall.since_ms(), Some(7_000));
        // Taking something is not giving, and giving is not taking.
        stall.taken(20_000);
        assert_eq!(stall.since_ms(), Some(8_000));
        stall.given(30_000);
        assert_eq!(stall.since_ms(), Some(20_000));
        // What asks for write data waits to be sent.
        stall.expect(false, false, 0, 31_000);
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
        stall.taken(127_000);
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
    fn a_shard_that_stood_still_starts_all_clocks_anew() {
        let mut stall = stall();
        stall.expect(true, true, 0, 1_000);
        stall.given(50_000);
        assert!(!stall.gave_long_ago(54_999) && stall.gave_long_ago(55_000));
        stall.stood_still_until(40_000);
        assert_eq!(
            (stall.taking_ms, stall.giving_ms),
            (Some(40_000), Some(50_000))
        );
    }
}
