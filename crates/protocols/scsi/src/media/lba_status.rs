//! GET LBA STATUS (SBC-3): which blocks have space allocated.
//!
//! ```text
//!  0  PARAMETER DATA LENGTH (4)        bytes that follow
//!  8  descriptors, 16 bytes each: LOGICAL BLOCK ADDRESS (8), NUMBER OF LOGICAL BLOCKS (4),
//!     PROVISIONING STATUS (low 4 bits of a byte)
//! ```

use crate::completion::Completion;
use crate::sense::Sense;
use crate::step::{CommandEvent, Procedure, Step, StepContext, UnitSelector};
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::{ExtentState, MediaError, Operation, Reply};

/// Most descriptors of one answer; the initiator asks again from where it ends.
const MAX_DESCRIPTORS: usize = 32;

const HEADER_LENGTH: usize = 8;
const DESCRIPTOR_LENGTH: usize = 16;

/// (Ask for a run)…
#[derive(Debug)]
pub(crate) struct GetLbaStatus {
    /// Where the next run begins.
    lba: Lba,
    /// End of the medium when the command began.
    end: u64,
    /// Descriptors that fit the allocation length, at least one.
    room: usize,
}

impl GetLbaStatus {
    /// `lba` is below `block_count`.
    pub(crate) fn new(lba: Lba, block_count: u64, allocation_length: u32) -> Self {
        let length = usize::try_from(allocation_length).unwrap_or(usize::MAX);
        let room = length.saturating_sub(HEADER_LENGTH) / DESCRIPTOR_LENGTH;
        Self {
            lba,
            end: block_count,
            room: room.clamp(1, MAX_DESCRIPTORS),
        }
    }

    fn ask(&self) -> Step {
        // A descriptor counts blocks in 32 bits.
        let blocks = BlockCount((self.end - self.lba.0).min(u64::from(u32::MAX)));
        Step::Media {
            unit: UnitSelector::Own,
            operation: Operation::ExtentStatus {
                extent: Extent {
                    lba: self.lba,
                    blocks,
                },
            },
            payload: DataLocation::None,
        }
    }

    fn append(&mut self, blocks: u64, state: ExtentState, data_in: &mut Vec<u8>) {
        let blocks = blocks.clamp(1, (self.end - self.lba.0).min(u64::from(u32::MAX)));
        let status = match state {
            ExtentState::Mapped => 0,
            ExtentState::Deallocated => 1,
            ExtentState::Anchored => 2,
        };
        if data_in.is_empty() {
            data_in.resize(HEADER_LENGTH, 0);
        }
        data_in.extend(self.lba.0.to_be_bytes());
        data_in.extend(u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes());
        data_in.extend([status, 0, 0, 0]);
        let following = u32::try_from(data_in.len() - 4).unwrap_or(u32::MAX);
        data_in[..4].copy_from_slice(&following.to_be_bytes());
        self.lba.0 += blocks;
        self.room -= 1;
    }
}

impl Procedure for GetLbaStatus {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let (blocks, state) = match event {
            CommandEvent::Media(Ok(Reply::Extent { blocks, state })) => (blocks.0, state),
            // A volume that does not know is one without holes.
            CommandEvent::Media(Ok(Reply::Done) | Err(MediaError::Unsupported)) => {
                (u64::MAX, ExtentState::Mapped)
            }
            CommandEvent::Media(Err(error)) => {
                return Step::Complete(Sense::media_failure(error, false).into());
            }
            CommandEvent::Start
            | CommandEvent::Locked
            | CommandEvent::Persisted(_)
            | CommandEvent::TasksAborted => return self.ask(),
        };
        self.append(blocks, state, context.buffers.data_in);
        if self.room == 0 || self.lba.0 >= self.end {
            return Step::Complete(Completion::GOOD);
        }
        self.ask()
    }

    fn handles_failure(&self) -> bool {
        true
    }
}
