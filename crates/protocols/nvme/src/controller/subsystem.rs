//! Subsystems: names, namespaces, and who may see them.

use std::sync::Arc;

use super::access::{HostAccess, NamespaceGrant};
use super::limits::ControllerLimits;
use super::namespace::Namespace;
use crate::command::NamespaceId;
use crate::nqn::Nqn;

/// A namespace of a subsystem.
#[derive(Clone, Debug)]
pub struct NamespaceConfig {
    /// NSID.
    pub id: NamespaceId,
    /// What all controllers share of it.
    pub namespace: Arc<Namespace>,
    /// The driver's index of the volume.
    pub index: usize,
}

/// One NVM subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// SUBNQN.
    pub nqn: Nqn,
    /// SN, at most 20 ASCII characters.
    pub serial: String,
    /// MN, at most 40 ASCII characters.
    pub model: String,
    /// FR, at most 8 ASCII characters.
    pub firmware: String,
    /// All its namespaces, by distinct identifiers.
    pub namespaces: Vec<NamespaceConfig>,
    /// Who may connect, and sees what.
    pub hosts: HostAccess,
}

/// What the controllers of a subsystem share.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) nqn: Nqn,
    pub(super) serial: String,
    pub(super) model: String,
    pub(super) firmware: String,
    pub(super) is_discovery: bool,
    pub(super) limits: Arc<ControllerLimits>,
    /// Access of NVM subsystems by name, for the discovery log page. Only discovery has it.
    others: Vec<Arc<Self>>,
    /// In the order of their identifiers.
    namespaces: Vec<NamespaceConfig>,
    hosts: HostAccess,
}

/// Most I/O queues there can be: their number is told less one, and FFFFh is no number of queues.
const IO_QUEUES_MAX: u16 = 0xfffe;

impl Subsystem {
    pub(super) fn new(
        config: SubsystemConfig,
        others: Vec<Arc<Self>>,
        limits: &Arc<ControllerLimits>,
    ) -> Arc<Self> {
        let is_discovery = config.nqn.is_discovery();
        let mut namespaces = config.namespaces;
        namespaces.retain(|namespace| namespace.id.is_single());
        namespaces.sort_by_key(|namespace| namespace.id);
        namespaces.dedup_by_key(|namespace| namespace.id);
        Arc::new(Self {
            nqn: config.nqn,
            serial: config.serial,
            model: config.model,
            firmware: config.firmware,
            is_discovery,
            limits: Arc::clone(limits),
            others,
            namespaces,
            hosts: config.hosts,
        })
    }

    /// What a host sees; `None` when it must not connect.
    pub(super) fn visible(&self, host: &Nqn) -> Option<Vec<(&NamespaceConfig, NamespaceGrant)>> {
        if self.is_discovery {
            return Some(Vec::new());
        }
        let grants = self.hosts.namespaces_of(host)?;
        let grant_of = |id: NamespaceId| grants.iter().find(|grant| grant.id == id);
        let visible = self
            .namespaces
            .iter()
            .filter_map(|config| Some((config, *grant_of(config.id)?)));
        Some(visible.collect())
    }

    /// All its namespaces, whoever sees them.
    pub(super) fn namespaces(&self) -> &[NamespaceConfig] {
        &self.namespaces
    }

    /// Whether a volume of the driver is one of its namespaces.
    pub(super) fn has_volume(&self, index: usize) -> bool {
        self.namespaces.iter().any(|it| it.index == index)
    }

    /// I/O queues a controller may have.
    pub(super) fn io_queues_max(&self) -> u16 {
        if self.is_discovery {
            0
        } else {
            self.limits.io_queues_max.clamp(1, IO_QUEUES_MAX)
        }
    }

    /// Whether discovery tells a host of a subsystem: it may connect, or we do not know the name.
    pub(super) fn shows(&self, subsystem: &Nqn, host: &Nqn) -> bool {
        self.others
            .iter()
            .find(|other| other.nqn == *subsystem)
            .is_none_or(|other| other.hosts.namespaces_of(host).is_some())
    }
}
