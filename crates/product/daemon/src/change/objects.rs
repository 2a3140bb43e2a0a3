//! What is asked for: the objects of the file, of the command line and of the API, each with its owner.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_api::object::{
    DISCOVERY, Document, Keys, ObjectId, ObjectKind, Owner, SETTINGS, TRANSMIT, TRANSMIT_KEYS,
};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::tables::table_of_setting;
use longshore_iscsi::name::IscsiName;
use longshore_pool::PoolOptions;
use longshore_remote::RemoteSpec;
use longshore_volume::{InlineWrites, VolumeSpec};
use serde_json::{Value, json};

use super::keys;
use crate::config::file::ConfigFile;
use crate::config::pool::{Compression, Reserve};
use crate::config::subsystem::DEFAULT_SUBSYSTEM;
use crate::config::target::DEFAULT_TARGET;
use crate::config::transmit::{NagleThreshold, TransmitKeys};
use crate::config::{Arguments, Config};

/// An object as somebody describes it.
#[derive(Clone, Debug)]
pub struct Described {
    pub owner: Owner,
    /// File and line, for objects of the file.
    pub location: Option<String>,
    /// The keys as written, before defaults.
    pub keys: Keys,
    /// The same in one form.
    pub normal: Keys,
    /// As a file of its own, for objects of the API.
    pub source: Option<Arc<ConfigFile>>,
    /// Nobody describes it: it is there by default, and the API may describe it.
    pub is_default: bool,
}

impl Described {
    /// An object of the API with these keys.
    ///
    /// # Errors
    /// They cannot be read as a table of the file.
    pub fn of_api(id: &ObjectId, keys: Keys) -> Result<Arc<Self>, Box<Problem>> {
        let mut keys = keys;
        check_setting(id, &keys)?;
        let name = keys::list_of(id.kind).and_then(|(_, key)| keys.remove(key));
        name.map_or(Ok(()), |name| {
            if name.as_str() == Some(&*id.name) {
                return Ok(());
            }
            let title = format!("{id}: its keys name another object, {name}");
            let problem = Problem::new(ProblemCode::Invalid, title).about(id);
            Err(Box::new(problem.advise("leave the name out of the keys")))
        })?;
        keys::check_paths(id, &keys)?;
        // A map of all volumes in order would change by itself with every volume.
        let map = match id.kind {
            ObjectKind::Volume | ObjectKind::Setting => None,
            ObjectKind::Target => Some("luns"),
            ObjectKind::Subsystem => Some("namespaces"),
        };
        if let Some(map) = map {
            keys.entry(map.to_owned()).or_insert_with(|| json!([]));
        }
        let text = keys::to_text(id, &keys)?;
        let source = ConfigFile::parse(&pseudo_path(id), text).map_err(|problem| {
            let title = format!("{id}: {}", problem.kind);
            Box::new(Problem::new(ProblemCode::Invalid, title).about(id))
        })?;
        Ok(Arc::new(Self {
            owner: Owner::Api,
            location: None,
            normal: keys::normal(&keys, Path::new("/")),
            keys,
            source: Some(Arc::new(source)),
            is_default: false,
        }))
    }

    /// Whether it is to be served.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.keys.get("enabled") != Some(&Value::Bool(false))
    }
}

/// Refuses settings that cannot change while the server runs.
fn check_setting(id: &ObjectId, keys: &Keys) -> Result<(), Box<Problem>> {
    if id.kind != ObjectKind::Setting {
        return Ok(());
    }
    if !SETTINGS.contains(&&*id.name) {
        let title = format!("there is no {id} that can change while the server runs");
        let problem = Problem::new(ProblemCode::NotFound, title).about(id);
        let known = SETTINGS.join(" and ");
        return Err(Box::new(problem.advise(format!(
            "these are {known}; all others are in the configuration file"
        ))));
    }
    let mut keys = keys.keys();
    match keys.find(|key| id.name == TRANSMIT && !TRANSMIT_KEYS.contains(&&***key)) {
        Some(key) => {
            let title = format!("{id}: `{key}` is none of its keys");
            let problem = Problem::new(ProblemCode::Invalid, title).about(id);
            Err(Box::new(problem.advise(format!(
                "its keys are {}",
                TRANSMIT_KEYS.join(", ")
            ))))
        }
        None => Ok(()),
    }
}

