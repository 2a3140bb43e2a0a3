//! Keep Alive (NVMe base 2.0 §3.9): a host that says nothing for too long is gone.
//!
//! The timer is the traffic based one (CTRATT.TBKAS): any command on any queue restarts it. Queues
//! leave a mark, which is looked at twice in each Keep Alive Timeout; two looks in a row without a
//! mark end it. A host that falls silent is so noticed after one to one and a half timeouts. If a look
//! comes late by half its period or more, then it was this end that stalled, and commands may wait to
//! be received: it takes another look.

use std::sync::atomic::Ordering;

use super::admin_command::QueueHandle;
use super::state::Controller;
use crate::status::Status;

/// What became of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deadline {
    Nothing,
    /// The host is gone: close all these connections, the admin queue's too.
    KeepAliveExpired {
        /// All queues of the controller.
        queues: Vec<QueueHandle>,
    },
}

impl Controller {
    /// When [`Self::handle_deadline`] wants to be called.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.lock().keep_alive.deadline_ms
    }

    /// The time may have come. Calls before the deadline do nothing.
    #[must_use]
    pub fn handle_deadline(&self, now_ms: u64) -> Deadline {
        let mut state = self.lock();
        if state.keep_alive.deadline_ms.is_none_or(|at| now_ms < at) {
            return Deadline::Nothing;
        }
        // All marks are taken, not just those up to the first.
        let active = self
            .activity
            .iter()
            .fold(false, |active, queue| queue.take() | active);
        if !state.keep_alive.look(!active, now_ms) {
            return Deadline::Nothing;
        }
        state.properties.fail();
        self.enabled.store(false, Ordering::Release);
        let mut queues = state.open_io_queues();
        queues.push(self.admin_queue);
        state.errors.record_event(Status::KEEP_ALIVE_TIMER_EXPIRED);
        Deadline::KeepAliveExpired { queues }
    }
}
