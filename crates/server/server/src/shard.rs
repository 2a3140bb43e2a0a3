//! A shard: one reactor thread with its connections.
//!
//! One turn takes in everything that has happened, runs it, and sends all responses of a connection
//! with one call:
//!
//! ```text
//! wait ─► events: mark readable/writable, end storage requests, read mail ─► due timers
//!   ▲                                                                            │
//!   └── send what the turn queued ◄── receive from listed connections ◄──────────┘
//! ```
//!
//! A connection that has used up its turn stays listed, and the next wait does not sleep. At its end, a turn sends
//! connections away that are to go to another shard ([`crate::placement`]).

mod arrivals;
mod drain;
mod moves;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longshore_reactor::storage::FileCompletion;
use longshore_reactor::{EngineEvent, Readiness, SocketToken, TimerId, TimerQueue};
use longshore_volume::Ended;

use crate::budget;
use crate::connection::Driven;
use crate::core::{Core, log_flush};
use crate::listeners::Listeners;
use crate::mail::Inbox;
use crate::message::{ConnectionAddress, Message};
use crate::observe::collect::ShardReport;
use crate::observe::published::Published;
use crate::placement::arrived::ArrivedConnections;
use crate::placement::balance::{Balance, Plan};
use crate::placement::spread::Spread;
use crate::request::{InFlight, Owner};
use crate::spin::Waiting;
use crate::stall::{asking_interval_ms, standstill_ms};
use moves::Leaving;
use std::ops::ControlFlow;

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    /// A connection's next deadline.
    Connection(ConnectionAddress),
    /// Listeners that stopped early, or ran out of file descriptors, go on.
    Accept,
    /// Tasks that wait for memory try again: another shard may have given some back.
    Memory,
    /// Sessions that have nothing more to do are closed.
    DrainQuiet,
    /// All sessions have had their time to end.
    Drain,
    /// A connection that has not come to rest stays on this shard.
    Leave,
    /// Volumes have had their time to end what they do of their own accord.
    Quiesce,
}

/// How long tasks without memory wait before they look again.
const MEMORY_RETRY: Duration = Duration::from_millis(5);

/// What comes after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Another turn: when something happens, or at that time.
    Wait(Option<Instant>),
    /// Nothing; the shard has ended.
    Ended,
}

/// How far the end of the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Sessions end.
    Draining,
    /// Connections and their requests are gone. Volumes end what they do of their own accord.
    Quiescing,
    /// This shard writes no more. The last shard to get here flushes.
    Flushing,
}

#[derive(Debug)]
struct ConnectionSlot {
    generation: u32,
    connection: Option<Box<dyn Driven>>,
}

/// See the module documentation.
pub(crate) struct Shard {
    core: Core,
    inbox: Inbox,
    listeners: Option<Listeners>,
    slots: Vec<ConnectionSlot>,
    free: Vec<u32>,
    timers: TimerQueue<Timer>,
    /// Connections that have not finished their login, oldest first, among others that have, or are
    /// gone.
    pending: VecDeque<ConnectionAddress>,
    /// Connections to be received from.
    listed: Vec<u32>,
    /// Those whose turn it is.
    listing: Vec<u32>,
    /// Connections with something to send, or that ended. Who comes first is answered first: peers that wait for
    /// answers before they ask for more have equal shares only then.
    dirty: VecDeque<u32>,
    /// Connections that are idle unless something has come for them by the next turn.
    quiet: Vec<u32>,
    /// Connections that have sent what may wait for the peer ([`Channel::waits_until`]).
    ///
    /// [`Channel::waits_until`]: crate::channel::Channel::waits_until
    waiting: Vec<u32>,
    /// Connections whose part of this turn was not enough for what they have to send.
    unfinished: VecDeque<u32>,
    arrived: ArrivedConnections,
    balance: Balance,
    spread: Spread,
    /// What is to go to another shard.
    plan: Option<Plan>,
    leaving: Option<Leaving>,
    /// When all shards started.
    started: Instant,
    /// Time of this turn.
    now: Instant,
    phase: Phase,
    memory_timer: bool,
    /// Somebody finds no memory: stalled peers are to make room in this turn.
    memory_short: bool,
    /// When the next turn is to be at the latest.
    wait_until: Option<Instant>,
    /// When the others may be asked for memory again.
    ask_again_ms: u64,
    /// Allocations that have failed, as far as it was said.
    failures_seen: usize,
    /// Listeners pause until [`Timer::Accept`].
    accept_timer: bool,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl Shard {
    pub(crate) fn new(
        mut core: Core,
        inbox: Inbox,
        listeners: Option<Listeners>,
        started: Instant,
    ) -> Self {
        core.attach_volumes();
        let arrived = ArrivedConnections::new(core.shard);
        let spread = Spread::new(core.shared.reactor.spread);
        Self {
            core,
            inbox,
            listeners,
            slots: Vec::new(),
            free: Vec::new(),
            timers: TimerQueue::new(),
            pending: VecDeque::new(),
            listed: Vec::new(),
            listing: Vec::new(),
            dirty: VecDeque::new(),
            quiet: Vec::new(),
            waiting: Vec::new(),
            unfinished: VecDeque::new(),
            arrived,
            balance: Balance::new(0),
            spread,
            plan: None,
            leaving: None,
            started,
            now: started,
            phase: Phase::Serving,
            memory_timer: false,
            memory_short: false,
            wait_until: None,
            ask_again_ms: 0,
            failures_seen: 0,
            accept_timer: false,
        }
    }

    /// Whether messages wait for the next turn.
    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// What it has done.
    fn report(&mut self) -> ShardReport {
        let connections = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.connection.as_mut());
        let connections: Vec<_> = connections.map(|c| c.statistics()).collect();
        ShardReport::new(
            &self.core,
            self.now.saturating_duration_since(self.started),
            connections,
        )
    }

