//! What the connections of one shard share: engine, memory, requests, mail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use longshore_block::command::DataLocation;
use longshore_block::reservation::{Participant, StoreOrder};
use longshore_reactor::{BlockingPool, Buffer, BufferPool, MemoryBudget, PagePipes};
use longshore_volume::{AttemptCost, Ended, Operation, Reply, Request, VolumeError, WriteCache};
use longshore_wire::transmit::PayloadId;

use crate::abort::{AbortOrder, AbortScope, Exception};
use crate::budget::{self, Part};
use crate::config::{Copies, Limits, ReactorConfig, Spread, TransmitConfig};
use crate::exports::{Exports, Unit};
use crate::fairness::Fairness;
use crate::iscsi::sessions::Sessions;
use crate::mail::Post;
use crate::memory_line::MemoryLine;
use crate::message::{AbortedFor, ConnectionAddress, Message, Note, TaskAddress};
use crate::nvme::admin::ShutdownFlush;
use crate::nvme::hosts::Hosts;
use crate::observe::collect::Board;
use crate::observe::stages::{Followed, Stage, Stages};
use crate::observe::{Counters, ProtocolKind};
use crate::placement::addresses::ConnectionAddresses;
use crate::placement::load::Load;
use crate::platform::{Link, Platform};
use crate::refusals::Refusals;
use crate::request::{InFlight, Owner, Requests};
use crate::reservation_store::ReservationStore;
use crate::share::Shares;
use crate::spin::WaitingState;

/// Bytes taken from a socket at a time.
const RECEIVE_BYTES: usize = 256 << 10;

/// What all shards share.
pub(crate) struct Shared {
    pub exports: Exports,
    pub sessions: Sessions,
    pub hosts: Hosts,
    /// What memory hosts and initiators hold.
    pub shares: Shares,
    pub limits: Limits,
    /// As the server was started; each [`Core`] has what holds now.
    pub transmit: TransmitConfig,
    pub copies: Copies,
    pub reactor: ReactorConfig,
    pub posts: Vec<Post>,
    /// Where connections are that have moved.
    pub addresses: ConnectionAddresses,
    /// How busy each shard is.
    pub loads: Vec<Load>,
    /// Connections of each shard that count as load.
    pub connections: Vec<AtomicUsize>,
    /// Connections of each shard that have not finished their login.
    pub pending_logins: Vec<AtomicUsize>,
    pub reservation_store: Option<ReservationStore>,
    pub blocking: BlockingPool,
    pub closing: AtomicBool,
    /// Shards that may still write.
    pub shards_busy: AtomicUsize,
    /// What payload memory of all shards counts against.
    pub budget: Arc<MemoryBudget>,
    /// What shards tell of their counters.
    pub board: Board,
    /// One operation in so many is followed.
    pub sample: u32,
}

impl Shared {
    pub(crate) fn unit(&self, index: usize) -> &Unit {
        &self.exports.units[index]
    }

    /// Something went wrong with a volume. If it is the volume as a whole that has failed, hosts that
    /// want to know are told, once.
    #[cold]
    pub(crate) fn tell_of_failure(&self, unit: usize) {
        let failed = self.unit(unit);
        if !failed.volume.condition().is_sound() && failed.statistics.is_news() {
            self.exports.nvme.subsystems.health_changed(unit);
        }
    }

    /// Tells a task's shard to let it try again.
    pub(crate) fn retry(&self, task: TaskAddress) {
        self.posts[task.connection.shard as usize].send(Message::Retry(task));
    }

