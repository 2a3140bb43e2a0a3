//! The timer of Keep Alive, and the marks that it looks for.

use std::sync::atomic::{AtomicBool, Ordering};

/// KAS: the timer counts in units of 100 ms.
pub(in crate::controller) const GRANULARITY_MS: u32 = 100;

/// A mark that a queue leaves. Alone in its cache line (and the one fetched with it), so that queues
/// on different cores do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(in crate::controller) struct Activity(AtomicBool);

impl Activity {
    #[inline]
    pub(in crate::controller) fn note(&self) {
        // Reading first keeps the line shared while the mark is there already.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub(in crate::controller) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(in crate::controller) struct KeepAlive {
    /// KATO, rounded up to the granularity; 0: off.
    pub(in crate::controller) timeout_ms: u32,
    /// Enforced in place of a timeout of 0.
    pub(in crate::controller) idle_ms: Option<u32>,
    /// Milliseconds from one check to the next; `None` without a timeout.
    pub(in crate::controller) look_period_ms: Option<u64>,
    /// When to look for marks.
    pub(in crate::controller) deadline_ms: Option<u64>,
    /// The last look found none.
    pub(in crate::controller) was_silent: bool,
}

impl KeepAlive {
    pub(in crate::controller) fn new(timeout_ms: u32, idle_ms: Option<u32>, now_ms: u64) -> Self {
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

    /// KATO in milliseconds; 0: the timer is off.
    pub(in crate::controller) const fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    pub(in crate::controller) fn set_timeout(&mut self, timeout_ms: u32, now_ms: u64) {
        self.timeout_ms = timeout_ms
            .checked_next_multiple_of(GRANULARITY_MS)
            .unwrap_or(timeout_ms);
        self.was_silent = false;
        self.schedule(now_ms);
    }

    pub(in crate::controller) fn schedule(&mut self, now_ms: u64) {
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
    pub(in crate::controller) fn is_late(&self, now_ms: u64) -> bool {
        let late_by = self.deadline_ms.map(|at| now_ms.saturating_sub(at));
        let tolerated = self.look_period_ms.map(|period| period.div_ceil(2));
        late_by >= tolerated
    }

    /// A look at the marks. Whether the host is gone.
    pub(in crate::controller) fn look(&mut self, is_silent: bool, now_ms: u64) -> bool {
        if is_silent && self.was_silent && !self.is_late(now_ms) {
            self.deadline_ms = None;
            return true;
        }
        self.was_silent = is_silent;
        self.schedule(now_ms);
        false
    }
}
