//! Plans changes and carries them out; see the folder's documentation.

mod execution;
mod leavers;
mod now;
mod outlook;
mod parts;
mod revisions;
mod whole;
mod wishes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_api::change::{Applied, Caller, ChangeOptions, Plan, Revision, RevisionInfo, Wish};
use longshore_api::object::{Document, Object, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::pool::{Pool, PoolChange, PoolChanges, SnapshotId};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::record::Record;
use longshore_api::state::{Health, Session, Status};
use serde_json::json;

use super::keys;
use super::locks::{locked, since_1970_ms};
use super::problems::{Refusal, Refused};
use super::store::Store;
use crate::config::file::ConfigFile;
use crate::{held, pools};
use now::{Now, uses};
use outlook::{check_revision, users};
use parts::PATIENCE;
pub use parts::{Plane, Process};
pub use whole::{Whole, WholeVolume};

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
            sandbox: held::shown(),
            config_file: config_file(now.file.as_deref()),
            listeners: self.listeners(),
            volumes: count(ObjectKind::Volume),
            targets: count(ObjectKind::Target),
            subsystems: count(ObjectKind::Subsystem),
            sessions: self.switch.sessions().all.len(),
            needs_restart: now.needs_restart.clone(),
            health: self.health(&now),
        }
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Object> {
        let now = self.now();
        let sessions = self.switch.sessions().all;
        let uses = uses(kind, &sessions);
        let mut found: Vec<Object> = now
            .objects
            .of_kind(kind)
            .map(|(id, described)| now.object(id, described, &uses))
            .collect();
        if kind == ObjectKind::Volume {
            for (leaving, described) in self.leaving.all(self.switch.leaving()) {
                let id = ObjectId {
                    kind,
                    name: leaving.volume,
                };
                let mut object = now.object(&id, &described, &uses);
                object.state = match leaving.stuck {
                    true => ObjectState::Stuck,
                    false => ObjectState::Draining,
                };
                let waits_for = leaving.waits_for.text();
                object
                    .facts
                    .insert("waits-for".to_owned(), waits_for.into());
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
        let users = users(&now, &outlook);
        let is_complete = outlook.sessions.is_complete;
        let mut plan = outlook.plan;
        if !options.drain && !options.force {
            if !is_complete {
                let warning = "an event loop does not answer: not all that is in use is known";
                plan.warnings.push(warning.to_owned());
            }
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
        let record = self.leaving.record();
        let asked = asked_for(&wish);
        let outcome = self.change(&wish, options, caller, &*record);
        let had_refused = self.has_refused.swap(outcome.is_err(), Ordering::AcqRel);
        match outcome {
            Ok(applied) => {
                // What makes no revision has no record; a refusal before it must not be the last word.
                if applied.plan.is_empty() && had_refused {
                    self.note(caller, &asked, Ok(applied.revision), &*record);
                }
                Ok(applied)
            }
            Err(refusal) => {
                if !refusal.is_recorded {
                    self.note(caller, &asked, Err(&refusal.problem), &*record);
                }
                Err(refusal.problem)
            }
        }
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
        self.switch.sessions().all
    }

    fn pools(&self) -> Vec<Pool> {
        pools::all(&self.now().config.pools)
    }

    fn pool(&self, name: &str) -> Result<Pool, Refused> {
        pools::shown(&self.now().config.pools, name)
    }

    fn change_pool(
        &self,
        name: &str,
        change: &PoolChange,
        caller: &Caller,
    ) -> Result<Pool, Refused> {
        let changed = pools::change(&self.now().config.pools, name, change)?;
        let message = format!("pool {name}: {change}");
        tracing::info!("{} changes {message}", caller.name);
        let data = json!({ "pool": changed.name, "caller": caller.name });
        self.leaving.record().tell("pool", &message, data);
        Ok(changed)
    }

    fn pool_changes(
        &self,
        name: &str,
        of: &SnapshotId,
        since: &SnapshotId,
        from: u64,
    ) -> Result<PoolChanges, Refused> {
        pools::changes(&self.now().config.pools, name, of, since, from)
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
    fn change(
        &self,
        wish: &Wish,
        options: ChangeOptions,
        caller: &Caller,
        record: &dyn Record,
    ) -> Result<Applied, Refusal> {
        let refused = |code, title: &str, advice: &str| {
            Refusal::from(Box::new(Problem::new(code, title).advise(advice)))
        };
        let Some(_turn) = self.turn.take(PATIENCE) else {
            let title = "another change is being carried out";
            return Err(refused(ProblemCode::Busy, title, "try again in a moment"));
        };
        if self.is_stopping() {
            let (title, advice) = ("the server is stopping", "try again when it has started");
            return Err(refused(ProblemCode::Unavailable, title, advice));
        }
        let now = self.now();
        check_revision(&now, options)?;
        let outlook = self.outlook(&now, wish, options)?;
        self.refuse_in_use(&now, &outlook, options)?;
        let transmit = outlook.config.engine.transmit;
        let applied = if outlook.plan.is_empty() {
            let plan = outlook.plan;
            *locked(&self.now) = Arc::new(Now {
                file: outlook.file,
                settings: outlook.settings,
                objects: Arc::new(outlook.objects),
                config: Arc::new(outlook.config),
                needs_restart: plan.needs_restart.clone(),
                ..Now::clone(&now)
            });
            Applied {
                revision: now.revision,
                plan,
                draining: Vec::new(),
            }
        } else {
            self.carry_out(now, outlook, options, caller, record)?
        };
        self.take_transmit(transmit);
        Ok(applied)
    }

    /// Records what was asked for and did not come to be carried out.
    fn note(
        &self,
        caller: &Caller,
        asked: &str,
        outcome: Result<Revision, &Problem>,
        record: &dyn Record,
    ) {
        match record.intend(caller, self.revision(), &[asked.to_owned()]) {
            Ok(intent) => intent.end(outcome),
            Err(error) => tracing::error!("cannot write the audit log: {error}"),
        }
    }

    /// As far as no event loop has to be asked: the API adds those that do not answer.
    fn health(&self, now: &Now) -> Health {
        let mut reasons = Vec::new();
        let stopping = self.stopping.load(Ordering::Acquire);
        if stopping {
            reasons.push("the server is stopping".to_owned());
        }
        for (name, volume) in &*now.open {
            let condition = volume.condition();
            if !condition.is_sound() {
                reasons.push(format!("volume {name}: {condition}"));
            }
        }
        let ready = reasons.is_empty();
        // What is served does not need them.
        for (leaving, _) in self.leaving.all(self.switch.leaving()) {
            if leaving.stuck {
                reasons.push(format!(
                    "volume {} was removed, and its storage does not answer: it waits for {}",
                    leaving.volume,
                    leaving.waits_for.text()
                ));
            }
        }
        Health {
            alive: true,
            ready,
            reasons,
        }
    }
}

/// What is asked for, in a few words.
fn asked_for(wish: &Wish) -> String {
    match wish {
        Wish::ReadFile => "read the configuration file".to_owned(),
        Wish::Replace(_) => "replace all objects of the API".to_owned(),
        Wish::Put { id, .. } => format!("put {id}"),
        Wish::Patch { id, .. } => format!("change {id}"),
        Wish::Remove { id } => format!("remove {id}"),
        Wish::Enable { id, enabled: true } => format!("enable {id}"),
        Wish::Enable { id, enabled: false } => format!("disable {id}"),
        Wish::Rollback(revision) => format!("roll back to revision {}", revision.0),
    }
}

/// The file that SIGHUP reads. Without a look at the file system, which may not answer.
fn config_file(file: Option<&ConfigFile>) -> Option<String> {
    let path = std::path::absolute(&file?.path).ok()?;
    Some(path.to_string_lossy().into_owned())
}
