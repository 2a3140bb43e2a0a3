//! Requests: operations on a volume that may have to wait, and how they end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use longshore_reactor::buffer::Buffer;

use crate::error::VolumeError;
use longshore_block::operation::{Operation, Reply};

/// An operation and its payload. A volume owns it from [`Volume::execute`](crate::Volume::execute)
/// until it has ended.
#[derive(Debug)]
pub struct Request {
    pub operation: Operation,
    /// Payload of reads and writes.
    pub buffer: Option<Buffer>,
    /// The part of `buffer` that is read or written.
    pub start: usize,
    /// End of that part.
    pub end: usize,
}

impl Request {
    /// A request without payload.
    #[must_use]
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            buffer: None,
            start: 0,
            end: 0,
        }
    }

    /// Bytes that a read or write moves.
    #[must_use]
    pub fn payload_length(&self) -> u64 {
        let length = self
            .end
            .checked_sub(self.start)
            .expect("a payload ends after it starts");
        u64::try_from(length).expect("usize is at most 64 bits wide")
    }

    /// The bytes that a read fills or a write takes.
    ///
    /// # Panics
    /// When bytes are to be moved and the request has no buffer for them.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start, self.end);
        if start == end {
            return &mut [];
        }
        &mut self
            .buffer
            .as_mut()
            .expect("a read or write carries a buffer")[start..end]
    }
}

/// A request that is over.
#[derive(Debug)]
pub struct Ended {
    pub result: Result<Reply, VolumeError>,
    /// The buffer that it was given.
    pub buffer: Option<Buffer>,
}

/// A request under way: a future that owns the request's state, on one event loop.
///
/// It may wait for any number of operations of storage, requests to other volumes and answers of other
/// threads (see [`Io`](crate::Io)). Dropping it abandons the request; operations that storage has begun
/// run to their end and keep their buffers until then.
pub enum Execution {
    /// It ended at once. `None` once that was taken.
    Ended(Option<Ended>),
    /// The request waits for storage, a timer or another thread.
    Running(Pin<Box<dyn Future<Output = Ended>>>),
}

impl Execution {
    /// A request that ended at once.
    #[must_use]
    pub fn ended(result: Result<Reply, VolumeError>, buffer: Option<Buffer>) -> Self {
        Self::Ended(Some(Ended { result, buffer }))
    }

    /// A request that may wait.
    pub fn running(future: impl Future<Output = Ended> + 'static) -> Self {
        Self::Running(Box::pin(future))
    }
}

impl Future for Execution {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        match &mut *self {
            Self::Ended(ended) => Poll::Ready(ended.take().expect("polled after its end")),
            Self::Running(future) => future.as_mut().poll(context),
        }
    }
}

impl std::fmt::Debug for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(ended) => f.debug_tuple("Ended").field(ended).finish(),
            Self::Running(_) => f.debug_tuple("Running").finish_non_exhaustive(),
        }
    }
}
