//! The requests of every volume that lives behind a file descriptor.
//!
//! [`Medium`] carries out a [`Request`] by operations of storage. Backends open and inspect the object, and
//! say in [`Abilities`] what it can do.
//!
//! A change of the last block of a file begins with a look at the file's end (see [`backing`]).
//!
//! **Poison.** When the kernel fails to write cached data back it reports that once, drops the data
//! and counts it as clean; a second fdatasync then succeeds without the data being anywhere. After
//! the first failed sync the volume therefore refuses writes and flushes until it is reopened.
//! Reads go on. What else can be wrong with a volume as a whole is in [`Condition`](crate::Condition).

pub(crate) mod backing;
mod bounce;
mod errno;
mod flush;
mod inspection;
mod state;
mod sync_handles;
#[cfg(test)]
mod tests;
mod volume;
mod write_zeroes;
mod zeroing;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

use longshore_reactor::PagePipe;
use longshore_reactor::storage::FileOperationKind;
use rustix::io::{Errno, ReadWriteFlags};

use crate::description::Geometry;
use crate::error::VolumeError;
use crate::io::Io;
use crate::outline::ByteRange;
use crate::request::{Ended, Request};
use crate::volume::Attempt;
use backing::Kind;
use errno::{is_errno, is_interruption, is_no_space, is_unsupported};
use longshore_block::extent::{Extent, Lba};
use longshore_block::operation::{ExtentState, Operation, Reply};
use state::{in_memory, inline};
use sync_handles::SyncHandle;

pub use state::InlineWrites;
pub(crate) use state::{Abilities, Medium};
pub(crate) use zeroing::Zeroing;

impl Medium {
    /// Whether a change of the bytes could make a file longer that was shortened.
    #[inline]
    fn touches_end(&self, bytes: ByteRange) -> bool {
        bytes.end() == self.outline.size_bytes() && self.backing.kind() == Kind::File
    }

    /// Whether anything may be changed.
    #[inline]
    fn admit_change(&self) -> Result<(), VolumeError> {
        if self.abilities.read_only {
            return Err(VolumeError::ReadOnly);
        }
        self.condition().admit_change()
    }

