//! What is to be copied where, and how.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_initiator::options::Options;
use longshore_reactor::EngineChoice;
use uuid::Uuid;

use crate::endpoint::Endpoint;

/// Bytes of a chunk unless asked otherwise: large enough that each request is cheap, small enough that
/// [`PARALLEL_DEFAULT`] of them fit into 16 MiB.
pub const CHUNK_DEFAULT: u64 = 1 << 20;

/// Smallest chunk in bytes: one block of 4096.
pub const CHUNK_MIN: u64 = 4096;

pub const CHUNK_MAX: u64 = 64 << 20;

/// Chunks under way at a time unless asked otherwise.
pub const PARALLEL_DEFAULT: usize = 16;

/// Most chunks under way at a time.
pub const PARALLEL_MAX: usize = 256;

/// How much of a copy may have to be made again after a crash, in time.
pub const CHECKPOINT_DEFAULT: Duration = Duration::from_secs(5);

/// How a copy is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of a chunk, a power of two from [`CHUNK_MIN`] to [`CHUNK_MAX`].
    pub chunk: u64,
    /// Chunks under way at a time, 1 to [`PARALLEL_MAX`].
    pub parallel: usize,
    /// Zeros are written like everything else, so that the destination is allocated.
    pub thick: bool,
    /// Files and block devices are used without the page cache (O_DIRECT).
    pub direct: bool,
    /// Most bytes per second.
    pub rate: Option<u64>,
    /// Time between two checkpoints.
    pub checkpoint: Duration,
    /// Read both sides again afterwards, and compare.
    pub verify: bool,
    /// Go on where an earlier run was interrupted.
    pub resume: bool,
    /// Remote volumes with the same worldwide names are two volumes all the same: some servers number their volumes
    /// from 1 on and make names of that. And the copy begins although space seems too short.
    pub force: bool,
    /// How to wait for files.
    pub engine: EngineChoice,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chunk: CHUNK_DEFAULT,
            parallel: PARALLEL_DEFAULT,
            thick: false,
            direct: false,
            rate: None,
            checkpoint: CHECKPOINT_DEFAULT,
            verify: false,
            resume: false,
            force: false,
            engine: EngineChoice::Auto,
        }
    }
}

/// What of a snapshot is copied, where the destination holds an older one.
#[derive(Clone, Debug)]
pub struct Changes {
    /// UUID of the snapshot that is the source.
    pub source: Uuid,
    /// UUID of the older one.
    pub since: Uuid,
    /// Bytes of the source.
    pub size: u64,
    /// Where they differ, in order.
    pub ranges: Arc<[Range<u64>]>,
}

/// What is to be copied where.
#[derive(Clone, Debug)]
pub struct Job {
    /// Volume, file or device to read from.
    pub source: Endpoint,
    /// Volume, file or device to write to.
    pub destination: Endpoint,
    /// How to reach the source if it is remote.
    pub source_options: Options,
    /// How to reach the destination if it is remote.
    pub destination_options: Options,
    pub settings: Settings,
    /// Nothing else is copied.
    pub changes: Option<Changes>,
    /// Where to keep how far it got, when the user says so.
    pub journal: Option<PathBuf>,
    /// Where journals of destinations are that are not files.
    pub state_directory: Option<PathBuf>,
}
