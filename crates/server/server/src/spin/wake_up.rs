//! The cost of a wake-up: the time from readiness to running.
//!
//! It differs by a factor of a hundred between machines: some microseconds where an idle core waits in a shallow state,
//! 50 µs and more on a virtual machine whose host takes the core away meanwhile. A sleep that ends by its own timer shows
//! it: the shard is ready at the deadline, and runs when the call returns. So each shard sleeps a few times when it starts,
//! and every sleep under load that ends so is another sample.

/// As long as nothing is known.
const UNKNOWN_NS: u64 = 20_000;
/// What is beyond this has other causes.
const RANGE_NS: (u64, u64) = (1_000, 250_000);

/// Samples whose median counts.
pub(super) const SAMPLES: usize = 15;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct WakeUp {
    samples: [u64; SAMPLES],
    taken: usize,
    median_ns: u64,
}

impl WakeUp {
    pub(super) fn new() -> Self {
        Self {
            samples: [0; SAMPLES],
            taken: 0,
            median_ns: UNKNOWN_NS,
        }
    }

    #[inline]
    pub(super) fn ns(&self) -> u64 {
        self.median_ns
    }

    /// It took so long.
    pub(super) fn sample(&mut self, ns: u64) {
        self.samples[self.taken % SAMPLES] = ns.clamp(RANGE_NS.0, RANGE_NS.1);
        self.taken += 1;
        let known = self.taken.min(SAMPLES);
        let mut sorted = self.samples;
        sorted[..known].sort_unstable();
        self.median_ns = sorted[known / 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    #[test]
    fn the_median_of_the_last_samples_counts() {
        let mut wake_up = WakeUp::new();
        assert_eq!(wake_up.ns(), UNKNOWN_NS);
        wake_up.sample(5 * US);
        assert_eq!(wake_up.ns(), 5 * US);
        // The core was taken away in some of them.
        for sample in [4, 6, 5, 900, 5, 1000, 6] {
            wake_up.sample(sample * US);
        }
        assert_eq!(wake_up.ns(), 6 * US);
        for _ in 0..8 {
            wake_up.sample(60 * US);
        }
        assert_eq!(wake_up.ns(), 60 * US, "the machine has changed");
    }

    #[test]
    fn absurd_samples_are_bounded() {
        let mut wake_up = WakeUp::new();
        wake_up.sample(0);
        assert_eq!(wake_up.ns(), RANGE_NS.0);
        let mut wake_up = WakeUp::new();
        wake_up.sample(u64::MAX);
        assert_eq!(wake_up.ns(), RANGE_NS.1);
    }
}
