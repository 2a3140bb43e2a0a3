//! A bound on the rate of a copy.

use std::time::{Duration, Instant};

/// Lets bytes pass at a rate. What was not used for a while is not made up for, beyond one chunk.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: Option<u64>,
    /// When what was let pass so far will have passed at the rate.
    paid_until: Instant,
    /// How far `paid_until` may be behind.
    slack: Duration,
}

impl Pace {
    /// No more than `bytes_per_second`, if given; a chunk of `chunk` bytes may be early.
    pub(super) fn new(bytes_per_second: Option<u64>, chunk: u64, now: Instant) -> Self {
        let bytes_per_second = bytes_per_second.map(|rate| rate.max(1));
        Self {
            bytes_per_second,
            paid_until: now,
            slack: bytes_per_second.map_or(Duration::ZERO, |rate| time_of(chunk, rate)),
        }
    }

    /// How long the next bytes have to wait; `None`: they may go.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        self.bytes_per_second?;
        if let Some(earliest) = now.checked_sub(self.slack) {
            self.paid_until = self.paid_until.max(earliest);
        }
        self.paid_until
            .checked_duration_since(now)
            .filter(|pause| !pause.is_zero())
    }

    /// Takes `bytes` off the allowance of the rate.
    pub(super) fn spend(&mut self, bytes: u64) {
        if let Some(rate) = self.bytes_per_second {
            self.paid_until += time_of(bytes, rate);
        }
    }
}

fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    // A day is longer than any chunk should take, and keeps the sum within an Instant.
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(Duration::from_secs(86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate() {
        let mut now = Instant::now();
        let start = now;
        let mut pace = Pace::new(Some(1000), 100, now);
        let mut passed = 0;
        while passed < 2000 {
            match pace.pause(now) {
                Some(pause) => now += pause,
                None => {
                    pace.spend(100);
                    passed += 100;
                }
            }
        }
        let seconds = now.duration_since(start).as_secs_f64();
        assert!((1.8..=2.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_long_wait_is_not_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(Some(1000), 100, start);
        let later = start + Duration::from_secs(60);
        let mut burst = 0;
        while pace.pause(later).is_none() {
            pace.spend(100);
            burst += 100;
        }
        assert_eq!(burst, 200);
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let now = Instant::now();
        let mut pace = Pace::new(None, 1, now);
        pace.spend(u64::MAX);
        assert_eq!(pace.pause(now), None);
    }
}
