//! Volume requests under way on one shard.
//!
//! A request owns its buffer until storage has answered, whatever becomes of the task that wanted
//! it. If the task is aborted or its connection closed, the request goes on as an orphan. An orphan
//! keeps alive what must not end before the medium is quiet: the abort orders that wait for it and the
//! activity of its session or queue.

use std::sync::Arc;

use longshore_nvme::controller::Controller;
use longshore_volume::Executor;

use crate::address::{ConnectionAddress, TaskAddress};
use crate::mail::abort::AbortOrder;
use crate::mail::grace::Token;
use crate::mail::removal::Removal;
use crate::sessions::activity::Activity;

/// What the shard keeps about a request under way.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Who waits for it.
    pub owner: Owner,
    /// Index of the unit whose volume works on it.
    pub unit: usize,
    /// It counts as a write at its unit's gate.
    pub counted: bool,
}

/// Who waits for a request.
#[derive(Debug)]
pub(crate) enum Owner {
    Task(TaskAddress),
    /// Nobody: its task is gone.
    Orphan(Orphan),
    /// An NVMe controller that is shut down: held, not read.
    Controller(
        #[expect(dead_code, reason = "held, not read: its end is what counts")] Arc<ShutdownFlush>,
    ),
    /// The removal of a unit, which waits for the end of its background work, or for its last flush.
    Removal {
        removal: Arc<Removal>,
        #[expect(dead_code, reason = "held, not read: its end is what counts")]
        token: Arc<Token>,
    },
    /// The shard, which has volumes end their background work.
    Quiesce,
    /// The shard itself, which flushes volumes before it ends.
    Shutdown,
}

impl Owner {
    /// Whether it waits for a volume to end what it does of its own accord, which may take for ever.
    pub(crate) fn ends_background_work(&self) -> bool {
        match self {
            Self::Quiesce => true,
            Self::Removal { removal, .. } => !removal.is_flushing(),
            Self::Task(_) | Self::Orphan(_) | Self::Controller(_) | Self::Shutdown => false,
        }
    }
}

/// What an orphan keeps alive, and releases.
#[derive(Debug)]
pub(crate) struct Orphan {
    /// Whose task it was.
    pub connection: ConnectionAddress,
    pub orders: Vec<Arc<AbortOrder>>,
    #[expect(dead_code, reason = "held, not read: its end is what counts")]
    pub activity: Option<Arc<Activity>>,
    /// The aborted task had the gate of this unit to itself.
    pub exclusive: Option<(usize, TaskAddress)>,
}

/// All requests of a shard.
pub(crate) type Requests = Executor<InFlight>;

/// The flushes of a controller that is shut down. Its host waits until all have ended.
#[derive(Debug)]
pub(crate) struct ShutdownFlush(Arc<Controller>);

impl ShutdownFlush {
    pub(crate) fn new(controller: &Arc<Controller>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(controller)))
    }
}

impl Drop for ShutdownFlush {
    fn drop(&mut self) {
        self.0.shutdown_finished();
    }
}
