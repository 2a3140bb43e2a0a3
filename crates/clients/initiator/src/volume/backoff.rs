//! Pauses between attempts to connect: doubling, bounded, and never the same for two clients.

use std::time::Duration;

/// The pause before attempt number `attempt` (from 0, which waits for nothing), between half and the whole of
/// `min · 2^(attempt-1)`, at most `max`. `random` is any number; different clients should have different ones, so
/// that a thousand of them do not come back to a restarted server in the same millisecond.
pub(super) fn pause(attempt: u32, min: Duration, max: Duration, random: u64) -> Duration {
    let Some(doublings) = attempt.checked_sub(1) else {
        return Duration::ZERO;
    };
    let whole = min.saturating_mul(1 << doublings.min(20)).min(max);
    let half = whole / 2;
    // 1024 steps are more than enough to spread.
    half + half.mul_f64(f64::from(u16::try_from(random % 1024).unwrap_or(0)) / 1024.0)
}

/// A small generator (xorshift64*), for jitter only.
#[derive(Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Seeded by what differs between processes and calls: the randomness of the standard library's hash maps.
    pub(super) fn from_environment() -> Self {
        use std::hash::{BuildHasher, Hasher};
        Self::new(
            std::collections::hash_map::RandomState::new()
                .build_hasher()
                .finish(),
        )
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(10);

    #[test]
    fn first_attempt_waits_for_nothing() {
        assert_eq!(pause(0, MIN, MAX, 5), Duration::ZERO);
    }

    #[test]
    fn pauses_double_up_to_the_most_and_stay_within_half() {
        for (attempt, whole_ms) in [
            (1, 100),
            (2, 200),
            (3, 400),
            (7, 6400),
            (8, 10_000),
            (4000, 10_000),
        ] {
            let whole = Duration::from_millis(whole_ms);
            for random in [0, 1, 512, 1023, u64::MAX] {
                let pause = pause(attempt, MIN, MAX, random);
                assert!(pause >= whole / 2 && pause <= whole, "{attempt} {pause:?}");
            }
        }
    }

    #[test]
    fn pauses_of_two_clients_differ() {
        let (mut one, mut other) = (Jitter::new(1), Jitter::new(2));
        assert_ne!(
            pause(5, MIN, MAX, one.next()),
            pause(5, MIN, MAX, other.next())
        );
        let (mut one, mut other) = (Jitter::from_environment(), Jitter::from_environment());
        assert_ne!(one.next(), other.next());
    }
}
