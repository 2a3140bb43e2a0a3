//! A volume of a pool, or a snapshot of one.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::{
    Attempt, Characteristics, Condition, Ended, Execution, ExtentState, Fullness, Geometry,
    Identity, Io, Lba, Operation, Outline, Reply, Request, Throttle, Volume, VolumeError,
    WriteCache,
};

use crate::cache::Missing;
use crate::format::chunk;
use crate::format::record::PartKind;
use crate::format::{PAGE, PAGE_BYTES, crc, long, short};
use crate::leaves::Purpose;
use crate::log::{Failure, LaneName, Piece, Target, settle, settle_all};
use crate::place::Content;
use crate::pool::{Pool, pages};
use crate::read::ReadError;
use crate::shared::Shared;

/// Most pages that one part of a record sets to zero.
const ZERO_PAGES_MAX: u64 = crate::log::ZERO_PAGES_MAX;

/// Most pages of a raw part.
const RAW_PAGES_MAX: usize = 128;

/// Chunks that did not become smaller, until the rest of a request is kept as it is.
const GIVE_UP: u32 = 4;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct PoolVolume {
    pub pool: Arc<Pool>,
    pub slot: usize,
    /// What it is called in the pool.
    pub name: String,
    pub outline: Outline,
    pub settings: Arc<Shared>,
    pub is_read_only: bool,
    /// Every write is on the medium when it ends.
    pub write_through: bool,
}

impl Drop for PoolVolume {
    fn drop(&mut self) {
        self.pool.give_back_volume(self.slot);
        if Arc::strong_count(&self.pool) == 1 {
            crate::closing::close(&self.pool);
        }
    }
}

/// Whole pages, the first of which has that number, ready for the log.
fn pack<'a>(settings: &Shared, page: u64, payload: &'a [u8], raw_pages: usize) -> Vec<Piece<'a>> {
    let codec = settings.codec();
    let chunk_bytes = settings.chunk_pages() * PAGE;
    let mut pieces = Vec::new();
    let mut failures = 0;
    let mut raw = 0..0;
    for (number, plain) in payload.chunks(chunk_bytes).enumerate() {
        let start = number * chunk_bytes;
        let smaller = match failures < GIVE_UP {
            true => chunk::pack(codec, plain),
            false => None,
        };
        match smaller {
            Some(compressed) => {
                failures = 0;
                let raw = std::mem::take(&mut raw);
                push_raw(&mut pieces, page, payload, raw, raw_pages);
                pieces.push(Piece {
                    page: page + long(start / PAGE),
                    kind: PartKind::Chunk {
                        codec,
                        pages: u8::try_from(plain.len() / PAGE).expect("at most four"),
                        crc: crc(&compressed),
                    },
                    bytes: compressed.into(),
                    op: None,
                });
            }
            None => {
                failures += 1;
                if raw.is_empty() {
                    raw = start..start;
                }
                raw.end = start + plain.len();
            }
        }
    }
    push_raw(&mut pieces, page, payload, raw, raw_pages);
    pieces
}

fn push_raw<'a>(
    pieces: &mut Vec<Piece<'a>>,
    first: u64,
    payload: &'a [u8],
    range: Range<usize>,
    most: usize,
) {
    let mut start = range.start;
    for bytes in payload[range].chunks(most * PAGE) {
        pieces.push(Piece {
            page: first + long(start / PAGE),
            kind: PartKind::Raw {
                crcs: bytes.chunks_exact(PAGE).map(crc).collect(),
            },
            bytes: bytes.into(),
            op: None,
        });
        start += bytes.len();
    }
}

/// A page that is read, changed and written back, while others wait.
struct Hold<'a> {
    volume: &'a PoolVolume,
    page: u64,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let volume = self.volume;
        volume.pool.lock().let_go(volume.slot, self.page);
    }
}

impl PoolVolume {
    fn failed(&self, failure: Failure) -> VolumeError {
        match failure {
            Failure::NoSpace => VolumeError::NoSpace,
            Failure::Poisoned | Failure::Ended | Failure::Destroyed => VolumeError::Poisoned,
            Failure::OutOfMemory => VolumeError::OutOfMemory,
            Failure::Unreadable => VolumeError::Io {
                operation: format!("use volume {}", self.outline.name()),
                source: ReadError::Map.into(),
            },
            Failure::ReadOnly => VolumeError::ReadOnly,
        }
    }

