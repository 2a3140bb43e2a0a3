//! Work on a range in bounded pieces.

use longshore_block::media::{BlockCount, Lba, MediaOperation, Place};

use crate::io::command::{Step, StepContext};
use crate::io::extent::Extent;
use crate::io::limits::SCRATCH_BYTES;

/// Scratch memory for working on a range chunk by chunk.
pub(crate) fn scratch_length(extent: Extent, block_size: u32) -> usize {
    let bytes = usize::try_from(extent.bytes(block_size)).unwrap_or(usize::MAX);
    let block = usize::try_from(block_size).unwrap_or(usize::MAX);
    bytes.min(SCRATCH_BYTES.max(block))
}

/// Progress through a range, chunk by chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    extent: Extent,
    block_size: u32,
    /// Blocks behind us.
    done: u64,
    /// Blocks of the chunk at hand.
    current: u64,
}

impl Chunks {
    pub(crate) fn new(extent: Extent, block_size: u32) -> Self {
        Self {
            extent,
            block_size,
            done: 0,
            current: 0,
        }
    }

    /// Moves on to the next chunk that fits the scratch memory; `None` at the end.
    pub(crate) fn advance(&mut self, scratch: &[u8]) -> Option<Chunk> {
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
    pub(crate) fn chunk(&self) -> Chunk {
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
pub(crate) struct Chunk {
    pub(crate) extent: Extent,
    /// Bytes from the start of the range.
    pub(crate) start: usize,
    /// Bytes.
    pub(crate) length: usize,
}

impl Chunk {
    /// Reads it into the beginning of the scratch memory.
    pub(crate) fn read(&self, context: &StepContext<'_, '_>) -> Step {
        let Extent { lba, blocks } = self.extent;
        context.media(MediaOperation::Read { lba, blocks }, self.place())
    }

    /// The beginning of the scratch memory.
    pub(crate) fn place(&self) -> Place {
        Place::Scratch {
            start: 0,
            length: self.length,
        }
    }

    /// Whether what was read is what `expected` (the data for the whole range) holds there.
    pub(crate) fn equals(&self, scratch: &[u8], expected: &[u8]) -> bool {
        scratch[..self.length] == expected[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_range_once() {
        let extent = Extent {
            lba: Lba(100),
            blocks: BlockCount(5),
        };
        let mut chunks = Chunks::new(extent, 512);
        let scratch = vec![0; 1024];
        let mut seen = Vec::new();
        while let Some(chunk) = chunks.advance(&scratch) {
            let Extent { lba, blocks } = chunk.extent;
            seen.push((lba.0, blocks.0, chunk.start, chunk.length));
        }
        assert_eq!(
            seen,
            [(100, 2, 0, 1024), (102, 2, 1024, 1024), (104, 1, 2048, 512)]
        );
    }

    #[test]
    fn scratch_memory_is_bounded_and_holds_a_block() {
        let extent = |blocks| Extent {
            lba: Lba(0),
            blocks: BlockCount(blocks),
        };
        assert_eq!(scratch_length(extent(2), 512), 1024);
        assert_eq!(scratch_length(extent(65536), 4096), SCRATCH_BYTES);
        assert_eq!(scratch_length(extent(2), 1 << 20), 1 << 20);
    }
}
