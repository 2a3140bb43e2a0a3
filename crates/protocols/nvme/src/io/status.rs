//! How a failed operation on the medium is told to the host.

use longshore_block::operation::MediaError;

use crate::status::Status;

/// The status of a command whose operation on the medium failed (NVMe base 2.0 §3.3.3.2.1; NVM
/// command set 1.0 §3.1.2). `writing`: the operation was to change what is stored.
///
/// DNR is set where the same command would fail again. A medium error may pass: hosts retry it a few
/// times, and should.
#[must_use]
pub fn media_failure(error: MediaError, writing: bool) -> Status {
    match error {
        // It shrank since the command began.
        MediaError::OutOfRange => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        MediaError::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED.do_not_retry(),
        // Hosts report ENOSPC for this one; space does not come back by asking again.
        MediaError::NoSpace => Status::CAPACITY_EXCEEDED.do_not_retry(),
        MediaError::Unsupported => Status::INVALID_COMMAND_OPCODE.do_not_retry(),
        // The cache lost data that was acknowledged: nothing written since can be trusted, and no
        // retry will help until the volume is reopened.
        MediaError::Poisoned => Status::WRITE_FAULT.do_not_retry(),
        MediaError::Failed if writing => Status::WRITE_FAULT.do_not_retry(),
        MediaError::Failed => Status::UNRECOVERED_READ_ERROR.do_not_retry(),
        MediaError::Sanitizing => Status::SANITIZE_IN_PROGRESS,
        MediaError::OutOfMemory => Status::COMMAND_INTERRUPTED,
        MediaError::ShortFile | MediaError::Io if writing => Status::WRITE_FAULT,
        MediaError::ShortFile | MediaError::Io => Status::UNRECOVERED_READ_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_error_may_be_retried_and_says_whether_it_was_a_write() {
        assert_eq!(media_failure(MediaError::Io, true), Status::WRITE_FAULT);
        assert_eq!(
            media_failure(MediaError::Io, false),
            Status::UNRECOVERED_READ_ERROR
        );
    }

    #[test]
    fn what_memory_was_missing_for_is_retried() {
        let status = media_failure(MediaError::OutOfMemory, true);
        assert_eq!(status, Status::COMMAND_INTERRUPTED);
        assert!(!status.is_final());
    }

    #[test]
    fn what_cannot_get_better_is_not_retried() {
        for (error, code) in [
            (MediaError::OutOfRange, Status::LBA_OUT_OF_RANGE),
            (MediaError::ReadOnly, Status::NAMESPACE_WRITE_PROTECTED),
            (MediaError::NoSpace, Status::CAPACITY_EXCEEDED),
            (MediaError::Unsupported, Status::INVALID_COMMAND_OPCODE),
            (MediaError::Poisoned, Status::WRITE_FAULT),
            (MediaError::Failed, Status::WRITE_FAULT),
        ] {
            let status = media_failure(error, true);
            assert_eq!(status.code(), code);
            assert!(status.is_final());
        }
        let read = media_failure(MediaError::Failed, false);
        assert_eq!(read.code(), Status::UNRECOVERED_READ_ERROR);
        assert!(read.is_final());
    }
}
