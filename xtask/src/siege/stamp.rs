//! What a block of a siege holds: who wrote it, where, and as which write of its host.
//!
//! ```text
//! 0        8        16       24       32                            4096
//! ┌────────┬────────┬────────┬────────┬──────────────────────────────┐
//! │ magic  │ seed   │ block  │ number │ bytes that follow from these │   numbers big-endian
//! └────────┴────────┴────────┴────────┴──────────────────────────────┘
//! ```
//!
//! So a block that is found tells what it should be: whatever does not match, in any bit, was changed.

use longshore_tests::random::Random;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

const MAGIC: u64 = u64::from_be_bytes(*b"SIEGE\0\0\x01");

/// The content of a block, as far as a host gives it one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Never written, or zeroed.
    Zeros,
    /// That of the write with this number, from 1.
    Write(u64),
}

/// What a block was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// What somebody writes to this block.
    Whole(Content),
    /// A whole block of another place, or of another campaign.
    Misplaced { block: u64, number: u64 },
    /// Nothing that was ever written.
    Damaged,
}

/// Fills a block with what write `number` puts there.
pub fn fill(seed: u64, block: u64, number: u64, bytes: &mut [u8]) {
    let mixed = seed ^ block.rotate_left(40) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Random::new(mixed).fill(bytes);
    for (place, value) in bytes.chunks_exact_mut(8).zip([MAGIC, seed, block, number]) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Looks at what stands at `block`.
pub fn find(seed: u64, block: u64, bytes: &[u8]) -> Found {
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Whole(Content::Zeros);
    }
    let word = |index: usize| {
        let bytes = bytes.get(index * 8..index * 8 + 8).unwrap_or_default();
        bytes.try_into().map_or(0, u64::from_be_bytes)
    };
    let [magic, its_seed, its_block, number] = [0, 1, 2, 3].map(word);
    let mut expected = vec![0; bytes.len()];
    fill(its_seed, its_block, number, &mut expected);
    if magic != MAGIC || expected != bytes {
        return Found::Damaged;
    }
    if its_seed != seed || its_block != block {
        return Found::Misplaced {
            block: its_block,
            number,
        };
    }
    Found::Whole(Content::Write(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_what_it_is() {
        let mut bytes = vec![0; BLOCK];
        assert_eq!(find(1, 2, &bytes), Found::Whole(Content::Zeros));
        fill(1, 2, 3, &mut bytes);
        assert_eq!(find(1, 2, &bytes), Found::Whole(Content::Write(3)));
        let misplaced = Found::Misplaced {
            block: 2,
            number: 3,
        };
        assert_eq!(find(1, 7, &bytes), misplaced);
        assert_eq!(find(9, 2, &bytes), misplaced);
    }

    #[test]
    fn one_bit_anywhere_and_half_a_block_are_damage() {
        let mut bytes = vec![0; BLOCK];
        fill(1, 2, 3, &mut bytes);
        for byte in [0, 9, 17, 25, 32, 2000, BLOCK - 1] {
            let mut flipped = bytes.clone();
            flipped[byte] ^= 0x10;
            assert_eq!(find(1, 2, &flipped), Found::Damaged, "byte {byte}");
        }
        let mut older = vec![0; BLOCK];
        fill(1, 2, 2, &mut older);
        bytes[BLOCK / 2..].copy_from_slice(&older[BLOCK / 2..]);
        assert_eq!(find(1, 2, &bytes), Found::Damaged);
        bytes[BLOCK / 2..].fill(0);
        assert_eq!(find(1, 2, &bytes), Found::Damaged);
    }
}