    fn read_failed(&self, error: ReadError) -> VolumeError {
        match error {
            ReadError::OutOfMemory => VolumeError::OutOfMemory,
            error @ (ReadError::Lost | ReadError::Checksum | ReadError::Map | ReadError::Io(_)) => {
                VolumeError::Io {
                    operation: format!("read volume {}", self.outline.name()),
                    source: error.into(),
                }
            }
        }
    }

    /// Pages of a raw part: as many as a record has room for.
    fn raw_pages(&self) -> usize {
        let bytes = crate::format::record::payload_max(self.pool.label.segment_bytes);
        (bytes / PAGE).min(RAW_PAGES_MAX)
    }

    fn admit_change(&self) -> Result<(), VolumeError> {
        if self.is_read_only {
            return Err(VolumeError::ReadOnly);
        }
        match self.pool.lock().failed {
            None => Ok(()),
            Some(failure) => Err(self.failed(failure)),
        }
    }

    /// Bytes of a write may not take the volume beyond its quota.
    fn admit_bytes(&self, bytes: u64) -> Result<(), VolumeError> {
        let quota = self.settings.quota();
        if quota == 0 {
            return Ok(());
        }
        let owned = self.pool.owned_by(&self.name);
        if owned + bytes > quota {
            return Err(VolumeError::NoSpace);
        }
        Ok(())
    }

    async fn put(
        &self,
        io: &Io,
        lane: LaneName,
        pieces: Vec<Piece<'_>>,
        durable: bool,
        holds: bool,
    ) -> Result<(), VolumeError> {
        let target = Target::Volume(self.slot);
        let put = self.pool.put(io, lane, target, pieces, durable, holds);
        let outcomes = put.await.map_err(|failure| self.failed(failure))?;
        let result = settle_all(outcomes).await;
        result.map_err(|failure| self.failed(failure))
    }

    /// Writes bytes of a request from `offset` of the volume on.
    async fn write(
        &self,
        io: &Io,
        offset: u64,
        bytes: &[u8],
        durable: bool,
    ) -> Result<(), VolumeError> {
        self.admit_bytes(long(bytes.len()))?;
        let whole = whole_pages(offset, long(bytes.len()));
        let (head, rest) = bytes.split_at(short(whole.start - offset).min(bytes.len()));
        if !head.is_empty() {
            self.change_page(io, offset, head, durable).await?;
        }
        let (middle, tail) = rest.split_at(short(whole.end - whole.start));
        if !middle.is_empty() {
            let first = whole.start / PAGE_BYTES;
            let pieces = pack(&self.settings, first, middle, self.raw_pages());
            self.put(io, LaneName::Data, pieces, durable, false).await?;
        }
        if !tail.is_empty() {
            self.change_page(io, whole.end, tail, durable).await?;
        }
        Ok(())
    }

    /// Changes a part of a page.
    async fn change_page(
        &self,
        io: &Io,
        offset: u64,
        bytes: &[u8],
        durable: bool,
    ) -> Result<(), VolumeError> {
        let page = offset / PAGE_BYTES;
        let held = loop {
            let held = self.pool.lock().hold(self.slot, page);
            match held {
                Ok(()) => break Hold { volume: self, page },
                Err(later) => drop(settle(later).await),
            }
        };
        // What was staged before belongs to what is read.
        self.pool.settle().await;
        if bytes.iter().all(|byte| *byte == 0) && self.reads_zeros(io, page).await? {
            return Ok(());
        }
        let buffer = Buffer::try_allocate(PAGE).ok_or(VolumeError::OutOfMemory)?;
        let start = page * PAGE_BYTES;
        let (result, mut buffer) = self.pool.read(io, self.slot, start, buffer, 0..PAGE).await;
        result.map_err(|error| self.read_failed(error))?;
        let at = short(offset - start);
        buffer[at..at + bytes.len()].copy_from_slice(bytes);
        let pieces = pack(&self.settings, page, &buffer, 1);
        let result = self.put(io, LaneName::Data, pieces, durable, true).await;
        drop(held);
        result
    }

    /// Whether a page takes no space.
    async fn reads_zeros(&self, io: &Io, page: u64) -> Result<bool, VolumeError> {
        loop {
            let resolved = {
                let inner = self.pool.lock();
                let head = inner.open[self.slot].read;
                inner.state.catalog.resolve(head, page)
            };
            match resolved {
                Ok((entry, _)) => {
                    return Ok(matches!(entry.content(), Content::Absent | Content::Zero));
                }
                Err(missing) => self.load(io, missing).await?,
            }
        }
    }

