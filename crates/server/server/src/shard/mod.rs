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
mod changes;
mod connections;
mod drain;
mod exports;
pub(crate) mod mail;
mod memory;
mod messages;
mod moves;
mod report;
mod requests;
mod serve;
mod state;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use longshore_reactor::EngineEvent;

use crate::connection::driven;
use crate::counters::published::Published;
use crate::listeners::Listeners;
use crate::mail::message::Message;
use crate::spin::{Moment, Waiting};
pub(crate) use state::Shard;
use state::{Phase, Timer};

/// What comes after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Another turn: when something happens, or at that time.
    Wait(Option<Instant>),
    /// Nothing; the shard has ended.
    Ended,
}

impl Shard {
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
        let mut now = self.moment(Instant::now());
        let mut waiting = Waiting::new(&self.core.shared.reactor, self.started, now);
        waiting.measure_wake_up(&mut self.core.idle(), &mut events)?;
        loop {
            match self.turn(&mut events, now) {
                Turn::Ended => return Ok(()),
                Turn::Wait(deadline) => {
                    now = waiting.wait(&mut self.core.idle(), now, deadline, &mut events)?;
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
                for (_, unit) in self.core.view.exports.units() {
                    let reason = "the event loop that was to flush has failed";
                    unit.statistics.last_flush_failed(reason.to_owned());
                }
            }
        }
        shared.broadcast(|| Message::ShutdownNow);
    }

    /// That time, as a turn wants it.
    pub(crate) fn moment(&self, at: Instant) -> Moment {
        Moment::since(self.started, at)
    }

    /// One turn: acts on what has happened by `now`, and sends what came of it.
    pub(crate) fn turn(&mut self, events: &mut Vec<EngineEvent>, now: Moment) -> Turn {
        self.now = now.at;
        self.core.now = now.at;
        self.core.now_ms = now.ns / 1_000_000;
        self.core.memory.now_ms = self.core.now_ms;
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
        if !self.connections.quiet.is_empty() {
            self.look_for_idle();
        }
        if !self.connections.waiting.is_empty() {
            self.end_waiting();
        }
        self.run_timers();
        if !self.core.delayed.is_empty() {
            self.end_delays();
        }
        if self.core.requests.is_sleeping() {
            self.end_sleep();
        }
        self.receive_listed();
        if self.memory_short || !self.core.suspects.is_empty() {
            self.cut_stalled();
        }
        self.serve_memory_line();
        while let Some(slot) = self.connections.unfinished.pop_front() {
            self.connections.mark_dirty(slot);
        }
        self.flush_dirty();
        self.look_at_balance();
        self.send_away();
        self.watch_memory();
        if self.advance_phase() {
            let report = self.report(false);
            self.core.shared.board.leave(report);
            Turn::Ended
        } else if self.connections.are_served()
            && !self.core.requests.has_ended()
            && !self.core.memory.came_back()
        {
            self.wait_until = self.next_deadline();
            Turn::Wait(self.wait_until)
        } else {
            self.wait_until = Some(now.at);
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

    fn run_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = self.now;
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                Timer::Connection(address) => {
                    if let Some(connection) = self.connections.find(address) {
                        connection.channel_mut().timer = None;
                        self.tell(address, driven::ShardEvent::Deadline);
                    }
                }
                Timer::Accept => {
                    self.accept_timer = false;
                    let places = self.listeners.as_ref().map(Listeners::places);
                    for portal in places.unwrap_or_default() {
                        self.accept(portal);
                    }
                }
                Timer::Memory => self.memory_timer = false,
                Timer::DrainQuiet => self.close_quiet(),
                Timer::Drain => self.end_connections(),
                Timer::Quiesce => self.end_quiesce(),
                Timer::Renew => self.renew(),
                Timer::Settle => self.settle_again(),
                // The end of the turn looks whether it is late.
                Timer::Leave => {}
            }
        }
    }
}
