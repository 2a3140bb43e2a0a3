//! The request machine of every volume that lives behind a file descriptor.
//!
//! [`Medium`] turns a [`Request`] into storage operations, one at a time, and their completions into
//! its outcome. Backends open and inspect the object, and say in [`Abilities`] what it can do.
//!
//! ```text
//! Read          ─► Transfer ─┬─ short ─► Transfer …
//! Write         ─► Transfer ─┼─ short ─► Transfer …
//!                            └─ durable, no space ─► Probe
//! Flush         ─► Sync
//! Unmap         ─► Zeroing(first way) ─┬─ not supported ─► Zeroing(next way) …
//! WriteZeroes   ─► Zeroing(first way) ─┴─ done ─► Sync when durable
//! Anchor        ─► Reserve
//! ExtentStatus  ─► SeekData ─► SeekHole
//! ```
//!
//! Each step waits for exactly one completion, which storage always delivers.
//!
//! A change of the last block of a file begins with a look at the file's end (`EndCheck`, see
//! [`backing`]).
//!
//! **Poison.** When the kernel fails to write cached data back it reports that once, drops the data
//! and counts it as clean; a second fdatasync then succeeds without the data being anywhere. After
//! the first failed sync the volume therefore refuses writes and flushes until it is reopened.
//! Reads go on. What else can be wrong with a volume as a whole is in [`Condition`].

pub(crate) mod backing;
mod bounce;
mod lanes;
#[cfg(test)]
mod tests;
mod zeroing;

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use longshore_reactor::PagePipe;
use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::{
    FileCompletion, FileHandle, FileOperation, FileOperationKind, Storage,
};
use rustix::io::{Errno, ReadWriteFlags};

use crate::condition::{Condition, ConditionCell};
use crate::outline::{Outline, length_of};
use crate::{
    Attempt, ByteOffset, Characteristics, Durability, ExtentState, Geometry, Operation, Outcome,
    Progress, Request, RequestProgress, VolumeError, WriteCache,
};
use backing::{Backing, Kind};
use lanes::Lanes;
pub(crate) use zeroing::Zeroing;

/// When a buffered write is made on the reactor itself instead of by a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum InlineWrites {
    /// Where it cannot sleep: on tmpfs and ramfs, and on file systems that honour RWF_NOWAIT for
    /// buffered writes (xfs and btrfs do, ext4 does not).
    #[default]
    Auto,
    /// Always. A write into the page cache takes microseconds, but when the kernel throttles writers
    /// because too much of the cache is dirty, the whole reactor is held up for up to 200 ms.
    Always,
    /// Never.
    Never,
}

/// What the object behind the file descriptor can do, found out when it was opened.
#[derive(Debug)]
pub(crate) struct Abilities {
    pub(crate) read_only: bool,
    /// fdatasync means something there. False for /dev/zero.
    pub(crate) syncs: bool,
    /// O_DIRECT, with the alignment that it asks of memory addresses.
    pub(crate) direct_memory_alignment: Option<usize>,
    /// How ranges are unmapped and zeroed.
    pub(crate) zeroing: Zeroing,
    /// Granularity of unmap; `None` when it is not supported.
    pub(crate) unmap_granularity: Option<u32>,
    /// SEEK_DATA and SEEK_HOLE tell where data is.
    pub(crate) extents: bool,
    /// fallocate reserves space.
    pub(crate) reserves: bool,
    pub(crate) rotational: bool,
    /// Reads and writes that cannot sleep by the nature of the file system (tmpfs).
    pub(crate) in_memory: bool,
    pub(crate) inline_writes: InlineWrites,
}

/// How `try_read` and `try_write` call the kernel.
mod inline {
    /// Not at all.
    pub(super) const OFF: u8 = 0;
    /// With RWF_NOWAIT.
    pub(super) const NOWAIT: u8 = 1;
    /// Plainly.
    pub(super) const PLAIN: u8 = 2;
}

