//! What is exported: volumes as logical units, targets, portals, and who may use them.
//!
//! Made once at start and shared by all shards. Everything in it is immutable or takes care of itself.

pub(crate) mod nvme;
mod portal;
mod unit;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, PortalRecord, TargetRecord};
use longshore_iscsi::session_parameters::PortalGroupTag;

use crate::config::{AccessRule, LunConfig, TargetConfig};
use crate::target_ports::{TargetPorts, TargetPortsError};
use nvme::NvmeExports;
pub(crate) use portal::{Portal, unmapped};
pub(crate) use unit::Unit;

/// See the module documentation.
pub(crate) struct Exports {
    pub units: Vec<Unit>,
    pub targets: Vec<TargetConfig>,
    pub portals: Vec<Portal>,
    pub discovery: Authentication,
    pub nvme: NvmeExports,
    pub target_ports: TargetPorts,
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
        let name = self.targets[target].name.as_str();
        let number = self.target_ports.number(name, portal_group_tag);
        number.expect("every port through which a target is reached has a number")
    }

    /// Gives numbers to the ports of all targets.
    pub(crate) fn number_target_ports(&mut self) -> Result<(), TargetPortsError> {
        let tags: BTreeSet<u16> = self
            .portals
            .iter()
            .map(|portal| portal.portal_group_tag)
            .collect();
        let targets = self.targets.iter().map(|target| {
            let reachable = tags.iter().filter(|tag| Self::is_reachable(target, **tag));
            (
                target.name.as_str().to_owned(),
                reachable.copied().collect(),
            )
        });
        let targets: Vec<(String, Vec<u16>)> = targets.collect();
        self.target_ports.assign(&targets, &tags)
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
