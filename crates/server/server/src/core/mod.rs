//! State shared by the connections of one shard: engine, memory, requests, mail.

pub(crate) mod request;
mod shared;
mod view;

use std::sync::Arc;
use std::time::Instant;

use longshore_block::operation::Reply;
use longshore_block::reservation::{Participant, StoreOrder};
use longshore_reactor::{BufferPool, PagePipes};
use longshore_volume::{AttemptCost, Ended, Operation, Request, VolumeError, WriteCache};
use longshore_wire::transmit::PayloadId;

use crate::address::{ConnectionAddress, TaskAddress};
use crate::config::TransmitConfig;
use crate::counters::stages::{Followed, Stage, Stages};
use crate::counters::{Counters, ProtocolKind};
use crate::delayed::{DelayedTasks, LimitsChanged};
use crate::exports::Unit;
use crate::fairness::Fairness;
use crate::mail::abort::{AbortOrder, AbortScope, Exception};
use crate::mail::message::{AbortNotice, AbortedFor, Message, Note, Post};
use crate::memory::shard::ShardMemory;
use crate::memory::transmit::{self, Part};
use crate::platform::Platform;
use crate::spin::{IdleShard, WaitingState};
use request::{InFlight, Owner, Requests, ShutdownFlush};
pub(crate) use shared::Shared;
pub(crate) use view::View;

/// Bytes taken from a socket at a time.
const RECEIVE_BYTES: usize = 256 << 10;

/// See the module documentation.
pub(crate) struct Core {
    pub shard: usize,
    pub shared: Arc<Shared>,
    /// What is exported, as this shard knows it.
    pub view: Arc<View>,
    pub platform: Box<dyn Platform>,
    pub memory: ShardMemory,
    pub pipes: PagePipes,
    pub requests: Requests,
    /// Where bytes from sockets land whose place is not known yet. Empty between turns.
    pub receive_buffer: Box<[u8]>,
    /// Milliseconds since all shards started, at the beginning of this turn.
    pub now_ms: u64,
    /// Reused by every send.
    pub released: Vec<PayloadId>,
    /// What part of a turn each connection gets.
    pub fairness: Fairness,
    /// Whether no more than one connection had something to say in this turn.
    pub alone: bool,
    /// Slots of connections whose peers may have stalled.
    pub suspects: Vec<u32>,
    /// Tasks that the limits of their volumes have wait.
    pub delayed: DelayedTasks,
    /// Tells this shard that a volume has other limits.
    limits_changed: LimitsChanged,
    /// When the shard went on after it had stood still.
    pub stood_still_until_ms: u64,
    /// How the shard waits.
    pub waiting: WaitingState,
    /// Reads and writes of files of so many bytes or more are made on other cores; `usize::MAX`: none are.
    pub handed_from: usize,
    /// What this shard has done.
    pub counters: Counters,
    /// When some operations got how far.
    pub stages: Stages,
    /// The beginning of this turn.
    pub now: Instant,
    /// When responses leave; new connections begin with it.
    pub transmit: TransmitConfig,
    /// What one connection may have of the memory for transmit queues.
    pub transmit_share: usize,
    /// What there is of it, and what transmit queues hold.
    pub transmit_part: Part,
}

impl Core {
    pub(crate) fn new(
        shard: usize,
        view: Arc<View>,
        platform: Box<dyn Platform>,
        pool: BufferPool,
        now: Instant,
    ) -> Self {
        let shared = Arc::clone(&view.shared);
        let post = shared.posts[shard].clone();
        Self {
            shard,
            view,
            transmit: shared.transmit,
            transmit_part: Part::new(shared.limits.memory, shared.posts.len()),
            stages: Stages::new(shared.sample, now),
            limits_changed: LimitsChanged::new(&shared.posts[shard]),
            shared,
            platform,
            memory: ShardMemory::new(pool),
            pipes: PagePipes::default(),
            requests: Requests::new(move || post.send(Message::RequestsWoken)),
            receive_buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            now_ms: 0,
            released: Vec::new(),
            fairness: Fairness::default(),
            alone: true,
            suspects: Vec::new(),
            delayed: DelayedTasks::default(),
            stood_still_until_ms: 0,
            waiting: WaitingState::default(),
            handed_from: usize::MAX,
            counters: Counters::default(),
            now,
            transmit_share: transmit::SHARE_MAX,
        }
    }

