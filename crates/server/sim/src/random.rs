//! The one source of chance in a run: everything that may go either way asks here, so that the seed
//! decides it all.

/// A SplitMix64 sequence: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of that seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of ten thousand cases.
    pub const fn chance(&mut self, of_ten_thousand: u64) -> bool {
        self.below(10_000) < of_ten_thousand
    }

    /// An index below `limit`, which is not zero.
    pub fn index(&mut self, limit: usize) -> usize {
        to_usize(self.below(limit as u64))
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

/// A length or index in memory.
pub(crate) fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("lengths in a simulation are small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let mut one = Random::new(7);
        let mut other = Random::new(7);
        assert!((0..100).all(|_| one.number() == other.number()));
        assert_ne!(Random::new(7).number(), Random::new(8).number());
    }

    #[test]
    fn numbers_stay_within_bounds() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!(!random.chance(0) && random.chance(10_000));
        }
    }
}