    /// Has a leaf be in memory.
    async fn load(&self, io: &Io, missing: Missing) -> Result<(), VolumeError> {
        let loaded = self.pool.load_leaves(io, &[missing], Purpose::Look).await;
        loaded.map_err(|failure| self.failed(failure))
    }

    /// Has a range read as zeros, and frees its space.
    async fn zero(
        &self,
        io: &Io,
        offset: u64,
        length: u64,
        durable: bool,
    ) -> Result<(), VolumeError> {
        const ZEROS: [u8; PAGE] = [0; PAGE];
        let whole = whole_pages(offset, length);
        let head = (whole.start - offset).min(length);
        if head > 0 {
            let zeros = &ZEROS[..short(head)];
            self.change_page(io, offset, zeros, durable).await?;
        }
        let mut page = whole.start / PAGE_BYTES;
        let end = whole.end / PAGE_BYTES;
        while page < end {
            let count = (end - page).min(ZERO_PAGES_MAX);
            let pages = u32::try_from(count).expect("at most 65,536");
            let piece = Piece {
                page,
                kind: PartKind::Zero { pages },
                bytes: Cow::default(),
                op: None,
            };
            self.put(io, LaneName::Spare, vec![piece], durable, false)
                .await?;
            page += count;
        }
        let tail = (offset + length).saturating_sub(whole.end.max(offset + head));
        if tail > 0 {
            let zeros = &ZEROS[..short(tail)];
            self.change_page(io, offset + length - tail, zeros, durable)
                .await?;
        }
        Ok(())
    }

    /// The state of the range's first block, and for how many bytes it holds.
    async fn extent_state(
        &self,
        io: &Io,
        offset: u64,
        length: u64,
    ) -> Result<(u64, ExtentState), VolumeError> {
        let first = offset / PAGE_BYTES;
        loop {
            match self.look_at_extent(first, pages(offset + length)) {
                Ok((count, state)) => {
                    let to = (first + count) * PAGE_BYTES;
                    return Ok((to.min(offset + length) - offset, state));
                }
                Err(missing) => self.load(io, missing).await?,
            }
        }
    }

    /// The state of a page, and for how many pages up to `end` it holds.
    fn look_at_extent(&self, first: u64, end: u64) -> Result<(u64, ExtentState), Missing> {
        let inner = self.pool.lock();
        let head = inner.open[self.slot].read;
        let look = |page| {
            let (entry, absent) = inner.state.catalog.resolve(head, page)?;
            Ok(match entry.content() {
                Content::Data(_) | Content::Lost => (ExtentState::Mapped, 1),
                Content::Absent | Content::Zero => (ExtentState::Deallocated, absent.max(1)),
            })
        };
        let (state, mut count) = look(first)?;
        // Bounded, as the lock is held; the answer may be shorter than the extent is.
        let most = first + (1 << 18);
        while first + count < end.min(most) {
            match look(first + count) {
                Ok((next, more)) if next == state => count += more,
                // What is not in memory is looked at when somebody asks for it.
                Ok(_) | Err(_) => break,
            }
        }
        Ok((count, state))
    }

    async fn carry_out(&self, io: &Io, request: &mut Request) -> Result<Reply, VolumeError> {
        let operation = request.operation;
        if operation.fails_as_write() {
            match self.admit_change() {
                // Nothing was written that a flush could lose.
                Err(VolumeError::ReadOnly) if operation == Operation::Flush => {
                    return Ok(Reply::Done);
                }
                result => result?,
            }
        }
        let bytes = self.outline.bytes_of_request(request)?;
        if operation.extent().is_some() && bytes.length == 0 {
            return Ok(Reply::Done);
        }
        let durable = |fua| fua || self.write_through;
        match operation {
            Operation::Read { .. } => {
                let missing = VolumeError::OutOfRange;
                let buffer = request.buffer.take().ok_or(missing)?;
                let range = request.start..request.end;
                let (result, buffer) = self
                    .pool
                    .read(io, self.slot, bytes.offset, buffer, range)
                    .await;
                request.buffer = Some(buffer);
                result.map_err(|error| self.read_failed(error))?;
            }
            Operation::Write { fua, .. } => {
                let payload: &[u8] = request.payload_mut();
                self.write(io, bytes.offset, payload, durable(fua)).await?;
            }
            Operation::Flush => {
                let result = self.pool.flush(io).await;
                result.map_err(|failure| self.failed(failure))?;
            }
            Operation::Unmap { .. } => {
                self.zero(io, bytes.offset, bytes.length, durable(false))
                    .await?;
            }
            Operation::WriteZeroes { fua, .. } => {
                self.zero(io, bytes.offset, bytes.length, durable(fua))
                    .await?;
            }
            Operation::ExtentStatus { .. } => {
                let extent = self.extent_state(io, bytes.offset, bytes.length);
                let (length, state) = extent.await?;
                return Ok(Reply::Extent {
                    blocks: self.outline.blocks(length),
                    state,
                });
            }
            Operation::Prefetch { .. } => {}
            Operation::CompareAndWrite { .. } | Operation::Anchor { .. } => {
                return Err(VolumeError::Unsupported);
            }
        }
        Ok(Reply::Done)
    }
}

