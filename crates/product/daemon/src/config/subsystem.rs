//! NVMe subsystems as they will be served: names, maps of namespaces, and which hosts get in.

use std::collections::{HashMap, HashSet};

use longshore_nvme::nqn::{Nqn, NqnError};
use longshore_server::config::{HostRule, NamespaceMapEntry, SubsystemConfig};
use longshore_wire::pattern::{Glob, NamePattern};
use toml::Spanned;

use super::access::{ALL_OTHERS, EarlierRules, Peers, VolumeNames};
use super::dhchap;
use super::document::{HostTable, NamespaceTable, SubsystemTable};
use super::file::ConfigFile;
use super::numbers::NSID_MAX;
use super::problem::{Problem, ProblemKind};
use super::target::UnknownVolumes;
use super::tls;
use super::warning::Warning;

/// The subsystem that exports every volume when the configuration names no subsystem.
pub const DEFAULT_SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// A subsystem for everybody, with every volume of the file and the command line in order.
pub(super) fn default_subsystem(volumes: &VolumeNames) -> Result<SubsystemConfig, Problem> {
    Ok(SubsystemConfig {
        nqn: Nqn::new(DEFAULT_SUBSYSTEM).expect("the default name is well-formed"),
        serial: None,
        hosts: Vec::new(),
        default_namespaces: Some(every_volume(volumes).map_err(Problem::general)?),
    })
}

/// The map of a host, or of the hosts of a pattern; `None` stands for all that no rule names.
fn map_of<'a>(
    subsystem: &'a SubsystemConfig,
    host: Option<&NamePattern<Nqn>>,
) -> Option<&'a [NamespaceMapEntry]> {
    let named =
        |rule: &&HostRule| host.is_some_and(|host| rule.hosts.iter().any(|own| own.covers(host)));
    let rule = subsystem.hosts.iter().find(named);
    let map = rule.map(|rule| &rule.namespaces);
    map.or(subsystem.default_namespaces.as_ref())
        .map(Vec::as_slice)
}

/// Turns `[[subsystem]]` tables into subsystems.
pub(super) struct SubsystemReader<'a> {
    /// The file they stand in.
    pub file: &'a ConfigFile,
    pub volumes: &'a VolumeNames,
    /// What to do with maps of volumes that are not there.
    pub unknown: UnknownVolumes,
    /// What is worth a line in the log.
    pub warnings: &'a mut Vec<Warning>,
}

