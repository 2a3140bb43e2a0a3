//! Changes of the exports that a shard has not completed yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::driven::Driven;
use crate::mail::grace::Token;
use crate::mail::removal::Removal;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The version that connections know, or are about to be told of.
    pub(super) revision: u64,
    /// Connections from this slot on have not been told.
    pub(super) next: Option<u32>,
    /// Of those who wait until all have been.
    pub(super) waiting: Vec<Arc<Token>>,
    pub(super) removals: Vec<ShardRemoval>,
    /// Connections keep things for tasks that are under way.
    pub(super) is_unsettled: bool,
    /// The timer for settling is armed, and after that long.
    pub(super) settle: Option<Duration>,
}

/// A unit that is removed.
#[derive(Debug)]
pub(super) struct ShardRemoval {
    pub(super) removal: Arc<Removal>,
    /// Its end tells that this shard has nothing to do with the unit any more.
    pub(super) token: Arc<Token>,
    pub(super) until: Instant,
    pub(super) is_overdue: bool,
}

impl Changes {
    /// Whether a connection must stay, because it needs a unit that is removed: the shard that it goes to may have told
    /// already that nothing there does.
    pub(super) fn keep(&self, connection: &dyn Driven) -> bool {
        let mut removals = self.removals.iter();
        removals.any(|one| connection.exports().uses(one.removal.unit) > 0)
    }
}
