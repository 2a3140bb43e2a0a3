//! What NVMe hosts find: subsystems with volumes as namespaces, and the ports they are reached by.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use longshore_nvme::command::NamespaceId;
use longshore_nvme::controller::{
    ControllerLimits, DiscoveryEntry, Environment, Health, HostAccess, HostRule, NamespaceConfig,
    NamespaceGrant, QueueHandle, Statistics, SubsystemConfig as SubsystemParameters, SubsystemType,
    Subsystems,
};
use longshore_nvme::nqn::Nqn;

use crate::config::{NamespaceMapEntry, NvmeListenerConfig, PeerLimits, SubsystemConfig};
use crate::core::Shared;
use crate::exports::{Unit, max_transfer_bytes, product_revision, unmapped};
use crate::mail::Post;
use crate::message::{ConnectionAddress, Message, Note};
use crate::server::StartError;

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
}

impl NvmeListenerConfig {
    /// What hosts know of it.
    pub(crate) fn port(&self) -> Result<NvmePort, StartError> {
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
        })
    }
}

impl NvmePort {
    /// What a host that reached us at `reached` should connect to.
    fn address(&self, reached: SocketAddr) -> SocketAddr {
        let mut address = self.advertise.unwrap_or(self.local);
        if address.ip().is_unspecified() {
            // An unspecified address helps nobody; the one that the host used itself does.
            address.set_ip(unmapped(reached.ip()));
        }
        address
    }
}

/// All that is exported by NVMe.
#[derive(Debug)]
pub(crate) struct NvmeExports {
    pub subsystems: Subsystems,
    pub ports: Vec<NvmePort>,
    names: Vec<Nqn>,
    started: Instant,
}

impl NvmeExports {
    pub(crate) fn new(
        subsystems: &[SubsystemConfig],
        ports: Vec<NvmePort>,
        units: &[Unit],
        limits: &PeerLimits,
        posts: &[Post],
    ) -> Self {
        let posts = posts.to_vec();
        let notify = move |admin_queue| {
            let address = ConnectionAddress::from_handle(admin_queue);
            let note = Note::ControllerEvents;
            posts[address.shard as usize].send(Message::Note(address, note));
        };
        let parameters = subsystems
            .iter()
            .map(|subsystem| SubsystemParameters {
                nqn: subsystem.nqn.clone(),
                serial: serial(subsystem),
                model: MODEL.to_owned(),
                firmware: product_revision(),
                namespaces: namespaces(subsystem, units),
                hosts: host_access(subsystem),
            })
            .collect();
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
            subsystems: Subsystems::new(parameters, limits, Arc::new(notify)),
            ports,
            names: subsystems.iter().map(|s| s.nqn.clone()).collect(),
            started: Instant::now(),
        }
    }
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
            })
            .collect(),
        default_namespaces: subsystem.default_namespaces.as_deref().map(grants),
    }
}

/// The namespaces of all maps, each once, by ascending identifier.
fn namespaces(subsystem: &SubsystemConfig, units: &[Unit]) -> Vec<NamespaceConfig> {
    let maps = subsystem.hosts.iter().map(|rule| &rule.namespaces);
    let mut entries: Vec<&NamespaceMapEntry> = maps
        .chain(&subsystem.default_namespaces)
        .flatten()
        .collect();
    entries.sort_by_key(|entry| entry.nsid);
    entries.dedup_by_key(|entry| entry.nsid);
    entries
        .into_iter()
        .map(|entry| NamespaceConfig {
            id: NamespaceId(entry.nsid),
            namespace: units[entry.volume].namespace.clone(),
            index: entry.volume,
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

impl ConnectionAddress {
    /// As NVMe controllers know it.
    pub(crate) fn to_handle(self) -> QueueHandle {
        let [shard, slot, generation] = [self.shard, self.slot, self.generation].map(u128::from);
        QueueHandle(shard << 64 | slot << 32 | generation)
    }

    pub(crate) fn from_handle(handle: QueueHandle) -> Self {
        let part = |shift: u32| {
            u32::try_from(handle.0 >> shift & u128::from(u32::MAX)).expect("masked to 32 bits")
        };
        Self {
            shard: part(64),
            slot: part(32),
            generation: part(0),
        }
    }
}

/// What controllers may ask of this server, for a host that came in by one of its ports.
pub(crate) struct PortEnvironment<'a> {
    pub shared: &'a Shared,
    /// Our address, as the host reached it.
    pub reached: SocketAddr,
    /// Index among the ports.
    pub port: usize,
}

impl PortEnvironment<'_> {
    /// Whether a host that reached us where it did can reach that address too.
    fn is_reachable(&self, address: SocketAddr) -> bool {
        let reached = unmapped(self.reached.ip());
        !address.ip().is_loopback() || reached.is_loopback() && same_family(reached, address.ip())
    }
}

fn same_family(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

impl Environment for PortEnvironment<'_> {
    fn discovery_entries(&self, _host: &Nqn) -> Vec<DiscoveryEntry> {
        let exports = &self.shared.exports.nvme;
        let ports = exports.ports.iter().enumerate();
        let mut entries = Vec::new();
        for (number, port) in ports.filter(|(_, port)| !port.discovery_only) {
            let address = port.address(self.reached);
            if port.advertise.is_none() && !self.is_reachable(address) {
                continue;
            }
            entries.extend(exports.names.iter().map(|nqn| DiscoveryEntry {
                subsystem: nqn.clone(),
                kind: SubsystemType::Nvm,
                address,
                port_id: u16::try_from(number + 1).unwrap_or(u16::MAX),
            }));
        }
        entries
    }

    fn discovery_generation(&self) -> u64 {
        // What is exported, and where, stays the same from start to end.
        1
    }

    fn is_discovery_only(&self) -> bool {
        self.shared.exports.nvme.ports[self.port].discovery_only
    }

    fn statistics(&self, index: usize) -> Statistics {
        let totals = self.shared.unit(index).statistics.totals();
        Statistics {
            read_bytes: totals.read_bytes,
            written_bytes: totals.written_bytes,
            read_commands: totals.reads,
            write_commands: totals.writes,
            media_errors: totals.errors,
            ..Statistics::default()
        }
    }

    fn health(&self, index: usize) -> Health {
        let has_failed = !self.shared.unit(index).volume.condition().is_sound();
        Health {
            degraded: has_failed,
            read_only: has_failed,
        }
    }

    fn uptime_ms(&self) -> u64 {
        let uptime = self.shared.exports.nvme.started.elapsed();
        u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)
    }
}
