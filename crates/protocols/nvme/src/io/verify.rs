//! Verify (NVM command set 1.0 §3.2.5): whether the blocks can be read.

use crate::io::step::{CommandEvent, IoOutcome, Procedure, Step, StepContext};
use longshore_block::chunks::{self, Chunks};
use longshore_block::extent::Extent;

/// Reads one chunk after the other into the same buffer, and drops the data.
#[derive(Debug)]
pub(crate) struct Verify {
    chunks: Chunks,
    scratch_length: usize,
}

impl Verify {
    pub(crate) fn new(extent: Extent, block_size: u32) -> Self {
        Self {
            chunks: Chunks::new(extent, block_size),
            scratch_length: chunks::scratch_length(extent, block_size),
        }
    }

    pub(crate) fn scratch_length(&self) -> usize {
        self.scratch_length
    }
}

impl Procedure for Verify {
    fn step(&mut self, _event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        match self.chunks.advance(context.buffers.scratch) {
            Some(chunk) => context.media(chunk.read(), chunk.payload()),
            None => Step::Complete(IoOutcome::SUCCESS),
        }
    }
}
