//! A pool of drives: thin volumes with checksums, compression, instant snapshots and clones.
//!
//! Everything that is written goes to a log ([`format::record`]): nothing is overwritten in place. Maps tell
//! where a page lies ([`map`]), as much of them as fits in memory ([`cache`]); a checkpoint keeps them on the drives, and
//! records behind it are replayed when the pool is opened. Space that was overwritten is gained back by whole segments. `docs/formats/pool.md` has the
//! bytes, and the argument why what was flushed is found again.
//!
//! ```text
//! volume ──► log: stage ─► record ─► write ─► apply ──► state: catalogue, maps, segments
//!    └─────► read: resolve ─► drive ─► verify    ▲
//!                        checkpoint, clean ──────┘ keep house in the background
//! ```

#![forbid(unsafe_code)]

mod backend;
pub mod cache;
pub mod catalog;
mod changes;
mod check;
mod checkpoint;
mod clean;
mod closing;
mod contents;
mod desk;
mod drive;
mod drives;
mod dump;
mod error;
mod features;
#[cfg(test)]
mod fixture_tests;
pub mod format;
#[cfg(test)]
mod full_below_tests;
mod geometry;
mod hand_out;
#[cfg(test)]
mod hand_out_tests;
mod identify;
mod inspect;
mod labels;
pub mod leaf;
mod leaves;
mod load;
mod log;
#[cfg(test)]
mod long_tests;
pub mod map;
mod members;
mod mend;
mod mirror;
#[cfg(test)]
mod mirror_tests;
mod open;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod paging_tests;
pub mod place;
mod pool;
#[cfg(test)]
mod power_tests;
mod read;
mod rebuild;
#[cfg(test)]
mod rebuild_tests;
mod recovery;
mod report;
mod reserve;
pub mod room;
mod run;
mod scrub;
mod search;
pub mod segments;
mod settings;
#[cfg(test)]
mod settings_tests;
mod shared;
mod side;
pub mod state;
mod stretch;
mod survey;
mod sync;
mod tail;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tidy;
mod volume;
mod waiting;
mod walk;
mod work;
#[cfg(test)]
mod work_tests;
mod write;

pub use backend::{POOL, PoolBackend, PoolOptions};
pub use cache::{MEMORY_MIN as MAP_MEMORY_MIN, set_map_memory};
pub use changes::{Changes, SnapshotName};
pub use contents::{Listed, ListedSnapshot, Reserve, Usage};
pub use desk::{Work, WorkKind, WorkState};
pub use drive::SideState;
pub use drives::{NewDrive, wipe_drives};
pub use error::PoolError;
pub use mirror::{ListedSide, Slot};
pub use open::{NewPool, read_label};
pub use pool::{NewVolume, Pool};
pub use rebuild::{Rebuild, Rebuilt};
pub use report::{Finding, Report};
pub use room::FULL as RESERVE_FULL;
pub use settings::VolumeSettings;

/// Largest volume: 256 TiB.
pub const SIZE_MAX: u64 = 1 << 48;
