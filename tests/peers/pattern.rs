//! What is written: every word of a block follows from the volume's byte offset and the number of the write, so
//! that lost, stale, misplaced and torn writes all read as something else.

/// Fills whole blocks, the first of which is `lba`.
pub fn fill(bytes: &mut [u8], lba: u64, generation: u32, block_size: u32) {
    for (block, lba) in blocks(bytes, block_size).zip(lba..) {
        for (word, index) in block.chunks_exact_mut(8).zip(0_u64..) {
            word.copy_from_slice(&expected(lba, generation, index).to_le_bytes());
        }
    }
}

/// Compares one block; says what it holds instead.
pub fn check(block: &[u8], lba: u64, generation: u32) -> Result<(), String> {
    for (word, index) in block.chunks_exact(8).zip(0_u64..) {
        let found = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
        if found != expected(lba, generation, index) {
            return Err(format!(
                "block {lba}, byte {}: {found:#018x} in place of generation {generation}{}",
                index * 8,
                describe(block, lba, index)
            ));
        }
    }
    Ok(())
}

/// The first word of a block is readable, the others are mixed from it and their place.
fn expected(lba: u64, generation: u32, index: u64) -> u64 {
    let word = lba << 24 | u64::from(generation);
    if index == 0 {
        return word;
    }
    let mut mixed = (word ^ index << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn describe(block: &[u8], lba: u64, index: u64) -> String {
    if block.iter().all(|&byte| byte == 0) {
        return ": all zeros".to_owned();
    }
    let word = u64::from_le_bytes(block[..8].try_into().expect("a block has a word"));
    let (first_lba, first_generation) = (word >> 24, word & 0xff_ffff);
    match index {
        0 if first_lba == lba => format!(": generation {first_generation} of this block"),
        0 => format!(": generation {first_generation} of block {first_lba}"),
        _ => ": the block is torn".to_owned(),
    }
}

fn blocks(bytes: &mut [u8], block_size: u32) -> impl Iterator<Item = &mut [u8]> {
    let block_size = usize::try_from(block_size).expect("blocks are small");
    bytes.chunks_exact_mut(block_size)
}
