//! Commands of NVMe hosts.

use std::ops::Range;

use longshore_block::extent::Lba;
use longshore_nvme::command::{Fuse, NamespaceId};
use longshore_nvme::host::Command;
use longshore_nvme::host::commands::{self, Blocks, DEALLOCATE, FORCE_UNIT_ACCESS};

use super::{Maker, OWN_BLOCKS, OWNERS, Purpose};
use crate::stamp::Stamp;

/// Commands to send one right behind the other: one, or the two of a fused operation.
#[derive(Clone, Debug)]
pub struct Task {
    /// Index of the addressed unit.
    pub unit: usize,
    pub purpose: Purpose,
    /// What to send, each with its data.
    pub parts: Vec<(Command, Vec<u8>)>,
    /// It writes to the blocks of its host, or copies from them.
    pub own: bool,
}

/// The namespace that a unit is.
#[must_use]
pub fn namespace(unit: usize) -> NamespaceId {
    NamespaceId(u32::try_from(unit + 1).expect("few units"))
}

/// Makes up the next command. `owner`: whose blocks it may have to itself, unless they are in use.
/// `room`: how many parts it may have.
pub fn make_up(mut maker: Maker<'_>, owner: Option<u64>, room: usize) -> Task {
    match maker.random.below(100) {
        0 => maker.verify(),
        1..=30 => maker.read_blocks(),
        31..=58 => {
            let blocks = maker.extent(maker.longest());
            maker.write_blocks(&blocks)
        }
        59..=65 => maker.flush_unit(),
        66..=71 => maker.deallocate(),
        72..=77 => maker.write_zeroes(),
        78..=82 => maker.compare_blocks(),
        83..=87 => match owner {
            Some(owner) => maker.copy_or_own_write(owner),
            None => maker.read_blocks(),
        },
        _ if room < 2 => maker.read_blocks(),
        _ => maker.fused_compare_and_write(),
    }
}

/// A new write to the same sectors, after nobody knows what became of the one before.
pub fn write_again(mut maker: Maker<'_>, sectors: &Range<u64>) -> Task {
    let factor = maker.shape.block_sectors();
    let blocks = sectors.start / factor..sectors.end / factor;
    maker.write_blocks(&blocks)
}

