//! COMPARE AND WRITE (SBC-3): writes only if the medium holds what the initiator believes.
//!
//! The data-out is two instances of the range: what to compare with, then what to write. The range
//! is locked from before the first read until the command ends, so that of two initiators that
//! expect the same old data exactly one succeeds.

use crate::completion::Completion;
use crate::media::{self, verify};
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::chunks::{self, Chunks};
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::operation::Operation;

/// MAXIMUM COMPARE AND WRITE LENGTH: what the one-byte field can say. Both instances must fit a
/// transfer.
pub(crate) fn max_blocks(max_transfer_blocks: u32) -> u8 {
    u8::try_from((max_transfer_blocks / 2).clamp(1, 255)).unwrap_or(u8::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Locking,
    Comparing,
    Writing,
}

/// Lock → (read a chunk → compare)… → write.
#[derive(Debug)]
pub(crate) struct CompareAndWrite {
    extent: Extent,
    block_size: u32,
    fua: bool,
    state: State,
    chunks: Chunks,
}

impl CompareAndWrite {
    pub(crate) fn new(extent: Extent, block_size: u32, fua: bool) -> Self {
        let chunks = Chunks::new(extent, block_size);
        Self {
            extent,
            block_size,
            fua,
            state: State::Locking,
            chunks,
        }
    }

    pub(crate) fn data_out_blocks(&self) -> BlockCount {
        BlockCount(2 * self.extent.blocks.0)
    }

    pub(crate) fn scratch_length(&self) -> usize {
        chunks::scratch_length(self.extent, self.block_size)
    }

    fn read_next_or_write(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        if let Some(chunk) = self.chunks.advance(context.buffers.scratch) {
            self.state = State::Comparing;
            return Step::Media {
                unit: UnitSelector::Own,
                operation: chunk.read(),
                payload: chunk.payload(),
            };
        }
        self.state = State::Writing;
        let extent = self.extent;
        let length = media::bytes(extent.blocks, self.block_size);
        Step::Media {
            unit: UnitSelector::Own,
            operation: Operation::Write {
                extent,
                fua: self.fua,
            },
            payload: DataLocation::DataOut {
                start: length,
                length,
            },
        }
    }
}

impl Procedure for CompareAndWrite {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        if event == CommandEvent::Start {
            let wanted = media::bytes(self.data_out_blocks(), self.block_size);
            if context.buffers.data_out.len() < wanted {
                return Step::Complete(media::data_out_too_short().into());
            }
            return Step::LockRange(self.extent);
        }
        match self.state {
            State::Locking => self.read_next_or_write(context),
            State::Comparing => {
                let chunk = self.chunks.chunk();
                let buffers = &context.buffers;
                match chunk.first_difference(buffers.scratch, buffers.data_out) {
                    Some(offset) => Step::Complete(verify::miscompare(offset).into()),
                    None => self.read_next_or_write(context),
                }
            }
            State::Writing => Step::Complete(Completion::GOOD),
        }
    }
}
