//! Durations, counted in buckets whose width grows with them.
//!
//! ```text
//! value in units of 16 ns:  0 1 2 … 7 | 8 9 … 15 | 16 18 … 30 | 32 36 … 60 | …
//! bucket:                   0 1 2 … 7 | 8 9 … 15 | 16 17 … 23 | 24 25 … 31 | …
//! ```
//!
//! Eight buckets for each power of two: what is read from it is at most a sixteenth off. The memory is
//! fixed, and two of them add up to one.

use serde::Serialize;

/// log2 of the nanoseconds that are told apart at the least.
const UNIT_SHIFT: u32 = 4;
/// log2 of the buckets for each power of two.
const SUB_SHIFT: u32 = 3;
/// Longer ones than 2^36 ns, about a minute, are counted as that.
const OCTAVES: usize = 36 - UNIT_SHIFT as usize - SUB_SHIFT as usize;
const BUCKETS: usize = (OCTAVES + 1) << SUB_SHIFT;

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: [u32; BUCKETS],
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

/// What a histogram says, in nanoseconds. Quantiles are at most a sixteenth off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Durations {
    pub mean_ns: u64,
    /// Sum of all times, in nanoseconds.
    pub sum_ns: u64,
    /// Half of them were no longer.
    pub p50_ns: u64,
    /// Nine tenths were no longer.
    pub p90_ns: u64,
    /// 99 of 100 were no longer.
    pub p99_ns: u64,
    /// 999 of 1,000 were no longer.
    pub p999_ns: u64,
    /// The longest time, in nanoseconds.
    pub max_ns: u64,
}

/// Lowest and highest power of two, in nanoseconds, that [`Octaves`] counts by: 4.096 µs to 8.59 s.
const OCTAVE_SHIFTS: std::ops::RangeInclusive<u32> = 12..=33;
const OCTAVE_BOUNDS: usize = (*OCTAVE_SHIFTS.end() - *OCTAVE_SHIFTS.start() + 1) as usize;

/// What a histogram says by powers of two, where its buckets have a bound: these counts are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Octaves {
    /// How many were shorter than each of the [bounds](Self::bounds_ns).
    pub below: [u64; OCTAVE_BOUNDS],
    pub count: u64,
    pub sum_ns: u64,
}

impl Octaves {
    /// The bounds in nanoseconds, the lowest first.
    pub fn bounds_ns() -> impl Iterator<Item = u64> {
        OCTAVE_SHIFTS.map(|shift| 1 << shift)
    }

    /// Adds the counts of other operations.
    pub fn add(&mut self, other: &Self) {
        for (mine, more) in self.below.iter_mut().zip(&other.below) {
            *mine += more;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
}

impl Histogram {
    pub(crate) fn octaves(&self) -> Octaves {
        let mut octaves = Octaves {
            count: self.count,
            sum_ns: self.sum_ns,
            ..Octaves::default()
        };
        let (mut seen, mut next) = (0, 0);
        for (below, bound) in octaves.below.iter_mut().zip(Octaves::bounds_ns()) {
            let end = bucket_of(bound);
            let buckets = &self.buckets[next..end];
            seen += buckets.iter().map(|count| u64::from(*count)).sum::<u64>();
            next = end;
            *below = seen;
        }
        octaves
    }

    pub(crate) fn record(&mut self, ns: u64) {
        let bucket = &mut self.buckets[bucket_of(ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*more);
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn durations(&self) -> Durations {
        Durations {
            mean_ns: self.sum_ns.checked_div(self.count).unwrap_or(0),
            sum_ns: self.sum_ns,
            p50_ns: self.quantile(500),
            p90_ns: self.quantile(900),
            p99_ns: self.quantile(990),
            p999_ns: self.quantile(999),
            max_ns: self.max_ns,
        }
    }

    /// The middle of the bucket in which so many of 1,000 are reached.
    fn quantile(&self, permille: u64) -> u64 {
        let rank = (self.count * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return middle_of(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn bucket_of(ns: u64) -> usize {
    let units = ns >> UNIT_SHIFT;
    let octave = units.checked_ilog2().unwrap_or(0).saturating_sub(SUB_SHIFT);
    let within = usize::try_from(units >> octave).unwrap_or(usize::MAX);
    let bucket = ((octave as usize) << SUB_SHIFT).saturating_add(within);
    bucket.min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> u64 {
    let octave = (bucket >> SUB_SHIFT).saturating_sub(1);
    let first = (bucket - (octave << SUB_SHIFT)) as u64;
    // In halves of a unit.
    ((2 * first + 1) << octave) << (UNIT_SHIFT - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_at_most_a_sixteenth_off() {
        for exponent in 7..36 {
            for part in 0..64 {
                let value = (1_u64 << exponent) + (part << exponent) / 64;
                let mut histogram = Histogram::default();
                histogram.record(value);
                // With something longer, so that the maximum does not help.
                let middle = middle_of(bucket_of(value));
                assert!(middle.abs_diff(value) <= value / 16, "{value}: {middle}");
                assert_eq!(histogram.durations().max_ns, value);
            }
        }
    }

    #[test]
    fn counts_by_powers_of_two_are_exact() {
        let mut histogram = Histogram::default();
        let lengths: Vec<u64> = (0..2000).map(|it| it * it * 7919).collect();
        for length in &lengths {
            histogram.record(*length);
        }
        for bound in Octaves::bounds_ns() {
            for length in [bound - 1, bound, bound + 1] {
                histogram.record(length);
            }
        }
        let octaves = histogram.octaves();
        for (place, bound) in Octaves::bounds_ns().enumerate() {
            let others = lengths.iter().filter(|length| **length < bound).count();
            let own = 3 * place + 1;
            assert_eq!(octaves.below[place], (others + own) as u64, "{bound}");
        }
        assert_eq!(octaves.count, (lengths.len() + 3 * OCTAVE_BOUNDS) as u64);
    }

    #[test]
    fn every_length_has_a_bucket_and_longer_ones_no_lower_one() {
        let mut before = 0;
        for value in (0..5000).chain((13..64).map(|exponent| 1 << exponent)) {
            let bucket = bucket_of(value);
            assert!(bucket >= before && bucket < BUCKETS, "{value}");
            before = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_two_together_are_those_of_all() {
        let (mut odd, mut even) = (Histogram::default(), Histogram::default());
        for value in 1..=1000_u64 {
            let which = if value % 2 == 0 { &mut even } else { &mut odd };
            which.record(value * 1000);
        }
        odd.add(&even);
        assert_eq!(odd.count(), 1000);
        let durations = odd.durations();
        for (found, expected) in [
            (durations.p50_ns, 500_000),
            (durations.p90_ns, 900_000),
            (durations.p99_ns, 990_000),
            (durations.mean_ns, 500_500),
        ] {
            assert!(
                found.abs_diff(expected) <= expected / 16,
                "{found} {expected}"
            );
        }
        assert_eq!(durations.max_ns, 1_000_000);
        assert_eq!(Histogram::default().durations(), Durations::default());
    }
}
