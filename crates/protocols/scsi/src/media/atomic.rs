//! WRITE ATOMIC (16) (SBC-4): no other command sees or leaves a mixture.
//!
//! The range is locked for the write, which gives atomicity towards other commands. What a crash of
//! the host leaves of it is the backend's matter; docs/protocols/iscsi.md says so.

use crate::completion::Completion;
use crate::media;
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;

/// MAXIMUM ATOMIC TRANSFER LENGTH; not more than a transfer may have at all.
pub(crate) fn max_blocks(max_transfer_blocks: u32) -> u32 {
    max_transfer_blocks.min(256)
}

#[derive(Debug)]
pub(crate) struct WriteAtomic {
    extent: Extent,
    block_size: u32,
    fua: bool,
}

impl WriteAtomic {
    pub(crate) fn new(extent: Extent, block_size: u32, fua: bool) -> Self {
        Self {
            extent,
            block_size,
            fua,
        }
    }
}

impl Procedure for WriteAtomic {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let extent = self.extent;
        let length = media::bytes(extent.blocks, self.block_size);
        if event == CommandEvent::Start {
            // All or nothing: a part of the data cannot be written.
            if context.buffers.data_out.len() < length {
                return Step::Complete(media::data_out_too_short().into());
            }
            return Step::LockRange(extent);
        }
        if event != CommandEvent::Locked {
            return Step::Complete(Completion::GOOD);
        }
        Step::Media {
            unit: UnitSelector::Own,
            operation: Operation::Write {
                extent,
                fua: self.fua,
            },
            payload: DataLocation::DataOut { start: 0, length },
        }
    }
}
