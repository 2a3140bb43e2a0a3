//! Where the time goes: what shards count, and the report of it.
//!
//! A shard counts in plain integers of its own ([`Counters`]). Whoever wants to know asks it by
//! message; what it published last is there for those who ask in vain ([`published::Published`]).

pub(crate) mod collect;
mod counters;
pub(crate) mod published;
mod report;

pub use counters::Counters;
pub use report::{
    ConnectionCounts, ConnectionStatistics, Derived, EngineStatistics, MemoryStatistics,
    ShardStatistics, Statistics, ThreadTimes, VolumeCounts,
};

/// Which protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum ProtocolKind {
    /// iSCSI.
    #[serde(rename = "iscsi")]
    Iscsi,
    /// NVMe/TCP.
    #[serde(rename = "nvme-tcp")]
    NvmeTcp,
}
