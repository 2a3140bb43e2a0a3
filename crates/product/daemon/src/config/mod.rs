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
pub mod document;
pub mod engine;
pub mod file;
pub mod limits;
pub mod listener;
pub mod log;
pub mod masked;
mod numbers;
pub mod nvme_listener;
pub mod pool;
pub mod pools;
pub mod problem;
pub mod reach;
pub mod reactor;
pub mod remote;
pub mod schema;
pub mod size;
pub mod slow;
pub mod subsystem;
pub mod suggest;
pub mod target;
pub mod throttle;
pub mod transmit;
pub mod transmit_sources;
pub mod volume;
pub mod warning;
pub mod words;

mod access;
mod authentication;
mod dhchap;
pub(crate) mod secret_file;
mod syntax;
mod tls;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_api::object::Owner;
use longshore_initiator::url::Url;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_reactor::engine::EngineChoice;
use longshore_remote::RemoteSpec;
use longshore_sandbox::Mode as Sandbox;
use longshore_server::config::{PeerLimits, SubsystemConfig, TargetConfig};
use longshore_volume::{Naa, NamespaceName, VolumeSpec};
use uuid::Uuid;

use access::VolumeNames;
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
use pool::PoolConfig;
use problem::{Location, Problem, ProblemKind};
use reactor::ReactorSettings;
use subsystem::{DEFAULT_SUBSYSTEM, SubsystemReader};
use target::{DEFAULT_TARGET, TargetReader, UnknownVolumes};
use transmit::TransmitKeys;
use volume::{VolumeArgument, VolumeSettings};
use warning::Warning;

/// What the command line says; `None` and empty are "not given".
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    pub volumes: Vec<VolumeArgument>,
    pub iscsi: Vec<ListenerConfig>,
    pub nvme: Vec<NvmeListenerConfig>,
    pub nvme_discovery: Vec<DiscoveryArgument>,
    pub api: Option<ApiAddress>,
    pub socket: Option<ApiSocket>,
    /// The folder of `--scst-tree`, for SCST's trees.
    pub scst_tree: Option<PathBuf>,
    pub engine: Option<EngineChoice>,
    pub cores: Option<CoreList>,
    /// `--transmit`, `--send` and `--nagle-…`
    pub transmit: TransmitKeys,
    pub splice: Option<ByReference>,
    pub registered: Option<RegisteredBuffers>,
    /// Values of `--spin` and related options.
    pub reactor: ReactorSettings,
    pub log_format: Option<LogFormat>,
    pub log_filter: Option<LogFilter>,
    pub allow_open: bool,
    pub sample: Option<u32>,
    pub statistics: Option<PathBuf>,
    pub state_dir: Option<PathBuf>,
    pub sandbox: Option<Sandbox>,
    pub sandbox_paths: Vec<PathBuf>,
    pub sandbox_ports: Vec<u16>,
    /// Volumes can come later, so that there may be none at start.
    pub is_managed: bool,
}

/// Notes whose ports have the identifiers that `target` is given.
fn take_relative_ports(
    owners: &mut HashMap<u16, String>,
    target: &TargetConfig,
) -> Result<(), ProblemKind> {
    for identifier in target.relative_ports.identifiers() {
        let name = target.name.as_str().to_owned();
        if let Some(other) = owners.insert(identifier, name) {
            return Err(ProblemKind::DuplicateRelativePort { identifier, other });
        }
    }
    Ok(())
}

