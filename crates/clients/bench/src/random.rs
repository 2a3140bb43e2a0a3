//! Repeatable numbers for places, directions and sizes: splitmix64, about a nanosecond each.

/// A seeded generator. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Numbers that depend on these two alone: one seed gives every stream numbers of its own.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self { state: seed };
        let offset = random.next_u64().wrapping_add(stream);
        Self {
            state: mix(offset).wrapping_add(stream << 32),
        }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `limit`, which is not 0. The bias is below `limit` / 2^64.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(limit);
        u64::try_from(product >> 64).expect("64 of 128 bits are left")
    }

    /// Fills a buffer with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The finaliser of splitmix64: every bit of the input reaches every bit of the result.
#[inline]
#[must_use]
pub fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_streams_differ() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next_u64(), random.next_u64(), random.next_u64()]
        };
        assert_eq!(numbers(7, 0), numbers(7, 0));
        assert_ne!(numbers(7, 0), numbers(7, 1));
        assert_ne!(numbers(7, 0), numbers(8, 0));
    }

    #[test]
    fn numbers_below_a_limit_reach_every_value_about_as_often() {
        let mut random = Random::new(1, 0);
        let mut seen = [0_u32; 7];
        for _ in 0..70_000 {
            let number = usize::try_from(random.below(7)).unwrap();
            seen[number] += 1;
        }
        assert!(
            seen.iter().all(|count| (9_500..10_500).contains(count)),
            "{seen:?}"
        );
    }
}
