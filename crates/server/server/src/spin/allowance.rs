//! The processor time that polling may cost. Arithmetic alone: times are nanoseconds since the shard began.
//!
//! - **The budget**: a share of the core's time, over a tenth of a second.
//! - **Others**: no polling for a while, longer each time, when another thread wants the core.
//! - **In vain**: time polled until the window was over and the shard fell asleep after all. Outside of trials it may be
//!   no more than what the wake-ups of as many waits cost, the peer's where long windows are best. That is the
//!   ski-rental bound: renting until the rent reaches the price, and then buying, costs at most twice the better
//!   choice.

/// The budget is kept over so long.
const BUDGET_WINDOW_NS: u64 = 100_000_000;

/// How long polling pauses, at first and at most, while others want the core.
const CONTENTION_PAUSE_NS: (u64, u64) = (10_000_000, 1_000_000_000);

/// Two looks at the clock that are this far apart while polling: somebody else had the core in between.
pub(super) const PREEMPTED_NS: u64 = 100_000;
/// Others want the core when they had so much of the time that was polled for, or not, since. Kernel
/// threads and neighbours of a virtual machine take a few percent.
const LOST_PERCENT_MAX: u64 = 20;
/// Of so much time at least; older times count half after twice as much.
const LOST_EVIDENCE_NS: u64 = 25_000_000;

/// Most that can be saved up for polling in vain, in wake-ups.
const SAVED_WAKE_UPS: u64 = 64;

/// A pause that doubles while what caused it goes on.
#[derive(Clone, Copy, Debug)]
struct Pause {
    range_ns: (u64, u64),
    next_ns: u64,
    until: u64,
}

impl Pause {
    fn new(range_ns: (u64, u64)) -> Self {
        Self {
            range_ns,
            next_ns: range_ns.0,
            until: 0,
        }
    }

    fn begin(&mut self, now: u64) {
        let quiet_ns = now.saturating_sub(self.until);
        if quiet_ns > self.next_ns * 4 {
            self.next_ns = self.range_ns.0;
        }
        self.until = now + self.next_ns;
        self.next_ns = (self.next_ns * 2).min(self.range_ns.1);
    }

    fn is_over(&self, now: u64) -> bool {
        now >= self.until
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Allowance {
    budget_percent: u64,
    /// What may be spent now, and when that was worked out. Below zero after a window that was longer
    /// than what was left.
    budget_ns: i64,
    budget_at: u64,
    contention: Pause,
    /// Polled lately, and lost to others while polling.
    lately_polled_ns: u64,
    lately_lost_ns: u64,
    /// What may be polled in vain.
    vain_ns: u64,
}

impl Allowance {
    pub(super) fn new(budget_percent: u8) -> Self {
        Self {
            budget_percent: u64::from(budget_percent.min(100)),
            budget_ns: 0,
            budget_at: 0,
            contention: Pause::new(CONTENTION_PAUSE_NS),
            lately_polled_ns: 0,
            lately_lost_ns: 0,
            vain_ns: 0,
        }
    }

    /// Whether there is any.
    pub(super) fn is_nothing(&self) -> bool {
        self.budget_percent == 0
    }

    /// A wait begins that ends with a wake-up of that cost, unless polling spares it.
    #[inline]
    pub(super) fn wait(&mut self, wake_up_ns: u64) {
        self.vain_ns = (self.vain_ns + wake_up_ns).min(wake_up_ns * SAVED_WAKE_UPS);
    }

    /// Whether a window may be polled that long in vain.
    #[inline]
    pub(super) fn covers(&self, window_ns: u64) -> bool {
        window_ns <= self.vain_ns
    }

    /// Whether budget and others permit polling.
    pub(super) fn permits(&mut self, now: u64) -> bool {
        !self.is_contended(now) && self.is_within_budget(now)
    }

    /// Whether others want the core.
    pub(super) fn is_contended(&self, now: u64) -> bool {
        !self.contention.is_over(now)
    }

    fn is_within_budget(&mut self, now: u64) -> bool {
        let earned = now.saturating_sub(self.budget_at) * self.budget_percent / 100;
        let most = BUDGET_WINDOW_NS * self.budget_percent / 100;
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        self.budget_ns = (self.budget_ns + signed(earned)).min(signed(most));
        self.budget_at = now;
        self.budget_ns > 0
    }

    /// `spent_ns` were polled. `hit`: until something came. `lost_ns` of it somebody else had the core.
    /// Returns whether others want it so much that polling pauses.
    pub(super) fn polled(&mut self, now: u64, spent_ns: u64, lost_ns: u64, hit: bool) -> bool {
        self.budget_ns -= i64::try_from(spent_ns).unwrap_or(i64::MAX);
        if !hit {
            self.vain_ns = self.vain_ns.saturating_sub(spent_ns);
        }
        self.lately_polled_ns += spent_ns;
        self.lately_lost_ns += lost_ns;
        if self.lately_polled_ns < LOST_EVIDENCE_NS {
            return false;
        }
        let contended = self.lately_lost_ns * 100 > self.lately_polled_ns * LOST_PERCENT_MAX;
        if contended {
            self.lately_polled_ns = 0;
            self.lately_lost_ns = 0;
            self.contention.begin(now);
        } else if self.lately_polled_ns > LOST_EVIDENCE_NS * 2 {
            self.lately_polled_ns /= 2;
            self.lately_lost_ns /= 2;
        }
        contended
    }
}