/// Where a request stands: [`RequestProgress::step`].
mod step {
    pub(super) const TRANSFER: u8 = 0;
    /// A durable write had no space, and is repeated without durability to find out whether it was
    /// the write or the sync that had none.
    pub(super) const PROBE: u8 = 1;
    pub(super) const SYNC: u8 = 2;
    pub(super) const SEEK_DATA: u8 = 3;
    pub(super) const SEEK_HOLE: u8 = 4;
    pub(super) const RESERVE: u8 = 5;
    /// Whether the file still reaches to the last block, which is to be changed.
    pub(super) const END_CHECK: u8 = 6;
    /// Plus the number of the way in its list.
    pub(super) const ZEROING: u8 = 16;
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) outline: Outline,
    file: FileHandle,
    lanes: Lanes,
    abilities: Abilities,
    backing: Backing,
    condition: ConditionCell,
    inline_reads: AtomicU8,
    /// Its pages are in the page cache, and can be taken as long as that has not failed.
    has_pages: AtomicBool,
    inline_writes: AtomicU8,
    /// Held while the size of the object is looked at or changed; control threads only.
    pub(crate) resizing: Mutex<()>,
}

impl Medium {
    pub(crate) fn new(
        outline: Outline,
        file: File,
        backing: Backing,
        abilities: Abilities,
    ) -> Medium {
        let lanes = if abilities.syncs && !abilities.read_only {
            Lanes::open(&file, outline.name())
        } else {
            Lanes::none()
        };
        let buffered = abilities.direct_memory_alignment.is_none();
        let inline_reads = match buffered {
            true if abilities.in_memory => inline::PLAIN,
            true => inline::NOWAIT,
            // A direct read always waits for the device.
            false => inline::OFF,
        };
        let inline_writes = match abilities.inline_writes {
            InlineWrites::Never => inline::OFF,
            _ if !buffered => inline::OFF,
            InlineWrites::Always => inline::PLAIN,
            InlineWrites::Auto if abilities.in_memory => inline::PLAIN,
            InlineWrites::Auto => inline::NOWAIT,
        };
        Medium {
            outline,
            file: FileHandle(Arc::new(file)),
            lanes,
            abilities,
            backing,
            condition: ConditionCell::default(),
            inline_reads: AtomicU8::new(inline_reads),
            has_pages: AtomicBool::new(buffered),
            inline_writes: AtomicU8::new(inline_writes),
            resizing: Mutex::new(()),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file.0
    }

    pub(crate) fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    pub(crate) fn characteristics(&self) -> Characteristics {
        Characteristics {
            read_only: self.abilities.read_only,
            write_cache: if self.abilities.syncs {
                WriteCache::Volatile
            } else {
                WriteCache::None
            },
            unmap_granularity: self.abilities.unmap_granularity,
            unmapped_reads_zeros: self.abilities.zeroing.unmapped_reads_zeros(),
            rotational: self.abilities.rotational,
        }
    }

    /// What is known to be wrong with it.
    pub(crate) fn condition(&self) -> Condition {
        self.condition.get()
    }

    fn poison(&self, operation: &'static str, error: &io::Error) {
        if self.condition.worsen(Condition::Poisoned) {
            tracing::error!(
                volume = self.outline.name(),
                operation,
                %error,
                "data may be lost: the volume refuses writes until it is reopened and checked"
            );
        }
    }

    /// Whether a change of the range could make a file longer that was shortened.
    #[inline]
    fn touches_end(&self, offset: ByteOffset, length: u64) -> bool {
        offset.0 + length == self.outline.size_bytes() && self.backing.kind() == Kind::File
    }

    /// What was brought to the medium counts only if there is nothing wrong with the volume: another
    /// sync may have failed meanwhile, or the file be gone.
    fn brought_to_medium(&self) -> Progress {
        if self.backing.is_local() {
            self.inspect();
        }
        match self.condition().admit_change() {
            Ok(()) => done(),
            Err(refused) => Progress::Done(Err(refused)),
        }
    }

    /// Whether the range may be changed at all.
    #[inline]
    fn admit_change(&self, offset: ByteOffset, length: u64) -> Result<(), VolumeError> {
        self.outline.check(offset, length)?;
        if self.abilities.read_only {
            return Err(VolumeError::ReadOnly);
        }
        self.condition().admit_change()
    }

    fn admit(&self, request: &Request) -> Result<(), VolumeError> {
        match request.operation {
            Operation::Read { offset } => {
                self.outline.check(offset, request.payload_length())?;
                self.condition().admit_read()
            }
            Operation::Write { offset, .. } => self.admit_change(offset, request.payload_length()),
            Operation::Flush => self.condition().admit_change(),
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
                if self.abilities.reserves {
                    Ok(())
                } else {
                    Err(VolumeError::Unsupported)
                }
            }
            Operation::ExtentStatus { offset, length } | Operation::Prefetch { offset, length } => {
                self.outline.check(offset, length)?;
                self.condition().admit_read()
            }
        }
    }