impl SubsystemReader<'_> {
    pub(super) fn read(&mut self, table: &SubsystemTable) -> Result<SubsystemConfig, Problem> {
        let file = self.file;
        let at_name = |kind| file.problem(table.nqn.span(), kind);
        let nqn = self.nqn(&table.nqn, Nqn::new)?;
        if nqn.is_discovery() {
            return Err(at_name(ProblemKind::DiscoveryNqn));
        }
        // What a namespace of the subsystem is, over all of its maps.
        let mut known = Namespaces::default();
        let own = match &table.namespaces {
            Some(entries) => Some(self.map(entries, &table.nqn, &mut known)?),
            None => None,
        };
        let own = match own {
            Some(map) => map,
            // Rules that all have maps of their own leave nothing for this one to say.
            None if has_maps_of_its_own(&table.access) => Vec::new(),
            None => {
                let map = every_volume(self.volumes).map_err(at_name)?;
                for entry in &map {
                    known.take(entry, self.volumes).map_err(at_name)?;
                }
                map
            }
        };
        let mut subsystem = SubsystemConfig {
            nqn,
            serial: table.serial.as_ref().map(|serial| serial.0.clone()),
            hosts: Vec::new(),
            default_namespaces: None,
        };
        for rule in &table.access {
            let namespaces = match &rule.get_ref().namespaces {
                Some(entries) => self.map(entries, &table.nqn, &mut known)?,
                None => own.clone(),
            };
            self.read_rule(rule, namespaces, &mut subsystem)?;
        }
        if table.access.is_empty() {
            subsystem.default_namespaces = Some(own);
        }
        // The first rule that matches decides.
        subsystem.hosts.sort_by_key(is_for_all);
        Ok(subsystem)
    }

    /// Reads one `[[subsystem.access]]` table into `subsystem`.
    fn read_rule(
        &self,
        rule: &Spanned<HostTable>,
        mut namespaces: Vec<NamespaceMapEntry>,
        subsystem: &mut SubsystemConfig,
    ) -> Result<(), Problem> {
        let table = rule.get_ref();
        if table.hosts.is_empty() {
            let kind = ProblemKind::RuleForNoHost;
            return Err(self.file.problem(rule.span(), kind));
        }
        for entry in &mut namespaces {
            entry.read_only |= table.read_only;
        }
        let earlier = EarlierRules {
            named: subsystem
                .hosts
                .iter()
                .filter(|rule| !is_for_all(rule))
                .flat_map(|rule| &rule.hosts)
                .collect(),
            others: subsystem.default_namespaces.is_some()
                || subsystem.hosts.iter().any(is_for_all),
        };
        let peers = Peers::read(
            self.file,
            &table.hosts,
            |name| match Glob::is_pattern(name.get_ref()) {
                true => self.nqn(name, Nqn::pattern).map(NamePattern::Pattern),
                false => self.nqn(name, Nqn::new).map(NamePattern::Name),
            },
            &earlier,
            ProblemKind::HostInTwoRules,
        )?;
        let credentials = dhchap::credentials(self.file, table)?;
        let tls = tls::keys(self.file, table)?;
        let proves = credentials.is_some() || tls.is_some();
        if peers.others && proves {
            subsystem.hosts.push(HostRule {
                hosts: vec![NamePattern::Pattern(Glob::new(ALL_OTHERS.to_owned()))],
                namespaces: namespaces.clone(),
                credentials: credentials.clone(),
                tls: tls.clone(),
            });
        } else if peers.others {
            subsystem.default_namespaces = Some(namespaces.clone());
        }
        if !peers.named.is_empty() {
            subsystem.hosts.push(HostRule {
                hosts: peers.named,
                namespaces,
                credentials,
                tls,
            });
        }
        Ok(())
    }

    /// Reads a map of namespaces.
    fn map(
        &mut self,
        entries: &[Spanned<NamespaceTable>],
        subsystem: &Spanned<String>,
        known: &mut Namespaces,
    ) -> Result<Vec<NamespaceMapEntry>, Problem> {
        let mut map: Vec<NamespaceMapEntry> = Vec::with_capacity(entries.len());
        for entry in entries {
            let volume = &entry.get_ref().volume;
            if self.unknown == UnknownVolumes::LeftOut && !self.volumes.contains(volume) {
                self.warnings.push(Warning::LostVolume {
                    object: format!("subsystem {}", subsystem.get_ref()),
                    volume: volume.clone(),
                });
                continue;
            }
            let namespace = self
                .namespace(entry.get_ref(), &map, known)
                .map_err(|kind| self.file.problem(entry.span(), kind))?;
            map.push(namespace);
        }
        map.sort_unstable_by_key(|entry| entry.nsid);
        Ok(map)
    }

    /// Reads one entry of a map, of which `map` has been read before.
    fn namespace(
        &self,
        entry: &NamespaceTable,
        map: &[NamespaceMapEntry],
        known: &mut Namespaces,
    ) -> Result<NamespaceMapEntry, ProblemKind> {
        let nsid = u32::try_from(entry.nsid)
            .ok()
            .filter(|nsid| (1..=NSID_MAX).contains(nsid))
            .ok_or(ProblemKind::NsidOutOfRange(entry.nsid))?;
        let volume = self.volumes.find(&entry.volume)?;
        if map.iter().any(|other| other.nsid == nsid) {
            return Err(ProblemKind::DuplicateNsid(nsid));
        }
        let namespace = NamespaceMapEntry {
            nsid,
            volume,
            read_only: entry.read_only,
        };
        known.take(&namespace, self.volumes)?;
        Ok(namespace)
    }

    /// Reads the name of a subsystem or host, or a pattern of them.
    fn nqn<N>(
        &self,
        name: &Spanned<String>,
        parse: impl Fn(&str) -> Result<N, NqnError>,
    ) -> Result<N, Problem> {
        parse(name.get_ref()).map_err(|reason| {
            let kind = ProblemKind::BadNqn {
                name: name.get_ref().clone(),
                reason,
            };
            self.file.problem(name.span(), kind)
        })
    }
}