    /// Connections that have not finished their login.
    pub(crate) fn pending_logins(&self) -> usize {
        let of_shards = self.pending_logins.iter();
        of_shards.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Connections that count as load, or may come to.
    pub(crate) fn connections(&self) -> usize {
        let of_shards = self.connections.iter();
        of_shards.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The shard with most connections that have not finished their login.
    pub(crate) fn most_crowded(&self) -> usize {
        let pending = |shard: &usize| self.pending_logins[*shard].load(Ordering::Relaxed);
        (0..self.posts.len()).max_by_key(pending).unwrap_or(0)
    }

    /// Gives a new connection to a shard. At the limit of pending logins the shard with most of them
    /// is told to make room: if newcomers were turned away instead, a few silent connections would
    /// keep everybody out.
    pub(crate) fn give(&self, shard: usize, link: Box<dyn Link>, portal: usize) {
        let is_full = self.pending_logins() >= self.limits.pending_logins;
        let crowded = is_full.then(|| self.most_crowded());
        // Counted before the other shard looks whether there are too many.
        self.pending_logins[shard].fetch_add(1, Ordering::Relaxed);
        if let Some(crowded) = crowded {
            self.posts[crowded].send(Message::MakeRoom);
        }
        self.connections[shard].fetch_add(1, Ordering::Relaxed);
        self.posts[shard].send(Message::Accepted { link, portal });
    }

    /// Sends to every shard; each connection gets it once.
    pub(crate) fn broadcast(&self, message: impl FnMut() -> Message) {
        self.addresses.broadcast(&self.posts, message);
    }

    /// Closes the connection of that name, wherever it is.
    pub(crate) fn close(&self, name: ConnectionAddress) {
        let message = Message::CloseConnection(name);
        self.addresses.send(&self.posts, name, message);
    }

    /// Whether connections move.
    pub(crate) fn rebalances(&self) -> bool {
        self.reactor.rebalance && self.posts.len() > 1
    }

    /// Whether shards look at how busy they are.
    pub(crate) fn watches_load(&self) -> bool {
        self.rebalances() || self.reactor.spread == Spread::Always
    }

    /// A connection that counts as load goes from one shard to another.
    pub(crate) fn move_load(&self, from: usize, to: usize) {
        self.connections[from].fetch_sub(1, Ordering::Relaxed);
        self.connections[to].fetch_add(1, Ordering::Relaxed);
    }
}

/// See the module documentation.
pub(crate) struct Core {
    pub shard: usize,
    pub shared: Arc<Shared>,
    pub platform: Box<dyn Platform>,
    pub pool: BufferPool,
    pub pipes: PagePipes,
    pub requests: Requests,
    /// Where bytes from sockets land whose place is not known yet. Empty between turns.
    pub receive_buffer: Box<[u8]>,
    /// Milliseconds since all shards started, at the beginning of this turn.
    pub now_ms: u64,
    /// Reused by every send.
    pub released: Vec<PayloadId>,
    /// Tasks that wait for memory.
    pub memory_line: MemoryLine,
    /// Connections that were refused some.
    pub refusals: Refusals,
    /// What part of a turn each connection gets.
    pub fairness: Fairness,
    /// Whether no more than one connection had something to say in this turn.
    pub alone: bool,
    /// Somebody found no memory since it was said last.
    pub is_short: bool,
    /// Slots of connections whose peers may have stalled.
    pub suspects: Vec<u32>,
    /// When the shard went on after it had stood still.
    pub stood_still_until_ms: u64,
    /// How the shard waits.
    pub waiting: WaitingState,
    /// Since when all who wanted memory found none.
    pub failing_since_ms: Option<u64>,
    /// When one of them found none last.
    pub failed_ms: u64,
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
        shared: Arc<Shared>,
        platform: Box<dyn Platform>,
        pool: BufferPool,
        now: Instant,
    ) -> Self {
        let post = shared.posts[shard].clone();
        Self {
            shard,
            transmit: shared.transmit,
            transmit_part: Part::new(shared.limits.memory, shared.posts.len()),
            stages: Stages::new(shared.sample, now),
            shared,
            platform,
            pool,
            pipes: PagePipes::default(),
            requests: Requests::new(move || post.send(Message::RequestsWoken)),
            receive_buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            now_ms: 0,
            released: Vec::new(),
            memory_line: MemoryLine::default(),
            refusals: Refusals::default(),
            fairness: Fairness::default(),
            alone: true,
            is_short: false,
            suspects: Vec::new(),
            stood_still_until_ms: 0,
            waiting: WaitingState::default(),
            failing_since_ms: None,
            failed_ms: 0,
            handed_from: usize::MAX,
            counters: Counters::default(),
            now,
            transmit_share: budget::SHARE_MAX,
        }
    }

    pub(crate) fn post(&self) -> &Post {
        &self.shared.posts[self.shard]
    }

    /// Whether a read or write of a unit is for other cores.
    #[inline]
    pub(crate) fn is_handed_over(&self, unit: &Unit, length: usize) -> bool {
        // What costs no system call would have to be copied by the shard in any case.
        length >= self.handed_from && unit.attempt_cost == AttemptCost::SystemCall
    }

    /// The time now.
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

    /// Gives memory back, if there is any.
    pub(crate) fn recycle(&mut self, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer {
            self.pool.put(buffer);
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
        self.shared
            .unit(unit)
            .gate
            .leave(self.shard, |task| self.shared.retry(task));
    }

    /// Stores the reservations of a task's unit on a helper thread.
    pub(crate) fn persist(&self, task: TaskAddress, unit: Option<usize>, order: StoreOrder) {
        let shared = Arc::clone(&self.shared);
        let post = self.post().clone();
        self.shared.blocking.run(Box::new(move || {
            let stored = match (&shared.reservation_store, unit) {
                (Some(store), Some(unit)) => {
                    let uuid = shared.unit(unit).volume.identity().uuid;
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
            AbortedFor::Task(task),
            self.post().clone(),
        );
        self.shared.broadcast(|| Message::Abort(Arc::clone(&order)));
    }

    /// Flushes units; `waiter` is dropped when all has ended.
    pub(crate) fn flush_for(&mut self, waiter: &Arc<ShutdownFlush>, units: &[usize]) {
        let shared = Arc::clone(&self.shared);
        for unit in units {
            let owner = Owner::Controller(Arc::clone(waiter));
            if let Some((_, ended)) = self.flush(&shared, *unit, owner) {
                log_flush(&shared, *unit, &ended.result);
            }
        }
    }

    /// Flushes a unit whose completed writes may be lost otherwise. The result, if it is there at once.
    pub(crate) fn flush(
        &mut self,
        shared: &Shared,
        unit: usize,
        owner: Owner,
    ) -> Option<(InFlight, Ended)> {
        let volume = &shared.unit(unit).volume;
        let characteristics = volume.characteristics();
        if characteristics.read_only || characteristics.write_cache == WriteCache::None {
            return None;
        }
        let in_flight = InFlight {
            owner,
            unit,
            payload: DataLocation::None,
            counted: false,
        };
        let request = Request::new(Operation::Flush);
        let platform = &mut *self.platform;
        let started = self.requests.start(volume, request, in_flight, platform);
        started.ended()
    }

    /// Volumes begin what they do of their own accord on this shard.
    pub(crate) fn attach_volumes(&mut self) {
        let shared = Arc::clone(&self.shared);
        for unit in &shared.exports.units {
            self.requests.attach(&unit.volume, &mut *self.platform);
        }
    }

    /// Has a unit's volume end what it does of its own accord. The result, if it is there at once.
    pub(crate) fn quiesce(&mut self, shared: &Shared, unit: usize) -> Option<(InFlight, Ended)> {
        let in_flight = InFlight {
            owner: Owner::Quiesce,
            unit,
            payload: DataLocation::None,
            counted: false,
        };
        let volume = &shared.unit(unit).volume;
        let platform = &mut *self.platform;
        self.requests.quiesce(volume, in_flight, platform).ended()
    }

    /// Whether requests are under way, apart from those that end background work.
    pub(crate) fn has_requests(&self) -> bool {
        let mut owners = self.requests.owners().map(|in_flight| &in_flight.owner);
        owners.any(|owner| !matches!(owner, Owner::Quiesce))
    }

    /// A task no longer wants the gate to itself.
    pub(crate) fn leave_exclusive(&self, unit: usize, task: TaskAddress) {
        self.shared
            .unit(unit)
            .gate
            .leave_exclusive(task, |task| self.shared.retry(task));
    }
}

/// A flush that nobody asked for by a command has ended.
pub(crate) fn log_flush(shared: &Shared, unit: usize, result: &Result<Reply, VolumeError>) {
    if let Err(error) = result {
        let volume = &shared.unit(unit).volume.identity().name;
        tracing::error!(volume, %error, "flush failed");
        shared.tell_of_failure(unit);
    }
}
