//! Operations on a remote volume, and their results.
//!
//! [`Operation::Anchor`] and [`Operation::Prefetch`] have no command here: they fail with
//! [`Failure::Unsupported`].

use std::sync::Arc;

pub use longshore_block::operation::{ExtentState, Operation, Reply};
use longshore_reactor::Buffer;

use crate::error::Failure;

/// Which queue an operation goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// Data comes from the peer: read.
    Read,
    /// Data goes to the peer: write, compare and write.
    Write,
    /// No data of the caller moves: flush, unmap, write zeroes and others.
    Other,
}

impl OperationKind {
    /// Which queue an operation goes to.
    #[inline]
    #[must_use]
    pub const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Read { .. } => Self::Read,
            Operation::Write { .. } | Operation::CompareAndWrite { .. } => Self::Write,
            Operation::Flush
            | Operation::Unmap { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Anchor { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => Self::Other,
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
        /// Memory that the operation owns until it completes.
        buffer: Buffer,
        /// Index of the first byte.
        start: usize,
    },
    /// For reads: what comes is counted and dropped.
    Discard,
    /// For writes: a buffer that many operations share.
    Shared {
        /// Memory that nobody writes to before all owners have dropped it.
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
    /// The reply to the operation, or the failure and what may help.
    pub result: Result<Reply, Failure>,
    /// The memory that came with it. After a failed read its content is undefined.
    pub data: Data,
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_start_beyond_the_buffer_gives_no_bytes() {
        let mut data = Data::Buffer {
            buffer: Buffer::allocate(4),
            start: 5,
        };
        assert!(data.bytes().is_empty() && data.bytes_mut().is_empty());
    }
}
