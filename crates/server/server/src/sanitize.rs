//! Carries out sanitize operations that SCSI and NVMe begin.
//!
//! ```text
//!  begin ──► stored ──► writes under way end ──► all blocks are written or freed ──► flush ──► stored ──► over
//!   gates keep commands out ─────────────────────────────────────────────────────────────────────────────► open
//! ```
//!
//! An operation belongs to its volume: it runs as background work of one shard, and no command, reset or lost
//! connection ends it. When the server ends, or exports the volume no more, it stops where it is, and begins anew with the
//! volume.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use longshore_block::sanitize::{Method, Outcome, Sanitize, SanitizeOrder};
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
/// Bytes freed at a time.
const ERASE_BYTES: u64 = 256 << 20;

/// A volume that is sanitized. It holds its unit, and not the others of a version of the exports.
#[derive(Clone)]
struct Subject {
    shared: Arc<Shared>,
    place: usize,
    unit: Arc<Unit>,
    subsystems: Arc<Subsystems>,
}

impl Core {
    fn subject(&self, place: usize) -> Subject {
        Subject {
            shared: Arc::clone(&self.view.shared),
            place,
            unit: self.view.exports.shared_unit(place),
            subsystems: Arc::clone(&self.view.exports.nvme.subsystems),
        }
    }

    /// Begins an operation on volumes. The task hears when that is stored, or, unless `immediate`, when it is over.
    pub(crate) fn begin_sanitize(
        &self,
        task: TaskAddress,
        volumes: Vec<usize>,
        order: &SanitizeOrder,
        immediate: bool,
    ) {
        let waiter = SanitizeWaiter::new(task, self.post());
        let begins = |subject: &Subject| {
            let reservations = subject.unit.logical_unit.reservations();
            let begun = reservations.begin_sanitize(order.clone()).is_ok();
            if begun && !immediate {
                subject.unit.sanitize_waiters.add(waiter.clone());
            }
            begun
        };
        let subjects = volumes.into_iter().map(|volume| self.subject(volume));
        let begun: Vec<Subject> = subjects.filter(begins).collect();
        let Some(first) = begun.first() else {
            return waiter.tell(false);
        };
        let (shared, post) = (Arc::clone(&first.shared), self.post().clone());
        shared.blocking.run(Box::new(move || {
            let is_stored = begun.iter().all(Subject::store);
            for subject in begun {
                if is_stored {
                    post.send(Message::Sanitize(subject.place));
                } else {
                    subject.is_over(false);
                }
            }
            if immediate {
                waiter.tell(is_stored);
            }
        }));
    }

    /// Leaves failed operations behind. The task hears when that is stored.
    pub(crate) fn exit_sanitize_failure(&self, task: TaskAddress, volumes: Vec<usize>) {
        let shared = Arc::clone(&self.view.shared);
        let waiter = SanitizeWaiter::new(task, self.post());
        let subjects: Vec<Subject> = volumes.into_iter().map(|it| self.subject(it)).collect();
        shared.blocking.run(Box::new(move || {
            let exits = |subject: &Subject| {
                let reservations = subject.unit.logical_unit.reservations();
                reservations.exit_sanitize_failure().is_ok() && subject.store()
            };
            waiter.tell(subjects.iter().all(exits));
        }));
    }

    /// An operation on a volume has begun, or was running when the server ended: this shard carries it out.
    pub(crate) fn carry_out_sanitize(&mut self, volume: usize) {
        let subject = self.subject(volume);
        let platform = &mut *self.platform;
        self.requests.spawn(|io| carry_out(subject, io), platform);
    }
}

impl Subject {
    /// Stores the state of the volume. Blocks.
    fn store(&self) -> bool {
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

    /// An operation is over. Blocks.
    fn is_over(&self, succeeded: bool) {
        let unit = &self.unit;
        let reservations = unit.logical_unit.reservations();
        let sanitize = reservations.sanitize();
        // What is stored comes first: were the end forgotten, the next start would erase what is written now.
        let completed = succeeded && self.store_as(&sanitize.to_text_of(Outcome::Completed));
        if !completed {
            self.store_as(&sanitize.to_text_of(Outcome::Failed));
        }
        reservations.end_sanitize(completed);
        unit.gate
            .end_hold(|task| self.shared.retry(self.place, task));
        unit.sanitize_waiters.tell_all(completed);
        if !unit.is_leaving() {
            self.subsystems.sanitize_ended(self.place);
        }
        let volume = &unit.volume.identity().name;
        if completed {
            tracing::info!(volume, "the volume is sanitized");
        } else {
            tracing::error!(volume, "the volume is not sanitized, and refuses commands");
        }
    }

    /// The volume as a whole may have failed.
    fn tell_of_failure(&self) {
        let unit = &self.unit;
        if !unit.volume.condition().is_sound() && unit.statistics.is_news() && !unit.is_leaving() {
            self.subsystems.health_changed(self.place);
        }
    }
}

/// Why an operation ends early.
enum Early {
    Failed(VolumeError),
    /// The server ends, or the volume is exported no more.
    Stopped,
}

impl From<VolumeError> for Early {
    fn from(error: VolumeError) -> Self {
        Self::Failed(error)
    }
}

async fn carry_out(subject: Subject, io: Io) {
    let unit = &subject.unit;
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
        shared: &subject.shared,
        unit,
        sanitize: reservations.sanitize(),
        io,
    };
    let succeeded = match work.run(&order.method).await {
        Ok(()) => true,
        Err(Early::Stopped) => return,
        Err(Early::Failed(error)) => {
            tracing::error!(volume = name, %error, "sanitizing failed");
            subject.tell_of_failure();
            false
        }
    };
    let ended = subject.clone();
    subject
        .shared
        .blocking
        .run(Box::new(move || ended.is_over(succeeded)));
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
        if self.shared.closing.load(Ordering::Relaxed) || self.unit.is_leaving() {
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
