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

/// Reads a type from a TOML string by its `FromStr`.
macro_rules! deserialize_from_str {
    ($($name:ty),* $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    )*};
}

pub mod api;
pub mod check;
pub mod copies;
pub mod engine;
pub mod file;
pub mod limits;
pub mod listener;
pub mod log;
pub mod masked;
pub mod nvme_listener;
pub mod problem;
pub mod reach;
pub mod reactor;
pub mod remote;
pub mod schema;
pub mod size;
pub mod subsystem;
pub mod suggest;
pub mod target;
pub mod transmit;
pub mod volume;
pub mod warning;
pub mod words;

mod access;
mod authentication;
mod syntax;

use std::collections::HashSet;
use std::path::PathBuf;

use longshore_initiator::url::Url;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_reactor::engine::EngineChoice;
use longshore_remote::RemoteSpec;
use longshore_server::config::{PeerLimits, SubsystemConfig, TargetConfig};
use longshore_volume::VolumeSpec;

use api::{ApiAddress, ApiConfig, ApiSocket};
use authentication::Demand;
use copies::{ByReference, RegisteredBuffers};
use engine::{CoreList, EngineConfig};
use file::ConfigFile;
use limits::IN_CAPSULE_UNIT;
use listener::{DEFAULT_LISTENER, ListenerConfig};
use log::{LogConfig, LogFilter, LogFormat};
use nvme_listener::{
    DEFAULT_NVME_LISTENER, DiscoveryArgument, DiscoveryListeners, NvmeListenerConfig,
};
use problem::{Location, Problem, ProblemKind};
use reactor::ReactorSettings;
use subsystem::SubsystemReader;
use target::TargetReader;
use transmit::{TransmitKeys, TransmitSources};
use volume::VolumeArgument;
use warning::Warning;

/// What the command line says; `None` and empty are "not given".
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    pub volumes: Vec<VolumeArgument>,
    pub iscsi: Vec<ListenerConfig>,
    pub nvme: Vec<NvmeListenerConfig>,
    pub nvme_discovery: Vec<DiscoveryArgument>,
    /// `--api`
    pub api: Option<ApiAddress>,
    /// `--socket`
    pub socket: Option<ApiSocket>,
    pub engine: Option<EngineChoice>,
    pub cores: Option<CoreList>,
    /// `--transmit`, `--send` and `--nagle-…`
    pub transmit: TransmitKeys,
    pub splice: Option<ByReference>,
    pub registered: Option<RegisteredBuffers>,
    /// `--spin` and others
    pub reactor: ReactorSettings,
    pub log_format: Option<LogFormat>,
    /// `--log-level`
    pub log_filter: Option<LogFilter>,
    pub allow_open: bool,
    pub sample: Option<u32>,
    pub statistics: Option<PathBuf>,
    pub state_dir: Option<PathBuf>,
}

/// Everything the server needs to know, checked as far as that goes without touching the world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Volumes by index; their names are distinct, and there is at least one.
    pub volumes: Vec<VolumeSource>,
    /// Targets; their names are distinct, and there is at least one.
    pub targets: Vec<TargetConfig>,
    /// NVMe subsystems; their names are distinct, and there is at least one.
    pub subsystems: Vec<SubsystemConfig>,
    /// Which of both the configuration names itself.
    pub named: Named,
    /// What discovery sessions must prove.
    pub discovery: Authentication,
    /// What is offered in negotiations where a target says nothing else.
    pub negotiation: LoginConfig,
    /// Where to listen for iSCSI.
    pub listeners: Vec<ListenerConfig>,
    /// Where to listen for NVMe/TCP; at least one if there is none for iSCSI.
    pub nvme_listeners: Vec<NvmeListenerConfig>,
    /// Where to listen for NVMe discovery beside that.
    pub nvme_discovery: DiscoveryListeners,
    /// Nobody said where to listen, so sockets from the service manager replace the default.
    pub listeners_by_default: bool,
    /// Targets and subsystems without access control may be reached from other machines.
    pub allow_open: bool,
    /// The control API.
    pub api: ApiConfig,
    /// How the event loops run.
    pub engine: EngineConfig,
    /// Where it is said when responses leave, to be read again.
    pub transmit: TransmitSources,
    /// Bounds on what peers can make grow, but for the payload memory.
    pub limits: PeerLimits,
    /// Bytes of payload memory, all event loops together. `None`: as much as [`memory`](crate::memory) finds room for.
    pub memory_bytes: Option<u64>,
    /// How the log looks.
    pub log: LogConfig,
    /// Where to keep what must survive a restart, when said.
    pub state_dir: Option<PathBuf>,
    /// What is worth a line in the log.
    pub warnings: Vec<Warning>,
}

