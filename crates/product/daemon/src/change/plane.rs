//! Plans changes and carries them out; see the folder's documentation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longshore_api::change::{
    Action, Applied, Caller, ChangeOptions, KeyChange, Plan, Revision, RevisionInfo, Step, Wish,
};
use longshore_api::object::{Document, Keys, Object, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::record::{NoRecord, Record};
use longshore_api::state::{Health, Listener, Session, Status};
use longshore_volume::{BackendName, Volume};
use serde_json::json;

use super::exports::{OpenVolumes, exports};
use super::objects::{self, Described, Objects};
use super::prepare::{Prepared, new_files};
use super::start::Start;
use super::store::{Intent, Store};
use super::switch::{Closed, Drain, NotSwitched, Switch};
use super::turn::Turn;
use super::{keys, plan, problems, step};
use crate::config::file::ConfigFile;
use crate::config::reach::Addresses;
use crate::config::target::UnknownVolumes;
use crate::config::transmit::TransmitConfig;
use crate::config::warning::Warning;
use crate::config::{Arguments, Config, Parts, VolumeSource};

type Refused = Box<Problem>;

/// Sees what is served after a change.
type Watch = dyn Fn(&Config) + Send + Sync;

/// Steps of a change that its event names.
const STEPS_TOLD: usize = 20;

/// How long a change waits for the one before.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process that is controlled, as far as it does not change.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// `io_uring` or `epoll`.
    pub engine: String,
    pub listeners: Vec<Listener>,
    /// The addresses that are listened on.
    pub addresses: Addresses,
    pub state_directory: Option<PathBuf>,
    /// How long volumes may take to leave.
    pub drain_timeout: Duration,
}

/// Plans changes and carries them out.
pub struct Plane {
    process: Process,
    started: SystemTime,
    arguments: Arguments,
    /// The settings of the file at start.
    started_with: Arc<Keys>,
    switch: Box<dyn Switch>,
    turn: Turn,
    /// Taken only for a moment.
    now: Mutex<Arc<Now>>,
    /// Taken by whose turn it is, and for reading old revisions.
    store: Mutex<Option<Store>>,
    leaving: Arc<Leavers>,
    stopping: AtomicBool,
    /// Called after each change with what is served.
    watch: OnceLock<Box<Watch>>,
}

/// What is asked for and served at one time.
struct Now {
    revision: Revision,
    file: Option<Arc<ConfigFile>>,
    settings: Arc<Keys>,
    objects: Objects,
    config: Config,
    open: OpenVolumes,
    needs_restart: Vec<String>,
    transmit: TransmitConfig,
}

/// Volumes on their way out, and who hears of it.
struct Leavers {
    volumes: Mutex<BTreeMap<String, Arc<Described>>>,
    gone: Condvar,
    record: Mutex<Arc<dyn Record>>,
}

impl Leavers {
    fn record(&self) -> Arc<dyn Record> {
        Arc::clone(&locked(&self.record))
    }

    fn closed(&self, closed: &Closed) {
        locked(&self.volumes).remove(&closed.volume);
        self.gone.notify_all();
        let volume = &closed.volume;
        let message = match &closed.failure {
            None => format!("volume {volume} is closed"),
            Some(failure) => {
                format!("volume {volume} is closed, and its last flush failed: {failure}")
            }
        };
        let data = json!({ "volume": volume, "failure": closed.failure });
        self.record().tell("volume", &message, data);
    }

