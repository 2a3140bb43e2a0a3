//! Plans changes and carries them out; see the folder's documentation.

mod execution;
mod leavers;
mod locks;
mod now;
mod outlook;
mod parts;
mod revisions;
mod wishes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_api::change::{Applied, Caller, ChangeOptions, Plan, Revision, RevisionInfo, Wish};
use longshore_api::object::{Document, Object, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::{Health, Session, Status};
use serde_json::json;

use super::keys;
use super::problems::Refused;
use super::store::Store;
use crate::config::file::ConfigFile;
use locks::{locked, since_1970_ms};
use now::{Now, uses};
use outlook::check_revision;
use parts::PATIENCE;
pub use parts::{Plane, Process};

impl Plane {
    /// Reads the file again and carries out what it says now. Says what was done, and what was not, in the log.
    pub fn reload(&self) {
        let caller = Caller {
            name: "SIGHUP".to_owned(),
            from: "signal".to_owned(),
        };
        match self.apply(Wish::ReadFile, ChangeOptions::default(), &caller) {
            Ok(applied) => {
                for line in applied.plan.lines() {
                    tracing::info!("SIGHUP: {line}");
                }
                for warning in &applied.plan.warnings {
                    tracing::warn!("SIGHUP: {warning}");
                }
                for key in &applied.plan.needs_restart {
                    tracing::warn!("SIGHUP: {key} takes effect at the next start of the server");
                }
            }
            Err(problem) => {
                let further = problem.further.iter();
                for problem in std::iter::once(&*problem).chain(further) {
                    let alone = Problem {
                        further: Vec::new(),
                        ..problem.clone()
                    };
                    tracing::error!("SIGHUP: all settings are unchanged: {alone}");
                }
            }
        }
    }
}

impl ControlPlane for Plane {
    fn status(&self) -> Status {
        let now = self.now();
        let count = |kind| now.objects.of_kind(kind).count();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_ms: since_1970_ms(self.started),
            revision: now.revision,
            engine: self.process.engine.clone(),
            config_file: config_file(now.file.as_deref()),
            listeners: self.process.listeners.clone(),
            volumes: count(ObjectKind::Volume),
            targets: count(ObjectKind::Target),
            subsystems: count(ObjectKind::Subsystem),
            sessions: self.switch.sessions().len(),
            needs_restart: now.needs_restart.clone(),
            health: self.health(&now),
        }
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Object> {
        let now = self.now();
        let sessions = self.switch.sessions();
        let uses = uses(kind, &sessions);
        let mut found: Vec<Object> = now
            .objects
            .of_kind(kind)
            .map(|(id, described)| now.object(id, described, &uses))
            .collect();
        if kind == ObjectKind::Volume {
            let stuck: BTreeMap<String, bool> = self
                .switch
                .leaving()
                .into_iter()
                .map(|it| (it.volume, it.stuck))
                .collect();
            for (name, described) in &*locked(&self.leaving.volumes) {
                let id = ObjectId {
                    kind,
                    name: name.clone(),
                };
                let mut object = now.object(&id, described, &uses);
                object.state = match stuck.get(name) {
                    Some(true) => ObjectState::Stuck,
                    _ => ObjectState::Draining,
                };
                found.push(object);
            }
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found
    }

    fn revision(&self) -> Revision {
        self.now().revision
    }

    fn document(&self, owner: Option<Owner>) -> (Revision, Document) {
        let now = self.now();
        (
            now.revision,
            now.objects.document(owner, keys::without_secrets),
        )
    }

    fn plan(&self, wish: &Wish, options: ChangeOptions) -> Result<Plan, Refused> {
        let now = self.now();
        check_revision(&now, options)?;
        let outlook = self.outlook(&now, wish, options)?;
        let users = self.users(&now, &outlook);
        let mut plan = outlook.plan;
        if !options.drain && !options.force {
            let needs = |user: &String| format!("{user}: this needs --drain");
            plan.warnings.extend(users.iter().map(needs));
        }
        Ok(plan)
    }

    fn apply(
        &self,
        wish: Wish,
        options: ChangeOptions,
        caller: &Caller,
    ) -> Result<Applied, Refused> {
        let Some(_turn) = self.turn.take(PATIENCE) else {
            let problem = Problem::new(ProblemCode::Busy, "another change is in progress");
            return Err(Box::new(problem.advise("try again in a moment")));
        };
        if self.stopping.load(Ordering::Acquire) {
            let problem = Problem::new(ProblemCode::Unavailable, "the server is stopping");
            return Err(Box::new(problem.advise("try again when it has started")));
        }
        let now = self.now();
        check_revision(&now, options)?;
        let outlook = self.outlook(&now, &wish, options)?;
        self.refuse_in_use(&now, &outlook, options)?;
        let transmit = outlook.config.engine.transmit;
        let applied = if outlook.plan.is_empty() {
            let plan = outlook.plan;
            let mut same = now.clone_with(now.revision);
            same.file = outlook.file;
            same.settings = outlook.settings;
            same.objects = outlook.objects;
            same.config = outlook.config;
            same.needs_restart.clone_from(&plan.needs_restart);
            *locked(&self.now) = Arc::new(same);
            Applied {
                revision: now.revision,
                plan,
                draining: Vec::new(),
            }
        } else {
            self.carry_out(&now, outlook, options, caller)?
        };
        self.take_transmit(transmit);
        Ok(applied)
    }

    fn failed_flushes(&self, revision: Revision) -> BTreeMap<String, String> {
        self.leaving.failures_of(revision)
    }

    fn revisions(&self) -> Vec<RevisionInfo> {
        let store = locked(&self.store);
        store.as_ref().map(Store::history).unwrap_or_default()
    }

    fn at_revision(&self, revision: Revision) -> Option<Document> {
        let mut document = self.stored(revision).ok()?;
        for kind in ObjectKind::ALL {
            for keys in document.of_kind_mut(kind).values_mut() {
                *keys = keys::without_secrets(keys);
            }
        }
        Some(document)
    }

    fn sessions(&self) -> Vec<Session> {
        self.switch.sessions()
    }

    fn close_session(&self, id: &str, caller: &Caller) -> Result<(), Refused> {
        if !self.switch.close_session(id) {
            let title = format!("there is no session {id}");
            let problem = Problem::new(ProblemCode::NotFound, title);
            return Err(Box::new(problem.advise("see `longshore session list`")));
        }
        let message = format!("{} closes session {id}", caller.name);
        tracing::info!("{message}");
        let data = json!({ "session": id, "caller": caller.name });
        self.leaving.record().tell("session", &message, data);
        Ok(())
    }
}

impl Plane {
    /// As far as no event loop has to be asked: the API adds those that do not answer.
    fn health(&self, now: &Now) -> Health {
        let mut reasons = Vec::new();
        let stopping = self.stopping.load(Ordering::Acquire);
        if stopping {
            reasons.push("the server is stopping".to_owned());
        }
        for (name, volume) in &now.open {
            let condition = volume.condition();
            if !condition.is_sound() {
                reasons.push(format!("volume {name}: {condition}"));
            }
        }
        Health {
            alive: true,
            ready: reasons.is_empty(),
            reasons,
        }
    }
}

/// The file that SIGHUP reads.
fn config_file(file: Option<&ConfigFile>) -> Option<String> {
    let path = std::fs::canonicalize(&file?.path).ok()?;
    Some(path.to_string_lossy().into_owned())
}
