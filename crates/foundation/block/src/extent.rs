//! Ranges of logical blocks.

use crate::media::{BlockCount, Lba};

/// A range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub lba: Lba,
    /// How many.
    pub blocks: BlockCount,
}

impl Extent {
    /// Whether it lies within a medium of so many blocks. An empty one may sit at the very end.
    #[inline]
    #[must_use]
    pub fn fits(self, capacity: u64) -> bool {
        self.lba
            .0
            .checked_add(self.blocks.0)
            .is_some_and(|end| end <= capacity)
    }

    /// Whether both have a block in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let end = |extent: Self| extent.lba.0.saturating_add(extent.blocks.0);
        self.lba.0 < end(other) && other.lba.0 < end(self)
    }

    /// Its bytes. Saturates: no buffer is that long, and lengths are compared only.
    #[inline]
    #[must_use]
    pub fn bytes(self, block_size: u32) -> u64 {
        self.blocks.0.saturating_mul(u64::from(block_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(lba: u64, blocks: u64) -> Extent {
        Extent {
            lba: Lba(lba),
            blocks: BlockCount(blocks),
        }
    }

    #[test]
    fn a_range_fits_up_to_the_last_block_and_never_wraps() {
        assert!(extent(0, 100).fits(100));
        assert!(extent(99, 1).fits(100));
        assert!(!extent(99, 2).fits(100));
        assert!(!extent(100, 1).fits(100));
        assert!(!extent(u64::MAX, 1).fits(100));
        assert!(!extent(u64::MAX, u64::MAX).fits(u64::MAX));
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert!(!extent(0, 10).overlaps(extent(10, 10)));
        assert!(extent(0, 11).overlaps(extent(10, 10)));
        assert!(extent(12, 1).overlaps(extent(10, 10)));
    }
}
