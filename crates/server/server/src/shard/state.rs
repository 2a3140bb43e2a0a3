//! The parts of a shard.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use longshore_reactor::TimerQueue;

use super::changes::Changes;
use super::connections::Connections;
use super::mail::{Inbox, Mailer};
use crate::address::ConnectionAddress;
use crate::core::Core;
use crate::listeners::Listeners;
use crate::placement::arrived::ArrivedConnections;
use crate::placement::balance::{Balance, Plan};
use crate::placement::spread::Spread;

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
    /// More connections are to be told of other exports.
    Renew,
    /// What was kept for tasks that were under way may go now.
    Settle,
}

/// How far the end of the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// Sessions end their commands and log out.
    Draining,
    /// Connections and their requests are gone. Volumes end what they do of their own accord.
    Quiescing,
    /// This shard writes no more. The last shard to get here flushes.
    Flushing,
}

/// A connection that is to go to another shard as soon as it is at rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) address: ConnectionAddress,
    pub(super) to: usize,
    pub(super) until: Instant,
    /// What the shard's plan has moved when it has gone, if it goes because of that.
    pub(super) planned: Option<u64>,
}

/// One reactor thread with its connections.
pub(crate) struct Shard {
    pub(super) core: Core,
    pub(super) inbox: Inbox,
    /// Those of all shards, for connections that move.
    pub(super) mailers: Arc<[Mailer]>,
    pub(super) listeners: Option<Listeners>,
    pub(super) connections: Connections,
    pub(super) timers: TimerQueue<Timer>,
    /// Connections that have not finished their login, oldest first, among others that have, or are
    /// gone.
    pub(super) pending: VecDeque<ConnectionAddress>,
    pub(super) arrived: ArrivedConnections,
    pub(super) balance: Balance,
    pub(super) spread: Spread,
    /// What is to go to another shard.
    pub(super) plan: Option<Plan>,
    pub(super) leaving: Option<Leaving>,
    /// When all shards started.
    pub(super) started: Instant,
    /// Time of this turn.
    pub(super) now: Instant,
    pub(super) phase: Phase,
    pub(super) memory_timer: bool,
    /// Somebody finds no memory: stalled peers are to make room in this turn.
    pub(super) memory_short: bool,
    /// When the next turn is to be at the latest.
    pub(super) wait_until: Option<Instant>,
    /// When the others may be asked for memory again.
    pub(super) ask_again_ms: u64,
    /// Allocations that have failed, as far as it was said.
    pub(super) failures_seen: usize,
    /// Listeners pause until [`Timer::Accept`].
    pub(super) accept_timer: bool,
    /// What is to be done yet because other things are exported.
    pub(super) changes: Changes,
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
        mailers: Arc<[Mailer]>,
        listeners: Option<Listeners>,
        started: Instant,
    ) -> Self {
        core.attach_volumes();
        let arrived = ArrivedConnections::new(core.shard);
        let spread = Spread::new(core.shared.reactor.spread);
        let connections = Connections::new(core.shard);
        Self {
            core,
            inbox,
            mailers,
            listeners,
            connections,
            timers: TimerQueue::new(),
            pending: VecDeque::new(),
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
            changes: Changes::default(),
        }
    }

    /// Whether messages wait for the next turn.
    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Storage requests that have not ended.
    pub(crate) fn requests_in_flight(&self) -> usize {
        self.core.requests.len()
    }

    /// Payload memory that waits for its next use.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.core.memory.pool.kept_bytes()
    }
}
