//! When a connection began, was heard of last, and was closed. `terminate` has the timers that follow from it.

/// Times are milliseconds of the driver's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    pub(super) started_ms: u64,
    pub(super) last_heard_ms: u64,
    pub(super) closed_ms: u64,
    /// Memory has been given back, and nothing has come since.
    pub(super) idle: bool,
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
