//! Connections that leave for another shard, and those that come from one: see [`crate::placement`].

use std::time::{Duration, Instant};

use longshore_reactor::SocketToken;

use super::mail::Mail;
use super::state::{Leaving, Phase, Shard, Timer};
use crate::address::ConnectionAddress;
use crate::connection::driven::Driven;
use crate::placement::balance::{Balance, Plan, Verdict};
use crate::placement::spread::{self, Change, Window};

/// A connection that is not at rest after this time stays. Until then it receives nothing, which its peer
/// should not notice.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(20);
/// Connections that are sent away in one turn: the others wait for its end meanwhile.
const MOVES_PER_TURN: usize = 4;

/// What came of an attempt to send a connection away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    Done,
    /// Something of it is in progress.
    NotYet,
    /// The connection stays where it is.
    GivenUp,
    Ended,
    /// The other shard takes nothing any more.
    Refused,
}

impl Departure {
    /// What is left of a shard's plan after it: only what has gone to the other shard counts as moved.
    fn pays(self, leaving: &Leaving, plan: Option<Plan>) -> Option<Plan> {
        match (self, leaving.planned) {
            (Self::Done, Some(weight)) => plan.and_then(|plan| plan.after(weight)),
            (Self::Refused, _) => None,
            _ => plan,
        }
    }
}

impl Shard {
    /// Looks at how busy this shard has been, if it is time to.
    #[inline]
    pub(super) fn look_at_balance(&mut self) {
        if self.core.now_ms >= self.balance.due_ms && self.core.shared.watches_load() {
            self.weigh_up();
        }
    }

    #[cold]
    fn weigh_up(&mut self) {
        let (shard, now_ms) = (self.core.shard, self.core.now_ms);
        let counters = &self.core.counters;
        let idle_ns = counters.asleep_ns + counters.spinning_ns;
        let share = self.balance.measure(now_ms, idle_ns);
        let loads = &self.core.shared.loads;
        loads[shard].publish(now_ms, share);
        self.look_at_spread(share);
        let loads = &self.core.shared.loads;
        if !self.core.shared.rebalances() {
            return;
        }
        let verdict = self.balance.judge(shard, share, loads, now_ms);
        if verdict == Verdict::Even {
            return;
        }
        let total = self.weigh_connections();
        if let Verdict::Move {
            to,
            difference,
            share,
        } = verdict
            && self.core.shared.loads[to].claim(now_ms)
        {
            tracing::debug!(shard, to, share, difference, "load is uneven");
            self.plan = Some(Balance::plan(to, difference, share, total, now_ms));
        }
    }

    /// Has other cores make large reads and writes, or no more, as the last window suggests.
    fn look_at_spread(&mut self, share: u64) {
        let core = &mut self.core;
        let counters = &core.counters;
        let window = Window {
            now_ms: core.now_ms,
            share,
            operations: counters.operations(),
            bytes: counters.received_bytes + counters.sent_bytes,
        };
        let (shard, loads) = (core.shard, &core.shared.loads);
        match self.spread.look(window, |most| {
            spread::cores_of_others(shard, loads, most, core.now_ms)
        }) {
            Change::None => {}
            Change::HandOver(cores) => {
                tracing::debug!(
                    shard,
                    ?cores,
                    "offloading large reads and writes to other cores"
                );
                core.handed_from = spread::LENGTH_MIN;
                core.platform.hand_over(Some((spread::LENGTH_MIN, &cores)));
            }
            Change::Keep => {
                tracing::debug!(shard, "large reads and writes no longer offloaded");
                core.handed_from = usize::MAX;
                core.platform.hand_over(None);
            }
        }
    }

    /// Looks at what each connection has done. Returns what all have together.
    fn weigh_connections(&mut self) -> u64 {
        let mut total = 0;
        for connection in self.connections.iter_mut() {
            let channel = connection.channel_mut();
            let counts = &channel.counts;
            let bytes = counts.received_bytes + counts.sent_bytes;
            channel.migration.weigh(counts.operations, bytes);
            total += channel.migration.weight;
        }
        total
    }

    /// Sends connections away that are to go and are at rest.
    #[inline]
    pub(super) fn send_away(&mut self) {
        if self.leaving.is_some() || self.plan.is_some() {
            self.go_on_sending();
        }
    }