/// Whether a rule is for all hosts that no other rule names. Those that authenticate are told from others by a rule.
fn is_for_all(rule: &HostRule) -> bool {
    let is_all = |host: &NamePattern<Nqn>| matches!(host, NamePattern::Pattern(pattern) if pattern.is_all_wild());
    rule.hosts.iter().any(is_all)
}

/// Whether there are rules, and each has a map of its own.
fn has_maps_of_its_own(rules: &[Spanned<HostTable>]) -> bool {
    !rules.is_empty() && rules.iter().all(|rule| rule.get_ref().namespaces.is_some())
}

/// The namespaces of one subsystem over all of its maps: an identifier is one volume, and a volume has
/// one identifier, because hosts tell namespaces of a subsystem apart by it.
#[derive(Default)]
struct Namespaces {
    volumes: HashMap<u32, usize>,
    identifiers: HashMap<usize, u32>,
}

impl Namespaces {
    fn take(&mut self, entry: &NamespaceMapEntry, names: &VolumeNames) -> Result<(), ProblemKind> {
        let volume = names.name(entry.volume).to_owned();
        let other = *self.volumes.entry(entry.nsid).or_insert(entry.volume);
        if other != entry.volume {
            return Err(ProblemKind::NsidOfTwoVolumes {
                nsid: entry.nsid,
                volume,
                other: names.name(other).to_owned(),
            });
        }
        let first = *self.identifiers.entry(entry.volume).or_insert(entry.nsid);
        if first != entry.nsid {
            return Err(ProblemKind::VolumeOfTwoNsids {
                volume,
                first,
                second: entry.nsid,
            });
        }
        Ok(())
    }
}

/// Every volume under the number of its place, from 1.
fn every_volume(volumes: &VolumeNames) -> Result<Vec<NamespaceMapEntry>, ProblemKind> {
    let namespace = |(number, volume)| NamespaceMapEntry {
        nsid: u32::from(number) + 1,
        volume,
        read_only: false,
    };
    Ok(volumes.in_order()?.map(namespace).collect())
}

/// Volumes that one host sees in two subsystems. The Linux host refuses the second, as a namespace of
/// another subsystem cannot have the same identifiers.
pub(super) fn seen_twice(subsystems: &[SubsystemConfig], volumes: &VolumeNames) -> Vec<Warning> {
    let rules = subsystems.iter().flat_map(|subsystem| &subsystem.hosts);
    let named = rules.flat_map(|rule| &rule.hosts);
    let mut known = HashSet::new();
    let mut warnings = Vec::new();
    for host in named.map(Some).chain([None]) {
        // Of each volume, the first subsystem that shows it.
        let mut shown: HashMap<usize, usize> = HashMap::new();
        for (index, subsystem) in subsystems.iter().enumerate() {
            for entry in map_of(subsystem, host).unwrap_or_default() {
                let first = *shown.entry(entry.volume).or_insert(index);
                if first != index && known.insert((entry.volume, first, index)) {
                    warnings.push(Warning::VolumeInTwoSubsystems {
                        volume: volumes.name(entry.volume).to_owned(),
                        first: subsystems[first].nqn.to_string(),
                        second: subsystem.nqn.to_string(),
                    });
                }
            }
        }
    }
    warnings
}
