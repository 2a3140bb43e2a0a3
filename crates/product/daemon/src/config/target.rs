//! Targets as they will be served: names, maps of logical units, and who gets in.

use longshore_iscsi::name::{IscsiName, NameError};
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_server::config::{AccessRule, LunConfig, Moved, RelativePorts, TargetConfig};
use longshore_wire::pattern::{Glob, NamePattern};
use toml::Spanned;

use super::access::{EarlierRules, Peers, VolumeNames};
use super::authentication::{Demand, authentication};
use super::document::{AccessTable, LunTable, TargetTable};
use super::file::ConfigFile;
use super::limits::NegotiationTable;
use super::listener::{ISCSI_PORT, parse_advertise};
use super::numbers::VOLUMES_MAX;
use super::problem::{Problem, ProblemKind};
use super::warning::Warning;

/// The target that exports every volume when the configuration names no target.
pub const DEFAULT_TARGET: &str = "iqn.2026-11.local.longshore:default";

/// The largest logical unit number.
pub const LUN_MAX: u16 = VOLUMES_MAX - 1;

/// What some initiators see and have to prove.
#[derive(Clone, Debug)]
struct Access {
    authentication: Authentication,
    /// In ascending order of LUNs.
    luns: Vec<LunConfig>,
}

/// A target for everybody, with every volume of the file and the command line in order.
pub(super) fn default_target(
    volumes: &VolumeNames,
    login: LoginConfig,
) -> Result<TargetConfig, Problem> {
    Ok(TargetConfig {
        name: IscsiName::parse(DEFAULT_TARGET).expect("the default name is well-formed"),
        alias: None,
        portal_groups: Vec::new(),
        login,
        authentication: Authentication::none(),
        default_luns: Some(every_volume(volumes).map_err(Problem::general)?),
        access: Vec::new(),
        moved_to: None,
        relative_ports: RelativePorts::Automatic,
    })
}

/// What becomes of a map of a volume that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownVolumes {
    /// It is a mistake.
    #[default]
    Refused,
    /// It is left out, with a warning: an object that was described when the volume was there.
    LeftOut,
}

/// Turns `[[target]]` tables into targets.
pub(super) struct TargetReader<'a> {
    /// The file they stand in.
    pub file: &'a ConfigFile,
    pub volumes: &'a VolumeNames,
    /// What to do with maps of volumes that are not there.
    pub unknown: UnknownVolumes,
    /// `[iscsi]` applied to the defaults.
    pub negotiation: &'a LoginConfig,
    /// What is worth a line in the log.
    pub warnings: &'a mut Vec<Warning>,
}