    /// Waits until none of these volumes is on its way out, for so long at most. Returns one that is.
    fn wait_for<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
        patience: Duration,
    ) -> Option<&'a str> {
        let give_up = Instant::now() + patience;
        let mut volumes = locked(&self.volumes);
        for name in names {
            while volumes.contains_key(name) {
                let Some(left) = give_up.checked_duration_since(Instant::now()) else {
                    return Some(name);
                };
                let waited = self.gone.wait_timeout(volumes, left);
                (volumes, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        None
    }
}

/// A state that could be next.
struct Outlook {
    file: Option<Arc<ConfigFile>>,
    settings: Arc<Keys>,
    objects: Objects,
    config: Config,
    plan: Plan,
}

/// What a wish asks for.
struct Wanted {
    file: Option<Arc<ConfigFile>>,
    /// The file was read again.
    is_file_new: bool,
    api: BTreeMap<ObjectId, Arc<Described>>,
}

impl Plane {
    /// Over a server that exports what `start` says, with these volumes open.
    #[must_use]
    pub fn new(
        start: Start,
        open: OpenVolumes,
        switch: Box<dyn Switch>,
        process: Process,
    ) -> Arc<Self> {
        let Start {
            arguments,
            file,
            settings,
            objects,
            config,
            revision,
            store,
        } = start;
        Arc::new(Self {
            process,
            started: SystemTime::now(),
            started_with: Arc::clone(&settings),
            arguments,
            switch,
            turn: Turn::default(),
            now: Mutex::new(Arc::new(Now {
                revision,
                file,
                settings,
                objects,
                transmit: config.engine.transmit,
                config,
                open,
                needs_restart: Vec::new(),
            })),
            store: Mutex::new(store),
            leaving: Arc::new(Leavers {
                volumes: Mutex::default(),
                gone: Condvar::new(),
                record: Mutex::new(Arc::new(NoRecord)),
            }),
            stopping: AtomicBool::new(false),
            watch: OnceLock::new(),
        })
    }

    /// Has `watch` see what is served after each change, the first of them that asks for it.
    pub fn set_watch(&self, watch: impl Fn(&Config) + Send + Sync + 'static) {
        let _ = self.watch.set(Box::new(watch));
    }

    /// Who keeps a record of changes from now on.
    pub fn set_record(&self, record: Arc<dyn Record>) {
        *locked(&self.leaving.record) = record;
    }

    /// The volumes that are open.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.now().open.values().cloned().collect()
    }

    /// Lets the change in progress end, for so long at most, and refuses others.
    pub fn stop(&self, patience: Duration) {
        self.stopping.store(true, Ordering::Release);
        drop(self.turn.take(patience));
    }

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

    fn now(&self) -> Arc<Now> {
        Arc::clone(&locked(&self.now))
    }

    /// The state that a wish leads to, checked, and the steps to it.
    fn outlook(&self, now: &Now, wish: &Wish, options: ChangeOptions) -> Result<Outlook, Refused> {
        let wanted = self.wanted(now, wish)?;
        let (fixed, file_settings) = match &wanted.file {
            Some(file) if wanted.is_file_new => {
                let said = objects::of_file(file);
                let mut fixed = said.objects;
                fixed.extend(objects::of_arguments(&self.arguments));
                (fixed, said.settings)
            }
            _ => (fixed_objects(&now.objects), Arc::clone(&now.settings)),
        };
        let mut objects = match objects::together(fixed, wanted.api) {
            Ok(objects) => objects,
            Err(found) => {
                problems::together(found)?;
                unreachable!("there is a problem")
            }
        };
        let sources = objects.sources();
        let lost = lost_volumes(&now.config);
        let config = Config::assemble_all(Parts {
            file: wanted.file.as_deref(),
            arguments: &self.arguments,
            objects: &sources,
            unknown: match lost.is_empty() {
                true => UnknownVolumes::Refused,
                false => UnknownVolumes::LeftOut,
            },
        });
        let config = match config {
            Ok(config) => config,
            Err(found) => {
                problems::together(found.iter().map(problems::of_config))?;
                unreachable!("there is a problem")
            }
        };
        // Maps may go on to name what was lost at the start, and nothing else that is not there.
        let newly_lost = lost_volumes(&config);
        problems::together(newly_lost.difference(&lost).map(|(object, volume)| {
            let title = format!("{object} maps volume `{volume}`, which does not exist");
            let problem = Problem::new(ProblemCode::Invalid, title).about(object);
            problem.advise("add the volume, or remove it from the map")
        }))?;
        let reach = config.check_reach(&self.process.addresses);
        let mut warnings = reach.map_err(|problem| Box::new(problems::of_config(&problem)))?;
        warnings.extend(config.warnings.iter().cloned());
        objects.add_defaults(&config);

        let (settings, needs_restart) =
            plan::settings(&now.settings, &file_settings, &self.started_with);
        let steps = plan::steps(&now.objects, &objects);
        let old_warnings: BTreeSet<String> = now
            .config
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect();
        let warnings = warnings.iter().map(ToString::to_string);
        let mut plan = Plan {
            revision: Some(now.revision),
            steps,
            settings,
            needs_restart,
            warnings: warnings.filter(|it| !old_warnings.contains(it)).collect(),
        };
        plan::add_secrets(&mut plan, &objects, (&now.config, &config));
        let open = |name: &str| {
            let volume = now.open.get(name)?;
            let source = source_of(&config, name)?;
            Some(plan::Open {
                size_bytes: volume.geometry().size_bytes(),
                read_only: volume.characteristics().read_only,
                grows: source.spec.backend == BackendName::FILE,
            })
        };
        let found = plan::check(
            &plan,
            &objects,
            (&now.config, &config),
            &self.sessions_of(&plan),
            options.replace,
            &open,
        );
        problems::together(found)?;
        self.survey(now, &config, &plan)?;
        Ok(Outlook {
            file: wanted.file,
            settings: file_settings,
            objects,
            config,
            plan,
        })
    }

    /// Whether volumes could be opened that are to come. Opens nothing.
    fn survey(&self, now: &Now, config: &Config, plan: &Plan) -> Result<(), Refused> {
        let found = coming(now, config, plan).filter_map(|source| {
            let error = crate::backends::backends().survey(&source.spec).err()?;
            let name = &source.spec.name;
            let title = format!("volume {name}: {error}");
            let problem = Problem::new(ProblemCode::Invalid, title).about(format!("volume {name}"));
            let at = source
                .location
                .as_ref()
                .filter(|_| source.owner == Owner::File);
            Some(match at {
                Some(at) => problem.at(format!("{}:{}", at.path.display(), at.line)),
                None => problem,
            })
        });
        problems::together(found)
    }

    /// The objects that a wish asks for.
    fn wanted(&self, now: &Now, wish: &Wish) -> Result<Wanted, Refused> {
        let mut wanted = Wanted {
            file: now.file.clone(),
            is_file_new: false,
            api: plan::owned_by(&now.objects, Owner::Api),
        };
        let named = match wish {
            Wish::Put { id, .. }
            | Wish::Patch { id, .. }
            | Wish::Enable { id, .. }
            | Wish::Remove { id } => Some(objects::normal_id(id)),
            Wish::Replace(_) | Wish::ReadFile | Wish::Rollback(_) => None,
        };
        match wish {
            Wish::ReadFile => {
                if let Some(file) = &now.file {
                    let file = ConfigFile::load(&file.path);
                    let file = file.map_err(|problem| Box::new(problems::of_config(&problem)))?;
                    wanted.file = Some(Arc::new(file));
                    wanted.is_file_new = true;
                }
            }
            Wish::Replace(document) => wanted.api = replaced(now, document, &wanted.api)?,
            Wish::Rollback(revision) => {
                let document = self.stored(*revision)?;
                wanted.api = replaced(now, &document, &wanted.api)?;
            }
            Wish::Put { keys, .. } => {
                let id = &named.expect("a wish with an object");
                put(now, &mut wanted.api, id, keys.clone())?;
            }
            Wish::Patch { patch, .. } => {
                let id = &named.expect("a wish with an object");
                let before = changeable(now, id)?.ok_or_else(|| unknown(id))?;
                let mut keys = before.keys.clone();
                keys::merge(&mut keys, patch);
                put(now, &mut wanted.api, id, keys)?;
            }
            Wish::Enable { enabled, .. } => {
                let id = &named.expect("a wish with an object");
                let before = changeable(now, id)?.ok_or_else(|| unknown(id))?;
                let mut keys = before.keys.clone();
                match enabled {
                    true => keys.remove("enabled"),
                    false => keys.insert("enabled".to_owned(), false.into()),
                };
                put(now, &mut wanted.api, id, keys)?;
            }
            Wish::Remove { .. } => {
                let id = &named.expect("a wish with an object");
                remove(now, &mut wanted.api, id)?;
            }
        }
        Ok(wanted)
    }

    /// The objects of the API at a revision, with their secrets.
    fn stored(&self, revision: Revision) -> Result<Document, Refused> {
        let store = locked(&self.store);
        let found = store.as_ref().map(|store| store.at(revision)).transpose();
        let found = found.map_err(|error| problems::of_store(&error))?.flatten();
        if revision.0 == 0 && found.is_none() {
            return Ok(Document::default());
        }
        found.ok_or_else(|| {
            let title = format!("revision {} is not kept", revision.0);
            let problem = Problem::new(ProblemCode::NotFound, title);
            Box::new(problem.advise("choose one of `longshore config history`"))
        })
    }

    /// Refuses to take away what sessions use.
    fn refuse_in_use(
        &self,
        now: &Now,
        outlook: &Outlook,
        options: ChangeOptions,
    ) -> Result<(), Refused> {
        if options.drain || options.force {
            return Ok(());
        }
        let users = self.users(now, outlook);
        if users.is_empty() {
            return Ok(());
        }
        let title = format!("in use: {}", users.join("; "));
        let mut problem = Problem::new(ProblemCode::InUse, title);
        let going = outlook.plan.steps.iter();
        if let Some(step) = going.last() {
            problem = problem.about(&step.id);
        }
        Err(Box::new(
            problem.advise("detach it on the hosts first, or use --drain"),
        ))
    }

    fn users(&self, now: &Now, outlook: &Outlook) -> Vec<String> {
        if outlook.plan.is_empty() {
            return Vec::new();
        }
        plan::users(
            (&now.config, &outlook.config),
            &self.sessions_of(&outlook.plan),
        )
    }

    /// The sessions that a change may concern.
    fn sessions_of(&self, plan: &Plan) -> Vec<Session> {
        let takes = |step: &Step| !matches!(step.action, Action::Add | Action::Adopt);
        match plan.steps.iter().any(takes) {
            true => self.switch.sessions(),
            false => Vec::new(),
        }
    }

    /// Carries out what was planned.
    fn carry_out(
        &self,
        now: &Now,
        outlook: Outlook,
        options: ChangeOptions,
        caller: &Caller,
    ) -> Result<Applied, Refused> {
        let record = self.leaving.record();
        let lines = outlook.plan.lines();
        let document = outlook.objects.api_document();
        if !outlook.objects.is_same_api(&now.objects) {
            self.need_store()?;
        }
        let revision = Revision(now.revision.0 + 1);
        let sources: Vec<&VolumeSource> = coming(now, &outlook.config, &outlook.plan).collect();
        let kept = staying(now, &outlook.config, &sources);
        let names = sources.iter().map(|source| &*source.spec.name);
        let names = names.filter(|name| !now.open.contains_key(*name));
        if let Some(name) = self.leaving.wait_for(names, PATIENCE) {
            let title = format!("a removed volume {name} is still draining");
            let problem = Problem::new(ProblemCode::Busy, title).about(format!("volume {name}"));
            return Err(Box::new(problem.advise(
                "wait until `longshore volume list` does not show it, or use another name",
            )));
        }
        step!("begun");
        let intent = record
            .intend(caller, now.revision, &lines)
            .map_err(|error| {
                let title = format!("cannot write the audit log: {error}");
                let problem = Problem::new(ProblemCode::System, title);
                Box::new(
                    problem.advise("make room, or correct the permissions of the state directory"),
                )
            })?;
        step!("recorded");
        let mut prepared = match self.prepare(revision, &sources, &kept) {
            Ok(prepared) => prepared,
            Err(problem) => {
                intent.end(Err(&problem));
                return Err(problem);
            }
        };

        let mut open = kept;
        open.extend(prepared.volumes());
        let gone = gone(now, &open);
        let info = RevisionInfo {
            revision,
            time_ms: now_ms(),
            caller: caller.clone(),
            steps: lines,
        };
        let before = RevisionInfo {
            revision: Revision(revision.0 + 1),
            steps: vec![format!("undo revision {}", revision.0)],
            ..info.clone()
        };
        let outcome = self.commit(&info, &document).and_then(|()| {
            step!("committed");
            let done = self.switch_over(now, &outlook, (&open, &gone), options);
            done.inspect_err(|problem| {
                tracing::error!("revision {} is undone: {problem}", revision.0);
                // What was stored is what the next start has: it must not be what was refused.
                if let Err(error) = self.commit(&before, &now.objects.api_document()) {
                    tracing::error!("cannot undo revision {}: {error}", revision.0);
                }
                let mut same = now.clone_with(before.revision);
                same.needs_restart.clone_from(&outlook.plan.needs_restart);
                *locked(&self.now) = Arc::new(same);
            })
        });
        if let Err(problem) = outcome {
            drop(prepared);
            self.forget_intent();
            intent.end(Err(&problem));
            return Err(problem);
        }
        prepared.keep();
        self.forget_intent();
        step!("switched");
        let plan = outlook.plan.clone();
        *locked(&self.now) = Arc::new(Now {
            revision,
            file: outlook.file,
            settings: outlook.settings,
            objects: outlook.objects,
            config: outlook.config,
            open,
            needs_restart: plan.needs_restart.clone(),
            transmit: now.transmit,
        });
        if let Some(watch) = self.watch.get() {
            watch(&self.now().config);
        }
        intent.end(Ok(revision));
        let told = &info.steps[..info.steps.len().min(STEPS_TOLD)];
        let more = info.steps.len() - told.len();
        let mut message = format!(
            "revision {} by {}: {}",
            revision.0,
            caller.name,
            told.join(", ")
        );
        if more > 0 {
            message = format!("{message} and {more} more");
        }
        let data = json!({ "revision": revision.0, "steps": told, "more-steps": more });
        record.tell("change", &message, data);
        let leaving = locked(&self.leaving.volumes);
        let draining = gone.into_iter().filter(|name| leaving.contains_key(name));
        Ok(Applied {
            revision,
            plan,
            draining: draining.collect(),
        })
    }

    /// Does what can fail, and undoes it if something does.
    fn prepare(
        &self,
        revision: Revision,
        sources: &[&VolumeSource],
        kept: &OpenVolumes,
    ) -> Result<Prepared, Refused> {
        self.intend(revision, sources)?;
        step!("intended");
        let directory = self.process.state_directory.as_deref();
        let prepared = Prepared::open(sources, kept, directory);
        let prepared = prepared.inspect_err(|_| self.forget_intent())?;
        step!("prepared");
        Ok(prepared)
    }

    /// What cannot be undone, and does not fail but for a fault of the storage: volumes grow, and the server exports what
    /// is new.
    fn switch_over(
        &self,
        now: &Now,
        outlook: &Outlook,
        (open, gone): (&OpenVolumes, &[String]),
        options: ChangeOptions,
    ) -> Result<(), Refused> {
        let mut has_grown = false;
        for step in &outlook.plan.steps {
            let name = &step.id.name;
            if step.action != Action::Change || step.id.kind != ObjectKind::Volume {
                continue;
            }
            let size = source_of(&outlook.config, name).and_then(|source| source.spec.size);
            if let (Some(volume), Some(size)) = (open.get(name), size)
                && size > volume.geometry().size_bytes()
            {
                volume.grow(size).map_err(|error| {
                    let title = format!("{}: it cannot grow: {error}", step.id);
                    Box::new(Problem::new(ProblemCode::System, title).about(&step.id))
                })?;
                has_grown = true;
                step!("grown");
            }
        }
        let is_exported = |it: &KeyChange| !it.key.starts_with("engine.");
        if outlook.plan.steps.is_empty() && !outlook.plan.settings.iter().any(is_exported) {
            return Ok(());
        }
        {
            let mut leaving = locked(&self.leaving.volumes);
            for name in gone {
                let id = ObjectId {
                    kind: ObjectKind::Volume,
                    name: name.clone(),
                };
                if let Some(object) = now.objects.0.get(&id) {
                    leaving.insert(name.clone(), Arc::clone(object));
                }
            }
        }
        let leaving = Arc::clone(&self.leaving);
        let drain = Drain {
            timeout: match options.force {
                true => Duration::ZERO,
                false => self.process.drain_timeout,
            },
            on_closed: Arc::new(move |closed| leaving.closed(&closed)),
        };
        let switched = self.switch.switch(exports(&outlook.config, open), drain);
        match switched {
            Ok(()) => {}
            Err(NotSwitched::Late(reason)) => tracing::warn!("{reason}"),
            Err(NotSwitched::Refused(reason)) => {
                let mut leaving = locked(&self.leaving.volumes);
                gone.iter().for_each(|name| {
                    leaving.remove(name);
                });
                let title = format!("the server refused the change: {reason}");
                return Err(Box::new(Problem::new(ProblemCode::Invalid, title)));
            }
        }
        set_limits(outlook, open);
        if has_grown {
            self.refresh_sizes();
        }
        Ok(())
    }

    /// Takes up the sizes of volumes.
    pub fn refresh_sizes(&self) -> usize {
        let mut changed = 0;
        for (volume, outcome) in self.switch.refresh_volumes() {
            match outcome {
                Ok(Some(resized)) => {
                    changed += 1;
                    let (before, after) = (resized.before.size_bytes(), resized.after.size_bytes());
                    tracing::info!(volume, before, after, "volume has a new size");
                    let message = format!("volume {volume} has {after} bytes");
                    let data = json!({ "volume": volume, "before": before, "after": after });
                    self.leaving.record().tell("volume", &message, data);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(volume, "cannot read its size: {error}"),
            }
        }
        changed
    }

    fn take_transmit(&self, transmit: TransmitConfig) {
        let now = self.now();
        if now.transmit == transmit {
            return;
        }
        tracing::info!(before = %now.transmit, now = %transmit, "transmit policy changed");
        self.switch.set_transmit(transmit);
        let mut next = now.clone_with(now.revision);
        next.transmit = transmit;
        *locked(&self.now) = Arc::new(next);
    }

    /// Makes a place for the objects of the API if there is none yet.
    fn need_store(&self) -> Result<(), Refused> {
        let mut store = locked(&self.store);
        if store.is_some() {
            return Ok(());
        }
        let Some(directory) = &self.process.state_directory else {
            let title = "the API cannot store changes without a state directory";
            let problem = Problem::new(ProblemCode::NoSpace, title);
            return Err(Box::new(problem.advise(
                "start the server with --state-dir DIRECTORY, or define the object in the configuration file",
            )));
        };
        if Store::is_there(directory) {
            // It was there at start, and another server's. That server may have ended; what it has stored was not read.
            let title = format!(
                "the objects of the API in {} belong to another server, or did when this one started",
                Store::place(directory).display()
            );
            let problem = Problem::new(ProblemCode::Unavailable, title);
            return Err(Box::new(problem.advise(
                "restart this server; if the other one still runs, with another --state-dir",
            )));
        }
        *store = Some(Store::open(directory).map_err(|error| problems::of_store(&error))?);
        Ok(())
    }

    fn intend(&self, revision: Revision, sources: &[&VolumeSource]) -> Result<(), Refused> {
        let store = locked(&self.store);
        let Some(store) = &*store else { return Ok(()) };
        let files = new_files(sources.iter().copied());
        if files.is_empty() {
            return Ok(());
        }
        let revision = revision.0;
        let intent = Intent { revision, files };
        store
            .intend(&intent)
            .map_err(|error| problems::of_store(&error))
    }

    fn forget_intent(&self) {
        if let Some(store) = &*locked(&self.store)
            && let Err(error) = store.forget_intent()
        {
            tracing::warn!("{error}");
        }
    }

    fn commit(&self, info: &RevisionInfo, document: &Document) -> Result<(), Refused> {
        match &mut *locked(&self.store) {
            Some(store) => store
                .commit(info, document)
                .map_err(|error| problems::of_store(&error)),
            None => Ok(()),
        }
    }
}

impl Now {
    fn clone_with(&self, revision: Revision) -> Self {
        Self {
            revision,
            file: self.file.clone(),
            settings: Arc::clone(&self.settings),
            objects: self.objects.clone(),
            config: self.config.clone(),
            open: self.open.clone(),
            needs_restart: self.needs_restart.clone(),
            transmit: self.transmit,
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

/// Sessions that use an object, by its name.
type Uses<'a> = HashMap<&'a str, usize>;

/// Sessions that use objects of a kind.
fn uses(kind: ObjectKind, sessions: &[Session]) -> Uses<'_> {
    let mut uses = Uses::new();
    for session in sessions {
        let used = match kind {
            ObjectKind::Volume => &session.volumes[..],
            ObjectKind::Target | ObjectKind::Subsystem => std::slice::from_ref(&session.target),
        };
        for name in used {
            *uses.entry(name).or_default() += 1;
        }
    }
    uses
}

impl Now {
    fn object(&self, id: &ObjectId, described: &Described, uses: &Uses<'_>) -> Object {
        let mut facts = Keys::new();
        let mut state = match described.is_enabled() {
            true => ObjectState::Up,
            false => ObjectState::Disabled,
        };
        let used = uses.get(&*id.name).copied().unwrap_or(0);
        facts.insert("sessions".to_owned(), used.into());
        if let Some(volume) = self
            .open
            .get(&id.name)
            .filter(|_| id.kind == ObjectKind::Volume)
        {
            let (identity, geometry) = (volume.identity(), volume.geometry());
            facts.insert("size-bytes".to_owned(), geometry.size_bytes().into());
            facts.insert("block-size".to_owned(), geometry.block_size.into());
            facts.insert("uuid".to_owned(), identity.uuid.to_string().into());
            facts.insert("serial".to_owned(), identity.serial.clone().into());
            let condition = volume.condition();
            if !condition.is_sound() {
                state = ObjectState::Failed;
                facts.insert("failure".to_owned(), condition.to_string().into());
            }
        }
        Object {
            id: id.clone(),
            owner: described.owner,
            state,
            location: described.location.clone(),
            keys: keys::without_secrets(&described.keys),
            facts,
        }
    }
}

/// Maps of volumes that are not there: kind and name of the object, and the volume.
fn lost_volumes(config: &Config) -> BTreeSet<(&str, &str)> {
    let lost = config.warnings.iter().filter_map(|warning| match warning {
        Warning::LostVolume { object, volume } => Some((&**object, &**volume)),
        _ => None,
    });
    lost.collect()
}

/// The objects of the file and the command line.
fn fixed_objects(objects: &Objects) -> Vec<(ObjectId, Arc<Described>)> {
    let fixed = objects.0.iter();
    fixed
        .filter(|(_, object)| object.owner != Owner::Api && !object.is_default)
        .map(|(id, object)| (id.clone(), Arc::clone(object)))
        .collect()
}

/// An object that the API may change, if there is one of that name.
fn changeable<'a>(now: &'a Now, id: &ObjectId) -> Result<Option<&'a Described>, Refused> {
    let Some(object) = now.objects.get(id) else {
        return Ok(None);
    };
    if object.owner == Owner::Api || object.is_default {
        return Ok(Some(object));
    }
    let (title, advice) = match &object.location {
        Some(location) => (
            format!("{id} is defined in the configuration file, at {location}"),
            "change it there and reload the file (SIGHUP), or remove it from the file first",
        ),
        None => (
            format!("{id} is defined on the command line"),
            "change the command line and start the server again",
        ),
    };
    let mut problem = Problem::new(ProblemCode::OtherOwner, title).about(id);
    problem.location.clone_from(&object.location);
    Err(Box::new(problem.advise(advice)))
}

fn unknown(id: &ObjectId) -> Refused {
    let problem = Problem::new(ProblemCode::NotFound, format!("there is no {id}")).about(id);
    Box::new(problem.advise(format!("see `longshore {} list`", id.kind)))
}

/// Puts an object of the API in its place, or adds it.
fn put(
    now: &Now,
    api: &mut BTreeMap<ObjectId, Arc<Described>>,
    id: &ObjectId,
    mut keys: Keys,
) -> Result<(), Refused> {
    let before = changeable(now, id)?;
    keys::restore_secrets(id, &mut keys, before.map(|object| &object.keys))?;
    let object = Described::of_api(id, keys)?;
    // The same object has no new text to be read.
    let is_same = api.get(id).is_some_and(|old| old.keys == object.keys);
    if !is_same {
        api.insert(id.clone(), object);
    }
    Ok(())
}

fn remove(
    now: &Now,
    api: &mut BTreeMap<ObjectId, Arc<Described>>,
    id: &ObjectId,
) -> Result<(), Refused> {
    let object = changeable(now, id)?.ok_or_else(|| unknown(id))?;
    if object.is_default {
        let title = format!("{id} is there by default");
        let problem = Problem::new(ProblemCode::OtherOwner, title).about(id);
        return Err(Box::new(problem.advise(format!(
            "disable it with `longshore {} disable`, or define another {} in the configuration file",
            id.kind, id.kind
        ))));
    }
    api.remove(id);
    if id.kind == ObjectKind::Volume {
        let others: Vec<(ObjectId, Keys)> = api
            .iter()
            .filter_map(|(other, object)| {
                let left = plan::without_volume(&object.keys, &id.name)?;
                Some((other.clone(), left))
            })
            .collect();
        for (other, keys) in others {
            let object = Described::of_api(&other, keys)?;
            api.insert(other, object);
        }
    }
    Ok(())
}

/// The objects of the API if they are those of a document.
fn replaced(
    now: &Now,
    document: &Document,
    before: &BTreeMap<ObjectId, Arc<Described>>,
) -> Result<BTreeMap<ObjectId, Arc<Described>>, Refused> {
    let mut api = BTreeMap::new();
    let mut found = Vec::new();
    for kind in ObjectKind::ALL {
        for (name, keys) in document.of_kind(kind) {
            let name = name.clone();
            let id = objects::normal_id(&ObjectId { kind, name });
            if let Some(old) = before.get(&id) {
                api.insert(id.clone(), Arc::clone(old));
            }
            // What the file says alike is the file's.
            if let Some(other) = now.objects.get(&id)
                && other.owner != Owner::Api
                && (other.keys == *keys || keys::without_secrets(&other.keys) == *keys)
            {
                continue;
            }
            if let Err(problem) = put(now, &mut api, &id, keys.clone()) {
                found.push(*problem);
            }
        }
    }
    problems::together(found)?;
    Ok(api)
}

/// Volumes that are to be opened.
fn coming<'a>(
    now: &'a Now,
    config: &'a Config,
    plan: &'a Plan,
) -> impl Iterator<Item = &'a VolumeSource> {
    let replaced: BTreeSet<&str> = plan
        .steps
        .iter()
        .filter(|step| step.id.kind == ObjectKind::Volume && step.action == Action::Change)
        .filter(|step| !plan::replacing_keys(&step.changes).is_empty())
        .map(|step| &*step.id.name)
        .collect();
    let enabled = config.volumes.iter().filter(|source| source.enabled);
    enabled.filter(move |source| {
        let name = &*source.spec.name;
        !now.open.contains_key(name) || replaced.contains(name)
    })
}