    pub(crate) fn post(&self) -> &Post {
        &self.shared.posts[self.shard]
    }

    /// The unit in that place.
    #[inline]
    pub(crate) fn unit(&self, place: usize) -> &Unit {
        self.view.exports.unit(place)
    }

    /// What waiting for the next turn looks at and changes.
    pub(crate) fn idle(&mut self) -> IdleShard<'_> {
        IdleShard {
            number: self.shard,
            platform: &mut *self.platform,
            counters: &mut self.counters,
            waiting: &mut self.waiting,
            has_requests: !self.requests.is_empty(),
        }
    }

    /// Whether a read or write of a unit is for other cores.
    #[inline]
    pub(crate) fn is_handed_over(&self, unit: &Unit, length: usize) -> bool {
        // What costs no system call would have to be copied by the shard in any case.
        length >= self.handed_from && unit.attempt_cost == AttemptCost::SystemCall
    }

    pub(crate) fn clock(&self) -> Instant {
        self.platform.clock().unwrap_or(self.now)
    }

    /// An operation begins, which may be one of those that are followed.
    #[inline]
    pub(crate) fn follow(&mut self, protocol: ProtocolKind) -> Followed {
        if self.stages.is_next() {
            let now = self.clock();
            self.stages.follow(protocol, now)
        } else {
            Followed::NOT
        }
    }

    /// An operation has come to a stage, if it is one of those that are followed.
    #[inline]
    pub(crate) fn note_stage(&mut self, followed: Followed, stage: Stage) {
        if followed.is() {
            let now = self.clock();
            self.stages.reach(followed, stage, now);
        }
    }

    /// Whether requests of tasks of that connection, which ended early, are in flight.
    pub(crate) fn has_orphans_of(&self, connection: ConnectionAddress) -> bool {
        let mut owners = self.requests.owners().map(|in_flight| &in_flight.owner);
        owners.any(|owner| matches!(owner, Owner::Orphan(o) if o.connection == connection))
    }

    /// Has an order wait for the requests in flight whose tasks ended before it was given.
    pub(crate) fn hold_for_orphans(&mut self, order: &Arc<AbortOrder>) {
        for in_flight in self.requests.owners_mut() {
            if let Owner::Orphan(orphan) = &mut in_flight.owner
                && order.waits_for_orphans_of(in_flight.unit, orphan.connection)
            {
                orphan.orders.push(Arc::clone(order));
            }
        }
    }

    /// A write of this shard is over.
    pub(crate) fn leave_gate(&self, unit: usize) {
        let gate = &self.unit(unit).gate;
        gate.leave(self.shard, |task| self.shared.retry(unit, task));
    }

    /// Stores the reservations of a task's unit on a helper thread.
    pub(crate) fn persist(&self, task: TaskAddress, unit: Option<usize>, order: StoreOrder) {
        let shared = Arc::clone(&self.shared);
        let post = self.post().clone();
        let uuid = unit.map(|unit| self.unit(unit).volume.identity().uuid);
        self.shared.blocking.run(Box::new(move || {
            let stored = match (&shared.reservation_store, uuid) {
                (Some(store), Some(uuid)) => {
                    store.store(uuid, &order).inspect_err(|error| {
                        let path = store.path(uuid);
                        tracing::error!(path = %path.display(), %error, "reservations not stored");
                    })
                }
                .is_ok(),
                _ => false,
            };
            let note = Note::Persisted { task, stored };
            post.send(Message::Note(task.connection, note));
        }));
    }

    /// PREEMPT AND ABORT: the tasks of those preempted end before the command does, which `task` is.
    pub(crate) fn abort_for_preemption(
        &self,
        task: TaskAddress,
        unit: Option<usize>,
        participants: Vec<Arc<dyn Participant>>,
    ) {
        let Some(unit) = unit else {
            return;
        };
        let order = AbortOrder::new(
            AbortScope::Participants { unit, participants },
            Exception::Task(task),
            AbortNotice {
                waiter: AbortedFor::Task(task),
                post: self.post().clone(),
            },
        );
        self.shared.broadcast(|| Message::Abort(Arc::clone(&order)));
    }

    /// Flushes units; `waiter` is dropped when all has ended.
    pub(crate) fn flush_for(&mut self, waiter: &Arc<ShutdownFlush>, units: &[usize]) {
        for unit in units {
            let owner = Owner::Controller(Arc::clone(waiter));
            if let Some((_, ended)) = self.flush(*unit, owner) {
                self.log_flush(*unit, &ended.result);
            }
        }
    }

    /// Flushes a unit whose completed writes may be lost otherwise. The result, if it is there at once.
    pub(crate) fn flush(&mut self, unit: usize, owner: Owner) -> Option<(InFlight, Ended)> {
        let view = Arc::clone(&self.view);
        let volume = &view.exports.unit(unit).volume;
        let characteristics = volume.characteristics();
        if characteristics.read_only || characteristics.write_cache == WriteCache::None {
            return None;
        }
        let in_flight = InFlight {
            owner,
            unit,
            counted: false,
        };
        let request = Request::new(Operation::Flush);
        let platform = &mut *self.platform;
        let started = self.requests.start(volume, request, in_flight, platform);
        started.ended()
    }

    /// A flush that nobody asked for by a command has ended.
    pub(crate) fn log_flush(&self, unit: usize, result: &Result<Reply, VolumeError>) {
        if let Err(error) = result {
            let volume = &self.unit(unit).volume.identity().name;
            tracing::error!(volume, %error, "flush failed");
            self.view.exports.tell_of_failure(unit);
        }
    }

    /// Volumes begin what they do of their own accord on this shard.
    pub(crate) fn attach_volumes(&mut self) {
        let view = Arc::clone(&self.view);
        for (place, unit) in view.exports.units() {
            self.requests.attach(&unit.volume, &mut *self.platform);
            self.limits_changed.watch(&unit.throttle);
            self.resume_sanitize(place);
        }
    }

    /// Something else is exported from now on.
    pub(crate) fn take_over(&mut self, view: Arc<View>) {
        let before = std::mem::replace(&mut self.view, Arc::clone(&view));
        for (place, unit) in view.exports.added_since(&before.exports) {
            self.requests.attach(&unit.volume, &mut *self.platform);
            self.limits_changed.watch(&unit.throttle);
            self.resume_sanitize(place);
        }
        for place in view.exports.vacated_since(&before.exports) {
            self.stages.forget_unit(place);
        }
    }

    /// Has a unit's volume end what it does of its own accord. The result, if it is there at once.
    pub(crate) fn quiesce(&mut self, unit: usize, owner: Owner) -> Option<(InFlight, Ended)> {
        let in_flight = InFlight {
            owner,
            unit,
            counted: false,
        };
        let view = Arc::clone(&self.view);
        let volume = &view.exports.unit(unit).volume;
        let platform = &mut *self.platform;
        self.requests.quiesce(volume, in_flight, platform).ended()
    }

    /// Whether requests are under way, apart from those that end background work.
    pub(crate) fn has_requests(&self) -> bool {
        let mut owners = self.requests.owners().map(|in_flight| &in_flight.owner);
        owners.any(|owner| !owner.ends_background_work())
    }

    /// A task no longer wants the gate to itself.
    pub(crate) fn leave_exclusive(&self, unit: usize, task: TaskAddress) {
        let gate = &self.unit(unit).gate;
        gate.leave_exclusive(task, |task| self.shared.retry(unit, task));
    }
}
