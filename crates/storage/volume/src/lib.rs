//! Volumes: what is stored, apart from how it is exported.
//!
//! A backend implements [`Volume`]; a layer wraps a volume and is one. Volumes are shared by all event
//! loops (`Arc<dyn Volume>`) and hold no lock on the data path, except `mem`, which locks pages. They reach
//! the outside only through [`Io`]. Operations count logical blocks
//! ([`longshore_block::operation`]); a backend that stores bytes converts them with [`Outline`], which
//! checks the range.
//!
//! There are two ways into a volume:
//!
//! - [`Volume::try_read`] and [`Volume::try_write`] work at once or not at all. They need no state.
//! - [`Volume::execute`] makes a future of a [`Request`]. The future owns the state of the request. It may
//!   start any number of operations of storage, requests to other volumes and work on other threads, at
//!   once or one after the other. An [`Executor`] for each event loop runs these futures, and what a volume
//!   does of its own accord ([`Volume::attach`]).

#![forbid(unsafe_code)]

pub use longshore_block::extent::{BlockCount, Extent, Lba};
pub use longshore_block::naa::{Naa, NaaError};
pub use longshore_block::names::{Eui64, NamespaceName, NamespaceNameError, Nguid, WorldwideNames};
pub use longshore_block::operation::{ExtentState, Operation, Reply};

pub mod backend;
pub mod condition;
pub mod description;
pub mod error;
pub mod executor;
mod identity;
pub mod io;
pub mod layer;
#[cfg(test)]
mod layer_tests;
pub mod lock;
pub mod machine_id;
mod medium;
pub mod open;
mod outline;
mod physical_block;
pub mod registry;
pub mod request;
#[cfg(test)]
mod suite_tests;
mod sysfs;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
mod throttle;
mod volume;

pub use condition::Condition;
pub use description::{Characteristics, Geometry, Identity, WriteCache};
pub use error::VolumeError;
pub use executor::{Executor, RequestId, Started};
pub use identity::identify;
pub use io::Io;
pub use machine_id::MachineId;
pub use medium::InlineWrites;
pub use open::{BackendName, OpenError, VolumeSpec};
pub use outline::{ByteRange, Outline};
pub use physical_block::physical_block_size;
pub use registry::{Backends, open};
pub use request::{Ended, Execution, Request};
pub use throttle::{DELAY_MAX, Delays, RateLimits, Throttle, Way};
pub use volume::{Attempt, AttemptCost, Fullness, SOFT_THRESHOLDS, Volume};
