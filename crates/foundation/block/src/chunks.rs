//! Work on a range in bounded pieces, so that a command over a large range needs little memory and
//! every step is short.

use crate::command::DataLocation;
use crate::extent::{BlockCount, Extent, Lba};
use crate::operation::Operation;

/// Most scratch memory for working on a range, unless a block is longer.
pub const SCRATCH_BYTES: usize = 256 * 1024;

/// Scratch memory for working on a range chunk by chunk.
#[must_use]
pub fn scratch_length(extent: Extent, block_size: u32) -> usize {
    let bytes = usize::try_from(extent.bytes(block_size)).unwrap_or(usize::MAX);
    let block = usize::try_from(block_size).unwrap_or(usize::MAX);
    bytes.min(SCRATCH_BYTES.max(block))
}

/// Progress through a range, chunk by chunk.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    extent: Extent,
    block_size: u32,
    /// Blocks of the chunks so far, from the start of the extent.
    done: u64,
    /// Blocks of the chunk at hand.
    current: u64,
}

impl Chunks {
    /// At the beginning of a range.
    #[must_use]
    pub fn new(extent: Extent, block_size: u32) -> Self {
        Self {
            extent,
            block_size,
            done: 0,
            current: 0,
        }
    }

    /// Moves on to the next chunk that fits the scratch memory; `None` at the end.
    pub fn advance(&mut self, scratch: &[u8]) -> Option<Chunk> {
        self.done += self.current;
        let left = self.extent.blocks.0 - self.done;
        self.current = left.min(scratch.len() as u64 / u64::from(self.block_size));
        assert!(
            left == 0 || self.current > 0,
            "scratch memory holds at least one block"
        );
        (self.current > 0).then(|| self.chunk())
    }

    /// The chunk at hand.
    #[must_use]
    pub fn chunk(&self) -> Chunk {
        let bytes = |blocks: u64| {
            usize::try_from(blocks * u64::from(self.block_size)).expect("it fits scratch memory")
        };
        Chunk {
            extent: Extent {
                lba: Lba(self.extent.lba.0 + self.done),
                blocks: BlockCount(self.current),
            },
            start: bytes(self.done),
            length: bytes(self.current),
        }
    }
}

/// A part of a range.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub extent: Extent,
    /// Bytes from the start of the range.
    pub start: usize,
    /// Length of the chunk in bytes; a multiple of the block size.
    pub length: usize,
}

impl Chunk {
    #[must_use]
    pub fn read(&self) -> Operation {
        Operation::Read {
            extent: self.extent,
        }
    }

    /// The beginning of the scratch memory.
    #[must_use]
    pub fn payload(&self) -> DataLocation {
        DataLocation::Scratch {
            start: 0,
            length: self.length,
        }
    }

    /// Its part of the data for the whole range.
    #[must_use]
    pub fn part_of<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        &data[self.start..self.start + self.length]
    }

    /// Offset from the start of the range of the first byte in which the scratch memory differs from the
    /// data for the whole range.
    #[must_use]
    pub fn first_difference(&self, scratch: &[u8], data: &[u8]) -> Option<u64> {
        let (scratch, expected) = (&scratch[..self.length], self.part_of(data));
        if scratch == expected {
            return None;
        }
        let at = scratch.iter().zip(expected).position(|(a, b)| a != b)?;
        Some((self.start + at) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_range_once() {
        let extent = Extent::new(100, 5);
        let mut chunks = Chunks::new(extent, 512);
        let scratch = vec![0; 1024];
        let mut seen = Vec::new();
        while let Some(chunk) = chunks.advance(&scratch) {
            seen.push((
                chunk.extent.lba.0,
                chunk.extent.blocks.0,
                chunk.start,
                chunk.length,
            ));
        }
        assert_eq!(
            seen,
            [(100, 2, 0, 1024), (102, 2, 1024, 1024), (104, 1, 2048, 512)]
        );
    }

    #[test]
    fn a_difference_is_told_from_the_start_of_the_range() {
        let extent = Extent::new(0, 4);
        let mut chunks = Chunks::new(extent, 512);
        let (mut scratch, data) = (vec![0; 1024], vec![0; 2048]);
        chunks.advance(&scratch);
        let chunk = chunks.advance(&scratch).unwrap();
        assert_eq!(chunk.first_difference(&scratch, &data), None);
        scratch[5] = 1;
        assert_eq!(chunk.first_difference(&scratch, &data), Some(1029));
    }

    #[test]
    fn scratch_memory_is_bounded_and_holds_a_block() {
        let extent = |blocks| Extent::new(0, blocks);
        assert_eq!(scratch_length(extent(2), 512), 1024);
        assert_eq!(scratch_length(extent(65536), 4096), SCRATCH_BYTES);
        assert_eq!(scratch_length(extent(2), 1 << 20), 1 << 20);
    }
}
