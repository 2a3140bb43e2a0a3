//! Requests that were answered, by route, method and status.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Bounds of the histogram of times: 2^k microseconds.
pub(crate) const BOUNDS: usize = 16;
/// The lowest: 64 µs.
const LOWEST_SHIFT: usize = 6;

/// See the module documentation. Routes and methods are those of the table of routes, so it does not grow.
#[derive(Debug, Default)]
pub(crate) struct RequestCounts(Mutex<BTreeMap<RequestKind, Times>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKind {
    pub route: &'static str,
    pub method: &'static str,
    pub code: u16,
}

/// How long they took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub count: u64,
    pub sum: Duration,
    /// Those that took at most as long as the bound of that place, and longer than the one before.
    pub buckets: [u64; BOUNDS],
}

impl RequestCounts {
    pub(crate) fn count(&self, kind: RequestKind, took: Duration) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = counts.entry(kind).or_default();
        times.count += 1;
        times.sum += took;
        let place = (0..BOUNDS).find(|place| took <= bound(*place));
        if let Some(place) = place {
            times.buckets[place] += 1;
        }
    }

    pub(crate) fn all(&self) -> Vec<(RequestKind, Times)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts
            .iter()
            .map(|(kind, times)| (kind.clone(), *times))
            .collect()
    }
}

/// A bound of the histogram.
pub(crate) const fn bound(place: usize) -> Duration {
    Duration::from_micros(1 << (place + LOWEST_SHIFT))
}
