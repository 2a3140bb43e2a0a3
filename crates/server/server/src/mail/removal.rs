//! A unit that is removed, as control and all shards see it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// See the module documentation. Nothing on the data path looks at it.
#[derive(Debug)]
pub(crate) struct Removal {
    /// Place of the unit in the table of exports.
    pub unit: usize,
    /// How long its tasks have to end.
    pub timeout: Duration,
    /// What each shard has under way.
    under_way: Box<[AtomicUsize]>,
    /// Tasks have been ended.
    is_overdue: AtomicBool,
    /// A shard has begun to flush.
    is_flushing: AtomicBool,
    /// What has gone wrong.
    failure: Mutex<Option<String>>,
}

impl Removal {
    pub(crate) fn new(unit: usize, timeout: Duration, shards: usize) -> Arc<Self> {
        Arc::new(Self {
            unit,
            timeout,
            under_way: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            is_overdue: AtomicBool::new(false),
            is_flushing: AtomicBool::new(false),
            failure: Mutex::default(),
        })
    }

    pub(crate) fn note_under_way(&self, shard: usize, count: usize) {
        self.under_way[shard].store(count, Ordering::Relaxed);
    }

    /// Commands and operations that are under way on all shards, as far as is known.
    pub(crate) fn under_way(&self) -> usize {
        let shards = self.under_way.iter();
        shards.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn note_overdue(&self) {
        self.is_overdue.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.is_overdue.load(Ordering::Relaxed)
    }

    pub(crate) fn note_flushing(&self) {
        self.is_flushing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.is_flushing.load(Ordering::Relaxed)
    }

    /// The first failure counts.
    pub(crate) fn note_failure(&self, reason: String) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(reason);
    }

    pub(crate) fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone()
    }
}
