//! Exports to NVMe hosts: subsystems with volumes as namespaces, and their ports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use longshore_nvme::command::NamespaceId;
use longshore_nvme::controller::{
    ControllerLimits, HostAccess, HostRule, NamespaceConfig, NamespaceGrant,
    SubsystemConfig as SubsystemParameters, Subsystems, TlsUse,
};
use longshore_nvme::nqn::Nqn;

use super::portal::unmapped;
use super::unit::{Unit, max_transfer_bytes, product_revision};
use crate::address::ConnectionAddress;
use crate::config::{
    NamespaceMapEntry, NvmeListenerConfig, PeerLimits, StartError, SubsystemConfig,
};
use crate::mail::message::{Message, Note, Post};

/// MN of Identify Controller.
const MODEL: &str = "Longshore";
/// Asynchronous Event Requests and Aborts a host may have outstanding.
const ASYNC_EVENTS_MAX: u8 = 8;
const ABORTS_MAX: u8 = 4;

/// A listener for NVMe/TCP, as hosts know it.
#[derive(Debug)]
pub(crate) struct NvmePort {
    pub local: SocketAddr,
    /// Told in place of the local address.
    pub advertise: Option<SocketAddr>,
    /// Only discovery controllers can be reached here.
    pub discovery_only: bool,
    /// PORTID: no other port ever has it.
    pub port_id: u16,
    /// Whether connections are over TLS.
    pub tls: TlsUse,
}

impl NvmeListenerConfig {
    /// What hosts know of it, as the port of that number.
    pub(crate) fn port(&self, port_id: u16) -> Result<NvmePort, StartError> {
        let local = self.listener.local_addr();
        let advertise = self.advertise.as_ref();
        let parse = |text: &String| {
            text.parse()
                .map_err(|_| StartError::Advertise(text.clone()))
        };
        Ok(NvmePort {
            local: local.map_err(|source| StartError::System {
                operation: "getsockname",
                source,
            })?,
            advertise: advertise.map(parse).transpose()?,
            discovery_only: self.discovery_only,
            tls: self.tls,
            port_id,
        })
    }
}

impl NvmePort {
    /// What a host that reached us at `reached` should connect to.
    pub(crate) fn address(&self, reached: SocketAddr) -> SocketAddr {
        let mut address = self.advertise.unwrap_or(self.local);
        if address.ip().is_unspecified() {
            // An unspecified address helps nobody; the one that the host used itself does.
            address.set_ip(unmapped(reached.ip()));
        }
        address
    }
}

/// All that is exported by NVMe.
#[derive(Clone, Debug)]
pub(crate) struct NvmeExports {
    /// With their controllers, which outlive versions.
    pub subsystems: Arc<Subsystems>,
    pub names: Arc<[Nqn]>,
    /// What the subsystems were made of.
    pub configured: Arc<[SubsystemConfig]>,
    /// GENCTR of the discovery log page.
    pub generation: u64,
    pub started: Instant,
}

impl NvmeExports {
    pub(super) fn new(limits: &PeerLimits, posts: &[Post]) -> Self {
        let posts = posts.to_vec();
        let notify = move |admin_queue| {
            let address = ConnectionAddress::from_handle(admin_queue);
            let note = Note::ControllerEvents;
            posts[address.shard as usize].send(Message::Note(address, note));
        };
        let milliseconds =
            |time: std::time::Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let transfer = max_transfer_bytes(limits.memory);
        let limits = ControllerLimits {
            queue_entries_max: limits.nvme_queue_depth,
            io_queues_max: limits.nvme_io_queues,
            controllers_max: limits.controllers,
            async_events_max: ASYNC_EVENTS_MAX,
            aborts_max: ABORTS_MAX,
            keep_alive_ms_max: milliseconds(limits.keep_alive_max),
            in_capsule_data_bytes: limits.in_capsule_data,
            // The largest power of two that is not above it.
            transfer_bytes_max: 1 << transfer.ilog2(),
            ..ControllerLimits::default()
        };
        Self {
            subsystems: Arc::new(Subsystems::new(Vec::new(), limits, Arc::new(notify))),
            names: Arc::default(),
            configured: Arc::default(),
            generation: 0,
            started: Instant::now(),
        }
    }
}

/// Subsystems as their controllers know them. `places` are those of the configured volumes.
pub(super) fn parameters(
    subsystems: &[SubsystemConfig],
    places: &[usize],
    units: &[Arc<Unit>],
) -> Vec<SubsystemParameters> {
    let parameters = subsystems.iter().map(|subsystem| SubsystemParameters {
        nqn: subsystem.nqn.clone(),
        serial: serial(subsystem),
        model: MODEL.to_owned(),
        firmware: product_revision(),
        namespaces: namespaces(subsystem, places, units),
        hosts: host_access(subsystem),
    });
    parameters.collect()
}

/// Whether the same hosts may use the same subsystems.
pub(super) fn is_same_access(one: &[SubsystemConfig], other: &[SubsystemConfig]) -> bool {
    let access = |subsystem: &SubsystemConfig| {
        let rules = subsystem.hosts.iter();
        let hosts: Vec<_> = rules.map(|rule| rule.hosts.clone()).collect();
        (subsystem.nqn.clone(), hosts, subsystem.is_open())
    };
    one.iter().map(access).eq(other.iter().map(access))
}

fn host_access(subsystem: &SubsystemConfig) -> HostAccess {
    let grants = |map: &[NamespaceMapEntry]| {
        let grant = |entry: &NamespaceMapEntry| NamespaceGrant {
            id: NamespaceId(entry.nsid),
            read_only: entry.read_only,
        };
        map.iter().map(grant).collect::<Vec<_>>()
    };
    HostAccess {
        rules: subsystem
            .hosts
            .iter()
            .map(|rule| HostRule {
                hosts: rule.hosts.clone(),
                namespaces: grants(&rule.namespaces),
                credentials: rule.credentials.clone(),
                tls: rule.tls.clone(),
            })
            .collect(),
        default_namespaces: subsystem.default_namespaces.as_deref().map(grants),
    }
}

/// The namespaces of all maps, each once, by ascending identifier.
fn namespaces(
    subsystem: &SubsystemConfig,
    places: &[usize],
    units: &[Arc<Unit>],
) -> Vec<NamespaceConfig> {
    let mut entries: Vec<&NamespaceMapEntry> = subsystem.maps().flatten().collect();
    entries.sort_by_key(|entry| entry.nsid);
    entries.dedup_by_key(|entry| entry.nsid);
    entries
        .into_iter()
        .map(|entry| NamespaceConfig {
            id: NamespaceId(entry.nsid),
            namespace: Arc::clone(&units[places[entry.volume]].namespace),
            index: places[entry.volume],
        })
        .collect()
}

/// SN: what was configured, or one that stays the same because the name does.
fn serial(subsystem: &SubsystemConfig) -> String {
    subsystem.serial.clone().unwrap_or_else(|| {
        let digest = uuid::Uuid::new_v5(
            &uuid::Uuid::NAMESPACE_OID,
            subsystem.nqn.as_str().as_bytes(),
        );
        let mut text = digest.simple().to_string();
        text.truncate(20);
        text
    })
}
