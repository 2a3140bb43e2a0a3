//! Writes blocks in generations and proves later that no acknowledged one was lost.
//!
//! Generation *g* writes a few blocks chosen by the seed and *g*, makes them durable, and is then
//! *acknowledged*. Every byte of a block follows from seed, block number and generation, so a
//! checker that knows the seed and the last acknowledged generation knows what every block must
//! hold. Only blocks of the one generation that was under way may hold anything: the old bytes,
//! the new ones, or a mixture, as a power cut leaves them.

use std::io;

use crate::random::Random;

/// Bytes of a block, whatever the block size of the device.
pub const BLOCK: usize = 4096;

/// Blocks written by each generation.
const BLOCKS_PER_GENERATION: usize = 8;

/// What writer and checker agree upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ledger {
    /// Chooses blocks and contents.
    pub seed: u64,
    /// Blocks in use, from the start of the device.
    pub blocks: u64,
    /// How many generations beyond the last acknowledged one may have been under way.
    pub ahead: u64,
}

/// What a check found in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Blocks that hold exactly what was acknowledged last.
    pub intact: u64,
    /// Blocks of the generation that was under way, which may hold anything.
    pub undecided: u64,
}

impl Ledger {
    /// The blocks that generation `generation` writes, without repetition.
    pub fn blocks_of(&self, generation: u64) -> Vec<u64> {
        let mut random = Random::new(self.seed ^ generation.wrapping_mul(0x9e37_79b9));
        let mut chosen = Vec::with_capacity(BLOCKS_PER_GENERATION);
        while chosen.len() < BLOCKS_PER_GENERATION.min(usize::try_from(self.blocks).unwrap_or(1)) {
            let block = random.below(self.blocks);
            if !chosen.contains(&block) {
                chosen.push(block);
            }
        }
        chosen
    }

    /// The bytes that `generation` writes to `block`. Generation 0 is what was there before:
    /// zeros.
    pub fn contents(&self, block: u64, generation: u64, bytes: &mut [u8]) {
        if generation == 0 {
            bytes.fill(0);
            return;
        }
        // Block and generation stand in the clear at the front, for whoever looks at a bad one.
        Random::new(self.seed ^ block.rotate_left(32) ^ generation).fill(bytes);
        bytes[..8].copy_from_slice(&block.to_be_bytes());
        bytes[8..16].copy_from_slice(&generation.to_be_bytes());
    }

    /// Compares a device with what was acknowledged. `read` fills its buffer with a block.
    pub fn check(
        &self,
        acknowledged: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Checked> {
        let expected = self.last_generations(acknowledged);
        let under_way: Vec<u64> = (acknowledged + 1..=acknowledged + self.ahead)
            .flat_map(|generation| self.blocks_of(generation))
            .collect();
        let mut checked = Checked {
            intact: 0,
            undecided: 0,
        };
        let (mut found, mut wanted) = (aligned(BLOCK), vec![0; BLOCK]);
        for (block, &generation) in (0..).zip(&expected) {
            if under_way.contains(&block) {
                checked.undecided += 1;
                continue;
            }
            read(block, found.bytes())?;
            self.contents(block, generation, &mut wanted);
            if found.bytes() != wanted {
                return Err(self.wrong(block, generation, found.bytes()));
            }
            checked.intact += 1;
        }
        Ok(checked)
    }

    /// For each block, the last generation up to `acknowledged` that wrote it.
    fn last_generations(&self, acknowledged: u64) -> Vec<u64> {
        let blocks = usize::try_from(self.blocks).expect("a ledger fits into memory");
        let mut last = vec![0; blocks];
        for generation in 1..=acknowledged {
            for block in self.blocks_of(generation) {
                last[usize::try_from(block).expect("below the number of blocks")] = generation;
            }
        }
        last
    }

    fn wrong(&self, block: u64, generation: u64, found: &[u8]) -> io::Error {
        let number = |range: std::ops::Range<usize>| {
            u64::from_be_bytes(found[range].try_into().unwrap_or_default())
        };
        let (found_block, found_generation) = (number(0..8), number(8..16));
        let zeros = found.iter().all(|&byte| byte == 0);
        let what = if zeros {
            "zeros".to_owned()
        } else {
            format!("a block that begins as {found_block} of generation {found_generation}")
        };
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("block {block} must hold generation {generation}, but holds {what}"),
        )
    }
}