/// Everything the server needs to know, checked as far as that goes without touching the world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Volumes by index, those of the file first, then those of the command line, then those of the API; their names are
    /// distinct.
    pub volumes: Vec<VolumeSource>,
    /// Pools that volumes can name; their names are distinct.
    pub pools: Vec<PoolConfig>,
    /// Targets that are enabled; their names are distinct.
    pub targets: Vec<TargetConfig>,
    /// Names of all targets.
    target_names: HashSet<String>,
    /// Relative target ports that are given, with the names of their targets.
    relative_ports: HashMap<u16, String>,
    /// NVMe subsystems that are enabled; their names are distinct.
    pub subsystems: Vec<SubsystemConfig>,
    /// Names of all subsystems.
    subsystem_names: HashSet<String>,
    /// Which of both the file names itself.
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
    pub api: ApiConfig,
    /// How the event loops run.
    pub engine: EngineConfig,
    /// Bounds on what peers can make grow, but for the payload memory.
    pub limits: PeerLimits,
    /// Bytes of payload memory, all event loops together. `None`: as much as [`memory`](crate::memory) finds room for.
    pub memory_bytes: Option<u64>,
    /// Bytes of memory for the maps of each pool. `None`: what [`memory`](crate::memory) decides.
    pub map_bytes: Option<u64>,
    /// How the log looks.
    pub log: LogConfig,
    /// Where to keep what must survive a restart, when said.
    pub state_dir: Option<PathBuf>,
    pub sandbox: SandboxConfig,
    /// What is worth a line in the log.
    pub warnings: Vec<Warning>,
}

/// What is taken from the process after its start: the keys `sandbox`, `sandbox-paths`, `sandbox-ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    pub mode: Sandbox,
    /// Files and folders of volumes that may come later.
    pub paths: Vec<PathBuf>,
    /// Ports of listeners and of other servers that may come later.
    pub ports: Vec<u16>,
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
    pub owner: Owner,
    /// Whether it is served.
    pub enabled: bool,
}

/// What a configuration is put together from.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub file: Option<&'a ConfigFile>,
    pub arguments: &'a Arguments,
    /// Objects of the API, each written as a file of its own.
    pub objects: &'a [Arc<ConfigFile>],
    /// What becomes of their maps of volumes that are not there.
    pub unknown: UnknownVolumes,
}

impl Config {
    /// Puts the file and the command line together.
    ///
    /// # Errors
    /// The first problem.
    pub fn assemble(file: Option<&ConfigFile>, arguments: Arguments) -> Result<Self, Problem> {
        let parts = Parts {
            file,
            arguments: &arguments,
            objects: &[],
            unknown: UnknownVolumes::Refused,
        };
        let config = Self::assemble_all(parts).map_err(|problems| {
            let first = problems.into_iter().next();
            first.expect("a configuration is refused for a reason")
        })?;
        config.check_volumes()?;
        Ok(config)
    }

