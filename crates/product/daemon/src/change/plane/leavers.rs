//! Volumes on their way out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longshore_api::change::Revision;
use longshore_api::record::Record;
use longshore_reactor::allocator;
use longshore_volume::Volume;
use serde_json::json;

use super::super::locks::locked;
use super::super::objects::Described;
use super::super::switch::{Closed, Leaving, WaitsFor};
use crate::threads::THREAD_STACK_BYTES;

/// For how long a close may go on until storage is said not to answer.
const STORAGE_PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked whether a volume has no user left.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Failed flushes that are remembered.
const FAILURES_MAX: usize = 256;

/// Volumes on their way out, and who hears of it.
pub(super) struct Leavers {
    pub(super) volumes: Mutex<BTreeMap<String, Leaver>>,
    /// Of those that have gone: whose last flush failed and why, with the revision that took them away.
    pub(super) failures: Mutex<VecDeque<(Revision, String, String)>>,
    pub(super) gone: Condvar,
    pub(super) record: Mutex<Arc<dyn Record>>,
}

/// A volume on its way out.
pub(super) struct Leaver {
    pub(super) described: Arc<Described>,
    /// The last to hold it closes it: that is here, and on no thread that something else waits for. `None`: that is
    /// being done.
    pub(super) volume: Option<Arc<dyn Volume>>,
    /// When the server has let go of it.
    pub(super) closing_since: Option<Instant>,
}

impl Leavers {
    pub(super) fn record(&self) -> Arc<dyn Record> {
        Arc::clone(&locked(&self.record))
    }

    /// The server has let go of a volume. It is closed as soon as nobody looks at it any more, and not before.
    pub(super) fn closed(self: &Arc<Self>, closed: Closed, revision: Revision) {
        if let Some(failure) = &closed.failure {
            let mut failures = locked(&self.failures);
            if failures.len() == FAILURES_MAX {
                failures.pop_front();
            }
            failures.push_back((revision, closed.volume.clone(), failure.clone()));
        }
        let mut leaving = locked(&self.volumes);
        let leaver = leaving.get_mut(&closed.volume);
        let volume = leaver.and_then(|leaver| {
            leaver.closing_since = Some(Instant::now());
            leaver.volume.take()
        });
        drop(leaving);
        let Some(volume) = volume.filter(|volume| Arc::strong_count(volume) > 1) else {
            // Nobody else had it, and by now it is closed.
            return self.tell(&closed);
        };
        let close = {
            let this = Arc::clone(self);
            move || {
                while Arc::strong_count(&volume) > 1 {
                    thread::sleep(LOOK_AGAIN);
                }
                drop(volume);
                this.tell(&closed);
            }
        };
        let thread = thread::Builder::new().name("closing".to_owned());
        let thread = thread.stack_size(THREAD_STACK_BYTES);
        if let Err(error) = allocator::spawn(thread, close) {
            tracing::warn!("no thread to close a volume with: {error}");
        }
    }

    /// Volumes on their way out, with what they wait for. `server`: what the server says of those that it holds.
    pub(super) fn all(&self, server: Vec<Leaving>) -> Vec<(Leaving, Arc<Described>)> {
        let volumes = locked(&self.volumes);
        let leaving = volumes.iter().map(|(name, leaver)| {
            let is_late = |since: Instant| since.elapsed() >= STORAGE_PATIENCE;
            let known = server.iter().find(|it| it.volume == *name);
            let leaving = match (known, leaver.closing_since) {
                (Some(known), None) => known.clone(),
                (_, since) => Leaving {
                    volume: name.clone(),
                    waits_for: WaitsFor::Close,
                    stuck: since.is_some_and(is_late),
                },
            };
            (leaving, Arc::clone(&leaver.described))
        });
        leaving.collect()
    }

    fn tell(&self, closed: &Closed) {
        locked(&self.volumes).remove(&closed.volume);
        self.gone.notify_all();
        let volume = &closed.volume;
        let message = match &closed.failure {
            None => format!("volume {volume} is closed"),
            Some(failure) => {
                format!("volume {volume} is closed, and its last flush failed: {failure}")
            }
        };
        let data = json!({ "volume": volume, "failure": closed.failure });
        self.record().tell("volume", &message, data);
    }

    /// Volumes that a change took away and whose last flush failed, with the reasons.
    pub(super) fn failures_of(&self, wanted: Revision) -> BTreeMap<String, String> {
        let failures = locked(&self.failures);
        let of_it = failures.iter().filter(|(revision, ..)| *revision == wanted);
        let named = of_it.map(|(_, volume, reason)| (volume.clone(), reason.clone()));
        named.collect()
    }

    /// Waits until none of these volumes is on its way out, for so long at most. Returns one that is.
    pub(super) fn wait_for<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        patience: Duration,
    ) -> Option<&'a str> {
        let give_up = Instant::now() + patience;
        let mut volumes = locked(&self.volumes);
        for name in names {
            while volumes.contains_key(name) {
                let Some(left) = give_up.checked_duration_since(Instant::now()) else {
                    return Some(name);
                };
                let waited = self.gone.wait_timeout(volumes, left);
                (volumes, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        None
    }
}
