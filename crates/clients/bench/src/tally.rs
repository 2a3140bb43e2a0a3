//! What a thread counts while it makes load.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use longshore_initiator::error::Failure;

use crate::latency::{self, Recorder};

/// So many kinds of errors are told apart; more are counted together.
const ERROR_KINDS_MAX: usize = 16;

/// Operations of one direction.
#[derive(Debug, Default)]
pub struct DirectionTally {
    operations: u64,
    bytes: u64,
    latency: Recorder,
    /// From submission, where `latency` counts from when the operation was due.
    service: Recorder,
}

/// Operations of one job.
#[derive(Debug, Default)]
pub struct JobTally {
    read: DirectionTally,
    write: DirectionTally,
}

impl JobTally {
    /// An operation has ended well.
    #[inline]
    pub fn ended(&mut self, write: bool, bytes: u32, latency_ns: u64) {
        let direction = self.direction(write);
        direction.operations += 1;
        direction.bytes += u64::from(bytes);
        direction.latency.record(latency_ns);
    }

    /// The same, of one that had a time at which it was due.
    pub fn ended_service(&mut self, write: bool, service_ns: u64) {
        self.direction(write).service.record(service_ns);
    }

    #[inline]
    fn direction(&mut self, write: bool) -> &mut DirectionTally {
        if write {
            &mut self.write
        } else {
            &mut self.read
        }
    }

    pub fn forget(&mut self) {
        for direction in [&mut self.read, &mut self.write] {
            direction.operations = 0;
            direction.bytes = 0;
            direction.latency.forget();
            direction.service.forget();
        }
    }

    #[must_use]
    pub fn finish(self) -> JobSum {
        let finish = |direction: DirectionTally| DirectionSum {
            operations: direction.operations,
            bytes: direction.bytes,
            latency: direction.latency.finish(),
            service: direction.service.finish(),
        };
        JobSum {
            read: finish(self.read),
            write: finish(self.write),
        }
    }
}

/// What was counted of one direction.
#[derive(Debug, Clone)]
pub struct DirectionSum {
    /// Operations that ended well.
    pub operations: u64,
    pub bytes: u64,
    /// From when they were due, or submitted.
    pub latency: Histogram<u64>,
    /// From submission, where there was a timetable.
    pub service: Histogram<u64>,
}

impl DirectionSum {
    #[must_use]
    pub fn empty() -> Self {
        Self {
            operations: 0,
            bytes: 0,
            latency: latency::empty(),
            service: latency::empty(),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        latency::add(&mut self.latency, &other.latency);
        latency::add(&mut self.service, &other.service);
    }
}

/// What was counted of a job.
#[derive(Debug, Clone)]
pub struct JobSum {
    pub read: DirectionSum,
    pub write: DirectionSum,
}

impl JobSum {
    #[must_use]
    pub fn empty() -> Self {
        Self {
            read: DirectionSum::empty(),
            write: DirectionSum::empty(),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.read.add(&other.read);
        self.write.add(&other.write);
    }

    #[must_use]
    pub fn total(&self) -> DirectionSum {
        let mut total = self.read.clone();
        total.add(&self.write);
        total
    }
}

/// Operations that ended badly, by what was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    counts: BTreeMap<String, u64>,
}

impl Errors {
    pub fn count(&mut self, write: bool, failure: &Failure) {
        let direction = if write { "write" } else { "read" };
        self.add(format!("{direction}: {failure}"), 1);
    }

    fn add(&mut self, kind: String, count: u64) {
        let is_new = !self.counts.contains_key(&kind);
        let kind = if is_new && self.counts.len() >= ERROR_KINDS_MAX {
            "others".to_owned()
        } else {
            kind
        };
        *self.counts.entry(kind).or_default() += count;
    }

    pub fn merge(&mut self, other: Self) {
        for (kind, count) in other.counts {
            self.add(kind, count);
        }
    }

    /// Kinds, and how many of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts
            .iter()
            .map(|(kind, count)| (kind.as_str(), *count))
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_counted_apart_and_together() {
        let mut tally = JobTally::default();
        tally.ended(false, 512, 100);
        tally.forget();
        tally.ended(false, 4096, 1_000);
        tally.ended(true, 512, 3_000);
        let sum = tally.finish();
        assert_eq!((sum.read.operations, sum.read.bytes), (1, 4096));
        assert_eq!((sum.write.operations, sum.write.bytes), (1, 512));
        let total = sum.total();
        assert_eq!((total.operations, total.latency.len()), (2, 2));
    }

    #[test]
    fn kinds_of_errors_are_bounded() {
        let mut errors = Errors::default();
        for moved in 0..100 {
            let expected = 512;
            errors.count(true, &Failure::ShortTransfer { expected, moved });
        }
        errors.count(false, &Failure::TimedOut);
        assert_eq!(errors.total(), 101);
        assert_eq!(errors.iter().count(), ERROR_KINDS_MAX + 1);
    }
}
