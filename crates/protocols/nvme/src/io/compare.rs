//! Compare (NVM command set 1.0 §3.2.1), alone. With a Write behind it, see `fused`.
//!
//! It reads and compares chunk by chunk, without a lock: what others write meanwhile may or may not
//! be seen, as with any Read.

use crate::io::step::{CommandEvent, IoOutcome, Procedure, Step, StepContext};
use crate::status::Status;
use longshore_block::chunks::{self, Chunks};
use longshore_block::extent::Extent;

/// (Read a chunk → compare)…
#[derive(Debug)]
pub(crate) struct Compare {
    chunks: Chunks,
    scratch_length: usize,
}

impl Compare {
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

impl Procedure for Compare {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let buffers = &context.buffers;
        if event != CommandEvent::Start
            && self
                .chunks
                .chunk()
                .first_difference(buffers.scratch, buffers.data_out)
                .is_some()
        {
            return Step::Complete(Status::COMPARE_FAILURE.do_not_retry().into());
        }
        match self.chunks.advance(context.buffers.scratch) {
            Some(chunk) => context.media(chunk.read(), chunk.payload()),
            None => Step::Complete(IoOutcome::SUCCESS),
        }
    }
}
