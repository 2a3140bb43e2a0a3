//! Commands that touch the medium in more than one step, a file to each family, and what they have
//! in common (SBC-3 §5).
//!
//! They work in chunks of at most [`CHUNK_BYTES`], so that a command over a large range needs
//! little memory and every step is short.

use crate::cdb::Extent;
use crate::command::Buffers;
use crate::sense::{AdditionalSense, Sense};
use longshore_block::media::Place;
use longshore_block::media::{BlockCount, Lba};

pub(crate) mod atomic;
pub(crate) mod compare_and_write;
pub(crate) mod lba_status;
pub(crate) mod or_write;
pub(crate) mod partial_write;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write_same;

/// Most scratch memory a command of this module asks for.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;

/// Bytes of so many blocks. Saturates: no buffer is that long, and lengths are compared only.
pub(crate) fn bytes(blocks: BlockCount, block_size: u32) -> usize {
    usize::try_from(blocks.0.saturating_mul(u64::from(block_size))).unwrap_or(usize::MAX)
}

/// Blocks that fit into so many bytes.
pub(crate) fn blocks(bytes: usize, block_size: u32) -> BlockCount {
    BlockCount(bytes as u64 / u64::from(block_size))
}

/// Scratch memory for working on a range chunk by chunk.
pub(crate) fn chunk_bytes(blocks: BlockCount, block_size: u32) -> usize {
    bytes(blocks, block_size).min(CHUNK_BYTES)
}

/// How many of the `wanted` blocks the initiator really sent. It may send less than the CDB says
/// (iSCSI: Expected Data Transfer Length); then the whole blocks it sent count. A torn block is
/// refused before anything is written: ILLEGAL REQUEST, INVALID FIELD IN COMMAND INFORMATION UNIT.
pub(crate) fn whole_blocks_sent(
    data_out: &[u8],
    wanted: BlockCount,
    block_size: u32,
) -> Result<BlockCount, Sense> {
    if data_out.len() >= bytes(wanted, block_size) {
        return Ok(wanted);
    }
    let sent = blocks(data_out.len(), block_size);
    if bytes(sent, block_size) == data_out.len() {
        Ok(sent)
    } else {
        Err(data_out_too_short())
    }
}

/// The initiator sent less than the command can work with.
pub(crate) fn data_out_too_short() -> Sense {
    Sense::illegal_request(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT)
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
        self.current = left.min(blocks(scratch.len(), self.block_size).0);
        assert!(
            left == 0 || self.current > 0,
            "scratch memory holds at least one block"
        );
        (self.current > 0).then(|| self.chunk())
    }

    /// The chunk at hand.
    pub(crate) fn chunk(&self) -> Chunk {
        let length = bytes(BlockCount(self.current), self.block_size);
        Chunk {
            lba: Lba(self.extent.lba.0 + self.done),
            blocks: BlockCount(self.current),
            start: bytes(BlockCount(self.done), self.block_size),
            length,
        }
    }
}

/// A part of a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) lba: Lba,
    pub(crate) blocks: BlockCount,
    /// Bytes from the start of the range.
    pub(crate) start: usize,
    /// Bytes.
    pub(crate) length: usize,
}

impl Chunk {
    /// The beginning of the scratch memory.
    pub(crate) fn place(&self) -> Place {
        Place::Scratch {
            start: 0,
            length: self.length,
        }
    }

    /// The chunk's part of the data-out.
    pub(crate) fn data_out<'a>(&self, buffers: &Buffers<'a>) -> &'a [u8] {
        &buffers.data_out[self.start..self.start + self.length]
    }

    /// Offset from the start of the range of the first byte in which scratch memory and `expected`
    /// differ.
    pub(crate) fn first_difference(&self, scratch: &[u8], expected: &[u8]) -> Option<u64> {
        let scratch = &scratch[..self.length];
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
        let extent = Extent {
            lba: Lba(100),
            blocks: BlockCount(5),
        };
        let mut chunks = Chunks::new(extent, 512);
        let scratch = vec![0; 1024];
        let mut seen = Vec::new();
        while let Some(chunk) = chunks.advance(&scratch) {
            seen.push((chunk.lba.0, chunk.blocks.0, chunk.start, chunk.length));
        }
        assert_eq!(
            seen,
            [(100, 2, 0, 1024), (102, 2, 1024, 1024), (104, 1, 2048, 512)]
        );
    }

    #[test]
    fn torn_block_is_refused_and_whole_blocks_count() {
        let wanted = BlockCount(3);
        assert_eq!(
            whole_blocks_sent(&[0; 1024], wanted, 512),
            Ok(BlockCount(2))
        );
        assert_eq!(whole_blocks_sent(&[0; 4096], wanted, 512), Ok(wanted));
        assert_eq!(whole_blocks_sent(&[], wanted, 512), Ok(BlockCount(0)));
        let sense = whole_blocks_sent(&[0; 700], wanted, 512).unwrap_err();
        assert_eq!((sense.additional.asc, sense.additional.ascq), (0x0e, 0x03));
    }
}
