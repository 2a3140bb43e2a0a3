//! The server process as the control API sees it.
//!
//! What the configuration has described since the start is shown; changes are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use longshore_api::change::{Applied, Caller, ChangeOptions, Plan, Revision, RevisionInfo, Wish};
use longshore_api::object::{Document, Keys, Object, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::{Health, Listener, Session, Status};
use longshore_server::Stopper;
use longshore_volume::Volume;
use serde_json::json;

use crate::config::Config;

/// The revision of what the server was started with.
const FIRST: Revision = Revision(1);

/// See the module documentation.
pub struct Plane {
    stopper: Stopper,
    volumes: Vec<Arc<dyn Volume>>,
    objects: Vec<Object>,
    status: Status,
    stopping: AtomicBool,
}

impl Plane {
    #[must_use]
    pub fn new(
        config: &Config,
        stopper: Stopper,
        volumes: Vec<Arc<dyn Volume>>,
        engine: String,
        listeners: Vec<Listener>,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0)),
            revision: FIRST,
            engine,
            config_file: config_file(config),
            listeners,
            volumes: config.volumes.len(),
            targets: config.targets.len(),
            subsystems: config.subsystems.len(),
            sessions: 0,
            needs_restart: Vec::new(),
            health: Health {
                alive: true,
                ready: true,
                reasons: Vec::new(),
            },
        };
        Self {
            stopper,
            volumes,
            objects: objects(config),
            status,
            stopping: AtomicBool::new(false),
        }
    }

    /// The server completes what it has accepted, and ends.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// The file that SIGHUP reads.
fn config_file(config: &Config) -> Option<String> {
    let path = std::fs::canonicalize(config.transmit.file.as_ref()?).ok()?;
    Some(path.to_string_lossy().into_owned())
}

fn objects(config: &Config) -> Vec<Object> {
    let object = |kind, name: &str, location: Option<String>, keys: Keys| Object {
        id: ObjectId {
            kind,
            name: name.to_owned(),
        },
        owner: match location {
            Some(_) => Owner::File,
            None => Owner::CommandLine,
        },
        state: ObjectState::Up,
        location,
        keys,
        facts: Keys::new(),
    };
    let volumes = config.volumes.iter().map(|source| {
        let location = source.location.as_ref();
        let location = location.map(|at| format!("{}:{}", at.path.display(), at.line));
        let mut keys = Keys::new();
        keys.insert("backend".to_owned(), json!(source.spec.backend.as_str()));
        if let Some(path) = &source.spec.path {
            keys.insert("path".to_owned(), json!(path.to_string_lossy()));
        }
        object(ObjectKind::Volume, &source.spec.name, location, keys)
    });
    let targets = config
        .targets
        .iter()
        .map(|target| object(ObjectKind::Target, target.name.as_str(), None, Keys::new()));
    let subsystems = config.subsystems.iter().map(|subsystem| {
        let name = subsystem.nqn.to_string();
        object(ObjectKind::Subsystem, &name, None, Keys::new())
    });
    volumes.chain(targets).chain(subsystems).collect()
}

fn unavailable() -> Box<Problem> {
    let problem = Problem::new(
        ProblemCode::Unavailable,
        "this server cannot change what it serves",
    );
    Box::new(problem.advise("change the configuration file, and start the server again"))
}

impl ControlPlane for Plane {
    fn status(&self) -> Status {
        let stopping = self.stopping.load(Ordering::Relaxed);
        let mut status = self.status.clone();
        if stopping {
            status.health.ready = false;
            status.health.reasons = vec!["the server is stopping".to_owned()];
        }
        status
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Object> {
        let failed = self.stopper.failed_volumes();
        let of_kind = self.objects.iter().filter(|object| object.id.kind == kind);
        let mut objects: Vec<Object> = of_kind.cloned().collect();
        if kind == ObjectKind::Volume {
            for (object, volume) in objects.iter_mut().zip(&self.volumes) {
                let geometry = volume.geometry();
                let bytes = u64::from(geometry.block_size) * geometry.block_count;
                let uuid = volume.identity().uuid.to_string();
                object.facts.insert("size-bytes".to_owned(), json!(bytes));
                object.facts.insert("uuid".to_owned(), json!(uuid));
                let failure = failed.iter().find(|(name, _)| *name == object.id.name);
                if let Some((_, reason)) = failure {
                    object.state = ObjectState::Failed;
                    object.facts.insert("reason".to_owned(), json!(reason));
                }
            }
        }
        objects.sort_by(|a, b| a.id.name.cmp(&b.id.name));
        objects
    }

    fn document(&self, owner: Option<Owner>) -> (Revision, Document) {
        let mut document = Document::default();
        for object in &self.objects {
            if owner.is_none_or(|owner| owner == object.owner) {
                let of_kind = document.of_kind_mut(object.id.kind);
                of_kind.insert(object.id.name.clone(), object.keys.clone());
            }
        }
        (FIRST, document)
    }

    fn plan(&self, _: &Wish, _: ChangeOptions) -> Result<Plan, Box<Problem>> {
        Err(unavailable())
    }

    fn apply(&self, _: Wish, _: ChangeOptions, _: &Caller) -> Result<Applied, Box<Problem>> {
        Err(unavailable())
    }

    fn revisions(&self) -> Vec<RevisionInfo> {
        Vec::new()
    }

    fn at_revision(&self, _: Revision) -> Option<Document> {
        None
    }

    fn sessions(&self) -> Vec<Session> {
        Vec::new()
    }

    fn close_session(&self, _: &str, _: &Caller) -> Result<(), Box<Problem>> {
        Err(unavailable())
    }
}
