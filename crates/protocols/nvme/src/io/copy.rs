//! Copy within a namespace (NVM command set 1.0 §3.2.2), descriptor format 0.
//!
//! ```text
//!  a Source Range Entry, 32 bytes:  8 SLBA (8)   16 NLB (2)   24 tags of protection information
//! ```
//!
//! All ranges are checked before the first block is written. Then they are copied in their order,
//! each as if it were read whole before it is written: where source and destination of one range
//! overlap, it is copied from that end that is not written first. Destinations that overlap the
//! sources of other ranges see what was copied before, which the standard leaves open.

use longshore_block::chunks::SCRATCH_BYTES;
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::Operation;
use longshore_wire::field::{le16, le64};

use crate::io::limits::{COPY_BLOCKS, COPY_RANGE_BLOCKS, COPY_RANGE_BYTES};
use crate::io::step::{CommandEvent, IoOutcome, Procedure, Step, StepContext};
use crate::status::Status;

const RANGE_LENGTH: usize = 32;
const _: () = assert!(RANGE_LENGTH as u64 == COPY_RANGE_BYTES as u64);

/// (Read a piece → write it)…
#[derive(Debug)]
pub(crate) struct Copy {
    /// Bytes of all Source Range Entries.
    length: usize,
    destination: Lba,
    block_size: u32,
    fua: bool,
    /// The entry at hand.
    range: usize,
    /// Blocks of the ranges before it.
    before: u64,
    /// Blocks of it that are copied.
    done: u64,
    /// The piece that is being copied.
    piece: Option<Piece>,
}

/// What is read at once, and where it goes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Extent,
    destination: Lba,
    /// It is in the scratch memory.
    read: bool,
}

impl Copy {
    pub(crate) fn new(length: usize, destination: Lba, block_size: u32, fua: bool) -> Self {
        Self {
            length,
            destination,
            block_size,
            fua,
            range: 0,
            before: 0,
            done: 0,
            piece: None,
        }
    }

    pub(crate) fn scratch_length(&self) -> usize {
        SCRATCH_BYTES.max(usize::try_from(self.block_size).unwrap_or(usize::MAX))
    }

    /// Checks limits and ranges of all entries.
    fn check(&self, list: &[u8], block_count: u64) -> Result<(), Status> {
        let mut blocks = 0;
        for source in ranges(list) {
            if source.blocks.0 > u64::from(COPY_RANGE_BLOCKS) {
                return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
            }
            blocks += source.blocks.0;
        }
        if blocks > u64::from(COPY_BLOCKS) {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        }
        let destination = Extent {
            lba: self.destination,
            blocks: BlockCount(blocks),
        };
        let fits = |extent: Extent| extent.fits(block_count);
        if fits(destination) && ranges(list).all(fits) {
            Ok(())
        } else {
            Err(Status::LBA_OUT_OF_RANGE)
        }
    }

    /// The next piece, or `None` when all ranges are copied.
    fn next_piece(&mut self, list: &[u8], piece_blocks: u64) -> Option<Piece> {
        for source in ranges(list).skip(self.range) {
            let left = source.blocks.0 - self.done;
            if left > 0 {
                return Some(self.piece_of(source, left.min(piece_blocks)));
            }
            self.range += 1;
            self.before += source.blocks.0;
            self.done = 0;
        }
        None
    }

    /// The next `blocks` blocks of a range, from its end if its beginning must not be written yet.
    fn piece_of(&self, source: Extent, blocks: u64) -> Piece {
        let destination = self.destination.0 + self.before;
        let target = Extent {
            lba: Lba(destination),
            ..source
        };
        let offset = if destination > source.lba.0 && source.overlaps(target) {
            source.blocks.0 - self.done - blocks
        } else {
            self.done
        };
        Piece {
            source: Extent {
                lba: Lba(source.lba.0 + offset),
                blocks: BlockCount(blocks),
            },
            destination: Lba(destination + offset),
            read: false,
        }
    }
}

fn ranges(list: &[u8]) -> impl Iterator<Item = Extent> {
    let (ranges, _) = list.as_chunks::<RANGE_LENGTH>();
    ranges.iter().map(|range| Extent {
        lba: Lba(le64(range, 8)),
        blocks: BlockCount(u64::from(le16(range, 16)) + 1),
    })
}

impl Procedure for Copy {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let list = &context.buffers.data_out[..self.length];
        if event == CommandEvent::Start
            && let Err(status) = self.check(list, context.block_count)
        {
            return Step::Complete(status.do_not_retry().into());
        }
        let block_size = self.block_size;
        let scratch = |source: Extent| DataLocation::Scratch {
            start: 0,
            length: usize::try_from(source.bytes(block_size)).expect("it fits the scratch memory"),
        };
        if let Some(piece) = &mut self.piece
            && !piece.read
        {
            piece.read = true;
            let operation = Operation::Write {
                extent: Extent {
                    lba: piece.destination,
                    blocks: piece.source.blocks,
                },
                fua: self.fua,
            };
            return context.media(operation, scratch(piece.source));
        }
        if let Some(piece) = self.piece.take() {
            self.done += piece.source.blocks.0;
        }
        let piece_blocks = context.buffers.scratch.len() as u64 / u64::from(block_size);
        self.piece = self.next_piece(list, piece_blocks);
        match &self.piece {
            Some(Piece { source, .. }) => {
                let extent = *source;
                context.media(Operation::Read { extent }, scratch(extent))
            }
            None => Step::Complete(IoOutcome::SUCCESS),
        }
    }

    /// The lowest Source Range Entry that was not copied.
    fn failure_result(&self) -> u64 {
        self.range as u64
    }
}
