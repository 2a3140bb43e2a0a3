//! Operations on a volume: what SCSI and NVMe commands ask for, what volumes carry out, and what goes to
//! volumes of other servers.
//!
//! Everything here counts logical blocks. A volume that stores bytes converts once, where it checks the
//! range.

use crate::extent::{BlockCount, Extent};

/// An operation on a volume (SBC-3; NVM Command Set Specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read {
        /// At least one block.
        extent: Extent,
    },
    Write {
        /// At least one block.
        extent: Extent,
        /// On the medium when it completes (Force Unit Access).
        fua: bool,
    },
    /// Writes if the volume holds what is expected, as one step that no other operation can come into.
    /// Data: what is expected, then what is to be written.
    ///
    /// Initiators send it as one command. The server makes it of reads and a write while it holds the
    /// range (see the `LockRange` steps of the protocols); its volumes do not get it.
    CompareAndWrite {
        /// At least one block.
        extent: Extent,
        /// On the medium when it completes.
        fua: bool,
    },
    /// Everything completed before is on the medium when this completes.
    Flush,
    /// Deallocates the range, as far as the volume's granularity allows. What it reads as afterwards
    /// is a characteristic of the volume.
    Unmap {
        /// At least one block.
        extent: Extent,
    },
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// At least one block.
        extent: Extent,
        /// The range may be deallocated to get there. Otherwise it is allocated afterwards.
        may_unmap: bool,
        /// On the medium when it completes.
        fua: bool,
    },
    /// Reserves space for the range and keeps what it reads as (an anchored range).
    Anchor {
        /// At least one block.
        extent: Extent,
    },
    /// Asks for the provisioning state of the run that starts with the range, looking no further than
    /// its end. Answered by [`Reply::Extent`].
    ExtentStatus {
        /// At least one block.
        extent: Extent,
    },
    /// Brings the range into the cache if that is cheap. Never fails for lack of support.
    Prefetch {
        /// At least one block.
        extent: Extent,
    },
}

impl Operation {
    /// The blocks it concerns; of a flush, none in particular.
    #[inline]
    #[must_use]
    pub const fn extent(&self) -> Option<Extent> {
        match self {
            Self::Read { extent }
            | Self::Write { extent, .. }
            | Self::CompareAndWrite { extent, .. }
            | Self::Unmap { extent }
            | Self::WriteZeroes { extent, .. }
            | Self::Anchor { extent }
            | Self::ExtentStatus { extent }
            | Self::Prefetch { extent } => Some(*extent),
            Self::Flush => None,
        }
    }

    /// Whether it changes what is stored.
    #[inline]
    #[must_use]
    pub const fn writes(&self) -> bool {
        match self {
            Self::Write { .. }
            | Self::CompareAndWrite { .. }
            | Self::Unmap { .. }
            | Self::WriteZeroes { .. }
            | Self::Anchor { .. } => true,
            Self::Read { .. } | Self::Flush | Self::ExtentStatus { .. } | Self::Prefetch { .. } => {
                false
            }
        }
    }

    /// Whether its failure is a write error: it was to change what is stored, or to bring it to the
    /// medium.
    #[inline]
    #[must_use]
    pub const fn fails_as_write(&self) -> bool {
        self.writes() || matches!(self, Self::Flush)
    }

    /// Whether doing it again, after it may have been done, leaves what doing it once would have. A
    /// compare and write that was done finds the new contents where it expects the old.
    #[inline]
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        !matches!(self, Self::CompareAndWrite { .. })
    }

    /// Bytes of the data that goes with it, in either direction. Saturates.
    #[inline]
    #[must_use]
    pub fn data_length(&self, block_size: u32) -> u64 {
        match self {
            Self::Read { extent } | Self::Write { extent, .. } => extent.bytes(block_size),
            Self::CompareAndWrite { extent, .. } => extent.bytes(block_size).saturating_mul(2),
            Self::Flush
            | Self::Unmap { .. }
            | Self::WriteZeroes { .. }
            | Self::Anchor { .. }
            | Self::ExtentStatus { .. }
            | Self::Prefetch { .. } => 0,
        }
    }
}

/// How an operation ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// Answer to [`Operation::ExtentStatus`]: the first `blocks` of the range share `state`.
    Extent {
        /// At least one block, and no more than were asked about.
        blocks: BlockCount,
        /// Alike for all blocks of the extent.
        state: ExtentState,
    },
}

/// Provisioning state of a range (SBC-3 GET LBA STATUS, the PROVISIONING STATUS field).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// Space is allocated and holds data.
    Mapped,
    /// No space is allocated.
    Deallocated,
    /// Space is reserved, no data.
    Anchored,
}

/// How an operation failed, as far as commands tell their peers. Each protocol turns it into a status of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// The range does not lie within the volume (it shrank since the command began).
    #[error("range lies outside the volume")]
    OutOfRange,
    /// The volume is read-only.
    #[error("volume is read-only")]
    ReadOnly,
    /// No space is left behind the volume.
    #[error("no space left for the volume")]
    NoSpace,
    /// The volume cannot do this.
    #[error("operation not supported by the volume")]
    Unsupported,
    /// A flush failed earlier; the volume refuses writes until it is reopened.
    #[error("an earlier flush failed")]
    Poisoned,
    /// The backing object is shorter than the volume.
    #[error("the file or device is shorter than the volume")]
    ShortFile,
    /// Data of the volume is lost; it refuses reads and writes until it is reopened.
    #[error("the volume has lost data and is out of service")]
    Failed,
    /// There is no memory for it now. Nothing is wrong with the volume; it works later.
    #[error("out of memory")]
    OutOfMemory,
    /// The volume is being sanitized, or that has failed.
    #[error("the volume is being sanitized")]
    Sanitizing,
    /// The medium or the operating system reported an error.
    #[error("medium error")]
    Io,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent::new(8, 4);

    #[test]
    fn compare_and_write_takes_twice_its_range_along_and_is_not_repeated() {
        let operation = Operation::CompareAndWrite {
            extent: EXTENT,
            fua: false,
        };
        assert_eq!(operation.data_length(512), 4096);
        assert!(!operation.is_idempotent());
        assert!(Operation::Flush.is_idempotent());
        assert_eq!(Operation::Flush.data_length(512), 0);
    }

    #[test]
    fn a_flush_changes_nothing_and_fails_as_a_write() {
        assert!(!Operation::Flush.writes() && Operation::Flush.fails_as_write());
        let read = Operation::Read { extent: EXTENT };
        assert!(!read.writes() && !read.fails_as_write());
        let anchor = Operation::Anchor { extent: EXTENT };
        assert!(anchor.writes() && anchor.fails_as_write());
    }
}
