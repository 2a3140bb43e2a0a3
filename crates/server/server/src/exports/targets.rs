//! The iSCSI targets of a server, by name and by number.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::Authentication;

use crate::address::TargetId;
use crate::config::{AccessRule, LunConfig, TargetConfig};

/// A target as sessions know it.
#[derive(Debug)]
pub(crate) struct Target {
    pub id: TargetId,
    /// Volumes in its maps are places of units.
    pub config: TargetConfig,
    /// Portal group tags through which it is reached, with the relative identifiers of its ports.
    pub ports: Vec<(u16, u16)>,
    /// The revision with which its maps became what they are.
    pub mapped: u64,
}

/// What an initiator gets at a target.
pub(crate) struct Admission<'a> {
    pub luns: &'a [LunConfig],
    pub authentication: &'a Authentication,
}

impl Target {
    /// What `initiator` gets here; `None` when it is not let in.
    pub(crate) fn admission(&self, initiator: &IscsiName) -> Option<Admission<'_>> {
        let means =
            |rule: &&AccessRule| rule.initiators.iter().any(|named| named.matches(initiator));
        let config = &self.config;
        let (luns, authentication) = match config.access.iter().find(means) {
            Some(rule) => (rule.luns.as_slice(), rule.authentication.as_ref()),
            None => (config.default_luns.as_deref()?, None),
        };
        let authentication = authentication.unwrap_or(&config.authentication);
        (!luns.is_empty()).then_some(Admission {
            luns,
            authentication,
        })
    }

    /// The places of the units that any initiator reaches through it, each once.
    pub(crate) fn units(&self) -> Vec<usize> {
        let luns = self.config.maps().flatten();
        let mut units: Vec<usize> = luns.map(|lun| lun.volume).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Whether it is reached through the portal group.
    pub(crate) fn is_reachable(&self, portal_group_tag: u16) -> bool {
        self.relative_target_port(portal_group_tag).is_some()
    }

    /// Number of its port in a portal group, unique over all targets: several targets may export one volume, whose
    /// reservations tell their ports apart by it.
    pub(crate) fn relative_target_port(&self, portal_group_tag: u16) -> Option<u16> {
        let mut ports = self.ports.iter();
        let port = ports.find(|(tag, _)| *tag == portal_group_tag);
        port.map(|(_, number)| *number)
    }

    /// Whether initiators see the same units as through another one in its place.
    pub(super) fn maps_as(&self, other: &TargetConfig) -> bool {
        let maps = |config: &TargetConfig| {
            let rules = config.access.iter();
            let rules = rules.map(|rule| (rule.initiators.clone(), rule.luns.clone()));
            (rules.collect::<Vec<_>>(), config.default_luns.clone())
        };
        maps(&self.config) == maps(other)
    }
}

/// All targets of a version of the exports. Immutable.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// In the order of the configuration.
    list: Vec<Arc<Target>>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<TargetId, usize>,
}

impl Targets {
    pub(super) fn new(list: Vec<Arc<Target>>) -> Self {
        let places = list.iter().enumerate();
        Self {
            by_name: places
                .clone()
                .map(|(place, target)| (target.config.name.as_str().to_owned(), place))
                .collect(),
            by_id: places.map(|(place, target)| (target.id, place)).collect(),
            list,
        }
    }

    /// In the order of the configuration.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.list.iter()
    }

    /// The target of that name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Target>> {
        self.list.get(*self.by_name.get(name)?)
    }

    /// The target of that number, while it is exported.
    pub(crate) fn get(&self, id: TargetId) -> Option<&Arc<Target>> {
        self.list.get(*self.by_id.get(&id)?)
    }
}
