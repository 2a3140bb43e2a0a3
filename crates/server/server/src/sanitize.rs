//! Carries out sanitize operations that SCSI and NVMe begin.
//!
//! ```text
//!  begin ──► stored ──► writes under way end ──► all blocks are written or freed ──► flush ──► stored ──► over
//!   gates keep commands out ─────────────────────────────────────────────────────────────────────────────► open
//! ```
//!
//! An operation belongs to its volume: it runs as background work of one shard, and no command, reset or lost
//! connection ends it. When the server ends, or the volume is removed, it stops, and starts again when the volume is
//! served again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use longshore_block::operation::MediaError;
use longshore_block::sanitize::{Method, Sanitize, SanitizeOrder, SanitizeState};
use longshore_nvme::controller::Subsystems;
use longshore_reactor::buffer::Buffer;
use longshore_volume::{Execution, Extent, Geometry, Io, Operation, Request, VolumeError};

use crate::address::TaskAddress;
use crate::core::{Core, Shared};
use crate::exports::Unit;
use crate::mail::message::Message;
use crate::mail::waiters::SanitizeWaiter;

/// Bytes of one write.
const WRITE_BYTES: u32 = 1 << 20;
/// Bytes of the largest block that a volume can have.
const LARGEST_BLOCK: usize = 4096;
/// Bytes freed at a time.
const ERASE_BYTES: u64 = 256 << 20;

impl Core {
    /// Begins an operation on volumes. The task hears when that is stored, or, unless `immediate`, when it is over.
    ///
    /// # Errors
    /// The system has no memory for it. Nothing has begun.
    pub(crate) fn begin_sanitize(
        &self,
        task: TaskAddress,
        volumes: Vec<usize>,
        order: &SanitizeOrder,
        immediate: bool,
    ) -> Result<(), MediaError> {
        let memories = memories(&order.method, volumes.len()).ok_or(MediaError::OutOfMemory)?;
        let waiter = SanitizeWaiter::new(task, self.post());
        let begin = |(place, memory): (usize, Option<Buffer>)| {
            let unit = self.view.exports.unit(place);
            let reservations = unit.logical_unit.reservations();
            reservations.begin_sanitize(order.clone()).ok()?;
            if !immediate {
                unit.sanitize_waiters.add(waiter.clone());
            }
            Some((self.sanitizing(place), memory))
        };
        let begun: Vec<(Sanitizing, _)> = volumes
            .into_iter()
            .zip(memories)
            .filter_map(begin)
            .collect();
        if begun.is_empty() {
            waiter.tell(false);
            return Ok(());
        }
        let post = self.post().clone();
        self.shared.blocking.run(Box::new(move || {
            let is_stored = begun.iter().all(|(sanitizing, _)| sanitizing.store());
            for (sanitizing, memory) in begun {
                if is_stored {
                    post.send(Message::Sanitize {
                        place: sanitizing.place,
                        memory,
                        hold: Box::new(sanitizing),
                    });
                } else {
                    sanitizing.end(false);
                }
            }
            if immediate {
                waiter.tell(is_stored);
            }
        }));
        Ok(())
    }

    /// Leaves failed operations behind. The task hears when that is stored.
    pub(crate) fn exit_sanitize_failure(&self, task: TaskAddress, volumes: &[usize]) {
        let places = volumes.iter();
        let failed: Vec<Sanitizing> = places.map(|place| self.sanitizing(*place)).collect();
        let waiter = SanitizeWaiter::new(task, self.post());
        self.shared.blocking.run(Box::new(move || {
            let exits = |one: &Sanitizing| {
                let _order = one.unit.sanitize_order();
                let left = one.unit.logical_unit.reservations().exit_sanitize_failure();
                left.is_ok() && one.store_now()
            };
            waiter.tell(failed.iter().all(exits));
        }));
    }

    /// An operation on a volume has begun, or was running when the server ended: this shard carries it out.
    /// With `memory` for writes, unless that is yet to be found.
    pub(crate) fn carry_out_sanitize(&mut self, place: usize, memory: Option<Buffer>) {
        let sanitizing = self.sanitizing(place);
        let platform = &mut *self.platform;
        self.requests
            .spawn(|io| carry_out(sanitizing, memory, io), platform);
    }

    /// Goes on with an operation that was running when the volume was served last. One shard does.
    pub(crate) fn resume_sanitize(&mut self, place: usize) {
        let unit = self.view.exports.unit(place);
        let is_running = unit.logical_unit.reservations().sanitize().running();
        if is_running.is_some() && place % self.shared.posts.len() == self.shard {
            self.carry_out_sanitize(place, None);
        }
    }

