//! Operations on a volume since the server started.
//!
//! Each shard counts for itself, on a cache line of its own, so that counting costs a few instructions
//! and no core waits for another. Readers add up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_block::command::DataLocation;
use longshore_block::operation::Operation;

/// Counts of one shard. Only that shard changes them.
#[repr(align(128))]
#[derive(Debug, Default)]
struct ShardCounts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Counts of one volume. See the module documentation.
#[derive(Debug)]
pub(crate) struct VolumeStatistics {
    shards: Box<[ShardCounts]>,
    /// Operations that the medium failed; rare enough to share.
    errors: AtomicU64,
    /// Hosts have been told that the volume has failed.
    told: AtomicBool,
    /// Why the flush at the end of the server failed.
    last_flush: OnceLock<String>,
}

/// What the counts were when somebody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub errors: u64,
}

impl VolumeStatistics {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| ShardCounts::default()).collect(),
            errors: AtomicU64::new(0),
            told: AtomicBool::new(false),
            last_flush: OnceLock::new(),
        }
    }

    /// Counts an operation that a peer's command asks for, by its payload. What a command reads for
    /// itself, to compare it or to copy it, is not counted.
    #[inline(always)]
    pub(crate) fn count(&self, shard: usize, operation: Operation, payload: DataLocation) {
        let counts = &self.shards[shard];
        let (operations, bytes, length) = match (operation, payload) {
            (Operation::Read { .. }, DataLocation::DataIn { length }) => {
                (&counts.reads, &counts.read_bytes, length)
            }
            (Operation::Write { .. }, DataLocation::DataOut { length, .. }) => {
                (&counts.writes, &counts.written_bytes, length)
            }
            _ => return,
        };
        add(operations, 1);
        add(bytes, length as u64);
    }

    /// Counts an operation that failed on the medium.
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The flush at the end of the server failed.
    pub(crate) fn last_flush_failed(&self, reason: String) {
        let _ = self.last_flush.set(reason);
    }

    /// Why the flush at the end of the server failed, if it did.
    pub(crate) fn last_flush_failure(&self) -> Option<&str> {
        self.last_flush.get().map(String::as_str)
    }

    /// Whether this is the first time that somebody tells of the failure.
    pub(crate) fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// All counts at this moment.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals {
            errors: self.errors.load(Ordering::Relaxed),
            ..Totals::default()
        };
        for counts in &self.shards {
            totals.reads += counts.reads.load(Ordering::Relaxed);
            totals.read_bytes += counts.read_bytes.load(Ordering::Relaxed);
            totals.writes += counts.writes.load(Ordering::Relaxed);
            totals.written_bytes += counts.written_bytes.load(Ordering::Relaxed);
        }
        totals
    }
}

/// Adds to a count that nobody else changes.
#[inline]
fn add(count: &AtomicU64, more: u64) {
    let sum = count.load(Ordering::Relaxed).wrapping_add(more);
    count.store(sum, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use longshore_block::extent::Extent;

    use super::*;

    #[test]
    fn totals_are_those_of_all_shards_and_of_payload_only() {
        let statistics = VolumeStatistics::new(2);
        let extent = Extent::new(0, 8);
        let read = Operation::Read { extent };
        let write = Operation::Write { extent, fua: false };
        statistics.count(0, read, DataLocation::DataIn { length: 4096 });
        statistics.count(1, read, DataLocation::DataIn { length: 512 });
        let scratch = DataLocation::Scratch {
            start: 0,
            length: 4096,
        };
        statistics.count(1, read, scratch);
        let data = DataLocation::DataOut {
            start: 512,
            length: 1024,
        };
        statistics.count(1, write, data);
        statistics.count(1, Operation::Flush, DataLocation::None);
        statistics.count_error();
        let expected = Totals {
            reads: 2,
            read_bytes: 4608,
            writes: 1,
            written_bytes: 1024,
            errors: 1,
        };
        assert_eq!(statistics.totals(), expected);
    }
}
