//! Users of the server: iSCSI sessions and NVMe controllers in one list.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::address::ConnectionAddress;
use crate::counters::ProtocolKind;

/// A session or controller. No other one of this server ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SessionId(pub u64);

/// There is no such session or controller, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no session {}", .0.0)]
pub struct NoSuchSession(pub SessionId);

/// A volume as a session or controller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappedVolume {
    /// LUN of a session, NSID of a controller.
    pub number: u32,
    pub volume: String,
    /// Writes through this number are refused.
    pub read_only: bool,
}

/// An iSCSI session or an NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionReport {
    pub id: SessionId,
    pub protocol: ProtocolKind,
    /// TSIH of a session, CNTLID of a controller.
    pub number: u16,
    /// Name of the initiator or host. Hosts need not have one.
    pub name: String,
    /// Name of the target or subsystem; `None` for discovery sessions of iSCSI.
    pub exporter: Option<String>,
    /// The other ends of its connections; of a controller, that of the admin queue is the first.
    pub peers: Vec<SocketAddr>,
    /// How long it has been there.
    #[serde(rename = "age_ms", serialize_with = "milliseconds")]
    pub age: Duration,
    /// What it sees, by number.
    pub volumes: Vec<MappedVolume>,
}

/// Who uses the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// The oldest session comes first.
    pub reports: Vec<SessionReport>,
    /// All reactors have answered; else what is theirs is missing.
    pub is_complete: bool,
}

fn milliseconds<S: serde::Serializer>(age: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// What a connection knows of its session or controller.
#[derive(Clone, Debug)]
pub(crate) struct SessionPart {
    /// The connection that the session or controller ends with, by its name.
    pub main: ConnectionAddress,
    pub peer: SocketAddr,
    /// Of the main connection.
    pub report: Option<Box<SessionReport>>,
}

/// Puts together what connections have told.
pub(crate) fn put_together(parts: Vec<SessionPart>) -> Vec<SessionReport> {
    let mut others: HashMap<ConnectionAddress, Vec<SocketAddr>> = HashMap::new();
    for part in parts.iter().filter(|part| part.report.is_none()) {
        others.entry(part.main).or_default().push(part.peer);
    }
    let mut reports: Vec<SessionReport> = parts
        .into_iter()
        .filter_map(|part| {
            let mut report = *part.report?;
            let mut peers = others.remove(&part.main).unwrap_or_default();
            peers.sort_unstable();
            report.peers.extend(peers);
            Some(report)
        })
        .collect();
    reports.sort_unstable_by_key(|report| report.id);
    reports
}
