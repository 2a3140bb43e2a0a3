//! Leaves of maps that are in memory: how many, and which leaves it first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::format::record::LayerId;
use crate::leaf::{Home, Leaf};

/// Memory for the leaves of a pool's maps, in bytes, where nothing else is said.
const MEMORY_USUAL: usize = 256 << 20;

/// Least memory for leaves: what the largest parts of records need at once, many times over.
pub const MEMORY_MIN: u64 = 4 << 20;

/// Leaves of a pool's maps that may be in memory.
static ROOM: AtomicUsize = AtomicUsize::new(MEMORY_USUAL / size_of::<Leaf>());

/// Says how many bytes of memory the leaves of the maps of each pool may take, at least [`MEMORY_MIN`]. Lists of where
/// leaves are take 16 MiB more for each TiB of data.
pub fn set_map_memory(bytes: u64) {
    let bytes = usize::try_from(bytes.max(MEMORY_MIN)).unwrap_or(usize::MAX);
    ROOM.store(bytes / size_of::<Leaf>(), Ordering::Relaxed);
}

/// A leaf that is needed, and not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    pub layer: LayerId,
    pub number: u32,
    pub home: Home,
}

impl Missing {
    /// # Panics
    /// No volume has a leaf of that number.
    #[must_use]
    pub fn new(layer: LayerId, number: usize, home: Home) -> Self {
        Self {
            layer,
            number: u32::try_from(number).expect("volumes are at most 256 TiB"),
            home,
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Cache {
    /// Leaves that are in memory.
    pub resident: usize,
    /// Those of them that the newest checkpoint has not as they are.
    pub dirty: usize,
    /// Leaves in memory, in the order in which they are considered for eviction.
    pub clock: VecDeque<(LayerId, u32)>,
    /// Places on the drives whose leaves are gone.
    pub homeless: Vec<Home>,
    /// Leaves that there should be at most; `None`: as many as the process says.
    most: Option<usize>,
    /// Leaves that have not changed since the checkpoint, and stay in memory, however many have changed.
    clean_min: usize,
    /// [`Self::clean_min`] while nobody needs many leaves at once.
    clean_usual: usize,
}

impl Default for Cache {
    fn default() -> Self {
        #[cfg(test)]
        if let Some(leaves) = crate::testing::cache_room() {
            return Self {
                most: Some(leaves),
                clean_min: 4,
                clean_usual: 4,
                ..Self::new()
            };
        }
        Self::new()
    }
}

/// What a part of a record needs at once, twice.
const CLEAN_USUAL: usize = 300;

impl Cache {
    const fn new() -> Self {
        Self {
            resident: 0,
            dirty: 0,
            clock: VecDeque::new(),
            homeless: Vec::new(),
            most: None,
            clean_min: CLEAN_USUAL,
            clean_usual: CLEAN_USUAL,
        }
    }

    fn most(&self) -> usize {
        self.most.unwrap_or_else(|| ROOM.load(Ordering::Relaxed))
    }

    /// Whether some are to leave.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.resident > self.most() && self.resident - self.dirty > self.clean_min
    }

    /// Whether a checkpoint is due, because many leaves have changed since the last one.
    #[must_use]
    pub fn is_soiled(&self) -> bool {
        self.dirty > self.most() / 4
    }

    /// Whether writes have to wait for a checkpoint, because too many leaves have changed since the last one.
    #[must_use]
    pub fn is_clogged(&self) -> bool {
        self.dirty > self.most() / 2
    }

    /// So many leaves are needed at once: they stay until the next checkpoint.
    pub fn need(&mut self, leaves: usize) {
        self.clean_min = self.clean_min.max(2 * leaves + self.clean_usual);
    }

    /// A checkpoint was made: what was needed at once is not any more.
    pub const fn relax(&mut self) {
        self.clean_min = self.clean_usual;
    }

    /// All leaves stay in memory from now on.
    pub const fn hold_all(&mut self) {
        self.most = Some(usize::MAX);
    }

    pub(crate) fn arrived(&mut self, layer: LayerId, number: u32) {
        self.resident += 1;
        self.clock.push_back((layer, number));
    }

    pub(crate) fn dropped(&mut self, was_resident: bool, was_dirty: bool) {
        self.resident -= usize::from(was_resident);
        self.dirty -= usize::from(was_dirty);
    }
}
