//! Target transfer tags that are hard to guess.

use crate::pdu::TargetTransferTag;

/// Gives out target transfer tags: every value but the reserved one, in an order that depends on the
/// seed, none twice within 2^32.
#[derive(Debug)]
pub(super) struct TransferTags {
    counter: u32,
    seed: u32,
}

impl TransferTags {
    pub(super) const fn new(seed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = seed.to_be_bytes();
        Self {
            counter: u32::from_be_bytes([a, b, c, d]),
            seed: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// A bijection of the counter (xor, odd multiplication, xor-shift), so no value comes early.
    pub(super) fn next(&mut self) -> TargetTransferTag {
        loop {
            self.counter = self.counter.wrapping_add(1);
            let mixed = (self.counter ^ self.seed).wrapping_mul(0x9e37_79b1);
            let tag = TargetTransferTag(mixed ^ (mixed >> 15));
            if !tag.is_reserved() {
                return tag;
            }
        }
    }
}