    /// Whether the request is to change the last block of a file.
    fn is_at_end(&self, request: &Request) -> bool {
        match request.operation {
            Operation::Write { offset, .. } => self.touches_end(offset, request.payload_length()),
            Operation::Unmap { offset, length }
            | Operation::WriteZeroes { offset, length, .. }
            | Operation::Anchor { offset, length } => self.touches_end(offset, length),
            Operation::Read { .. }
            | Operation::Flush
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => false,
        }
    }

    /// See [`crate::Volume::take_pages`].
    pub(crate) fn take_pages(
        &self,
        offset: ByteOffset,
        length: usize,
        into: &mut PagePipe,
    ) -> bool {
        if !self.has_pages.load(Ordering::Relaxed)
            || self.outline.check(offset, length as u64).is_err()
        {
            return false;
        }
        match into.take(self.file(), offset.0, length) {
            Ok(taken) => taken,
            Err(error) => {
                tracing::info!(
                    volume = self.outline.name(),
                    %error,
                    "read data cannot be sent out of the page cache; it is copied"
                );
                self.has_pages.store(false, Ordering::Relaxed);
                false
            }
        }
    }

    /// One system call, no lock, no allocation.
    pub(crate) fn try_read(&self, offset: ByteOffset, into: &mut [u8]) -> Attempt {
        let flags = match self.inline_reads.load(Ordering::Relaxed) {
            inline::NOWAIT => ReadWriteFlags::NOWAIT,
            inline::PLAIN => ReadWriteFlags::empty(),
            _ => return Attempt::WouldSleep,
        };
        if let Err(refused) = self.outline.check_slice(offset, into) {
            return Attempt::Done(Err(refused));
        }
        let wanted = into.len();
        match rustix::io::preadv2(self.file(), &mut [IoSliceMut::new(into)], offset.0, flags) {
            Ok(read) if read == wanted => Attempt::Done(Ok(())),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.inline_reads.store(inline::OFF, Ordering::Relaxed);
                Attempt::WouldSleep
            }
            // Whatever else happened, `start` meets it again and reports it in full.
            Ok(_) | Err(_) => Attempt::WouldSleep,
        }
    }

    /// One system call, no lock, no allocation. A durable write always sleeps.
    pub(crate) fn try_write(
        &self,
        offset: ByteOffset,
        from: &[u8],
        durability: Durability,
    ) -> Attempt {
        let flags = match self.inline_writes.load(Ordering::Relaxed) {
            inline::NOWAIT => ReadWriteFlags::NOWAIT,
            inline::PLAIN => ReadWriteFlags::empty(),
            _ => return Attempt::WouldSleep,
        };
        if durability == Durability::Durable && self.abilities.syncs {
            return Attempt::WouldSleep;
        }
        if let Err(refused) = self.admit_change(offset, length_of(from)) {
            return Attempt::Done(Err(refused));
        }
        if self.touches_end(offset, length_of(from)) {
            return Attempt::WouldSleep;
        }
        match rustix::io::pwritev2(self.file(), &[IoSlice::new(from)], offset.0, flags) {
            Ok(written) if written == from.len() => Attempt::Done(Ok(())),
            // Kernels before 6.6 say EINVAL where later ones say EOPNOTSUPP.
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                self.inline_writes.store(inline::OFF, Ordering::Relaxed);
                Attempt::WouldSleep
            }
            // What was written of it is written again.
            Ok(_) | Err(_) => Attempt::WouldSleep,
        }
    }

    pub(crate) fn start(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        request.progress = RequestProgress::default();
        if let Err(refused) = self.admit(request) {
            return Progress::Done(Err(refused));
        }
        if self.is_at_end(request) {
            return self.check_end(request, storage);
        }
        self.begin(request, storage)
    }

    /// Begins a request that was admitted.
    fn begin(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        match request.operation {
            Operation::Read { .. } if request.payload_length() > 0 => {
                self.submit_read(request, storage)
            }
            Operation::Write { durability, .. } if request.payload_length() > 0 => {
                if durability == Durability::Durable && self.abilities.syncs {
                    request.progress.lane = self.lanes.take();
                }
                self.submit_write(request, storage)
            }
            Operation::Flush if self.abilities.syncs && !self.abilities.read_only => {
                self.submit_sync(request, storage)
            }
            Operation::Unmap { length, .. } | Operation::WriteZeroes { length, .. }
                if length > 0 =>
            {
                self.zero_by(0, request, storage)
            }
            Operation::Anchor { offset, length } if length > 0 => {
                request.progress.step = step::RESERVE;
                let kind = FileOperationKind::Allocate {
                    offset: offset.0,
                    length,
                };
                self.submit(&self.file, kind, request, storage)
            }
            Operation::ExtentStatus { offset, length } => {
                if length == 0 || !self.abilities.extents {
                    return mapped(length);
                }
                request.progress.step = step::SEEK_DATA;
                let kind = FileOperationKind::SeekData { offset: offset.0 };
                self.submit(&self.file, kind, request, storage)
            }
            // Reading ahead has no operation that is sure not to sleep; the kernel's own read-ahead
            // follows the reads.
            Operation::Prefetch { .. } => done(),
            // Nothing to move, or nothing that a flush could do.
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Flush
            | Operation::Unmap { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Anchor { .. } => done(),
        }
    }

    pub(crate) fn resume(
        &self,
        request: &mut Request,
        completion: FileCompletion,
        storage: &mut dyn Storage,
    ) -> Progress {
        match (request.operation, request.progress.step) {
            (_, step::END_CHECK) => self.after_end_check(request, completion.result, storage),
            (Operation::Read { .. }, _) => self.after_read(request, completion, storage),
            (Operation::Write { .. }, step::PROBE) => self.after_probe(request, completion),
            (Operation::Write { .. }, _) => self.after_write(request, completion, storage),
            (_, step::SYNC) => self.after_sync(request, completion.result, storage),
            (Operation::Anchor { .. }, _) => self.after_reserve(request, completion, storage),
            (Operation::ExtentStatus { offset, length }, step) => {
                self.after_seek(step, offset.0, length, request, completion, storage)
            }
            (Operation::Unmap { .. } | Operation::WriteZeroes { .. }, _) => {
                self.after_zeroing(request, completion, storage)
            }
            (Operation::Flush | Operation::Prefetch { .. }, _) => {
                unreachable!("a flush is at its sync, and a prefetch waits for nothing")
            }
        }
    }

    fn submit(
        &self,
        file: &FileHandle,
        kind: FileOperationKind,
        request: &Request,
        storage: &mut dyn Storage,
    ) -> Progress {
        storage.submit(FileOperation {
            file: file.clone(),
            kind,
            is_direct: self.abilities.direct_memory_alignment.is_some(),
            tag: request.tag,
        });
        Progress::Pending
    }

    // ---- reads and writes

    /// O_DIRECT wants aligned memory. Buffers are; parts of them need not be, and then the transfer
    /// goes through memory of its own.
    fn is_bounced(&self, request: &Request) -> bool {
        self.abilities
            .direct_memory_alignment
            .is_some_and(|alignment| !request.start.is_multiple_of(alignment))
    }

    fn submit_read(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        let Operation::Read { offset } = request.operation else {
            unreachable!("is a read")
        };
        let done = request.progress.done_bytes;
        let (start, end) = (request.start + in_memory(done), request.end);
        let kind = if self.is_bounced(request) {
            request.progress.bounced = true;
            let Some(buffer) = bounce::allocate(end - start) else {
                return out_of_memory();
            };
            FileOperationKind::Read {
                offset: offset.0 + done,
                buffer,
                start: 0,
                end: end - start,
            }
        } else {
            let buffer = request.buffer.take().expect("a read carries a buffer");
            FileOperationKind::Read {
                offset: offset.0 + done,
                buffer,
                start,
                end,
            }
        };
        self.submit(&self.file, kind, request, storage)
    }

    fn after_read(
        &self,
        request: &mut Request,
        completion: FileCompletion,
        storage: &mut dyn Storage,
    ) -> Progress {
        let Operation::Read { offset } = request.operation else {
            unreachable!("is a read")
        };
        let total = request.payload_length();
        let done = request.progress.done_bytes;
        let moved = completion
            .result
            .as_ref()
            .map_or(0, |count| (*count).min(total - done));
        let buffer = completion
            .buffer
            .expect("storage gives the buffer of a read back");
        if self.is_bounced(request) {
            let place = in_memory(done)..in_memory(done + moved);
            request.payload_mut()[place].copy_from_slice(&buffer[..in_memory(moved)]);
        } else {
            request.buffer = Some(buffer);
        }
        match completion.result {
            Ok(_) => match self.whole_units(moved, total - done) {
                0 => Progress::Done(Err(self.short_read(offset.0 + total))),
                counted if done + counted == total => self::done(),
                counted => {
                    request.progress.done_bytes += counted;
                    self.submit_read(request, storage)
                }
            },
            Err(error) if is_interruption(&error) => self.submit_read(request, storage),
            Err(error) => self.failed("read", error),
        }
    }

    fn submit_write(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        let Operation::Write { offset, durability } = request.operation else {
            unreachable!("is a write")
        };
        let done = request.progress.done_bytes;
        let (start, end) = (request.start + in_memory(done), request.end);
        let (buffer, start, end) = if self.is_bounced(request) {
            request.progress.bounced = true;
            let Some(mut bounce) = bounce::allocate(end - start) else {
                self.release_lane(request);
                return out_of_memory();
            };
            bounce.copy_from_slice(&request.payload_mut()[in_memory(done)..]);
            (bounce, 0, end - start)
        } else {
            (
                request.buffer.take().expect("a write carries a buffer"),
                start,
                end,
            )
        };
        let dsync = durability == Durability::Durable
            && self.abilities.syncs
            && request.progress.step == step::TRANSFER;
        let kind = FileOperationKind::Write {
            offset: offset.0 + done,
            buffer,
            start,
            end,
            dsync,
        };
        if dsync {
            let file = self.lanes.handle(request.progress.lane, &self.file);
            self.submit(&file, kind, request, storage)
        } else {
            self.submit(&self.file, kind, request, storage)
        }
    }

    fn after_write(
        &self,
        request: &mut Request,
        completion: FileCompletion,
        storage: &mut dyn Storage,
    ) -> Progress {
        let Operation::Write { durability, .. } = request.operation else {
            unreachable!("is a write")
        };
        self.take_back(request, completion.buffer);
        let durable = durability == Durability::Durable && self.abilities.syncs;
        let left = request.payload_length() - request.progress.done_bytes;
        match completion.result {
            Ok(count) => match self.whole_units(count.min(left), left) {
                0 => {
                    self.release_lane(request);
                    self.failed("write", io::ErrorKind::WriteZero.into())
                }
                counted if counted == left => {
                    self.release_lane(request);
                    if durable {
                        return self.brought_to_medium();
                    }
                    done()
                }
                counted => {
                    request.progress.done_bytes += counted;
                    self.submit_write(request, storage)
                }
            },
            Err(error) if is_interruption(&error) => self.submit_write(request, storage),
            Err(error) if durable && is_no_space(&error) => {
                self.release_lane(request);
                request.progress.step = step::PROBE;
                self.submit_write(request, storage)
            }
            Err(error) => {
                self.release_lane(request);
                if durable {
                    self.poison("write with RWF_DSYNC", &error);
                }
                self.failed("write", error)
            }
        }
    }

    /// The same write without durability: no space again means that nothing was ever accepted and
    /// nothing is lost. Anything else means that it was the sync that failed.
    fn after_probe(&self, request: &mut Request, completion: FileCompletion) -> Progress {
        self.take_back(request, completion.buffer);
        if !matches!(&completion.result, Err(error) if is_no_space(error)) {
            self.poison("write with RWF_DSYNC", &Errno::NOSPC.into());
        }
        self.failed("write", Errno::NOSPC.into())
    }

    fn take_back(&self, request: &mut Request, buffer: Option<Buffer>) {
        let buffer = buffer.expect("storage gives the buffer of a write back");
        if !self.is_bounced(request) {
            request.buffer = Some(buffer);
        }
    }

    /// Bytes of a short transfer that count. O_DIRECT goes on at whole blocks only.
    fn whole_units(&self, moved: u64, wanted: u64) -> u64 {
        if moved == wanted || self.abilities.direct_memory_alignment.is_none() {
            return moved;
        }
        moved - moved % u64::from(self.outline.block_size())
    }

    // ---- flushes

    fn submit_sync(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        request.progress.step = step::SYNC;
        if request.progress.lane == 0 {
            request.progress.lane = self.lanes.take();
        }
        let file = self.lanes.handle(request.progress.lane, &self.file);
        self.submit(&file, FileOperationKind::DataSync, request, storage)
    }

    fn after_sync(
        &self,
        request: &mut Request,
        result: io::Result<u64>,
        storage: &mut dyn Storage,
    ) -> Progress {
        match result {
            Err(error) if is_interruption(&error) => self.submit_sync(request, storage),
            Err(error) => {
                self.release_lane(request);
                self.poison("fdatasync", &error);
                self.failed("fdatasync", error)
            }
            Ok(_) => {
                self.release_lane(request);
                self.brought_to_medium()
            }
        }
    }

    fn release_lane(&self, request: &mut Request) {
        self.lanes
            .give_back(std::mem::take(&mut request.progress.lane));
    }

    // ---- space

    fn after_reserve(
        &self,
        request: &mut Request,
        completion: FileCompletion,
        storage: &mut dyn Storage,
    ) -> Progress {
        match completion.result {
            Ok(_) => done(),
            Err(error) if is_interruption(&error) => self.start(request, storage),
            Err(error) if zeroing::is_unsupported(&error) => {
                Progress::Done(Err(VolumeError::Unsupported))
            }
            Err(error) => self.failed("fallocate", error),
        }
    }

    /// Holes are reported where whole blocks are holes; everything that touches data is mapped.
    fn after_seek(
        &self,
        step: u8,
        offset: u64,
        length: u64,
        request: &mut Request,
        completion: FileCompletion,
        storage: &mut dyn Storage,
    ) -> Progress {
        let block = u64::from(self.outline.block_size());
        let found = match completion.result {
            Ok(found) => found.saturating_sub(offset),
            // No data up to the end of the file.
            Err(error) if is_errno(&error, Errno::NXIO) && step == step::SEEK_DATA => length,
            Err(error) if is_interruption(&error) => return self.start(request, storage),
            // Not told by this file system, or the file was cut: data is the safe answer.
            Err(_) => return mapped(length),
        };
        if step == step::SEEK_HOLE {
            return mapped(found.next_multiple_of(block).max(block).min(length));
        }
        match found - found % block {
            0 => {
                request.progress.step = step::SEEK_HOLE;
                let kind = FileOperationKind::SeekHole {
                    offset: offset + found,
                };
                self.submit(&self.file, kind, request, storage)
            }
            hole => Progress::Done(Ok(Outcome::Extent {
                length: hole.min(length),
                state: ExtentState::Deallocated,
            })),
        }
    }

    // ---- size

    /// Takes up the size of the object, `found_bytes`, unless it is smaller than the volume.
    pub(crate) fn take_up_size(&self, found_bytes: u64) -> Result<Geometry, VolumeError> {
        let expected_end = self.outline.size_bytes();
        if found_bytes < expected_end {
            return Err(self.short_read(expected_end));
        }
        Ok(self.outline.grow_to(found_bytes))
    }

    fn failed(&self, operation: &'static str, error: io::Error) -> Progress {
        Progress::Done(Err(self.error(operation, error)))
    }

    /// What an operating system error means to the users of the volume.
    pub(crate) fn error(&self, operation: &'static str, source: io::Error) -> VolumeError {
        // Beyond its end a device has no space, and one that is gone answers with all kinds of errors.
        if self.backing.kind() == Kind::Device && self.inspect() == Condition::Shortened {
            return VolumeError::Shortened;
        }
        if is_no_space(&source) {
            return VolumeError::NoSpace;
        }
        if is_errno(&source, Errno::ROFS) {
            return VolumeError::ReadOnly;
        }
        let operation = format!("{operation} volume {}", self.outline.name());
        VolumeError::Io { operation, source }
    }
}

/// See [`bounce`].
fn out_of_memory() -> Progress {
    Progress::Done(Err(VolumeError::OutOfMemory))
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

/// A count of bytes that a buffer holds.
fn in_memory(count: u64) -> usize {
    usize::try_from(count).expect("part of a buffer, which is in memory")
}

fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn is_no_space(error: &io::Error) -> bool {
    is_errno(error, Errno::NOSPC) || is_errno(error, Errno::DQUOT)
}

fn is_interruption(error: &io::Error) -> bool {
    is_errno(error, Errno::INTR)
}