impl TargetReader<'_> {
    pub(super) fn read(&mut self, table: &TargetTable) -> Result<TargetConfig, Problem> {
        let file = self.file;
        let name = parse_name(file, &table.name, IscsiName::parse)?;
        let alias = match &table.alias {
            Some(alias) if !is_alias(alias.get_ref()) => {
                return Err(file.problem(alias.span(), ProblemKind::BadAlias));
            }
            alias => alias.as_ref().map(|alias| alias.get_ref().clone()),
        };
        let demand = Demand {
            accounts: &table.accounts,
            mutual: table.mutual.as_ref(),
            algorithms: table.chap_algorithms.as_ref(),
        };
        let own = Access {
            authentication: authentication(file, &demand, self.warnings)?,
            luns: match &table.luns {
                Some(luns) => self.map(luns, &table.name)?,
                None => every_volume(self.volumes)
                    .map_err(|kind| file.problem(table.name.span(), kind))?,
            },
        };
        let login = LoginConfig {
            target_alias: alias.clone(),
            ..merge(file, self.negotiation, table.iscsi.as_ref())?
        };
        let mut target = TargetConfig {
            name,
            alias,
            portal_groups: table
                .portal_groups
                .iter()
                .map(|tag| *tag.get_ref())
                .collect(),
            login,
            // For initiators that no rule names; rules have their own. Without a map it admits nobody.
            authentication: Authentication::default(),
            default_luns: None,
            access: Vec::new(),
            moved_to: moved_to(file, table)?,
            relative_ports: match &table.relative_port {
                Some(entry) => entry.get_ref().0.clone(),
                None => RelativePorts::Automatic,
            },
        };
        for rule in &table.access {
            self.read_rule(table, rule.get_ref(), rule.span(), &own, &mut target)?;
        }
        if table.access.is_empty() {
            let_others_in(&mut target, own);
        }
        if target
            .maps()
            .any(|map| map.first().is_some_and(|first| first.lun != 0))
        {
            self.warnings.push(Warning::NoLunZero {
                target: target.name.as_str().to_owned(),
            });
        }
        Ok(target)
    }

    /// Reads one `[[target.access]]` table into `target`.
    fn read_rule(
        &mut self,
        table: &TargetTable,
        rule: &AccessTable,
        span: std::ops::Range<usize>,
        own: &Access,
        target: &mut TargetConfig,
    ) -> Result<(), Problem> {
        let file = self.file;
        if let Some(name) = &rule.name {
            let mut rules = table.access.iter().take_while(|other| other.span() != span);
            let is_twice = |other: &Spanned<AccessTable>| {
                let other = other.get_ref().name.as_ref();
                other.is_some_and(|other| other.get_ref() == name.get_ref())
            };
            let text = name.get_ref();
            if !(1..=128).contains(&text.len())
                || text.contains('/')
                || text.chars().any(char::is_control)
            {
                return Err(file.problem(name.span(), ProblemKind::BadRuleName));
            }
            if rules.any(is_twice) {
                let kind = ProblemKind::DuplicateRuleName(text.clone());
                return Err(file.problem(name.span(), kind));
            }
        } else if rule.initiators.is_empty() {
            return Err(file.problem(span, ProblemKind::RuleForNobody));
        }
        let authentication = if rule.accounts.is_none() && rule.mutual.is_none() {
            own.authentication.clone()
        } else {
            let demand = Demand {
                accounts: rule.accounts.as_deref().unwrap_or(&table.accounts),
                mutual: rule.mutual.as_ref().or(table.mutual.as_ref()),
                algorithms: table.chap_algorithms.as_ref(),
            };
            authentication(file, &demand, self.warnings)?
        };
        let mut luns = match &rule.luns {
            Some(luns) => self.map(luns, &table.name)?,
            None => own.luns.clone(),
        };
        for entry in &mut luns {
            entry.read_only |= rule.read_only;
        }
        let access = Access {
            authentication,
            luns,
        };

        let earlier = EarlierRules {
            named: target
                .access
                .iter()
                .flat_map(|rule| &rule.initiators)
                .collect(),
            others: target.default_luns.is_some(),
        };
        let peers = Peers::read(
            file,
            &rule.initiators,
            // Names of initiators are taken as peers send them: some in daily use break the letter
            // of the rules, and those machines want access too.
            |name| match Glob::is_pattern(name.get_ref()) {
                true => parse_name(file, name, IscsiName::pattern).map(NamePattern::Pattern),
                false => parse_name(file, name, IscsiName::from_peer).map(NamePattern::Name),
            },
            &earlier,
            ProblemKind::InitiatorInTwoRules,
        )?;
        if peers.others {
            let_others_in(target, access.clone());
        }
        if !peers.named.is_empty() {
            target.access.push(AccessRule {
                initiators: peers.named,
                authentication: Some(access.authentication),
                luns: access.luns,
            });
        }
        Ok(())
    }

    /// Reads a map of logical units.
    fn map(
        &mut self,
        luns: &[Spanned<LunTable>],
        target: &Spanned<String>,
    ) -> Result<Vec<LunConfig>, Problem> {
        let mut map: Vec<LunConfig> = Vec::with_capacity(luns.len());
        for entry in luns {
            let volume = &entry.get_ref().volume;
            if self.unknown == UnknownVolumes::LeftOut && !self.volumes.contains(volume) {
                self.warnings.push(Warning::LostVolume {
                    object: format!("target {}", target.get_ref()),
                    volume: volume.clone(),
                });
                continue;
            }
            let lun = self
                .lun(entry.get_ref(), &map)
                .map_err(|kind| self.file.problem(entry.span(), kind))?;
            map.push(lun);
        }
        map.sort_unstable_by_key(|entry| entry.lun);
        Ok(map)
    }

    /// Reads one entry of a map, of which `map` has been read before.
    fn lun(&self, entry: &LunTable, map: &[LunConfig]) -> Result<LunConfig, ProblemKind> {
        let lun = u16::try_from(entry.lun)
            .ok()
            .filter(|lun| *lun <= LUN_MAX)
            .ok_or(ProblemKind::LunOutOfRange(entry.lun))?;
        let volume = self.volumes.find(&entry.volume)?;
        if map.iter().any(|other| other.lun == lun) {
            return Err(ProblemKind::DuplicateLun(lun));
        }
        if let Some(other) = map.iter().find(|other| other.volume == volume) {
            return Err(ProblemKind::VolumeMappedTwice {
                volume: entry.volume.clone(),
                first: other.lun,
                second: lun,
            });
        }
        Ok(LunConfig {
            lun,
            volume,
            read_only: entry.read_only,
        })
    }
}

