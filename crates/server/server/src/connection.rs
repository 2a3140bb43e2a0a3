//! One connection: its socket, its protocol machine, its tasks.
//!
//! The driver feeds, polls, repeats: bytes from the socket go into the machine, what the
//! machine says happened is done, and what it queued leaves in one send at the end of the turn. What
//! iSCSI and NVMe/TCP have in common is here and in `medium`; what a [`Protocol`] adds is in the
//! module of that name.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::IoSliceMut;
use std::ops::ControlFlow;
use std::sync::Arc;

use longshore_block::command::CommandEvent;
use longshore_volume::Ended;
use longshore_wire::transmit::Transmit;

use crate::abort::AbortOrder;
use crate::activity::Activity;
use crate::budget::SHARE_MIN;
use crate::channel::{Channel, Received, Sent};
use crate::config::Limits;
use crate::core::Core;
use crate::message::{ConnectionAddress, Note, TaskAddress};
use crate::observe::{ConnectionStatistics, ProtocolKind};
use crate::request::{InFlight, Orphan, Owner};
use crate::share::Stake;
use crate::stall::Stall;
use crate::task::{Task, TaskState, Tasks};
use crate::write_data;

/// While so much waits to be sent, no more reads are started.
const BACKED_UP_BYTES: usize = 1 << 20;
/// While a connection reads this part of all memory, it starts no more reads.
const READING_PART: usize = 16;
/// Payload from this length on is received straight into the buffer it belongs to.
const DIRECT_RECEIVE_BYTES: u32 = 4096;
/// While the peer sends pieces from this length on that it was asked for, little is received behind the
/// piece under way: what arrives there has to be copied, up to the next piece that can be placed.
const PLACED_BYTES: u32 = 16 << 10;
const BEHIND_PLACED_BYTES: usize = 8 << 10;
/// For so many receives after such a piece it is taken that more of them come.
const PLACED_REMEMBERED: u8 = 4;
/// Receives of one connection in one turn; others come next.
const RECEIVES_PER_TURN: usize = 4;

/// Where the next bytes of write data belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadWanted {
    /// Number of the task.
    pub slot: u32,
    pub buffer_offset: u32,
    pub length: u32,
    /// The peer was asked for them.
    pub solicited: bool,
}