    #[cold]
    fn go_on_sending(&mut self) {
        if self.phase != Phase::Serving {
            self.plan = None;
        }
        for _ in 0..MOVES_PER_TURN {
            let Some(leaving) = self.leaving.or_else(|| self.begin_next()) else {
                return;
            };
            let address = leaving.address;
            let departure = match self.connections.find(address) {
                Some(_) => self.try_to_send(leaving),
                None => Departure::Ended,
            };
            self.plan = departure.pays(&leaving, self.plan.take());
            match departure {
                Departure::NotYet if self.now < leaving.until => return,
                Departure::Done | Departure::Ended | Departure::Refused => self.leaving = None,
                Departure::NotYet | Departure::GivenUp => self.keep(address),
            }
        }
    }

    /// Begins with the connection that suits the plan best. `None`: there is none.
    fn begin_next(&mut self) -> Option<Leaving> {
        let now_ms = self.core.now_ms;
        self.plan = self.plan.take().filter(|plan| !plan.is_over(now_ms));
        let plan = self.plan?;
        let suited = self.connections.iter().filter_map(|connection| {
            let channel = connection.channel();
            let suits = plan.suits(&channel.migration, now_ms)?;
            let weight = channel.migration.weight;
            connection
                .state()
                .may_move
                .then_some((suits, weight, channel.address))
        });
        let Some((_, weight, address)) = suited.max_by_key(|(suits, ..)| *suits) else {
            self.plan = None;
            self.spread.nothing_moves(now_ms);
            return None;
        };
        if !self.begin_to_leave(address, plan.to) {
            self.plan = None;
        }
        let leaving = self.leaving.as_mut()?;
        leaving.planned = Some(weight);
        Some(*leaving)
    }

    /// Has a connection go to another shard. `false`: it stays, or another one is leaving.
    pub(super) fn begin_to_leave(&mut self, address: ConnectionAddress, to: usize) -> bool {
        let elsewhere = to != self.core.shard && to < self.core.shared.posts.len();
        if self.leaving.is_some() || self.phase != Phase::Serving || !elsewhere {
            return false;
        }
        let until = self.now + LEAVE_TIMEOUT;
        let Some(connection) = self.connections.find(address) else {
            return false;
        };
        if !connection.state().may_move {
            return false;
        }
        connection.channel_mut().migration.leaving = true;
        self.leaving = Some(Leaving {
            address,
            to,
            until,
            planned: None,
        });
        self.timers.insert(until, Timer::Leave);
        true
    }

