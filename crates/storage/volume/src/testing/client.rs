//! Uses a volume as its owners do, in blocking calls.

use std::sync::Arc;

use longshore_reactor::buffer::Buffer;

use super::CompletionSource;
use crate::{
    Ended, Executor, Extent, ExtentState, Operation, Reply, Request, Started, Volume, VolumeError,
};

/// A volume and storage to run its requests on. Offsets and lengths are bytes, and whole blocks.
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

    #[must_use]
    pub fn volume(&self) -> &dyn Volume {
        &*self.volume
    }

    /// The blocks of a range of bytes.
    ///
    /// # Panics
    /// It is not made of whole blocks.
    #[must_use]
    pub fn blocks(&self, offset: u64, length: u64) -> Extent {
        let block_size = u64::from(self.volume.geometry().block_size);
        assert!(offset.is_multiple_of(block_size) && length.is_multiple_of(block_size));
        Extent::new(offset / block_size, length / block_size)
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
        let extent = self.blocks(offset, length as u64);
        let mut request = Request::new(Operation::Read { extent });
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
        self.write_at_start(offset, bytes, 0, false)
    }

    /// As `write`, on the medium when it returns.
    pub fn write_durable(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        self.write_at_start(offset, bytes, 0, true)
    }

    /// Writes from the part of a buffer that begins at `start`.
    pub fn write_at_start(
        &mut self,
        offset: u64,
        bytes: &[u8],
        start: usize,
        fua: bool,
    ) -> Result<(), VolumeError> {
        let extent = self.blocks(offset, bytes.len() as u64);
        let mut request = write_request(extent, bytes, start, fua);
        let result = self.run(&mut request);
        let buffer = request.buffer.expect("a finished request owns its buffer");
        assert_eq!(
            &buffer[start..start + bytes.len()],
            bytes,
            "a write changed its payload"
        );
        result.map(|_| ())
    }

    /// Makes everything completed before durable.
    pub fn flush(&mut self) -> Result<(), VolumeError> {
        self.run(&mut Request::new(Operation::Flush)).map(|_| ())
    }

    pub fn unmap(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let extent = self.blocks(offset, length);
        let operation = Operation::Unmap { extent };
        self.run(&mut Request::new(operation)).map(|_| ())
    }

    pub fn write_zeroes(
        &mut self,
        offset: u64,
        length: u64,
        may_unmap: bool,
        fua: bool,
    ) -> Result<(), VolumeError> {
        let operation = Operation::WriteZeroes {
            extent: self.blocks(offset, length),
            may_unmap,
            fua,
        };
        self.run(&mut Request::new(operation)).map(|_| ())
    }

    pub fn anchor(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let extent = self.blocks(offset, length);
        let operation = Operation::Anchor { extent };
        self.run(&mut Request::new(operation)).map(|_| ())
    }

    /// The state of the first run of a range, and its length.
    pub fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, ExtentState), VolumeError> {
        let extent = self.blocks(offset, length);
        let operation = Operation::ExtentStatus { extent };
        match self.run(&mut Request::new(operation))? {
            Reply::Extent { blocks, state } => Ok((self.volume.geometry().bytes(blocks), state)),
            Reply::Done => panic!("a question about extents was answered with Done"),
        }
    }

    /// Brings a range into the cache.
    pub fn prefetch(&mut self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let extent = self.blocks(offset, length);
        let operation = Operation::Prefetch { extent };
        self.run(&mut Request::new(operation)).map(|_| ())
    }

    /// Bytes of payload copied since the last call because of O_DIRECT.
    pub fn take_bounced_bytes(&mut self) -> u64 {
        self.executor.take_bounced_bytes()
    }

    /// Runs one request to its end. Its buffer comes back to it.
    pub fn run(&mut self, request: &mut Request) -> Result<Reply, VolumeError> {
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
    pub fn run_together(&mut self, requests: Vec<Request>) -> Vec<Result<Reply, VolumeError>> {
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
pub fn write_request(extent: Extent, bytes: &[u8], start: usize, fua: bool) -> Request {
    let mut request = Request::new(Operation::Write { extent, fua });
    let mut buffer = Buffer::allocate(start + bytes.len());
    buffer[start..].copy_from_slice(bytes);
    request.buffer = Some(buffer);
    (request.start, request.end) = (start, start + bytes.len());
    request
}