/// The settings of a file that are objects as well.
fn settings_of(table: &toml::Table) -> Vec<(ObjectId, Keys)> {
    let mut found = Vec::new();
    for name in SETTINGS {
        let Some(toml::Value::Table(table)) = table.get(table_of_setting(name)) else {
            continue;
        };
        let mut keys = keys::table_from_toml(table.clone());
        if name == TRANSMIT {
            keys.retain(|key, _| TRANSMIT_KEYS.contains(&&**key));
        }
        if name == DISCOVERY || !keys.is_empty() {
            found.push((setting(name), keys));
        }
    }
    found
}

fn setting(name: &str) -> ObjectId {
    ObjectId {
        kind: ObjectKind::Setting,
        name: name.to_owned(),
    }
}

/// The object by the form of its name in which names are compared.
#[must_use]
pub fn normal_id(id: &ObjectId) -> ObjectId {
    let name = match id.kind {
        ObjectKind::Target => IscsiName::parse(&id.name).ok(),
        ObjectKind::Volume | ObjectKind::Subsystem | ObjectKind::Setting => None,
    };
    ObjectId {
        kind: id.kind,
        name: name.map_or_else(|| id.name.clone(), |name| name.as_str().to_owned()),
    }
}

/// The path by which problems with an object of the API are recognised.
#[must_use]
pub fn pseudo_path(id: &ObjectId) -> PathBuf {
    PathBuf::from(format!("api:{id}"))
}

#[derive(Clone, Debug, Default)]
pub struct Objects(pub BTreeMap<ObjectId, Arc<Described>>);

impl Objects {
    #[must_use]
    pub fn get(&self, id: &ObjectId) -> Option<&Described> {
        self.0.get(id).map(|object| &**object)
    }

    pub fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = (&ObjectId, &Described)> {
        let all = self.0.iter().filter(move |(id, _)| id.kind == kind);
        all.map(|(id, object)| (id, &**object))
    }

    /// Those of the API, as they are stored.
    #[must_use]
    pub fn api_document(&self) -> Document {
        self.document(Some(Owner::Api), Clone::clone)
    }

    /// Those of an owner, or all, as `show` shows their keys. What is there by default is left out.
    #[must_use]
    pub fn document(&self, owner: Option<Owner>, show: impl Fn(&Keys) -> Keys) -> Document {
        let mut document = Document::default();
        for (id, object) in &self.0 {
            if owner.is_none_or(|owner| object.owner == owner) && !object.is_default {
                let kind = document.of_kind_mut(id.kind);
                kind.insert(id.name.clone(), show(&object.keys));
            }
        }
        document
    }

    /// Whether the API has the same objects here as there.
    #[must_use]
    pub fn is_same_api(&self, other: &Self) -> bool {
        let api = |objects: &Self| {
            let all = objects.0.iter();
            let api = all.filter(|(_, object)| object.owner == Owner::Api);
            api.map(|(id, object)| (id.clone(), Arc::clone(object)))
                .collect::<Vec<_>>()
        };
        let (ours, others) = (api(self), api(other));
        ours.len() == others.len()
            && ours.iter().zip(&others).all(|(one, other)| {
                let is_same = Arc::ptr_eq(&one.1, &other.1) || one.1.keys == other.1.keys;
                one.0 == other.0 && is_same
            })
    }

    /// The objects of the API as files.
    #[must_use]
    pub fn sources(&self) -> Vec<Arc<ConfigFile>> {
        let sources = self.0.values().filter_map(|object| object.source.clone());
        sources.collect()
    }

