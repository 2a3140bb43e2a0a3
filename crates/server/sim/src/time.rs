//! Units of simulated time. All times are in nanoseconds from the start of the run.

/// Nanoseconds of a microsecond.
pub const MICROSECOND: u64 = 1_000;
/// Nanoseconds of a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
