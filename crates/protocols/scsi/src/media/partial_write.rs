//! A WRITE for which the initiator sends part of a block: what it sent is written, and the rest of
//! that block stays as it was.
//!
//! The transport's expectation may end anywhere (RFC 7143 §11.4.5.1 makes the difference a residual
//! count), and `iscsi-test-cu` 1.19 writes 512 bytes to volumes with 4096-byte blocks.

use crate::completion::Completion;
use crate::media;
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::Operation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    WritingWhole,
    Locking,
    Reading,
    WritingTorn,
}

/// (Write whole blocks →) lock the torn block → read it → write it.
#[derive(Debug)]
pub(crate) struct PartialWrite {
    extent: Extent,
    block_size: u32,
    fua: bool,
    state: State,
}

impl PartialWrite {
    pub(crate) fn new(extent: Extent, block_size: u32, fua: bool) -> Self {
        let state = State::WritingWhole;
        Self {
            extent,
            block_size,
            fua,
            state,
        }
    }

    pub(crate) fn scratch_length(&self) -> usize {
        media::bytes(BlockCount(1), self.block_size)
    }

    /// The torn block, or nothing if there is none.
    fn torn(&self, data_out: &[u8]) -> Option<Lba> {
        let whole = media::blocks(data_out.len(), self.block_size);
        let torn =
            whole.0 < self.extent.blocks.0 && media::bytes(whole, self.block_size) < data_out.len();
        torn.then(|| Lba(self.extent.lba.0 + whole.0))
    }

    fn start(&self, data_out: &[u8]) -> Step {
        let lba = self.extent.lba;
        let sent = media::blocks(data_out.len(), self.block_size);
        let blocks = sent.min(self.extent.blocks);
        if blocks.0 == 0 {
            return Step::Complete(Completion::GOOD);
        }
        Step::Media {
            unit: UnitSelector::Own,
            operation: Operation::Write {
                extent: Extent { lba, blocks },
                fua: self.fua,
            },
            payload: DataLocation::DataOut {
                start: 0,
                length: media::bytes(blocks, self.block_size),
            },
        }
    }
}

impl Procedure for PartialWrite {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let data_out = context.buffers.data_out;
        if event == CommandEvent::Start
            && let step @ Step::Media { .. } = self.start(data_out)
        {
            return step;
        }
        let Some(lba) = self.torn(data_out) else {
            return Step::Complete(Completion::GOOD);
        };
        let extent = Extent {
            lba,
            blocks: BlockCount(1),
        };
        let payload = DataLocation::Scratch {
            start: 0,
            length: self.scratch_length(),
        };
        let (next, operation) = match self.state {
            State::WritingWhole => {
                self.state = State::Locking;
                return Step::LockRange(extent);
            }
            State::Locking => (State::Reading, Operation::Read { extent }),
            State::Reading => {
                let torn = data_out.len() % self.scratch_length();
                context.buffers.scratch[..torn].copy_from_slice(&data_out[data_out.len() - torn..]);
                let fua = self.fua;
                (State::WritingTorn, Operation::Write { extent, fua })
            }
            State::WritingTorn => return Step::Complete(Completion::GOOD),
        };
        self.state = next;
        Step::Media {
            unit: UnitSelector::Own,
            operation,
            payload,
        }
    }
}
