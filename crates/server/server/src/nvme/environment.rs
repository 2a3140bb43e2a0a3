//! Facts about this server for controllers.

use std::net::{IpAddr, SocketAddr};

use longshore_nvme::controller::{
    DiscoveryEntry, Environment, Health, Statistics, SubsystemType, TlsUse,
};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::Identity;

use crate::exports::{Exports, unmapped};

/// What controllers may ask of this server, for a host that came in by one of its ports.
pub(crate) struct PortEnvironment<'a> {
    pub exports: &'a Exports,
    /// Our address, as the host reached it.
    pub reached: SocketAddr,
    /// Place of the listener.
    pub port: usize,
    /// Of the key that the host has proved to know.
    pub tls_identity: Option<&'a Identity>,
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
        let exports = &self.exports.nvme;
        let ports = self.exports.nvme_ports();
        let mut entries = Vec::new();
        for port in ports.filter(|port| !port.discovery_only) {
            let address = port.address(self.reached);
            if port.advertise.is_none() && !self.is_reachable(address) {
                continue;
            }
            entries.extend(exports.names.iter().map(|nqn| DiscoveryEntry {
                subsystem: nqn.clone(),
                kind: SubsystemType::Nvm,
                address,
                port_id: port.port_id,
                tls: port.tls,
            }));
        }
        entries
    }

    fn discovery_generation(&self) -> u64 {
        self.exports.nvme.generation
    }

    fn is_discovery_only(&self) -> bool {
        self.exports.nvme_port(self.port).discovery_only
    }

    fn tls_identity(&self) -> Option<&Identity> {
        self.tls_identity
    }

    fn has_tls(&self) -> bool {
        cfg!(feature = "tls") && self.exports.nvme_port(self.port).tls != TlsUse::None
    }

    fn requires_tls(&self) -> bool {
        self.exports.nvme_port(self.port).tls == TlsUse::Required
    }

    fn statistics(&self, index: usize) -> Statistics {
        let totals = self.exports.unit(index).statistics.totals();
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
        self.exports.unit(index).health()
    }

    fn uptime_ms(&self) -> u64 {
        let uptime = self.exports.nvme.started.elapsed();
        u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)
    }
}
