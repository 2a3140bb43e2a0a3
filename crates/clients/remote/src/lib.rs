//! Volumes on other machines: a logical unit of an iSCSI target, or a namespace of an NVMe/TCP subsystem, behind
//! [`RemoteVolume`], which keeps the connections.
//!
//! Each request becomes operations of the remote volume. The initiator's threads carry them out, and answer
//! the event loop through [`Io::delegate`].
//!
//! - A durable write to a peer without FUA is followed by a flush.
//! - Where the peer has no command that zeroes a range, zeros are written piece by piece.
//! - Where the peer does not tell the state of extents, everything is mapped.
//!
//! **What is lost with a connection comes again**: the initiator repeats it, so that a request fails only when the
//! peer says so, or cannot be reached for longer than the time given up after.
//!
//! **Poison.** When the peer reports that a flush, or a write that was to be durable, failed, data that was
//! accepted may be lost, and another flush may succeed without it being anywhere; as with local media, the volume then
//! refuses writes and flushes until it is reopened. A permanent loss of the connection does not poison: the flush
//! failed visibly, and the peer's data is unchanged.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod answer;
mod attach;
mod backend;
mod error;
mod name;
mod spec;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longshore_initiator::error::Failure;
use longshore_initiator::operation::Data;
use longshore_initiator::volume::{PathCondition, PathState, RemoteVolume};
use longshore_reactor::allocator;
use longshore_reactor::buffer::Buffer;

use longshore_volume::{
    Attempt, BlockCount, Characteristics, Condition, Ended, Execution, Extent, ExtentState,
    Geometry, Identity, Io, Lba, Operation, Outline, Reply, Request, Throttle, Volume, VolumeError,
    WriteCache,
};

pub use backend::register;
pub use error::RemoteError;
pub use name::{ISCSI, NVME_TCP, backend_of_url};
pub use spec::RemoteSpec;

/// Zeros that one write puts down where the peer has no command for it. One buffer for the whole volume.
const ZEROS_PER_WRITE: u32 = 256 * 1024;

/// How long dropping the volume waits for the end of its connections.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// See the module documentation.
pub struct RemoteBackend {
    outline: Outline,
    remote: RemoteVolume,
    /// Where it is, for messages. Without passwords.
    place: String,
    abilities: Abilities,
    zeros: Arc<Buffer>,
    poisoned: AtomicBool,
}

/// What the peer can do, as found when it was attached. What it turns out not to know is not asked again.
#[derive(Debug)]
struct Abilities {
    read_only: bool,
    write_cache: bool,
    /// Every change is made durable, so that the volume has no cache for its users.
    write_through: bool,
    fua: bool,
    /// Bytes; `None`: no unmap.
    unmap_granularity: Option<u32>,
    unmapped_reads_zeros: bool,
    physical_block_size: u32,
    write_zeroes: AtomicBool,
    extent_status: AtomicBool,
}

impl std::fmt::Debug for RemoteBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteBackend")
            .field("outline", &self.outline)
            .field("place", &self.place)
            .field("abilities", &self.abilities)
            .finish_non_exhaustive()
    }
}

