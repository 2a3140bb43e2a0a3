//! Streams of operations: each keeps a fixed number in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_reactor::Buffer;

use crate::pacing::Pacer;
use crate::verify::{Known, Low, Verifier};
use crate::workload::{Generator, Region, Step};

/// Where operations come from.
#[derive(Debug)]
pub enum Source {
    Workload(Generator),
    /// Every part of a region once, read.
    Sweep(Sweep),
}

impl Source {
    /// The next operation, if there is one.
    #[inline]
    pub fn step(&mut self) -> Option<Step> {
        match self {
            Self::Workload(generator) => Some(generator.step()),
            Self::Sweep(sweep) => sweep.step(),
        }
    }

    /// Whether asking again may give another place.
    #[must_use]
    pub fn has_alternatives(&self) -> bool {
        matches!(self, Self::Workload(generator) if generator.is_random())
    }
}

/// Reads a region once, together with other streams.
#[derive(Debug, Clone)]
pub struct Sweep {
    pub region: Region,
    /// Blocks of one read.
    pub unit: u64,
    /// The first block, from the region's start, that nobody has taken.
    pub next: Arc<AtomicU64>,
    /// Leave out what this run has not written.
    pub written_by: Option<Arc<Verifier>>,
}

impl Sweep {
    fn step(&mut self) -> Option<Step> {
        loop {
            let offset = self.next.fetch_add(self.unit, Ordering::Relaxed);
            let left = self
                .region
                .blocks
                .checked_sub(offset)
                .filter(|left| *left > 0)?;
            let blocks = left.min(self.unit);
            let extent = Extent {
                lba: Lba(self.region.lba + offset),
                blocks: BlockCount(blocks),
            };
            if self.is_wanted(extent) {
                return Some(Step {
                    write: false,
                    extent,
                    bytes: u32::try_from(extent.bytes(self.region.block_size))
                        .expect("a unit is that of one operation"),
                });
            }
        }
    }

    fn is_wanted(&self, extent: Extent) -> bool {
        self.written_by.as_ref().is_none_or(|verifier| {
            let mut lbas = extent.lba.0..extent.lba.0 + extent.blocks.0;
            lbas.any(|lba| verifier.ledger().known(lba) != Known::default())
        })
    }
}

/// How many operations, and bytes, a stream may begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Operations that may still begin; no limit without.
    pub operations: Option<u64>,
    /// Bytes that may still be moved; no limit without.
    pub bytes: Option<u64>,
}

impl Quota {
    /// The part of one of `streams`, of which the first ones get what does not divide.
    #[must_use]
    pub fn share(self, number: u64, streams: u64) -> Self {
        let part = |total: u64| total / streams + u64::from(number < total % streams);
        Self {
            operations: self.operations.map(part),
            bytes: self.bytes.map(part),
        }
    }

    /// Takes one operation; not if none is left.
    #[inline]
    fn take(&mut self, bytes: u32) -> bool {
        if self.operations == Some(0) || self.bytes == Some(0) {
            return false;
        }
        self.operations = self.operations.map(|left| left - 1);
        self.bytes = self.bytes.map(|left| left.saturating_sub(u64::from(bytes)));
        true
    }
}

#[derive(Debug)]
pub struct Stream {
    pub job: usize,
    /// Operations that it keeps under way.
    pub depth: u16,
    /// Where they come from.
    pub source: Source,
    /// When they are due; at once without.
    pub pacer: Option<Pacer>,
    /// How many there are.
    pub quota: Quota,
    /// Which of its thread's queues takes reads.
    pub read_queue: usize,
    /// Which of its thread's queues takes writes.
    pub write_queue: usize,
    /// Bytes of its largest operation.
    pub largest: u32,
    /// Taken from the source, not yet submitted.
    pending: Option<Step>,
    /// No more to come.
    exhausted: bool,
    /// Numbers of slots without an operation.
    pub(crate) idle: Vec<u32>,
    /// Whether it is in its thread's list of those that may have something to do.
    pub(crate) listed: bool,
}

impl Stream {
    /// A stream that has not begun.
    #[must_use]
    pub fn new(job: usize, depth: u16, source: Source, largest: u32) -> Self {
        Self {
            job,
            depth,
            source,
            pacer: None,
            quota: Quota::default(),
            read_queue: 0,
            write_queue: 0,
            largest,
            pending: None,
            exhausted: false,
            idle: Vec::with_capacity(usize::from(depth)),
            listed: true,
        }
    }

