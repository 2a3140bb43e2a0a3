//! Hosts without connections whose writes are still in progress.
//!
//! A host that lost its connection connects again and repeats unanswered commands. A write of its old queue may still
//! be on its way to the medium then. So each I/O queue has an [`Activity`], and a new queue's commands wait for the
//! activities of queues of that host that have closed, or whose controller is no longer enabled, which means that
//! they are about to. Other open queues are no concern: a host may have several controllers at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use longshore_nvme::controller::Controller;

use crate::address::ConnectionAddress;
use crate::mail::message::Post;
use crate::sessions::activity::Activity;

/// Hosts are looked through for ended activities when there are so many.
const FORGET_AT_LEAST: usize = 64;

/// HOSTID, by which the standard tells hosts apart.
type HostIdentifier = [u8; 16];

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    queues: HashMap<HostIdentifier, Vec<QueueActivity>>,
    forget_at: usize,
}

/// What is remembered of an I/O queue.
#[derive(Debug)]
struct QueueActivity {
    activity: Weak<Activity>,
    controller: Weak<Controller>,
    closed: bool,
}

impl QueueActivity {
    /// Whether a new queue of that controller takes its place.
    fn is_over(&self, controller: &Arc<Controller>) -> bool {
        self.closed
            || match self.controller.upgrade() {
                None => true,
                Some(own) => !Arc::ptr_eq(&own, controller) && !own.is_enabled(),
            }
    }
}

impl Hosts {
    /// A new queue of a host. `true`: its commands wait for
    /// [`Note::PredecessorsEnded`](crate::mail::message::Note::PredecessorsEnded).
    pub(crate) fn enter(
        &self,
        controller: &Arc<Controller>,
        activity: &Arc<Activity>,
        post: &Post,
        connection: ConnectionAddress,
    ) -> bool {
        let mut table = self.lock();
        let queues = table
            .queues
            .entry(*controller.host_identifier())
            .or_default();
        queues.retain(|queue| queue.activity.strong_count() > 0);
        let earlier: Vec<Arc<Activity>> = queues
            .iter()
            .filter(|queue| queue.is_over(controller))
            .filter_map(|queue| queue.activity.upgrade())
            .collect();
        queues.push(QueueActivity {
            activity: Arc::downgrade(activity),
            controller: Arc::downgrade(controller),
            closed: false,
        });
        table.forget_ended_when_many();
        drop(table);
        Activity::hold(&earlier, post, connection);
        !earlier.is_empty()
    }

    /// A queue has closed. Its activity goes on in what storage still does for it.
    pub(crate) fn leave(&self, host: &HostIdentifier, activity: &Arc<Activity>) {
        let mut table = self.lock();
        let queues = table.queues.get_mut(host).into_iter().flatten();
        for queue in
            queues.filter(|queue| std::ptr::eq(queue.activity.as_ptr(), Arc::as_ptr(activity)))
        {
            queue.closed = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("nothing panics under this lock")
    }
}

impl Table {
    fn forget_ended_when_many(&mut self) {
        if self.queues.len() >= self.forget_at.max(FORGET_AT_LEAST) {
            self.queues.retain(|_, queues| {
                queues.retain(|queue| queue.activity.strong_count() > 0);
                !queues.is_empty()
            });
            self.forget_at = 2 * self.queues.len();
        }
    }
}