    /// Adds what is there by default.
    pub fn add_defaults(&mut self, config: &Config) {
        let names: Vec<&str> = config.volumes.iter().map(|it| &*it.spec.name).collect();
        let mut add = |kind, name: &str, keys: Keys| {
            let id = ObjectId {
                kind,
                name: name.to_owned(),
            };
            self.0.entry(id).or_insert_with(|| {
                Arc::new(Described {
                    owner: Owner::CommandLine,
                    location: None,
                    normal: keys.clone(),
                    keys,
                    source: None,
                    is_default: true,
                })
            });
        };
        let mut targets = config.targets.iter();
        let target = targets.find(|target| target.name.as_str() == DEFAULT_TARGET);
        if let Some(target) = target.filter(|_| !config.named.targets) {
            let luns = target.default_luns.iter().flatten();
            let luns: Vec<Value> = luns
                .map(|entry| json!({"lun": entry.lun, "volume": names[entry.volume]}))
                .collect();
            let keys = Keys::from_iter([("luns".to_owned(), Value::Array(luns))]);
            add(ObjectKind::Target, DEFAULT_TARGET, keys);
        }
        if !config.named.subsystems {
            let subsystem = config
                .subsystems
                .iter()
                .find(|subsystem| subsystem.nqn.as_str() == DEFAULT_SUBSYSTEM);
            let map = subsystem.and_then(|subsystem| subsystem.default_namespaces.as_ref());
            let map = map.into_iter().flatten();
            let map: Vec<Value> = map
                .map(|entry| json!({"nsid": entry.nsid, "volume": names[entry.volume]}))
                .collect();
            let keys = Keys::from_iter([("namespaces".to_owned(), Value::Array(map))]);
            add(ObjectKind::Subsystem, DEFAULT_SUBSYSTEM, keys);
        }
    }
}

/// What a file says, as keys.
#[derive(Clone, Debug, Default)]
pub struct FileKeys {
    pub objects: Vec<(ObjectId, Arc<Described>)>,
    /// The settings outside of objects.
    pub settings: Arc<Keys>,
}

/// Reads a file, which was read as a configuration before.
#[must_use]
pub fn of_file(file: &ConfigFile) -> FileKeys {
    let mut table = file.text.parse::<toml::Table>().unwrap_or_default();
    let directory = file.path.parent().unwrap_or(Path::new(""));
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let document = &file.document;
    let mut objects = Vec::new();
    for (id, keys) in settings_of(&table) {
        let header = format!("[{}]", table_of_setting(&id.name));
        let mut lines = file.text.lines();
        let line = lines.position(|line| line.trim_start().starts_with(&header));
        let line = line.map_or(1, |line| line + 1);
        let described = Described {
            owner: Owner::File,
            location: Some(format!("{}:{line}", file.path.display())),
            normal: keys::normal(&keys, &directory),
            keys,
            source: None,
            is_default: false,
        };
        objects.push((id, Arc::new(described)));
    }
    for kind in ObjectKind::SERVED {
        let spans: Vec<std::ops::Range<usize>> = match kind {
            ObjectKind::Volume => document.volume.iter().map(|it| it.name.span()).collect(),
            ObjectKind::Target => document.target.iter().map(|it| it.name.span()).collect(),
            ObjectKind::Subsystem => document.subsystem.iter().map(|it| it.nqn.span()).collect(),
            ObjectKind::Setting => Vec::new(),
        };
        let Some((list, name_key)) = keys::list_of(kind) else {
            continue;
        };
        let Some(toml::Value::Array(tables)) = table.remove(list) else {
            continue;
        };
        for (value, span) in tables.into_iter().zip(spans) {
            let toml::Value::Table(mut table) = value else {
                continue;
            };
            let Some(toml::Value::String(name)) = table.remove(name_key) else {
                continue;
            };
            let at = file.location(span);
            let keys = keys::table_from_toml(table);
            let described = Described {
                owner: Owner::File,
                location: Some(format!("{}:{}", at.path.display(), at.line)),
                normal: keys::normal(&keys, &directory),
                keys,
                source: None,
                is_default: false,
            };
            objects.push((normal_id(&ObjectId { kind, name }), Arc::new(described)));
        }
    }
    FileKeys {
        objects,
        settings: Arc::new(keys::table_from_toml(table)),
    }
}

