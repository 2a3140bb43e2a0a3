//! File and block-device operations that may sleep, as submissions and completions.
//!
//! [`Storage`] is all that volumes know of the outside world. The engines of this crate implement
//! it over io_uring or helper threads; the simulator implements it over a simulated disk.
//!
//! What is not done by a file (a volume on another machine) is *delegated*: other code carries it out, on any thread,
//! and reports its end to [`Delegated::complete`], which makes a completion of it like any other.

use std::fmt;
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
    pub kind: FileOperationKind,
    /// The file is open with O_DIRECT: the medium reads and writes the buffer's own pages, which an engine may
    /// therefore have registered.
    pub is_direct: bool,
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
    /// fdatasync(2). The result is 0 or an error.
    DataSync,
    /// fallocate(PUNCH_HOLE | KEEP_SIZE). Result: 0.
    PunchHole {
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// fallocate(ZERO_RANGE | KEEP_SIZE). Result: 0.
    ZeroRange {
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// fallocate(0): reserves space, for anchored blocks. Result: 0.
    Allocate {
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// ioctl BLKDISCARD on a block device. Result: 0.
    BlockDiscard {
        offset: u64,
        /// How far it goes.
        length: u64,
    },
    /// ioctl BLKZEROOUT on a block device. Result: 0.
    BlockZeroOut {
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

    /// Takes note of an operation that somebody else carries out. It counts as in flight until
    /// [`Delegated::complete`] has been called, or the value has been dropped.
    fn delegate(&mut self, tag: StorageTag) -> Delegated;

    /// Has `call` run when the present turn is over, before anybody sleeps: what is delegated piece by piece can then
    /// be sent as one. Storage that knows no turns calls at once.
    fn at_turn_end(&mut self, call: fn()) {
        call();
    }
}

/// Takes completions in, on any thread. What stands behind a [`Delegated`].
pub trait CompletionSink: Send + Sync {
    /// Takes one in. It neither blocks nor fails; whoever is to have it may be gone.
    fn accept(&self, completion: FileCompletion);
}

/// An operation that is carried out elsewhere: the right, and the duty, to say how it ended.
///
/// Its completion comes out of the storage that made it. A value that is dropped completes as cancelled
/// (ECANCELED), so that nobody waits for ever for a party that has gone.
pub struct Delegated {
    tag: StorageTag,
    /// `None` once it is complete.
    sink: Option<Arc<dyn CompletionSink>>,
}

impl Delegated {
    /// For implementations of [`Storage`]: `sink` gets the completion, which will carry `tag`.
    #[must_use]
    pub fn new(tag: StorageTag, sink: Arc<dyn CompletionSink>) -> Self {
        Self {
            tag,
            sink: Some(sink),
        }
    }

    /// As given to [`Storage::delegate`].
    #[must_use]
    pub fn tag(&self) -> StorageTag {
        self.tag
    }

    /// The operation is over. Neither blocks nor, in an engine that has seen as much before, allocates.
    pub fn complete(mut self, result: io::Result<u64>, buffer: Option<Buffer>) {
        self.hand_in(result, buffer);
    }

    fn hand_in(&mut self, result: io::Result<u64>, buffer: Option<Buffer>) {
        if let Some(sink) = self.sink.take() {
            sink.accept(FileCompletion {
                tag: self.tag,
                result,
                buffer,
            });
        }
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        self.hand_in(Err(io::Error::from_raw_os_error(libc::ECANCELED)), None);
    }
}

impl fmt::Debug for Delegated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegated")
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}
