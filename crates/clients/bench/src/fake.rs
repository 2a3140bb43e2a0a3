//! A volume in memory behind queues that need no socket, and that can be told to go wrong.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use longshore_block::extent::Extent;
use longshore_initiator::error::{Failure, Lost, Sense};
use longshore_initiator::operation::{Completion, Data, Operation, Reply};

use crate::queue::{LoadQueue, Refused};

/// What goes wrong, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A write is acknowledged and dropped.
    Lost,
    /// Reads of a block give its former contents again after newer ones were read.
    Stale,
    /// A write goes one block too far.
    Misplaced,
    /// A block gets the first half of a write only.
    TornBlock,
    /// A write of several blocks stops after the first.
    TornWrite,
    Flipped,
    Fails,
    Lose,
    /// The target reports this many changes in a row, each instead of executing a command.
    Attentions(u32),
}

/// REPORTED LUNS DATA HAS CHANGED.
const UNIT_ATTENTION: Failure = Failure::Scsi {
    status: 2,
    sense: Some(Sense {
        key: 6,
        asc: 0x3f,
        ascq: 0x0e,
        information: None,
    }),
};

#[derive(Debug)]
pub struct FakeVolume {
    bytes: Vec<u8>,
    block_size: usize,
    plant: Option<Plant>,
    /// The fault comes when so many operations of its kind have gone well.
    after: u32,
    /// Reads that came without memory.
    pub without_memory: u32,
    /// Former contents of the block that goes stale.
    former: Option<(usize, Vec<u8>)>,
}

impl FakeVolume {
    pub fn new(blocks: usize, block_size: usize) -> Self {
        Self {
            bytes: vec![0; blocks * block_size],
            block_size,
            plant: None,
            after: 0,
            without_memory: 0,
            former: None,
        }
    }

    pub fn planted(mut self, plant: Plant, after: u32) -> Self {
        self.plant = Some(plant);
        self.after = after;
        self
    }

    pub fn shared(self) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(self))
    }

    fn strikes(&mut self, plants: &[Plant]) -> Option<Plant> {
        let plant = self.plant.filter(|plant| plants.contains(plant))?;
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.plant.take();
        Some(plant)
    }

    /// Whether a change is reported instead.
    fn has_attention(&mut self) -> bool {
        if !matches!(self.plant, Some(Plant::Attentions(_))) {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        self.plant = match self.plant {
            Some(Plant::Attentions(left @ 2..)) => Some(Plant::Attentions(left - 1)),
            _ => None,
        };
        true
    }

    fn range(&self, extent: Extent) -> std::ops::Range<usize> {
        let start = usize::try_from(extent.lba.0).unwrap() * self.block_size;
        start..start + usize::try_from(extent.blocks.0).unwrap() * self.block_size
    }

    fn write(&mut self, extent: Extent, data: &[u8]) -> Result<(), Failure> {
        use Plant::{Fails, Flipped, Lost, Misplaced, TornBlock, TornWrite};
        let range = self.range(extent);
        let data = &data[..range.len()];
        let was_written = self.bytes[range.start] != 0;
        let mut plants = vec![Fails];
        // What was there before must be known for the others to be told apart.
        if was_written {
            plants.extend([Lost, Misplaced, TornBlock, Flipped]);
            if extent.blocks.0 > 1 {
                plants.push(TornWrite);
            }
        }
        let block = self.block_size;
        match self.strikes(&plants) {
            Some(Lost) => {}
            Some(Fails) => return Err(Failure::NoSpace),
            Some(Misplaced) => {
                let at = (range.start + block) % self.bytes.len();
                self.bytes[at..at + block].copy_from_slice(&data[..block]);
            }
            Some(TornBlock) => {
                let half = range.start..range.start + block / 2;
                self.bytes[half].copy_from_slice(&data[..block / 2]);
                let rest = range.start + block..range.end;
                self.bytes[rest].copy_from_slice(&data[block..]);
            }
            Some(TornWrite) => {
                self.bytes[range.start..range.start + block].copy_from_slice(&data[..block]);
            }
            Some(Flipped) => {
                self.bytes[range.clone()].copy_from_slice(data);
                self.bytes[range.start + 100] ^= 4;
            }
            _ => {
                if self.plant == Some(Plant::Stale) && was_written && self.former.is_none() {
                    let old = self.bytes[range.start..range.start + block].to_vec();
                    self.former = Some((range.start, old));
                }
                self.bytes[range].copy_from_slice(data);
            }
        }
        Ok(())
    }

    fn read(&mut self, extent: Extent, data: &mut [u8]) {
        let range = self.range(extent);
        data[..range.len()].copy_from_slice(&self.bytes[range.clone()]);
        let Some((at, old)) = self.former.clone() else {
            return;
        };
        if range.contains(&at) && self.strikes(&[Plant::Stale]).is_some() {
            let offset = at - range.start;
            data[offset..offset + old.len()].copy_from_slice(&old);
        }
    }
}

/// A queue to it. Operations are carried out when answers are asked for, a few at a time.
#[derive(Debug)]
pub struct FakeQueue {
    volume: Arc<Mutex<FakeVolume>>,
    depth: usize,
    waiting: VecDeque<(Operation, Data, u64)>,
    sent: usize,
    submits: u32,
    /// Answers come so many at a time.
    batch: usize,
}

impl FakeQueue {
    pub fn new(volume: &Arc<Mutex<FakeVolume>>, depth: usize) -> Self {
        Self {
            volume: Arc::clone(volume),
            depth,
            waiting: VecDeque::new(),
            sent: 0,
            submits: 0,
            batch: 3,
        }
    }
}

impl LoadQueue for FakeQueue {
    fn room(&self) -> usize {
        self.depth - self.waiting.len()
    }

    fn submit(&mut self, operation: Operation, data: Data, tag: u64) -> Result<(), Refused> {
        self.submits += 1;
        // Now and then there is no room although there seemed to be.
        if self.room() == 0 || self.submits.is_multiple_of(7) {
            return Err(Refused::Busy(data));
        }
        self.waiting.push_back((operation, data, tag));
        Ok(())
    }

    fn send(&mut self, _: usize) -> Result<(), Lost> {
        self.sent = self.waiting.len();
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.sent < self.waiting.len()
    }

    fn receive(&mut self, completions: &mut Vec<Completion>) -> Result<bool, Lost> {
        let mut volume = self.volume.lock().unwrap();
        for _ in 0..self.batch.min(self.sent) {
            if volume.strikes(&[Plant::Lose]).is_some() {
                return Err(Lost::HungUp);
            }
            // The newest first: answers come in any order.
            let (operation, mut data, tag) = self.waiting.remove(self.sent - 1).unwrap();
            self.sent -= 1;
            let result = match operation {
                _ if volume.has_attention() => Err(UNIT_ATTENTION),
                Operation::Read { extent } => {
                    if let Data::Buffer { .. } = data {
                        volume.read(extent, data.bytes_mut());
                    } else {
                        volume.without_memory += 1;
                    }
                    Ok(Reply::Done)
                }
                Operation::Write { extent, .. } => {
                    volume.write(extent, data.bytes()).map(|()| Reply::Done)
                }
                other => panic!("the engine submits no {other:?}"),
            };
            completions.push(Completion { tag, result, data });
        }
        Ok(true)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
