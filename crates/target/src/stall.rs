//! Peers that take nothing of what they asked for, or send nothing of what they were asked for.
//!
//! Memory that waits for a peer is lost to all others. iSCSI pings a silent peer, but one that goes on sending is not
//! silent; and an NVMe host without a Keep Alive Timeout may be silent for ever. So each connection has two clocks:
//!
//! | clock | runs while | starts anew with |
//! |---|---|---|
//! | taking | something waits to be sent, or is with the kernel for sending | each byte that is sent |
//! | giving | write data were asked for | each byte of write data |
//!
//! A connection whose clock comes to `limits.stall-timeout` is cut. While somebody on any shard finds no memory, a
//! sixth of that is enough for those that hold some: the shard where it is missing asks all of them
//! ([`Message::MemoryShort`](crate::message::Message::MemoryShort)).

use std::time::Duration;

use crate::channel::Fate;
use crate::connection::{Connection, Protocol};
use crate::core::Core;
use crate::task::TaskState;

/// While memory is short, this part of the time is enough.
const SHORT_PART: u64 = 6;
/// While memory is short, shards are asked so many times in that time.
const ASKED_TIMES: u64 = 10;

/// The clocks of a connection. Times are milliseconds of the shards' clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    /// Since when nothing was taken, if something is to be.
    taking_ms: Option<u64>,
    /// Since when nothing was given, if something is to be.
    giving_ms: Option<u64>,
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
        }
    }

    /// Write data came.
    #[inline]
    pub(crate) fn given(&mut self, now_ms: u64) {
        if let Some(since) = &mut self.giving_ms {
            *since = now_ms;
        }
    }

    /// A turn ends: whether something is to be taken, and to be given.
    #[inline]
    fn expect(&mut self, takes: bool, gives: bool, now_ms: u64) {
        self.taking_ms = takes.then(|| self.taking_ms.unwrap_or(now_ms));
        self.giving_ms = gives.then(|| self.giving_ms.unwrap_or(now_ms));
    }

    fn since_ms(&self) -> Option<u64> {
        self.taking_ms.into_iter().chain(self.giving_ms).min()
    }

    #[inline]
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        Some(self.since_ms()?.saturating_add(self.timeout_ms))
    }

    /// For how long nothing has moved.
    fn stalled_ms(&self, now_ms: u64) -> Option<u64> {
        Some(now_ms.saturating_sub(self.since_ms()?))
    }

    /// Whether a look comes so late that it was this end that stood still.
    fn is_late(&self, now_ms: u64) -> bool {
        let tolerated = (self.timeout_ms / 2).max(1);
        let late_by = self.deadline_ms().map(|at| now_ms.saturating_sub(at));
        late_by.is_some_and(|late_by| late_by >= tolerated)
    }
}

/// How often a shard without memory asks all of them, in milliseconds.
pub(crate) fn asking_interval_ms(timeout: Duration) -> u64 {
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    (timeout_ms / SHORT_PART / ASKED_TIMES).clamp(10, 1000)
}

impl<P: Protocol> Connection<P> {
    /// A turn ends.
    #[inline]
    pub(crate) fn look_at_progress(&mut self, now_ms: u64) {
        let takes = self.channel.is_to_be_taken();
        self.stall.expect(takes, self.writing > 0, now_ms);
    }

    /// The peer may have stalled for too long.
    pub(crate) fn look_for_stall(&mut self, core: &mut Core) {
        if self.stall.deadline_ms().is_some_and(|at| core.now_ms >= at) {
            if self.stall.is_late(core.now_ms) {
                // What the peer did meanwhile is about to be looked at.
                self.stall = Stall {
                    taking_ms: self.stall.taking_ms.map(|_| core.now_ms),
                    giving_ms: self.stall.giving_ms.map(|_| core.now_ms),
                    ..self.stall
                };
            } else {
                self.cut_if_stalled(core, self.stall.timeout_ms);
            }
        }
    }

    /// Somebody finds no memory: a peer that has stalled for a while makes room.
    pub(crate) fn make_room_if_stalled(&mut self, core: &mut Core) {
        if self.held_bytes() > 0 {
            self.cut_if_stalled(core, self.stall.timeout_ms / SHORT_PART);
        }
    }

    fn cut_if_stalled(&mut self, core: &mut Core, tolerated_ms: u64) {
        let now_ms = core.now_ms;
        let stalled = |stall: &Stall| {
            let stalled_ms = stall.stalled_ms(now_ms);
            stalled_ms.filter(|stalled_ms| *stalled_ms >= tolerated_ms)
        };
        if self.channel.is_closing() || stalled(&self.stall).is_none() {
            return;
        }
        // It may have moved since the last turn, or it is storage that writes wait for.
        if !self.awaits_data() {
            self.stall.given(now_ms);
        }
        self.channel.settle(core);
        if self.channel.may_send() && self.send(core) == Fate::Over {
            return;
        }
        if !self.channel.is_to_be_taken() {
            self.stall.taken(now_ms);
        }
        let Some(stalled_ms) = stalled(&self.stall) else {
            return;
        };
        tracing::warn!(
            peer = %self.channel.peer,
            name = self.protocol.peer_name(),
            stalled_ms,
            held_bytes = self.held_bytes(),
            "closing a connection whose peer takes nothing of what it asked for, or gives nothing of what it was asked for"
        );
        self.channel.cut(now_ms);
    }

    /// Whether write data are to come.
    fn awaits_data(&self) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.any(|task| matches!(task.state, TaskState::Receiving))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall() -> Stall {
        Stall::new(Duration::from_secs(60))
    }

    #[test]
    fn each_clock_runs_while_something_is_to_move_and_starts_anew_when_it_does() {
        let mut stall = stall();
        stall.taken(1);
        stall.expect(false, false, 2);
        assert_eq!(stall.deadline_ms(), None);
        stall.expect(true, false, 1_000);
        stall.expect(true, false, 5_000);
        assert_eq!(stall.deadline_ms(), Some(61_000));
        assert_eq!(stall.stalled_ms(6_000), Some(5_000));
        stall.taken(7_000);
        stall.expect(true, true, 8_000);
        assert_eq!(stall.deadline_ms(), Some(67_000));
        // Taking something is not giving, and giving is not taking.
        stall.taken(20_000);
        assert_eq!(stall.deadline_ms(), Some(68_000));
        stall.given(30_000);
        assert_eq!(stall.deadline_ms(), Some(80_000));
        stall.expect(false, false, 31_000);
        assert_eq!(stall.deadline_ms(), None);
    }

    #[test]
    fn a_look_that_comes_late_says_nothing_of_the_peer() {
        let mut stall = stall();
        stall.expect(true, false, 0);
        assert!(!stall.is_late(60_000) && !stall.is_late(89_999));
        assert!(stall.is_late(90_000));
    }
}
