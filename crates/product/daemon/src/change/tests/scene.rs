//! A server in a directory of its own, and shorthands for changes of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_api::change::{Applied, Caller, ChangeOptions, Plan, Wish};
use longshore_api::object::{Keys, ObjectId, ObjectKind, ObjectState};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::Problem;
use longshore_api::state::Session;
use serde_json::{Value, json};

use super::fake::{Fake, Handle};
use crate::backends::backends;
use crate::change::exports::{OpenVolumes, exports};
use crate::change::plane::{Plane, Process};
use crate::change::start::Start;
use crate::config::Arguments;
use crate::config::file::ConfigFile;
use crate::memory::Bounds;

pub(super) const TARGET: &str = "iqn.2026-11.com.example:t";
pub(super) const HOST: &str = "iqn.2026-11.com.example:host";

pub(super) const DRAIN: ChangeOptions = ChangeOptions {
    revision: None,
    drain: true,
    force: false,
    replace: false,
    create: false,
};

/// A server in a directory of its own, with its state and a file there.
pub(super) struct Scene {
    directory: PathBuf,
    /// Removes the directory in the end.
    #[allow(dead_code)]
    scratch: Option<tempfile::TempDir>,
    arguments: Vec<String>,
    pub(super) storage_timeout: Option<Duration>,
    pub(super) memory: Option<Bounds>,
    pub(super) fake: Arc<Fake>,
    pub(super) plane: Option<Arc<Plane>>,
}

impl Scene {
    pub(super) fn new(file: &str) -> Self {
        Self::with_arguments(file, &[])
    }

    /// The volume `a` in memory is LUN 0 of [`TARGET`].
    pub(super) fn mapped() -> Self {
        let scene = Self::new("");
        scene.apply(mem("a")).unwrap();
        let map = map(json!([{"lun": 0, "volume": "a"}]));
        scene.apply(map).unwrap();
        scene
    }

    pub(super) fn with_arguments(file: &str, arguments: &[&str]) -> Self {
        let mut scene = Self::prepared(file, arguments);
        scene.start().unwrap();
        scene
    }

    pub(super) fn prepared(file: &str, arguments: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let mut scene = Self::at(scratch.path());
        scene.arguments = arguments.iter().map(|it| (*it).to_owned()).collect();
        scene.scratch = Some(scratch);
        scene.write(file);
        scene
    }

    /// In a directory that may have been used before.
    pub(super) fn at(directory: &Path) -> Self {
        std::fs::create_dir_all(directory.join("state")).unwrap();
        Self {
            directory: directory.to_owned(),
            scratch: None,
            arguments: Vec::new(),
            storage_timeout: None,
            memory: None,
            fake: Arc::default(),
            plane: None,
        }
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    pub(super) fn write(&self, file: &str) {
        std::fs::write(self.path("x.toml"), file).unwrap();
    }

    /// Starts, or starts again.
    pub(super) fn start(&mut self) -> Result<(), Box<Problem>> {
        self.plane = None;
        self.fake = Arc::default();
        let state = self.directory.join("state");
        let arguments = Arguments {
            volumes: self
                .arguments
                .iter()
                .map(|it| it.parse().unwrap())
                .collect(),
            ..Arguments::default()
        };
        let file = ConfigFile::load(Path::new(&self.path("x.toml"))).unwrap();
        let start = Start::read(arguments, Some(file), Some(&state), true)?;
        let mut open = OpenVolumes::new();
        for source in start.config.enabled_volumes() {
            let opened = backends().open(&source.spec).unwrap();
            open.insert(source.spec.name.clone(), opened.volume);
        }
        *self.fake.exports.lock().unwrap() = Some(exports(&start.config, &open));
        let process = Process {
            state_directory: Some(state),
            drain_timeout: Duration::from_secs(1),
            storage_timeout: self.storage_timeout,
            memory: self.memory.clone(),
            ..Process::default()
        };
        let switch = Box::new(Handle(Arc::clone(&self.fake)));
        let plane = Plane::new(start, open, switch, process);
        plane.set_record(Arc::new(Handle(Arc::clone(&self.fake))));
        self.plane = Some(plane);
        Ok(())
    }

    pub(super) fn plane(&self) -> &Plane {
        self.plane.as_ref().unwrap()
    }

    pub(super) fn revision(&self) -> u64 {
        self.plane().status().revision.0
    }

    pub(super) fn apply(&self, wish: Wish) -> Result<Applied, Box<Problem>> {
        self.apply_with(wish, ChangeOptions::default())
    }

    pub(super) fn apply_with(
        &self,
        wish: Wish,
        options: ChangeOptions,
    ) -> Result<Applied, Box<Problem>> {
        let caller = Caller {
            name: "uid 1000".to_owned(),
            from: "test".to_owned(),
        };
        self.plane().apply(wish, options, &caller)
    }

    pub(super) fn plan(&self, wish: &Wish) -> Result<Plan, Box<Problem>> {
        self.plane().plan(wish, ChangeOptions::default())
    }

    /// A session of `HOST` with the target.
    pub(super) fn log_in(&self, target: &str) {
        self.fake.sessions.lock().unwrap().push(Session {
            id: "1".to_owned(),
            protocol: "iscsi".to_owned(),
            peer_name: HOST.to_owned(),
            addresses: Vec::new(),
            target: target.to_owned(),
            connections: 1,
            since_ms: 0,
            volumes: Vec::new(),
        });
    }

    pub(super) fn state_of(&self, volume: &str) -> Option<ObjectState> {
        let volumes = self.plane().objects(ObjectKind::Volume);
        let found = volumes.iter().find(|object| object.id.name == volume);
        found.map(|object| object.state)
    }
}

pub(super) fn keys(value: Value) -> Keys {
    match value {
        Value::Object(keys) => keys,
        other => panic!("{other} is no object"),
    }
}

pub(super) fn volume(name: &str) -> ObjectId {
    ObjectId {
        kind: ObjectKind::Volume,
        name: name.to_owned(),
    }
}

pub(super) fn target(name: &str) -> ObjectId {
    ObjectId {
        kind: ObjectKind::Target,
        name: name.to_owned(),
    }
}

pub(super) fn put(id: ObjectId, value: Value) -> Wish {
    let keys = keys(value);
    Wish::Put { id, keys }
}

pub(super) fn mem(name: &str) -> Wish {
    put(volume(name), json!({"backend": "mem", "size": "1M"}))
}

pub(super) fn map(luns: Value) -> Wish {
    put(target(TARGET), json!({ "luns": luns }))
}
