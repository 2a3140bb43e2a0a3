//! Uses a volume as its owners do, in blocking calls.

use std::sync::Arc;

use longshore_reactor::buffer::Buffer;

use super::CompletionSource;
use crate::{
    ByteOffset, Durability, Ended, Executor, ExtentState, Operation, Outcome, Request, Started,
    Volume, VolumeError,
};

/// A volume and storage to run its requests on.
pub struct VolumeClient<'a> {
    volume: Arc<dyn Volume>,
    storage: &'a mut dyn CompletionSource,
    /// The owner of a request is its place among those that run together.
    executor: Executor<usize>,
}

impl<'a> VolumeClient<'a> {
    /// Uses the volume on that storage.
    pub fn new(volume: Arc<dyn Volume>, storage: &'a mut dyn CompletionSource) -> VolumeClient<'a> {
        VolumeClient {
            volume,
            storage,
            executor: Executor::default(),
        }
    }

    /// Lets the volume work of its own accord, as an event loop does before its first request.
    pub fn attach(&mut self) {
        self.executor.attach(&self.volume, self.storage);
    }

    /// Lets it go on after it was quiesced.
    pub fn resume(&mut self) {
        self.executor.resume(&self.volume, self.storage);
    }

    /// Has the volume stop that.
    pub fn quiesce(&mut self) -> Result<(), VolumeError> {
        let started = self.executor.quiesce(&self.volume, 0, self.storage);
        self.finish(started).result.map(|_| ())
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &dyn Volume {
        &*self.volume
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
        let mut request = Request::new(Operation::Read {
            offset: ByteOffset(offset),
        });
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
        self.run(&mut Request::new(Operation::Flush)).map(|_| ())
    }

    /// Frees a range.
    pub fn unmap(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let operation = Operation::Unmap {
            offset: ByteOffset(offset),
            length,
        };
        self.run(&mut Request::new(operation)).map(|_| ())
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
        self.run(&mut Request::new(operation)).map(|_| ())
    }

    /// Reserves a range.
    pub fn anchor(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let operation = Operation::Anchor {
            offset: ByteOffset(offset),
            length,
        };
        self.run(&mut Request::new(operation)).map(|_| ())
    }

    /// The state of the first run of a range, and its length.
    pub fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, ExtentState), VolumeError> {
        let operation = Operation::ExtentStatus {
            offset: ByteOffset(offset),
            length,
        };
        match self.run(&mut Request::new(operation))? {
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
        self.run(&mut Request::new(operation)).map(|_| ())
    }

    /// Bytes of payload copied since the last call because of O_DIRECT.
    pub fn take_bounced_bytes(&mut self) -> u64 {
        self.executor.take_bounced_bytes()
    }

    /// Runs one request to its end. Its buffer comes back to it.
    pub fn run(&mut self, request: &mut Request) -> Result<Outcome, VolumeError> {
        let given = std::mem::replace(request, Request::new(request.operation));
        (request.start, request.end) = (given.start, given.end);
        let started = self.executor.start(&self.volume, given, 0, self.storage);
        let ended = self.finish(started);
        request.buffer = ended.buffer;
        ended.result
    }

    fn finish(&mut self, started: Started<usize>) -> Ended {
        if let Started::Ended(_, ended) = started {
            return ended;
        }
        loop {
            if let Some((_, ended)) = self.executor.next_ended() {
                return ended;
            }
            let completion = self.storage.next_completion();
            self.executor.complete(completion, self.storage);
        }
    }

    /// Starts all requests, then runs them to their ends as their completions come. Results are in the
    /// order of the requests.
    pub fn run_together(&mut self, requests: Vec<Request>) -> Vec<Result<Outcome, VolumeError>> {
        let mut results: Vec<_> = requests.iter().map(|_| None).collect();
        for (number, request) in requests.into_iter().enumerate() {
            let started = self
                .executor
                .start(&self.volume, request, number, self.storage);
            if let Started::Ended(number, ended) = started {
                results[number] = Some(ended.result);
            }
        }
        loop {
            while let Some((number, ended)) = self.executor.next_ended() {
                let before = results[number].replace(ended.result);
                assert!(before.is_none(), "a request ended twice");
            }
            if self.executor.is_empty() {
                return results.into_iter().flatten().collect();
            }
            let completion = self.storage.next_completion();
            self.executor.complete(completion, self.storage);
        }
    }
}

/// A write of `bytes`, which begin at `start` in its buffer.
#[must_use]
pub fn write_request(offset: u64, bytes: &[u8], start: usize, durability: Durability) -> Request {
    let mut request = Request::new(Operation::Write {
        offset: ByteOffset(offset),
        durability,
    });
    let mut buffer = Buffer::allocate(start + bytes.len());
    buffer[start..].copy_from_slice(bytes);
    request.buffer = Some(buffer);
    (request.start, request.end) = (start, start + bytes.len());
    request
}
