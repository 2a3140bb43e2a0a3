//! The decision to poll for a moment before sleeping. Arithmetic alone: times are nanoseconds since the shard began.
//!
//! Falling asleep and being woken cost some microseconds of work and more of delay, of both ends: while one sleeps, the
//! other falls asleep, too. [`Trials`] find out which way to wait makes the load fastest, [`WakeUp`] knows what a
//! wake-up costs here, which says how long a window is worth being polled, and [`Allowance`] bounds what that may cost.
//! A load is under way while gaps are short beside what would make a wake-up worth nothing; without one, nothing is
//! polled.

use longshore_transmit::WaitingState;

use super::allowance::Allowance;
use super::trials::{Totals, Trials, WAYS, Way};
use super::wake_up::WakeUp;
use crate::config::Spin;

/// [`Way::Short`] polls as long as a wake-up takes, within these bounds.
const SHORT_NS: (u64, u64) = (10_000, 100_000);
/// [`Way::Long`] polls so many times as long, within these bounds: after longer gaps a wake-up adds a tenth at most.
/// The lower one holds for peers whose wake-ups are dear while those here are cheap, or were when they were measured: a
/// core that falls asleep often does so less deeply.
const LONG_WAKE_UPS: u64 = 8;
const LONG_NS: (u64, u64) = (200_000, 500_000);

/// After a gap of so many wake-ups, and this, the load is over: a wake-up adds nothing that anybody notices.
const PAUSE_WAKE_UPS: u64 = 20;
const PAUSE_NS_MIN: u64 = 5_000_000;
/// Shorter gaps belong to what a trial measures, also those in which the scheduler let somebody else run: that
/// sleeping loses the core is part of its price.
const TRIAL_PAUSE_NS: u64 = 20_000_000;
/// It is under way again after so many shorter gaps.
const GAPS_UNDER_WAY: u32 = 8;

/// One sleep of so many is cut short in a trial, to see what a wake-up costs.
const SLEEPS_PER_SAMPLE: u32 = 4;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Policy {
    spin: Spin,
    wake_up: WakeUp,
    trials: Trials,
    allowance: Allowance,
    /// Gaps in a row that were no pause.
    gaps: u32,
    /// Sleeps since one was cut short.
    sleeps: u32,
}

impl Policy {
    pub(super) fn new(spin: Spin, budget_percent: u8) -> Self {
        Self {
            spin,
            wake_up: WakeUp::new(),
            trials: Trials::new(),
            allowance: Allowance::new(budget_percent),
            gaps: 0,
            sleeps: 0,
        }
    }

    /// Whether it can ever say anything else than "sleep".
    pub(super) fn is_off(&self) -> bool {
        self.spin == Spin::Off || self.allowance.is_nothing()
    }

    /// Whether it finds out by itself.
    pub(super) fn is_auto(&self) -> bool {
        self.spin == Spin::Auto
    }

    /// What has been found out.
    #[inline]
    pub(super) fn state(&self) -> WaitingState {
        WaitingState {
            wake_up_ns: self.wake_up.ns(),
            window_ns: self.way_ns(),
            trials: self.trials.ended(),
            is_trying: self.trials.is_under_way(),
            changes: self.trials.changes(),
        }
    }

    /// How much slower each way was than the fastest, in percent, in the last trial, and how many rounds it took.
    pub(super) fn last_trial(&self) -> ([f64; WAYS], usize) {
        self.trials.last()
    }

    /// What a wake-up costs that polling spares. Where long windows have been found best, it may be the peer's.
    fn worth_ns(&self) -> u64 {
        let wake_up_ns = self.wake_up.ns();
        match self.trials.way() {
            Way::Sleep | Way::Short => wake_up_ns,
            Way::Long => wake_up_ns.max(LONG_NS.0 / LONG_WAKE_UPS),
        }
    }

    /// For how long the shard would poll, were there no bounds.
    fn way_ns(&self) -> u64 {
        let wake_up_ns = self.wake_up.ns();
        if let Spin::For { microseconds } = self.spin {
            return u64::from(microseconds) * 1000;
        }
        match self.trials.way() {
            Way::Sleep => 0,
            Way::Short => wake_up_ns.clamp(SHORT_NS.0, SHORT_NS.1),
            Way::Long => (wake_up_ns * LONG_WAKE_UPS).clamp(LONG_NS.0, LONG_NS.1),
        }
    }

    /// For how long to poll before falling asleep, at the end of a turn. Zero: not at all.
    #[inline]
    pub(super) fn window_ns(&mut self, now: u64, totals: Totals) -> u64 {
        let wanted = match self.spin {
            Spin::Off => 0,
            Spin::For { microseconds } => u64::from(microseconds) * 1000,
            Spin::Auto => self.found_ns(now, totals),
        };
        if wanted == 0 || !self.allowance.permits(now) {
            return 0;
        }
        wanted
    }

    /// A turn ended after which polling is out of the question. A trial that has only such turns would go on without
    /// end.
    pub(super) fn not_waited(&mut self, now: u64, totals: Totals) {
        self.trials.not_waited(now, totals);
    }

    /// As long as has been found best.
    fn found_ns(&mut self, now: u64, totals: Totals) -> u64 {
        self.allowance.wait(self.worth_ns());
        if self.gaps < GAPS_UNDER_WAY {
            self.trials.not_waited(now, totals);
            return 0;
        }
        if self.allowance.is_contended(now) {
            // Whatever is tried, the shard sleeps.
            self.trials.give_up(now, totals);
            return 0;
        }
        self.trials.wait(now, totals);
        let wanted = self.way_ns();
        // What a trial costs is bounded by its length, and a way that was not taken would be judged by another one.
        if self.trials.is_under_way() || self.allowance.covers(wanted) {
            wanted
        } else {
            0
        }
    }

    /// `spent_ns` were polled. `hit`: until something came. `lost_ns` of it somebody else had the core.
    /// Returns whether others want it so much that polling pauses.
    pub(super) fn polled(
        &mut self,
        now: u64,
        totals: Totals,
        spent_ns: u64,
        lost_ns: u64,
        hit: bool,
    ) -> bool {
        let contended = self.allowance.polled(now, spent_ns, lost_ns, hit);
        if contended {
            self.trials.give_up(now, totals);
        }
        contended
    }

    /// Whether a sleep that begins now is to be cut short, so that it shows what a wake-up costs.
    pub(super) fn is_sample(&mut self) -> bool {
        if !self.trials.is_under_way() {
            return false;
        }
        self.sleeps += 1;
        let is_sample = self.sleeps >= SLEEPS_PER_SAMPLE;
        if is_sample {
            self.sleeps = 0;
        }
        is_sample
    }

    /// A sleep ended so long after its deadline.
    pub(super) fn overslept(&mut self, ns: u64) {
        self.wake_up.sample(ns);
    }

    /// Something came after so long.
    #[inline]
    pub(super) fn gap_ended(&mut self, now: u64, totals: impl FnOnce() -> Totals, gap_ns: u64) {
        let pause_ns = (self.wake_up.ns() * PAUSE_WAKE_UPS).max(PAUSE_NS_MIN);
        if gap_ns > pause_ns {
            self.gaps = 0;
            if gap_ns > TRIAL_PAUSE_NS {
                self.trials.interrupted(now, totals());
            }
            return;
        }
        self.gaps = self.gaps.saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
