//! Freeing and zeroing ranges: the ways there are, in order of preference.
//!
//! A way that the object turns out not to know (EOPNOTSUPP and its relatives) is not tried again
//! while the volume is open; the last way of a list, writing zeros, always works.

use std::sync::atomic::{AtomicU8, Ordering};

/// One way to free or zero a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ZeroingWay {
    /// Frees; reads as zeros.
    PunchHole = 1,
    /// Reads as zeros, stays allocated.
    ZeroRange = 2,
    /// Frees; what it reads as is the device's affair.
    BlockDiscard = 4,
    /// Reads as zeros, stays allocated.
    BlockZeroOut = 8,
    /// Writes zeros. Known everywhere.
    WriteZeros = 16,
}

/// How an object frees and zeroes.
#[derive(Debug)]
pub(crate) struct Zeroing {
    pub(crate) unmap: &'static [ZeroingWay],
    /// For `WriteZeroes` that may free.
    pub(crate) zero_may_unmap: &'static [ZeroingWay],
    /// For `WriteZeroes` that must leave space allocated.
    pub(crate) zero: &'static [ZeroingWay],
    /// Bits of the ways that turned out not to be supported.
    unsupported: AtomicU8,
}

impl Zeroing {
    /// Ranges of a regular file.
    pub(crate) fn file() -> Zeroing {
        use ZeroingWay::{PunchHole, WriteZeros, ZeroRange};
        Zeroing::new(
            &[PunchHole, ZeroRange, WriteZeros],
            &[PunchHole, ZeroRange, WriteZeros],
            &[ZeroRange, WriteZeros],
        )
    }

    /// Ranges of a device that zeroes what it frees.
    pub(crate) fn zeroing_device() -> Zeroing {
        use ZeroingWay::{BlockZeroOut, PunchHole, WriteZeros};
        Zeroing::new(
            &[PunchHole, BlockZeroOut, WriteZeros],
            &[PunchHole, BlockZeroOut, WriteZeros],
            &[BlockZeroOut, WriteZeros],
        )
    }

    /// Ranges of a device whose freed blocks read as anything.
    pub(crate) fn discarding_device() -> Zeroing {
        use ZeroingWay::{BlockDiscard, BlockZeroOut, WriteZeros};
        Zeroing::new(
            &[BlockDiscard],
            &[BlockZeroOut, WriteZeros],
            &[BlockZeroOut, WriteZeros],
        )
    }

    /// An object that always reads as zeros.
    pub(crate) fn always_zero() -> Zeroing {
        Zeroing::new(&[], &[], &[])
    }

    fn new(
        unmap: &'static [ZeroingWay],
        zero_may_unmap: &'static [ZeroingWay],
        zero: &'static [ZeroingWay],
    ) -> Zeroing {
        Zeroing {
            unmap,
            zero_may_unmap,
            zero,
            unsupported: AtomicU8::new(0),
        }
    }

    /// Whether every way to unmap leaves zeros.
    pub(crate) fn unmapped_reads_zeros(&self) -> bool {
        !self.unmap.contains(&ZeroingWay::BlockDiscard)
    }

    /// Ways of `WriteZeroes`, the cheapest first.
    pub(super) fn ways_to_zero(&self, may_unmap: bool) -> &'static [ZeroingWay] {
        if may_unmap {
            self.zero_may_unmap
        } else {
            self.zero
        }
    }

    pub(super) fn is_known(&self, way: ZeroingWay) -> bool {
        self.unsupported.load(Ordering::Relaxed) & way as u8 == 0
    }

    pub(super) fn forget(&self, way: ZeroingWay) {
        self.unsupported.fetch_or(way as u8, Ordering::Relaxed);
    }
}
