//! Receiving, sending, and the waiting lists of connections.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longshore_reactor::{Readiness, SocketToken, TimerId};

use super::state::{Phase, Shard, Timer};
use crate::address::ConnectionAddress;
use crate::connection::driven::ShardEvent;
use crate::delayed::Delay;
use crate::memory::transmit;

impl Shard {
    pub(super) fn socket_ready(&mut self, token: SocketToken, readiness: Readiness) {
        if let Some(listeners) = &mut self.listeners
            && let Some(portal) = listeners.portal_of(token)
        {
            return self.accept(portal);
        }
        let slot = token.slot();
        let Some(connection) = self.connections.find_generation(slot, token.generation()) else {
            return;
        };
        let channel = connection.channel_mut();
        if readiness.is_readable() {
            channel.set_readable(readiness.is_hang_up());
        }
        if readiness.is_writable() {
            channel.set_writable();
        }
        let sends = readiness.is_writable() && !channel.transmit.is_empty();
        if readiness.is_readable() {
            self.connections.list(slot);
        }
        if sends {
            self.connections.mark_dirty(slot);
        }
    }

    /// Tells a connection of something, if it is still there, and sees to it afterwards.
    pub(super) fn tell(&mut self, address: ConnectionAddress, event: ShardEvent<'_>) {
        let Some(connection) = self.connections.find(address) else {
            return;
        };
        connection.handle(&mut self.core, event);
        self.connections.mark_dirty(address.slot);
    }

    pub(super) fn receive_listed(&mut self) {
        // Two lists take turns, so that none is allocated.
        std::mem::swap(&mut self.connections.listed, &mut self.connections.listing);
        self.core.alone = self.connections.listing.len() <= 1;
        for index in 0..self.connections.listing.len() {
            let slot = self.connections.listing[index];
            let Some(connection) = self.connections.at(slot) else {
                continue;
            };
            connection.channel_mut().is_listed = false;
            let turn = self.core.counters.turns;
            self.core.fairness.begin_receiving(slot, turn);
            match connection.receive_turn(&mut self.core) {
                ControlFlow::Continue(()) => {
                    self.connections.mark_dirty(slot);
                    self.connections.list(slot);
                }
                ControlFlow::Break(()) => self.close(slot),
            }
        }
        self.connections.listing.clear();
    }

    pub(super) fn flush_dirty(&mut self) {
        // Sending may mark others, whose tasks were woken, for this same turn.
        while let Some(slot) = self.connections.dirty.pop_front() {
            let Some(connection) = self.connections.at(slot) else {
                continue;
            };
            connection.channel_mut().is_dirty = false;
            self.core.fairness.begin_sending();
            match connection.flush(&mut self.core) {
                ControlFlow::Continue(()) => {
                    if !self.core.fairness.may_send() {
                        self.connections.unfinished.push_back(slot);
                    }
                    self.arm(slot);
                    self.connections.list(slot);
                    self.connections.expect_idle(slot);
                }
                ControlFlow::Break(()) => self.close(slot),
            }
        }
    }