/// The volumes of the command line, and when responses are sent.
#[must_use]
pub fn of_arguments(arguments: &Arguments) -> Vec<(ObjectId, Arc<Described>)> {
    let here = std::env::current_dir().unwrap_or_default();
    let transmit = &arguments.transmit;
    let transmit = (*transmit != TransmitKeys::default()).then(|| {
        let keys = of_transmit(transmit);
        let described = Described {
            owner: Owner::CommandLine,
            location: None,
            normal: keys.clone(),
            keys,
            source: None,
            is_default: false,
        };
        (setting(TRANSMIT), Arc::new(described))
    });
    let volumes = arguments.volumes.iter().filter_map(|argument| {
        let spec = argument.settings.clone().specification(&argument.name)?;
        let keys = keys_of(&spec);
        let id = ObjectId {
            kind: ObjectKind::Volume,
            name: argument.name.clone(),
        };
        let described = Described {
            owner: Owner::CommandLine,
            location: None,
            normal: keys::normal(&keys, &here),
            keys,
            source: None,
            is_default: false,
        };
        Some((id, Arc::new(described)))
    });
    volumes.chain(transmit).collect()
}

/// What the command line says of when responses are sent.
fn of_transmit(given: &TransmitKeys) -> Keys {
    let threshold = given.nagle_threshold.map(|it| match it {
        NagleThreshold::Requests(number) => Value::from(number),
        NagleThreshold::Infinite => it.to_string().into(),
    });
    let keys = [
        ("transmit", given.policy.map(|it| it.to_string().into())),
        ("nagle-threshold", threshold),
        ("nagle-margin", given.nagle_margin.map(Value::from)),
        (
            "nagle-cycles",
            given.nagle_cycles.map(|it| it.to_string().into()),
        ),
        ("send", given.send.map(|it| it.to_string().into())),
    ];
    let keys = keys.into_iter();
    keys.filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// What was said of a volume of the command line, without passwords.
fn keys_of(spec: &VolumeSpec) -> Keys {
    let mut keys = Keys::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            keys.insert(key.to_owned(), value);
        }
    };
    set("backend", Some(spec.backend.as_str().into()));
    let path = spec.path.as_ref();
    set("path", path.map(|path| path.to_string_lossy().into()));
    set("size", spec.size.map(Value::from));
    let block_size = Some(spec.block_size).filter(|size| *size != 512);
    set("block-size", block_size.map(Value::from));
    let physical = spec.physical_block_size;
    set("physical-block-size", physical.map(Value::from));
    set("read-only", spec.read_only.then_some(true.into()));
    set("direct", spec.direct.then_some(true.into()));
    set("write-through", spec.write_through.then_some(true.into()));
    set("serial", spec.serial.clone().map(Value::from));
    set("vendor", spec.vendor.clone().map(Value::from));
    set("product", spec.product.clone().map(Value::from));
    let names = &spec.names;
    set("naa", names.naa.map(|naa| naa.to_string().into()));
    set("nguid", names.nguid.map(|nguid| nguid.to_string().into()));
    set("eui64", names.eui64.map(|eui64| eui64.to_string().into()));
    set("uuid", spec.uuid.map(|uuid| uuid.to_string().into()));
    let inline_writes = match spec.inline_writes {
        InlineWrites::Auto => None,
        InlineWrites::Always => Some("always"),
        InlineWrites::Never => Some("never"),
    };
    set("inline-writes", inline_writes.map(Value::from));
    let limits = &spec.limits;
    set("max-iops", limits.iops.map(Value::from));
    set("max-read-iops", limits.read_iops.map(Value::from));
    set("max-write-iops", limits.write_iops.map(Value::from));
    set("max-bytes", limits.bytes.map(Value::from));
    set("max-read-bytes", limits.read_bytes.map(Value::from));
    set("max-write-bytes", limits.write_bytes.map(Value::from));
    let burst = limits.burst.map(|burst| format!("{}ms", burst.as_millis()));
    set("burst", burst.map(Value::from));
    let slow = &spec.slow;
    let delay = Some(slow.delay).filter(|delay| !delay.is_zero());
    let delay = delay.map(|delay| format!("{}us", delay.as_micros()));
    set("delay", delay.map(Value::from));
    set("rate", slow.rate.map(Value::from));
    set("slow-anywhere", slow.anywhere.then_some(true.into()));
    if let Some(remote) = spec.options::<RemoteSpec>() {
        let url = remote.url.as_ref();
        set("url", url.map(|url| url.to_string().into()));
        for (key, path) in [
            ("secret-file", &remote.secret_file),
            ("dhchap-secret-file", &remote.dhchap_secret_file),
            ("dhchap-ctrl-secret-file", &remote.dhchap_ctrl_secret_file),
            ("tls-key-file", &remote.tls_key_file),
        ] {
            set(key, path.as_ref().map(|path| path.to_string_lossy().into()));
        }
        set("queues", remote.queues.map(Value::from));
        set("depth", remote.depth.map(Value::from));
    }
    if let Some(pool) = spec.options::<PoolOptions>() {
        let drives = pool.drives.iter().map(|drive| drive.to_string_lossy());
        let drives = drives.collect::<Vec<_>>().join("+");
        set(
            "pool",
            Some(drives).filter(|it| !it.is_empty()).map(Value::from),
        );
        set("pool-volume", pool.volume.clone().map(Value::from));
        let compression = pool.compression.map(Compression::word);
        set("compression", compression.map(Value::from));
        set("quota", pool.quota.map(Value::from));
        let reserve = pool.reserve.map(|bytes| Reserve(bytes).word());
        set("reserve", reserve.map(Value::from));
    }
    keys
}

