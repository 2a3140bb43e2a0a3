//! What is exported: volumes as logical units, targets, portals, and who may use them.
//!
//! Made once at start and shared by all shards. Everything in it is immutable or takes care of itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use longshore_block::reservation::Reservations;
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{
    Authentication, PortalAddress, PortalRecord, TargetRecord,
};
use longshore_iscsi::session_parameters::PortalGroupTag;
use longshore_nvme::controller::{Namespace, NamespaceParameters};
use longshore_scsi::unit::{LogicalUnit, LogicalUnitConfig};
use longshore_volume::{AttemptCost, Volume, WriteCache};

use crate::config::{AccessRule, Copies, LunConfig, TargetConfig};
use crate::copies::pages::may_splice;
use crate::gate::WriteGate;
use crate::nvme::exports::NvmeExports;
use crate::statistics::VolumeStatistics;

/// Largest READ or WRITE, in bytes, where there is memory for it: the MAXIMUM TRANSFER LENGTH of the
/// block limits VPD page.
const MAX_TRANSFER_BYTES: u32 = 16 << 20;
/// Initiators take it for granted that this much goes through.
const MAX_TRANSFER_BYTES_LEAST: u32 = 64 << 10;

/// The largest READ or WRITE with `memory` bytes for payload. A command that can never have the
/// memory it needs would wait for ever.
pub(crate) fn max_transfer_bytes(memory: u64) -> u32 {
    let quarter = u32::try_from(memory / 4).unwrap_or(u32::MAX);
    quarter.clamp(MAX_TRANSFER_BYTES_LEAST, MAX_TRANSFER_BYTES)
}

/// A volume as a logical unit and a namespace.
pub(crate) struct Unit {
    pub volume: Arc<dyn Volume>,
    pub logical_unit: Arc<LogicalUnit>,
    pub namespace: Arc<Namespace>,
    pub statistics: VolumeStatistics,
    pub gate: WriteGate,
    /// log2 of the block size.
    pub block_shift: u32,
    /// What its attempts cost.
    pub attempt_cost: AttemptCost,
    /// Its pages may be sent by reference.
    pub splices: bool,
}

impl Unit {
    pub(crate) fn new(
        volume: Arc<dyn Volume>,
        shards: usize,
        keeps_reservations: bool,
        memory: u64,
        copies: Copies,
    ) -> Self {
        let identity = volume.identity();
        let geometry = volume.geometry();
        let characteristics = volume.characteristics();
        let block_size = geometry.block_size;
        let volatile_cache = characteristics.write_cache == WriteCache::Volatile;
        let unmap_granularity_blocks = characteristics
            .unmap_granularity
            .map(|bytes| bytes.div_ceil(block_size));
        let max_transfer_blocks = max_transfer_bytes(memory) / block_size;
        let reservations = Reservations::new();
        let logical_unit = LogicalUnit::new(
            LogicalUnitConfig {
                uuid: identity.uuid,
                name: identity.name.clone(),
                serial: identity.serial.clone(),
                block_size,
                block_count: geometry.block_count,
                read_only: characteristics.read_only,
                volatile_cache,
                unmap_granularity_blocks,
                unmapped_reads_zeros: characteristics.unmapped_reads_zeros,
                rotational: characteristics.rotational,
                max_transfer_blocks,
                persistent_reservations_store: keeps_reservations,
                product_revision: product_revision(),
            },
            Arc::clone(&reservations),
        );
        let namespace = Namespace::new(NamespaceParameters {
            uuid: identity.uuid,
            block_size,
            block_count: geometry.block_count,
            read_only: characteristics.read_only,
            volatile_cache,
            unmap_granularity_blocks,
            unmapped_reads_zeros: characteristics.unmapped_reads_zeros,
            rotational: characteristics.rotational,
            can_store_reservations: keeps_reservations,
            reservations,
        });
        Self {
            block_shift: block_size.trailing_zeros(),
            attempt_cost: volume.attempt_cost(),
            splices: may_splice(copies.splice, characteristics.read_only),
            gate: WriteGate::new(shards),
            logical_unit,
            namespace,
            statistics: VolumeStatistics::new(shards),
            volume,
        }
    }
}

/// Major and minor version in four characters.
pub(crate) fn product_revision() -> String {
    let version = concat!(
        env!("CARGO_PKG_VERSION_MAJOR"),
        ".",
        env!("CARGO_PKG_VERSION_MINOR")
    );
    format!("{version:<4.4}")
}

/// One listening socket, as peers know it.
#[derive(Debug)]
pub(crate) struct Portal {
    pub local: SocketAddr,
    pub advertise: Option<String>,
    pub portal_group_tag: u16,
}

