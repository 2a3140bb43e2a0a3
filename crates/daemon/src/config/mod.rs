//! What to serve, where, to whom and within which limits: the command line and the file put together.
//!
//! ```text
//!  --volume, --iscsi, … ──► Arguments ─┐
//!                                      ├─► Config (checked) ──► serve
//!  --config FILE ──► ConfigFile ───────┘
//! ```
//!
//! Values from the command line win over those of the file, except that volumes add up: those of
//! the file come first. Relative paths in the file start at the directory of the file.

pub mod engine;
pub mod file;
pub mod limits;
pub mod listener;
pub mod log;
pub mod problem;
pub mod size;
pub mod suggest;
pub mod target;
pub mod volume;
pub mod warning;

mod authentication;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use longshore_iscsi::target::directory::Authentication;
use longshore_volume::open::VolumeSpec;

use authentication::Demand;
use engine::{CoreList, EngineConfig, EngineKind, TransmitPolicy};
use file::ConfigFile;
use limits::{Limits, Negotiation};
use listener::{DEFAULT_LISTENER, ListenerConfig};
use log::{LogConfig, LogFilter, LogFormat};
use problem::{Location, Problem, ProblemKind};
use target::{TargetConfig, TargetReader};
use volume::VolumeArgument;
use warning::Warning;

/// What the command line says; `None` and empty are "not given".
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// `--volume`
    pub volumes: Vec<VolumeArgument>,
    /// `--iscsi`
    pub iscsi: Vec<ListenerConfig>,
    /// `--engine`
    pub engine: Option<EngineKind>,
    /// `--cores`
    pub cores: Option<CoreList>,
    /// `--transmit`
    pub transmit: Option<TransmitPolicy>,
    /// `--log-format`
    pub log_format: Option<LogFormat>,
    /// `--log-level`
    pub log_filter: Option<LogFilter>,
    /// `--state-dir`
    pub state_dir: Option<PathBuf>,
}

/// Everything the server needs to know, checked as far as that goes without touching the world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Volumes by index; their names are distinct, and there is at least one.
    pub volumes: Vec<VolumeSource>,
    /// Targets; their names are distinct, and there is at least one.
    pub targets: Vec<TargetConfig>,
    /// What discovery sessions must prove.
    pub discovery: Authentication,
    /// What is offered in negotiations where a target says nothing else.
    pub negotiation: Negotiation,
    /// Where to listen; at least one.
    pub listeners: Vec<ListenerConfig>,
    /// Nobody said where to listen, so sockets from the service manager replace the default.
    pub listeners_by_default: bool,
    /// Targets without access control may be reached from other machines.
    pub allow_open: bool,
    /// How the event loops run.
    pub engine: EngineConfig,
    /// Bounds on what peers can make grow.
    pub limits: Limits,
    /// How the log looks.
    pub log: LogConfig,
    /// Where to keep what must survive a restart, when said.
    pub state_dir: Option<PathBuf>,
    /// What is worth a line in the log.
    pub warnings: Vec<Warning>,
}

/// A volume and where it was asked for.
#[derive(Clone, Debug)]
pub struct VolumeSource {
    /// How to open it.
    pub spec: VolumeSpec,
    /// Its place in the file, when it stands there.
    pub location: Option<Location>,
}

impl Config {
    /// Puts the file and the command line together.
    pub fn assemble(file: Option<&ConfigFile>, arguments: Arguments) -> Result<Self, Problem> {
        let mut warnings = Vec::new();
        let volumes = volumes(file, arguments.volumes)?;
        let names: Vec<String> = volumes
            .iter()
            .map(|volume| volume.spec.name.clone())
            .collect();

        let mut config = Self {
            volumes,
            targets: Vec::new(),
            discovery: Authentication::none(),
            negotiation: Negotiation::default(),
            listeners: arguments.iscsi,
            listeners_by_default: false,
            allow_open: false,
            engine: EngineConfig::default(),
            limits: Limits::default(),
            log: LogConfig::default(),
            state_dir: None,
            warnings: Vec::new(),
        };
        if let Some(file) = file {
            config.take_settings(file)?;
            config.take_targets(file, &names, &mut warnings)?;
        }
        if config.targets.is_empty() {
            let negotiation = config.negotiation.clone();
            config
                .targets
                .push(TargetConfig::default_target(names.len(), negotiation)?);
        }
        if config.listeners.is_empty() {
            config.listeners.push(DEFAULT_LISTENER);
            config.listeners_by_default = true;
        }

        replace(&mut config.engine.kind, arguments.engine);
        replace(&mut config.engine.transmit, arguments.transmit);
        replace(&mut config.log.format, arguments.log_format);
        replace(&mut config.log.filter, arguments.log_filter);
        config.engine.cores = arguments.cores.or(config.engine.cores);
        config.state_dir = arguments.state_dir.or(config.state_dir);

        let mapped: HashSet<usize> = config
            .targets
            .iter()
            .flat_map(TargetConfig::maps)
            .flatten()
            .map(|l| l.volume)
            .collect();
        for (index, name) in names.into_iter().enumerate() {
            if !mapped.contains(&index) {
                warnings.push(Warning::UnmappedVolume { volume: name });
            }
        }
        config.warnings = warnings;
        config.check_listeners()?;
        Ok(config)
    }

