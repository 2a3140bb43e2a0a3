//! ORWRITE (16) (SBC-3): writes the bitwise OR of the medium and the data-out. The range is
//! locked, so that bits set by two initiators at once all survive.

use crate::completion::Completion;
use crate::media;
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::chunks::{self, Chunks};
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Locking,
    Reading,
    Writing,
}

/// Lock → (read a chunk → OR → write it)…
#[derive(Debug)]
pub(crate) struct OrWrite {
    extent: Extent,
    block_size: u32,
    fua: bool,
    state: State,
    chunks: Chunks,
}

impl OrWrite {
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

    pub(crate) fn scratch_length(&self) -> usize {
        chunks::scratch_length(self.extent, self.block_size)
    }

    fn start(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        let wanted = self.extent.blocks;
        match media::whole_blocks_sent(context.buffers.data_out, wanted, self.block_size) {
            Err(sense) => return Step::Complete(sense.into()),
            Ok(sent) => self.extent.blocks = sent,
        }
        if self.extent.blocks.0 == 0 {
            return Step::Complete(Completion::GOOD);
        }
        self.chunks = Chunks::new(self.extent, self.block_size);
        Step::LockRange(self.extent)
    }

    fn read_next(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        let Some(chunk) = self.chunks.advance(context.buffers.scratch) else {
            return Step::Complete(Completion::GOOD);
        };
        self.state = State::Reading;
        Step::Media {
            unit: UnitSelector::Own,
            operation: chunk.read(),
            payload: chunk.payload(),
        }
    }

    fn write_back(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        let chunk = self.chunks.chunk();
        let data_out = chunk.part_of(context.buffers.data_out);
        for (byte, more) in context.buffers.scratch.iter_mut().zip(data_out) {
            *byte |= more;
        }
        self.state = State::Writing;
        Step::Media {
            unit: UnitSelector::Own,
            operation: Operation::Write {
                extent: chunk.extent,
                fua: self.fua,
            },
            payload: chunk.payload(),
        }
    }
}

impl Procedure for OrWrite {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        if event == CommandEvent::Start {
            return self.start(context);
        }
        match self.state {
            State::Locking | State::Writing => self.read_next(context),
            State::Reading => self.write_back(context),
        }
    }
}