    /// The operation to submit next. It stays until [`Self::submitted`] or [`Self::skip`].
    #[inline]
    pub fn peek(&mut self) -> Option<Step> {
        if self.pending.is_none() && !self.exhausted {
            let step = self.source.step();
            self.pending = step.filter(|step| self.quota.take(step.bytes));
            self.exhausted = self.pending.is_none();
        }
        self.pending
    }

    /// The operation was submitted; when it was due, where there is a timetable.
    #[inline]
    pub fn submitted(&mut self) -> Option<u64> {
        let step = self.pending.take()?;
        self.pacer.as_mut().map(|pacer| pacer.take(step.bytes))
    }

    /// Another place in its stead.
    pub fn skip(&mut self) {
        if let Some(next) = self.source.step() {
            self.pending = Some(next);
        }
    }

    /// Which of its thread's queues takes an operation.
    #[inline]
    #[must_use]
    pub fn queue_for(&self, step: Step) -> usize {
        if step.write {
            self.write_queue
        } else {
            self.read_queue
        }
    }

    /// Nothing more to come.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// The timetable starts then.
    pub fn start_at(&mut self, ns: u64) {
        if let Some(pacer) = &mut self.pacer {
            pacer.start_at(ns);
        }
    }

    /// When the next operation is due; 0 without a timetable.
    #[inline]
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.pacer.as_ref().map_or(0, Pacer::due_ns)
    }
}

#[derive(Debug)]
pub struct Slot {
    pub stream: usize,
    pub write: bool,
    pub bytes: u32,
    pub extent: Extent,
    /// How often it was submitted again.
    pub repeats: u8,
    /// When it was due.
    pub intended_ns: u64,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// Its memory, while it is not the queue's.
    pub buffer: Option<Buffer>,
    /// What its blocks held when it was sent, of a verified read.
    pub low: Low,
}

impl Slot {
    #[must_use]
    pub fn empty(stream: usize, buffer: Option<Buffer>) -> Self {
        Self {
            stream,
            write: false,
            bytes: 0,
            extent: Extent {
                lba: Lba(0),
                blocks: BlockCount(0),
            },
            repeats: 0,
            intended_ns: 0,
            submitted_ns: 0,
            buffer,
            low: Low::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Region = Region {
        lba: 100,
        blocks: 20,
        block_size: 512,
    };

    fn sweep() -> Sweep {
        Sweep {
            region: REGION,
            unit: 8,
            next: Arc::default(),
            written_by: None,
        }
    }

    #[test]
    fn a_sweep_reads_every_block_once_whoever_takes_part() {
        let mut one = sweep();
        let mut other = one.clone();
        let extents = [one.step(), other.step(), one.step(), other.step()];
        let extents: Vec<(u64, u64)> = extents
            .iter()
            .flatten()
            .map(|step| (step.extent.lba.0, step.extent.blocks.0))
            .collect();
        assert_eq!(extents, [(100, 8), (108, 8), (116, 4)]);
    }

    #[test]
    fn quotas_are_shared_without_a_remainder() {
        let quota = Quota {
            operations: Some(10),
            bytes: None,
        };
        let parts: Vec<Option<u64>> = (0..4).map(|n| quota.share(n, 4).operations).collect();
        assert_eq!(parts, [Some(3), Some(3), Some(2), Some(2)]);
    }

    #[test]
    fn a_stream_ends_with_its_quota() {
        let mut stream = Stream::new(0, 1, Source::Sweep(sweep()), 4096);
        stream.quota.operations = Some(2);
        for _ in 0..2 {
            assert!(stream.peek().is_some());
            assert_eq!(
                stream.peek(),
                stream.peek(),
                "it stays until it is submitted"
            );
            stream.submitted();
        }
        assert!(stream.peek().is_none());
        assert!(stream.is_exhausted());
        let mut bytes = Stream::new(0, 1, Source::Sweep(sweep()), 4096);
        bytes.quota.bytes = Some(5000);
        let steps = std::iter::from_fn(|| {
            let step = bytes.peek();
            bytes.submitted();
            step
        });
        assert_eq!(steps.count(), 2);
    }
}
