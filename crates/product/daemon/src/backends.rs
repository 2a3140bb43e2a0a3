//! The backends of the server: what a volume can be stored in.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use longshore_pool::{Pool, PoolBackend, PoolError};
use longshore_reactor::allocator;
use longshore_volume::Backends;

/// How often it is looked whether the work of a pool has ended.
const LOOK: Duration = Duration::from_millis(200);
/// How long a pool stays open then: longer than those wait who look for its end.
const AFTERWARDS: Duration = Duration::from_secs(5);

static POOLS: LazyLock<PoolBackend> = LazyLock::new(PoolBackend::default);

static BACKENDS: LazyLock<Backends> = LazyLock::new(|| {
    let mut backends = Backends::local();
    longshore_remote::register(&mut backends);
    backends.register(Box::new(POOLS.clone()));
    backends
});

/// Backends of this program: those of `volume`, `remote` and `pool`.
pub fn backends() -> &'static Backends {
    &BACKENDS
}

/// The pools that are open in this process, by name.
pub fn open_pools() -> Vec<HeldPool> {
    POOLS.open_pools().into_iter().map(HeldPool).collect()
}

/// A pool by its drives, opened if it is not. May block.
///
/// # Errors
/// It cannot be opened.
pub fn pool(drives: &[PathBuf], is_direct: bool) -> Result<HeldPool, PoolError> {
    POOLS.pool(drives, is_direct).map(HeldPool)
}

/// Whether the second list has the drives of an open pool, and the first those that it had before.
pub fn are_of_one_pool(before: &[PathBuf], after: &[PathBuf]) -> bool {
    let mut pools = open_pools().into_iter();
    pools.any(|pool| pool.lay_on(before) && pool.lies_exactly_on(after))
}

/// Keeps a pool open until its work has ended, and somewhat longer, so that whoever waits for the end can see it.
pub(crate) fn hold_while_it_works(pool: &HeldPool) {
    let held = HeldPool(Arc::clone(&pool.0));
    let thread = thread::Builder::new().name("pool-held".to_owned());
    let started = allocator::spawn(thread, move || {
        while held.work().is_some_and(|work| work.is_running()) {
            thread::sleep(LOOK);
        }
        thread::sleep(AFTERWARDS);
        drop(held);
    });
    if let Err(error) = started {
        tracing::warn!(%error, "a pool is closed when its work ends");
    }
}

/// A pool that is held for a while. The last one that lets go of it has it open fast the next time.
pub struct HeldPool(Arc<Pool>);

impl std::ops::Deref for HeldPool {
    type Target = Arc<Pool>;

    fn deref(&self) -> &Arc<Pool> {
        &self.0
    }
}

impl Drop for HeldPool {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) == 1
            && !self.0.is_destroyed()
            && let Err(error) = self.0.close()
        {
            tracing::warn!(pool = self.0.name(), %error, "no last checkpoint: the pool opens more slowly next time");
        }
    }
}

/// Has the pools that are open make a last checkpoint, so that they open fast the next time. Waits for no more than
/// `limit`: without it nothing is lost.
pub fn close_pools(limit: Duration) {
    if open_pools().is_empty() {
        return;
    }
    let (closed, wait) = mpsc::channel::<()>();
    let thread = thread::Builder::new().name("pool-close".to_owned());
    let closing = allocator::spawn(thread, move || {
        for pool in open_pools() {
            if let Err(error) = pool.close() {
                tracing::warn!(pool = pool.name(), %error, "no last checkpoint");
            }
        }
        drop(closed);
    });
    // The thread says nothing: it ends.
    if closing.is_ok() && wait.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!(
            "the last checkpoint of a pool takes too long: it opens more slowly next time"
        );
    }
}