    /// What waited for its peer for long enough leaves.
    pub(super) fn end_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.connections.waiting);
        let counters = &mut self.core.counters;
        waiting.retain(|slot| {
            let connection = self.connections.at(*slot);
            connection.is_some_and(|connection| {
                connection.channel_mut().goes_on_waiting(self.now, counters)
            })
        });
        self.connections.waiting = waiting;
    }

    /// When to take a turn although nothing has come.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let mut timers = self.timers.next_deadline();
        if !self.core.delayed.is_empty() || self.core.requests.is_sleeping() {
            timers = self.next_end_of_wait(timers);
        }
        if self.connections.waiting.is_empty() {
            return timers;
        }
        let waits = self
            .connections
            .waiting
            .iter()
            .filter_map(|slot| self.connections.peek(*slot)?.channel().pacing.waits_until);
        waits.chain(timers).min()
    }

    /// Lets tasks go on that the limits of their volumes had wait. When the server ends, all do.
    #[cold]
    #[inline(never)]
    pub(super) fn end_delays(&mut self) {
        let at_once = self.phase != Phase::Serving;
        while let Some(delay) = self.core.delayed.pop(self.now, at_once) {
            self.end_delay(delay, !at_once);
        }
    }

    /// The same with tasks that limits delay, and requests of slow volumes.
    #[cold]
    #[inline(never)]
    fn next_end_of_wait(&self, timers: Option<Instant>) -> Option<Instant> {
        let delayed = self.core.delayed.next_deadline();
        let asleep = self.core.requests.next_deadline();
        timers.into_iter().chain(delayed).chain(asleep).min()
    }

    /// Limits of volumes have become others: tasks that wait for them ask again, in their order.
    pub(super) fn renew_delays(&mut self) {
        let view = Arc::clone(&self.core.view);
        let version = |unit| view.exports.unit(unit).throttle.version();
        let outdated = |delay: &Delay| delay.version != version(delay.unit);
        for delay in self.core.delayed.take(outdated) {
            self.end_delay(delay, true);
        }
    }

    /// Tasks that wait for the limits of a unit go on.
    pub(super) fn end_delays_of(&mut self, unit: usize) {
        for delay in self.core.delayed.take(|delay| delay.unit == unit) {
            self.end_delay(delay, true);
        }
    }

    /// A task goes on. `asks`: if its limits have become others, it asks first.
    fn end_delay(&mut self, delay: Delay, asks: bool) {
        let unit = self.core.unit(delay.unit);
        let is_asking = asks && unit.throttle.version() != delay.version;
        let left = delay.until.saturating_duration_since(self.now);
        self.core.delayed.asks_again = is_asking.then_some(left);
        let task = delay.task;
        self.tell(task.connection, ShardEvent::Retry(task));
        self.core.delayed.asks_again = None;
    }

    /// Lets requests go on that slow volumes had wait.
    #[cold]
    #[inline(never)]
    pub(super) fn end_sleep(&mut self) {
        let core = &mut self.core;
        core.requests.expire(self.now, &mut *core.platform);
        self.end_requests();
    }

    /// Tells connections that are idle so. Nothing slept since their receive buffers were found empty, and what has
    /// come meanwhile is known.
    pub(super) fn look_for_idle(&mut self) {
        let mut quiet = std::mem::take(&mut self.connections.quiet);
        for slot in quiet.drain(..) {
            if let Some(connection) = self.connections.at(slot) {
                connection
                    .channel_mut()
                    .look_for_idle(&mut self.core.counters);
            }
        }
        self.connections.quiet = quiet;
    }

    /// Sees to it that the connection's next deadline is not missed. A deadline that moved back is
    /// looked at when the timer fires, so that traffic does not cost timer operations.
    pub(super) fn arm(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else {
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

    /// The slot is free again: its connection has ended or gone. Events of it may have been reported already, so
    /// its address is not used again.
    pub(super) fn leave_slot(&mut self, slot: u32, timer: Option<TimerId>) {
        if let Some(timer) = timer {
            self.timers.cancel(timer);
        }
        self.core.memory.forget(slot);
        self.connections.leave_slot(slot);
        self.share_memory();
    }

    /// A connection came or went: what each gets changes.
    pub(super) fn share_memory(&mut self) {
        let connections = self.connections.len();
        let shared = &self.core.shared;
        let (memory, shards) = (shared.limits.memory, shared.posts.len());
        self.core.transmit_share = transmit::share(memory, shards, connections);
    }

    /// Ends a connection at once.
    pub(super) fn close(&mut self, slot: u32) {
        let Some((mut connection, generation)) = self.connections.take(slot) else {
            return;
        };
        let token = SocketToken::new(slot, generation);
        let link = &mut connection.channel_mut().socket.link;
        link.forget(&mut *self.core.platform, token);
        let is_load = connection.state().is_load;
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