    /// Storage requests that have not ended.
    pub(crate) fn requests_in_flight(&self) -> usize {
        self.core.requests.len()
    }

    /// Payload memory that waits for its next use.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.core.pool.kept_bytes()
    }

    /// Serves until the server ends.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let ended = self.take_turns();
        if ended.is_err() {
            self.fail();
        }
        ended
    }

    fn take_turns(&mut self) -> io::Result<()> {
        if let Some(listeners) = &self.listeners {
            listeners.watch(&mut *self.core.platform)?;
        }
        let mut events = Vec::new();
        let mut now = Instant::now();
        let mut waiting = Waiting::new(&self.core.shared.reactor, now);
        waiting.measure_wake_up(&mut self.core, &mut events)?;
        loop {
            match self.turn(&mut events, now) {
                Turn::Ended => return Ok(()),
                Turn::Wait(deadline) => {
                    now = waiting.wait(&mut self.core, now, deadline, &mut events)?;
                }
            }
        }
    }

    /// It gets no more events. The server ends: others would go on giving it connections and mail.
    pub(crate) fn fail(&mut self) {
        let shared = Arc::clone(&self.core.shared);
        shared.closing.store(true, Ordering::Relaxed);
        let is_flushing = self.phase == Phase::Flushing;
        self.end_connections();
        if !is_flushing {
            // The others flush without this one, unless it was the last.
            if shared.shards_busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                for unit in &shared.exports.units {
                    let reason = "the event loop that was to flush has failed";
                    unit.statistics.last_flush_failed(reason.to_owned());
                }
            }
        }
        shared.broadcast(|| Message::ShutdownNow);
    }

    /// One turn: acts on what has happened by `now`, and sends what came of it.
    pub(crate) fn turn(&mut self, events: &mut Vec<EngineEvent>, now: Instant) -> Turn {
        self.now = now;
        self.core.now = now;
        let elapsed = now.saturating_duration_since(self.started);
        self.core.now_ms = elapsed.as_secs() * 1000 + u64::from(elapsed.subsec_millis());
        self.core.counters.turns += 1;
        self.look_for_standstill();
        if Published::is_due(&self.core.counters) {
            let board = &self.core.shared.board;
            board.published(self.core.shard).store(&self.core.counters);
        }
        for event in events.drain(..) {
            self.handle(event);
        }
        if self.core.requests.has_ended() {
            self.end_requests();
        }
        if !self.quiet.is_empty() {
            self.look_for_idle();
        }
        if !self.waiting.is_empty() {
            self.end_waiting();
        }
        self.run_timers();
        self.receive_listed();
        if self.memory_short || !self.core.suspects.is_empty() {
            self.cut_stalled();
        }
        self.serve_memory_line();
        while let Some(slot) = self.unfinished.pop_front() {
            self.mark_dirty(slot);
        }
        self.flush_dirty();
        self.look_at_balance();
        self.send_away();
        self.watch_memory();
        if self.advance_phase() {
            let report = self.report();
            self.core.shared.board.leave(report);
            Turn::Ended
        } else if self.listed.is_empty()
            && self.quiet.is_empty()
            && self.unfinished.is_empty()
            && !self.core.requests.has_ended()
            && !self.core.memory_came_back()
        {
            self.wait_until = self.next_deadline();
            Turn::Wait(self.wait_until)
        } else {
            self.wait_until = Some(now);
            Turn::Wait(self.wait_until)
        }
    }

    fn handle(&mut self, event: EngineEvent) {
        match event {
            EngineEvent::Socket { token, readiness } => self.socket_ready(token, readiness),
            EngineEvent::File(completion) => self.file_done(completion),
            EngineEvent::Woken => self.read_mail(),
        }
    }

    /// Out of line: inlined, it has each turn save registers that few turns need.
    #[inline(never)]
    fn read_mail(&mut self) {
        while let Some(message) = self.inbox.receive() {
            self.core.counters.messages += 1;
            self.receive_message(message);
        }
    }

    fn socket_ready(&mut self, token: SocketToken, readiness: Readiness) {
        if let Some(listeners) = &mut self.listeners
            && let Some(portal) = listeners.portal_of(token)
        {
            return self.accept(portal);
        }
        let slot = token.slot();
        let Some(connection) = self.connection(slot, token.generation()) else {
            return;
        };
        if readiness.is_readable() {
            connection
                .channel_mut()
                .set_readable(readiness.is_hang_up());
            self.list(slot);
        }
        if readiness.is_writable() {
            let connection = self.slots[slot as usize]
                .connection
                .as_mut()
                .expect("looked up above");
            let channel = connection.channel_mut();
            channel.set_writable();
            if !channel.transmit.is_empty() {
                self.mark_dirty(slot);
            }
        }
    }

    fn connection(&mut self, slot: u32, generation: u32) -> Option<&mut (dyn Driven + 'static)> {
        let entry = self.slots.get_mut(slot as usize)?;
        if entry.generation != generation {
            return None;
        }
        entry.connection.as_deref_mut()
    }

    fn list(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        if !connection.channel().is_listed && connection.wants_turn() {
            connection.channel_mut().is_listed = true;
            self.listed.push(slot);
        }
    }

    fn mark_dirty(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let channel = connection.channel_mut();
        if !channel.is_dirty {
            channel.is_dirty = true;
            self.dirty.push_back(slot);
        }
    }

    /// Does something with a connection if it is still there, and sees to it afterwards.
    fn with(&mut self, address: ConnectionAddress, act: impl FnOnce(&mut dyn Driven, &mut Core)) {
        let Some(entry) = self.slots.get_mut(address.slot as usize) else {
            return;
        };
        if entry.generation != address.generation {
            return;
        }
        let Some(connection) = &mut entry.connection else {
            return;
        };
        act(&mut **connection, &mut self.core);
        self.mark_dirty(address.slot);
    }

    fn receive_message(&mut self, message: Message) {
        match message {
            Message::Accepted { link, portal } => self.adopt(link, portal),
            Message::MakeRoom => self.make_room(),
            Message::Retry(task) => {
                self.with(task.connection, |connection, core| {
                    connection.retry(core, task)
                });
                // A task that is gone may have been told to pass the gate on.
                self.pass_on_gate(task);
            }
            Message::RequestsWoken => {
                let core = &mut self.core;
                core.requests.proceed(&mut *core.platform);
                self.end_requests();
            }
            Message::Abort(order) => self.obey(&order),
            Message::Moved(connection) => {
                self.take_in(connection);
            }
            Message::Relocate { peer, to } => self.relocate(peer, to),
            Message::CloseConnection(name) => {
                if let Some(address) = self.arrived.find(name)
                    && self.connection(address.slot, address.generation).is_some()
                {
                    tracing::debug!("closing a connection whose session or controller has ended");
                    self.close(address.slot);
                }
            }
            Message::Note(name, note) => {
                if let Some(address) = self.arrived.find(name) {
                    self.with(address, |connection, core| connection.take_note(core, note));
                    // It may take input now that it did not before.
                    self.list_if_open(address);
                }
            }
            Message::NoteForAll(note) => {
                for slot in 0..self.slots.len() {
                    if let Some(connection) = &mut self.slots[slot].connection {
                        connection.take_note(&mut self.core, note.clone());
                        let slot = connection.channel().address.slot;
                        self.mark_dirty(slot);
                    }
                }
            }
            Message::MemoryShort => {
                self.memory_short = true;
                // What this shard keeps for later may be what another one lacks.
                self.core.pool.release_kept();
            }
            Message::Report(question) => question.answer(self.report()),
            Message::Transmit(config) => {
                self.core.transmit = config;
                for entry in &mut self.slots {
                    if let Some(connection) = &mut entry.connection {
                        connection
                            .channel_mut()
                            .set_transmit(&config, &mut self.core.counters);
                    }
                }
            }
            Message::Shutdown => self.begin_drain(),
            Message::ShutdownNow => self.end_connections(),
        }
    }

    fn list_if_open(&mut self, address: ConnectionAddress) {
        if self.connection(address.slot, address.generation).is_some() {
            self.list(address.slot);
        }
    }

    /// Wakes the next in line at every gate that told a vanished task to try again.
    fn pass_on_gate(&mut self, task: crate::message::TaskAddress) {
        let alive = self
            .connection(task.connection.slot, task.connection.generation)
            .is_some_and(|connection| connection.has_task(task));
        if !alive {
            for unit in 0..self.core.shared.exports.units.len() {
                self.core.leave_exclusive(unit, task);
            }
        }
    }

    /// A slot for a connection, and its address there.
    fn take_slot(&mut self) -> ConnectionAddress {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ConnectionSlot {
                generation: 0,
                connection: None,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer connections than descriptors")
        });
        ConnectionAddress {
            shard: u32::try_from(self.core.shard).expect("fewer shards than cores"),
            slot,
            generation: self.slots[slot as usize].generation,
        }
    }

    /// The slot is free again: its connection has ended or gone. Events of it may have been reported already, so
    /// its address is not used again.
    fn leave_slot(&mut self, slot: u32, timer: Option<TimerId>) {
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        self.core.memory_line.forget(slot);
        self.core.refusals.forget(slot);
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        self.share_memory();
    }

    /// A connection came or went: what each gets changes.
    fn share_memory(&mut self) {
        let connections = self.slots.len() - self.free.len();
        let shared = &self.core.shared;
        let (memory, shards) = (shared.limits.memory, shared.posts.len());
        self.core.transmit_share = budget::share(memory, shards, connections);
    }

    fn receive_listed(&mut self) {
        // Two lists take turns, so that none is allocated.
        std::mem::swap(&mut self.listed, &mut self.listing);
        self.core.alone = self.listing.len() <= 1;
        for index in 0..self.listing.len() {
            let slot = self.listing[index];
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                continue;
            };
            connection.channel_mut().is_listed = false;
            let turn = self.core.counters.turns;
            self.core.fairness.begin_receiving(slot, turn);
            match connection.receive_turn(&mut self.core) {
                ControlFlow::Continue(()) => {
                    self.mark_dirty(slot);
                    self.list(slot);
                }
                ControlFlow::Break(()) => self.close(slot),
            }
        }
        self.listing.clear();
    }

    /// Ends connections whose peers have stalled.
    #[cold]
    fn cut_stalled(&mut self) {
        let mut suspects = std::mem::take(&mut self.core.suspects);
        let for_room = std::mem::take(&mut self.memory_short);
        if for_room {
            let connections = self
                .slots
                .iter()
                .filter_map(|slot| slot.connection.as_ref());
            let keepers = connections.filter(|connection| connection.may_make_room(&self.core));
            suspects.extend(keepers.map(|connection| connection.channel().address.slot));
        }
        for slot in suspects {
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                continue;
            };
            // What came while the shard was busy may not have been reported yet.
            connection.channel_mut().set_readable(false);
            let turn = self.core.counters.turns;
            self.core.fairness.begin_receiving(slot, turn);
            match connection.receive_turn(&mut self.core) {
                ControlFlow::Continue(()) => {
                    connection.cut_if_stalled(&mut self.core, for_room);
                    self.mark_dirty(slot);
                    self.list(slot);
                }
                ControlFlow::Break(()) => self.close(slot),
            }
        }
    }

    /// Notes that the shard stood still, if it comes much later than it meant to.
    fn look_for_standstill(&mut self) {
        // A turn is rarely late at all, and the difference costs more than the comparison.
        if let Some(until) = self.wait_until.filter(|until| *until < self.now) {
            let late = self.now.saturating_duration_since(until);
            let tolerated = standstill_ms(self.core.shared.limits.stall_timeout);
            if late >= Duration::from_millis(tolerated) {
                self.core.stood_still_until_ms = self.core.now_ms;
            }
        }
    }

    fn flush_dirty(&mut self) {
        // Sending may mark others, whose tasks were woken, for this same turn.
        while let Some(slot) = self.dirty.pop_front() {
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                continue;
            };
            connection.channel_mut().is_dirty = false;
            self.core.fairness.begin_sending();
            match connection.flush(&mut self.core) {
                ControlFlow::Continue(()) => {
                    if !self.core.fairness.may_send() {
                        self.unfinished.push_back(slot);
                    }
                    self.arm(slot);
                    self.list(slot);
                    self.expect_idle(slot);
                }
                ControlFlow::Break(()) => self.close(slot),
            }
        }
    }

    /// Has a connection looked at in the next turn, whose policy goes by whether it is idle.
    fn expect_idle(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let channel = connection.channel_mut();
        if channel.policy.awaits_idle() && !channel.may_go_idle {
            channel.may_go_idle = true;
            self.quiet.push(slot);
        }
        if channel.waits_until.is_some() && !self.waiting.contains(&slot) {
            self.waiting.push(slot);
        }
    }

    /// What waited for its peer for long enough leaves.
    fn end_waiting(&mut self) {
        let (slots, now) = (&mut self.slots, self.now);
        let counters = &mut self.core.counters;
        self.waiting.retain(|slot| {
            let connection = slots[*slot as usize].connection.as_mut();
            connection
                .is_some_and(|connection| connection.channel_mut().goes_on_waiting(now, counters))
        });
    }

    /// When to take a turn although nothing has come.
    fn next_deadline(&self) -> Option<Instant> {
        let timers = self.timers.next_deadline();
        if self.waiting.is_empty() {
            return timers;
        }
        let waits = self.waiting.iter().filter_map(|slot| {
            let connection = self.slots[*slot as usize].connection.as_ref()?;
            connection.channel().waits_until
        });
        waits.chain(timers).min()
    }

    /// Tells connections that are idle so. Nothing slept since their receive buffers were found empty, and what has
    /// come meanwhile is known.
    fn look_for_idle(&mut self) {
        for slot in self.quiet.drain(..) {
            if let Some(connection) = &mut self.slots[slot as usize].connection {
                connection
                    .channel_mut()
                    .look_for_idle(&mut self.core.counters);
            }
        }
    }

    /// Sees to it that the connection's next deadline is not missed. A deadline that moved back is
    /// looked at when the timer fires, so that traffic does not cost timer operations.
    fn arm(&mut self, slot: u32) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        let Some(deadline_ms) = connection.next_deadline_ms() else {
            return;
        };
        let channel = connection.channel_mut();
        let address = channel.address;
        let timer = &mut channel.timer;
        let deadline = || self.started + Duration::from_millis(deadline_ms);
        match *timer {
            Some((_, armed_ms)) if armed_ms <= deadline_ms => {}
            Some((armed, _)) => {
                let deadline = deadline();
                self.timers.reset(armed, deadline);
                *timer = Some((armed, deadline_ms));
            }
            None => {
                let deadline = deadline();
                let armed = self.timers.insert(deadline, Timer::Connection(address));
                *timer = Some((armed, deadline_ms));
            }
        }
    }

    fn run_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = self.now;
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                Timer::Connection(address) => self.with(address, |connection, core| {
                    connection.channel_mut().timer = None;
                    connection.handle_deadline(core);
                }),
                Timer::Accept => {
                    self.accept_timer = false;
                    for portal in 0..self.core.shared.exports.listeners() {
                        self.accept(portal);
                    }
                }
                Timer::Memory => self.memory_timer = false,
                Timer::DrainQuiet => self.close_quiet(),
                Timer::Drain => self.end_connections(),
                Timer::Quiesce => self.end_quiesce(),
                // The end of the turn looks whether it is late.
                Timer::Leave => {}
            }
        }
    }

    /// Lets tasks that wait for memory try again.
    fn serve_memory_line(&mut self) {
        // Hosts with their full shares keep nobody waiting, but may have many tasks in line: once each connection has
        // tried in vain, the rest need not.
        let mut in_vain = 0;
        for _ in 0..self.core.memory_line.begin() {
            let Some(task) = self.core.memory_line.serve() else {
                break;
            };
            self.with(task.connection, |connection, core| {
                connection.retry(core, task)
            });
            let is_back = self.core.memory_line.is_back();
            if !self.core.memory_tried() {
                break;
            }
            in_vain = if is_back { in_vain + 1 } else { 0 };
            if in_vain > self.core.memory_line.connections() {
                break;
            }
        }
    }

    /// Sees to it that tasks without memory try again even if nothing else happens on this shard.
    fn watch_memory(&mut self) {
        if !self.core.memory_line.is_empty() && !self.memory_timer {
            self.memory_timer = true;
            self.timers.insert(self.now + MEMORY_RETRY, Timer::Memory);
        }
        if self.core.is_short {
            self.ask_for_memory();
        }
    }

    /// Memory was missing: has all shards look for peers that keep some and do not move.
    #[cold]
    fn ask_for_memory(&mut self) {
        let shared = Arc::clone(&self.core.shared);
        if self.core.now_ms < self.ask_again_ms {
            // There may be memory again before it is time to ask.
            let is_back = self.core.failing_since_ms.is_none()
                && self.core.memory_line.is_empty()
                && shared.budget.failures() == self.failures_seen;
            self.core.is_short = !is_back;
        } else {
            let interval_ms = asking_interval_ms(shared.limits.stall_timeout);
            self.ask_again_ms = self.core.now_ms + interval_ms;
            self.core.is_short = false;
            shared.broadcast(|| Message::MemoryShort);
            let failures = shared.budget.failures();
            if failures > std::mem::replace(&mut self.failures_seen, failures) {
                tracing::warn!(
                    failures,
                    used_bytes = shared.budget.used_bytes(),
                    "the system has less memory than `limits.memory` allows; clients are asked to retry. Lower `limits.memory`"
                );
            }
        }
    }

    /// A storage operation ended; perhaps its request has, too.
    fn file_done(&mut self, completion: FileCompletion) {
        let core = &mut self.core;
        core.requests.complete(completion, &mut *core.platform);
        self.end_requests();
    }

    /// Goes on with what waited for requests that are over.
    fn end_requests(&mut self) {
        while let Some((in_flight, ended)) = self.core.requests.next_ended() {
            self.core.counters.storage_completed += 1;
            self.request_done(in_flight, ended);
        }
        self.core.counters.bounced_bytes += self.core.requests.take_bounced_bytes();
    }

    fn request_done(&mut self, mut in_flight: InFlight, ended: Ended) {
        if in_flight.counted {
            self.core.leave_gate(in_flight.unit);
        }
        match std::mem::replace(&mut in_flight.owner, Owner::Shutdown) {
            Owner::Task(task) => self.with(task.connection, |connection, core| {
                connection.storage_done(core, task, in_flight, ended);
            }),
            Owner::Orphan(orphan) => {
                self.core.recycle(ended.buffer);
                if let Some((unit, task)) = orphan.exclusive {
                    self.core.leave_exclusive(unit, task);
                }
            }
            Owner::Quiesce => {
                if let Err(error) = ended.result {
                    let unit = self.core.shared.unit(in_flight.unit);
                    let volume = &unit.volume.identity().name;
                    tracing::error!(volume, %error, "background work failed");
                    unit.statistics.last_flush_failed(error.to_string());
                }
            }
            owner @ (Owner::Controller(_) | Owner::Shutdown) => {
                let unit = in_flight.unit;
                log_flush(&self.core.shared, unit, &ended.result);
                if let (Owner::Shutdown, Err(error)) = (owner, ended.result) {
                    let statistics = &self.core.shared.unit(unit).statistics;
                    statistics.last_flush_failed(error.to_string());
                }
            }
        }
    }

    /// Aborts the tasks that an order names.
    fn obey(&mut self, order: &Arc<crate::abort::AbortOrder>) {
        self.core.hold_for_orphans(order);
        for slot in 0..self.slots.len() {
            if let Some(connection) = &mut self.slots[slot].connection
                && connection.obey(&mut self.core, order)
            {
                // Others of its tasks may run now, and its window may have to be announced.
                let slot = connection.channel().address.slot;
                self.mark_dirty(slot);
            }
        }
    }

    /// Ends a connection at once.
    fn close(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let Some(mut connection) = entry.connection.take() else {
            return;
        };
        let token = SocketToken::new(slot, entry.generation);
        let link = &mut connection.channel_mut().link;
        link.forget(&mut *self.core.platform, token);
        let is_load = connection.is_load();
        connection.tear_down(&mut self.core);
        let channel = connection.channel();
        if self.arrived.leave(channel.migration.name) || channel.migration.moves > 0 {
            self.core.shared.addresses.forget(channel.migration.name);
        }
        self.leave_slot(slot, channel.timer.map(|(timer, _)| timer));
        if is_load {
            self.core.shared.connections[self.core.shard].fetch_sub(1, Ordering::Relaxed);
        }
    }
}
