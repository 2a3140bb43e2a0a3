//! Subsystems: names, namespaces, and who may see them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::access::{HostAccess, NamespaceGrant};
use super::generated_keys::GeneratedKeys;
use super::limits::ControllerLimits;
use super::namespace::NamespaceConfig;
use super::secure::{TlsKeys, TlsUse};
use crate::auth::{Concatenation, Credentials};
use crate::command::NamespaceId;
use crate::nqn::Nqn;

#[derive(Clone, Debug)]
pub struct SubsystemConfig {
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
    pub(super) is_discovery: bool,
    pub(super) limits: Arc<ControllerLimits>,
    /// Locked by Connect until the controller is known, so that a change meets all controllers.
    access: RwLock<Access>,
    /// Keys for TLS that its hosts have had made.
    pub(super) generated: GeneratedKeys,
}

/// What Identify Controller says of the product.
#[derive(Debug, Default)]
pub(super) struct Product {
    /// SN, at most 20 ASCII characters.
    pub(super) serial: String,
    /// MN, at most 40 ASCII characters.
    pub(super) model: String,
    /// FR, at most 8 ASCII characters.
    pub(super) firmware: String,
}

/// What may change while controllers are there.
#[derive(Debug)]
pub(super) struct Access {
    /// Of controllers made from now on.
    product: Arc<Product>,
    /// In the order of their identifiers.
    namespaces: Vec<NamespaceConfig>,
    hosts: HostAccess,
    /// Access of NVM subsystems by name, for the discovery log page. Only discovery has it.
    others: HashMap<Nqn, Arc<Subsystem>>,
    /// The subsystem is no more.
    is_removed: bool,
}

/// Most I/O queues there can be: their number is told less one, and FFFFh is no number of queues.
const IO_QUEUES_MAX: u16 = 0xfffe;

impl Subsystem {
    pub(super) fn new(config: SubsystemConfig, limits: &Arc<ControllerLimits>) -> Arc<Self> {
        let is_discovery = config.nqn.is_discovery();
        Arc::new(Self {
            nqn: config.nqn.clone(),
            is_discovery,
            limits: Arc::clone(limits),
            access: RwLock::new(Access::new(config)),
            generated: GeneratedKeys::default(),
        })
    }

    pub(super) fn access(&self) -> RwLockReadGuard<'_, Access> {
        self.access.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn access_mut(&self) -> RwLockWriteGuard<'_, Access> {
        self.access.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All its namespaces, whoever sees them.
    pub(super) fn namespaces(&self) -> Vec<NamespaceConfig> {
        self.access().namespaces.clone()
    }

    /// Whether a volume of the driver is one of its namespaces.
    pub(super) fn has_volume(&self, index: usize) -> bool {
        let access = self.access();
        access.namespaces.iter().any(|it| it.index == index)
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
        let other = self.other(subsystem);
        other.is_none_or(|other| other.access().hosts.namespaces_of(host).is_some())
    }

    /// Whether a host reaches it over TLS.
    pub(super) fn tls_use(&self, host: &Nqn) -> TlsUse {
        match self.access().tls(host) {
            Some(tls) if tls.required => TlsUse::Required,
            Some(_) => TlsUse::Permitted,
            None => TlsUse::None,
        }
    }

    /// Whether a host has a key for TLS made, and uses its volumes with that alone.
    pub(super) fn must_concatenate(&self, host: &Nqn) -> bool {
        let credentials = self.access().credentials(host);
        credentials.is_some_and(|it| it.concatenation == Concatenation::Required)
    }

    /// A subsystem that discovery knows.
    pub(super) fn other(&self, subsystem: &Nqn) -> Option<Arc<Self>> {
        self.access().others.get(subsystem).map(Arc::clone)
    }
}

impl Access {
    pub(super) fn new(config: SubsystemConfig) -> Self {
        let mut namespaces = config.namespaces;
        namespaces.retain(|namespace| namespace.id.is_single());
        namespaces.sort_by_key(|namespace| namespace.id);
        namespaces.dedup_by_key(|namespace| namespace.id);
        Self {
            product: Arc::new(Product {
                serial: config.serial,
                model: config.model,
                firmware: config.firmware,
            }),
            namespaces,
            hosts: config.hosts,
            others: HashMap::new(),
            is_removed: false,
        }
    }

    /// That of a subsystem that is no more: nobody may connect, and nobody sees anything.
    pub(super) fn removed() -> Self {
        Self {
            product: Arc::default(),
            namespaces: Vec::new(),
            hosts: HostAccess::default(),
            others: HashMap::new(),
            is_removed: true,
        }
    }

    /// By what a host proves who it is.
    pub(super) fn credentials(&self, host: &Nqn) -> Option<Arc<Credentials>> {
        self.hosts.credentials_of(host)
    }

    /// With what a host opens TLS.
    pub(super) fn tls(&self, host: &Nqn) -> Option<Arc<TlsKeys>> {
        self.hosts.tls_of(host)
    }

    /// Whether any host opens TLS.
    pub(super) fn has_tls_keys(&self) -> bool {
        self.hosts.rules.iter().any(|rule| {
            let credentials = rule.credentials.as_ref();
            let makes_keys = credentials.is_some_and(|it| it.concatenation != Concatenation::None);
            rule.tls.is_some() || makes_keys
        })
    }

    pub(super) const fn is_removed(&self) -> bool {
        self.is_removed
    }

    pub(super) fn product(&self) -> &Arc<Product> {
        &self.product
    }

    /// Of discovery: the NVM subsystems, and what it has of the first of them.
    pub(super) fn discover(
        &mut self,
        others: HashMap<Nqn, Arc<Subsystem>>,
        product: Option<Arc<Product>>,
    ) {
        self.others = others;
        self.product = product.unwrap_or_default();
    }

    /// How many namespaces there are, for whatever host.
    pub(super) fn namespaces(&self) -> usize {
        self.namespaces.len()
    }

    /// What a host sees, in the order of identifiers; `None` when it must not connect.
    pub(super) fn visible(&self, host: &Nqn) -> Option<Vec<(&NamespaceConfig, NamespaceGrant)>> {
        let grants = self.hosts.namespaces_of(host)?;
        let by_id: HashMap<NamespaceId, NamespaceGrant> = grants
            .iter()
            .rev()
            .map(|grant| (grant.id, *grant))
            .collect();
        let visible = self
            .namespaces
            .iter()
            .filter_map(|config| Some((config, *by_id.get(&config.id)?)));
        Some(visible.collect())
    }
}
