//! File and block-device operations that may sleep, as submissions and completions.
//!
//! [`Storage`] is all that volumes know of the outside world. The engines of this crate implement
//! it over io_uring or helper threads; the simulator implements it over a simulated disk.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::buffer::Buffer;

/// A file that operations may refer to for as long as any of them is in flight.
#[derive(Clone, Debug)]
pub struct FileHandle(pub Arc<File>);

/// Echoed in the completion of the operation that carried it. Chosen by the submitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StorageTag(pub u64);

/// One operation on a file.
#[derive(Debug)]
pub struct FileOperation {
    /// What it works on.
    pub file: FileHandle,
    /// What to do.
    pub kind: FileOperationKind,
    /// Comes back in [`FileCompletion::tag`].
    pub tag: StorageTag,
}

/// What a [`FileOperation`] does. Offsets and lengths are bytes.
#[derive(Debug)]
pub enum FileOperationKind {
    /// Reads into `buffer[start..end]`; may read less. Result: bytes read, 0 at end of file.
    Read {
        /// Where in the file.
        offset: u64,
        /// Comes back with the completion.
        buffer: Buffer,
        /// First byte of the buffer to fill.
        start: usize,
        /// End of the part to fill, at most the buffer's length.
        end: usize,
    },
    /// Writes `buffer[start..end]`; may write less. `dsync` asks for RWF_DSYNC. Result: bytes
    /// written.
    Write {
        /// Where in the file.
        offset: u64,
        /// Comes back with the completion.
        buffer: Buffer,
        /// First byte of the buffer to write.
        start: usize,
        /// End of the part to write, at most the buffer's length.
        end: usize,
        /// The bytes are on the medium when the operation completes.
        dsync: bool,
    },
    /// fdatasync. Result: 0.
    DataSync,
    /// fallocate(PUNCH_HOLE | KEEP_SIZE). Result: 0.
    PunchHole {
        /// Where it begins.
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// fallocate(ZERO_RANGE | KEEP_SIZE). Result: 0.
    ZeroRange {
        /// Where it begins.
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// fallocate(0): reserves space, for anchored blocks. Result: 0.
    Allocate {
        /// Where it begins.
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// ioctl BLKDISCARD on a block device. Result: 0.
    BlockDiscard {
        /// Where it begins.
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// ioctl BLKZEROOUT on a block device. Result: 0.
    BlockZeroOut {
        /// Where it begins.
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// lseek SEEK_DATA from `offset`. Result: offset of the next data at or after it; ENXIO error
    /// when there is none.
    SeekData {
        /// Where to start looking.
        offset: u64,
    },
    /// lseek SEEK_HOLE from `offset`. Result: offset of the next hole at or after it.
    SeekHole {
        /// Where to start looking.
        offset: u64,
    },
}

/// The end of a [`FileOperation`]. Exactly one comes for each submission.
#[derive(Debug)]
pub struct FileCompletion {
    /// The tag of the submission.
    pub tag: StorageTag,
    /// The value described at the operation, or the operating system's error.
    pub result: io::Result<u64>,
    /// The buffer of a read or write, given back.
    pub buffer: Option<Buffer>,
}

/// Takes operations in; their completions come out of the engine's `wait`.
pub trait Storage {
    /// Queues one operation. It never blocks and never fails: errors arrive as completions.
    fn submit(&mut self, operation: FileOperation);
}
