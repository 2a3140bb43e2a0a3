//! The backends of the server: what a volume can be stored in.

use std::sync::LazyLock;

use longshore_pool::{PoolBackend, PoolOptions};
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
        POOLS.open(spec)
    }
}
