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

use std::ops::Range;

use uuid::Uuid;

pub use longshore_block::extent::{BlockCount, Extent, Lba};
pub use longshore_block::operation::{ExtentState, Operation, Reply};

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
pub use outline::{ByteRange, Outline};
pub use request::{Ended, Execution, Request};
pub use volume::{Attempt, AttemptCost, Volume};

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

impl Geometry {
    /// All bytes of the volume.
    #[must_use]
    pub fn size_bytes(self) -> u64 {
        self.bytes(BlockCount(self.block_count))
    }

    /// The bytes of so many blocks. Saturates.
    #[must_use]
    pub fn bytes(self, blocks: BlockCount) -> u64 {
        blocks.0.saturating_mul(u64::from(self.block_size))
    }

    /// The blocks of a range of bytes.
    ///
    /// # Panics
    /// It is not made of whole blocks.
    #[must_use]
    pub fn extent(self, bytes: &Range<u64>) -> Extent {
        let extent = self.extent_around(bytes);
        let whole = self.bytes(extent.blocks) == bytes.end - bytes.start;
        assert!(whole, "a range of whole blocks");
        extent
    }

    /// The blocks that a range of bytes touches.
    #[must_use]
    pub fn extent_around(self, bytes: &Range<u64>) -> Extent {
        let block_size = u64::from(self.block_size);
        let lba = bytes.start / block_size;
        Extent::new(lba, bytes.end.div_ceil(block_size) - lba)
    }
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
