//! Commands of iSCSI initiators.

use std::ops::Range;

use longshore_iscsi::initiator::Transfer;
use longshore_iscsi::pdu::Attribute;

use super::{Maker, Purpose, length_of};
use crate::stamp::{Pattern, fill};

/// A command to send.
#[derive(Clone, Debug)]
pub struct Task {
    /// Index of the addressed unit.
    pub unit: usize,
    pub purpose: Purpose,
    pub cdb: Vec<u8>,
    /// ATTR of the command.
    pub attribute: Attribute,
    /// Which way the data goes, and how much.
    pub transfer: Transfer,
    pub data_out: Vec<u8>,
}

/// Makes up the next command.
pub fn make_up(mut maker: Maker<'_>) -> Task {
    let mut task = match maker.random.below(100) {
        0 => look(maker.unit),
        1 => maker.stray(),
        2..=31 => maker.read(),
        32..=64 => maker.write(),
        65..=71 => maker.flush(),
        72..=77 => maker.unmap(),
        78..=84 => maker.write_same(),
        _ => maker.compare_and_write(),
    };
    task.attribute = match maker.random.below(100) {
        0..=2 => Attribute::ORDERED,
        3..=5 => Attribute::HEAD_OF_QUEUE,
        _ => Attribute::SIMPLE,
    };
    task
}

/// TEST UNIT READY, which reports unit attentions.
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

impl Maker<'_> {
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
        let durable = self.random.chance(2500);
        let (id, data) = self.begin_placed(&blocks);
        let cdb = self.transfer_cdb(0x2a, 0x8a, &blocks, durable);
        self.send(Purpose::write(id, durable), cdb, data)
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
        let id = self.begin_zeros(&blocks);
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend(blocks.start.to_be_bytes());
        list.extend(word(blocks.end - blocks.start));
        list.extend([0; 4]);
        let cdb = vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        self.send(Purpose::write(id, false), cdb, list)
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
        self.send(Purpose::write(id, false), cdb, data)
    }

    fn compare_and_write(&mut self) -> Task {
        let blocks = self.contested();
        let (expected, mut data) = self.likely(&blocks);
        let durable = self.random.chance(2000);
        let (id, new) = self.begin_placed(&blocks);
        data.extend(new);
        let started = self.history.begin_read();
        let mut cdb = vec![0x89, if durable { 0x08 } else { 0 }];
        cdb.extend(blocks.start.to_be_bytes());
        cdb.extend([0, 0, 0, word(blocks.end - blocks.start)[3], 0, 0]);
        let purpose = Purpose::CompareAndWrite {
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
