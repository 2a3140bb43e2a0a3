//! WRITE SAME (SBC-3; NDOB: SBC-4): one block of data-out for a whole range.
//!
//! | UNMAP | ANCHOR | block | what is done |
//! |---|---|---|---|
//! | 0 | 0 | zeros or NDOB | zeros are written; space stays allocated |
//! | 1 | 0 | zeros or NDOB | the range reads as zeros and may be deallocated |
//! | 1 | 1 | zeros or NDOB | the range reads as zeros and keeps or gets its space |
//! | any | any | other | the block is written to the range |
//!
//! Deallocation is only a hint here (SBC-3 §4.7.3): the data a read returns afterwards is always
//! the block that was sent.

use crate::completion::Completion;
use crate::media;
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::chunks::{self, Chunks};
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::operation::Operation;

/// MAXIMUM WRITE SAME LENGTH: bounds how long one command can keep the medium busy.
pub(crate) const MAX_BLOCKS: u32 = 32 * 1024;

/// Zeroes, or (write the pattern)…
#[derive(Debug)]
pub(crate) struct WriteSame {
    extent: Extent,
    block_size: u32,
    /// No data-out buffer: the block is zeros.
    ndob: bool,
    /// Zeros may be deallocated: UNMAP without ANCHOR.
    may_unmap: bool,
    /// Set while the pattern is being written.
    chunks: Option<Chunks>,
}

impl WriteSame {
    pub(crate) fn new(extent: Extent, block_size: u32, ndob: bool, may_unmap: bool) -> Self {
        Self {
            extent,
            block_size,
            ndob,
            may_unmap,
            chunks: None,
        }
    }

    pub(crate) fn data_out_blocks(&self) -> BlockCount {
        BlockCount(u64::from(!self.ndob))
    }

    pub(crate) fn scratch_length(&self) -> usize {
        if self.ndob {
            0
        } else {
            chunks::scratch_length(self.extent, self.block_size)
        }
    }

    fn start(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        let buffers = &mut *context.buffers;
        let length = media::bytes(self.data_out_blocks(), self.block_size);
        let Some(block) = buffers.data_out.get(..length) else {
            return Step::Complete(media::data_out_too_short().into());
        };
        if block.iter().all(|byte| *byte == 0) {
            let may_unmap = self.may_unmap;
            return Step::Media {
                unit: UnitSelector::Own,
                operation: Operation::WriteZeroes {
                    extent: self.extent,
                    may_unmap,
                    fua: false,
                },
                payload: DataLocation::None,
            };
        }
        for place in buffers.scratch.chunks_exact_mut(length) {
            place.copy_from_slice(block);
        }
        self.chunks = Some(Chunks::new(self.extent, self.block_size));
        self.write_next(context)
    }

    fn write_next(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        let chunk = self
            .chunks
            .as_mut()
            .and_then(|c| c.advance(context.buffers.scratch));
        match chunk {
            None => Step::Complete(Completion::GOOD),
            Some(chunk) => Step::Media {
                unit: UnitSelector::Own,
                operation: Operation::Write {
                    extent: chunk.extent,
                    fua: false,
                },
                payload: chunk.payload(),
            },
        }
    }
}

impl Procedure for WriteSame {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        match event {
            CommandEvent::Start => self.start(context),
            CommandEvent::Locked
            | CommandEvent::Media(_)
            | CommandEvent::Persisted(_)
            | CommandEvent::TasksAborted => self.write_next(context),
        }
    }
}