    /// Has the connection of that peer leave, if it is here.
    pub(super) fn relocate(&mut self, peer: std::net::SocketAddr, to: usize) {
        let has_peer =
            |connection: &&(dyn Driven + 'static)| connection.channel().socket.peer == peer;
        let found = self.connections.iter().find(has_peer);
        let address = found.map(|connection| connection.channel().address);
        if let Some(address) = address {
            self.begin_to_leave(address, to);
        }
    }

    /// Has one of the connections leave, by its place among them.
    pub(crate) fn relocate_any(&mut self, index: usize, to: usize, now: Instant) -> bool {
        self.now = now;
        let connections = self.connections.iter();
        let movable: Vec<_> = connections
            .filter(|connection| connection.state().may_move)
            .map(|connection| connection.channel().address)
            .collect();
        let chosen = index.checked_rem(movable.len());
        chosen.is_some_and(|chosen| self.begin_to_leave(movable[chosen], to))
    }

    /// The connection stays after all.
    fn keep(&mut self, address: ConnectionAddress) {
        self.leaving = None;
        self.core.counters.moves_given_up += 1;
        let now_ms = self.core.now_ms;
        if let Some(connection) = self.connections.find(address) {
            let migration = &mut connection.channel_mut().migration;
            migration.leaving = false;
            migration.moved_ms = Some(now_ms);
            // Tasks that waited may begin, and input be taken, in the turn that follows.
            self.connections.list(address.slot);
            self.connections.unfinished.push_back(address.slot);
        }
    }

    /// Sends a connection to its new shard if it is at rest and has no mail.
    fn try_to_send(&mut self, leaving: Leaving) -> Departure {
        let slot = leaving.address.slot;
        let Some(connection) = self.connections.at(slot) else {
            return Departure::Ended;
        };
        if self.phase != Phase::Serving || !connection.state().may_move {
            return Departure::GivenUp;
        }
        if !connection.is_at_rest(&self.core) || self.changes.keep(connection) {
            return Departure::NotYet;
        }
        let shared = std::sync::Arc::clone(&self.core.shared);
        let mut order = shared.addresses.begin_move();
        if !self.inbox.is_empty() {
            // The next turn reads it.
            return Departure::NotYet;
        }
        let Some((mut connection, generation)) = self.connections.take(slot) else {
            return Departure::Ended;
        };
        let token = SocketToken::new(slot, generation);
        let channel = connection.channel_mut();
        channel.socket.link.forget(&mut *self.core.platform, token);
        let timer = channel.timer.take();
        let name = channel.migration.name;
        connection.depart(&mut self.core);
        let to = u32::try_from(leaving.to).expect("fewer shards than cores");
        order.note(name, to);
        // Counted before the other shard can close it.
        shared.move_load(self.core.shard, leaving.to);
        let sent = self.mailers[leaving.to].hand_over(Mail::Moved(connection));
        drop(order);
        self.leave_slot(slot, timer.map(|(timer, _)| timer));
        self.arrived.leave(name);
        self.core.counters.moved_out += 1;
        if let Err(Mail::Moved(connection)) = sent {
            // That shard has failed, and the server is about to end: it ends here.
            shared.move_load(leaving.to, self.core.shard);
            let slot = self.take_in(connection);
            self.close(slot);
            return Departure::Refused;
        }
        Departure::Done
    }

    /// A connection comes from another shard. Returns the slot that it gets.
    pub(super) fn take_in(&mut self, mut connection: Box<dyn Driven>) -> u32 {
        let address = self.connections.take_slot();
        let slot = address.slot;
        self.core.counters.moved_in += 1;
        connection.arrive(&mut self.core, address);
        let channel = connection.channel_mut();
        let token = SocketToken::new(slot, address.generation);
        let watched = channel.socket.link.watch(&mut *self.core.platform, token);
        let (peer, name) = (channel.socket.peer, channel.migration.name);
        if name != address {
            self.arrived.enter(name, address);
        }
        self.connections.put(slot, connection);
        self.share_memory();
        if let Err(error) = watched {
            tracing::error!(%peer, %error, "connection lost while it migrated to another event loop");
            self.close(slot);
            return slot;
        }
        if self.phase != Phase::Serving {
            self.close(slot);
            return slot;
        }
        tracing::debug!(%peer, shard = self.core.shard, "connection migrated here");
        self.catch_up(slot);
        self.connections.mark_dirty(slot);
        self.arm(slot);
        self.connections.list(slot);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaving(planned: Option<u64>) -> Leaving {
        Leaving {
            address: ConnectionAddress {
                shard: 0,
                slot: 0,
                generation: 0,
            },
            to: 1,
            until: Instant::now(),
            planned,
        }
    }

    #[test]
    fn a_plan_pays_only_for_connections_that_went() {
        const WEIGHT: u64 = 1000;
        // Two of the four connections are to go.
        let plan = Balance::plan(1, 1000, 1000, 4 * WEIGHT, 0);
        let planned = leaving(Some(WEIGHT));
        for stays in [Departure::NotYet, Departure::GivenUp, Departure::Ended] {
            assert_eq!(stays.pays(&planned, Some(plan)), Some(plan), "{stays:?}");
        }
        // One that goes because somebody said so is not of the plan.
        let told = leaving(None);
        assert_eq!(Departure::Done.pays(&told, Some(plan)), Some(plan));
        let first = Departure::Done.pays(&planned, Some(plan));
        assert_eq!(first, plan.after(WEIGHT));
        assert!(first.is_some());
        assert_eq!(Departure::Done.pays(&planned, first), None);
        assert_eq!(Departure::Done.pays(&planned, None), None);
    }

    #[test]
    fn a_plan_ends_when_the_other_shard_takes_nothing() {
        let plan = Balance::plan(1, 1000, 1000, 4000, 0);
        for planned in [Some(1000), None] {
            let refused = Departure::Refused.pays(&leaving(planned), Some(plan));
            assert_eq!(refused, None);
        }
    }
}
