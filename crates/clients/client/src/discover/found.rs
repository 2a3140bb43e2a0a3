//! What discovery finds.

use std::net::IpAddr;

use longshore_initiator::info::Protocol;
use longshore_initiator::url::HostPort;
use serde::Serialize;

/// Volumes of one target or subsystem that are listed.
pub(super) const VOLUMES_MAX: usize = 1024;

/// A way to a target or subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Portal {
    /// `HOST:PORT` of the portal.
    pub address: String,
    /// `tcp`, or what else NVMe knows.
    pub transport: String,
    /// iSCSI: portals with the same tag share sessions.
    pub portal_group_tag: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundVolume {
    /// LUN of a target, NSID of a subsystem.
    pub number: u64,
    /// Bytes it holds, when it tells.
    pub size_bytes: Option<u64>,
    /// Bytes of a block.
    pub block_size: Option<u32>,
    /// Who made it, and what it is.
    pub product: String,
    /// What other verbs take, if they can use it.
    pub url: Option<String>,
    /// Why it cannot be used as it is.
    pub problem: Option<String>,
}

/// A target or subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundTarget {
    /// How it is reached.
    pub protocol: Protocol,
    /// TargetName of a target, SUBNQN of a subsystem.
    pub name: String,
    pub portals: Vec<Portal>,
    pub volumes: Vec<FoundVolume>,
    /// Why its volumes are not known.
    pub problem: Option<String>,
}

/// Servers behind network address translation, and some that do not know better, tell of `0.0.0.0`.
pub(super) fn reachable(told: &HostPort, asked: &HostPort) -> HostPort {
    let nowhere = told
        .host
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_unspecified());
    HostPort {
        host: if nowhere { &asked.host } else { &told.host }.clone(),
        port: told.port,
    }
}