impl Maker<'_> {
    fn whole(&self, purpose: Purpose, command: Command, data: Vec<u8>) -> Task {
        Task {
            unit: self.unit,
            purpose,
            parts: vec![(command, data)],
            own: false,
        }
    }

    fn blocks(&self, blocks: &Range<u64>) -> Blocks {
        Blocks {
            namespace: namespace(self.unit),
            lba: Lba(blocks.start),
            count: count(blocks),
            block_bytes: u32::try_from(self.shape.block_size).expect("512 or 4096"),
        }
    }

    fn fua(&mut self, of_ten_thousand: u64) -> (bool, u32) {
        let durable = self.random.chance(of_ten_thousand);
        (durable, if durable { FORCE_UNIT_ACCESS } else { 0 })
    }

    fn verify(&mut self) -> Task {
        let blocks = self.extent(self.longest());
        let command = commands::verify(self.blocks(&blocks));
        self.whole(Purpose::Look, command, Vec::new())
    }

    fn read_blocks(&mut self) -> Task {
        let blocks = if self.random.chance(500) {
            let end = self.shape.blocks();
            end - OWNERS * OWN_BLOCKS..end
        } else {
            self.extent(self.longest())
        };
        let mut command = commands::read(self.blocks(&blocks));
        let (_, flags) = self.fua(500);
        let dword = command.entry.dword(12);
        command.entry.set_dword(12, dword | flags);
        let started = self.history.begin_read();
        let first = self.sectors(&blocks).start;
        self.whole(Purpose::Read { started, first }, command, Vec::new())
    }

    fn write_blocks(&mut self, blocks: &Range<u64>) -> Task {
        let (durable, flags) = self.fua(2500);
        let (id, data) = self.begin_placed(blocks);
        let command = commands::write(self.blocks(blocks), flags);
        self.whole(Purpose::write(id, durable), command, data)
    }

    fn flush_unit(&mut self) -> Task {
        let started = self.history.begin_read();
        let all = self.random.chance(1000);
        let namespace = if all {
            NamespaceId::BROADCAST
        } else {
            namespace(self.unit)
        };
        let command = commands::flush(namespace);
        self.whole(Purpose::Flush { started }, command, Vec::new())
    }

    fn deallocate(&mut self) -> Task {
        let ranges: Vec<Range<u64>> = (0..self.random.pick(&[1, 1, 2, 3]))
            .map(|_: u32| self.extent(64))
            .collect();
        let ids = ranges.iter().map(|range| self.begin_zeros(range)).collect();
        let list: Vec<(Lba, u32)> = ranges
            .iter()
            .map(|range| (Lba(range.start), count(range)))
            .collect();
        let command = commands::deallocate(namespace(self.unit), list.len());
        let durable = false;
        self.whole(
            Purpose::Write { ids, durable },
            command,
            commands::ranges(&list),
        )
    }

    fn write_zeroes(&mut self) -> Task {
        let blocks = self.extent(64);
        let id = self.begin_zeros(&blocks);
        let (durable, flags) = self.fua(2500);
        let deallocate = if self.random.chance(5000) {
            DEALLOCATE
        } else {
            0
        };
        let command = commands::write_zeroes(self.blocks(&blocks), flags | deallocate);
        self.whole(Purpose::write(id, durable), command, Vec::new())
    }

    fn compare_blocks(&mut self) -> Task {
        let blocks = if self.random.chance(5000) {
            self.contested()
        } else {
            self.extent(16)
        };
        let (expected, data) = self.likely(&blocks);
        let started = self.history.begin_read();
        let first = self.sectors(&blocks).start;
        let purpose = Purpose::Compare {
            started,
            first,
            expected,
        };
        self.whole(purpose, commands::compare(self.blocks(&blocks)), data)
    }

    fn fused_compare_and_write(&mut self) -> Task {
        let blocks = self.contested();
        let (expected, old) = self.likely(&blocks);
        let (durable, flags) = self.fua(2000);
        let (id, new) = self.begin_placed(&blocks);
        let started = self.history.begin_read();
        let place = self.blocks(&blocks);
        let mut compare = commands::compare(place);
        compare.entry.set_fuse(Fuse::First);
        let mut write = commands::write(place, flags);
        write.entry.set_fuse(Fuse::Second);
        Task {
            unit: self.unit,
            purpose: Purpose::CompareAndWrite {
                id,
                started,
                expected,
                durable,
            },
            parts: vec![(compare, old), (write, new)],
            own: false,
        }
    }

    /// Writes to the host's own blocks, or copies what it knows of them within them.
    fn copy_or_own_write(&mut self, owner: u64) -> Task {
        let end = self.shape.blocks() - owner * OWN_BLOCKS;
        let half = OWN_BLOCKS / 2;
        let (source, target) = (end - OWN_BLOCKS..end - half, end - half..end);
        let stamps: Option<Vec<Stamp>> = self
            .sectors(&source)
            .map(|sector| self.history.certain(sector))
            .collect();
        let mut task = match stamps {
            Some(stamps) if self.random.chance(7000) => self.copy(&source, &target, &stamps),
            _ => {
                let blocks = if self.random.chance(7000) {
                    source
                } else {
                    target
                };
                self.write_blocks(&blocks)
            }
        };
        task.own = true;
        task
    }

    /// Copies the blocks of `source`, in one range or several, and the other way round.
    fn copy(&mut self, source: &Range<u64>, target: &Range<u64>, stamps: &[Stamp]) -> Task {
        let id = self.new_id();
        let mut stamps = stamps.to_vec();
        let mut list = vec![(Lba(source.start), count(source))];
        if self.random.chance(5000) {
            // Block by block, the last one first.
            list = source.clone().rev().map(|lba| (Lba(lba), 1)).collect();
            let sectors = crate::random::to_usize(self.shape.block_sectors());
            let blocks = stamps.chunks(sectors).rev();
            stamps = blocks.flatten().copied().collect();
        }
        let first = self.sectors(target).start;
        self.history.begin_copy(id, first, &stamps);
        let mut command = commands::copy(namespace(self.unit), Lba(target.start), list.len());
        let (durable, flags) = self.fua(2500);
        let dword = command.entry.dword(12);
        command.entry.set_dword(12, dword | flags);
        self.whole(
            Purpose::write(id, durable),
            command,
            commands::sources(&list),
        )
    }
}

fn count(blocks: &Range<u64>) -> u32 {
    u32::try_from(blocks.end - blocks.start).expect("units are small")
}
