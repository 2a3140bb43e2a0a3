//! What initiators do: commands on a few hot sectors, so that they get in each other's way.

use std::fmt;
use std::ops::Range;

use longshore_iscsi::initiator::Transfer;
use longshore_iscsi::pdu::Attribute;

use crate::checker::history::{History, Started};
use crate::random::{Random, to_usize};
use crate::stamp::{Pattern, SECTOR, Stamp, WriteId, fill};

/// A unit as initiators see it.
#[derive(Clone, Copy, Debug)]
pub struct UnitShape {
    /// 512 or 4096.
    pub block_size: usize,
    /// Its size.
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
    /// TEST UNIT READY.
    Look,
    /// SYNCHRONIZE CACHE, with write data that it does not take. Any answer will do.
    Stray,
    /// READ.
    Read {
        /// When.
        started: Started,
        /// First sector.
        first: u64,
    },
    /// WRITE, UNMAP or WRITE SAME.
    Write {
        /// Its number.
        id: WriteId,
        /// FUA.
        durable: bool,
    },
    /// SYNCHRONIZE CACHE.
    Flush {
        /// When.
        started: Started,
    },
    /// COMPARE AND WRITE.
    Compare {
        /// Number of the write.
        id: WriteId,
        /// When.
        started: Started,
        /// What it hopes to find.
        expected: Vec<Stamp>,
        /// FUA.
        durable: bool,
    },
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look => f.write_str("look"),
            Self::Stray => f.write_str("flush with stray data"),
            Self::Read { .. } => f.write_str("read"),
            Self::Flush { .. } => f.write_str("flush"),
            Self::Write { id, durable } => {
                write!(f, "write {}{}", id.0, if *durable { " FUA" } else { "" })
            }
            Self::Compare { id, expected, .. } => {
                let found: Vec<u64> = expected.iter().map(|stamp| stamp.id.0).collect();
                write!(f, "compare {found:?} and write {}", id.0)
            }
        }
    }
}

/// A command to send.
#[derive(Clone, Debug)]
pub struct Task {
    /// To which unit.
    pub unit: usize,
    /// Why.
    pub purpose: Purpose,
    /// What to send.
    pub cdb: Vec<u8>,
    /// ATTR.
    pub attribute: Attribute,
    /// Which way the data goes, and how much.
    pub transfer: Transfer,
    /// Write data.
    pub data_out: Vec<u8>,
}

/// Makes up the next command for a unit. Numbers of writes come from `next_id`.
pub fn make_up(
    unit: usize,
    shape: UnitShape,
    random: &mut Random,
    history: &mut History,
    next_id: &mut u64,
) -> Task {
    let mut maker = Maker {
        unit,
        shape,
        random,
        history,
        next_id,
    };
    let mut task = match maker.random.below(100) {
        0 => look(unit),
        1 => maker.stray(),
        2..=31 => maker.read(),
        32..=64 => maker.write(),
        65..=71 => maker.flush(),
        72..=77 => maker.unmap(),
        78..=84 => maker.write_same(),
        _ => maker.compare_and_write(),
    };
    task.attribute = match random.below(100) {
        0..=2 => Attribute::ORDERED,
        3..=5 => Attribute::HEAD_OF_QUEUE,
        _ => Attribute::SIMPLE,
    };
    task
}

/// TEST UNIT READY.
#[must_use]
pub fn look(unit: usize) -> Task {
    Task {
        unit,
        purpose: Purpose::Look,
        cdb: vec![0; 6],
        attribute: Attribute::SIMPLE,
        transfer: Transfer::None,
        data_out: Vec::new(),
    }
}

struct Maker<'a> {
    unit: usize,
    shape: UnitShape,
    random: &'a mut Random,
    history: &'a mut History,
    next_id: &'a mut u64,
}

/// Blocks in which most commands meet.
const HOT_BLOCKS: u64 = 24;

