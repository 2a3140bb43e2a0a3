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
use std::sync::Arc;

use longshore_reactor::PagePipe;
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

/// Result of trying to work without sleeping.
#[derive(Debug)]
pub enum Attempt {
    /// All of it was done, or it failed.
    Done(Result<(), VolumeError>),
    /// Nothing was done that matters; use [`Volume::execute`].
    WouldSleep,
}

/// What an attempt that succeeds costs, for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttemptCost {
    /// Nothing to speak of, or attempts never succeed.
    #[default]
    Nothing,
    /// The server copies the bytes.
    Copy,
    /// A system call.
    SystemCall,
}

/// A block volume. See the module documentation.
pub trait Volume: Send + Sync {
    /// What it is called.
    fn identity(&self) -> &Identity;
    /// How large it is now.
    fn geometry(&self) -> Geometry;
    /// What it can do.
    fn characteristics(&self) -> Characteristics;

    /// True when the range is known to read as zeros without looking (the null volume), so that a
    /// sender may use shared zeros in place of a read.
    fn known_zeros(&self, _extent: Extent) -> bool {
        false
    }

    /// What [`Self::try_read`] and [`Self::try_write`] cost.
    fn attempt_cost(&self) -> AttemptCost {
        AttemptCost::Nothing
    }

    /// Takes references to the pages that hold the range, if that needs no sleep. `false`: they are not all
    /// there, or this volume has none, or the range is not its own; read the ordinary way then.
    ///
    /// A later write may change what the pages hold.
    fn take_pages(&self, _extent: Extent, _into: &mut PagePipe) -> bool {
        false
    }

    /// Reads whole blocks if that needs no sleep.
    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt;

    /// Writes whole blocks if that needs no sleep. `fua`: they are on the medium when it is done.
    fn try_write(&self, lba: Lba, from: &[u8], fua: bool) -> Attempt;

    /// Carries out a request on the event loop that `io` belongs to.
    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution;

    /// An event loop begins to serve the volume: called once by each event loop of the server, before its
    /// first request. A volume that works of its own accord (garbage collection, scrubbing, read-ahead)
    /// spawns that here. Owners that use a volume for a while, such as a copy, need not call it.
    fn attach(self: Arc<Self>, io: &Io) {
        let _ = io;
    }

    /// Stops what the volume does of its own accord on this event loop. Once the execution has ended,
    /// the volume starts no operation there but those of requests, until [`Self::resume`]. The owner holds
    /// requests back meanwhile if they must not run either. An error says what could not be brought to an
    /// end.
    fn quiesce(self: Arc<Self>, io: Io) -> Execution {
        let _ = io;
        Execution::ended(Ok(Reply::Done), None)
    }

    /// The volume may work of its own accord again on this event loop.
    fn resume(self: Arc<Self>, io: &Io) {
        let _ = io;
    }

    /// What is known to be wrong with the volume as a whole.
    fn condition(&self) -> Condition {
        Condition::Sound
    }

    /// Looks at the backing object, and tells what is wrong with the volume. May block; called from
    /// control threads only, every now and then.
    fn inspect(&self) -> Condition {
        self.condition()
    }

    /// Looks whether the backing object changed its size, and takes the new size up. May block;
    /// called from control threads only. Returns the geometry now in force.
    /// A backing object that became shorter is reported ([`VolumeError::Shortened`], of a remote volume
    /// [`VolumeError::ShortFile`]) and the old size stays in force: a volume never shrinks under its
    /// users.
    fn refresh_geometry(&self) -> Result<Geometry, VolumeError>;

    /// The server is about to end: what still waits for something that is away (another server) fails after
    /// `within`, if it would wait longer. Everything else goes on as before. Does not block.
    fn hurry(&self, within: std::time::Duration) {
        let _ = within;
    }

    /// Makes the volume `size_bytes` long, growing the backing object where it has one. May block;
    /// called from control threads only. Returns the geometry now in force. A smaller or uneven size
    /// is refused with [`VolumeError::OutOfRange`], a backend that cannot grow with
    /// [`VolumeError::Unsupported`].
    fn grow(&self, size_bytes: u64) -> Result<Geometry, VolumeError> {
        let _ = size_bytes;
        Err(VolumeError::Unsupported)
    }
}