/// What the configuration names itself; the rest is there by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// There are `[[target]]` tables.
    pub targets: bool,
    /// There are `[[subsystem]]` tables.
    pub subsystems: bool,
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
            subsystems: Vec::new(),
            named: Named::default(),
            discovery: Authentication::none(),
            negotiation: LoginConfig::default(),
            listeners: arguments.iscsi,
            nvme_listeners: arguments.nvme,
            nvme_discovery: DiscoveryListeners::default(),
            listeners_by_default: false,
            allow_open: false,
            api: ApiConfig::default(),
            engine: EngineConfig::default(),
            transmit: TransmitSources {
                file: file.map(|file| file.path.clone()),
                arguments: arguments.transmit,
            },
            limits: PeerLimits::default(),
            memory_bytes: None,
            log: LogConfig::default(),
            state_dir: None,
            warnings: Vec::new(),
        };
        if let Some(file) = file {
            config.take_settings(file)?;
            config.take_targets(file, &names, &mut warnings)?;
            config.take_subsystems(file, &names)?;
        }
        let discovery = DiscoveryListeners::from_arguments(arguments.nvme_discovery)
            .map_err(|_| Problem::general(ProblemKind::DiscoveryContradiction))?;
        replace(&mut config.nvme_discovery, discovery);
        config.fill_in()?;

        config.api.address = arguments.api.or(config.api.address);
        replace(&mut config.api.socket, arguments.socket);
        config.check_api()?;
        replace(&mut config.engine.kind, arguments.engine);
        config.engine.transmit = config.transmit.settle(file)?;
        replace(&mut config.engine.splice, arguments.splice);
        replace(&mut config.engine.registered, arguments.registered);
        config.engine.reactor.replace(&arguments.reactor);
        replace(&mut config.log.format, arguments.log_format);
        replace(&mut config.log.filter, arguments.log_filter);
        config.engine.cores = arguments.cores.or(config.engine.cores);
        config.engine.sample = arguments.sample.or(config.engine.sample);
        config.log.statistics = arguments.statistics.or(config.log.statistics);
        config.state_dir = arguments.state_dir.or(config.state_dir);
        config.allow_open |= arguments.allow_open;

        let mapped = config.mapped();
        for (index, name) in names.iter().enumerate() {
            if !mapped.contains(&index) {
                let volume = name.clone();
                warnings.push(Warning::UnmappedVolume { volume });
            }
        }
        warnings.extend(subsystem::seen_twice(&config.subsystems, &names));
        if config.engine.reactor.prefers_polling_in_vain() {
            warnings.push(Warning::PreferenceWithoutPolling);
        }
        let arguments = config.volumes.iter().filter(|it| it.location.is_none());
        warnings.extend(arguments.filter_map(|source| password_in_argument(&source.spec)));
        config.warnings = warnings;
        config.check_listeners()?;
        Ok(config)
    }

    /// Adds what nobody has said.
    fn fill_in(&mut self) -> Result<(), Problem> {
        let volumes = self.volumes.len();
        self.named = Named {
            targets: !self.targets.is_empty(),
            subsystems: !self.subsystems.is_empty(),
        };
        if self.listeners.is_empty() && self.nvme_listeners.is_empty() {
            self.listeners_by_default = true;
            // A file that has thought of one protocol alone has not thought of who may use the other.
            if self.named.targets || !self.named.subsystems {
                self.listeners.push(DEFAULT_LISTENER);
            }
            if self.named.subsystems || !self.named.targets {
                self.nvme_listeners.push(DEFAULT_NVME_LISTENER);
            }
        }
        if !self.named.targets {
            let negotiation = self.negotiation.clone();
            let target = target::default_target(volumes, negotiation)?;
            self.targets.push(target);
        }
        if !self.named.subsystems {
            let subsystem = subsystem::default_subsystem(volumes)?;
            self.subsystems.push(subsystem);
        }
        Ok(())
    }

    /// Volumes that can be reached over a protocol that is listened for.
    fn mapped(&self) -> HashSet<usize> {
        let targets = self.targets.iter().flat_map(TargetConfig::maps).flatten();
        let targets = targets.map(|entry| entry.volume);
        let subsystems = self.subsystems.iter().flat_map(SubsystemConfig::maps);
        let subsystems = subsystems.flatten().map(|entry| entry.volume);
        let has_iscsi = !self.listeners.is_empty();
        let has_nvme = !self.nvme_listeners.is_empty();
        targets
            .filter(|_| has_iscsi)
            .chain(subsystems.filter(|_| has_nvme))
            .collect()
    }

    /// Takes the tables that stand for themselves.
    fn take_settings(&mut self, file: &ConfigFile) -> Result<(), Problem> {
        let document = &file.document;
        self.negotiation = target::merge(file, &self.negotiation, document.iscsi.as_ref())?;
        document.limits.apply(&mut self.limits);
        self.memory_bytes = document.limits.memory_bytes();
        if let Some(bytes) = &document.limits.in_capsule_data
            && bytes.get_ref().0 % IN_CAPSULE_UNIT != 0
        {
            let kind = ProblemKind::InCapsuleData(bytes.get_ref().0);
            return Err(file.problem(bytes.span(), kind));
        }
        if self.listeners.is_empty() {
            let entries = document.listen.iscsi.iter();
            self.listeners = entries.map(|entry| entry.get_ref().0.clone()).collect();
        }
        if self.nvme_listeners.is_empty() {
            let entries = document.listen.nvme.iter();
            self.nvme_listeners = entries.map(|entry| entry.0.clone()).collect();
        }
        replace(
            &mut self.nvme_discovery,
            document.listen.nvme_discovery.clone(),
        );
        self.allow_open = document.listen.allow_open;
        self.take_api(file)?;
        self.engine.cores = document.engine.cores.clone();
        replace(&mut self.engine.kind, document.engine.kind);
        replace(&mut self.engine.splice, document.engine.splice);
        replace(&mut self.engine.registered, document.engine.registered);
        self.engine.sample = document.engine.sample;
        self.engine.reactor.replace(&document.engine.reactor());
        replace(&mut self.log.format, document.log.format);
        replace(&mut self.log.filter, document.log.level.clone());
        let statistics = document.log.statistics.as_ref();
        self.log.statistics = statistics.map(|path| file.resolve(path));
        self.state_dir = document.state_dir.as_ref().map(|path| file.resolve(path));
        Ok(())
    }

    /// Takes `[api]`, and what `[listen]` says of the API.
    fn take_api(&mut self, file: &ConfigFile) -> Result<(), Problem> {
        let document = &file.document;
        self.api.address = document.listen.api;
        self.api.socket = match &document.listen.socket {
            Some(ApiSocket::At(path)) => ApiSocket::At(file.resolve(path)),
            Some(other) => other.clone(),
            None => ApiSocket::Default,
        };
        let Some(table) = &document.api else {
            return Ok(());
        };
        let (span, table) = (table.span(), table.get_ref());
        if table.tls_certificate.is_some() != table.tls_key.is_some() {
            return Err(file.problem(span, ProblemKind::HalfOfTls));
        }
        self.api.table = table.clone();
        for path in [
            &mut self.api.table.tls_certificate,
            &mut self.api.table.tls_key,
        ] {
            if let Some(path) = path {
                *path = file.resolve(path);
            }
        }
        Ok(())
    }

    /// Tokens do not cross a network in the clear, unless asked for.
    fn check_api(&self) -> Result<(), Problem> {
        let Some(ApiAddress(address)) = self.api.address else {
            return Ok(());
        };
        let table = &self.api.table;
        if address.ip().is_loopback() || table.tls_certificate.is_some() || table.allow_plain {
            return Ok(());
        }
        let address = address.to_string();
        Err(Problem::general(ProblemKind::PlainApi { address }))
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

    fn take_subsystems(&mut self, file: &ConfigFile, volumes: &[String]) -> Result<(), Problem> {
        let reader = SubsystemReader { file, volumes };
        for table in &file.document.subsystem {
            let subsystem = reader.read(table)?;
            let nqn = &subsystem.nqn;
            if self.subsystems.iter().any(|other| other.nqn == *nqn) {
                let kind = ProblemKind::DuplicateSubsystem(nqn.to_string());
                return Err(file.problem(table.nqn.span(), kind));
            }
            self.subsystems.push(subsystem);
        }
        Ok(())
    }

    /// No two listeners on one address; port 0 is always another one.
    fn check_listeners(&self) -> Result<(), Problem> {
        let iscsi = self.listeners.iter().map(|listener| listener.address);
        let discovery = self.nvme_discovery.by_name();
        let nvme = self.nvme_listeners.iter().chain(discovery);
        let mut seen = HashSet::new();
        let api = self.api.address.map(|ApiAddress(address)| address);
        for address in iscsi
            .chain(nvme.map(|listener| listener.address))
            .chain(api)
        {
            if address.port() != 0 && !seen.insert(address) {
                let kind = ProblemKind::DuplicateListener(address.to_string());
                return Err(Problem::general(kind));
            }
        }
        Ok(())
    }
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
            let secret_file = &mut settings.remote.secret_file;
            *secret_file = secret_file.take().map(|path| file.resolve(&path));
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

/// Warns of a password on the command line.
fn password_in_argument(spec: &VolumeSpec) -> Option<Warning> {
    let Some(Url::Iscsi(url)) = &spec.options::<RemoteSpec>()?.url else {
        return None;
    };
    let has_password = url.password.is_some() || url.target_password.is_some();
    has_password.then(|| Warning::PasswordInArgument {
        volume: spec.name.clone(),
    })
}

/// Replaces a value that was given.
fn replace<T>(slot: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *slot = value;
    }
}

#[cfg(test)]
mod tests;
