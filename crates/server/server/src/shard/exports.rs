//! Adoption of a new version of the exports: see [`crate::server::switch`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::changes::ShardRemoval;
use super::state::{Shard, Timer};
use crate::connection::driven::ShardEvent;
use crate::core::request::{InFlight, Owner};
use crate::mail::grace::Token;
use crate::mail::removal::Removal;

/// Connections that are told of other exports in one turn, and units that these see. Peers of others wait for its end
/// meanwhile.
const RENEWED_PER_TURN: u32 = 256;
const UNITS_PER_TURN: usize = 4096;
/// How often is looked whether what was kept for tasks that were under way can go: at first, and at most.
const SETTLE_SOON: Duration = Duration::from_millis(2);
const SETTLE_LATER: Duration = Duration::from_millis(100);

impl Shard {
    /// Tells connections to take over what is exported now, some in each turn.
    pub(super) fn begin_renewal(&mut self, token: Arc<Token>) {
        self.changes.revision = self.core.view.exports.revision;
        self.changes.next = Some(0);
        self.changes.waiting.push(token);
        self.renew();
    }

    /// Goes on with that.
    pub(super) fn renew(&mut self) {
        let Some(from) = self.changes.next else {
            return;
        };
        let slots = self.connections.slots();
        let most = slots.end.min(from.saturating_add(RENEWED_PER_TURN));
        let (mut to, mut units) = (from, 0);
        while to < most && units < UNITS_PER_TURN {
            units += self.renew_connection(to);
            to += 1;
        }
        if to < slots.end {
            self.changes.next = Some(to);
            self.timers.insert(self.now, Timer::Renew);
            return;
        }
        self.changes.next = None;
        self.changes.waiting.clear();
    }

    /// Tells a connection, if it is there and does not know yet. Returns how many units it sees.
    fn renew_connection(&mut self, slot: u32) -> usize {
        let revision = self.changes.revision;
        let connection = self.connections.at(slot);
        let Some(connection) = connection.filter(|one| !one.exports().knows_exports(revision))
        else {
            return 0;
        };
        connection.handle(&mut self.core, ShardEvent::Exports);
        let is_settled = connection.exports_mut().settle(&mut self.core);
        let mapped = connection.exports().mapped();
        self.connections.mark_dirty(slot);
        if !is_settled {
            self.changes.is_unsettled = true;
            self.settle_in(SETTLE_SOON);
        }
        mapped
    }

    /// A connection has come from a shard that may not have told it, or may not be able to settle what it keeps.
    pub(super) fn catch_up(&mut self, slot: u32) {
        self.renew_connection(slot);
        let connection = self.connections.at(slot);
        if connection.is_some_and(|connection| !connection.exports_mut().settle(&mut self.core)) {
            self.changes.is_unsettled = true;
            self.settle_in(SETTLE_SOON);
        }
    }

    /// A unit is removed: nobody begins a command for it any more.
    pub(super) fn remove_unit(&mut self, removal: Arc<Removal>, token: Arc<Token>) {
        let unit = self.core.view.exports.unit(removal.unit);
        unit.is_removed.store(true, Ordering::Relaxed);
        let place = removal.unit;
        self.changes.removals.push(ShardRemoval {
            until: self.now + removal.timeout,
            removal,
            token,
            is_overdue: false,
        });
        // Those that would wait beyond the time that they have to end would get no answer.
        self.end_delays_of(place);
        self.settle();
    }

    /// Flushes a unit that no shard has anything to do with any more.
    pub(super) fn flush_removed(&mut self, removal: Arc<Removal>, token: Arc<Token>) {
        removal.note_flushing();
        let unit = removal.unit;
        let owner = Owner::Removal { removal, token };
        if let Some((in_flight, ended)) = self.core.flush(unit, owner) {
            self.request_done(in_flight, ended);
        }
    }

    fn settle_in(&mut self, pause: Duration) {
        if self.changes.settle.is_none() {
            self.changes.settle = Some(pause);
            self.timers.insert(self.now + pause, Timer::Settle);
        }
    }

    /// It is time to look again.
    pub(super) fn settle_again(&mut self) {
        let pause = self.changes.settle.take().unwrap_or(SETTLE_SOON);
        self.settle();
        let is_unsettled = self.changes.is_unsettled || !self.changes.removals.is_empty();
        if is_unsettled && self.changes.settle.is_none() {
            self.settle_in((pause * 2).min(SETTLE_LATER));
        }
    }

    /// Looks whether what was kept for tasks that were under way can go.
    fn settle(&mut self) {
        self.changes.is_unsettled = false;
        for connection in self.connections.iter_mut() {
            self.changes.is_unsettled |= !connection.exports_mut().settle(&mut self.core);
        }
        for mut one in std::mem::take(&mut self.changes.removals) {
            let unit = one.removal.unit;
            if !one.is_overdue && self.now >= one.until && self.uses(unit) > 0 {
                one.is_overdue = true;
                one.removal.note_overdue();
                self.end_uses(unit);
            }
            let uses = self.uses(unit);
            let sanitizing = self.sanitizing(unit);
            // All shards see that; one counts it.
            let counted = if self.core.shard == 0 { sanitizing } else { 0 };
            one.removal.note_under_way(self.core.shard, uses + counted);
            if uses + sanitizing > 0 {
                self.changes.removals.push(one);
                continue;
            }
            // Volumes stop what they do of their own accord on each shard for itself.
            let owner = Owner::Removal {
                removal: one.removal,
                token: one.token,
            };
            if let Some((in_flight, ended)) = self.core.quiesce(unit, owner) {
                self.request_done(in_flight, ended);
            }
        }
        if self.changes.is_unsettled || !self.changes.removals.is_empty() {
            self.settle_in(SETTLE_SOON);
        }
    }

    /// Commands and operations on this shard that need a unit.
    fn uses(&self, unit: usize) -> usize {
        let owners = self.core.requests.owners();
        let is_of = |in_flight: &&InFlight| match &in_flight.owner {
            Owner::Orphan(orphan) if orphan.exclusive.is_some_and(|(of, _)| of == unit) => true,
            // Its task counts.
            Owner::Task(_) | Owner::Removal { .. } => false,
            Owner::Orphan(_) | Owner::Controller(_) | Owner::Quiesce | Owner::Shutdown => {
                in_flight.unit == unit
            }
        };
        let requests = owners.filter(is_of).count();
        let connections = self.connections.iter();
        requests
            + connections
                .map(|one| one.exports().uses(unit))
                .sum::<usize>()
    }

    /// Work for a sanitize operation of a unit, on any shard.
    fn sanitizing(&self, unit: usize) -> usize {
        let unit = self.core.view.exports.unit(unit);
        unit.sanitizing.load(Ordering::Acquire)
    }

    /// Its tasks have had their time.
    fn end_uses(&mut self, unit: usize) {
        for slot in self.connections.slots() {
            let connection = self.connections.at(slot);
            let Some(connection) =
                connection.filter(|connection| connection.exports().uses(unit) > 0)
            else {
                continue;
            };
            connection.handle(&mut self.core, ShardEvent::Removed(unit));
            connection.exports_mut().settle(&mut self.core);
            self.connections.mark_dirty(slot);
        }
    }
}
