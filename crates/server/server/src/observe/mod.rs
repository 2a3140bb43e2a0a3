//! The report of all counters.
//!
//! Readers ask the shards by message. What a shard published last is there for those who ask in
//! vain.

mod report;
pub(crate) mod sessions;
pub(crate) mod shard_report;

pub use crate::counters::stages::Direction;
pub use crate::counters::{
    ClientStatistics, Counters, Durations, NamedCount, Octaves, ProtocolClients, ProtocolKind,
};
pub(crate) use report::VERSION;
pub use report::{
    ConnectionCounts, ConnectionStatistics, Derived, EngineStatistics, MemoryStatistics, Sampling,
    ShardStatistics, StageStatistics, Statistics, TargetReport, TcpStatistics, ThreadTimes,
    VolumeCounts, VolumeLimits,
};

pub use sessions::{MappedVolume, NoSuchSession, SessionId, SessionReport, Sessions};

/// One operation in so many is followed through its stages where nothing else is said.
pub const SAMPLE: u32 = 256;
