//! Latency, kept in histograms to three digits.

use hdrhistogram::Histogram;
use serde::Serialize;

/// An hour: whatever took longer is counted as that.
const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Takes in latencies.
///
/// Operations that were sent together and answered together have the same latency; a run of equal
/// ones costs the histogram one step.
#[derive(Debug, Clone)]
pub struct Recorder {
    histogram: Histogram<u64>,
    last_ns: u64,
    /// How many of the last one are not in the histogram yet.
    pending: u64,
}

impl Recorder {
    #[must_use]
    pub fn new() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, LONGEST_NS, DIGITS)
                .expect("from 1 ns to an hour, to three digits"),
            last_ns: 0,
            pending: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, ns: u64) {
        if ns != self.last_ns {
            self.settle();
            self.last_ns = ns;
        }
        self.pending += 1;
    }

    #[inline]
    fn settle(&mut self) {
        if self.pending > 0 {
            self.histogram
                .saturating_record_n(self.last_ns, self.pending);
            self.pending = 0;
        }
    }

    pub fn forget(&mut self) {
        self.pending = 0;
        self.histogram.reset();
    }

    /// What was recorded, and none any more.
    #[must_use]
    pub fn finish(mut self) -> Histogram<u64> {
        self.settle();
        self.histogram
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds what another thread has seen.
pub fn add(sum: &mut Histogram<u64>, other: &Histogram<u64>) {
    sum.add(other).expect("all have the same bounds");
}

/// An empty histogram, to add to.
#[must_use]
pub fn empty() -> Histogram<u64> {
    Recorder::new().histogram
}

/// What is told of a histogram, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    pub mean: f64,
    pub min: u64,
    /// Half took no longer.
    pub p50: u64,
    /// 90 % took no longer.
    pub p90: u64,
    /// 99 % took no longer.
    pub p99: u64,
    /// 99.9 % took no longer.
    pub p99_9: u64,
    /// 99.99 % took no longer.
    pub p99_99: u64,
    pub max: u64,
}

impl Latency {
    /// Nothing where nothing was recorded.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let quantile = |q| histogram.value_at_quantile(q);
        Some(Self {
            mean: histogram.mean(),
            min: histogram.min(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            p99_99: quantile(0.9999),
            max: histogram.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut recorder = Recorder::new();
        for ns in 1..=100_000_u64 {
            recorder.record(ns * 100);
        }
        let latency = Latency::of(&recorder.finish()).unwrap();
        let near = |value: u64, expected: u64| value.abs_diff(expected) * 1_000 <= expected;
        assert!(near(latency.p50, 5_000_000), "{latency:?}");
        assert!(near(latency.p99, 9_900_000));
        assert!(near(latency.p99_9, 9_990_000));
        assert!(near(latency.p99_99, 9_999_000));
        assert!(near(latency.max, 10_000_000));
        assert!((latency.mean / 5_000_050.0 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_run_of_equal_latencies_counts_each_of_them() {
        let mut recorder = Recorder::new();
        for ns in [5, 5, 5, 7, 7, 5] {
            recorder.record(ns);
        }
        let histogram = recorder.finish();
        assert_eq!(histogram.len(), 6);
        assert_eq!(histogram.count_at(5), 4);
        assert_eq!(histogram.count_at(7), 2);
    }

    #[test]
    fn what_takes_more_than_an_hour_is_still_counted() {
        let mut recorder = Recorder::new();
        recorder.record(u64::MAX);
        assert_eq!(recorder.finish().len(), 1);
    }

    #[test]
    fn nothing_has_no_latency() {
        assert_eq!(Latency::of(&empty()), None);
    }
}
