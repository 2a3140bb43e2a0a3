//! The load of each shard, published while it is awake, ten times a second at most.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Time over which the load is measured.
pub(crate) const WINDOW_MS: u64 = 100;
/// A load that is older belongs to a shard that has been asleep since.
const STALE_MS: u64 = 3 * WINDOW_MS;
/// A shard that was chosen to get something is left to itself until its load shows that.
const CLAIM_MS: u64 = 4 * WINDOW_MS;

/// All of the time.
pub(crate) const WHOLE: u64 = 1000;
/// Bits for a share of it.
const SHARE_BITS: u32 = 16;

/// The load of one shard.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Load {
    /// When it was published, and the share of time that the shard worked, in thousandths.
    published: AtomicU64,
    /// Until when nobody else moves anything there.
    claimed_until_ms: AtomicU64,
    /// The core that the shard is pinned to, once it is.
    core: OnceLock<usize>,
}

impl Load {
    /// The shard has worked for so many thousandths of the last window.
    pub(crate) fn publish(&self, now_ms: u64, share: u64) {
        let word = now_ms << SHARE_BITS | share.min(WHOLE);
        self.published.store(word, Ordering::Relaxed);
    }

    /// For how many thousandths of its time the shard works.
    pub(crate) fn share(&self, now_ms: u64) -> u64 {
        let word = self.published.load(Ordering::Relaxed);
        let at_ms = word >> SHARE_BITS;
        if now_ms.saturating_sub(at_ms) > STALE_MS {
            0
        } else {
            word & ((1 << SHARE_BITS) - 1)
        }
    }

    /// The shard runs on this core alone.
    pub(crate) fn pin(&self, core: usize) {
        // Nobody else says it, and it stays so.
        let _ = self.core.set(core);
    }

    /// The core that the shard is pinned to.
    pub(crate) fn core(&self) -> Option<usize> {
        self.core.get().copied()
    }

    /// Whether somebody is moving something there.
    pub(crate) fn is_claimed(&self, now_ms: u64) -> bool {
        self.claimed_until_ms.load(Ordering::Relaxed) > now_ms
    }

    /// Keeps others from moving anything there for a while. `false`: one of them was first.
    pub(crate) fn claim(&self, now_ms: u64) -> bool {
        let until = self.claimed_until_ms.load(Ordering::Relaxed);
        until <= now_ms
            && self
                .claimed_until_ms
                .compare_exchange(
                    until,
                    now_ms + CLAIM_MS,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }
}

#[cfg(test)]
impl Load {
    /// Shards that have worked for these shares of the last window.
    pub(crate) fn of_shards(shares: &[u64], now_ms: u64) -> Vec<Self> {
        let publish = |share: &u64| {
            let load = Self::default();
            load.publish(now_ms, *share);
            load
        };
        shares.iter().map(publish).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_is_asleep_has_no_load() {
        let load = Load::default();
        load.publish(1000, 700);
        assert_eq!(load.share(1000 + WINDOW_MS), 700);
        assert_eq!(load.share(1001 + STALE_MS), 0);
    }

    #[test]
    fn one_at_a_time_gives_to_a_shard() {
        let load = Load::default();
        assert!(load.claim(50));
        assert!(load.is_claimed(60) && !load.claim(60));
        assert!(load.claim(50 + CLAIM_MS));
    }
}
