//! Limits of a volume: operations and bytes per second, for all its clients together.
//!
//! A [`Throttle`] tells when an operation may begin; the caller holds it back until then. Each limit is a clock of
//! its own that every operation moves on by its cost, whichever event loop it came to: operations begin in the order
//! in which they asked, so that no event loop gets more than another. A volume that was idle has saved up to `burst`,
//! so that short bursts are not delayed.
//!
//! ```text
//!              now                       clock
//!   ────────────┼────────────┼─────────────┼──────►
//!               │   burst    │    delay    │
//! ```
//!
//! Other limits hold for what waits, too: the clocks forget the operations that wait, those who watch are told, and have
//! them ask again. What has begun stays used up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What a volume may do in a second. `None`: as much as it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub iops: Option<u64>,
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
    pub bytes: Option<u64>,
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
    /// How much of these rates an idle volume saves. `None`: `BURST`.
    pub burst: Option<Duration>,
}

/// What an idle volume saves when nothing is said.
pub const BURST: Duration = Duration::from_millis(100);

/// No operation waits longer, whatever came before it: hosts give commands up after 30 seconds.
pub const DELAY_MAX: Duration = Duration::from_secs(10);

impl RateLimits {
    /// Whether there is any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.rates().into_iter().any(|rate| rate.is_some())
    }

    fn rates(&self) -> [Option<u64>; CLOCKS] {
        [
            self.iops,
            self.read_iops,
            self.write_iops,
            self.bytes,
            self.read_bytes,
            self.write_bytes,
        ]
    }
}

const CLOCKS: usize = 6;
/// Clocks that count operations; the others count bytes.
const OF_OPERATIONS: usize = 3;

/// Which way the data of an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Read,
    Write,
}

/// One limit as a clock: the time until which it is used up.
#[derive(Debug, Default)]
struct Clock {
    /// Units per second; 0: no limit.
    rate: AtomicU64,
    /// Nanoseconds since the throttle was made up to which the rate is used up.
    used_until: AtomicU64,
}

/// What a throttle has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Operations that had to wait.
    pub operations: u64,
    /// For so long together.
    pub time: Duration,
}

/// The limits of a volume, and how much of them is used up. See the module documentation.
#[derive(Debug)]
pub struct Throttle {
    is_limited: AtomicBool,
    clocks: [Clock; CLOCKS],
    burst_ns: AtomicU64,
    epoch: Instant,
    delayed: AtomicU64,
    delayed_ns: AtomicU64,
    /// How often there have been other limits.
    version: AtomicU64,
    watchers: Mutex<Watchers>,
}

/// Who is told of other limits.
#[derive(Default)]
struct Watchers(Vec<Weak<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} watchers", self.0.len())
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            is_limited: AtomicBool::new(false),
            clocks: Default::default(),
            burst_ns: AtomicU64::new(nanoseconds(BURST)),
            epoch: Instant::now(),
            delayed: AtomicU64::new(0),
            delayed_ns: AtomicU64::new(0),
            version: AtomicU64::new(0),
            watchers: Mutex::default(),
        }
    }
}

impl Throttle {
    /// Whether there are limits. If not, [`Self::delay`] need not be asked.
    #[inline]
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Other limits from now on. Nothing happens if they are those in force.
    pub fn set(&self, limits: &RateLimits) {
        self.set_at(limits, Instant::now());
    }

    /// The same, at a time that is given.
    pub fn set_at(&self, limits: &RateLimits, now: Instant) {
        let watchers = self.watchers();
        let burst_ns = nanoseconds(limits.burst.unwrap_or(BURST));
        let is_same = |(clock, rate): (&Clock, Option<u64>)| {
            clock.rate.load(Ordering::Relaxed) == rate.unwrap_or(0)
        };
        let burst_before = self.burst_ns.swap(burst_ns, Ordering::Relaxed);
        if burst_before == burst_ns && self.clocks.iter().zip(limits.rates()).all(is_same) {
            return;
        }
        let now = nanoseconds(now.saturating_duration_since(self.epoch));
        for (clock, rate) in self.clocks.iter().zip(limits.rates()) {
            clock.set(rate.unwrap_or(0), (burst_before, burst_ns), now);
        }
        self.is_limited.store(limits.any(), Ordering::Relaxed);
        // Whoever sees this version sees these limits.
        self.version.fetch_add(1, Ordering::Release);
        for tell in watchers.0.iter().filter_map(Weak::upgrade) {
            tell();
        }
    }

