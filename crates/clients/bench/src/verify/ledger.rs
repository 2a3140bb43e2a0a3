//! Which generation each block of the region has: the last acknowledged one, and whether the next
//! is being written.
//!
//! One 64-bit cell a block, shared by all threads:
//!
//! ```text
//!   bit 63         bit 62          bits 0–61
//!   being written  has been seen   last acknowledged generation (0: none of this run)
//! ```
//! A block is written by one operation at a time: a write first claims its blocks. So a read may
//! return any generation from the one acknowledged when it was sent up to the one being written
//! when it came back, and no other. A write that failed keeps its claim: the content of the block
//! is unknown, and both generations pass from then on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_block::extent::Extent;

use crate::workload::Region;

const WRITING: u64 = 1 << 63;
const SEEN: u64 = 1 << 62;
const GENERATION: u64 = SEEN - 1;

/// Cells are made when the first of so many blocks is written.
const CHUNK: u64 = 1 << 16;

type Chunk = Box<[AtomicU64]>;

/// The state of all blocks of a region.
#[derive(Debug)]
pub struct Ledger {
    region: Region,
    chunks: Vec<OnceLock<Chunk>>,
}

/// What is known of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// The last acknowledged generation.
    pub acknowledged: u64,
    /// The next one is under way, or its outcome is not known.
    pub writing: bool,
    /// A read has returned the acknowledged one.
    pub seen: bool,
}

impl Known {
    fn of(cell: u64) -> Self {
        Self {
            acknowledged: cell & GENERATION,
            writing: cell & WRITING != 0,
            seen: cell & SEEN != 0,
        }
    }

    /// The highest generation that a read may return now.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.acknowledged + u64::from(self.writing)
    }
}

impl Ledger {
    #[must_use]
    pub fn new(region: Region) -> Self {
        let count = usize::try_from(region.blocks.div_ceil(CHUNK)).expect("a region in memory");
        Self {
            region,
            chunks: std::iter::repeat_with(OnceLock::new).take(count).collect(),
        }
    }

    fn place(&self, lba: u64) -> (usize, usize) {
        let offset = lba - self.region.lba;
        let index = |number: u64| usize::try_from(number).expect("within the region");
        (index(offset / CHUNK), index(offset % CHUNK))
    }

    fn cell(&self, lba: u64) -> &AtomicU64 {
        let (chunk, index) = self.place(lba);
        let zeros = || (0..CHUNK).map(|_| AtomicU64::new(0)).collect();
        &self.chunks[chunk].get_or_init(zeros)[index]
    }

    /// What is known of a block.
    #[must_use]
    pub fn known(&self, lba: u64) -> Known {
        let (chunk, index) = self.place(lba);
        let cell = self.chunks[chunk].get();
        cell.map_or(Known::default(), |chunk| {
            Known::of(chunk[index].load(Ordering::Acquire))
        })
    }

    /// Reserves all blocks for a write, or none if one of them is being written.
    pub fn claim(&self, extent: Extent) -> bool {
        for lba in lbas(extent) {
            let before = self.cell(lba).fetch_or(WRITING, Ordering::AcqRel);
            if before & WRITING != 0 {
                // Ours are those in front of it.
                for mine in extent.lba.0..lba {
                    self.cell(mine).fetch_and(!WRITING, Ordering::AcqRel);
                }
                return false;
            }
        }
        true
    }

    /// Gives blocks back that were claimed and of which nothing was sent.
    pub fn release(&self, extent: Extent) {
        for lba in lbas(extent) {
            self.cell(lba).fetch_and(!WRITING, Ordering::AcqRel);
        }
    }

    /// The write of these blocks was acknowledged.
    pub fn acknowledge(&self, extent: Extent) {
        for lba in lbas(extent) {
            let cell = self.cell(lba);
            // Others change only whether it was seen, which starts anew.
            let generation = cell.load(Ordering::Acquire) & GENERATION;
            cell.store(generation + 1, Ordering::Release);
        }
    }

    /// A read has returned this generation.
    pub fn saw(&self, lba: u64, generation: u64) {
        let cell = self.cell(lba);
        let now = cell.load(Ordering::Acquire);
        if now & (GENERATION | SEEN) == generation {
            // If a write has ended meanwhile, it is not the acknowledged one any more.
            let _ = cell.compare_exchange(now, now | SEEN, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Parts of the region in which something was written, in order.
    pub fn touched(&self) -> impl Iterator<Item = Region> + '_ {
        let chunks = self.chunks.iter().zip(0_u64..);
        let touched = chunks.filter(|(chunk, _)| chunk.get().is_some());
        touched.map(|(_, number)| {
            let start = number * CHUNK;
            Region {
                lba: self.region.lba + start,
                blocks: CHUNK.min(self.region.blocks - start),
                block_size: self.region.block_size,
            }
        })
    }
}

fn lbas(extent: Extent) -> std::ops::Range<u64> {
    extent.lba.0..extent.lba.0 + extent.blocks.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_block::extent::{BlockCount, Lba};

    fn ledger() -> Ledger {
        Ledger::new(Region {
            lba: 10,
            blocks: 3 * CHUNK,
            block_size: 512,
        })
    }

    fn extent(lba: u64, blocks: u64) -> Extent {
        Extent {
            lba: Lba(lba),
            blocks: BlockCount(blocks),
        }
    }

    #[test]
    fn a_block_is_written_by_one_operation_at_a_time() {
        let ledger = ledger();
        assert!(ledger.claim(extent(20, 4)));
        assert!(!ledger.claim(extent(18, 4)));
        assert!(
            ledger.claim(extent(18, 2)),
            "a failed claim leaves nothing behind"
        );
        ledger.acknowledge(extent(20, 4));
        assert!(ledger.claim(extent(20, 1)));
        ledger.release(extent(20, 1));
        assert_eq!(ledger.known(20).highest(), 1);
    }

    #[test]
    fn generations_count_acknowledged_writes() {
        let ledger = ledger();
        assert_eq!(ledger.known(30), Known::default());
        for generation in 1..4 {
            assert!(ledger.claim(extent(30, 1)));
            assert_eq!(ledger.known(30).highest(), generation);
            assert_eq!(ledger.known(30).acknowledged, generation - 1);
            ledger.acknowledge(extent(30, 1));
        }
        assert_eq!(ledger.known(30).acknowledged, 3);
        assert!(!ledger.known(30).writing);
    }

    #[test]
    fn seen_holds_until_the_next_write_is_acknowledged() {
        let ledger = ledger();
        assert!(ledger.claim(extent(30, 1)));
        ledger.saw(30, 1);
        assert!(!ledger.known(30).seen, "it was not acknowledged then");
        ledger.acknowledge(extent(30, 1));
        ledger.saw(30, 1);
        assert!(ledger.known(30).seen);
        assert!(ledger.claim(extent(30, 1)));
        assert!(ledger.known(30).seen);
        ledger.acknowledge(extent(30, 1));
        assert!(!ledger.known(30).seen);
    }

    #[test]
    fn memory_is_taken_where_something_is_written() {
        let ledger = ledger();
        assert_eq!(ledger.touched().count(), 0);
        assert!(ledger.claim(extent(10 + 2 * CHUNK, 1)));
        let touched: Vec<Region> = ledger.touched().collect();
        assert_eq!(touched.len(), 1);
        assert_eq!((touched[0].lba, touched[0].blocks), (10 + 2 * CHUNK, CHUNK));
    }
}