/// Compares a device that several ledgers of the same blocks were written to at the same time,
/// each up to its last acknowledged generation: every block must hold, whole, what one of them
/// wrote to it last. Tells how many blocks are those of each.
pub fn check_shared(
    writers: &[(Ledger, u64)],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Vec<u64>> {
    let blocks = writers.first().map_or(0, |(ledger, _)| ledger.blocks);
    let last: Vec<Vec<u64>> = writers
        .iter()
        .map(|(ledger, acknowledged)| ledger.last_generations(*acknowledged))
        .collect();
    let mut counts = vec![0; writers.len()];
    let (mut found, mut wanted) = (aligned(BLOCK), vec![0; BLOCK]);
    for (index, block) in (0..blocks).enumerate() {
        read(block, found.bytes())?;
        let written: Vec<usize> = (0..writers.len()).filter(|&w| last[w][index] > 0).collect();
        let winner = written.iter().copied().find(|&writer| {
            let (ledger, _) = &writers[writer];
            ledger.contents(block, last[writer][index], &mut wanted);
            found.bytes() == wanted
        });
        match winner {
            Some(writer) => counts[writer] += 1,
            None if written.is_empty() && found.bytes().iter().all(|&byte| byte == 0) => {}
            None => {
                let (ledger, _) = &writers[written.first().copied().unwrap_or(0)];
                return Err(ledger.wrong(block, last[0][index], found.bytes()));
            }
        }
    }
    Ok(counts)
}

/// Memory at an address that is a multiple of [`BLOCK`], as O_DIRECT demands.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

/// Zeroed memory of this length.
pub fn aligned(length: usize) -> Aligned {
    let memory = vec![0; length + BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    Aligned {
        memory,
        start,
        length,
    }
}

impl Aligned {
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEDGER: Ledger = Ledger {
        seed: 5,
        blocks: 64,
        ahead: 1,
    };

    /// A device that has everything up to `generation`.
    fn device(generation: u64) -> Vec<u8> {
        let mut device = vec![0; 64 * BLOCK];
        for g in 1..=generation {
            for block in LEDGER.blocks_of(g) {
                let at = usize::try_from(block).unwrap() * BLOCK;
                LEDGER.contents(block, g, &mut device[at..at + BLOCK]);
            }
        }
        device
    }

    fn check(device: &[u8], acknowledged: u64) -> io::Result<Checked> {
        LEDGER.check(acknowledged, |block, bytes| {
            let at = usize::try_from(block).unwrap() * BLOCK;
            bytes.copy_from_slice(&device[at..at + BLOCK]);
            Ok(())
        })
    }

    #[test]
    fn everything_acknowledged_is_found() {
        assert_eq!(
            check(&device(20), 20).unwrap(),
            Checked {
                intact: 56,
                undecided: 8
            }
        );
    }

    #[test]
    fn each_block_of_a_shared_device_is_one_writers_last() {
        let other = Ledger { seed: 6, ..LEDGER };
        let writers = [(LEDGER, 20), (other, 10)];
        let mut device = device(20);
        for g in 1..=10 {
            for block in other.blocks_of(g) {
                let at = usize::try_from(block).unwrap() * BLOCK;
                other.contents(block, g, &mut device[at..at + BLOCK]);
            }
        }
        let check = |device: &[u8]| {
            check_shared(&writers, |block, bytes| {
                let at = usize::try_from(block).unwrap() * BLOCK;
                bytes.copy_from_slice(&device[at..at + BLOCK]);
                Ok(())
            })
        };
        let counts = check(&device).unwrap();
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
        // Half a block of each.
        let block = other.blocks_of(10)[0];
        let at = usize::try_from(block).unwrap() * BLOCK;
        let mut mixed = vec![0; BLOCK];
        LEDGER.contents(block, 20, &mut mixed);
        device[at..at + BLOCK / 2].copy_from_slice(&mixed[..BLOCK / 2]);
        assert!(check(&device).is_err());
    }

    #[test]
    fn the_generation_under_way_may_be_there_or_not() {
        check(&device(20), 19).unwrap();
        assert!(
            check(&device(20), 17).is_err(),
            "two generations ahead cannot be"
        );
    }

    #[test]
    fn a_lost_generation_and_a_flipped_bit_are_found() {
        let error = check(&device(19), 20).unwrap_err().to_string();
        assert!(error.contains("must hold generation 20"), "{error}");
        let mut flipped = device(20);
        let untouched = (0..64).find(|b| !LEDGER.blocks_of(21).contains(b)).unwrap();
        flipped[usize::try_from(untouched).unwrap() * BLOCK + 77] ^= 1;
        assert!(check(&flipped, 20).is_err());
    }
}
