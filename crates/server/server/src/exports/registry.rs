//! Makes the versions of what is exported: gives units their places, targets and their ports their numbers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_iscsi::server::directory::Authentication;
use longshore_nvme::controller::SubsystemConfig as SubsystemParameters;
use longshore_volume::Volume;

use super::listener::Listener;
use super::nvme::{self, NvmeExports};
use super::{Exports, Target, Targets, Unit};
use crate::address::TargetId;
use crate::config::{Copies, ExportsConfig, LunConfig, PeerLimits, StartError, TargetConfig};
use crate::mail::message::Post;

use crate::target_ports::{PortsOf, TargetPorts, TargetPortsError};
use crate::volume_store::VolumeStore;

/// What units are made with.
pub(crate) struct UnitOptions {
    pub shards: usize,
    pub memory: u64,
    pub copies: Copies,
}

/// See the module documentation.
pub(crate) struct Registry {
    current: Arc<Exports>,
    options: UnitOptions,
    /// Stands in vacant places.
    vacant: Arc<Unit>,
    /// Places without a unit.
    free: Vec<usize>,
    next_target: u32,
    target_ports: TargetPorts,
    state_directory: Option<PathBuf>,
    reservation_store: Option<VolumeStore>,
    sanitize_store: Option<VolumeStore>,
}

/// A version that is not in force yet, and what it differs in.
pub(crate) struct Next {
    pub exports: Arc<Exports>,
    /// `None`: as they are.
    pub subsystems: Option<Vec<SubsystemParameters>>,
    /// Places of units that are exported no more.
    pub removed: Vec<usize>,
    /// Names of volumes that are exported now and were not.
    pub added: Vec<String>,
    /// What discovery of NVMe tells has changed.
    pub discovery_changed: bool,
    next_target: u32,
    free: Vec<usize>,
}

impl Registry {
    /// The first version, without volumes, targets and subsystems. Reservations and numbers of ports are kept in the
    /// state directory, if there is one.
    pub(crate) fn new(
        listeners: Vec<Listener>,
        options: UnitOptions,
        limits: &PeerLimits,
        posts: &[Post],
        state_directory: Option<PathBuf>,
    ) -> Result<Self, StartError> {
        let open = |kind| {
            let opened = state_directory.as_ref().map(|path| {
                VolumeStore::open(path, kind).map_err(|source| StartError::StateDirectory {
                    path: path.clone(),
                    source,
                })
            });
            opened.transpose()
        };
        let reservation_store = open(VolumeStore::RESERVATIONS)?;
        let sanitize_store = open(VolumeStore::SANITIZE)?;
        let target_ports = TargetPorts::open(state_directory.as_deref())
            .map_err(|error| ports_failed(state_directory.as_deref(), &error))?;
        let exports = Exports {
            revision: 0,
            units: Box::default(),
            exported: Arc::default(),
            targets: Arc::default(),
            listeners: listeners.into(),
            discovery: Arc::new(Authentication::none()),
            nvme: NvmeExports::new(limits, posts),
        };
        Ok(Self {
            current: Arc::new(exports),
            vacant: Arc::new(Unit::vacant(options.shards, options.copies)),
            options,
            free: Vec::new(),
            next_target: 0,
            target_ports,
            state_directory,
            reservation_store,
            sanitize_store,
        })
    }

    pub(crate) fn current(&self) -> &Arc<Exports> {
        &self.current
    }

    /// Where reservations are kept.
    pub(crate) const fn reservation_store(&self) -> Option<&VolumeStore> {
        self.reservation_store.as_ref()
    }

    /// Where it is kept how far sanitize operations are.
    pub(crate) const fn sanitize_store(&self) -> Option<&VolumeStore> {
        self.sanitize_store.as_ref()
    }