impl RemoteBackend {
    /// What is behind it: its paths and counters, for those who look.
    #[must_use]
    pub fn remote(&self) -> &RemoteVolume {
        &self.remote
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// A flush or durable write failed. Only what the peer itself says counts; see the module
    /// documentation.
    fn poison_for(&self, failure: &Failure) {
        let by_peer = matches!(failure, Failure::Scsi { .. } | Failure::Nvme { .. });
        if by_peer && !self.poisoned.swap(true, Ordering::AcqRel) {
            tracing::error!(
                volume = self.outline.name(),
                place = self.place,
                error = %failure,
                "data may be lost: the volume refuses writes until it is reopened and checked"
            );
        }
    }

    /// Whether anything may be changed.
    fn admit_change(&self) -> Result<(), VolumeError> {
        if self.abilities.read_only {
            return Err(VolumeError::ReadOnly);
        }
        if self.is_poisoned() {
            return Err(VolumeError::Poisoned);
        }
        Ok(())
    }

    fn admit(&self, request: &Request) -> Result<(), VolumeError> {
        self.outline.bytes_of_request(request)?;
        match request.operation {
            Operation::Read { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => Ok(()),
            Operation::Flush if self.is_poisoned() => Err(VolumeError::Poisoned),
            Operation::Flush => Ok(()),
            Operation::Write { .. } | Operation::WriteZeroes { .. } => self.admit_change(),
            Operation::Unmap { .. } => {
                self.admit_change()?;
                match self.abilities.unmap_granularity {
                    Some(_) => Ok(()),
                    None => Err(VolumeError::Unsupported),
                }
            }
            Operation::Anchor { .. } => {
                self.admit_change()?;
                Err(VolumeError::Unsupported)
            }
            Operation::CompareAndWrite { .. } => Err(VolumeError::Unsupported),
        }
    }

    async fn carry_out(&self, request: &mut Request, io: &Io) -> Result<Reply, VolumeError> {
        self.admit(request)?;
        let operation = request.operation;
        if operation
            .extent()
            .is_some_and(|extent| extent.blocks.0 == 0)
        {
            return Ok(match operation {
                Operation::ExtentStatus { extent } => Reply::Extent {
                    blocks: extent.blocks,
                    state: ExtentState::Mapped,
                },
                Operation::Read { .. }
                | Operation::Write { .. }
                | Operation::CompareAndWrite { .. }
                | Operation::Flush
                | Operation::Unmap { .. }
                | Operation::WriteZeroes { .. }
                | Operation::Anchor { .. }
                | Operation::Prefetch { .. } => Reply::Done,
            });
        }
        match operation {
            Operation::Read { .. } => {
                self.transfer(operation, request, io)
                    .await
                    .map_err(|failure| self.error("read", failure))?;
            }
            Operation::Write { extent, fua } => self.write(extent, fua, request, io).await?,
            Operation::Flush if !self.abilities.read_only => self.flush(io).await?,
            Operation::Unmap { .. } => {
                self.command(operation, io)
                    .await
                    .map_err(|failure| self.error("unmap", failure))?;
                if self.needs_sync(false) {
                    self.sync(io).await?;
                }
            }
            Operation::WriteZeroes {
                extent,
                may_unmap,
                fua,
            } => {
                self.zero(extent, may_unmap, io).await?;
                if self.needs_sync(fua) {
                    self.sync(io).await?;
                }
            }
            Operation::ExtentStatus { extent } => return self.extent_status(extent, io).await,
            // What the peer reads ahead is its own affair, and what is read-only needs no flush.
            Operation::Prefetch { .. } | Operation::Flush => {}
            Operation::Anchor { .. } | Operation::CompareAndWrite { .. } => {
                unreachable!("it is not admitted")
            }
        }
        Ok(Reply::Done)
    }

    /// Reads into, or writes from, the buffer of the request.
    async fn transfer(
        &self,
        operation: Operation,
        request: &mut Request,
        io: &Io,
    ) -> Result<Reply, Failure> {
        let data = Data::Buffer {
            buffer: request
                .buffer
                .take()
                .expect("a read or write carries a buffer"),
            start: request.start,
        };
        let (result, data) = answer::submit(&self.remote, operation, data, io).await;
        request.buffer = data.into_buffer();
        result
    }

    /// An operation without payload.
    async fn command(&self, operation: Operation, io: &Io) -> Result<Reply, Failure> {
        answer::submit(&self.remote, operation, Data::None, io)
            .await
            .0
    }

    /// Whether a change has to be durable, and that takes more than its completion.
    fn needs_sync(&self, fua: bool) -> bool {
        (fua || self.abilities.write_through) && self.abilities.write_cache
    }

    async fn write(
        &self,
        extent: Extent,
        fua: bool,
        request: &mut Request,
        io: &Io,
    ) -> Result<(), VolumeError> {
        let durable = self.needs_sync(fua);
        let fua = durable && self.abilities.fua;
        let operation = Operation::Write { extent, fua };
        if let Err(failure) = self.transfer(operation, request, io).await {
            if fua {
                self.poison_for(&failure);
            }
            return Err(self.error("write", failure));
        }
        if fua {
            self.synced()
        } else if durable {
            self.sync(io).await
        } else {
            Ok(())
        }
    }

    async fn flush(&self, io: &Io) -> Result<(), VolumeError> {
        match self.command(Operation::Flush, io).await {
            Ok(_) => self.synced(),
            // There is no such command where there is no cache.
            Err(Failure::Unsupported) if !self.abilities.write_cache => Ok(()),
            Err(failure) => {
                self.poison_for(&failure);
                Err(self.error("flush", failure))
            }
        }
    }

    /// Brings to the medium what a request has written.
    async fn sync(&self, io: &Io) -> Result<(), VolumeError> {
        match self.command(Operation::Flush, io).await {
            Ok(_) => self.synced(),
            Err(failure) => {
                self.poison_for(&failure);
                Err(self.error("flush", failure))
            }
        }
    }

    /// The peer has confirmed that written data is on its medium.
    fn synced(&self) -> Result<(), VolumeError> {
        if self.is_poisoned() {
            // Another sync failed meanwhile: what this one promised is in doubt with it.
            return Err(VolumeError::Poisoned);
        }
        Ok(())
    }

    async fn zero(&self, extent: Extent, may_unmap: bool, io: &Io) -> Result<(), VolumeError> {
        if self.abilities.write_zeroes.load(Ordering::Relaxed) {
            let operation = Operation::WriteZeroes {
                extent,
                may_unmap,
                fua: false,
            };
            match self.command(operation, io).await {
                Ok(_) => return Ok(()),
                Err(Failure::Unsupported) => {
                    self.abilities.write_zeroes.store(false, Ordering::Relaxed);
                }
                Err(failure) => return Err(self.error("zero", failure)),
            }
        }
        let most = self.outline.blocks(ZEROS_PER_WRITE.into()).0;
        let mut done = 0;
        while done < extent.blocks.0 {
            let blocks = (extent.blocks.0 - done).min(most);
            let operation = Operation::Write {
                extent: Extent::new(extent.lba.0 + done, blocks),
                fua: false,
            };
            let zeros = Data::shared(self.zeros.clone());
            let (result, _) = answer::submit(&self.remote, operation, zeros, io).await;
            result.map_err(|failure| self.error("zero", failure))?;
            done += blocks;
        }
        Ok(())
    }

    async fn extent_status(&self, extent: Extent, io: &Io) -> Result<Reply, VolumeError> {
        let mapped = Reply::Extent {
            blocks: extent.blocks,
            state: ExtentState::Mapped,
        };
        if !self.abilities.extent_status.load(Ordering::Relaxed) {
            return Ok(mapped);
        }
        match self.command(Operation::ExtentStatus { extent }, io).await {
            Ok(Reply::Extent { blocks, state }) => Ok(Reply::Extent {
                blocks: BlockCount(blocks.0.clamp(1, extent.blocks.0)),
                state,
            }),
            Ok(Reply::Done) => Ok(mapped), // An answer without an extent.
            Err(Failure::Unsupported) => {
                self.abilities.extent_status.store(false, Ordering::Relaxed);
                Ok(mapped)
            }
            Err(failure) => Err(self.error("get the extents of", failure)),
        }
    }

    /// What the failure means to the users of the volume.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "every other failure is an I/O error here, also those that the initiator adds"
    )]
    fn error(&self, operation: &'static str, failure: Failure) -> VolumeError {
        match failure {
            Failure::NoSpace => VolumeError::NoSpace,
            Failure::ReadOnly => VolumeError::ReadOnly,
            Failure::Unsupported => VolumeError::Unsupported,
            // It was inside when it was attached.
            Failure::OutOfRange => VolumeError::ShortFile {
                expected_end: self.outline.size_bytes(),
            },
            _ => VolumeError::Io {
                operation: format!(
                    "{operation} volume {} at {}",
                    self.outline.name(),
                    self.place
                ),
                source: failure.to_io_error(),
            },
        }
    }
}

