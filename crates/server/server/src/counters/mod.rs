//! Counters of a running server.
//!
//! A shard counts in plain integers of its own ([`Counters`]), and volumes on a cache line for each shard ([`volume`]).
//! Some operations are followed through their stages ([`stages`]). Shards publish their counters now and then for
//! readers on other threads ([`published`]).

pub(crate) mod clients;
mod histogram;
mod protocol;
pub(crate) mod published;
mod shard;
pub(crate) mod stages;
pub(crate) mod volume;

pub use clients::{ClientStatistics, NamedCount, ProtocolClients};
pub use histogram::{Durations, Octaves};
pub use protocol::ProtocolKind;
pub use shard::Counters;