    /// Makes the version that comes next, with these listeners. The configuration was checked. Numbers of new ports are
    /// stored when this returns; all else takes effect with [`Self::adopt`].
    pub(crate) fn prepare(
        &mut self,
        config: ExportsConfig,
        listeners: Arc<[Listener]>,
    ) -> Result<Next, StartError> {
        let before = Arc::clone(&self.current);
        let revision = before.revision + 1;
        let known: HashMap<*const (), usize> = before
            .exported()
            .map(|(place, unit)| (address(&unit.volume), place))
            .collect();
        let mut units = before.units.to_vec();
        let mut free = self.free.clone();
        let mut added = Vec::new();
        let mut places = Vec::new();
        for volume in &config.volumes {
            let place = match known.get(&address(volume)) {
                Some(place) => *place,
                None => {
                    let unit = Arc::new(self.unit(volume)?);
                    added.push(volume.identity().name.clone());
                    match free.pop() {
                        Some(place) => {
                            units[place] = unit;
                            place
                        }
                        None => {
                            units.push(unit);
                            units.len() - 1
                        }
                    }
                }
            };
            places.push(place);
        }
        let kept: HashSet<usize> = places.iter().copied().collect();
        let exported = before.exported().map(|(place, _)| place);
        let removed = exported.filter(|place| !kept.contains(place)).collect();
        let mut next_target = self.next_target;
        let tags = tags(&listeners);
        let from = Before {
            exports: &before,
            revision,
            tags: &tags,
        };
        let targets = self.targets(config.targets, &places, &from, &mut next_target)?;
        let subsystems = nvme::parameters(&config.subsystems, &places, &units);
        let names: Arc<[_]> = config.subsystems.iter().map(|s| s.nqn.clone()).collect();
        let access_changed = !nvme::is_same_access(&before.nvme.configured, &config.subsystems);
        let discovery_changed = before.nvme.names != names
            || access_changed
            || port_ids(&listeners) != port_ids(&before.listeners);
        let exports = Exports {
            revision,
            units: units.into(),
            exported: places.into(),
            targets: Arc::new(targets),
            listeners,
            discovery: Arc::new(config.discovery),
            nvme: NvmeExports {
                names,
                configured: config.subsystems.into(),
                generation: before.nvme.generation + u64::from(discovery_changed),
                ..before.nvme.clone()
            },
        };
        Ok(Next {
            exports: Arc::new(exports),
            subsystems: Some(subsystems),
            removed,
            added,
            discovery_changed,
            next_target,
            free,
        })
    }

    /// Makes the version that comes next, which differs in its listeners alone.
    pub(crate) fn prepare_listeners(
        &mut self,
        listeners: Vec<Listener>,
    ) -> Result<Next, StartError> {
        let mut exports = Exports::clone(&self.current);
        exports.revision += 1;
        exports.listeners = listeners.into();
        let tags = tags(&exports.listeners);
        let configs = exports.targets.iter().map(|target| &target.config);
        let ports = self.ports(configs, &tags)?;
        let targets = exports.targets.iter().zip(ports).map(|(target, ports)| {
            Arc::new(Target {
                id: target.id,
                config: target.config.clone(),
                ports,
                mapped: target.mapped,
            })
        });
        exports.targets = Arc::new(Targets::new(targets.collect()));
        let discovery_changed = port_ids(&exports.listeners) != port_ids(&self.current.listeners);
        exports.nvme.generation += u64::from(discovery_changed);
        Ok(Next {
            exports: Arc::new(exports),
            subsystems: None,
            removed: Vec::new(),
            added: Vec::new(),
            discovery_changed,
            next_target: self.next_target,
            free: self.free.clone(),
        })
    }

    /// A version is in force.
    pub(crate) fn adopt(&mut self, next: &Next) {
        next.exports.announce_target_ports();
        self.current = Arc::clone(&next.exports);
        self.next_target = next.next_target;
        self.free.clone_from(&next.free);
    }

    /// A version without a unit that was removed before, and the unit. Its place is free after
    /// [`Self::reuse`].
    pub(crate) fn vacate(&mut self, place: usize) -> (Arc<Exports>, Arc<Unit>) {
        let mut exports = Exports::clone(&self.current);
        exports.revision += 1;
        let unit = std::mem::replace(&mut exports.units[place], Arc::clone(&self.vacant));
        self.current = Arc::new(exports);
        (Arc::clone(&self.current), unit)
    }

    /// All shards know that a place is vacant.
    pub(crate) fn reuse(&mut self, place: usize) {
        self.free.push(place);
    }

    fn unit(&self, volume: &Arc<dyn Volume>) -> Result<Unit, StartError> {
        let UnitOptions {
            shards,
            memory,
            copies,
        } = self.options;
        let stores = self.reservation_store.is_some();
        let unit = Unit::new(Arc::clone(volume), shards, stores, memory, copies);
        let uuid = volume.identity().uuid;
        let reservations = unit.logical_unit.reservations();
        if let Some(store) = &self.reservation_store {
            let failed = |reason| StartError::Reservations {
                path: store.path(uuid),
                reason,
            };
            let stored = store
                .load(uuid)
                .map_err(|error| failed(error.to_string()))?;
            if let Some(bytes) = stored {
                let restored = reservations.restore(&bytes);
                restored.map_err(|error| failed(error.to_string()))?;
            }
        }
        if let Some(store) = &self.sanitize_store {
            let failed = |reason| StartError::Sanitize {
                path: store.path(uuid),
                reason,
            };
            let stored = store
                .load(uuid)
                .map_err(|error| failed(error.to_string()))?;
            let text = String::from_utf8(stored.unwrap_or_default())
                .map_err(|error| failed(error.to_string()))?;
            let restored = reservations.restore_sanitize(&text);
            restored.map_err(|error| failed(error.to_string()))?;
        }
        Ok(unit)
    }

