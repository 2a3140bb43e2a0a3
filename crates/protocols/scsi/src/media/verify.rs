//! VERIFY and WRITE AND VERIFY (SBC-3).

use crate::completion::Completion;
use crate::media;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::chunks::{self, Chunks};
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::operation::Operation;

/// What the BYTCHK field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteCheck {
    /// 00b: the blocks can be read.
    Readable,
    /// 01b: the blocks equal the data-out.
    EachBlock,
    /// 11b: every block equals the one block of data-out.
    SameBlock,
}

impl ByteCheck {
    /// BYTCHK as in the CDB; `None` for the reserved 10b.
    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0b00 => Some(Self::Readable),
            0b01 => Some(Self::EachBlock),
            0b11 => Some(Self::SameBlock),
            _ => None,
        }
    }
}

/// Sense data for data that differs from what was sent; `offset` counts bytes of data-out.
pub(crate) fn miscompare(offset: u64) -> Sense {
    Sense::new(
        SenseKey::Miscompare,
        AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION,
    )
    .with_information(offset)
}

/// (Write →) read a chunk → compare → read a chunk …
#[derive(Debug)]
pub(crate) struct Verify {
    extent: Extent,
    block_size: u32,
    write: bool,
    check: ByteCheck,
    /// Set once reading has begun.
    chunks: Option<Chunks>,
}

impl Verify {
    pub(crate) fn new(extent: Extent, block_size: u32, write: bool, check: ByteCheck) -> Self {
        Self {
            extent,
            block_size,
            write,
            check,
            chunks: None,
        }
    }

    /// How many blocks of data-out it takes.
    pub(crate) fn data_out_blocks(&self) -> BlockCount {
        match self.check {
            _ if self.write => self.extent.blocks,
            ByteCheck::Readable => BlockCount(0),
            ByteCheck::EachBlock => self.extent.blocks,
            ByteCheck::SameBlock => BlockCount(self.extent.blocks.0.min(1)),
        }
    }

    pub(crate) fn scratch_length(&self) -> usize {
        chunks::scratch_length(self.extent, self.block_size)
    }

    fn start(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        let wanted = self.data_out_blocks();
        let sent = match media::whole_blocks_sent(context.buffers.data_out, wanted, self.block_size)
        {
            Ok(sent) => sent,
            Err(sense) => return Step::Complete(sense.into()),
        };
        if sent < wanted {
            if !self.write && self.check == ByteCheck::SameBlock {
                return Step::Complete(media::data_out_too_short().into());
            }
            self.extent.blocks = sent;
        }
        if self.write && self.extent.blocks.0 > 0 {
            // What is verified is the medium, so the write must have reached it.
            let extent = self.extent;
            return Step::Media {
                unit: UnitSelector::Own,
                operation: Operation::Write { extent, fua: true },
                payload: DataLocation::DataOut {
                    start: 0,
                    length: media::bytes(extent.blocks, self.block_size),
                },
            };
        }
        self.read_next(context)
    }

    fn read_next(&mut self, context: &mut StepContext<'_, '_>) -> Step {
        let chunks = self
            .chunks
            .get_or_insert(Chunks::new(self.extent, self.block_size));
        match chunks.advance(context.buffers.scratch) {
            None => Step::Complete(Completion::GOOD),
            Some(chunk) => Step::Media {
                unit: UnitSelector::Own,
                operation: chunk.read(),
                payload: chunk.payload(),
            },
        }
    }

    /// Offset in the data-out of the first byte that differs from the chunk just read.
    fn difference(&self, chunks: &Chunks, context: &StepContext<'_, '_>) -> Option<u64> {
        let chunk = chunks.chunk();
        let buffers = &context.buffers;
        match self.check {
            ByteCheck::Readable => None,
            ByteCheck::EachBlock => chunk.first_difference(buffers.scratch, buffers.data_out),
            ByteCheck::SameBlock => {
                let length = media::bytes(BlockCount(1), self.block_size);
                let expected = &buffers.data_out[..length];
                buffers.scratch[..chunk.length]
                    .chunks_exact(length)
                    .find(|block| *block != expected)
                    .and_then(|block| block.iter().zip(expected).position(|(a, b)| a != b))
                    .map(|at| at as u64)
            }
        }
    }
}

impl Procedure for Verify {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        if event == CommandEvent::Start {
            return self.start(context);
        }
        if let Some(chunks) = &self.chunks
            && let Some(offset) = self.difference(chunks, context)
        {
            return Step::Complete(miscompare(offset).into());
        }
        self.read_next(context)
    }
}
