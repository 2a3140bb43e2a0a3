//! Addresses and counts of logical blocks, and what is done with ranges of them.
//!
//! A command never touches the medium itself: it hands a [`MediaOperation`] to its driver and goes
//! on with the [`MediaOutcome`] or the [`MediaError`]. Everything here counts logical blocks; the
//! driver multiplies by the block size.

use std::fmt;

/// Logical block address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lba(pub u64);

/// A number of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockCount(pub u64);

impl MediaOperation {
    /// Whether it changes what is stored, so that its failure is a write error.
    pub const fn writes(&self) -> bool {
        match self {
            Self::Write { .. }
            | Self::Flush
            | Self::Unmap { .. }
            | Self::WriteZeroes { .. }
            | Self::Anchor { .. } => true,
            Self::Read { .. }
            | Self::ExtentStatus { .. }
            | Self::Prefetch { .. }
            | Self::LockRange { .. } => false,
        }
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LBA {}", self.0)
    }
}

/// What a command asks of the medium. All ranges have been checked against the capacity as it was
/// when the command began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaOperation {
    /// Reads into the [`Place`] that goes with it.
    Read {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
    },
    /// Writes from the [`Place`] that goes with it.
    Write {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
        /// On the medium when it completes (Force Unit Access).
        fua: bool,
    },
    /// Everything completed before is on the medium when this completes.
    Flush,
    /// Deallocates the range, as far as the volume's granularity allows.
    Unmap {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
    },
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
        /// The range may be deallocated to get there.
        may_unmap: bool,
        /// On the medium when it completes.
        fua: bool,
    },
    /// Reserves space for the range and keeps what it reads as.
    Anchor {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
    },
    /// Asks for the provisioning state of the run that starts at `lba`, looking no further than
    /// `blocks`. Answered by [`MediaOutcome::Extent`].
    ExtentStatus {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
    },
    /// Brings the range into the cache if that is cheap.
    Prefetch {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
    },
    /// From here until the command completes no other command's write may touch the range; the
    /// driver waits for the writes under way. Used by commands that must be atomic (COMPARE AND
    /// WRITE, ORWRITE, WRITE ATOMIC). A command asks for this at most once.
    LockRange {
        /// First block.
        lba: Lba,
        /// At least one block.
        blocks: BlockCount,
    },
}

/// Where the blocks of a media operation come from or go to. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No data.
    None,
    /// From the data that came with the command.
    DataOut {
        /// First byte.
        start: usize,
        /// Number of bytes.
        length: usize,
    },
    /// To the peer, unseen by the command.
    DataIn {
        /// Number of bytes.
        length: usize,
    },
    /// From or to the scratch memory.
    Scratch {
        /// First byte.
        start: usize,
        /// Number of bytes.
        length: usize,
    },
}

/// Why a command in progress goes on, whatever protocol it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEvent {
    /// It begins, or begins anew after it waited: all data there will be from the peer have arrived.
    Start,
    /// Its operation on the medium ended.
    Media(Result<MediaOutcome, MediaError>),
    /// Whether the reservations it wanted stored were.
    Persisted(bool),
    /// The commands of others that it wanted aborted are no more.
    TasksAborted,
}

/// How a [`MediaOperation`] ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaOutcome {
    /// It is done.
    Done,
    /// Answer to [`MediaOperation::ExtentStatus`]: the first `blocks` share `state`.
    Extent {
        /// At least one block.
        blocks: BlockCount,
        /// Their provisioning state.
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

/// How a [`MediaOperation`] failed. Each protocol turns it into a status of its own.
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
    /// The medium or the operating system reported an error.
    #[error("medium error")]
    Io,
}
