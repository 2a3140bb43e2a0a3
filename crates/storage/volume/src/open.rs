//! What opening a volume takes: its specification, the factory of its backend, and what can be wrong.
//!
//! Everything that can be wrong with a volume is found here, at start, and said with the path and
//! what to do next; an open volume then only meets what can go wrong later.

mod backend;
pub(crate) mod error;
mod name;
mod spec;

pub use backend::{Backend, Opened};
pub use error::{LockHolder, OpenError, PHYSICAL_BLOCK_MAX};
pub use name::BackendName;
pub(crate) use spec::check_size;
pub use spec::{BackendOptions, VolumeSpec};