/// Objects of several owners together.
///
/// An object of the API that the file describes alike becomes the file's.
///
/// # Errors
/// Two owners describe one object, each in another way.
pub fn together(
    fixed: impl IntoIterator<Item = (ObjectId, Arc<Described>)>,
    api: impl IntoIterator<Item = (ObjectId, Arc<Described>)>,
) -> Result<Objects, Vec<Problem>> {
    let mut objects = Objects(fixed.into_iter().collect());
    let mut problems = Vec::new();
    for (id, object) in api {
        match objects.0.get(&id) {
            None => {
                objects.0.insert(id, object);
            }
            Some(other) if other.owner == Owner::File && other.normal == object.normal => {}
            Some(other) => problems.push(two_owners(&id, other)),
        }
    }
    if problems.is_empty() {
        Ok(objects)
    } else {
        Err(problems)
    }
}

/// The problem of an object that the API describes, and somebody else too.
fn two_owners(id: &ObjectId, other: &Described) -> Problem {
    let place = match (&other.location, other.owner) {
        (Some(location), _) => location.clone(),
        (None, Owner::CommandLine) => "an option of the command line".to_owned(),
        (None, owner) => format!("the {owner}"),
    };
    let title =
        format!("{place} and the API (`longshore config show`) define {id} with different keys");
    let mut problem = Problem::new(ProblemCode::OtherOwner, title).about(id);
    problem.location.clone_from(&other.location);
    problem.advise(format!(
        "remove or rename one of them, or give {id} the keys of the API there: then it belongs to the file"
    ))
}
