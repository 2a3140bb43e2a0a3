//! Where the time goes: what shards count, and the report of it.
//!
//! A shard counts in plain integers of its own ([`Counters`]). Whoever wants to know asks it by
//! message; what it published last is there for those who ask in vain (`published::Published`).

pub(crate) mod collect;
mod counters;
mod histogram;
pub(crate) mod published;
mod report;
pub(crate) mod stages;

pub use counters::Counters;
pub use histogram::Durations;
pub use report::{
    ConnectionCounts, ConnectionStatistics, Derived, EngineStatistics, MemoryStatistics, Sampling,
    ShardStatistics, StageStatistics, Statistics, ThreadTimes, VolumeCounts,
};
pub use stages::Direction;

/// One operation in so many is followed through its stages where nothing else is said.
pub const SAMPLE: u32 = 256;

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

impl ProtocolKind {
    /// As configuration and reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iscsi => "iscsi",
            Self::NvmeTcp => "nvme-tcp",
        }
    }
}
