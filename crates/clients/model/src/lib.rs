//! The performance model: what one operation takes, what limits many, and what a change would bring.
//!
//! | module | subject |
//! |---|---|
//! | [`units`], [`parameter`], [`parts_file`], [`presets`] | the description of a set-up |
//! | [`link`], [`mod@write`], [`operation`] | one operation: wire, R2Ts, latency and demands |
//! | [`bounds`] | many operations: bounds, knee, mean value analysis |
//! | [`accounting`] | shares of processor time, Little's law |
//! | [`prediction`] | a sweep over sizes and depths with intervals, and the difference of two set-ups |
//! | [`simulation`], [`simulated`] | the same event by event, and its sweep |
//! | [`probe`], [`spread`] | what was measured of a server |
//! | [`identify`] | the parts of a set-up, fitted to a probe |
//! | [`pipeline`] | the life of an operation in eight elements |
//! | [`advice`] | changes, ranked by what they gain |
//! | [`verdict`] | the limiting element, as far as it can be told |
//! | [`report`] | a prediction as text and as a document |
//!
//! The crate is arithmetic: it does no I/O, reads no clock, and takes random numbers from a seed.

#![forbid(unsafe_code)]

pub mod accounting;
pub mod advice;
mod algebra;
pub mod bounds;
pub mod identify;
pub mod link;
pub mod operation;
pub mod parameter;
pub mod parts_file;
pub mod pipeline;
pub mod prediction;
pub mod presets;
pub mod probe;
pub mod random;
pub mod report;
pub mod simulated;
pub mod simulation;
pub mod spread;
pub mod units;
pub mod verdict;
pub mod write;