    /// Takes the tables that stand for themselves.
    fn take_settings(&mut self, file: &ConfigFile) -> Result<(), Problem> {
        let document = &file.document;
        self.negotiation = target::merge(file, &self.negotiation, document.iscsi.as_ref())?;
        document.limits.apply(&mut self.limits);
        if self.listeners.is_empty() {
            let entries = document.listen.iscsi.iter();
            self.listeners = entries.map(|entry| entry.get_ref().0.clone()).collect();
        }
        self.allow_open = document.listen.allow_open;
        self.engine.cores = document.engine.cores.clone();
        replace(&mut self.engine.kind, document.engine.kind);
        replace(&mut self.engine.transmit, document.engine.transmit);
        replace(&mut self.log.format, document.log.format);
        replace(&mut self.log.filter, document.log.level.clone());
        self.state_dir = document.state_dir.as_ref().map(|path| file.resolve(path));
        Ok(())
    }

    /// Takes `[[target]]` and `[discovery]`.
    fn take_targets(
        &mut self,
        file: &ConfigFile,
        volumes: &[String],
        warnings: &mut Vec<Warning>,
    ) -> Result<(), Problem> {
        if let Some(table) = &file.document.discovery {
            let demand = Demand {
                accounts: &table.accounts,
                mutual: table.mutual.as_ref(),
                algorithms: table.chap_algorithms.as_ref(),
            };
            self.discovery = authentication::authentication(file, &demand, warnings)?;
        }
        let mut reader = TargetReader {
            file,
            volumes,
            negotiation: &self.negotiation,
            warnings,
        };
        for table in &file.document.target {
            let target = reader.read(table)?;
            if self.targets.iter().any(|other| other.name == target.name) {
                let kind = ProblemKind::DuplicateTarget(target.name.as_str().to_owned());
                return Err(file.problem(table.name.span(), kind));
            }
            self.targets.push(target);
        }
        Ok(())
    }

    /// No two listeners on one address; port 0 is always another one.
    fn check_listeners(&self) -> Result<(), Problem> {
        let mut seen = HashSet::new();
        for listener in &self.listeners {
            if listener.address.port() != 0 && !seen.insert(listener.address) {
                let kind = ProblemKind::DuplicateListener(listener.address.to_string());
                return Err(Problem::general(kind));
            }
        }
        Ok(())
    }

    /// Checks targets against the portals that will really be used: every portal group named
    /// exists, and nobody from outside reaches a target without access control unasked.
    pub fn check_portals(&self, portals: &[(SocketAddr, u16)]) -> Result<Vec<Warning>, Problem> {
        let mut warnings = Vec::new();
        for target in &self.targets {
            for tag in &target.portal_groups {
                if !portals.iter().any(|(_, used)| used == tag) {
                    return Err(unknown_portal_group(target, *tag, portals));
                }
            }
            let reaches =
                |tag: u16| target.portal_groups.is_empty() || target.portal_groups.contains(&tag);
            let outside = portals
                .iter()
                .find(|(address, tag)| reaches(*tag) && !address.ip().to_canonical().is_loopback());
            let Some((address, _)) = outside.filter(|_| target.is_open()) else {
                continue;
            };
            let (listener, target) = (address.to_string(), target.name.as_str().to_owned());
            if !self.allow_open {
                return Err(Problem::general(ProblemKind::Open { listener, target }));
            }
            warnings.push(Warning::Open { listener, target });
        }
        Ok(warnings)
    }
}

/// A target names a portal group that no portal is in.
fn unknown_portal_group(target: &TargetConfig, tag: u16, portals: &[(SocketAddr, u16)]) -> Problem {
    let mut used: Vec<u16> = portals.iter().map(|(_, tag)| *tag).collect();
    used.sort_unstable();
    used.dedup();
    let used: Vec<String> = used.iter().map(u16::to_string).collect();
    Problem::general(ProblemKind::UnknownPortalGroup {
        target: target.name.as_str().to_owned(),
        tag,
        used: used.join(", "),
    })
}

/// The volumes of the file, then those of the command line.
fn volumes(
    file: Option<&ConfigFile>,
    arguments: Vec<VolumeArgument>,
) -> Result<Vec<VolumeSource>, Problem> {
    let mut volumes: Vec<VolumeSource> = Vec::new();
    let is_taken =
        |volumes: &[VolumeSource], name: &str| volumes.iter().any(|v| v.spec.name == name);
    if let Some(file) = file {
        for table in &file.document.volume {
            let name = table.name.get_ref();
            let at = |kind| file.problem(table.name.span(), kind);
            volume::check_name(name).map_err(|error| at(error.into()))?;
            if is_taken(&volumes, name) {
                return Err(at(ProblemKind::DuplicateVolume(name.clone())));
            }
            let mut settings = table.settings();
            settings.path = settings.path.map(|path| file.resolve(&path));
            let spec = settings
                .specification(name)
                .ok_or_else(|| at(ProblemKind::NoBackend(name.clone())))?;
            let location = Location::new(&file.path, &file.text, table.name.span());
            volumes.push(VolumeSource {
                spec,
                location: Some(location),
            });
        }
    }
    for VolumeArgument { name, settings } in arguments {
        if is_taken(&volumes, &name) {
            return Err(Problem::general(ProblemKind::DuplicateVolume(name)));
        }
        let spec = settings
            .specification(&name)
            .ok_or_else(|| Problem::general(ProblemKind::NoBackend(name)))?;
        volumes.push(VolumeSource {
            spec,
            location: None,
        });
    }
    if volumes.is_empty() {
        return Err(Problem::general(ProblemKind::NoVolume));
    }
    Ok(volumes)
}

/// Replaces a value that was given.
fn replace<T>(slot: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *slot = value;
    }
}

#[cfg(test)]
mod tests;