    fn sanitizing(&self, place: usize) -> Sanitizing {
        let exports = &self.view.exports;
        let unit = Arc::clone(exports.shared_unit(place));
        unit.sanitizing.fetch_add(1, Ordering::Relaxed);
        Sanitizing {
            shared: Arc::clone(&self.shared),
            subsystems: Arc::clone(&exports.nvme.subsystems),
            unit,
            place,
        }
    }
}

/// Memory for writes to so many volumes, as far as the method writes any. `None`: the system has none.
fn memories(method: &Method, volumes: usize) -> Option<Vec<Option<Buffer>>> {
    let memory = || match method {
        Method::BlockErase => Some(None),
        Method::Overwrite { .. } => Buffer::try_allocate(WRITE_BYTES as usize).map(Some),
    };
    std::iter::repeat_with(memory).take(volumes).collect()
}

/// Memory for an operation that goes on after a restart: as much as there is, down to a block.
fn some_memory() -> Result<Buffer, VolumeError> {
    let halves = std::iter::successors(Some(WRITE_BYTES as usize), |bytes| Some(bytes / 2));
    let mut sizes = halves.take_while(|bytes| *bytes >= LARGEST_BLOCK);
    let memory = sizes.find_map(Buffer::try_allocate);
    memory.ok_or(VolumeError::OutOfMemory)
}

/// Work on a volume for a sanitize operation. A volume that is removed is closed when there is none left.
pub(crate) struct Sanitizing {
    shared: Arc<Shared>,
    subsystems: Arc<Subsystems>,
    unit: Arc<Unit>,
    /// The place of the unit.
    place: usize,
}

impl std::fmt::Debug for Sanitizing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sanitizing")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Drop for Sanitizing {
    fn drop(&mut self) {
        self.unit.sanitizing.fetch_sub(1, Ordering::Release);
    }
}

impl Sanitizing {
    /// Stores the state of the volume. Blocks.
    fn store(&self) -> bool {
        let _order = self.unit.sanitize_order();
        self.store_now()
    }

    /// The same for one who holds the order.
    fn store_now(&self) -> bool {
        let sanitize = self.unit.logical_unit.reservations().sanitize();
        self.store_as(&Sanitize::to_text(sanitize))
    }

    fn store_as(&self, text: &str) -> bool {
        let Some(store) = &self.shared.sanitize_store else {
            return false;
        };
        let identity = self.unit.volume.identity();
        let stored = store.store(identity.uuid, text.as_bytes());
        if let Err(error) = &stored {
            let path = store.path(identity.uuid);
            tracing::error!(
                volume = identity.name,
                path = %path.display(),
                %error,
                "the state of a sanitize operation is not stored"
            );
        }
        stored.is_ok()
    }

    /// The operation is over. Blocks.
    fn end(&self, succeeded: bool) {
        let unit = &self.unit;
        let _order = unit.sanitize_order();
        let reservations = unit.logical_unit.reservations();
        let sanitize = reservations.sanitize();
        // Those that come from now on wait for an operation of their own.
        let waiters = unit.sanitize_waiters.take();
        // What is stored comes first: were the end forgotten, the next start would erase what is written now.
        let completed = succeeded && self.store_as(&sanitize.to_text_of(SanitizeState::Completed));
        if !completed {
            self.store_as(&sanitize.to_text_of(SanitizeState::Failed));
        }
        reservations.end_sanitize(completed);
        unit.gate
            .end_hold(|task| self.shared.retry(self.place, task));
        waiters.tell_all(completed);
        self.subsystems.sanitize_ended(self.place);
        let volume = &unit.volume.identity().name;
        if completed {
            tracing::info!(volume, "the volume is sanitized");
        } else {
            tracing::error!(volume, "the volume is not sanitized, and refuses commands");
        }
    }
}

/// Why an operation ends early.
enum Early {
    Failed(VolumeError),
    /// The server ends, or the volume is removed.
    Stopped,
}

impl From<VolumeError> for Early {
    fn from(error: VolumeError) -> Self {
        Self::Failed(error)
    }
}

async fn carry_out(sanitizing: Sanitizing, memory: Option<Buffer>, io: Io) {
    let unit = &sanitizing.unit;
    let reservations = Arc::clone(unit.logical_unit.reservations());
    let Some(order) = reservations.sanitize().running() else {
        return;
    };
    poll_fn(|context| unit.gate.poll_hold(context.waker())).await;
    let name = &unit.volume.identity().name;
    tracing::info!(
        volume = name,
        method = method_name(&order.method),
        "sanitizing the volume"
    );
    let work = Work {
        shared: &sanitizing.shared,
        unit,
        sanitize: reservations.sanitize(),
        io,
    };
    let succeeded = match work.run(&order.method, memory).await {
        Ok(()) => true,
        Err(Early::Stopped) => {
            // It goes on when the volume is served again; those who wait learn that it is not over.
            return unit.sanitize_waiters.take().tell_all(false);
        }
        Err(Early::Failed(error)) => {
            tracing::error!(volume = name, %error, "sanitizing failed");
            unit.tell_of_failure(&sanitizing.subsystems, sanitizing.place);
            false
        }
    };
    let shared = Arc::clone(&sanitizing.shared);
    shared
        .blocking
        .run(Box::new(move || sanitizing.end(succeeded)));
}

