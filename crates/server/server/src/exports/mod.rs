//! Exports: volumes as logical units and namespaces, targets, subsystems, portals, and access to them.
//!
//! A version of it is immutable, or takes care of itself. Each shard has a version of its own, which a change
//! replaces at the beginning of a turn ([`crate::server::switch`] has the order of all). A unit has a place in all
//! versions: commands, sessions and requests know it by that. The place of a unit that was removed holds the unit
//! until nothing refers to it any more, and then a substitute until another unit gets the place.

pub(crate) mod listener;
pub(crate) mod nvme;
mod portal;
pub(crate) mod registry;
pub(crate) mod targets;
mod unit;
mod vacant;

use std::net::SocketAddr;
use std::sync::Arc;

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, PortalRecord, TargetRecord};
use longshore_iscsi::session_parameters::PortalGroupTag;

use listener::Listener;
use nvme::{NvmeExports, NvmePort};
pub(crate) use portal::{Portal, unmapped};
pub(crate) use targets::{Target, Targets};
pub(crate) use unit::Unit;

/// See the module documentation.
#[derive(Clone)]
pub(crate) struct Exports {
    /// Rises by one with each version.
    pub revision: u64,
    /// By place. A list of its own for each shard, and so are the counters of references to it.
    units: Box<[Arc<Unit>]>,
    /// Places of the units that are exported, in the order of the configuration.
    exported: Arc<[usize]>,
    pub targets: Arc<Targets>,
    /// Indexed by the place of the listener.
    pub listeners: Arc<[Listener]>,
    pub discovery: Arc<Authentication>,
    pub nvme: NvmeExports,
}

impl std::fmt::Debug for Exports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exports")
            .field("revision", &self.revision)
            .field("exported", &self.exported)
            .finish_non_exhaustive()
    }
}

impl Exports {
    /// The unit in that place.
    #[inline]
    pub(crate) fn unit(&self, place: usize) -> &Unit {
        &self.units[place]
    }

    /// The same, to be kept longer than this version.
    pub(crate) fn shared_unit(&self, place: usize) -> &Arc<Unit> {
        &self.units[place]
    }

    /// Units, with their places, that are exported or were and may still have something to do.
    pub(crate) fn units(&self) -> impl Iterator<Item = (usize, &Arc<Unit>)> {
        let units = self.units.iter().enumerate();
        units.filter(|(_, unit)| !unit.is_vacant())
    }

    /// Units that are exported, with their places, in the order of the configuration.
    pub(crate) fn exported(&self) -> impl Iterator<Item = (usize, &Unit)> {
        let places = self.exported.iter();
        places.map(|place| (*place, &*self.units[*place]))
    }

    /// Places of units, vacant ones included.
    pub(crate) fn places(&self) -> usize {
        self.units.len()
    }

    /// Units that are not there in an earlier version.
    pub(crate) fn added_since(&self, earlier: &Self) -> impl Iterator<Item = (usize, &Arc<Unit>)> {
        let units = self.units();
        units.filter(|(place, unit)| {
            let before = earlier.units.get(*place);
            before.is_none_or(|before| !Arc::ptr_eq(before, unit))
        })
    }

    /// Places that have become vacant since an earlier version.
    pub(crate) fn vacated_since(&self, earlier: &Self) -> impl Iterator<Item = usize> {
        let before = earlier.units();
        before
            .map(|(place, _)| place)
            .filter(|place| self.units[*place].is_vacant())
    }

    /// Whether that listener is one for NVMe/TCP.
    pub(crate) fn is_nvme(&self, listener: usize) -> bool {
        self.listeners[listener].nvme_port().is_some()
    }

    /// The portal that an iSCSI connection came in by.
    pub(crate) fn portal(&self, listener: usize) -> &Portal {
        let portal = self.listeners[listener].portal();
        portal.expect("connections of iSCSI come by portals")
    }

    /// The port that an NVMe/TCP connection came in by.
    pub(crate) fn nvme_port(&self, listener: usize) -> &NvmePort {
        let port = self.listeners[listener].nvme_port();
        port.expect("connections of NVMe/TCP come by ports")
    }

    /// Portals that can be reached.
    pub(crate) fn portals(&self) -> impl Iterator<Item = &Portal> {
        let listeners = self.listeners.iter();
        let open = listeners.filter(|listener| listener.is_open);
        open.filter_map(Listener::portal)
    }

    /// Ports of NVMe/TCP that can be reached.
    pub(crate) fn nvme_ports(&self) -> impl Iterator<Item = &NvmePort> {
        let listeners = self.listeners.iter();
        let open = listeners.filter(|listener| listener.is_open);
        open.filter_map(Listener::nvme_port)
    }

    /// Something went wrong with a volume: see [`Unit::tell_of_failure`].
    #[cold]
    pub(crate) fn tell_of_failure(&self, place: usize) {
        self.unit(place)
            .tell_of_failure(&self.nvme.subsystems, place);
    }

    /// Targets that `initiator` is let into, with their portals.
    pub(crate) fn visible_targets(
        &self,
        initiator: &IscsiName,
        reached: SocketAddr,
    ) -> Vec<TargetRecord> {
        let targets = self.targets.iter();
        let visible = targets.filter(|target| target.admission(initiator).is_some());
        let record = |target: &Arc<Target>| {
            let portals = self
                .portals()
                .filter(|portal| target.is_reachable(portal.portal_group_tag))
                .map(|portal| PortalRecord {
                    address: portal.address(reached),
                    portal_group_tag: PortalGroupTag(portal.portal_group_tag),
                })
                .collect::<Vec<_>>();
            TargetRecord {
                name: target.config.name.clone(),
                portals,
            }
        };
        visible
            .map(record)
            .filter(|record| !record.portals.is_empty())
            .collect()
    }
}
