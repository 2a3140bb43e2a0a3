//! What is exported under a configuration, and who sees what of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use longshore_api::state::Session;
use longshore_iscsi::name::IscsiName;
use longshore_nvme::nqn::Nqn;
use longshore_server::config::{AccessRule, HostRule, RelativePorts};
use longshore_volume::Volume;

use super::switch::Exports;
use crate::config::Config;

/// Volumes that are open, by name.
pub type OpenVolumes = BTreeMap<String, Arc<dyn Volume>>;

/// What a configuration exports. Volumes that are not open are left out of all maps.
#[must_use]
pub fn exports(config: &Config, open: &OpenVolumes) -> Exports {
    let mut volumes = Vec::with_capacity(open.len());
    // By the place in the configuration: the place in the exports, and whether all of it is read-only.
    let mut places: Vec<Option<(usize, bool)>> = Vec::with_capacity(config.volumes.len());
    for source in &config.volumes {
        let volume = open.get(&source.spec.name).filter(|_| source.enabled);
        places.push(volume.map(|volume| {
            volumes.push(Arc::clone(volume));
            (volumes.len() - 1, source.spec.read_only)
        }));
    }
    let mut targets = config.targets.clone();
    for target in &mut targets {
        let rules = target.access.iter_mut().map(|rule| &mut rule.luns);
        for map in rules.chain(&mut target.default_luns) {
            map.retain(|entry| places[entry.volume].is_some());
            for entry in map {
                if let Some((place, read_only)) = places[entry.volume] {
                    entry.volume = place;
                    entry.read_only |= read_only;
                }
            }
        }
    }
    let mut subsystems = config.subsystems.clone();
    for subsystem in &mut subsystems {
        let rules = subsystem.hosts.iter_mut().map(|rule| &mut rule.namespaces);
        for map in rules.chain(&mut subsystem.default_namespaces) {
            map.retain(|entry| places[entry.volume].is_some());
            for entry in map {
                if let Some((place, read_only)) = places[entry.volume] {
                    entry.volume = place;
                    entry.read_only |= read_only;
                }
            }
        }
    }
    Exports {
        volumes,
        targets,
        discovery: config.discovery.clone(),
        subsystems,
    }
}

/// What one peer sees of a target or subsystem: volumes by number.
type View<'a> = BTreeMap<u32, &'a str>;

pub struct Views<'a> {
    config: &'a Config,
    targets: HashMap<&'a str, usize>,
    subsystems: HashMap<&'a str, usize>,
}

impl<'a> Views<'a> {
    #[must_use]
    pub fn of(config: &'a Config) -> Self {
        let targets = config.targets.iter().enumerate();
        let subsystems = config.subsystems.iter().enumerate();
        Self {
            config,
            targets: targets.map(|(at, it)| (it.name.as_str(), at)).collect(),
            subsystems: subsystems.map(|(at, it)| (it.nqn.as_str(), at)).collect(),
        }
    }

