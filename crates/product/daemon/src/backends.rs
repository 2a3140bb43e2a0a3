//! The backends of the server: what a volume can be stored in.

use std::sync::LazyLock;

use longshore_volume::Backends;

static BACKENDS: LazyLock<Backends> = LazyLock::new(|| {
    let mut backends = Backends::local();
    longshore_remote::register(&mut backends);
    backends
});

/// Backends of this program: those of `volume` and `remote`.
pub fn backends() -> &'static Backends {
    &BACKENDS
}
