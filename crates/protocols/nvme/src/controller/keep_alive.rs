//! Keep Alive (NVMe base 2.0 §3.9): a host that says nothing for too long is gone.
//!
//! The timer is the traffic based one (CTRATT.TBKAS): any command on any queue restarts it. Queues
//! leave a mark, which is looked at twice in each Keep Alive Timeout; two looks in a row without a
//! mark end it. A host that falls silent is so noticed after one to one and a half timeouts. If a look
//! comes late by half its period or more, then it was this end that stalled, and commands may wait to
//! be received: it takes another look.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Controller, QueueHandle};
use crate::status::Status;

/// KAS: the timer counts in units of 100 ms.
pub(super) const GRANULARITY_MS: u32 = 100;

/// What became of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Nothing yet.
    Nothing,
    /// The host is gone: close all these connections, the admin queue's too.
    KeepAliveExpired {
        /// All queues of the controller.
        queues: Vec<QueueHandle>,
    },
}

/// A mark that a queue leaves. Alone in its cache line (and the one fetched with it), so that queues
/// on different cores do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Activity(AtomicBool);

impl Activity {
    #[inline]
    pub(super) fn note(&self) {
        // Reading first keeps the line shared while the mark is there already.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// The timer.
#[derive(Debug)]
pub(super) struct KeepAlive {
    /// KATO, rounded up to the granularity; 0: off.
    timeout_ms: u32,
    /// Enforced in place of a timeout of 0.
    idle_ms: Option<u32>,
    /// Between two looks.
    look_period_ms: Option<u64>,
    /// When to look for marks.
    deadline_ms: Option<u64>,
    /// The last look found none.
    was_silent: bool,
}

impl KeepAlive {
    pub(super) fn new(timeout_ms: u32, idle_ms: Option<u32>, now_ms: u64) -> Self {
        let mut timer = Self {
            timeout_ms: 0,
            idle_ms,
            look_period_ms: None,
            deadline_ms: None,
            was_silent: false,
        };
        timer.set_timeout(timeout_ms, now_ms);
        timer
    }

    /// KATO.
    pub(super) const fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    pub(super) fn set_timeout(&mut self, timeout_ms: u32, now_ms: u64) {
        self.timeout_ms = timeout_ms
            .checked_next_multiple_of(GRANULARITY_MS)
            .unwrap_or(timeout_ms);
        self.was_silent = false;
        self.schedule(now_ms);
    }

    fn schedule(&mut self, now_ms: u64) {
        let period = match self.timeout_ms {
            0 => self.idle_ms,
            timeout => Some(timeout),
        };
        self.look_period_ms = period.map(|period| u64::from(period.div_ceil(2)));
        self.deadline_ms = self
            .look_period_ms
            .map(|period| now_ms.saturating_add(period));
    }

    /// Whether a look comes so late that silence says nothing of the host.
    fn is_late(&self, now_ms: u64) -> bool {
        let late_by = self.deadline_ms.map(|at| now_ms.saturating_sub(at));
        let tolerated = self.look_period_ms.map(|period| period.div_ceil(2));
        late_by >= tolerated
    }

    /// A look at the marks. Whether the host is gone.
    fn look(&mut self, is_silent: bool, now_ms: u64) -> bool {
        if is_silent && self.was_silent && !self.is_late(now_ms) {
            self.deadline_ms = None;
            return true;
        }
        self.was_silent = is_silent;
        self.schedule(now_ms);
        false
    }
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