/// The whole pages of a range of bytes; where there is none, an empty range at the end of its first page, or at its
/// own end if that is sooner.
fn whole_pages(offset: u64, length: u64) -> Range<u64> {
    let end = offset + length;
    let first = offset.next_multiple_of(PAGE_BYTES);
    let last = end / PAGE_BYTES * PAGE_BYTES;
    if first <= last { first..last } else { end..end }
}

impl Volume for PoolVolume {
    fn identity(&self) -> &Identity {
        self.outline.identity()
    }

    fn geometry(&self) -> Geometry {
        self.outline.geometry()
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            read_only: self.is_read_only,
            write_cache: if self.write_through {
                WriteCache::None
            } else {
                WriteCache::Volatile
            },
            unmap_granularity: (!self.is_read_only).then_some(
                u32::try_from(PAGE)
                    .expect("4096")
                    .max(self.outline.block_size()),
            ),
            unmapped_reads_zeros: true,
            rotational: false,
            physical_block_size: u32::try_from(PAGE).expect("4096"),
        }
    }

    fn throttle(&self) -> Option<&Arc<Throttle>> {
        Some(self.outline.throttle())
    }

    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        match self.outline.bytes_of_slice(lba, into) {
            Ok(_) => Attempt::WouldSleep,
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    fn try_write(&self, lba: Lba, from: &[u8], _fua: bool) -> Attempt {
        match self.outline.bytes_of_slice(lba, from) {
            Ok(_) => Attempt::WouldSleep,
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    fn execute(self: Arc<Self>, mut request: Request, io: Io) -> Execution {
        Execution::running(async move {
            let result = self.carry_out(&io, &mut request).await;
            Ended {
                result,
                buffer: request.buffer,
            }
        })
    }

    fn attach(self: Arc<Self>, _io: &Io) {
        crate::run::begin_work();
    }

    fn quiesce(self: Arc<Self>, _io: Io) -> Execution {
        Execution::running(async {
            crate::run::end_work().await;
            Ended {
                result: Ok(Reply::Done),
                buffer: None,
            }
        })
    }

    fn resume(self: Arc<Self>, _io: &Io) {
        crate::run::begin_work();
    }

    fn condition(&self) -> Condition {
        if self.pool.is_poisoned() {
            Condition::Poisoned
        } else {
            Condition::Sound
        }
    }

    fn fullness(&self) -> Fullness {
        self.pool.fullness()
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        if let Some(size) = self.pool.size_of(&self.name) {
            self.outline.grow_to(size);
        }
        Ok(self.outline.geometry())
    }

    fn grow(&self, size_bytes: u64) -> Result<Geometry, VolumeError> {
        if self.is_read_only {
            return Err(VolumeError::ReadOnly);
        }
        self.outline.check_growth(size_bytes)?;
        let (pool, name) = (self.pool.clone(), self.name.clone());
        let grown = crate::run::block_on(move |io| async move {
            pool.resize(&io, &name, size_bytes, false).await
        });
        match grown {
            Ok(()) => Ok(self.outline.grow_to(size_bytes)),
            Err(crate::PoolError::Size { .. }) => Err(VolumeError::OutOfRange),
            Err(crate::PoolError::NoSpace { .. } | crate::PoolError::CannotReserve { .. }) => {
                Err(VolumeError::NoSpace)
            }
            Err(crate::PoolError::ReadOnly { .. }) => Err(VolumeError::ReadOnly),
            Err(crate::PoolError::OutOfMemory) => Err(VolumeError::OutOfMemory),
            Err(error) => Err(VolumeError::Io {
                operation: format!("resize volume {}", self.outline.name()),
                source: std::io::Error::other(error),
            }),
        }
    }
}
