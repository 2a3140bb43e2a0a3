//! State shared by all shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use longshore_reactor::{BlockingPool, MemoryBudget};

use crate::address::{ConnectionAddress, TaskAddress};
use crate::computations::Computations;
use crate::config::{Copies, PeerLimits, ReactorConfig, Spread, TransmitConfig};
use crate::counters::clients::ClientCounters;
use crate::mail::addresses::ConnectionAddresses;
use crate::mail::message::{Message, Post};
use crate::memory::share::Shares;
use crate::observe::sessions::SessionId;
use crate::observe::shard_report::Board;
use crate::placement::load::Load;
use crate::platform::Link;
use crate::sessions::attempts::Attempts;
use crate::sessions::hosts::Hosts;
use crate::sessions::iscsi::Sessions;
use crate::volume_store::VolumeStore;

/// See the module documentation.
pub(crate) struct Shared {
    pub sessions: Sessions,
    /// Failed log-ins, and the pauses that follow from them.
    pub attempts: Attempts,
    pub hosts: Hosts,
    /// What memory hosts and initiators hold.
    pub shares: Shares,
    pub limits: PeerLimits,
    /// As the server was started; each [`Core`](super::Core) has what holds now.
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
    pub reservation_store: Option<VolumeStore>,
    pub sanitize_store: Option<VolumeStore>,
    pub blocking: BlockingPool,
    /// Computes for hosts that authenticate.
    pub computations: Computations,
    /// Sessions and controllers that there have been.
    pub sessions_begun: AtomicU64,
    pub closing: AtomicBool,
    /// Shards that may still write.
    pub shards_busy: AtomicUsize,
    /// What payload memory of all shards counts against.
    pub budget: Arc<MemoryBudget>,
    /// Logins, ends of sessions, limits.
    pub clients: ClientCounters,
    /// What shards tell of their counters.
    pub board: Board,
    /// One operation in so many is followed.
    pub sample: u32,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Tells a task's shard to let it try again: the gate of that unit may be open.
    pub(crate) fn retry(&self, unit: usize, task: TaskAddress) {
        let message = Message::Retry { task, unit };
        self.posts[task.connection.shard as usize].send(message);
    }

    /// The name of a session or controller that begins.
    pub(crate) fn next_session(&self) -> SessionId {
        SessionId(self.sessions_begun.fetch_add(1, Ordering::Relaxed) + 1)
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

    /// Whether connections may move to other shards (`rebalance`).
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