impl Portal {
    /// What an initiator that reached us at `reached` should connect to. An unspecified address
    /// helps nobody, so it is replaced by the one the initiator used itself.
    fn address(&self, reached: SocketAddr) -> PortalAddress {
        if let Some(advertise) = &self.advertise {
            return PortalAddress(advertise.clone());
        }
        let mut address = self.local;
        if address.ip().is_unspecified() {
            address.set_ip(unmapped(reached.ip()));
        }
        PortalAddress(address.to_string())
    }
}

/// An IPv4 address that came in on an IPv6 socket is told as IPv4.
pub(crate) fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// See the module documentation.
pub(crate) struct Exports {
    pub units: Vec<Unit>,
    pub targets: Vec<TargetConfig>,
    pub portals: Vec<Portal>,
    pub discovery: Authentication,
    pub nvme: NvmeExports,
}

/// What an initiator gets at a target.
pub(crate) struct Admission<'a> {
    pub luns: &'a [LunConfig],
    pub authentication: &'a Authentication,
}

impl Exports {
    /// Listeners of all protocols: first the portals of iSCSI, then the ports of NVMe/TCP.
    pub(crate) fn listeners(&self) -> usize {
        self.portals.len() + self.nvme.ports.len()
    }

    /// Whether that listener is one for NVMe/TCP.
    pub(crate) fn is_nvme(&self, listener: usize) -> bool {
        listener >= self.portals.len()
    }

    /// The target of that name, by index.
    pub(crate) fn find_target(&self, name: &str) -> Option<(usize, &TargetConfig)> {
        self.targets
            .iter()
            .enumerate()
            .find(|(_, target)| target.name.as_str() == name)
    }

    /// What `initiator` gets at a target; `None` when it is not let in.
    pub(crate) fn admission<'a>(
        target: &'a TargetConfig,
        initiator: &IscsiName,
    ) -> Option<Admission<'a>> {
        let names = |rule: &&AccessRule| rule.initiators.contains(initiator);
        let (luns, authentication) = match target.access.iter().find(names) {
            Some(rule) => (rule.luns.as_slice(), rule.authentication.as_ref()),
            None => (target.default_luns.as_deref()?, None),
        };
        let authentication = authentication.unwrap_or(&target.authentication);
        (!luns.is_empty()).then_some(Admission {
            luns,
            authentication,
        })
    }

    /// The units that any initiator reaches through a target, each once.
    pub(crate) fn units_of(&self, target: usize) -> Vec<usize> {
        let target = &self.targets[target];
        let mut units: Vec<usize> = target.maps().flatten().map(|lun| lun.volume).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Number of a target's port in a portal group, unique over all targets: several targets may
    /// export one volume, whose reservations tell their ports apart by it.
    pub(crate) fn relative_target_port(&self, target: usize, portal_group_tag: u16) -> u16 {
        let mut tags: Vec<u16> = self
            .portals
            .iter()
            .map(|portal| portal.portal_group_tag)
            .collect();
        tags.sort_unstable();
        tags.dedup();
        let place = tags
            .iter()
            .position(|tag| *tag == portal_group_tag)
            .unwrap_or(0);
        u16::try_from(target * tags.len() + place + 1).unwrap_or(u16::MAX)
    }

    /// Tells every unit through which target ports it can be reached.
    pub(crate) fn announce_target_ports(&self) {
        for (index, target) in self.targets.iter().enumerate() {
            let ports: Vec<u16> = self
                .portals
                .iter()
                .filter(|portal| Self::is_reachable(target, portal.portal_group_tag))
                .map(|portal| self.relative_target_port(index, portal.portal_group_tag))
                .collect();
            for unit in self.units_of(index) {
                self.units[unit].logical_unit.set_target_ports(&ports);
            }
        }
    }

    /// Whether a target is reachable through the portal group.
    pub(crate) fn is_reachable(target: &TargetConfig, portal_group_tag: u16) -> bool {
        target.portal_groups.is_empty() || target.portal_groups.contains(&portal_group_tag)
    }

    /// Targets that `initiator` is let into, with their portals.
    pub(crate) fn visible_targets(
        &self,
        initiator: &IscsiName,
        reached: SocketAddr,
    ) -> Vec<TargetRecord> {
        let visible = self
            .targets
            .iter()
            .filter(|target| Self::admission(target, initiator).is_some());
        let record = |target: &TargetConfig| {
            let portals = self
                .portals
                .iter()
                .filter(|portal| Self::is_reachable(target, portal.portal_group_tag))
                .map(|portal| PortalRecord {
                    address: portal.address(reached),
                    portal_group_tag: PortalGroupTag(portal.portal_group_tag),
                })
                .collect::<Vec<_>>();
            TargetRecord {
                name: target.name.clone(),
                portals,
            }
        };
        visible
            .map(record)
            .filter(|record| !record.portals.is_empty())
            .collect()
    }
}