/// What a protocol adds to a connection: its machine, and what its commands are.
pub(crate) trait Protocol: Debug + Send + Sized + 'static {
    /// What a task is to the protocol.
    type Work: Debug + Send;
    /// Its name for statistics.
    const KIND: ProtocolKind;

    /// Where the next bytes from the socket belong, if that is known.
    fn payload_wanted(&self) -> Option<PayloadWanted>;
    /// Bytes were received to where they belong.
    fn payload_received(&mut self, placed: &[u8], now_ms: u64);
    /// Something was sent.
    fn sent(&mut self, now_ms: u64);
    /// Whether a digest covers what is read.
    fn has_data_digest(&self) -> bool;
    /// Place in the transmit queue for what a task reads, behind its header. `None`: it does not fit.
    fn begin_inline_read<'t>(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &'t mut Transmit,
    ) -> Option<&'t mut [u8]>;
    /// The same in one go, answer included: see the machines' functions of that name.
    fn read_inline(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &mut Transmit,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<bool>;
    /// The place is not needed after all.
    fn rollback_inline_read(&mut self, slot: u32, transmit: &mut Transmit);
    /// Whether it takes input now.
    fn receives(&self) -> bool;
    /// Whether the login, or what comes in its place, is over.
    fn is_established(&self) -> bool;
    /// Name of the initiator or host, once it is known.
    fn peer_name(&self) -> Option<&str>;
    /// Whether it counts when connections are spread over shards.
    fn is_load(&self) -> bool {
        true
    }
    /// Whether it may go to another shard: nobody there knows it by its address here, and it waits for nothing
    /// but its own tasks.
    fn may_move(&self) -> bool;
    /// When [`Self::handle_deadline`] has something to do.
    fn next_deadline_ms(&self) -> Option<u64>;
    /// Does what is due.
    fn handle_deadline(connection: &mut Connection<Self>, core: &mut Core);
    /// Feeds bytes to the machine and does what it says. There may be none, when payload that was placed
    /// is all that came: the machine has something to say then, too.
    fn process(connection: &mut Connection<Self>, core: &mut Core, input: &[u8]);
    /// Lets a task begin that has all it needs.
    fn begin(connection: &mut Connection<Self>, core: &mut Core, task: Task<Self::Work>);
    /// Goes on with a task that waited, or began.
    fn run(
        connection: &mut Connection<Self>,
        core: &mut Core,
        task: Task<Self::Work>,
        event: CommandEvent,
    );
    /// Lets tasks run that waited for others. Returns whether any ran.
    fn run_waiting(connection: &mut Connection<Self>, core: &mut Core) -> bool;
    /// Tries again to get memory for the write data of a task in [`TaskState::Memory`].
    fn retry_memory(connection: &mut Connection<Self>, core: &mut Core, task: Task<Self::Work>);
    /// A task ended; its memory is free already.
    fn task_ended(connection: &mut Connection<Self>, work: &Self::Work);
    /// Nothing but tasks and what is to be sent may be in progress.
    fn is_quiet(&self) -> bool;
    /// Carries out what an abort order says about this connection's tasks. Returns whether any ended.
    fn obey(connection: &mut Connection<Self>, core: &mut Core, order: &Arc<AbortOrder>) -> bool;
    /// Takes a message.
    fn take_note(connection: &mut Connection<Self>, core: &mut Core, note: Note);
    /// The server is about to end: asks the peer to leave. `false`: close at once.
    fn begin_drain(connection: &mut Connection<Self>, core: &mut Core) -> bool;
    /// The peer did not leave, and has nothing in progress: tells it that the connection ends.
    fn announce_drop(connection: &mut Connection<Self>, core: &mut Core);
    /// The connection is over. Requests in flight live on as orphans.
    fn tear_down(connection: &mut Connection<Self>, core: &mut Core);
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Connection<P: Protocol> {
    pub channel: Channel,
    pub protocol: P,
    pub tasks: Tasks<P::Work>,
    /// Tasks that wait for room to answer, oldest first.
    pub deferred: VecDeque<TaskAddress>,
    /// Bytes of memory that tasks read into, or wait for.
    pub reading: usize,
    /// Bytes of memory that tasks hold for write data, or have been promised.
    pub writing: usize,
    /// Bytes of memory that tasks read into.
    pub filling: usize,
    /// What the connection has of its host's share of memory.
    pub stake: Stake,
    /// For how long the peer has not moved.
    pub stall: Stall,
    /// Large pieces of write data come, and are received to where they belong, for so many receives yet.
    placing: u8,
}

/// A connection as its shard sees it.
pub(crate) trait Driven: Debug + Send {
    /// Its socket.
    fn channel(&self) -> &Channel;
    /// Its socket.
    fn channel_mut(&mut self) -> &mut Channel;
    /// Whether the login, or what comes in its place, is over.
    fn is_established(&self) -> bool;
    /// See [`Protocol::is_load`].
    fn is_load(&self) -> bool;
    /// Whether it is one that moves to other shards.
    fn may_move(&self) -> bool;
    /// Whether it can now: nobody else works for its tasks.
    fn is_at_rest(&self, core: &Core) -> bool;
    /// Leaves its shard.
    fn depart(&mut self, core: &mut Core);
    /// Comes to another shard.
    fn arrive(&mut self, core: &mut Core, address: ConnectionAddress);
    /// Whether there is something to receive and room for what may come of it.
    fn wants_turn(&self) -> bool;
    /// Nothing of it is in progress.
    fn is_quiet(&self) -> bool;
    /// What it has done.
    fn statistics(&mut self) -> ConnectionStatistics;
    /// Whether that task waits here.
    fn has_task(&self, task: TaskAddress) -> bool;
    /// Receives and acts, for one turn.
    fn receive_turn(&mut self, core: &mut Core) -> ControlFlow<()>;
    /// Sends as much as the socket takes, and lets deferred tasks use the room.
    fn flush(&mut self, core: &mut Core) -> ControlFlow<()>;
    /// Tries the medium again for a task that waited for the gate or for memory.
    fn retry(&mut self, core: &mut Core, task: TaskAddress);
    /// A storage request of a task ended.
    fn storage_done(
        &mut self,
        core: &mut Core,
        task: TaskAddress,
        in_flight: InFlight,
        ended: Ended,
    );
    /// When [`Self::handle_deadline`] has something to do.
    fn next_deadline_ms(&self) -> Option<u64>;
    /// Does what is due.
    fn handle_deadline(&mut self, core: &mut Core);
    /// Whether its peer may keep memory and not have moved for a while.
    fn may_make_room(&self, core: &Core) -> bool;
    /// Ends, if its peer has not moved for too long. `for_room`: somebody finds no memory.
    fn cut_if_stalled(&mut self, core: &mut Core, for_room: bool);
    /// See [`Protocol::obey`].
    fn obey(&mut self, core: &mut Core, order: &Arc<AbortOrder>) -> bool;
    /// Takes a message.
    fn take_note(&mut self, core: &mut Core, note: Note);
    /// See [`Protocol::begin_drain`].
    fn begin_drain(&mut self, core: &mut Core) -> bool;
    /// See [`Protocol::announce_drop`].
    fn announce_drop(&mut self, core: &mut Core);
    /// Ends everything the connection has in progress.
    fn tear_down(&mut self, core: &mut Core);
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn new(channel: Channel, protocol: P, limits: &Limits) -> Self {
        Self {
            channel,
            protocol,
            tasks: Tasks::default(),
            deferred: VecDeque::new(),
            reading: 0,
            writing: 0,
            filling: 0,
            stake: Stake::default(),
            stall: Stall::new(limits.stall_timeout),
            placing: 0,
        }
    }

    /// So much waits to be sent, or is being read, that further reads had better wait.
    pub(crate) fn is_backed_up(&mut self, core: &mut Core) -> bool {
        !self.deferred.is_empty() || !self.has_room(core)
    }

    /// Whether a read may start. Connections that take nothing of what they ask for must not hold
    /// all the memory there is.
    #[inline]
    fn has_room(&mut self, core: &mut Core) -> bool {
        let memory = usize::try_from(core.shared.limits.memory).unwrap_or(usize::MAX);
        self.channel.transmit.pending_bytes() < BACKED_UP_BYTES
            && self.channel.has_room_for_read(core)
            && self.reading < (memory / READING_PART).max(BACKED_UP_BYTES)
    }

    /// Gives back the table of tasks, if the machine has given back the transmit queue: it has been silent for long.
    pub(crate) fn release_idle_memory(&mut self) {
        if self.channel.transmit.memory() == 0 {
            self.tasks.release_memory();
        }
    }

    /// Keeps a task until there is room for its answer.
    pub(crate) fn defer(&mut self, mut task: Task<P::Work>) {
        task.state = TaskState::Deferred;
        self.deferred.push_back(task.address);
        self.tasks.park(task);
    }

    fn receive(&mut self, core: &mut Core) -> ControlFlow<()> {
        if self.channel.discards() {
            return self.channel.discard(&mut core.receive_buffer);
        }
        let is_short = core.transmit_part.is_short();
        self.channel.transmit.keep(if is_short {
            SHARE_MIN
        } else {
            core.transmit_share
        });
        let mut receive_buffer = std::mem::take(&mut core.receive_buffer);
        let direct = self
            .protocol
            .payload_wanted()
            .filter(|w| w.length >= DIRECT_RECEIVE_BYTES);
        if direct.is_some_and(|wanted| wanted.solicited && wanted.length >= PLACED_BYTES) {
            self.placing = PLACED_REMEMBERED;
        }
        let behind = if self.placing > 0 {
            self.placing -= 1;
            BEHIND_PLACED_BYTES
        } else if is_short {
            // Every byte of it may ask for one: a ping is answered however much waits.
            SHARE_MIN
        } else {
            receive_buffer.len()
        };
        let place = direct.and_then(|wanted| {
            let task = self.tasks.get_mut(wanted.slot)?;
            let (start, length) = (wanted.buffer_offset as usize, wanted.length as usize);
            write_data::place(task, core, start, length)
        });
        let (received, placed_max) = match place {
            Some(place) => {
                let room = core.fairness.receive_room(place.len() + behind);
                let placed_max = place.len().min(room);
                let mut buffers = [
                    IoSliceMut::new(&mut place[..placed_max]),
                    IoSliceMut::new(&mut receive_buffer[..room - placed_max]),
                ];
                let counters = &mut core.counters;
                (
                    self.channel.receive(&mut buffers, room, counters),
                    placed_max,
                )
            }
            None => {
                let room = core.fairness.receive_room(behind);
                let buffers = &mut [IoSliceMut::new(&mut receive_buffer[..room])];
                let counters = &mut core.counters;
                (self.channel.receive(buffers, room, counters), 0)
            }
        };
        let flow = match received {
            Received::End => {
                // Perhaps one direction only: the answers that are ready are its due.
                while self.channel.may_send() {
                    if self.send(core).is_break() {
                        break;
                    }
                }
                ControlFlow::Break(())
            }
            Received::Bytes(n) => {
                core.fairness.received(n);
                let placed = n.min(placed_max);
                if placed > 0 {
                    core.counters.placed_bytes += placed as u64;
                    self.note_placed(placed, core.now_ms);
                }
                if core.stages.wants_time(n - placed) {
                    let now = core.clock();
                    core.stages.received(now);
                }
                P::process(self, core, &receive_buffer[..n - placed]);
                ControlFlow::Continue(())
            }
            Received::Nothing => ControlFlow::Continue(()),
            Received::Failed => ControlFlow::Break(()),
        };
        core.receive_buffer = receive_buffer;
        self.channel.note_memory(core);
        flow
    }

    /// Tells the machine of payload that went straight to its place.
    fn note_placed(&mut self, placed: usize, now_ms: u64) {
        let wanted = self
            .protocol
            .payload_wanted()
            .expect("asked for before the receive");
        let task = self
            .tasks
            .get_mut(wanted.slot)
            .expect("its memory was received into");
        self.stall.given(now_ms);
        let start = wanted.buffer_offset as usize;
        let bytes = task.data_out.as_deref().unwrap_or_default();
        self.protocol
            .payload_received(&bytes[start..start + placed], now_ms);
    }

    pub(crate) fn send(&mut self, core: &mut Core) -> ControlFlow<()> {
        match self.channel.send(core) {
            Sent::Some => {
                self.stall.taken(core.now_ms);
                self.protocol.sent(core.now_ms);
                ControlFlow::Continue(())
            }
            Sent::Nothing => ControlFlow::Continue(()),
            Sent::Failed => ControlFlow::Break(()),
        }
    }

    /// A response may be ready: sends it before the turn ends, if that is the policy.
    #[inline]
    pub(crate) fn respond(&mut self, core: &mut Core) {
        let ready = self.channel.transmit.pending_bytes();
        if ready >= self.channel.policy.early_limit()
            && self.channel.may_send()
            && self.channel.policy.leaves_early(ready)
        {
            // A broken connection fails again when the turn ends, and is closed then.
            let _ = self.send(core);
        }
    }

    /// Runs tasks that waited for room. Returns whether any ran.
    fn run_deferred(&mut self, core: &mut Core) -> bool {
        let mut ran = false;
        while self.has_room(core) {
            let Some(address) = self.deferred.pop_front() else {
                break;
            };
            if let Some(task) = self.tasks.take_exact(address) {
                debug_assert!(matches!(task.state, TaskState::Deferred));
                P::begin(self, core, task);
                self.respond(core);
                ran = true;
            }
        }
        ran
    }

    /// A message for a task in [`TaskState::Elsewhere`] came.
    pub(crate) fn resume(&mut self, core: &mut Core, address: TaskAddress, event: CommandEvent) {
        if let Some(task) = self.tasks.take_exact(address) {
            debug_assert!(matches!(task.state, TaskState::Elsewhere));
            P::run(self, core, task, event);
        }
    }

    /// Lets the storage request of a task that ends without an answer live on by itself, with what
    /// waits for its end.
    pub(crate) fn orphan(
        &self,
        core: &mut Core,
        task: &mut Task<P::Work>,
        orders: Vec<Arc<AbortOrder>>,
        activity: Option<&Arc<Activity>>,
    ) {
        let TaskState::Storage { request } = task.state else {
            return;
        };
        let exclusive = std::mem::take(&mut task.exclusive);
        let in_flight = core.requests.owner_mut(request);
        let in_flight = in_flight.expect("the task waits for it");
        in_flight.owner = Owner::Orphan(Orphan {
            connection: self.channel.address,
            orders,
            activity: activity.cloned(),
            exclusive: task
                .unit
                .filter(|_| exclusive)
                .map(|unit| (unit, task.address)),
        });
    }

    /// A task has ended: its memory is free, and others may run.
    #[inline]
    pub(crate) fn let_go(&mut self, core: &mut Core, mut task: Task<P::Work>) {
        if task.followed.is() {
            self.channel.follow_response(core, task.followed);
        }
        self.release_gate(core, &mut task);
        self.reading -= task.reading;
        self.writing -= task.writing;
        self.filling -= task.filling;
        task.give_back_memory(core);
        self.note_held();
        P::task_ended(self, &task.work);
    }

    /// The task no longer keeps others from writing.
    fn release_gate(&self, core: &Core, task: &mut Task<P::Work>) {
        if std::mem::take(&mut task.exclusive)
            && let Some(unit) = task.unit
        {
            core.leave_exclusive(unit, task.address);
        }
    }
}

impl<P: Protocol> Driven for Connection<P> {
    fn channel(&self) -> &Channel {
        &self.channel
    }

    fn channel_mut(&mut self) -> &mut Channel {
        &mut self.channel
    }

    fn is_established(&self) -> bool {
        self.protocol.is_established()
    }

    fn is_load(&self) -> bool {
        self.protocol.is_load()
    }

    fn may_move(&self) -> bool {
        self.protocol.may_move() && !self.channel.is_closing()
    }

    fn is_at_rest(&self, core: &Core) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.all(|task| task.state.moves() && !task.exclusive)
            && !core.has_orphans_of(self.channel.address)
    }

    fn depart(&mut self, core: &mut Core) {
        for task in self.tasks.iter_mut() {
            core.stages.drop(std::mem::take(&mut task.followed));
        }
        self.channel.depart(core);
    }

    fn arrive(&mut self, core: &mut Core, address: ConnectionAddress) {
        self.channel.arrive(core, address);
        for task in self.tasks.iter_mut() {
            task.address.connection = address;
            if let TaskState::Memory { .. } = task.state {
                // It stands in line anew.
                core.memory_line.wait(task.address, false);
            }
        }
        for task in &mut self.deferred {
            task.connection = address;
        }
    }

    fn wants_turn(&self) -> bool {
        self.channel.wants_turn(self.protocol.receives())
    }

    fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.channel.transmit.is_empty() && self.protocol.is_quiet()
    }

    fn statistics(&mut self) -> ConnectionStatistics {
        ConnectionStatistics {
            shard: self.channel.address.shard,
            slot: self.channel.address.slot,
            peer: self.channel.peer,
            protocol: P::KIND,
            established: self.is_established(),
            moves: self.channel.migration.moves,
            counts: self.channel.counts,
            transmit: self.channel.policy.take_statistics(),
            pending_bytes: self.channel.transmit.pending_bytes(),
            transmit_bytes: self.channel.transmit.memory() + self.channel.transmit.list_memory(),
            task_bytes: self.tasks.memory(),
            reading_bytes: self.reading,
            writing_bytes: self.writing,
        }
    }

    fn has_task(&self, task: TaskAddress) -> bool {
        self.tasks.is_current(task)
    }

    fn receive_turn(&mut self, core: &mut Core) -> ControlFlow<()> {
        for _ in 0..RECEIVES_PER_TURN {
            if !self.wants_turn() || !core.fairness.may_receive() {
                break;
            }
            if self.receive(core).is_break() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn flush(&mut self, core: &mut Core) -> ControlFlow<()> {
        loop {
            while self.channel.may_send() && core.fairness.may_send() {
                if self.send(core).is_break() {
                    return ControlFlow::Break(());
                }
            }
            if !core.fairness.may_send() || self.channel.migration.leaving {
                // The rest, and what waits for room, is for the next turn.
                break;
            }
            if !self.run_deferred(core) && !P::run_waiting(self, core) {
                break;
            }
        }
        self.channel.note_memory(core);
        self.note_held();
        self.look_at_progress(core.now_ms);
        self.channel.end_turn(core);
        self.channel.continue_closing(core.now_ms)
    }

    fn retry(&mut self, core: &mut Core, task: TaskAddress) {
        self.retry_medium(core, task);
        self.respond(core);
    }

    fn storage_done(
        &mut self,
        core: &mut Core,
        task: TaskAddress,
        in_flight: InFlight,
        ended: Ended,
    ) {
        self.medium_done(core, task, in_flight, ended);
        self.respond(core);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.channel.close_by_ms().or_else(|| {
            let protocol = self.protocol.next_deadline_ms();
            protocol.into_iter().chain(self.stall.deadline_ms()).min()
        })
    }

    fn handle_deadline(&mut self, core: &mut Core) {
        P::handle_deadline(self, core);
        if self.is_stall_due(core.now_ms) {
            core.suspects.push(self.channel.address.slot);
        }
    }

    fn may_make_room(&self, core: &Core) -> bool {
        self.may_make_room(core.now_ms)
    }

    fn cut_if_stalled(&mut self, core: &mut Core, for_room: bool) {
        self.cut_if_stalled(core, for_room);
    }

    fn obey(&mut self, core: &mut Core, order: &Arc<AbortOrder>) -> bool {
        P::obey(self, core, order)
    }

    fn take_note(&mut self, core: &mut Core, note: Note) {
        P::take_note(self, core, note);
    }

    fn begin_drain(&mut self, core: &mut Core) -> bool {
        P::begin_drain(self, core)
    }

    fn announce_drop(&mut self, core: &mut Core) {
        P::announce_drop(self, core);
    }

    fn tear_down(&mut self, core: &mut Core) {
        P::tear_down(self, core);
        self.channel.tear_down(core);
    }
}
