//! Uses a volume as its owners do, in blocking calls.

use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::StorageTag;

use super::CompletionSource;
use crate::{
    ByteOffset, Durability, ExtentState, Operation, Outcome, Progress, Request, RequestProgress,
    Volume, VolumeError,
};

/// A volume and storage to run its requests on.
pub struct VolumeClient<'a> {
    volume: &'a dyn Volume,
    storage: &'a mut dyn CompletionSource,
}

impl<'a> VolumeClient<'a> {
    /// Borrows both.
    pub fn new(volume: &'a dyn Volume, storage: &'a mut dyn CompletionSource) -> VolumeClient<'a> {
        VolumeClient { volume, storage }
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &'a dyn Volume {
        self.volume
    }

    /// Reads through a request, never through `try_read`.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, VolumeError> {
        self.read_at_start(offset, length, 0)
    }

    /// Reads into the part of a buffer that begins at `start`.
    pub fn read_at_start(
        &mut self,
        offset: u64,
        length: usize,
        start: usize,
    ) -> Result<Vec<u8>, VolumeError> {
        let mut request = request(
            Operation::Read {
                offset: ByteOffset(offset),
            },
            0,
        );
        let mut buffer = Buffer::allocate(start + length + 16);
        buffer.fill(0xee);
        request.buffer = Some(buffer);
        (request.start, request.end) = (start, start + length);
        self.run(&mut request)?;
        let buffer = request.buffer.expect("a finished request owns its buffer");
        assert!(
            buffer[..start].iter().all(|byte| *byte == 0xee),
            "bytes before the range changed"
        );
        assert!(
            buffer[start + length..].iter().all(|byte| *byte == 0xee),
            "bytes after it changed"
        );
        Ok(buffer[start..start + length].to_vec())
    }

    /// Writes through a request, never through `try_write`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        self.write_at_start(offset, bytes, 0, Durability::Cached)
    }

    /// As `write`, on the medium when it returns.
    pub fn write_durable(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        self.write_at_start(offset, bytes, 0, Durability::Durable)
    }

    /// Writes from the part of a buffer that begins at `start`.
    pub fn write_at_start(
        &mut self,
        offset: u64,
        bytes: &[u8],
        start: usize,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let mut request = write_request(offset, bytes, start, durability);
        let outcome = self.run(&mut request);
        let buffer = request.buffer.expect("a finished request owns its buffer");
        assert_eq!(
            &buffer[start..start + bytes.len()],
            bytes,
            "a write changed its payload"
        );
        outcome.map(|_| ())
    }

    /// Makes everything completed before durable.
    pub fn flush(&mut self) -> Result<(), VolumeError> {
        self.run(&mut request(Operation::Flush, 0)).map(|_| ())
    }

    /// Frees a range.
    pub fn unmap(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let operation = Operation::Unmap {
            offset: ByteOffset(offset),
            length,
        };
        self.run(&mut request(operation, 0)).map(|_| ())
    }

    /// Zeroes a range.
    pub fn write_zeroes(
        &mut self,
        offset: u64,
        length: u64,
        may_unmap: bool,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let offset = ByteOffset(offset);
        let operation = Operation::WriteZeroes {
            offset,
            length,
            may_unmap,
            durability,
        };
        self.run(&mut request(operation, 0)).map(|_| ())
    }

    /// Reserves a range.
    pub fn anchor(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let operation = Operation::Anchor {
            offset: ByteOffset(offset),
            length,
        };
        self.run(&mut request(operation, 0)).map(|_| ())
    }

    /// The state of the first run of a range, and its length.
    pub fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, ExtentState), VolumeError> {
        let operation = Operation::ExtentStatus {
            offset: ByteOffset(offset),
            length,
        };
        match self.run(&mut request(operation, 0))? {
            Outcome::Extent { length, state } => Ok((length, state)),
            Outcome::Done => panic!("a question about extents was answered with Done"),
        }
    }

    /// Brings a range into the cache.
    pub fn prefetch(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let operation = Operation::Prefetch {
            offset: ByteOffset(offset),
            length,
        };
        self.run(&mut request(operation, 0)).map(|_| ())
    }

    /// Runs one request to its end.
    pub fn run(&mut self, request: &mut Request) -> Result<Outcome, VolumeError> {
        let mut progress = self.volume.start(request, self.storage);
        loop {
            match progress {
                Progress::Done(result) => return result,
                Progress::Pending => {
                    let completion = self.storage.next_completion();
                    assert_eq!(completion.tag, request.tag, "completion of another request");
                    progress = self.volume.resume(request, completion, self.storage);
                }
            }
        }
    }

    /// Starts all requests, then runs them to their ends as their completions come. The tag of each
    /// is its place.
    pub fn run_together(&mut self, requests: &mut [Request]) -> Vec<Result<Outcome, VolumeError>> {
        let mut results: Vec<Option<Result<Outcome, VolumeError>>> = Vec::new();
        for (number, request) in (0..).zip(requests.iter_mut()) {
            request.tag = StorageTag(number);
            results.push(match self.volume.start(request, self.storage) {
                Progress::Done(result) => Some(result),
                Progress::Pending => None,
            });
        }
        while results.iter().any(Option::is_none) {
            let completion = self.storage.next_completion();
            let number = usize::try_from(completion.tag.0).expect("a place among the requests");
            let progress = self
                .volume
                .resume(&mut requests[number], completion, self.storage);
            if let Progress::Done(result) = progress {
                assert!(
                    results[number].replace(result).is_none(),
                    "a request ended twice"
                );
            }
        }
        results.into_iter().flatten().collect()
    }
}

/// A request without payload.
#[must_use]
pub fn request(operation: Operation, tag: u64) -> Request {
    Request {
        operation,
        buffer: None,
        start: 0,
        end: 0,
        tag: StorageTag(tag),
        progress: RequestProgress::default(),
    }
}

/// A write of `bytes`, which begin at `start` in its buffer.
#[must_use]
pub fn write_request(offset: u64, bytes: &[u8], start: usize, durability: Durability) -> Request {
    let mut request = request(
        Operation::Write {
            offset: ByteOffset(offset),
            durability,
        },
        0,
    );
    let mut buffer = Buffer::allocate(start + bytes.len());
    buffer[start..].copy_from_slice(bytes);
    request.buffer = Some(buffer);
    (request.start, request.end) = (start, start + bytes.len());
    request
}
