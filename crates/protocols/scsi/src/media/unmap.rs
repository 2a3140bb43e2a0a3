//! UNMAP (SBC-3).
//!
//! ```text
//!  0  UNMAP DATA LENGTH (2)            bytes that follow
//!  2  UNMAP BLOCK DESCRIPTOR DATA LENGTH (2)
//!  8  descriptors, 16 bytes each: LOGICAL BLOCK ADDRESS (8), NUMBER OF LOGICAL BLOCKS (4)
//! ```

use crate::completion::Completion;
use crate::sense::Sense;
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::Operation;

/// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
pub(crate) const MAX_DESCRIPTORS: u32 = 256;

/// MAXIMUM UNMAP LBA COUNT, over all descriptors of a command.
pub(crate) const MAX_BLOCKS: u32 = 1 << 20;

const HEADER_LENGTH: usize = 8;
const DESCRIPTOR_LENGTH: usize = 16;

/// (Unmap a descriptor's range)…
#[derive(Debug)]
pub(crate) struct Unmap {
    /// PARAMETER LIST LENGTH of the CDB, in bytes.
    length: usize,
    /// Keep space reserved for the blocks.
    anchor: bool,
    /// Index of the next block descriptor.
    next: usize,
}

impl Unmap {
    pub(crate) fn new(parameter_list_length: u16, anchor: bool) -> Self {
        Self {
            length: usize::from(parameter_list_length),
            anchor,
            next: 0,
        }
    }

    /// The first descriptor from `next` on that is not empty.
    fn unmap_next(&mut self, descriptors: &[u8]) -> Step {
        let rest = descriptors
            .get(self.next * DESCRIPTOR_LENGTH..)
            .unwrap_or_default();
        for descriptor in rest.chunks_exact(DESCRIPTOR_LENGTH) {
            self.next += 1;
            let Extent { lba, blocks } = extent(descriptor);
            if blocks.0 == 0 {
                continue;
            }
            // Anchored blocks have space and no data, which is what zeros without permission to
            // unmap come to on every backend.
            let operation = if self.anchor {
                Operation::WriteZeroes {
                    extent: Extent { lba, blocks },
                    may_unmap: false,
                    fua: false,
                }
            } else {
                Operation::Unmap {
                    extent: Extent { lba, blocks },
                }
            };
            return Step::Media {
                unit: UnitSelector::Own,
                operation,
                payload: DataLocation::None,
            };
        }
        Step::Complete(Completion::GOOD)
    }
}

/// The descriptors of a parameter list; a partial one at the end is ignored, as the standard says.
fn descriptors(list: &[u8]) -> Result<&[u8], Sense> {
    let header: &[u8; HEADER_LENGTH] = list
        .first_chunk()
        .ok_or(Sense::parameter_list_length_error())?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let length = length - length % DESCRIPTOR_LENGTH;
    list.get(HEADER_LENGTH..HEADER_LENGTH + length)
        .ok_or(Sense::parameter_list_length_error())
}

fn extent(descriptor: &[u8]) -> Extent {
    let be32 = |at: usize| {
        descriptor[at..at + 4]
            .iter()
            .fold(0_u64, |value, byte| (value << 8) | u64::from(*byte))
    };
    Extent {
        lba: Lba((be32(0) << 32) | be32(4)),
        blocks: BlockCount(be32(8)),
    }
}

/// Checks all descriptors before the first is carried out.
fn check(descriptors: &[u8], capacity: u64) -> Result<(), Sense> {
    let count = descriptors.len() / DESCRIPTOR_LENGTH;
    if count as u64 > u64::from(MAX_DESCRIPTORS) {
        return Err(Sense::invalid_field_in_parameter_list(2));
    }
    let mut blocks = 0;
    for (i, descriptor) in descriptors.chunks_exact(DESCRIPTOR_LENGTH).enumerate() {
        let extent = extent(descriptor);
        if !extent.fits(capacity) {
            return Err(Sense::out_of_range(extent.lba.0));
        }
        blocks += extent.blocks.0;
        if blocks > u64::from(MAX_BLOCKS) {
            let at = HEADER_LENGTH + i * DESCRIPTOR_LENGTH + 8;
            return Err(Sense::invalid_field_in_parameter_list(
                u16::try_from(at).unwrap_or(0),
            ));
        }
    }
    Ok(())
}

impl Procedure for Unmap {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let list = context.buffers.data_out;
        let parsed = match list.get(..self.length) {
            None => Err(Sense::parameter_list_length_error()),
            Some(list) => descriptors(list),
        };
        let checked = parsed.and_then(|descriptors| {
            if event == CommandEvent::Start {
                check(descriptors, context.unit.block_count())?;
            }
            Ok(descriptors)
        });
        match checked {
            Ok(descriptors) => self.unmap_next(descriptors),
            Err(sense) => Step::Complete(sense.into()),
        }
    }
}
