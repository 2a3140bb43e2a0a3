//! Flushes. Those that come while one is under way share the next.
//!
//! A drive is never synced twice at once: of two syncs on one file description, the kernel reports a failed write-back
//! to one.

use std::sync::{Arc, MutexGuard, PoisonError};

use futures_channel::oneshot;
use longshore_volume::Io;

use crate::log::Failure;
use crate::pool::Pool;
use crate::waiting::Syncs;

impl Pool {
    fn syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings to the medium what is in the maps.
    pub(crate) async fn flush(self: &Arc<Self>, io: &Io) -> Result<(), Failure> {
        {
            let inner = self.lock();
            if let Some(failed) = inner.failed {
                return Err(failed);
            }
            if inner.durable >= inner.state.applied {
                return Ok(());
            }
        }
        self.sync_all(io).await
    }

    /// The same, also for what else was written to the drives.
    pub(crate) async fn sync_all(self: &Arc<Self>, io: &Io) -> Result<(), Failure> {
        loop {
            let (sender, receiver) = oneshot::channel();
            let starts = {
                let mut syncs = self.syncs();
                syncs.waiting.push(sender);
                !std::mem::replace(&mut syncs.is_running, true)
            };
            if starts {
                let (pool, task_io) = (self.clone(), io.clone());
                crate::run::spawn(io, async move {
                    pool.run_sync(&task_io).await;
                    if pool.members.is_unmarked() && pool.wants_house() {
                        pool.keep_house(&task_io);
                    }
                });
            }
            match receiver.await {
                Ok(result) => return result,
                // It came while a sync was under way, and begins the next one, or joins it.
                Err(oneshot::Canceled) => {
                    if let Some(failed) = self.lock().failed {
                        return Err(failed);
                    }
                }
            }
        }
    }

    /// One sync, for those that wait now.
    async fn run_sync(&self, io: &Io) {
        let uncertain = Uncertain(self);
        let waiting = std::mem::take(&mut self.syncs().waiting);
        let applied = self.lock().state.applied;
        let present = self.members.present();
        let syncs = present.each().map(|(_, drive)| drive.sync(io));
        let results = futures_util::future::join_all(syncs).await;
        let result = match results.into_iter().find_map(Result::err) {
            Some(error) => {
                self.poison("fdatasync", &error);
                Err(Failure::Poisoned)
            }
            None => {
                let mut inner = self.lock();
                inner.durable = inner.durable.max(applied);
                match inner.failed {
                    Some(failed) => Err(failed),
                    None => Ok(()),
                }
            }
        };
        std::mem::forget(uncertain);
        let late = {
            let mut syncs = self.syncs();
            syncs.is_running = false;
            std::mem::take(&mut syncs.waiting)
        };
        for waiter in waiting {
            let _ = waiter.send(result);
        }
        // Dropped, they come again.
        drop(late);
    }
}

/// A sync whose result nobody has seen may have failed.
struct Uncertain<'a>(&'a Pool);

impl Drop for Uncertain<'_> {
    fn drop(&mut self) {
        self.0.abandon();
        let mut syncs = self.0.syncs();
        syncs.is_running = false;
        syncs.waiting.clear();
    }
}
