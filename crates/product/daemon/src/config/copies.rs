//! Whether payload is sent without copying it, and its memory registered with the kernel.

pub use longshore_server::config::ByReference;

/// Whether memory of direct volumes is registered with io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegisteredBuffers {
    #[default]
    Auto,
    Off,
}