    /// What a peer sees; `None` as peer: all that no rule names. `None`: it is not let in.
    fn of_peer(&self, target: &str, peer: Option<&str>) -> Option<View<'a>> {
        let volumes = &self.config.volumes;
        let name = |volume: usize| {
            let source = &volumes[volume];
            source.enabled.then_some(&*source.spec.name)
        };
        if let Some(at) = self.targets.get(target) {
            let target = &self.config.targets[*at];
            let peer = peer.and_then(|peer| IscsiName::from_peer(peer).ok());
            let names = |rule: &&AccessRule| {
                let peer = peer.as_ref();
                peer.is_some_and(|peer| rule.initiators.iter().any(|it| it.matches(peer)))
            };
            let rule = target.access.iter().find(names).map(|rule| &rule.luns);
            let map = rule.or(target.default_luns.as_ref())?;
            let view = map.iter();
            return Some(
                view.filter_map(|it| Some((u32::from(it.lun), name(it.volume)?)))
                    .collect(),
            );
        }
        let subsystem = &self.config.subsystems[*self.subsystems.get(target)?];
        let peer = peer.and_then(|peer| Nqn::new(peer).ok());
        let names = |rule: &&HostRule| {
            let peer = peer.as_ref();
            peer.is_some_and(|peer| rule.hosts.iter().any(|it| it.matches(peer)))
        };
        let rule = subsystem.hosts.iter().find(names);
        let rule = rule.map(|rule| &rule.namespaces);
        let map = rule.or(subsystem.default_namespaces.as_ref())?;
        let view = map.iter();
        Some(
            view.filter_map(|it| Some((it.nsid, name(it.volume)?)))
                .collect(),
        )
    }

    /// Volumes that each target or subsystem maps for anyone.
    fn mapped(&self) -> HashSet<(&'a str, usize)> {
        let targets = self.config.targets.iter().flat_map(|target| {
            let maps = target.maps().flatten();
            maps.map(|entry| (target.name.as_str(), entry.volume))
        });
        let subsystems = self.config.subsystems.iter().flat_map(|subsystem| {
            let maps = subsystem.maps().flatten();
            maps.map(|entry| (subsystem.nqn.as_str(), entry.volume))
        });
        targets.chain(subsystems).collect()
    }

    /// Volumes that come into a target or subsystem with `after`, by name.
    #[must_use]
    pub fn arrivals<'b>(&self, after: &Views<'b>) -> HashSet<&'b str> {
        let name = |config: &'b Config, volume: usize| &*config.volumes[volume].spec.name;
        let before: HashSet<(&str, &str)> = self
            .mapped()
            .into_iter()
            .map(|(object, volume)| (object, &*self.config.volumes[volume].spec.name))
            .collect();
        let after = after
            .mapped()
            .into_iter()
            .map(|(object, volume)| (object, name(after.config, volume)));
        let coming = after.filter(|pair| !before.contains(pair));
        coming.map(|(_, volume)| volume).collect()
    }

    /// Volumes that a session sees, and does not see any more with `after`.
    #[must_use]
    pub fn lost(&self, after: &Views<'_>, session: &Session) -> Vec<&'a str> {
        let (target, peer) = (&*session.target, Some(&*session.peer_name));
        let before = self.of_peer(target, peer).unwrap_or_default();
        let after = after.of_peer(target, peer).unwrap_or_default();
        let stays = |volume: &&str| after.values().any(|it| it == volume);
        before.into_values().filter(|it| !stays(it)).collect()
    }

    /// Whether ports of a target get relative identifiers that they were not given before. Its sessions log in again then.
    fn is_renumbered(&self, target: &str, after: &Views<'_>) -> bool {
        let ports = |views: &Views<'_>| {
            let at = views.targets.get(target)?;
            Some(views.config.targets[*at].relative_ports.clone())
        };
        let after = ports(after);
        after.is_some() && after != Some(RelativePorts::Automatic) && after != ports(self)
    }

    /// What a session would lose by a change to `after`, in one sentence.
    #[must_use]
    pub fn loss(&self, later: &Views<'_>, session: &Session) -> Option<String> {
        let (target, peer) = (&*session.target, Some(&*session.peer_name));
        let before = self.of_peer(target, peer)?;
        let who = format!("{} (session {})", session.peer_name, session.id);
        let Some(after) = later.of_peer(target, peer) else {
            return Some(format!("{who} uses {target}"));
        };
        if self.is_renumbered(target, later) {
            return Some(format!("{who} uses a port of {target} that gets a number"));
        }
        let lost: Vec<String> = before
            .iter()
            .filter(|(number, volume)| after.get(number) != Some(volume))
            .map(|(number, volume)| format!("volume {volume} as number {number}"))
            .collect();
        (!lost.is_empty()).then(|| format!("{who} sees {} of {target}", lost.join(", ")))
    }

    /// Numbers under which a session would find another volume than before.
    #[must_use]
    pub fn renumbered(&self, after: &Views<'_>, session: &Session) -> Vec<String> {
        let (target, peer) = (&*session.target, Some(&*session.peer_name));
        let (Some(old), Some(new)) = (self.of_peer(target, peer), after.of_peer(target, peer))
        else {
            return Vec::new();
        };
        let others = old.iter().filter_map(|(number, volume)| {
            let other = new.get(number).filter(|other| *other != volume)?;
            Some(format!(
                "number {number} would change from volume {volume} to {other}"
            ))
        });
        others.collect()
    }
}