impl Maker<'_> {
    /// Where a command works, in blocks.
    fn extent(&mut self, longest: u64) -> Range<u64> {
        let blocks = self.shape.blocks();
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
        let first = self.random.below(area.max(length) - length + 1);
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

    fn task(&self, purpose: Purpose, cdb: Vec<u8>, transfer: Transfer, data_out: Vec<u8>) -> Task {
        Task {
            unit: self.unit,
            purpose,
            cdb,
            attribute: Attribute::SIMPLE,
            transfer,
            data_out,
        }
    }

    fn send(&self, purpose: Purpose, cdb: Vec<u8>, data_out: Vec<u8>) -> Task {
        self.task(
            purpose,
            cdb,
            Transfer::Write(length_of(&data_out)),
            data_out,
        )
    }

    fn read(&mut self) -> Task {
        let blocks = self.extent(self.longest());
        let started = self.history.begin_read();
        let first = self.sectors(&blocks).start;
        let length = self.bytes(blocks.end - blocks.start);
        let cdb = self.transfer_cdb(0x28, 0x88, &blocks, false);
        let length = u32::try_from(length).expect("a transfer has a 32-bit length");
        let purpose = Purpose::Read { started, first };
        self.task(purpose, cdb, Transfer::Read(length), Vec::new())
    }

    fn write(&mut self) -> Task {
        let blocks = self.extent(self.longest());
        let sectors = self.sectors(&blocks);
        let durable = self.random.chance(2500);
        let id = self.new_id();
        let mut data = vec![0; self.bytes(blocks.end - blocks.start)];
        fill(&mut data, sectors.start, id, Pattern::Placed);
        self.history.begin_write(id, sectors, Pattern::Placed);
        let cdb = self.transfer_cdb(0x2a, 0x8a, &blocks, durable);
        self.send(Purpose::Write { id, durable }, cdb, data)
    }

    fn flush(&mut self) -> Task {
        let started = self.history.begin_read();
        let cdb = if self.random.chance(5000) {
            cdb10(0x35, 0, &(0..0))
        } else {
            cdb16(0x91, 0, &(0..0))
        };
        self.task(Purpose::Flush { started }, cdb, Transfer::None, Vec::new())
    }

    fn stray(&mut self) -> Task {
        let length = self.random.pick(&[16, 3000, 20_000]);
        let cdb = cdb10(0x35, 0, &(0..0));
        self.send(Purpose::Stray, cdb, vec![0xaa; length])
    }

    fn unmap(&mut self) -> Task {
        let blocks = self.extent(64);
        let sectors = self.sectors(&blocks);
        let id = self.new_id();
        self.history.begin_write(id, sectors, Pattern::Zeros);
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend(blocks.start.to_be_bytes());
        list.extend(word(blocks.end - blocks.start));
        list.extend([0; 4]);
        let cdb = vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        let durable = false;
        self.send(Purpose::Write { id, durable }, cdb, list)
    }

    fn write_same(&mut self) -> Task {
        let blocks = self.extent(64);
        let sectors = self.sectors(&blocks);
        let id = self.new_id();
        let mut data = vec![0; self.shape.block_size];
        let mut flags = 0;
        let pattern = match self.random.below(3) {
            0 => Pattern::Zeros,
            1 => {
                flags = 0x08;
                Pattern::Zeros
            }
            _ => Pattern::Repeated {
                block_sectors: self.shape.block_sectors(),
            },
        };
        if pattern != Pattern::Zeros {
            // The place of a repeated block is counted within the block.
            fill(&mut data, 0, id, pattern);
        }
        self.history.begin_write(id, sectors, pattern);
        let cdb = cdb16(0x93, flags, &blocks);
        let durable = false;
        self.send(Purpose::Write { id, durable }, cdb, data)
    }

    fn compare_and_write(&mut self) -> Task {
        let length = self.random.pick(&[1, 1, 1, 2, 5]);
        let first = self.random.below(6);
        let blocks = first..first + length;
        let sectors = self.sectors(&blocks);
        let mut expected: Vec<Stamp> = sectors
            .clone()
            .map(|sector| self.history.likely(sector))
            .collect();
        if self.random.chance(1000) {
            expected[0].place ^= 1;
        }
        let id = self.new_id();
        let durable = self.random.chance(2000);
        let half = self.bytes(length);
        let mut data = vec![0; 2 * half];
        for (part, stamp) in data.chunks_mut(SECTOR).zip(&expected) {
            stamp.fill(part);
        }
        fill(&mut data[half..], sectors.start, id, Pattern::Placed);
        self.history.begin_write(id, sectors, Pattern::Placed);
        let started = self.history.begin_read();
        let mut cdb = vec![0x89, if durable { 0x08 } else { 0 }];
        cdb.extend(first.to_be_bytes());
        cdb.extend([0, 0, 0, word(length)[3], 0, 0]);
        let purpose = Purpose::Compare {
            id,
            started,
            expected,
            durable,
        };
        self.send(purpose, cdb, data)
    }

    /// READ or WRITE, (10) or (16).
    fn transfer_cdb(&mut self, ten: u8, sixteen: u8, blocks: &Range<u64>, fua: bool) -> Vec<u8> {
        let flags = if fua { 0x08 } else { 0 };
        if self.random.chance(5000) {
            cdb10(ten, flags, blocks)
        } else {
            cdb16(sixteen, flags, blocks)
        }
    }
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("a transfer has a 32-bit length")
}

fn word(value: u64) -> [u8; 4] {
    let value = u32::try_from(value).expect("units are small");
    value.to_be_bytes()
}

fn cdb10(opcode: u8, flags: u8, blocks: &Range<u64>) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(word(blocks.start));
    let [_, _, high, low] = word(blocks.end - blocks.start);
    cdb.extend([0, high, low, 0]);
    cdb
}

fn cdb16(opcode: u8, flags: u8, blocks: &Range<u64>) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(blocks.start.to_be_bytes());
    cdb.extend(word(blocks.end - blocks.start));
    cdb.extend([0; 2]);
    cdb
}
