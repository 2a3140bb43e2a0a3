//! Addresses, counts and ranges of logical blocks.

use std::fmt;

/// Logical block address, from 0; its unit is the block size of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lba(pub u64);

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LBA {}", self.0)
    }
}

/// A number of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockCount(pub u64);

/// A range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    pub lba: Lba,
    pub blocks: BlockCount,
}

impl Extent {
    /// The `blocks` blocks from `lba` on.
    #[inline]
    #[must_use]
    pub const fn new(lba: u64, blocks: u64) -> Self {
        Self {
            lba: Lba(lba),
            blocks: BlockCount(blocks),
        }
    }

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

    #[test]
    fn a_range_fits_up_to_the_last_block_and_never_wraps() {
        assert!(Extent::new(0, 100).fits(100));
        assert!(Extent::new(99, 1).fits(100));
        assert!(!Extent::new(99, 2).fits(100));
        assert!(!Extent::new(100, 1).fits(100));
        assert!(!Extent::new(u64::MAX, 1).fits(100));
        assert!(!Extent::new(u64::MAX, u64::MAX).fits(u64::MAX));
    }

    #[test]
    fn neighbours_do_not_overlap() {
        assert!(!Extent::new(0, 10).overlaps(Extent::new(10, 10)));
        assert!(Extent::new(0, 11).overlaps(Extent::new(10, 10)));
        assert!(Extent::new(12, 1).overlaps(Extent::new(10, 10)));
    }
}
