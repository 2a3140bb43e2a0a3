//! The report of one shard, and its last report after its end.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore_reactor::EngineCounters;

use super::report::{ConnectionStatistics, Sampling, ThreadTimes};
use crate::counters::Counters;
use crate::counters::published::Published;
use crate::counters::stages::{Histograms, Kind};
use crate::spin::WaitingState;

/// A question, and where the answer goes.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub to: Sender<ShardReport>,
    /// Asks the kernel about each connection, too.
    pub tcp: bool,
}

impl Question {
    pub(crate) fn answer(&self, report: ShardReport) {
        // Who has lost patience does not mind.
        let _ = self.to.send(report);
    }
}

/// What a shard knows.
#[derive(Clone, Debug)]
pub(crate) struct ShardReport {
    pub shard: usize,
    pub counters: Counters,
    pub engine: EngineCounters,
    pub times: ThreadTimes,
    pub waiting: WaitingState,
    pub connections: Vec<ConnectionStatistics>,
    pub kept_bytes: usize,
    pub receive_buffer_bytes: usize,
    pub requests: usize,
    pub stages: Vec<(Kind, Box<Histograms>)>,
    pub sampling: Sampling,
}

/// What shards leave for those who ask.
#[derive(Debug)]
pub(crate) struct Board {
    started: Instant,
    shards: Vec<ShardEntry>,
}

#[derive(Debug, Default)]
struct ShardEntry {
    published: Published,
    /// What the shard said at its end.
    last: Mutex<Option<Box<ShardReport>>>,
}

impl Board {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            started: Instant::now(),
            shards: (0..shards).map(|_| ShardEntry::default()).collect(),
        }
    }

    /// For how long the server has been there.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// What a shard said at its end, if it has ended.
    pub(crate) fn last(&self, shard: usize) -> Option<ShardReport> {
        lock(&self.shards[shard].last).as_deref().cloned()
    }

    /// What a shard publishes.
    pub(crate) fn published(&self, shard: usize) -> &Published {
        &self.shards[shard].published
    }

    /// A shard has ended; this is its last word.
    pub(crate) fn leave(&self, report: ShardReport) {
        let entry = &self.shards[report.shard];
        entry.published.store(&report.counters);
        *lock(&entry.last) = Some(Box::new(report));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