/// Initiators that no rule names get this.
fn let_others_in(target: &mut TargetConfig, access: Access) {
    target.authentication = access.authentication;
    target.default_luns = Some(access.luns);
}

/// A table of negotiated values applied to those it inherits.
pub(super) fn merge(
    file: &ConfigFile,
    inherited: &LoginConfig,
    table: Option<&Spanned<NegotiationTable>>,
) -> Result<LoginConfig, Problem> {
    let mut values = inherited.clone();
    let Some(table) = table else {
        return Ok(values);
    };
    table.get_ref().apply(&mut values);
    if values.first_burst_length > values.max_burst_length {
        let kind = ProblemKind::FirstBurstTooLong {
            first: values.first_burst_length,
            max: values.max_burst_length,
        };
        return Err(file.problem(table.span(), kind));
    }
    Ok(values)
}

/// Reads `moved-to` and `moved-permanently`.
fn moved_to(file: &ConfigFile, table: &TargetTable) -> Result<Option<Moved>, Problem> {
    let Some(address) = &table.moved_to else {
        return match &table.moved_permanently {
            Some(yes) if *yes.get_ref() => Err(file.problem(yes.span(), ProblemKind::MovedNowhere)),
            _ => Ok(None),
        };
    };
    let portal = parse_advertise(address.get_ref()).map_err(|_| {
        let kind = ProblemKind::BadMovedTo(address.get_ref().clone());
        file.problem(address.span(), kind)
    })?;
    let permanent = table.moved_permanently.as_ref();
    Ok(Some(Moved {
        address: portal.or_port(ISCSI_PORT),
        permanent: permanent.is_some_and(|yes| *yes.get_ref()),
    }))
}

/// Every volume under the number of its place.
fn every_volume(volumes: &VolumeNames) -> Result<Vec<LunConfig>, ProblemKind> {
    let lun = |(lun, volume)| LunConfig {
        lun,
        volume,
        read_only: false,
    };
    Ok(volumes.in_order()?.map(lun).collect())
}

/// Reads an iSCSI name, or a pattern of them.
fn parse_name<N>(
    file: &ConfigFile,
    name: &Spanned<String>,
    parse: impl Fn(&str) -> Result<N, NameError>,
) -> Result<N, Problem> {
    parse(name.get_ref()).map_err(|reason| {
        let kind = ProblemKind::BadName {
            name: name.get_ref().clone(),
            reason,
        };
        file.problem(name.span(), kind)
    })
}

/// Whether a login can carry it as TargetAlias: a text value of at most 255 bytes (RFC 7143 §6.1).
fn is_alias(text: &str) -> bool {
    (1..=255).contains(&text.len()) && !text.chars().any(char::is_control)
}
