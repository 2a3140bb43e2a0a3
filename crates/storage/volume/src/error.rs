//! How volume operations fail.

use std::io;

/// Why a volume refused or failed an operation.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The range does not lie within the volume, or is not made of whole blocks.
    #[error("range lies outside the volume")]
    OutOfRange,
    /// The volume is read-only.
    #[error("volume is read-only")]
    ReadOnly,
    /// No space is left behind the volume (ENOSPC, EDQUOT). The data is as before or undefined
    /// within the range of the failed write only.
    #[error("no space left for the volume")]
    NoSpace,
    /// The operation is not supported by this backend.
    #[error("operation not supported by this volume")]
    Unsupported,
    /// A flush failed earlier; the volume refuses writes until it is reopened.
    #[error("an earlier flush failed; the volume refuses writes until it is reopened")]
    Poisoned,
    /// The backing file was removed; the volume refuses writes until it is reopened.
    #[error("the file behind the volume was removed; the volume refuses writes")]
    Removed,
    /// The backing object became shorter; the volume refuses everything until it is reopened.
    #[error("the file or device of the volume became shorter; the volume refuses reads and writes")]
    Shortened,
    /// The backing file is shorter than the volume.
    #[error("backing file ends before byte {expected_end}")]
    ShortFile {
        /// Where the operation needed the file to reach.
        expected_end: u64,
    },
    /// The system has no memory for it now. The operation may be repeated later.
    #[error("out of memory")]
    OutOfMemory,
    /// The operating system reported an error.
    #[error("{operation}: {source}")]
    Io {
        /// System call and object, such as `fdatasync volume disk0`.
        operation: String,
        source: io::Error,
    },
}
