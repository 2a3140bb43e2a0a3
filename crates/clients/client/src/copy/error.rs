//! Why a copy was not made, or not finished.

use std::fmt;
use std::io;
use std::path::PathBuf;

use longshore_volume::VolumeError;

use super::driver::DriverError;
use super::journal::JournalIoError;
use crate::endpoint::EndpointError;

/// Why a copy was not made, or not finished.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the sides cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The copy would overwrite what it reads.
    #[error("{source_name} and {destination} are the same file or device; nothing was copied")]
    SameFile {
        source_name: String,
        destination: String,
    },
    /// The copy would overwrite what it reads, as far as names tell.
    #[error(
        "{source_name} and {destination} are the same volume, by their names; nothing was copied. \
         If they are two volumes with the same names, use --force"
    )]
    SameVolume {
        source_name: String,
        destination: String,
    },
    /// The event loop could not be made.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The event loop failed.
    #[error("waiting for storage failed: {0}")]
    Wait(io::Error),
    #[error("cannot read bytes {start} to {end} of {name}: {}", Cause(.source))]
    Read {
        name: String,
        /// First byte of the failed range.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// What the volume said.
        source: VolumeError,
    },
    #[error("cannot write bytes {start} to {end} of {name}: {}", Cause(.source))]
    Write {
        name: String,
        /// First byte of the failed range.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// What the volume said.
        source: VolumeError,
    },
    /// What was written cannot be made durable.
    #[error(
        "cannot flush {name}: {}; writes since the last flush may be lost",
        Cause(.source)
    )]
    Flush {
        name: String,
        /// What the volume said.
        source: VolumeError,
    },
    /// The connection is lost again and again.
    #[error(
        "{name}: the connection is lost again and again before the writes can be flushed; check \
         the network and the server"
    )]
    Unsteady { name: String },
    /// The journal the user named cannot be used.
    #[error("{0}; name another file with --journal")]
    Journal(#[from] JournalIoError),
    /// The file named for the journal holds something else.
    #[error(
        "{}: exists and is not a journal of a copy; name another file with --journal, or remove \
         this one",
        path.display()
    )]
    NoJournal { path: PathBuf },
    /// The file system of the destination has too little space.
    #[error(
        "{destination}: the copy needs up to {needed} bytes, and its file system has {free} free; nothing \
         was written. Make room, choose another destination, or {}", way_out(*.thick)
    )]
    NoRoom {
        destination: String,
        /// Bytes that the copy may have to allocate.
        needed: u64,
        /// Bytes that can be allocated.
        free: u64,
        /// All of it is to be allocated.
        thick: bool,
    },
    /// The destination of a copy to go on with is shorter than that copy had made it.
    #[error(
        "cannot resume: {} has {available} bytes, and the source {needed}; nothing was written. \
         To copy everything again: truncate --size={needed} {}, and remove --resume", path.display(), path.display()
    )]
    CutShort {
        path: PathBuf,
        /// Bytes that it has.
        available: u64,
        /// Bytes of the source.
        needed: u64,
    },
    /// The journal tells of something else.
    #[error(
        "cannot resume: {} belongs to another copy ({difference}). To copy everything again, \
         remove --resume", path.display()
    )]
    OtherCopy { path: PathBuf, difference: String },
    /// The source is not what the changes are of.
    #[error(
        "{source_name} is another snapshot now than the one whose changes were asked for; nothing was copied"
    )]
    OtherSnapshot { source_name: String },
    /// The destination holds parts of two copies.
    #[error(
        "{destination}: another copy to it has not ended ({}); continue that one first, with --resume. If the \
         destination holds the older snapshot nevertheless, use --force", path.display()
    )]
    HalfCopied { destination: String, path: PathBuf },
    /// There is nothing that changes could be made to.
    #[error(
        "{destination}: holds nothing, so the older snapshot is not there; copy all of the newer one, without --since"
    )]
    NoOlderCopy { destination: String },
    /// The comparison found a difference.
    #[error(
        "the copy differs from its source at byte {offset}; copy again, and look for the \
         cause if it differs again"
    )]
    Differs {
        /// First byte that differs.
        offset: u64,
    },
    /// A signal or the caller asked to stop.
    #[error("interrupted")]
    Interrupted {
        /// The signal that asked.
        signal: i32,
    },
}

/// Why an operation on a volume failed, without the volume's name: the sentence around it has it.
pub(super) struct Cause<'a>(pub(super) &'a VolumeError);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            VolumeError::Io { source, .. } => source.fmt(f),
            other => other.fmt(f),
        }
    }
}

fn way_out(thick: bool) -> &'static str {
    if thick {
        "remove --thick, so that zeros are not written"
    } else {
        "copy nevertheless with --force: zeros among the data take no space"
    }
}

impl CopyError {
    /// Whether the destination has no space left.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        let source = match self {
            Self::Write { source, .. } | Self::Flush { source, .. } => source,
            _ => return false,
        };
        matches!(source, VolumeError::NoSpace)
    }

    pub(super) fn is_failure(&self) -> bool {
        !matches!(self, Self::Interrupted { .. })
    }
}