    /// Portal group tags of targets with the relative identifiers of the ports, which are stored when this returns.
    fn ports<'a>(
        &mut self,
        configs: impl Iterator<Item = &'a TargetConfig>,
        tags: &BTreeSet<u16>,
    ) -> Result<Vec<Vec<(u16, u16)>>, StartError> {
        let ports: Vec<PortsOf> = configs.map(|config| ports_of(config, tags)).collect();
        self.target_ports
            .assign(&ports, tags)
            .map_err(|error| ports_failed(self.state_directory.as_deref(), &error))?;
        let numbered = ports.iter().map(|ports| {
            let numbers = ports.groups.iter().map(|(tag, _)| {
                let number = self.target_ports.number(&ports.target, *tag);
                (*tag, number.expect("every port has been given a number"))
            });
            numbers.collect()
        });
        Ok(numbered.collect())
    }

    fn targets(
        &mut self,
        configs: Vec<TargetConfig>,
        places: &[usize],
        before: &Before<'_>,
        next_target: &mut u32,
    ) -> Result<Targets, StartError> {
        let revision = before.revision;
        let ports = self.ports(configs.iter(), before.tags)?;
        let mut list = Vec::new();
        for (mut config, ports) in configs.into_iter().zip(ports) {
            let rules = config.access.iter_mut().map(|rule| &mut rule.luns);
            for lun in rules.chain(&mut config.default_luns).flatten() {
                let LunConfig { volume, .. } = lun;
                *volume = places[*volume];
            }
            let known = before.exports.targets.named(config.name.as_str());
            let (id, mapped) = match known {
                Some(known) if known.maps_as(&config) => (known.id, known.mapped),
                Some(known) => (known.id, revision),
                None => {
                    *next_target += 1;
                    (TargetId(*next_target), revision)
                }
            };
            list.push(Arc::new(Target {
                id,
                config,
                ports,
                mapped,
            }));
        }
        Ok(Targets::new(list))
    }
}

/// What a version derives from.
struct Before<'a> {
    exports: &'a Exports,
    /// Of the version that is made.
    revision: u64,
    /// Of the portals that it has.
    tags: &'a BTreeSet<u16>,
}

/// Portal group tags of the listeners that are open.
fn tags(listeners: &[Listener]) -> BTreeSet<u16> {
    let open = listeners.iter().filter(|listener| listener.is_open);
    let portals = open.filter_map(Listener::portal);
    portals.map(|portal| portal.portal_group_tag).collect()
}

/// The NVMe ports that are open.
fn port_ids(listeners: &[Listener]) -> Vec<u16> {
    let open = listeners.iter().filter(|listener| listener.is_open);
    let ports = open.filter_map(Listener::nvme_port);
    ports.map(|port| port.port_id).collect()
}

/// The ports of a target: in the portal groups through which it is reached.
fn ports_of(config: &TargetConfig, tags: &BTreeSet<u16>) -> PortsOf {
    let groups = &config.portal_groups;
    let tags = tags.iter().copied();
    let reached: Vec<u16> = tags
        .filter(|tag| groups.is_empty() || groups.contains(tag))
        .collect();
    let given = |tag: &u16| (*tag, config.relative_ports.of(*tag, &reached));
    PortsOf {
        target: config.name.as_str().to_owned(),
        groups: reached.iter().map(given).collect(),
    }
}

fn ports_failed(directory: Option<&Path>, error: &TargetPortsError) -> StartError {
    match error {
        TargetPortsError::Taken {
            number,
            target,
            owner,
        } => StartError::RelativePortTaken {
            identifier: *number,
            target: target.clone(),
            owner: owner.0.clone(),
            tag: owner.1,
        },
        TargetPortsError::File(_)
        | TargetPortsError::Damaged { .. }
        | TargetPortsError::TooMany => StartError::TargetPorts {
            path: TargetPorts::path(directory.unwrap_or(Path::new(""))),
            reason: error.to_string(),
        },
    }
}

fn address(volume: &Arc<dyn Volume>) -> *const () {
    Arc::as_ptr(volume).cast()
}

impl Exports {
    /// Tells every unit through which target ports it can be reached.
    fn announce_target_ports(&self) {
        let mut ports = vec![Vec::new(); self.units.len()];
        for target in self.targets.iter() {
            for place in target.units() {
                ports[place].extend(target.ports.iter().map(|(_, number)| *number));
            }
        }
        for (unit, ports) in self.units.iter().zip(ports) {
            unit.logical_unit.set_target_ports(&ports);
        }
    }
}
