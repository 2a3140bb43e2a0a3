//! Volumes on other machines: a logical unit of an iSCSI target, or a namespace of an NVMe/TCP subsystem, behind
//! [`RemoteVolume`], which keeps the connections.
//!
//! Each request becomes operations of the remote volume, one at a time. They are *delegated*
//! ([`Storage::delegate`]): the initiator's threads carry them out, and their ends come to the reactor as
//! completions of storage do.
//!
//! ```text
//! Read, Flush, Unmap  ─► Forward
//! Write               ─► Forward ── durable, and the peer has no FUA ─► Sync
//! WriteZeroes         ─► Forward ─┬─ durable ─► Sync
//!                                 └─ the peer has no such thing ─► Zeros, piece by piece ─► Sync
//! ExtentStatus        ─► Forward ── the peer has no such thing: all mapped
//! ```
//!
//! **What is lost with a connection comes again**: the initiator repeats it, so that a request fails only when the
//! peer says so, or cannot be reached for longer than the time given up after.
//!
//! **Poison.** When the peer reports that a flush, or a write that was to be durable, failed, data that was
//! accepted may be lost, and another flush may succeed without it being anywhere; as with local media, the volume then
//! refuses writes and flushes until it is reopened. A connection that is lost for good poisons nothing: the flush
//! failed, whoever asked for it knows, and what the peer holds is as it was.

mod attach;
mod relay;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longshore_block::extent::Extent;
use longshore_block::media::{BlockCount, Lba};
use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Data, Operation as RemoteOperation};
use longshore_initiator::volume::{PathCondition, PathState, RemoteVolume};
use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::{FileCompletion, Storage};

use crate::outline::Outline;
use crate::{
    Attempt, ByteOffset, Characteristics, Condition, Durability, ExtentState, Geometry, Identity,
    Operation, Outcome, Progress, Request, RequestProgress, Volume, VolumeError, WriteCache,
};
use relay::Relay;

/// Zeros that one write puts down where the peer has no command for it. One buffer for the whole volume.
const ZEROS_PER_WRITE: u32 = 256 * 1024;

/// How long dropping the volume waits for the end of its connections.
const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// Where a request stands: [`RequestProgress::step`].
mod step {
    /// The remote operation of the same name is under way.
    pub(super) const FORWARD: u8 = 0;
    /// Zeros are being written; so far as many bytes as the progress says.
    pub(super) const ZEROS: u8 = 1;
    /// What was written is brought to the medium.
    pub(super) const SYNC: u8 = 2;
}

/// See the module documentation.
pub struct RemoteBackend {
    outline: Outline,
    remote: RemoteVolume,
    relay: Arc<Relay>,
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
    fua: bool,
    /// Bytes; `None`: no unmap.
    unmap_granularity: Option<u32>,
    unmapped_reads_zeros: bool,
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
    fn poison_for(&self, error: &io::Error) {
        let by_peer = matches!(
            relay::failure(error),
            Some(Failure::Scsi { .. } | Failure::Nvme { .. })
        );
        if by_peer && !self.poisoned.swap(true, Ordering::AcqRel) {
            tracing::error!(
                volume = self.outline.name(),
                place = self.place,
                %error,
                "data may be lost: the volume refuses writes until it is reopened and checked"
            );
        }
    }

    /// Whether the range may be changed at all.
    fn admit_change(&self, offset: ByteOffset, length: u64) -> Result<(), VolumeError> {
        self.outline.check(offset, length)?;
        if self.abilities.read_only {
            return Err(VolumeError::ReadOnly);
        }
        if self.is_poisoned() {
            return Err(VolumeError::Poisoned);
        }
        Ok(())
    }

    fn admit(&self, request: &Request) -> Result<(), VolumeError> {
        match request.operation {
            Operation::Read { offset } => self.outline.check(offset, request.payload_length()),
            Operation::Write { offset, .. } => self.admit_change(offset, request.payload_length()),
            Operation::Flush if self.is_poisoned() => Err(VolumeError::Poisoned),
            Operation::Flush => Ok(()),
            Operation::Unmap { offset, length } => {
                self.admit_change(offset, length)?;
                match self.abilities.unmap_granularity {
                    Some(_) => Ok(()),
                    None => Err(VolumeError::Unsupported),
                }
            }
            Operation::WriteZeroes { offset, length, .. } => self.admit_change(offset, length),
            Operation::Anchor { offset, length } => {
                self.admit_change(offset, length)?;
                Err(VolumeError::Unsupported)
            }
            Operation::ExtentStatus { offset, length } | Operation::Prefetch { offset, length } => {
                self.outline.check(offset, length)
            }
        }
    }

    /// Hands an operation to the initiator. Its end comes back with the request's tag.
    fn submit(
        &self,
        operation: RemoteOperation,
        data: Data,
        request: &Request,
        storage: &mut dyn Storage,
    ) -> Progress {
        relay::hold_sends(storage);
        let tag = self.relay.enter(storage.delegate(request.tag));
        self.remote.submit(operation, data, self.relay.clone(), tag);
        Progress::Pending
    }

