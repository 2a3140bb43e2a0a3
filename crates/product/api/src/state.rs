//! What a running server is like: status, health, sessions, events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::Revision;

/// The server in a few lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Version of the program, such as `0.1.0`.
    #[serde(rename = "program-version")]
    pub version: String,
    pub pid: u32,
    pub started_ms: u64,
    pub revision: Revision,
    /// Engine of the event loops: `io_uring` or `epoll`.
    pub engine: String,
    /// What holds of the sandbox, and what does not.
    #[serde(default)]
    pub sandbox: String,
    /// The configuration file, absolute, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file: Option<String>,
    /// Addresses in use, by service: `iscsi`, `nvme`, `nvme-discovery`, `api`.
    pub listeners: Vec<Listener>,
    pub volumes: usize,
    pub targets: usize,
    pub subsystems: usize,
    pub sessions: usize,
    /// Settings of the file that take effect at the next start only.
    pub needs_restart: Vec<String>,
    pub health: Health,
}

/// Where a service is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    pub service: String,
    pub address: String,
}

/// Whether the server works, and reasons if not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Health {
    /// Every event loop has answered within a second (`/healthz`).
    pub alive: bool,
    /// It accepts and serves what it should (`/readyz`).
    pub ready: bool,
    /// Why not, in sentences; and which volumes that were removed wait for storage that does not answer.
    pub reasons: Vec<String>,
}

/// A session of an initiator, or a controller of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Session {
    /// Never reused while the server runs.
    pub id: String,
    /// Protocol of the session: `iscsi` or `nvme`.
    pub protocol: String,
    /// iSCSI name or host NQN.
    pub peer_name: String,
    pub addresses: Vec<String>,
    /// iSCSI name or NQN of what it uses.
    pub target: String,
    /// Connections of the session; of NVMe, queues.
    pub connections: usize,
    pub since_ms: u64,
    /// Volumes that it can reach.
    pub volumes: Vec<String>,
}

/// An event of the stream: its topic, its time and its facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Event {
    /// Rises by one from event to event.
    pub sequence: u64,
    pub time_ms: u64,
    /// Nanoseconds of the monotonic clock.
    pub monotonic_ns: u64,
    /// `change`, `session`, `volume`, `sample`, `gap`, …
    pub topic: String,
    /// What happened, in one sentence.
    pub message: String,
    /// Facts of the event; their names depend on the topic.
    #[serde(default)]
    pub data: Value,
}

/// Events that are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct EventList {
    pub version: u32,
    /// Tells the events of this start of the server from those of others: `EPOCH-SEQUENCE` is the id of an event.
    pub epoch: u64,
    /// Events behind the one that was asked for are missing: they are not kept any more, or were those of an earlier start.
    pub gap: bool,
    pub items: Vec<Event>,
}
