//! A remote volume: shared, asynchronous, reconnecting, over one path or several.
//!
//! ```text
//!  submit ─► route ─► queue of a path ─────────────► socket        connecting ─► up ─► down ─┐
//!   (any     best     lock free? encode and send here   │             ▲  │                   │
//!  thread)   state    taken? inbox, its holder sends    ▼             │  └► refused (another  │
//!            no path?  ─► parked                     driver thread    │        volume)        │
//!                                                    receives,        └── back-off, connector ┘
//!  completer ◄── finished ◄── piece done? next piece ◄─┘ retries               thread
//! ```
//!
//! - **A shared queue** holds one connection under a mutex (`shared_queue.rs`). A submitter that finds it free
//!   encodes and sends in its own context; no other thread wakes up for that. Otherwise it leaves the operation in
//!   the inbox, which the holder empties before and after it releases the lock.
//! - **A driver** thread (`driver.rs`) waits for all sockets of the volume, receives, and completes:
//!   never under a lock, and never from within [`RemoteVolume::submit`]. What completers submit meanwhile is
//!   sent together when they are through ([`Cork`]). Poll queues are received by those who
//!   poll: [`RemoteVolume::poll`], and the futures of [`RemoteVolume::polled`].
//! - **An operation is in one place** at any time, as a value: in an inbox, in a queue, waiting for a retry,
//!   parked or finished. So it completes exactly once. Larger ones than the peer takes go as pieces, one after
//!   the other; COMPARE AND WRITE is never cut. Waiting takes no memory but the caller's buffer and a
//!   small record, and has no bound of its own: who submits decides how much is under way.
//! - **A lost path** (`path.rs`) gives its operations back. What cannot have reached the peer, and what
//!   only reads, goes on at once: on another path, or parked until one is there (after
//!   [`Timeouts::give_up`](crate::options::Timeouts::give_up) it fails). A connector thread dials again with growing pauses.
//!   Each operation that was sent and not answered counts as a resubmission; their number is bounded.
//! - **COMPARE AND WRITE** that may have reached the peer ends with [`Failure::OutcomeUnknown`].
//! - **The volume is the same** after a reconnect and on all paths: identifiers and block size are
//!   compared before a path is used, and a path to something else is refused, with everything that waits
//!   for it.
//!
//! # Old writes and new ones
//!
//! A write that was sent on a connection now lost may still be running, or wait in the peer's memory. If it were
//! written again, acknowledged, overwritten, and *then* ran for the first time, old data would come back. So
//! writes that may have reached the peer (also zeroing and unmapping) are *in doubt*, and are not submitted again
//! until one of these:
//!
//! 1. The same path is back and its protocol ends what was before: iSCSI sessions log in with their former
//!    ISIDs, which has the target end the former sessions and their tasks first (RFC 7143 §6.3.5). That is believed
//!    only if they lead to the same address as before, and are no fewer.
//! 2. The lost path's controller was shut down through its admin queue, which had survived the I/O queue, and has
//!    confirmed that (NVMe base 2.0 §3.6): it executes nothing any more. Linux nvmet confirms without waiting for its
//!    storage; there that is no proof, and the next applies.
//! 3. [`VolumeOptions::settle`] has passed since its connections were closed, with a reset, so that the peer
//!    knows at once.
//!
//! The third is a mitigation and no proof: a peer whose storage stalls for longer than that, or whom the reset does
//! not reach, can still be late. Each write waits for the end of the link that it was sent on, not of later links of
//! its path. Reads, flushes and all writes that had not been sent fail over without any delay. Who cannot bear the
//! risk sets `settle` longer than the peer's own time-outs; who has a single path over iSCSI has none.

//!
//! # Flush and servers that restart
//!
//! A flush vouches for the writes that were acknowledged before it, by a server that has been there all the time. A
//! server that crashed in between may have lost what it acknowledged and had not brought to the medium, and the flush after
//! it came back knows nothing of that; no protocol of block storage tells. Who copies data and must be sure compares
//! [`Counters::losses`] from before the first write with those after the flush, and writes again if they
//! differ; or writes with FUA.

mod backoff;
mod blocking;
mod completer;
mod cork;
mod driver;
mod future;
mod identity;
mod link;
mod lock;
mod mail;
mod manage;
mod options;
mod path;
mod queue_owner;
mod request;
mod retry;
mod shared;
mod shared_queue;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::ExtentState;
use longshore_reactor::{Buffer, Waker};

use crate::error::{Error, Failure};
use crate::info::VolumeInfo;
use crate::operation::{Data, Operation, Reply};
use crate::options::Options;
use crate::url::Url;

use driver::Driver;
use future::Pending;
use link::{Dialer, UrlDialer};
use lock::lock;
use mail::Mail;
use queue_owner::QueueOwner;
use shared::{Settings, Shared};

pub use blocking::BlockingVolume;
pub use completer::Completer;
pub use cork::Cork;
pub use future::block_on;
pub use options::{PathPolicy, VolumeOptions};
pub use state::{Counters, Outage, PathCondition, PathState, VolumeState};