    /// Whether the request may be carried out, and on which bytes.
    fn admit(&self, request: &Request) -> Result<ByteRange, VolumeError> {
        let bytes = self.outline.bytes_of_request(request)?;
        match request.operation {
            Operation::Read { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => self.condition().admit_read()?,
            Operation::Flush => self.condition().admit_change()?,
            Operation::Write { .. } | Operation::WriteZeroes { .. } => self.admit_change()?,
            Operation::Unmap { .. } => {
                self.admit_change()?;
                if self.abilities.unmap_granularity.is_none() {
                    return Err(VolumeError::Unsupported);
                }
            }
            Operation::Anchor { .. } => {
                self.admit_change()?;
                if !self.abilities.reserves {
                    return Err(VolumeError::Unsupported);
                }
            }
            Operation::CompareAndWrite { .. } => return Err(VolumeError::Unsupported),
        }
        Ok(bytes)
    }

    /// Whether the operation is to change the last block of a file.
    fn is_at_end(&self, operation: Operation, bytes: ByteRange) -> bool {
        operation.writes() && self.touches_end(bytes)
    }

    pub(crate) fn take_pages(&self, extent: Extent, into: &mut PagePipe) -> bool {
        if !self.has_pages.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(bytes) = self.outline.bytes(extent) else {
            return false;
        };
        let Ok(length) = usize::try_from(bytes.length) else {
            return false;
        };
        match into.take(self.file(), bytes.offset, length) {
            Ok(taken) => taken,
            Err(error) => {
                tracing::info!(
                    volume = self.outline.name(),
                    %error,
                    "reads cannot be sent from the page cache by reference; they are copied"
                );
                self.has_pages.store(false, Ordering::Relaxed);
                false
            }
        }
    }

    /// One system call, no lock, no allocation.
    pub(crate) fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        let flags = match self.inline_reads.load(Ordering::Relaxed) {
            inline::NOWAIT => ReadWriteFlags::NOWAIT,
            inline::PLAIN => ReadWriteFlags::empty(),
            _ => return Attempt::WouldSleep,
        };
        let offset = match self.outline.bytes_of_slice(lba, into) {
            Ok(bytes) => bytes.offset,
            Err(refused) => return Attempt::Done(Err(refused)),
        };
        let wanted = into.len();
        match rustix::io::preadv2(self.file(), &mut [IoSliceMut::new(into)], offset, flags) {
            Ok(read) if read == wanted => Attempt::Done(Ok(())),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.inline_reads.store(inline::OFF, Ordering::Relaxed);
                Attempt::WouldSleep
            }
            // Whatever else happened, a request meets it again and reports it in full.
            Ok(_) | Err(_) => Attempt::WouldSleep,
        }
    }

    /// One system call, no lock, no allocation. A durable write always sleeps.
    pub(crate) fn try_write(&self, lba: Lba, from: &[u8], fua: bool) -> Attempt {
        let flags = match self.inline_writes.load(Ordering::Relaxed) {
            inline::NOWAIT => ReadWriteFlags::NOWAIT,
            inline::PLAIN => ReadWriteFlags::empty(),
            _ => return Attempt::WouldSleep,
        };
        if fua && self.abilities.syncs {
            return Attempt::WouldSleep;
        }
        let located = self.outline.bytes_of_slice(lba, from);
        let bytes = match located.and_then(|bytes| self.admit_change().map(|()| bytes)) {
            Ok(bytes) => bytes,
            Err(refused) => return Attempt::Done(Err(refused)),
        };
        if self.touches_end(bytes) {
            return Attempt::WouldSleep;
        }
        match rustix::io::pwritev2(self.file(), &[IoSlice::new(from)], bytes.offset, flags) {
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

    /// Carries out a request.
    pub(crate) async fn execute(&self, mut request: Request, io: &Io) -> Ended {
        let result = self.carry_out(&mut request, io).await;
        Ended {
            result,
            buffer: request.buffer,
        }
    }

    async fn carry_out(&self, request: &mut Request, io: &Io) -> Result<Reply, VolumeError> {
        let bytes = self.admit(request)?;
        let operation = request.operation;
        if self.is_at_end(operation, bytes) {
            self.check_end(io).await?;
        }
        let mut syncs = false;
        match operation {
            Operation::Read { .. } => self.read(bytes.offset, request, io).await?,
            Operation::Write { fua, .. } => {
                let durable = self.is_durable(fua);
                self.write(bytes.offset, durable, request, io).await?;
            }
            Operation::Flush => syncs = self.abilities.syncs && !self.abilities.read_only,
            Operation::Unmap { .. } if bytes.length > 0 => {
                let ways = self.abilities.zeroing.unmap;
                self.zero(bytes, ways, io).await?;
                syncs = !ways.is_empty() && self.is_durable(false);
            }
            Operation::WriteZeroes { may_unmap, fua, .. } if bytes.length > 0 => {
                let ways = self.abilities.zeroing.ways_to_zero(may_unmap);
                self.zero(bytes, ways, io).await?;
                syncs = !ways.is_empty() && self.is_durable(fua);
            }
            Operation::Anchor { .. } if bytes.length > 0 => {
                while !self.reserve(bytes, io).await? {
                    // The file may have been cut meanwhile, and must not be made long again.
                    self.admit(request)?;
                    if self.is_at_end(operation, bytes) {
                        self.check_end(io).await?;
                    }
                }
            }
            Operation::ExtentStatus { .. } => {
                return Ok(self.extent(bytes, io).await);
            }
            // Reading ahead has no operation that is sure not to sleep; the kernel's own read-ahead
            // follows the reads. Of the rest there is nothing to move.
            Operation::Prefetch { .. }
            | Operation::Unmap { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Anchor { .. } => {}
            Operation::CompareAndWrite { .. } => unreachable!("it is not admitted"),
        }
        if syncs {
            self.sync(io).await?;
        }
        Ok(Reply::Done)
    }

    /// O_DIRECT wants aligned memory. Buffers are; parts of them need not be, and then the transfer
    /// goes through memory of its own.
    fn is_bounced(&self, request: &Request) -> bool {
        self.abilities
            .direct_memory_alignment
            .is_some_and(|alignment| !request.start.is_multiple_of(alignment))
    }

    // ---- reads

    async fn read(&self, offset: u64, request: &mut Request, io: &Io) -> Result<(), VolumeError> {
        let total = request.payload_length();
        let mut done = 0;
        while done < total {
            let left = total - done;
            let result = if self.is_bounced(request) {
                self.read_bounced(offset, done, request, io).await?
            } else {
                let buffer = request.buffer.take().expect("a read carries a buffer");
                let range = request.start + in_memory(done)..request.end;
                let file = self.file.clone();
                let read = io
                    .read(file, self.is_direct(), offset + done, buffer, range)
                    .await;
                request.buffer = Some(read.buffer);
                read.result
            };
            match result {
                Ok(moved) => match self.whole_units(moved.min(left), left) {
                    0 => return Err(self.short_read(offset + total)),
                    counted => done += counted,
                },
                Err(error) if is_interruption(&error) => {}
                Err(error) => return Err(self.error("read", error)),
            }
        }
        Ok(())
    }

    /// Reads what is left into memory of its own, and copies from there.
    async fn read_bounced(
        &self,
        offset: u64,
        done: u64,
        request: &mut Request,
        io: &Io,
    ) -> Result<std::io::Result<u64>, VolumeError> {
        let length = request.end - request.start - in_memory(done);
        let bounce = bounce::allocate(length).ok_or(VolumeError::OutOfMemory)?;
        io.count_bounced(length);
        let file = self.file.clone();
        let read = io.read(file, true, offset + done, bounce, 0..length).await;
        let moved = read
            .result
            .as_ref()
            .map_or(0, |count| in_memory(*count).min(length));
        let place = in_memory(done)..in_memory(done) + moved;
        request.payload_mut()[place].copy_from_slice(&read.buffer[..moved]);
        Ok(read.result)
    }

    // ---- writes

    async fn write(
        &self,
        offset: u64,
        durable: bool,
        request: &mut Request,
        io: &Io,
    ) -> Result<(), VolumeError> {
        if request.payload_length() == 0 {
            return Ok(());
        }
        let mut done = 0;
        if !durable {
            return match self.write_all(offset, &mut done, None, request, io).await {
                Ok(()) => Ok(()),
                Err(WriteFailure::System(error)) => Err(self.error("write", error)),
                Err(WriteFailure::NothingWritten) => {
                    Err(self.error("write", io::ErrorKind::WriteZero.into()))
                }
                Err(WriteFailure::OutOfMemory) => Err(VolumeError::OutOfMemory),
            };
        }
        let sync_handle = self.sync_handles.take();
        let written = self
            .write_all(offset, &mut done, Some(&sync_handle), request, io)
            .await;
        let result = match written {
            Ok(()) => self.brought_to_medium(),
            Err(WriteFailure::System(error)) if is_no_space(&error) => {
                self.probe(offset, done, request, io).await
            }
            Err(WriteFailure::System(error)) => {
                self.poison("write with RWF_DSYNC", &error);
                Err(self.error("write", error))
            }
            Err(WriteFailure::NothingWritten) => {
                Err(self.error("write", io::ErrorKind::WriteZero.into()))
            }
            Err(WriteFailure::OutOfMemory) => Err(VolumeError::OutOfMemory),
        };
        // After poisoning: the kernel has reported the failure on this description, so the next sync
        // there succeeds.
        sync_handle.give_back();
        result
    }

    /// Writes everything behind the first `done` bytes, and counts on. Durable with a sync handle.
    async fn write_all(
        &self,
        offset: u64,
        done: &mut u64,
        sync_handle: Option<&SyncHandle<'_>>,
        request: &mut Request,
        io: &Io,
    ) -> Result<(), WriteFailure> {
        let total = request.payload_length();
        while *done < total {
            let left = total - *done;
            match self
                .write_once(offset, *done, sync_handle, request, io)
                .await?
            {
                Ok(moved) => match self.whole_units(moved.min(left), left) {
                    0 => return Err(WriteFailure::NothingWritten),
                    counted => *done += counted,
                },
                Err(error) if is_interruption(&error) => {}
                Err(error) => return Err(WriteFailure::System(error)),
            }
        }
        Ok(())
    }

    async fn write_once(
        &self,
        offset: u64,
        done: u64,
        sync_handle: Option<&SyncHandle<'_>>,
        request: &mut Request,
        io: &Io,
    ) -> Result<std::io::Result<u64>, WriteFailure> {
        let file = sync_handle.map_or_else(
            || self.file.clone(),
            |sync_handle| sync_handle.handle(&self.file),
        );
        let dsync = sync_handle.is_some();
        let offset = offset + done;
        if self.is_bounced(request) {
            let bytes = &request.payload_mut()[in_memory(done)..];
            let mut bounce = bounce::allocate(bytes.len()).ok_or(WriteFailure::OutOfMemory)?;
            bounce.copy_from_slice(bytes);
            io.count_bounced(bounce.len());
            let range = 0..bounce.len();
            return Ok(io
                .write(file, true, offset, bounce, range, dsync)
                .await
                .result);
        }
        let buffer = request.buffer.take().expect("a write carries a buffer");
        let range = request.start + in_memory(done)..request.end;
        let written = io
            .write(file, self.is_direct(), offset, buffer, range, dsync)
            .await;
        request.buffer = Some(written.buffer);
        Ok(written.result)
    }

    /// A durable write had no space. The same write without durability shows whether it was the write or
    /// the sync that had none: no space again means that nothing was ever accepted and nothing is lost.
    async fn probe(
        &self,
        offset: u64,
        done: u64,
        request: &mut Request,
        io: &Io,
    ) -> Result<(), VolumeError> {
        match self.write_once(offset, done, None, request, io).await {
            Err(_) => return Err(VolumeError::OutOfMemory),
            Ok(Err(error)) if is_no_space(&error) => {}
            Ok(_) => self.poison("write with RWF_DSYNC", &Errno::NOSPC.into()),
        }
        Err(self.error("write", Errno::NOSPC.into()))
    }

    // ---- space

    /// `false`: it was interrupted.
    async fn reserve(&self, bytes: ByteRange, io: &Io) -> Result<bool, VolumeError> {
        let ByteRange { offset, length } = bytes;
        let kind = FileOperationKind::Allocate { offset, length };
        match io.call(self.file.clone(), kind).await {
            Ok(_) => Ok(true),
            Err(error) if is_interruption(&error) => Ok(false),
            Err(error) if is_unsupported(&error) => Err(VolumeError::Unsupported),
            Err(error) => Err(self.error("fallocate", error)),
        }
    }

    /// Holes are reported where whole blocks are holes; everything that touches data is mapped.
    async fn extent(&self, bytes: ByteRange, io: &Io) -> Reply {
        let ByteRange { offset, length } = bytes;
        let run = |length, state| Reply::Extent {
            blocks: self.outline.blocks(length),
            state,
        };
        if length == 0 || !self.abilities.extents {
            return run(length, ExtentState::Mapped);
        }
        let block = u64::from(self.outline.block_size());
        loop {
            let kind = FileOperationKind::SeekData { offset };
            let data = match io.call(self.file.clone(), kind).await {
                Ok(found) => found.saturating_sub(offset),
                // No data up to the end of the file.
                Err(error) if is_errno(&error, Errno::NXIO) => length,
                Err(error) if is_interruption(&error) => continue,
                // Not told by this file system, or the file was cut: data is the safe answer.
                Err(_) => return run(length, ExtentState::Mapped),
            };
            let hole = data - data % block;
            if hole > 0 {
                return run(hole.min(length), ExtentState::Deallocated);
            }
            let kind = FileOperationKind::SeekHole {
                offset: offset + data,
            };
            match io.call(self.file.clone(), kind).await {
                Ok(found) => {
                    let end = found.saturating_sub(offset).next_multiple_of(block);
                    return run(end.max(block).min(length), ExtentState::Mapped);
                }
                Err(error) if is_interruption(&error) => {}
                Err(_) => return run(length, ExtentState::Mapped),
            }
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
}

/// Why a write ended early.
enum WriteFailure {
    OutOfMemory,
    /// The system took no byte, and named no reason.
    NothingWritten,
    System(io::Error),
}