    /// Puts the file, the command line and the objects of the API together. There may be no volume.
    ///
    /// # Errors
    /// All problems: one for each object that has any.
    pub fn assemble_all(parts: Parts<'_>) -> Result<Self, Vec<Problem>> {
        let Parts {
            file, arguments, ..
        } = parts;
        let mut problems = Problems::default();
        let mut warnings = Vec::new();
        let pools = problems.pools(file);
        let (volumes, names) = volumes(parts, &pools, &mut problems);

        let mut config = Self {
            volumes,
            pools,
            targets: Vec::new(),
            target_names: HashSet::new(),
            relative_ports: HashMap::new(),
            subsystems: Vec::new(),
            subsystem_names: HashSet::new(),
            named: Named::default(),
            discovery: Authentication::none(),
            negotiation: LoginConfig::default(),
            listeners: arguments.iscsi.clone(),
            nvme_listeners: arguments.nvme.clone(),
            nvme_discovery: DiscoveryListeners::default(),
            listeners_by_default: false,
            allow_open: false,
            api: ApiConfig::default(),
            engine: EngineConfig::default(),
            limits: PeerLimits::default(),
            memory_bytes: None,
            map_bytes: None,
            log: LogConfig::default(),
            state_dir: None,
            sandbox: SandboxConfig::default(),
            warnings: Vec::new(),
        };
        if let Some(file) = file {
            problems.note(config.take_settings(file));
        }
        config.named = Named {
            targets: file.is_some_and(|file| !file.document.target.is_empty()),
            subsystems: file.is_some_and(|file| !file.document.subsystem.is_empty()),
        };
        let objects = parts.objects.iter().map(|object| &**object);
        for (unknown, file) in file
            .map(|file| (UnknownVolumes::Refused, file))
            .into_iter()
            .chain(objects.map(|object| (parts.unknown, object)))
        {
            problems.note(config.take_discovery(file, &mut warnings));
            config.take_targets(file, &names, unknown, &mut warnings, &mut problems);
            config.take_subsystems(file, &names, unknown, &mut warnings, &mut problems);
        }
        let discovery = DiscoveryListeners::from_arguments(arguments.nvme_discovery.clone())
            .map_err(|_| Problem::general(ProblemKind::DiscoveryContradiction));
        if let Some(discovery) = problems.note(discovery) {
            replace(&mut config.nvme_discovery, discovery);
        }
        config.api.scst_tree = arguments.scst_tree.clone().or(config.api.scst_tree);
        problems.note(config.fill_in(parts, &names));

        config.api.address = arguments.api.or(config.api.address);
        replace(&mut config.api.socket, arguments.socket.clone());
        problems.note(config.check_api());
        replace(&mut config.engine.kind, arguments.engine);
        let transmit = transmit_sources::settle(file, parts.objects, &arguments.transmit);
        if let Some(transmit) = problems.note(transmit) {
            config.engine.transmit = transmit;
        }
        replace(&mut config.engine.splice, arguments.splice);
        replace(&mut config.engine.registered, arguments.registered);
        config.engine.reactor.replace(&arguments.reactor);
        replace(&mut config.log.format, arguments.log_format);
        replace(&mut config.log.filter, arguments.log_filter.clone());
        config.engine.cores = arguments.cores.clone().or(config.engine.cores);
        config.engine.sample = arguments.sample.or(config.engine.sample);
        config.log.statistics = arguments.statistics.clone().or(config.log.statistics);
        config.state_dir = arguments.state_dir.clone().or(config.state_dir);
        replace(&mut config.sandbox.mode, arguments.sandbox);
        let SandboxConfig { paths, ports, .. } = &mut config.sandbox;
        paths.extend_from_slice(&arguments.sandbox_paths);
        ports.extend_from_slice(&arguments.sandbox_ports);
        config.allow_open |= arguments.allow_open;
        problems.note(config.check_listeners());
        if !problems.0.is_empty() {
            return Err(problems.0);
        }

        let mapped = config.mapped();
        for (index, source) in config.volumes.iter().enumerate() {
            if !mapped.contains(&index) && source.enabled {
                let volume = source.spec.name.clone();
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
        Ok(config)
    }

    /// The volumes that are served.
    pub fn enabled_volumes(&self) -> impl Iterator<Item = &VolumeSource> {
        self.volumes.iter().filter(|source| source.enabled)
    }

    /// Checks that there is something to serve.
    ///
    /// # Errors
    /// There is no volume.
    pub fn check_volumes(&self) -> Result<(), Problem> {
        match self.volumes.is_empty() {
            true => Err(Problem::general(ProblemKind::NoVolume)),
            false => Ok(()),
        }
    }

    /// Adds what nobody has said.
    fn fill_in(&mut self, parts: Parts<'_>, names: &VolumeNames) -> Result<(), Problem> {
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
        // An object of the API of that name takes the place of the default one, also when it is disabled.
        let mut tables = parts.objects.iter().flat_map(|file| &file.document.target);
        if !self.named.targets && !tables.any(|table| table.name.get_ref() == DEFAULT_TARGET) {
            let negotiation = self.negotiation.clone();
            let target = target::default_target(names, negotiation)?;
            // Configurations of SCST give the number of its port, 1, to a target of theirs, and there is nothing to serve.
            let has_units = target.maps().any(|map| !map.is_empty());
            if has_units || self.api.scst_tree.is_none() {
                self.targets.insert(0, target);
            }
        }
        let mut tables = parts
            .objects
            .iter()
            .flat_map(|file| &file.document.subsystem);
        if !self.named.subsystems && !tables.any(|table| table.nqn.get_ref() == DEFAULT_SUBSYSTEM) {
            let subsystem = subsystem::default_subsystem(names)?;
            self.subsystems.insert(0, subsystem);
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
        self.map_bytes = document.limits.map_bytes();
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
        replace(&mut self.sandbox.mode, document.sandbox);
        let paths = document.sandbox_paths.iter();
        self.sandbox.paths = paths.map(|path| file.resolve(path)).collect();
        self.sandbox.ports.clone_from(&document.sandbox_ports);
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
        let tree = document.listen.scst_tree.as_ref();
        self.api.scst_tree = tree.map(|path| file.resolve(path));
        let Some(table) = &document.api else {
            return Ok(());
        };
        let (span, table) = (table.span(), table.get_ref());
        if table.tls_certificate.is_some() != table.tls_key.is_some() {
            return Err(file.problem(span, ProblemKind::HalfOfTls));
        }
        self.api.table = table.clone();
        let table = &mut self.api.table;
        for path in [&mut table.tls_certificate, &mut table.tls_key]
            .into_iter()
            .flatten()
        {
            *path = file.resolve(path);
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

    fn take_discovery(
        &mut self,
        file: &ConfigFile,
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
        Ok(())
    }

    /// Takes `[[target]]`. Those that are disabled are checked, and not served.
    fn take_targets(
        &mut self,
        file: &ConfigFile,
        volumes: &VolumeNames,
        unknown: UnknownVolumes,
        warnings: &mut Vec<Warning>,
        problems: &mut Problems,
    ) {
        let mut reader = TargetReader {
            file,
            volumes,
            unknown,
            negotiation: &self.negotiation,
            warnings,
        };
        for table in &file.document.target {
            let Some(target) = problems.note(reader.read(table)) else {
                continue;
            };
            if !self.target_names.insert(target.name.as_str().to_owned()) {
                let kind = ProblemKind::DuplicateTarget(target.name.as_str().to_owned());
                problems.add(file.problem(table.name.span(), kind));
                continue;
            }
            let taken = take_relative_ports(&mut self.relative_ports, &target);
            if let (Err(kind), Some(entry)) = (taken, &table.relative_port) {
                problems.add(file.problem(entry.span(), kind));
            } else if table.enabled.unwrap_or(true) {
                self.targets.push(target);
            }
        }
    }

    /// Takes `[[subsystem]]`. Those that are disabled are checked, and not served.
    fn take_subsystems(
        &mut self,
        file: &ConfigFile,
        volumes: &VolumeNames,
        unknown: UnknownVolumes,
        warnings: &mut Vec<Warning>,
        problems: &mut Problems,
    ) {
        let mut reader = SubsystemReader {
            file,
            volumes,
            unknown,
            warnings,
        };
        for table in &file.document.subsystem {
            let Some(subsystem) = problems.note(reader.read(table)) else {
                continue;
            };
            if !self.subsystem_names.insert(subsystem.nqn.to_string()) {
                let kind = ProblemKind::DuplicateSubsystem(subsystem.nqn.to_string());
                problems.add(file.problem(table.nqn.span(), kind));
            } else if table.enabled.unwrap_or(true) {
                self.subsystems.push(subsystem);
            }
        }
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

/// Problems that were found so far.
#[derive(Debug, Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// The pools of a file, those that are in order.
    fn pools(&mut self, file: Option<&ConfigFile>) -> Vec<PoolConfig> {
        let (pools, found) = file.map(pools::read).unwrap_or_default();
        self.0.extend(found);
        pools
    }

    /// What there is if there is no problem with it.
    fn note<T>(&mut self, outcome: Result<T, Problem>) -> Option<T> {
        outcome.map_err(|problem| self.add(problem)).ok()
    }
}

/// The volumes of the file, then those of the command line, then those of the API.
fn volumes(
    parts: Parts<'_>,
    pools: &[PoolConfig],
    problems: &mut Problems,
) -> (Vec<VolumeSource>, VolumeNames) {
    let mut volumes: Vec<VolumeSource> = Vec::new();
    let mut names = VolumeNames::default();
    if let Some(file) = parts.file {
        read_volumes(file, Owner::File, pools, &mut volumes, &mut names, problems);
    }
    for VolumeArgument { name, settings } in &parts.arguments.volumes {
        let general = |kind| Problem::general(kind);
        if names.contains(name) {
            problems.add(general(ProblemKind::DuplicateVolume(name.clone())));
        }
        names.add(name);
        let mut settings = settings.clone();
        let found = find_pool(&mut settings, pools, Path::to_owned);
        problems.note(found.map_err(general));
        let spec = settings.specification(name);
        let spec = spec.ok_or_else(|| general(ProblemKind::NoBackend(name.clone())));
        if let Some(spec) = problems.note(spec) {
            volumes.push(VolumeSource {
                spec,
                location: None,
                owner: Owner::CommandLine,
                enabled: true,
            });
        }
    }
    names.number_these();
    for file in parts.objects {
        read_volumes(file, Owner::Api, pools, &mut volumes, &mut names, problems);
    }
    check_worldwide_names(&volumes, problems);
    (volumes, names)
}

/// Takes the `[[volume]]` tables, in their order in the file.
fn read_volumes(
    file: &ConfigFile,
    owner: Owner,
    pools: &[PoolConfig],
    volumes: &mut Vec<VolumeSource>,
    names: &mut VolumeNames,
    problems: &mut Problems,
) {
    for table in &file.document.volume {
        let name = table.name.get_ref();
        let at = |kind| file.problem(table.name.span(), kind);
        let checked = volume::check_name(name).map_err(|error| at(error.into()));
        problems.note(checked);
        if names.contains(name) {
            problems.add(at(ProblemKind::DuplicateVolume(name.clone())));
        }
        names.add(name);
        let mut settings = table.settings();
        settings.path = settings.path.map(|path| file.resolve(&path));
        let remote = &mut settings.remote;
        for path in [
            &mut remote.secret_file,
            &mut remote.dhchap_secret_file,
            &mut remote.dhchap_ctrl_secret_file,
            &mut remote.tls_key_file,
        ] {
            *path = path.take().map(|path| secret_file::place(file, &path));
        }
        let found = find_pool(&mut settings, pools, |path| file.resolve(path));
        problems.note(found.map_err(at));
        let limits = settings.limits.check();
        problems.note(limits.map_err(|error| at(ProblemKind::Setting(error.into()))));
        let slow = settings.slow.check();
        problems.note(slow.map_err(|error| at(ProblemKind::Setting(error.into()))));
        let spec = settings.specification(name);
        let spec = spec.ok_or_else(|| at(ProblemKind::NoBackend(name.clone())));
        if let Some(spec) = problems.note(spec) {
            volumes.push(VolumeSource {
                spec,
                location: Some(file.location(table.name.span())),
                owner,
                enabled: table.enabled.unwrap_or(true),
            });
        }
    }
}

/// Puts drives in the place of the name of a pool.
fn find_pool(
    settings: &mut VolumeSettings,
    pools: &[PoolConfig],
    resolve: impl Fn(&Path) -> PathBuf,
) -> Result<(), ProblemKind> {
    let found = settings.pool.find(pools, resolve);
    let is_direct = found.map_err(|error| ProblemKind::Setting(error.into()))?;
    if is_direct {
        settings.direct = Some(true);
    }
    Ok(())
}

/// Hosts take two disks of one worldwide name for two paths to one disk, and mix their data up. Names that are
/// derived from path and volume name differ by themselves.
fn check_worldwide_names(volumes: &[VolumeSource], problems: &mut Problems) {
    let mut known: HashMap<String, &str> = HashMap::new();
    for volume in volumes.iter().filter(|volume| volume.enabled) {
        let spec = &volume.spec;
        let names = &spec.names;
        let of_uuid = |uuid: Uuid| Naa::locally_administered(uuid.as_bytes());
        let naa = names.naa.or(spec.uuid.map(of_uuid));
        let uuid = spec.uuid.map(Uuid::into_bytes);
        let follows = names.naa.is_some_and(|naa| naa.nguid().is_some());
        let is_known = names.nguid.is_some() || follows || uuid.is_some();
        let nguid = names.nguid(&uuid.unwrap_or_default());
        let own = [
            naa.map(|naa| format!("naa.{naa}")),
            nguid
                .filter(|_| is_known)
                .map(|nguid| format!("eui.{}", NamespaceName(nguid))),
            names
                .eui64()
                .map(|eui64| format!("eui.{}", NamespaceName(eui64))),
        ];
        for name in own.into_iter().flatten() {
            if let Some(other) = known.insert(name.clone(), &spec.name) {
                problems.add(Problem {
                    location: volume.location.clone().map(Box::new),
                    kind: ProblemKind::WorldwideNameTwice {
                        volume: spec.name.clone(),
                        other: other.to_owned(),
                        name,
                    },
                });
                break;
            }
        }
    }
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
