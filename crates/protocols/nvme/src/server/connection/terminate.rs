//! The end of a connection, and what happens when nothing comes in.
//!
//! | timer | runs | ends | when it is due |
//! |---|---|---|---|
//! | connect | from the start | a Connect that succeeds | the connection closes |
//! | idle | from the last byte received or sent | any byte | memory is given back |
//! | terminate | from the C2HTermReq | the host closes | the connection closes |

use longshore_wire::transmit::Transmit;

use super::{CloseReason, Connection, ConnectionEvent, Phase, Receiving};
use crate::pdu::encoder::push_term_req;
use crate::pdu::{FatalError, TermReq, Terminator};

/// See the module documentation. Times are milliseconds of the driver's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    started_ms: u64,
    last_heard_ms: u64,
    closed_ms: u64,
    /// Memory has been given back, and nothing has come since.
    idle: bool,
}

/// What is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    ConnectTimeout,
    Idle,
    TerminateTimeout,
}

impl Timers {
    pub(super) const fn new(now_ms: u64) -> Self {
        Self {
            started_ms: now_ms,
            last_heard_ms: now_ms,
            closed_ms: now_ms,
            idle: false,
        }
    }

    /// Bytes have come in, or left.
    #[inline]
    pub(super) const fn heard(&mut self, now_ms: u64) {
        self.last_heard_ms = now_ms;
        self.idle = false;
    }
}

impl Connection {
    /// Ends the connection because of the PDU received last: the host is told, and all further input is
    /// ignored.
    #[cold]
    pub(super) fn terminate(
        &mut self,
        error: FatalError,
        transmit: &mut Transmit,
    ) -> ConnectionEvent<'static> {
        let request = TermReq {
            by: Terminator::Controller,
            error,
        };
        push_term_req(request, self.framing.header_bytes(), transmit);
        self.close(CloseReason::Terminated(error))
    }

    /// Ends the connection: all further input is ignored.
    #[cold]
    pub(super) fn close(&mut self, reason: CloseReason) -> ConnectionEvent<'static> {
        self.phase = Phase::Closed(reason);
        self.timers.closed_ms = self.timers.last_heard_ms;
        self.receiving = Receiving::Header;
        self.ready.clear();
        ConnectionEvent::Close(reason)
    }

    /// Ends the connection for a reason of the driver's: a C2HTermReq is queued, unless the connection has
    /// ended before. Send it, then close.
    pub fn fatal(&mut self, error: FatalError, transmit: &mut Transmit, now_ms: u64) {
        if self.closed().is_none() {
            self.timers.heard(now_ms);
            self.terminate(error, transmit);
        }
    }

    fn due(&self) -> Option<(u64, Due)> {
        let timers = &self.timers;
        match self.phase {
            Phase::Closed(CloseReason::Terminated(_)) => Some((
                timers
                    .closed_ms
                    .saturating_add(self.config.terminate_timeout_ms),
                Due::TerminateTimeout,
            )),
            Phase::Closed(_) => None,
            Phase::Initializing | Phase::Unconnected => Some((
                timers
                    .started_ms
                    .saturating_add(self.config.connect_timeout_ms),
                Due::ConnectTimeout,
            )),
            Phase::Connected(_) if timers.idle || self.config.idle_ms == 0 => None,
            Phase::Connected(_) => Some((
                timers.last_heard_ms.saturating_add(self.config.idle_ms),
                Due::Idle,
            )),
        }
    }

    /// Bytes have left.
    #[inline]
    pub const fn sent(&mut self, now_ms: u64) {
        self.timers.heard(now_ms);
    }

    /// When [`Self::handle_deadline`] should be called next. Receiving and sending move it.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.due().map(|(at, _)| at)
    }

    /// Does what is due by now. A reason to close means: close, whether what is queued has been sent or
    /// not.
    pub fn handle_deadline(&mut self, transmit: &mut Transmit, now_ms: u64) -> Option<CloseReason> {
        let (at, due) = self.due()?;
        if now_ms < at {
            return None;
        }
        let reason = match due {
            Due::Idle => {
                transmit.release_memory();
                self.commands.release_memory();
                self.timers.idle = true;
                return None;
            }
            Due::ConnectTimeout => CloseReason::ConnectTimeout,
            Due::TerminateTimeout => CloseReason::TerminateTimeout,
        };
        self.close(reason);
        Some(reason)
    }
}
