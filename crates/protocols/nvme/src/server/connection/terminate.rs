//! The end of a connection, and what happens when nothing comes in.
//!
//! | timer | runs | ends | when it is due |
//! |---|---|---|---|
//! | connect | from the start | a Connect that succeeds | the connection closes |
//! | idle | from the last byte received or sent | any byte | memory is given back |
//! | terminate | from the C2HTermReq | the host closes | the connection closes |

use longshore_wire::transmit::Transmit;

use super::state::{CloseReason, Connection, Phase};
use crate::pdu::FatalError;

/// What is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    ConnectTimeout,
    Idle,
    TerminateTimeout,
}

impl Connection {
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

    /// Bytes have left the socket, which restarts the timers of an idle peer.
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
