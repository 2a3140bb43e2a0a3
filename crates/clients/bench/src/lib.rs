//! The load generator behind `longshore bench`.

#![forbid(unsafe_code)]

pub mod bound;
pub mod chart;
pub mod compare;
pub mod cpu;
pub mod latency;
pub mod layout;
pub mod load;
mod local;
pub mod measure;
pub mod medium;
pub mod pacing;
pub mod plot;
pub mod progress;
pub mod queue;
pub mod random;
pub mod report;
pub mod result;
pub mod spec;
pub mod stream;
pub mod supervise;
pub mod tally;
pub mod units;
pub mod verify;
mod waiter;
pub mod watch;
pub mod worker;
pub mod workload;

#[cfg(test)]
mod fake;