    fn extent(&self, offset: u64, length: u64) -> Extent {
        let block_size = u64::from(self.outline.block_size());
        Extent {
            lba: Lba(offset / block_size),
            blocks: BlockCount(length / block_size),
        }
    }

    /// Does what the request asks for by the remote operation of the same name. The range is not empty.
    fn forward(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        request.progress.step = step::FORWARD;
        let payload = request.payload_length();
        let (operation, data) = match request.operation {
            Operation::Read { offset } => {
                let extent = self.extent(offset.0, payload);
                (RemoteOperation::Read { extent }, lend(request))
            }
            Operation::Write { offset, durability } => {
                let extent = self.extent(offset.0, payload);
                let fua = self.needs_sync(durability) && self.abilities.fua;
                (RemoteOperation::Write { extent, fua }, lend(request))
            }
            Operation::Flush => (RemoteOperation::Flush, Data::None),
            Operation::Unmap { offset, length } => {
                let extent = self.extent(offset.0, length);
                (RemoteOperation::Unmap { extent }, Data::None)
            }
            Operation::WriteZeroes {
                offset,
                length,
                may_unmap,
                ..
            } => {
                let operation = RemoteOperation::WriteZeroes {
                    extent: self.extent(offset.0, length),
                    may_unmap,
                    fua: false,
                };
                (operation, Data::None)
            }
            Operation::ExtentStatus { offset, length } => {
                let extent = self.extent(offset.0, length);
                (RemoteOperation::ExtentStatus { extent }, Data::None)
            }
            Operation::Anchor { .. } | Operation::Prefetch { .. } => {
                unreachable!("has no remote counterpart")
            }
        };
        self.submit(operation, data, request, storage)
    }

    /// Whether durability takes more than a completed write.
    fn needs_sync(&self, durability: Durability) -> bool {
        durability == Durability::Durable && self.abilities.write_cache
    }

    /// Writes the next piece of zeros.
    fn write_zeros(
        &self,
        offset: ByteOffset,
        length: u64,
        request: &mut Request,
        storage: &mut dyn Storage,
    ) -> Progress {
        request.progress.step = step::ZEROS;
        let done = request.progress.done_bytes;
        let piece = (length - done).min(u64::from(ZEROS_PER_WRITE));
        let extent = self.extent(offset.0 + done, piece);
        let operation = RemoteOperation::Write { extent, fua: false };
        let zeros = Data::shared(self.zeros.clone());
        self.submit(operation, zeros, request, storage)
    }

    fn sync(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        request.progress.step = step::SYNC;
        self.submit(RemoteOperation::Flush, Data::None, request, storage)
    }

    /// The last of the writes of a request is done.
    fn written(
        &self,
        durability: Durability,
        synced: bool,
        request: &mut Request,
        storage: &mut dyn Storage,
    ) -> Progress {
        if !self.needs_sync(durability) {
            return done();
        }
        if !synced {
            return self.sync(request, storage);
        }
        self.synced()
    }

    /// What was to be brought to the medium is there, as far as the peer says.
    fn synced(&self) -> Progress {
        if self.is_poisoned() {
            // Another sync failed meanwhile: what this one promised is in doubt with it.
            return Progress::Done(Err(VolumeError::Poisoned));
        }
        done()
    }

    /// The remote operation of the request has ended well.
    fn forwarded(&self, result: u64, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        match request.operation {
            Operation::Write { durability, .. } => {
                self.written(durability, self.abilities.fua, request, storage)
            }
            Operation::WriteZeroes { durability, .. } => {
                self.written(durability, false, request, storage)
            }
            Operation::Flush => self.synced(),
            Operation::ExtentStatus { length, .. } => {
                let (blocks, state) = relay::unpacked(result);
                let block_size = u64::from(self.outline.block_size());
                let found = blocks.0.saturating_mul(block_size);
                Progress::Done(Ok(Outcome::Extent {
                    length: found.max(block_size).min(length),
                    state,
                }))
            }
            _ => done(),
        }
    }

    /// The remote operation of the request has failed.
    fn refused(
        &self,
        error: io::Error,
        request: &mut Request,
        storage: &mut dyn Storage,
    ) -> Progress {
        let unsupported = matches!(relay::failure(&error), Some(Failure::Unsupported));
        match request.operation {
            Operation::WriteZeroes { offset, length, .. } if unsupported => {
                self.abilities.write_zeroes.store(false, Ordering::Relaxed);
                self.write_zeros(offset, length, request, storage)
            }
            Operation::ExtentStatus { length, .. } if unsupported => {
                self.abilities.extent_status.store(false, Ordering::Relaxed);
                mapped(length)
            }
            // There is no such command where there is no cache.
            Operation::Flush if unsupported && !self.abilities.write_cache => done(),
            Operation::Write { durability, .. } => {
                if self.needs_sync(durability) && self.abilities.fua {
                    self.poison_for(&error);
                }
                self.failed("write", error)
            }
            Operation::Flush => {
                self.poison_for(&error);
                self.failed("flush", error)
            }
            Operation::Read { .. } => self.failed("read", error),
            Operation::Unmap { .. } => self.failed("unmap", error),
            Operation::WriteZeroes { .. } => self.failed("zero", error),
            Operation::ExtentStatus { .. }
            | Operation::Anchor { .. }
            | Operation::Prefetch { .. } => self.failed("look at", error),
        }
    }

