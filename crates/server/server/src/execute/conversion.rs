//! Operations and outcomes of commands as those of volumes: blocks to bytes and back.

use longshore_block::media::{
    BlockCount, ExtentState, Lba, MediaError, MediaOperation, MediaOutcome,
};
use longshore_volume::{ByteOffset, Durability, Operation, Outcome, VolumeError};

use crate::core::Core;
use crate::exports::Unit;

/// Blocks to bytes.
#[inline]
pub(super) fn volume_operation(operation: MediaOperation, shift: u32) -> Operation {
    let offset = |lba: Lba| ByteOffset(lba.0 << shift);
    let length = |blocks: BlockCount| blocks.0 << shift;
    let durability = |fua| {
        if fua {
            Durability::Durable
        } else {
            Durability::Cached
        }
    };
    match operation {
        MediaOperation::Read { lba, .. } => Operation::Read {
            offset: offset(lba),
        },
        MediaOperation::Write { lba, fua, .. } => Operation::Write {
            offset: offset(lba),
            durability: durability(fua),
        },
        MediaOperation::Flush | MediaOperation::LockRange { .. } => Operation::Flush,
        MediaOperation::Unmap { lba, blocks } => Operation::Unmap {
            offset: offset(lba),
            length: length(blocks),
        },
        MediaOperation::WriteZeroes {
            lba,
            blocks,
            may_unmap,
            fua,
        } => Operation::WriteZeroes {
            offset: offset(lba),
            length: length(blocks),
            may_unmap,
            durability: durability(fua),
        },
        MediaOperation::Anchor { lba, blocks } => Operation::Anchor {
            offset: offset(lba),
            length: length(blocks),
        },
        MediaOperation::ExtentStatus { lba, blocks } => Operation::ExtentStatus {
            offset: offset(lba),
            length: length(blocks),
        },
        MediaOperation::Prefetch { lba, blocks } => Operation::Prefetch {
            offset: offset(lba),
            length: length(blocks),
        },
    }
}

/// Bytes to blocks, and the volume's errors to those of the protocols' machines.
pub(super) fn media_result(
    unit: &Unit,
    result: Result<Outcome, VolumeError>,
) -> Result<MediaOutcome, MediaError> {
    match result {
        Ok(Outcome::Done) => Ok(MediaOutcome::Done),
        Ok(Outcome::Extent { length, state }) => Ok(MediaOutcome::Extent {
            blocks: BlockCount((length >> unit.block_shift).max(1)),
            state: match state {
                longshore_volume::ExtentState::Mapped => ExtentState::Mapped,
                longshore_volume::ExtentState::Deallocated => ExtentState::Deallocated,
                longshore_volume::ExtentState::Anchored => ExtentState::Anchored,
            },
        }),
        Err(error) => Err(media_error(unit, &error)),
    }
}

#[cold]
fn media_error(unit: &Unit, error: &VolumeError) -> MediaError {
    tracing::warn!(volume = %unit.volume.identity().name, %error, "operation failed");
    unit.statistics.count_error();
    match error {
        VolumeError::OutOfRange => MediaError::OutOfRange,
        VolumeError::ReadOnly => MediaError::ReadOnly,
        VolumeError::NoSpace => MediaError::NoSpace,
        VolumeError::Unsupported => MediaError::Unsupported,
        // What was written is lost, or will be: of both, a host learns that no retry helps.
        VolumeError::Poisoned | VolumeError::Removed => MediaError::Poisoned,
        VolumeError::Shortened => MediaError::Failed,
        VolumeError::ShortFile { .. } => MediaError::ShortFile,
        VolumeError::OutOfMemory => MediaError::OutOfMemory,
        VolumeError::Io { .. } => MediaError::Io,
    }
}

/// The outcome of an operation on a unit. Hosts learn of a volume that has failed.
pub(super) fn outcome(
    core: &Core,
    index: usize,
    unit: &Unit,
    result: Result<Outcome, VolumeError>,
) -> Result<MediaOutcome, MediaError> {
    let result = media_result(unit, result);
    if result.is_err() {
        core.shared.tell_of_failure(index);
    }
    result
}