/// Volumes that are open, and leave or are replaced by others of their names.
fn gone(now: &Now, open: &OpenVolumes) -> Vec<String> {
    now.open
        .iter()
        .filter(|(name, volume)| open.get(*name).is_none_or(|it| !Arc::ptr_eq(it, volume)))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Volumes that are open and stay.
fn staying(now: &Now, config: &Config, coming: &[&VolumeSource]) -> OpenVolumes {
    let coming: BTreeSet<&str> = coming.iter().map(|source| &*source.spec.name).collect();
    let enabled = config.volumes.iter().filter(|source| source.enabled);
    enabled
        .map(|source| &source.spec.name)
        .filter(|name| !coming.contains(&***name))
        .filter_map(|name| Some((name.clone(), Arc::clone(now.open.get(name)?))))
        .collect()
}

/// Has volumes that are open keep to the limits of the configuration.
fn set_limits(outlook: &Outlook, open: &OpenVolumes) {
    let volumes = outlook.plan.steps.iter();
    for step in volumes.filter(|step| step.id.kind == ObjectKind::Volume) {
        let name = &step.id.name;
        if let Some(source) = source_of(&outlook.config, name)
            && let Some(throttle) = open.get(name).and_then(|volume| volume.throttle())
        {
            throttle.set(&source.spec.limits);
        }
    }
}

fn source_of<'a>(config: &'a Config, name: &str) -> Option<&'a VolumeSource> {
    config
        .volumes
        .iter()
        .find(|source| source.spec.name == name)
}

fn check_revision(now: &Now, options: ChangeOptions) -> Result<(), Refused> {
    match options.revision {
        Some(expected) if expected != now.revision => {
            let title = format!(
                "the configuration is at revision {}, not at {}",
                now.revision.0, expected.0
            );
            let problem = Problem::new(ProblemCode::RevisionChanged, title);
            Err(Box::new(
                problem.advise("plan the change again from the current revision"),
            ))
        }
        _ => Ok(()),
    }
}

/// The file that SIGHUP reads.
fn config_file(file: Option<&ConfigFile>) -> Option<String> {
    let path = std::fs::canonicalize(&file?.path).ok()?;
    Some(path.to_string_lossy().into_owned())
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> u64 {
    since_1970_ms(SystemTime::now())
}

fn since_1970_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
