//! What the server says at one moment (`/api/v1/statistics`), as far as it is shown.
//!
//! What an older or newer server does not tell is zero or empty here.

use serde::Deserialize;

/// The report with the clocks of the server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Nanoseconds of the server's monotonic clock.
    #[serde(rename = "monotonic-ns")]
    pub monotonic_ns: u64,
    #[serde(rename = "time-ms")]
    pub time_ms: u64,
    pub pid: u32,
    pub uptime_ms: u64,
    pub volumes: Vec<Volume>,
    pub shards: Vec<Shard>,
    pub connections: Vec<Connection>,
    pub stages: Vec<Stages>,
    pub memory: Memory,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub name: String,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub errors: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Shard {
    pub shard: usize,
    pub answered: bool,
    pub turns: u64,
    pub operations_iscsi: u64,
    pub operations_nvme: u64,
    pub times: Times,
    pub waiting: Waiting,
    pub engine: Engine,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Waiting {
    pub wake_up_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Engine {
    pub sleeps: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Times {
    pub elapsed_ns: u64,
    pub working_ns: u64,
    pub polling_ns: u64,
    pub waiting_for_core_ns: u64,
    pub asleep_ns: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Connection {
    pub shard: u32,
    pub peer: String,
    pub protocol: String,
    pub operations: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub pending_bytes: u64,
    /// What the kernel knows of it, if that was asked for.
    pub tcp: Option<Tcp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Tcp {
    pub rtt_us: Option<u64>,
    pub min_rtt_us: Option<u64>,
}

/// Where the time of operations of a kind went.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stages {
    pub volume: String,
    pub protocol: String,
    pub direction: String,
    pub bytes_up_to: u64,
    pub operations: u64,
    pub parse: Durations,
    pub data: Durations,
    pub gate: Durations,
    pub storage: Durations,
    pub answer: Durations,
    pub send: Durations,
    pub total: Durations,
}

/// The names of the intervals, in their order.
pub const INTERVALS: [&str; 6] = ["parse", "data", "gate", "storage", "answer", "send"];

impl Stages {
    /// In the order of [`INTERVALS`].
    #[must_use]
    pub const fn intervals(&self) -> [Durations; 6] {
        [
            self.parse,
            self.data,
            self.gate,
            self.storage,
            self.answer,
            self.send,
        ]
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Durations {
    pub mean_ns: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Memory {
    pub budget_bytes: u64,
    pub used_bytes: u64,
    pub kept_bytes: u64,
}