    /// How often there have been other limits. An operation that has waited under an earlier version asks again.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Has `watcher` called after each change of the limits, by the thread that makes it, for as long as it is there.
    pub fn watch(&self, watcher: Weak<dyn Fn() + Send + Sync>) {
        let mut watchers = self.watchers();
        watchers
            .0
            .retain(|one| one.strong_count() > 0 && !one.ptr_eq(&watcher));
        watchers.0.push(watcher);
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        let watchers = self.watchers.lock();
        watchers.unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> RateLimits {
        let rate = |clock: usize| {
            let rate = self.clocks[clock].rate.load(Ordering::Relaxed);
            (rate > 0).then_some(rate)
        };
        RateLimits {
            iops: rate(0),
            read_iops: rate(1),
            write_iops: rate(2),
            bytes: rate(3),
            read_bytes: rate(4),
            write_bytes: rate(5),
            burst: Some(Duration::from_nanos(self.burst_ns.load(Ordering::Relaxed))),
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn delays(&self) -> Delays {
        Delays {
            operations: self.delayed.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.delayed_ns.load(Ordering::Relaxed)),
        }
    }

    /// An operation on so many bytes asks to begin. It is counted; it may begin after this time.
    pub fn delay(&self, way: Way, bytes: u64, now: Instant) -> Duration {
        let delay = self.advance(way, bytes, now);
        if delay > 0 {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
        Duration::from_nanos(delay)
    }

    /// The same for an operation that has waited, and would have for `left` more, when the limits became others.
    pub fn delay_again(&self, way: Way, bytes: u64, now: Instant, left: Duration) -> Duration {
        self.waits_less(left);
        Duration::from_nanos(self.advance(way, bytes, now))
    }

    /// An operation does not wait for so long as it was told to.
    pub fn waits_less(&self, left: Duration) {
        self.delayed_ns
            .fetch_sub(nanoseconds(left), Ordering::Relaxed);
    }

    fn advance(&self, way: Way, bytes: u64, now: Instant) -> u64 {
        let now = nanoseconds(now.saturating_duration_since(self.epoch));
        let burst = self.burst_ns.load(Ordering::Relaxed);
        let other_way = match way {
            Way::Read => 2,
            Way::Write => 1,
        };
        let mut delay = 0;
        for (number, clock) in self.clocks.iter().enumerate() {
            if number % OF_OPERATIONS == other_way {
                continue;
            }
            let units = if number < OF_OPERATIONS { 1 } else { bytes };
            delay = delay.max(clock.advance(units, now).saturating_sub(burst));
        }
        let delay = delay.min(nanoseconds(DELAY_MAX));
        self.delayed_ns.fetch_add(delay, Ordering::Relaxed);
        delay
    }
}

impl Clock {
    /// Another rate and what it saves, in place of `before`. Operations that wait are those beyond that, and are
    /// forgotten. The same part of what can be saved stays used up: operations of a fast rate must not have those of a
    /// slow one wait for as many.
    fn set(&self, rate: u64, (before, burst): (u64, u64), now: u64) {
        let is_new = self.rate.swap(rate, Ordering::Relaxed) == 0;
        let used_until = self.used_until.load(Ordering::Relaxed);
        let ahead = used_until.saturating_sub(now).min(before);
        let ahead = u128::from(ahead) * u128::from(burst) / u128::from(before.max(1));
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        let used = if is_new { 0 } else { now.saturating_add(ahead) };
        self.used_until.store(used, Ordering::Relaxed);
    }

    /// Uses up so many units more. Returns how far it was ahead of `now` before that.
    fn advance(&self, units: u64, now: u64) -> u64 {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 || units == 0 {
            return 0;
        }
        let cost = u128::from(units) * 1_000_000_000 / u128::from(rate);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        // A queue that never gets shorter must not grow into the time when hosts have given it up.
        let latest = now.saturating_add(2 * nanoseconds(DELAY_MAX));
        let mut used_until = self.used_until.load(Ordering::Relaxed);
        loop {
            let from = used_until.max(now);
            let to = from.saturating_add(cost).min(latest.max(from));
            let exchanged = self.used_until.compare_exchange_weak(
                used_until,
                to,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return from - now,
                Err(found) => used_until = found,
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn throttle(limits: RateLimits) -> (Throttle, Instant) {
        let throttle = Throttle::default();
        throttle.set_at(&limits, throttle.epoch);
        throttle.version.store(0, Ordering::Relaxed);
        let now = throttle.epoch + Duration::from_secs(60);
        (throttle, now)
    }

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn without_limits_nothing_waits() {
        let (throttle, now) = throttle(RateLimits::default());
        assert!(!throttle.is_limited());
        assert_eq!(throttle.delay(Way::Read, 1 << 40, now), Duration::ZERO);
        assert_eq!(throttle.delays(), Delays::default());
    }

    #[test]
    fn operations_begin_at_the_rate_once_what_was_saved_is_used_up() {
        let (throttle, now) = throttle(RateLimits {
            iops: Some(1000),
            burst: Some(ms(10)),
            ..RateLimits::default()
        });
        let delays: Vec<Duration> = (0..15)
            .map(|_| throttle.delay(Way::Write, 512, now))
            .collect();
        assert_eq!(
            delays[..11],
            [Duration::ZERO; 11],
            "a burst of 10 ms, and one"
        );
        assert_eq!(delays[11..], [ms(1), ms(2), ms(3), ms(4)]);
        // Idle again, it saves again, and no more than a burst.
        let later = now + ms(1000);
        let delays = (0..12).map(|_| throttle.delay(Way::Read, 512, later));
        assert_eq!(delays.filter(|delay| *delay > Duration::ZERO).count(), 1);
        assert_eq!(throttle.delays().operations, 5);
        assert_eq!(throttle.delays().time, ms(11));
    }

    #[test]
    fn each_way_has_limits_of_its_own_and_both_share_those_of_all() {
        let (throttle, now) = throttle(RateLimits {
            bytes: Some(1_000_000),
            write_iops: Some(10),
            burst: Some(Duration::ZERO),
            ..RateLimits::default()
        });
        assert_eq!(throttle.delay(Way::Write, 1000, now), Duration::ZERO);
        assert_eq!(throttle.delay(Way::Read, 1000, now), ms(1));
        assert_eq!(throttle.delay(Way::Write, 1000, now), ms(100));
        assert_eq!(
            throttle.delay(Way::Read, 0, now),
            Duration::ZERO,
            "no bytes"
        );
    }

    #[test]
    fn nothing_waits_longer_than_hosts_do() {
        let (throttle, now) = throttle(RateLimits {
            iops: Some(1),
            ..RateLimits::default()
        });
        let longest = (0..1000).map(|_| throttle.delay(Way::Read, 512, now)).max();
        assert_eq!(longest, Some(DELAY_MAX));
        assert!(throttle.delay(Way::Read, 512, now + ms(21_000)) < DELAY_MAX);
    }

    #[test]
    fn new_limits_keep_what_has_begun_and_forget_what_waits() {
        let (throttle, now) = throttle(RateLimits {
            iops: Some(100),
            burst: Some(ms(100)),
            ..RateLimits::default()
        });
        // Eleven begin, and nine wait.
        let delays: Vec<_> = (0..20)
            .map(|_| throttle.delay(Way::Read, 512, now))
            .collect();
        assert_eq!(delays[19], ms(90));
        let faster = RateLimits {
            iops: Some(1000),
            burst: Some(ms(10)),
            ..RateLimits::default()
        };
        throttle.set_at(&faster, now);
        assert_eq!((throttle.limits(), throttle.version()), (faster, 1));
        // All that can be saved was used up, and is.
        let again = |n: usize| throttle.delay_again(Way::Read, 512, now, delays[11 + n]);
        assert_eq!([0, 1, 2].map(again), [ms(0), ms(1), ms(2)]);
        let left: Duration = delays[14..].iter().sum();
        assert_eq!(throttle.delays().operations, 9);
        assert_eq!(throttle.delays().time, left + ms(3));
    }

    #[test]
    fn the_same_limits_change_nothing() {
        let limits = RateLimits {
            bytes: Some(1024),
            ..RateLimits::default()
        };
        let (throttle, now) = throttle(limits);
        let version = throttle.version();
        throttle.delay(Way::Read, 4096, now);
        let told = Arc::new(AtomicU64::new(0));
        let tells = Arc::clone(&told);
        let watcher: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            tells.fetch_add(1, Ordering::Relaxed);
        });
        throttle.watch(Arc::downgrade(&watcher));
        // Nothing said of the burst is the burst that is in force.
        throttle.set_at(&limits, now);
        assert_eq!(throttle.delay(Way::Read, 1, now), ms(4000) - BURST);
        assert_eq!(throttle.version(), version);
        assert_eq!(told.load(Ordering::Relaxed), 0);
        throttle.set_at(&RateLimits::default(), now);
        assert!(!throttle.is_limited());
        assert_eq!(throttle.version(), version + 1);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        drop(watcher);
        throttle.set_at(&limits, now);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn threads_together_keep_to_the_rate() {
        let (throttle, now) = throttle(RateLimits {
            iops: Some(1000),
            burst: Some(Duration::ZERO),
            ..RateLimits::default()
        });
        let mut delays: Vec<Duration> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let asks = || {
                        (0..500)
                            .map(|_| throttle.delay(Way::Read, 1, now))
                            .collect()
                    };
                    scope.spawn(asks)
                })
                .collect();
            let each = threads.into_iter().map(|thread| thread.join().unwrap());
            each.flat_map(|delays: Vec<Duration>| delays).collect()
        });
        delays.sort_unstable();
        assert!(
            (0..2000).zip(&delays).all(|(n, delay)| *delay == ms(n)),
            "each its own moment"
        );
    }
}
