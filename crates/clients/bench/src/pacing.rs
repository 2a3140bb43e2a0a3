//! When operations are due, if there is a limit on how many or how much.
//!
//! A limited stream has a timetable: the first operation is due at once, each further one when
//! those before it have used up their time at the given rate. An operation that starts late,
//! because all places in the queue were taken, keeps its place in the timetable: its latency counts
//! from when it was due. So a server that stands still for a second shows a second of latency for
//! all that was due in it, not only for those few operations that happened to be under way
//! (coordinated omission).
//!
//! Time is an argument, in nanoseconds since the start of the run.

/// Limits of all streams together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Operations per second, of all streams together.
    pub operations: Option<u64>,
    /// Bytes per second, of all streams together.
    pub bytes: Option<u64>,
}

impl RateLimits {
    /// Whether there is a limit.
    #[must_use]
    pub fn any(&self) -> bool {
        self.operations.is_some() || self.bytes.is_some()
    }
}

/// The timetable of one stream.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// Fractions add up: 3 operations a second are not 333,333,333 ns apart.
    due_ns: f64,
    per_operation_ns: f64,
    per_byte_ns: f64,
}

impl Pacer {
    /// The share of one of `streams` equal ones; nothing where there is no limit. They take turns
    /// instead of starting all at once.
    #[must_use]
    pub fn new(limits: RateLimits, number: u64, streams: u64, mean_bytes: f64) -> Option<Self> {
        if !limits.any() {
            return None;
        }
        #[allow(clippy::cast_precision_loss)] // Rates and streams far below 2^52 in practice.
        let per = |rate: Option<u64>| rate.map_or(0.0, |rate| 1e9 * streams as f64 / rate as f64);
        let (per_operation_ns, per_byte_ns) = (per(limits.operations), per(limits.bytes));
        let usual_ns = per_operation_ns.max(per_byte_ns * mean_bytes);
        #[allow(clippy::cast_precision_loss)]
        let offset = number as f64 / streams as f64;
        Some(Self {
            due_ns: usual_ns * offset,
            per_operation_ns,
            per_byte_ns,
        })
    }

    /// Moves the whole timetable.
    pub fn start_at(&mut self, ns: u64) {
        #[allow(clippy::cast_precision_loss)] // 2^52 ns are 52 days.
        let shift = ns as f64;
        self.due_ns += shift;
    }

    /// When the next operation is due.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        // Not negative, and a run of a century fits.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let due = self.due_ns as u64;
        due
    }

    /// The next operation has this many bytes; when it was due. The one behind it is due when both
    /// limits allow.
    pub fn take(&mut self, bytes: u32) -> u64 {
        let due = self.due_ns();
        self.due_ns += self
            .per_operation_ns
            .max(self.per_byte_ns * f64::from(bytes));
        due
    }

    /// How many operations of that many bytes were due by then and have not begun.
    #[must_use]
    pub fn behind(&self, now_ns: u64, mean_bytes: f64) -> u64 {
        #[allow(clippy::cast_precision_loss)] // Nanoseconds of a run: 2^52 are 52 days.
        let late = now_ns as f64 - self.due_ns;
        let each = self.per_operation_ns.max(self.per_byte_ns * mean_bytes);
        if late <= 0.0 || each <= 0.0 {
            return 0;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let count = (late / each) as u64;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_1000: RateLimits = RateLimits {
        operations: Some(1_000),
        bytes: None,
    };

    #[test]
    fn operations_are_due_at_even_distances_however_late_they_start() {
        let mut pacer = Pacer::new(LIMIT_1000, 0, 1, 512.0).unwrap();
        assert_eq!(pacer.take(512), 0);
        assert_eq!(pacer.take(512), 1_000_000);
        // Whoever takes the third one does it at 50 ms; it was due at 2.
        assert_eq!(pacer.take(512), 2_000_000);
        assert_eq!(pacer.due_ns(), 3_000_000);
        assert_eq!(pacer.behind(50_000_000, 512.0), 47);
        assert_eq!(pacer.behind(2_000_000, 512.0), 0);
    }

    #[test]
    fn streams_share_the_rate_and_take_turns() {
        let mut pacers: Vec<Pacer> = (0..4)
            .map(|n| Pacer::new(LIMIT_1000, n, 4, 512.0).unwrap())
            .collect();
        let first: Vec<u64> = pacers.iter_mut().map(|p| p.take(512)).collect();
        assert_eq!(first, [0, 1_000_000, 2_000_000, 3_000_000]);
        assert_eq!(pacers[0].due_ns(), 4_000_000);
    }

    #[test]
    fn the_stricter_limit_decides() {
        let limits = RateLimits {
            operations: Some(1_000),
            bytes: Some(1_000_000),
        };
        let mut pacer = Pacer::new(limits, 0, 1, 512.0).unwrap();
        pacer.take(512);
        assert_eq!(pacer.due_ns(), 1_000_000);
        pacer.take(4096);
        assert_eq!(pacer.due_ns(), 1_000_000 + 4_096_000);
    }

    #[test]
    fn fractions_of_nanoseconds_add_up() {
        let limits = RateLimits {
            operations: Some(3),
            bytes: None,
        };
        let mut pacer = Pacer::new(limits, 0, 1, 512.0).unwrap();
        for _ in 0..3_000 {
            pacer.take(512);
        }
        let thousand_seconds = 1_000_000_000_000_u64;
        assert!(pacer.due_ns().abs_diff(thousand_seconds) < 10);
    }

    #[test]
    fn no_limit_is_no_timetable() {
        assert!(Pacer::new(RateLimits::default(), 0, 1, 512.0).is_none());
    }
}