fn method_name(method: &Method) -> &'static str {
    match method {
        Method::Overwrite { .. } => "overwrite",
        Method::BlockErase => "block erase",
    }
}

/// One operation under way.
struct Work<'a> {
    shared: &'a Arc<Shared>,
    unit: &'a Unit,
    sanitize: &'a Sanitize,
    io: Io,
}

impl Work<'_> {
    async fn run(&self, method: &Method, memory: Option<Buffer>) -> Result<(), Early> {
        match method {
            Method::BlockErase => self.free().await?,
            Method::Overwrite {
                pattern,
                passes,
                invert,
                deallocate,
            } => {
                let mut buffer = match memory {
                    Some(buffer) => buffer,
                    None => some_memory()?,
                };
                for pass in 0..*passes {
                    let flip = if *invert && pass % 2 == 1 { 0xff } else { 0 };
                    for place in buffer.chunks_exact_mut(self.geometry().block_size as usize) {
                        for (byte, from) in place.iter_mut().zip(pattern.iter().cycle()) {
                            *byte = from ^ flip;
                        }
                    }
                    buffer = self.overwrite(buffer, pass, *passes).await?;
                }
                let characteristics = self.unit.volume.characteristics();
                if *deallocate && characteristics.unmap_granularity.is_some() {
                    self.free().await?;
                }
            }
        }
        Ok(())
    }

    /// Writes what is in the buffer to all blocks, again and again, and flushes.
    async fn overwrite(&self, buffer: Buffer, pass: u8, passes: u8) -> Result<Buffer, Early> {
        let geometry = self.geometry();
        let step = buffer.len() as u64 / u64::from(geometry.block_size);
        let mut buffer = Some(buffer);
        let mut lba = 0;
        while lba < self.geometry().block_count {
            let total = self.geometry().block_count;
            let blocks = step.min(total - lba);
            let extent = Extent::new(lba, blocks);
            let mut request = Request::new(Operation::Write { extent, fua: false });
            request.end = usize::try_from(geometry.bytes(extent.blocks)).expect("a megabyte");
            request.buffer = buffer.take();
            buffer = self.request(request).await?;
            lba += blocks;
            let done = total * u64::from(pass) + lba;
            self.sanitize.advance(done, total * u64::from(passes));
        }
        self.flush().await?;
        buffer.ok_or(Early::Failed(VolumeError::OutOfMemory))
    }

    /// Frees all blocks, and flushes.
    async fn free(&self) -> Result<(), Early> {
        let geometry = self.geometry();
        let step = ERASE_BYTES / u64::from(geometry.block_size);
        let mut lba = 0;
        while lba < self.geometry().block_count {
            let total = self.geometry().block_count;
            let blocks = step.min(total - lba);
            self.request(Request::new(Operation::WriteZeroes {
                extent: Extent::new(lba, blocks),
                may_unmap: true,
                fua: false,
            }))
            .await?;
            lba += blocks;
            self.sanitize.advance(lba, total);
        }
        self.flush().await
    }

    async fn flush(&self) -> Result<(), Early> {
        self.request(Request::new(Operation::Flush)).await?;
        Ok(())
    }

    /// Carries out a request, and lets others have their turn.
    async fn request(&self, request: Request) -> Result<Option<Buffer>, Early> {
        let is_removed = self.unit.is_removed.load(Ordering::Relaxed);
        if is_removed || self.shared.closing.load(Ordering::Relaxed) {
            return Err(Early::Stopped);
        }
        let volume = Arc::clone(&self.unit.volume);
        let execution = volume.execute(request, self.io.clone());
        let waited = matches!(execution, Execution::Running(_));
        let ended = execution.await;
        ended.result?;
        if !waited {
            NextTurn {
                shared: self.shared,
                asked: false,
            }
            .await;
        }
        Ok(ended.buffer)
    }

    fn geometry(&self) -> Geometry {
        self.unit.volume.geometry()
    }
}

/// Resolves in another turn of the event loop.
struct NextTurn<'a> {
    shared: &'a Shared,
    asked: bool,
}

impl Future for NextTurn<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.asked, true) {
            return Poll::Ready(());
        }
        // Woken by another thread, since one that this one wakes runs on in the same turn.
        let waker = context.waker().clone();
        self.shared.blocking.run(Box::new(move || waker.wake()));
        Poll::Pending
    }
}
