//! What is asked of a remote volume, and how it ends.

use std::sync::Arc;

use longshore_block::extent::Extent;
use longshore_block::media::{BlockCount, ExtentState};
use longshore_reactor::Buffer;

use crate::error::Failure;

/// One operation. Ranges count logical blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads.
    Read {
        /// At least one block.
        extent: Extent,
    },
    /// Writes.
    Write {
        /// At least one block.
        extent: Extent,
        /// On the medium when it completes (Force Unit Access).
        fua: bool,
    },
    /// Writes if the medium holds what is expected, as one step that no other command can come into.
    /// Data: what is expected, then what is to be written.
    CompareAndWrite {
        /// At least one block.
        extent: Extent,
        /// On the medium when it completes.
        fua: bool,
    },
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// At least one block.
        extent: Extent,
        /// It may be deallocated to get there.
        may_unmap: bool,
        /// On the medium when it completes.
        fua: bool,
    },
    /// The range is not needed any more. What it reads as afterwards is in
    /// [`VolumeInfo::unmapped_reads_zeros`](crate::info::VolumeInfo::unmapped_reads_zeros).
    Unmap {
        /// At least one block.
        extent: Extent,
    },
    /// Everything completed before is on the medium when this completes.
    Flush,
    /// Asks for the state of the run at the beginning of the range; answered by [`Done::Extent`].
    ExtentStatus {
        /// At least one block.
        extent: Extent,
    },
}

/// Which queue an operation goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// Brings data.
    Read,
    /// Takes data along.
    Write,
    /// Neither.
    Other,
}

impl Operation {
    /// Which queue it goes to.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Read { .. } => OperationKind::Read,
            Self::Write { .. } | Self::CompareAndWrite { .. } => OperationKind::Write,
            Self::WriteZeroes { .. }
            | Self::Unmap { .. }
            | Self::Flush
            | Self::ExtentStatus { .. } => OperationKind::Other,
        }
    }

    /// The blocks it concerns; of a flush, none in particular.
    #[inline]
    #[must_use]
    pub const fn extent(&self) -> Option<Extent> {
        match self {
            Self::Read { extent }
            | Self::Write { extent, .. }
            | Self::CompareAndWrite { extent, .. }
            | Self::WriteZeroes { extent, .. }
            | Self::Unmap { extent }
            | Self::ExtentStatus { extent } => Some(*extent),
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
            | Self::WriteZeroes { .. }
            | Self::Unmap { .. } => true,
            Self::Read { .. } | Self::Flush | Self::ExtentStatus { .. } => false,
        }
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
            Self::WriteZeroes { .. }
            | Self::Unmap { .. }
            | Self::Flush
            | Self::ExtentStatus { .. } => 0,
        }
    }
}

/// The memory of an operation. It is given along with the operation and comes back with its completion.
#[derive(Debug)]
pub enum Data {
    /// None: the operation moves no data.
    None,
    /// Read into, or written from, `start` on.
    Buffer {
        /// The memory.
        buffer: Buffer,
        /// Index of the first byte.
        start: usize,
    },
    /// For reads: what comes is counted and dropped.
    Discard,
    /// For writes: a buffer that many operations share.
    Shared {
        /// The memory.
        buffer: Arc<Buffer>,
        /// Index of the first byte.
        start: usize,
    },
}

impl Data {
    /// All of a buffer.
    #[must_use]
    pub const fn buffer(buffer: Buffer) -> Self {
        Self::Buffer { buffer, start: 0 }
    }

    /// All of a shared buffer.
    #[must_use]
    pub const fn shared(buffer: Arc<Buffer>) -> Self {
        Self::Shared { buffer, start: 0 }
    }

    /// The bytes to write; none where there is no memory.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer { buffer, start } => buffer.get(*start..).unwrap_or_default(),
            Self::Shared { buffer, start } => buffer.get(*start..).unwrap_or_default(),
            Self::None | Self::Discard => &[],
        }
    }

    /// Where read data goes; nowhere when it is dropped or shared.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer { buffer, start } => buffer.get_mut(*start..).unwrap_or_default(),
            Self::None | Self::Discard | Self::Shared { .. } => &mut [],
        }
    }

    /// Its buffer, if it has one of its own.
    #[must_use]
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Buffer { buffer, .. } => Some(buffer),
            Self::None | Self::Discard | Self::Shared { .. } => None,
        }
    }
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// As it was submitted with.
    pub tag: u64,
    /// How it ended.
    pub result: Result<Done, Failure>,
    /// Its memory.
    pub data: Data,
}

/// How an operation ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is done.
    Done,
    /// Answer to [`Operation::ExtentStatus`].
    Extent {
        /// So many blocks from the beginning of the range share `state`; at least one.
        blocks: BlockCount,
        /// Their provisioning state.
        state: ExtentState,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_block::media::Lba;

    const EXTENT: Extent = Extent {
        lba: Lba(8),
        blocks: BlockCount(4),
    };

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
    fn a_start_beyond_the_buffer_gives_no_bytes() {
        let mut data = Data::Buffer {
            buffer: Buffer::allocate(4),
            start: 5,
        };
        assert!(data.bytes().is_empty() && data.bytes_mut().is_empty());
    }
}