/// A volume on a server, reached over the network. Clones share it; the last one to be dropped closes it, without
/// waiting for the end. See the module documentation.
#[derive(Clone)]
pub struct RemoteVolume {
    handle: Arc<Handle>,
    /// Operations go to poll queues.
    polled: bool,
}

struct Handle {
    shared: Arc<Shared>,
    drivers: Mutex<Vec<JoinHandle<()>>>,
}

/// Bytes from an offset on that share a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How long it is; at least a block.
    pub bytes: u64,
    /// Mapped, deallocated or anchored, alike in all its blocks.
    pub state: ExtentState,
}

impl RemoteVolume {
    /// Connects over the first portal that works, and to the others in the background. Blocks, within the
    /// time-outs of the options.
    ///
    /// # Errors
    /// No portal works: says why for each.
    pub fn open(url: &Url, options: &Options) -> Result<Self, Error> {
        let settings = Settings {
            volume: options.volume.clone(),
            timeouts: options.timeouts,
            queues: options.queues,
        };
        Self::over(Box::new(UrlDialer::new(url, options)), settings)
    }

    fn over(dialer: Box<dyn Dialer>, mut settings: Settings) -> Result<Self, Error> {
        settings.queues.default = settings.queues.default.max(1);
        let portals = dialer.portals().len();
        let mut errors = Vec::new();
        let link = loop {
            match (errors.len() < portals).then(|| dialer.dial(errors.len())) {
                Some(Ok(link)) => break link,
                Some(Err(error)) => errors.push(error),
                None if portals == 1 => return Err(errors.remove(0)),
                None => return Err(Error::AllPortals(errors)),
            }
        };
        let path = errors.len();
        let wakers = (0..settings.volume.drivers.max(1))
            .map(|_| Waker::new())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| no("wake-up event", source))?;
        let shared = Shared::new(dialer, settings, link.info.clone(), wakers.clone());
        for (path, error) in errors.into_iter().enumerate() {
            let mut management = shared.paths[path].management();
            management.attempts = 1;
            management.last_error = Some(error.to_string());
        }
        let link = Box::new(link);
        shared.post(0, Mail::Dialled { path, link });
        let volume = Self {
            handle: Arc::new(Handle {
                shared: shared.clone(),
                drivers: Mutex::default(),
            }),
            polled: false,
        };
        let others: Vec<_> = (0..portals).filter(|other| *other != path).collect();
        let drivers = wakers.len();
        let (ready, is_ready) = mpsc::sync_channel(drivers);
        for (id, waker) in wakers.into_iter().enumerate() {
            let dials = if id == 0 { others.clone() } else { Vec::new() };
            let driver = Driver::spawn(id, shared.clone(), waker, dials, ready.clone())
                .map_err(|source| no("driver thread", source))?;
            lock(&volume.handle.drivers).push(driver);
        }
        drop(ready);
        // Dropping the volume ends those that run.
        for result in is_ready.into_iter().take(drivers) {
            result.map_err(|error| no("event loop", io::Error::other(error)))?;
        }
        Ok(volume)
    }

    /// What there is to know about the volume, as of the last look at it.
    #[must_use]
    pub fn info(&self) -> Arc<VolumeInfo> {
        self.handle.shared.info()
    }

    /// A snapshot of the paths, their states and counts.
    #[must_use]
    pub fn state(&self) -> VolumeState {
        self.handle.shared.state()
    }

    /// The same volume, through poll queues if there are any ([`QueueMaps::poll`](crate::options::QueueMaps)).
    /// What is submitted here completes while somebody polls, and otherwise only now and then.
    #[must_use]
    pub fn polled(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            polled: true,
        }
    }

    /// Receives from the poll queues in this thread; completers run here. Returns how many operations
    /// have completed.
    pub fn poll(&self) -> usize {
        future::poll_queues(&self.handle.shared).unwrap_or(0)
    }

    /// Submits an operation. Never blocks, and never calls the completer itself (but once the volume is
    /// closed). What is larger than the peer takes goes in pieces. There is no order among operations under
    /// way, and no bound of their number.
    pub fn submit(
        &self,
        operation: Operation,
        data: Data,
        completer: Arc<dyn Completer>,
        tag: u64,
    ) {
        self.handle
            .shared
            .submit(operation, data, completer, tag, self.polled);
    }

    /// Reads from `offset` on, as many bytes as the buffer has. All offsets and lengths are multiples of the block
    /// size.
    ///
    /// This and the other operations are under way when the method returns; dropping the future gives up the answer, not
    /// the operation. They need no runtime: [`block_on`], or any executor.
    pub fn read(
        &self,
        offset: u64,
        buffer: Buffer,
    ) -> impl Future<Output = (Result<(), Failure>, Buffer)> + Send + use<> {
        let operation = self
            .extent(offset, buffer.len())
            .map(|extent| Operation::Read { extent });
        self.with_buffer(operation, buffer)
    }

    /// Writes the buffer at `offset`. `fua`: on the medium when it completes.
    pub fn write(
        &self,
        offset: u64,
        buffer: Buffer,
        fua: bool,
    ) -> impl Future<Output = (Result<(), Failure>, Buffer)> + Send + use<> {
        let operation = self
            .extent(offset, buffer.len())
            .map(|extent| Operation::Write { extent, fua });
        self.with_buffer(operation, buffer)
    }

    /// Writes the second half of the buffer at `offset` if the medium holds the first half there.
    pub fn compare_and_write(
        &self,
        offset: u64,
        buffer: Buffer,
        fua: bool,
    ) -> impl Future<Output = (Result<(), Failure>, Buffer)> + Send + use<> {
        let operation = self
            .extent(offset, buffer.len() / 2)
            .map(|extent| Operation::CompareAndWrite { extent, fua });
        self.with_buffer(operation, buffer)
    }

    /// Has `length` bytes from `offset` on read as zeros.
    pub fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        may_unmap: bool,
        fua: bool,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let operation = self
            .extent(offset, length)
            .map(|extent| Operation::WriteZeroes {
                extent,
                may_unmap,
                fua,
            });
        self.without_data(operation)
    }

    /// Tells that `length` bytes from `offset` on are not needed any more.
    pub fn unmap(
        &self,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let operation = self
            .extent(offset, length)
            .map(|extent| Operation::Unmap { extent });
        self.without_data(operation)
    }

    /// Brings what was completed before to the medium.
    pub fn flush(&self) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        self.without_data(Ok(Operation::Flush))
    }

    /// Asks what is allocated, from `offset` on, looking no further than `length` bytes.
    pub fn extent_status(
        &self,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<Run, Failure>> + Send + use<> {
        let operation = self
            .extent(offset, length)
            .map(|extent| Operation::ExtentStatus { extent });
        let block_size = u64::from(self.handle.shared.block_size());
        let pending = self.pend(operation, Data::None);
        async move {
            match pending.await.result? {
                Reply::Extent { blocks, state } => Ok(Run {
                    bytes: blocks.0.saturating_mul(block_size),
                    state,
                }),
                Reply::Done => Err(Failure::Unsupported),
            }
        }
    }

    /// From now on operations wait no longer than this for a path, or for a server that says nothing at all, if they
    /// would have waited longer: who submits them is about to end.
    pub fn hurry(&self, within: Duration) {
        self.handle.shared.hurry(within);
    }

    /// Finishes what is under way, logs out and waits for that, at most for
    /// [`VolumeOptions::close_wait`] and the time-outs of connecting. What comes through other clones fails from
    /// now on. Called by a completer, it does not wait.
    pub fn close(self) {
        let shared = &self.handle.shared;
        shared.begin_closing(shared.settings.volume.close_wait);
        let mut threads = std::mem::take(&mut *lock(&self.handle.drivers));
        let this = thread::current().id();
        if threads.iter().any(|driver| driver.thread().id() == this) {
            return;
        }
        loop {
            for thread in threads.drain(..) {
                // A driver that panicked has said so, and has ended all operations.
                let _ = thread.join();
            }
            threads = shared.take_connectors();
            if threads.is_empty() {
                return;
            }
        }
    }

    /// The blocks of a range of bytes.
    fn extent<N: TryInto<u64>>(&self, offset: u64, length: N) -> Result<Extent, Failure> {
        let block_size = u64::from(self.handle.shared.block_size());
        let length = length.try_into().unwrap_or(u64::MAX);
        if !offset.is_multiple_of(block_size) || !length.is_multiple_of(block_size) {
            return Err(Failure::Misaligned {
                offset,
                length,
                block_size: self.handle.shared.block_size(),
            });
        }
        Ok(Extent {
            lba: Lba(offset / block_size),
            blocks: BlockCount(length / block_size),
        })
    }

    fn pend(&self, operation: Result<Operation, Failure>, data: Data) -> Pending {
        Pending::submit(&self.handle.shared, operation, data, self.polled)
    }

    fn with_buffer(
        &self,
        operation: Result<Operation, Failure>,
        buffer: Buffer,
    ) -> impl Future<Output = (Result<(), Failure>, Buffer)> + Send + use<> {
        let pending = self.pend(operation, Data::buffer(buffer));
        async move {
            let completion = pending.await;
            let buffer = completion
                .data
                .into_buffer()
                .expect("the memory of an operation comes back with it");
            (completion.result.map(|_| ()), buffer)
        }
    }

    fn without_data(
        &self,
        operation: Result<Operation, Failure>,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let pending = self.pend(operation, Data::None);
        async move { pending.await.result.map(|_| ()) }
    }
}

impl fmt::Debug for RemoteVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteVolume")
            .field("polled", &self.polled)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared
            .begin_closing(self.shared.settings.volume.close_wait);
    }
}

fn no(what: &'static str, source: io::Error) -> Error {
    Error::System {
        what,
        source: Arc::new(source),
    }
}
