//! The backends of the server: what a volume can be stored in.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use longshore_pool::{Pool, PoolBackend, PoolError, PoolOptions};
use longshore_volume::open::{Backend, Opened};
use longshore_volume::{BackendName, Backends, OpenError, VolumeSpec};

static POOLS: LazyLock<PoolBackend> = LazyLock::new(PoolBackend::default);

static BACKENDS: LazyLock<Backends> = LazyLock::new(|| {
    let mut backends = Backends::local();
    longshore_remote::register(&mut backends);
    backends.register(Box::new(Pooled));
    backends
});

/// Backends of this program: those of `volume`, `remote` and `pool`.
pub fn backends() -> &'static Backends {
    &BACKENDS
}

/// Pools that volumes of this process have open, with their drives.
static OPEN: Mutex<Vec<(Vec<PathBuf>, Weak<Pool>)>> = Mutex::new(Vec::new());

/// The pools that volumes of this process have open, with their drives.
pub fn open_pools() -> Vec<(Vec<PathBuf>, HeldPool)> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, pool)| pool.strong_count() > 0);
    let pools = open.iter();
    pools
        .filter_map(|(drives, pool)| Some((drives.clone(), HeldPool(pool.upgrade()?))))
        .collect()
}

/// A pool by its drives, opened if it is not. May block.
///
/// # Errors
/// It cannot be opened.
pub fn pool(drives: &[PathBuf], is_direct: bool) -> Result<HeldPool, PoolError> {
    POOLS.pool(drives, is_direct).map(HeldPool)
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
    let closing = thread::Builder::new()
        .name("pool-close".to_owned())
        .spawn(move || {
            for (_, pool) in open_pools() {
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

/// Notes the pool of a volume that is open.
fn note_pool(spec: &VolumeSpec) {
    let Some(options) = spec.options::<PoolOptions>() else {
        return;
    };
    // It is open, so that this only finds it.
    let Ok(found) = POOLS.pool(&options.drives, spec.direct) else {
        return;
    };
    let weak = Arc::downgrade(&found);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, pool)| pool.strong_count() > 0);
    if !open.iter().any(|(_, pool)| pool.ptr_eq(&weak)) {
        open.push((options.drives.clone(), weak));
    }
}

/// The backend `pool`, on the pools that the whole process shares.
struct Pooled;

impl Backend for Pooled {
    fn name(&self) -> BackendName {
        POOLS.name()
    }

    fn has_path(&self) -> bool {
        POOLS.has_path()
    }

    fn check(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        if spec.options::<PoolOptions>().is_none() {
            spec.refuse_options()?;
        }
        POOLS.check(spec)
    }

    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        POOLS.survey(spec)
    }

    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        let opened = POOLS.open(spec)?;
        note_pool(spec);
        Ok(opened)
    }
}
