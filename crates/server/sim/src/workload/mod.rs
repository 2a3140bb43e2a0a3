//! What initiators and hosts do: commands on a few hot sectors, so that they get in each other's way.

pub mod nvme;
pub mod scsi;

use std::fmt;
use std::ops::Range;

use crate::checker::history::{History, Started};
use crate::random::{Random, to_usize};
use crate::stamp::{Pattern, SECTOR, Stamp, WriteId, fill};

/// A unit as initiators and hosts see it.
#[derive(Clone, Copy, Debug)]
pub struct UnitShape {
    /// Bytes of a block: 512 or 4096.
    pub block_size: usize,
    /// Size of the unit in sectors.
    pub sectors: u64,
}

impl UnitShape {
    const fn block_sectors(self) -> u64 {
        (self.block_size / SECTOR) as u64
    }

    const fn blocks(self) -> u64 {
        self.sectors / self.block_sectors()
    }
}

/// What a command is for, with what its checker needs to know.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// TEST UNIT READY, Verify: nothing is learnt from it.
    Look,
    /// SYNCHRONIZE CACHE, with write data that it does not take. Any answer will do.
    Stray,
    Read {
        started: Started,
        first: u64,
    },
    /// Anything that writes. Dataset Management has a number for each of its ranges.
    Write {
        ids: Vec<WriteId>,
        /// The write has FUA.
        durable: bool,
    },
    /// SYNCHRONIZE CACHE of SCSI, Flush of NVMe.
    Flush {
        started: Started,
    },
    /// COMPARE AND WRITE, fused Compare and Write.
    CompareAndWrite {
        /// Number of the write.
        id: WriteId,
        started: Started,
        /// What it hopes to find.
        expected: Vec<Stamp>,
        /// The write has FUA.
        durable: bool,
    },
    Compare {
        started: Started,
        first: u64,
        /// What it hopes to find.
        expected: Vec<Stamp>,
    },
}

impl Purpose {
    fn write(id: WriteId, durable: bool) -> Self {
        Self::Write {
            ids: vec![id],
            durable,
        }
    }

    /// Whether it may change what is stored.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::CompareAndWrite { .. })
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = |stamps: &[Stamp]| stamps.iter().map(|stamp| stamp.id.0).collect::<Vec<_>>();
        match self {
            Self::Look => f.write_str("look"),
            Self::Stray => f.write_str("flush with stray data"),
            Self::Read { .. } => f.write_str("read"),
            Self::Flush { .. } => f.write_str("flush"),
            Self::Write { ids, durable } => {
                let ids: Vec<u64> = ids.iter().map(|id| id.0).collect();
                write!(f, "write {ids:?}{}", if *durable { " FUA" } else { "" })
            }
            Self::CompareAndWrite { id, expected, .. } => {
                write!(f, "compare {:?} and write {}", found(expected), id.0)
            }
            Self::Compare { expected, .. } => write!(f, "compare {:?}", found(expected)),
        }
    }
}

/// Blocks in which most commands meet.
const HOT_BLOCKS: u64 = 24;

/// Blocks at the end of each unit that belong to one host each: only it writes them, so it knows what
/// it copies.
pub const OWN_BLOCKS: u64 = 4;

/// How many hosts can have blocks of their own.
pub const OWNERS: u64 = 2;

/// Makes up commands for a unit. Numbers of writes come from `next_id`.
#[derive(Debug)]
pub struct Maker<'a> {
    pub unit: usize,
    pub shape: UnitShape,
    /// Source of all choices.
    pub random: &'a mut Random,
    /// What it may hold.
    pub history: &'a mut History,
    /// Number of the last write.
    pub next_id: &'a mut u64,
}

impl Maker<'_> {
    /// Where a command works, in blocks.
    fn extent(&mut self, longest: u64) -> Range<u64> {
        let blocks = self.shape.blocks() - OWNERS * OWN_BLOCKS;
        let longest = longest.min(blocks);
        let length = match self.random.below(10) {
            0..=4 => self.random.between(1, 2),
            5..=7 => self.random.between(1, 8.min(longest)),
            _ => self.random.between(1, longest),
        };
        let area = if self.random.chance(7000) {
            HOT_BLOCKS
        } else {
            blocks
        };
        let first = self.random.below(area.max(length).min(blocks) - length + 1);
        first..first + length
    }

    fn longest(&self) -> u64 {
        (96 << 10) / self.shape.block_size as u64
    }

    const fn sectors(&self, blocks: &Range<u64>) -> Range<u64> {
        let factor = self.shape.block_sectors();
        blocks.start * factor..blocks.end * factor
    }

    fn bytes(&self, blocks: u64) -> usize {
        to_usize(blocks) * self.shape.block_size
    }

    fn new_id(&mut self) -> WriteId {
        *self.next_id += 1;
        WriteId(*self.next_id)
    }

    /// Begins a write of data that says where it belongs.
    fn begin_placed(&mut self, blocks: &Range<u64>) -> (WriteId, Vec<u8>) {
        let sectors = self.sectors(blocks);
        let id = self.new_id();
        let mut data = vec![0; self.bytes(blocks.end - blocks.start)];
        fill(&mut data, sectors.start, id, Pattern::Placed);
        self.history.begin_write(id, sectors, Pattern::Placed);
        (id, data)
    }

    fn begin_zeros(&mut self, blocks: &Range<u64>) -> WriteId {
        let id = self.new_id();
        self.history
            .begin_write(id, self.sectors(blocks), Pattern::Zeros);
        id
    }

    /// What a compare of these blocks hopes to find, and the same as data.
    fn likely(&mut self, blocks: &Range<u64>) -> (Vec<Stamp>, Vec<u8>) {
        let sectors = self.sectors(blocks);
        let mut expected: Vec<Stamp> = sectors.map(|s| self.history.likely(s)).collect();
        if self.random.chance(1000) {
            expected[0].place ^= 1;
        }
        let mut data = vec![0; self.bytes(blocks.end - blocks.start)];
        for (part, stamp) in data.chunks_mut(SECTOR).zip(&expected) {
            stamp.fill(part);
        }
        (expected, data)
    }

    /// Where those who compare and write meet.
    fn contested(&mut self) -> Range<u64> {
        let length = self.random.pick(&[1, 1, 1, 2, 5]);
        let first = self.random.below(6);
        first..first + length
    }
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("a transfer has a 32-bit length")
}
