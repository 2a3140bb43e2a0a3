//! Volumes: what is stored, apart from how it is exported.
//!
//! A backend implements [`Volume`]; a layer wraps a volume and is one. Volumes are shared by all event
//! loops (`Arc<dyn Volume>`) and hold no lock on the data path, except `mem`, which locks pages. They reach
//! the outside only through [`Io`]. All offsets and lengths are bytes and multiples of the block size.
//!
//! There are two ways into a volume:
//!
//! - [`Volume::try_read`] and [`Volume::try_write`] work at once or not at all. They need no state.
//! - [`Volume::execute`] makes a future of a [`Request`]. The future owns the state of the request. It may
//!   start any number of operations of storage, requests to other volumes and work on other threads, at
//!   once or one after the other. An [`Executor`] for each event loop runs these futures, and what a volume
//!   does of its own accord ([`Volume::attach`]).

#![forbid(unsafe_code)]

use uuid::Uuid;

pub mod backend;
pub mod condition;
pub mod error;
pub mod executor;
mod identity;
pub mod io;
pub mod layer;
#[cfg(test)]
mod layer_tests;
mod lock;
pub mod machine_id;
mod medium;
pub mod open;
mod outline;
pub mod request;
#[cfg(test)]
mod suite_tests;
mod sysfs;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
mod volume;

pub use condition::Condition;
pub use error::VolumeError;
pub use executor::{Executor, RequestId, Started};
pub use identity::identify;
pub use io::Io;
pub use machine_id::MachineId;
pub use medium::InlineWrites;
pub use open::{BackendName, Backends, OpenError, VolumeSpec, open};
pub use outline::Outline;
pub use request::{Ended, Execution, Request};
pub use volume::{Attempt, AttemptCost, Volume};

/// Bytes from the start of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteOffset(pub u64);

/// What a volume is called and recognised by.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name on the command line and in the configuration.
    pub name: String,
    /// Source of every identifier that peers see (NAA, EUI-64, NGUID …). Stable across restarts.
    pub uuid: Uuid,
    /// Unit serial number, printable ASCII, at most 20 characters.
    pub serial: String,
}

/// Size at this moment; it can change when the volume is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// 512 or 4096.
    pub block_size: u32,
    /// At least 1.
    pub block_count: u64,
}

/// What a completed write is worth before any flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// A completed write is as durable as this backend ever makes it; flush has nothing to do.
    None,
    /// A completed write may be lost by a crash of the host until a flush or FUA completes.
    Volatile,
}

/// What a volume can do. Fixed while it is open.
#[derive(Clone, Copy, Debug)]
pub struct Characteristics {
    /// Writes are refused with [`VolumeError::ReadOnly`].
    pub read_only: bool,
    /// See [`WriteCache`].
    pub write_cache: WriteCache,
    /// `Unmap` frees space, in units of this many bytes (a multiple of the block size); `None`: not
    /// supported.
    pub unmap_granularity: Option<u32>,
    /// Unmapped ranges read as zeros.
    pub unmapped_reads_zeros: bool,
    /// Spinning medium (block device characteristics VPD page).
    pub rotational: bool,
}

/// Whether a write must be on the medium when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As [`WriteCache`] says.
    Cached,
    /// On the medium (Force Unit Access).
    Durable,
}

/// What to do with which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fills the request's buffer range from `offset`.
    Read {
        /// Where in the volume.
        offset: ByteOffset,
    },
    /// Writes the request's buffer range at `offset`.
    Write {
        /// Where in the volume.
        offset: ByteOffset,
        /// What its completion promises.
        durability: Durability,
    },
    /// Everything completed before is on the medium when this completes.
    Flush,
    /// Frees the range; it then reads as zeros where the characteristics say so.
    Unmap {
        /// Where in the volume.
        offset: ByteOffset,
        /// Bytes.
        length: u64,
    },
    /// The range reads as zeros afterwards; `may_unmap` lets it be freed, otherwise it stays
    /// (or becomes) allocated.
    WriteZeroes {
        /// Where in the volume.
        offset: ByteOffset,
        /// Bytes.
        length: u64,
        /// The range may be freed.
        may_unmap: bool,
        /// What its completion promises.
        durability: Durability,
    },
    /// Reserves space for the range and keeps what it reads as (an "anchored" range).
    Anchor {
        /// Where in the volume.
        offset: ByteOffset,
        /// Bytes.
        length: u64,
    },
    /// Reports the provisioning state of the longest run that starts at `offset`, looking no further
    /// than `length`.
    ExtentStatus {
        /// Where in the volume.
        offset: ByteOffset,
        /// Bytes.
        length: u64,
    },
    /// Brings the range into the cache if that is cheap; never fails for lack of support.
    Prefetch {
        /// Where in the volume.
        offset: ByteOffset,
        /// Bytes.
        length: u64,
    },
}

/// How an operation ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Answer to [`Operation::ExtentStatus`]: the first `length` bytes share `state`.
    Extent {
        /// Bytes from the start of the question, at least one block.
        length: u64,
        /// What they all are.
        state: ExtentState,
    },
}

/// Provisioning state of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// Space is allocated and holds data.
    Mapped,
    /// No space is allocated.
    Deallocated,
    /// Space is reserved, no data.
    Anchored,
}
