//! What a block of a verified write holds.
//!
//! ```text
//!  0        8       16       24       32       40    44     46     48       56           block size
//!  | magic   | lba    | seed   | run    | gen.   | crc | part | of   | write  | filling …  |
//! ```
//! All numbers are little-endian. The CRC32C covers the block without its own four bytes. `part` is
//! the block's number within its write, which has `of` blocks; both are 0 in a write of 65,536
//! blocks or more. `write` numbers the writes of a run. The filling follows from seed, run, LBA and generation, so that a block which mixes
//! two writes can be told from one with a flipped bit.

use longshore_wire::Crc32c;

use crate::random::mix;

/// Bytes before the filling.
pub const HEADER: usize = 56;

const MAGIC: [u8; 8] = *b"LSBENCH1";
const CRC_AT: usize = 40;

/// Who wrote a block, when and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub lba: u64,
    /// `--seed` of the run.
    pub seed: u64,
    /// Tells runs with the same seed apart.
    pub run: u64,
    /// Counts the writes of the block, from 1.
    pub generation: u64,
    /// Blocks of the same write in front of this one.
    pub part: u16,
    /// Blocks of the write.
    pub of: u16,
    /// The write's number within the run, from 1.
    pub write: u64,
}

/// What a block turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A stamp whose checksum matches.
    Stamp(Stamp),
    /// Stamped, but not all of it is what the stamp says.
    Damaged(Stamp),
    /// Zeros only: never written, or deallocated.
    Zeros,
    /// Neither a stamp nor zeros: written by another program.
    Foreign,
}

impl Stamp {
    pub fn fill(&self, block: &mut [u8]) {
        block[..HEADER].copy_from_slice(&self.header());
        let base = self.base();
        let (words, rest) = block[HEADER..].as_chunks_mut::<8>();
        let mut value = base;
        for word in words {
            *word = value.to_le_bytes();
            value = value.wrapping_add(STEP);
        }
        rest.fill(0);
        let crc = checksum(block);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc);
    }

    fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        let numbers = [self.lba, self.seed, self.run];
        for (field, number) in header[8..32].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        header[32..40].copy_from_slice(&self.generation.to_le_bytes());
        header[44..46].copy_from_slice(&self.part.to_le_bytes());
        header[46..48].copy_from_slice(&self.of.to_le_bytes());
        header[48..56].copy_from_slice(&self.write.to_le_bytes());
        header
    }

    /// Whether the write that left this block also covered that one.
    #[must_use]
    pub fn write_covers(&self, lba: u64) -> bool {
        let first = self.lba.checked_sub(u64::from(self.part));
        first.is_some_and(|first| (first..first.saturating_add(u64::from(self.of))).contains(&lba))
    }

    fn base(&self) -> u64 {
        mix(self.seed ^ mix(self.run ^ mix(self.lba ^ mix(self.generation))))
    }

    /// The first byte that differs from what this stamp would have written, leaving the checksum
    /// aside.
    #[must_use]
    pub fn first_difference(&self, block: &[u8]) -> Option<usize> {
        let mut expected = vec![0; block.len()];
        self.fill(&mut expected);
        expected[CRC_AT..CRC_AT + 4].copy_from_slice(&block[CRC_AT..CRC_AT + 4]);
        expected.iter().zip(block).position(|(a, b)| a != b)
    }

    /// Whether the block is this stamp's from `at` on.
    #[must_use]
    pub fn holds_from(&self, block: &[u8], at: usize) -> bool {
        let mut expected = vec![0; block.len()];
        self.fill(&mut expected);
        at < block.len() && expected[at..] == block[at..]
    }
}

/// Far from any difference that stamps next to each other have.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Looks at a block.
#[must_use]
pub fn read(block: &[u8]) -> Content {
    let number = |at: usize| {
        let bytes = block[at..at + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    if block[..8] != MAGIC {
        let is_zero = block.iter().all(|byte| *byte == 0);
        return if is_zero {
            Content::Zeros
        } else {
            Content::Foreign
        };
    }
    let stamp = Stamp {
        lba: number(8),
        seed: number(16),
        run: number(24),
        generation: number(32),
        part: u16::from_le_bytes([block[44], block[45]]),
        of: u16::from_le_bytes([block[46], block[47]]),
        write: number(48),
    };
    if block[CRC_AT..CRC_AT + 4] == checksum(block) {
        Content::Stamp(stamp)
    } else {
        Content::Damaged(stamp)
    }
}

fn checksum(block: &[u8]) -> [u8; 4] {
    let mut crc = Crc32c::new();
    crc.update(&block[..CRC_AT]);
    crc.update(&block[CRC_AT + 4..]);
    crc.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp {
        lba: 0x0102_0304,
        seed: 5,
        run: 6,
        generation: 7,
        part: 1,
        of: 3,
        write: 9,
    };

    #[test]
    fn a_block_has_its_documented_layout() {
        let mut block = [0xff; 512];
        STAMP.fill(&mut block);
        assert_eq!(&block[..8], b"LSBENCH1");
        assert_eq!(block[8..16], [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!((block[16], block[24], block[32]), (5, 6, 7));
        assert_eq!(block[44..49], [1, 0, 3, 0, 9]);
        assert_eq!(read(&block), Content::Stamp(STAMP));
        assert_eq!(STAMP.first_difference(&block), None);
    }

    #[test]
    fn a_block_knows_what_else_its_write_covered() {
        let covered: Vec<u64> = (STAMP.lba - 3..STAMP.lba + 4)
            .filter(|lba| STAMP.write_covers(*lba))
            .collect();
        assert_eq!(covered, [STAMP.lba - 1, STAMP.lba, STAMP.lba + 1]);
    }

    #[test]
    fn what_was_never_stamped_is_told_apart() {
        assert_eq!(read(&[0; 512]), Content::Zeros);
        assert_eq!(read(&[1; 512]), Content::Foreign);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_flipped_bit_goes_unnoticed(at in 0..512_usize * 8, generation: u64) {
            let mut block = [0; 512];
            let stamp = Stamp { generation, ..STAMP };
            stamp.fill(&mut block);
            block[at / 8] ^= 1 << (at % 8);
            prop_assert_ne!(read(&block), Content::Stamp(stamp));
        }

        #[test]
        fn the_place_of_a_tear_is_found(sector in 1..8_usize) {
            let (mut old, mut new) = ([0; 4096], [0; 4096]);
            let newer = Stamp { generation: 8, ..STAMP };
            STAMP.fill(&mut old);
            newer.fill(&mut new);
            let at = sector * 512;
            new[at..].copy_from_slice(&old[at..]);
            prop_assert_eq!(read(&new), Content::Damaged(newer));
            prop_assert_eq!(newer.first_difference(&new), Some(at));
            prop_assert!(STAMP.holds_from(&new, at));
            prop_assert!(!newer.holds_from(&new, at));
        }
    }
}
