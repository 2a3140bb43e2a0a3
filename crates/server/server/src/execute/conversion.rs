//! Results of volume operations as results of commands.

use longshore_block::operation::{MediaError, Reply};
use longshore_volume::VolumeError;

use crate::core::Core;
use crate::exports::Unit;

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
    result: Result<Reply, VolumeError>,
) -> Result<Reply, MediaError> {
    let result = result.map_err(|error| media_error(unit, &error));
    if result.is_err() {
        core.view.exports.tell_of_failure(index);
    }
    result
}