    fn failed(&self, operation: &'static str, error: io::Error) -> Progress {
        Progress::Done(Err(self.error(operation, error)))
    }

    /// What the failure means to the users of the volume.
    fn error(&self, operation: &'static str, source: io::Error) -> VolumeError {
        match relay::failure(&source) {
            Some(Failure::NoSpace) => VolumeError::NoSpace,
            Some(Failure::ReadOnly) => VolumeError::ReadOnly,
            Some(Failure::Unsupported) => VolumeError::Unsupported,
            // It was inside when it was attached.
            Some(Failure::OutOfRange) => VolumeError::ShortFile {
                expected_end: self.outline.size_bytes(),
            },
            _ => VolumeError::Io {
                operation: format!(
                    "{operation} volume {} at {}",
                    self.outline.name(),
                    self.place
                ),
                source,
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

    fn characteristics(&self) -> Characteristics {
        let abilities = &self.abilities;
        Characteristics {
            read_only: abilities.read_only,
            write_cache: if abilities.write_cache {
                WriteCache::Volatile
            } else {
                WriteCache::None
            },
            unmap_granularity: abilities.unmap_granularity,
            unmapped_reads_zeros: abilities.unmapped_reads_zeros,
            rotational: false,
        }
    }

    fn try_read(&self, _offset: ByteOffset, _into: &mut [u8]) -> Attempt {
        Attempt::WouldSleep
    }

    fn try_write(&self, _offset: ByteOffset, _from: &[u8], _durability: Durability) -> Attempt {
        Attempt::WouldSleep
    }

    fn start(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        request.progress = RequestProgress::default();
        if let Err(refused) = self.admit(request) {
            return Progress::Done(Err(refused));
        }
        match request.operation {
            Operation::Read { .. } | Operation::Write { .. } if request.payload_length() == 0 => {
                done()
            }
            Operation::Flush if self.abilities.read_only => done(),
            Operation::Unmap { length: 0, .. } | Operation::WriteZeroes { length: 0, .. } => done(),
            Operation::WriteZeroes { offset, length, .. }
                if !self.abilities.write_zeroes.load(Ordering::Relaxed) =>
            {
                self.write_zeros(offset, length, request, storage)
            }
            Operation::ExtentStatus { length, .. }
                if length == 0 || !self.abilities.extent_status.load(Ordering::Relaxed) =>
            {
                mapped(length)
            }
            // What the peer reads ahead is its own affair.
            Operation::Prefetch { .. } => done(),
            _ => self.forward(request, storage),
        }
    }

    fn resume(
        &self,
        request: &mut Request,
        completion: FileCompletion,
        storage: &mut dyn Storage,
    ) -> Progress {
        if let Some(buffer) = completion.buffer {
            request.buffer = Some(buffer);
        }
        match (request.progress.step, completion.result) {
            (step::FORWARD, Ok(result)) => self.forwarded(result, request, storage),
            (step::FORWARD, Err(error)) => self.refused(error, request, storage),
            (step::ZEROS, Ok(_)) => {
                let Operation::WriteZeroes {
                    offset,
                    length,
                    durability,
                    ..
                } = request.operation
                else {
                    unreachable!("only zeroing writes zeros")
                };
                let left = length - request.progress.done_bytes;
                request.progress.done_bytes += left.min(u64::from(ZEROS_PER_WRITE));
                if left > u64::from(ZEROS_PER_WRITE) {
                    return self.write_zeros(offset, length, request, storage);
                }
                self.written(durability, false, request, storage)
            }
            (step::ZEROS, Err(error)) => self.failed("zero", error),
            (step::SYNC, Ok(_)) => self.synced(),
            (_, Err(error)) => {
                self.poison_for(&error);
                self.failed("flush", error)
            }
            (step, Ok(_)) => unreachable!("no request is at step {step}"),
        }
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
        let closing = thread::Builder::new()
            .name("volume-close".to_owned())
            .spawn(move || {
                remote.close();
                drop(closed);
            });
        if closing.is_ok() {
            // Its end, or that of our patience: either will do.
            let _ = wait.recv_timeout(CLOSE_WAIT);
        }
    }
}

/// The memory of a read or write goes along with it.
fn lend(request: &mut Request) -> Data {
    Data::Buffer {
        buffer: request
            .buffer
            .take()
            .expect("a read or write carries a buffer"),
        start: request.start,
    }
}

fn done() -> Progress {
    Progress::Done(Ok(Outcome::Done))
}

fn mapped(length: u64) -> Progress {
    Progress::Done(Ok(Outcome::Extent {
        length,
        state: ExtentState::Mapped,
    }))
}
