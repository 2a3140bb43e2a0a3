//! The last published counters of a shard, for readers on other threads.
//!
//! The shard stores now and then, without a lock. A reader may see some counters of one moment and
//! others of the next; none of them is torn.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shard::Counters;

/// Turns between two publications. A turn costs some thousand instructions, storing some dozens.
const TURNS_BETWEEN: u64 = 256;

/// See the module documentation. On cache lines of its own.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Published([AtomicU64; Counters::COUNT]);

impl Default for Published {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Published {
    /// Whether it is time to publish.
    #[inline]
    pub(crate) const fn is_due(counters: &Counters) -> bool {
        counters.turns.is_multiple_of(TURNS_BETWEEN)
    }

    /// Publishes the counters to readers on other threads.
    #[cold]
    pub(crate) fn store(&self, counters: &Counters) {
        for (place, value) in self.0.iter().zip(counters.to_array()) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// What was told last.
    pub(crate) fn load(&self) -> Counters {
        Counters::from_array(std::array::from_fn(|index| {
            self.0[index].load(Ordering::Relaxed)
        }))
    }
}
