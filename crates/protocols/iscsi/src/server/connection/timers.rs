//! When the initiator was heard of last, and what it owes. `deadlines` has what follows from it.

use crate::pdu::TargetTransferTag;

/// Times are milliseconds of the driver's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    pub(super) started_ms: u64,
    pub(super) last_heard_ms: u64,
    pub(super) ping: Option<Ping>,
    pub(super) logout_deadline_ms: Option<u64>,
    /// The window was closed and has opened without a response that says so.
    pub(super) announce_window: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ping {
    pub(super) target_transfer_tag: TargetTransferTag,
    pub(super) sent_ms: u64,
}

impl Timers {
    pub(super) const fn new(now_ms: u64) -> Self {
        Self {
            started_ms: now_ms,
            last_heard_ms: now_ms,
            ping: None,
            logout_deadline_ms: None,
            announce_window: false,
        }
    }

    /// Bytes have come in.
    #[inline]
    pub(super) const fn heard(&mut self, now_ms: u64) {
        self.last_heard_ms = now_ms;
    }

    /// A NOP-Out answers a ping.
    pub(super) fn ping_answered(&mut self, tag: TargetTransferTag) {
        if self
            .ping
            .is_some_and(|ping| ping.target_transfer_tag == tag)
        {
            self.ping = None;
        }
    }
}
