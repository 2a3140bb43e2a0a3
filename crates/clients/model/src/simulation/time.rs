//! The clock of the simulation.

/// Nanoseconds since the simulation began.
pub(super) type Time = u64;
