//! Carries out sanitize operations that SCSI and NVMe begin.
//!
//! ```text
//!  begin ──► stored ──► writes under way end ──► all blocks are written or freed ──► flush ──► stored ──► over
//!   gates keep commands out ─────────────────────────────────────────────────────────────────────────────► open
//! ```
//!
//! An operation belongs to its volume: it runs as background work of one shard, and no command, reset or lost
//! connection ends it. When the server ends it stops where it is, and begins anew at the next start.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use longshore_block::sanitize::{Method, Outcome, Sanitize, SanitizeOrder};
use longshore_reactor::buffer::Buffer;
use longshore_volume::{Execution, Extent, Geometry, Io, Operation, Request, VolumeError};

use crate::address::TaskAddress;
use crate::core::{Core, Shared};
use crate::exports::Unit;
use crate::mail::message::Message;
use crate::mail::waiters::SanitizeWaiter;

/// Bytes of one write.
const WRITE_BYTES: u32 = 1 << 20;
/// Bytes freed at a time.
const ERASE_BYTES: u64 = 256 << 20;

impl Core {
    /// Begins an operation on volumes. The task hears when that is stored, or, unless `immediate`, when it is over.
    pub(crate) fn begin_sanitize(
        &self,
        task: TaskAddress,
        volumes: Vec<usize>,
        order: &SanitizeOrder,
        immediate: bool,
    ) {
        let waiter = SanitizeWaiter::new(task, self.post());
        let begins = |volume: &usize| {
            let unit = self.shared.unit(*volume);
            let reservations = unit.logical_unit.reservations();
            let begun = reservations.begin_sanitize(order.clone()).is_ok();
            if begun && !immediate {
                unit.sanitize_waiters.add(waiter.clone());
            }
            begun
        };
        let begun: Vec<usize> = volumes.into_iter().filter(begins).collect();
        if begun.is_empty() {
            return waiter.tell(false);
        }
        let (shared, post) = (Arc::clone(&self.shared), self.post().clone());
        self.shared.blocking.run(Box::new(move || {
            let is_stored = begun.iter().all(|volume| shared.store_sanitize(*volume));
            for volume in begun {
                if is_stored {
                    post.send(Message::Sanitize(volume));
                } else {
                    shared.sanitize_over(volume, false);
                }
            }
            if immediate {
                waiter.tell(is_stored);
            }
        }));
    }

    /// Leaves failed operations behind. The task hears when that is stored.
    pub(crate) fn exit_sanitize_failure(&self, task: TaskAddress, volumes: Vec<usize>) {
        let shared = Arc::clone(&self.shared);
        let waiter = SanitizeWaiter::new(task, self.post());
        self.shared.blocking.run(Box::new(move || {
            let exits = |volume: &usize| {
                let unit = shared.unit(*volume);
                let left = unit.logical_unit.reservations().exit_sanitize_failure();
                left.is_ok() && shared.store_sanitize(*volume)
            };
            waiter.tell(volumes.iter().all(exits));
        }));
    }

    /// An operation on a volume has begun, or was running when the server ended: this shard carries it out.
    pub(crate) fn carry_out_sanitize(&mut self, volume: usize) {
        let shared = Arc::clone(&self.shared);
        let platform = &mut *self.platform;
        self.requests
            .spawn(|io| carry_out(shared, volume, io), platform);
    }
}

impl Shared {
    /// Stores the state of a volume. Blocks.
    fn store_sanitize(&self, volume: usize) -> bool {
        let sanitize = self.unit(volume).logical_unit.reservations().sanitize();
        self.store_sanitize_as(volume, &Sanitize::to_text(sanitize))
    }

    fn store_sanitize_as(&self, volume: usize, text: &str) -> bool {
        let Some(store) = &self.sanitize_store else {
            return false;
        };
        let identity = self.unit(volume).volume.identity();
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

    /// An operation is over. Blocks.
    fn sanitize_over(&self, volume: usize, succeeded: bool) {
        let unit = self.unit(volume);
        let reservations = unit.logical_unit.reservations();
        let sanitize = reservations.sanitize();
        // What is stored comes first: were the end forgotten, the next start would erase what is written now.
        let completed =
            succeeded && self.store_sanitize_as(volume, &sanitize.to_text_of(Outcome::Completed));
        if !completed {
            self.store_sanitize_as(volume, &sanitize.to_text_of(Outcome::Failed));
        }
        reservations.end_sanitize(completed);
        unit.gate.end_hold(|task| self.retry(task));
        unit.sanitize_waiters.tell_all(completed);
        self.exports.nvme.subsystems.sanitize_ended(volume);
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
    /// The server ends.
    Stopped,
}

impl From<VolumeError> for Early {
    fn from(error: VolumeError) -> Self {
        Self::Failed(error)
    }
}

async fn carry_out(shared: Arc<Shared>, volume: usize, io: Io) {
    let unit = shared.unit(volume);
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
        shared: &shared,
        unit,
        sanitize: reservations.sanitize(),
        io,
    };
    let succeeded = match work.run(&order.method).await {
        Ok(()) => true,
        Err(Early::Stopped) => return,
        Err(Early::Failed(error)) => {
            tracing::error!(volume = name, %error, "sanitizing failed");
            shared.tell_of_failure(volume);
            false
        }
    };
    let blocking = Arc::clone(&shared);
    shared
        .blocking
        .run(Box::new(move || blocking.sanitize_over(volume, succeeded)));
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
    async fn run(&self, method: &Method) -> Result<(), Early> {
        match method {
            Method::BlockErase => self.free().await?,
            Method::Overwrite {
                pattern,
                passes,
                invert,
                deallocate,
            } => {
                for pass in 0..*passes {
                    let inverts = *invert && pass % 2 == 1;
                    self.overwrite(pattern, inverts, pass, *passes).await?;
                }
                let characteristics = self.unit.volume.characteristics();
                if *deallocate && characteristics.unmap_granularity.is_some() {
                    self.free().await?;
                }
            }
        }
        Ok(())
    }

    /// Writes a pattern to all blocks, and flushes.
    async fn overwrite(
        &self,
        pattern: &[u8],
        inverts: bool,
        pass: u8,
        passes: u8,
    ) -> Result<(), Early> {
        let geometry = self.geometry();
        let block = geometry.block_size as usize;
        let mut buffer = Buffer::allocate(WRITE_BYTES as usize);
        let flip = if inverts { 0xff } else { 0 };
        for place in buffer.chunks_exact_mut(block) {
            for (byte, from) in place.iter_mut().zip(pattern.iter().cycle()) {
                *byte = from ^ flip;
            }
        }
        let step = u64::from(WRITE_BYTES / geometry.block_size);
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
        self.flush().await
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
        if self.shared.closing.load(Ordering::Relaxed) {
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
