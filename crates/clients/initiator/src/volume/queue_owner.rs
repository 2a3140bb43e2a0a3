//! The volume, as its queues see it.

use std::sync::Arc;

use super::mail::{Loss, Mail, QueueAddress};
use super::request::Request;
use super::state::LiveCounters;
use crate::error::Failure;
use crate::info::Notice;
use crate::operation::{Completion, Reply};

/// What happened while the lock was held, to be dealt with after. The vectors keep their memory.
#[derive(Default)]
pub(super) struct QueueOutcome {
    pub(super) finished: Vec<(Request, Result<Reply, Failure>)>,
    /// The path has no queue for them any more.
    pub(super) homeless: Vec<Request>,
    /// Failed, perhaps not for good.
    pub(super) failed: Vec<(Request, Failure)>,
    pub(super) notices: Vec<Notice>,
    /// The queue failed: of which link, and why.
    pub(super) lost: Option<(u64, Loss)>,
    pub(super) completions: Vec<Completion>,
}

/// What a queue asks of its volume.
pub(super) trait QueueOwner: Send + Sync {
    fn counters(&self) -> &LiveCounters;
    /// Milliseconds since the volume was opened, up to a tick ago.
    fn now_ms(&self) -> u64;
    /// The driver of a queue.
    fn driver_of(&self, address: QueueAddress) -> usize;
    /// Leaves mail for a driver, and wakes it if it sleeps.
    fn post(&self, driver: usize, mail: Mail);
    /// Deals with what happened while a queue was held. `may_complete`: completers may run here and now.
    fn settle(
        self: &Arc<Self>,
        address: QueueAddress,
        outcome: &mut QueueOutcome,
        may_complete: bool,
    ) where
        Self: Sized;
    /// Sends what a cork has held back.
    fn flush(self: Arc<Self>, address: QueueAddress);
}