impl Volume for RemoteBackend {
    fn identity(&self) -> &Identity {
        self.outline.identity()
    }

    fn geometry(&self) -> Geometry {
        self.outline.geometry()
    }

    fn throttle(&self) -> Option<&Arc<Throttle>> {
        Some(self.outline.throttle())
    }

    fn characteristics(&self) -> Characteristics {
        let abilities = &self.abilities;
        Characteristics {
            read_only: abilities.read_only,
            write_cache: if abilities.write_cache && !abilities.write_through {
                WriteCache::Volatile
            } else {
                WriteCache::None
            },
            unmap_granularity: abilities.unmap_granularity,
            unmapped_reads_zeros: abilities.unmapped_reads_zeros,
            rotational: false,
            physical_block_size: abilities.physical_block_size,
        }
    }

    fn try_read(&self, _lba: Lba, _into: &mut [u8]) -> Attempt {
        Attempt::WouldSleep
    }

    fn try_write(&self, _lba: Lba, _from: &[u8], _fua: bool) -> Attempt {
        Attempt::WouldSleep
    }

    fn execute(self: Arc<Self>, mut request: Request, io: Io) -> Execution {
        Execution::running(async move {
            let result = self.carry_out(&mut request, &io).await;
            Ended {
                result,
                buffer: request.buffer,
            }
        })
    }

    fn condition(&self) -> Condition {
        if self.is_poisoned() {
            Condition::Poisoned
        } else {
            Condition::Sound
        }
    }

    fn hurry(&self, within: Duration) {
        self.remote.hurry(within);
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        let found = self.remote.info().size_bytes();
        let expected_end = self.outline.size_bytes();
        if found < expected_end {
            return Err(VolumeError::ShortFile { expected_end });
        }
        Ok(self.outline.grow_to(found))
    }
}

impl Drop for RemoteBackend {
    /// Logs out. A peer that is away, or a connection that is being made, is not waited for.
    fn drop(&mut self) {
        let is_up = |path: &PathState| {
            !matches!(
                path.condition,
                PathCondition::Connecting | PathCondition::Down | PathCondition::Refused
            )
        };
        if !self.remote.state().paths.iter().any(is_up) {
            // There is nobody to say goodbye to.
            return;
        }
        let remote = self.remote.clone();
        let (closed, wait) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("volume-close".to_owned());
        let closing = allocator::spawn(thread, move || {
            remote.close();
            drop(closed);
        });
        if closing.is_ok() {
            // Its end, or that of our patience: either will do.
            let _ = wait.recv_timeout(CLOSE_WAIT);
        }
    }
}
