//! Carries out what was planned.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_api::change::{
    Action, Applied, Caller, ChangeOptions, KeyChange, Revision, RevisionInfo,
};
use longshore_api::object::{ObjectId, ObjectKind};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::record::Record;
use longshore_server::config::ListenerChanges;
use longshore_server::{ListenerId, Resized};
use longshore_volume::VolumeError;
use serde_json::json;

use super::super::exports::{OpenVolumes, exports};
use super::super::growth::Growth;
use super::super::listening::{Difference, Entry, Listening, entry};
use super::super::locks::{locked, now_ms};
use super::super::prepare::{Preparation, Prepared};
use super::super::problems::{Refusal, Refused};
use super::super::step;
use super::super::switch::{Drain, NotSwitched, Ready};
use super::leavers::Leaver;
use super::now::Now;
use super::outlook::{Outlook, coming, source_of};
use super::parts::{PATIENCE, Plane};
use crate::config::transmit::TransmitConfig;
use crate::config::{Config, VolumeSource};
use crate::descriptors;
use crate::exports::listeners;
use crate::pools::{InPool, NewSettings};
use crate::portals::{Kind, Portal, PortalError};

/// How long the storage of a volume may take to tell its size.
const SIZE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long reading all sizes waits for a change in progress.
const SIZES_PATIENCE: Duration = Duration::from_secs(120);

/// Volumes that may not tell their sizes until the others are not asked any more.
const STUCK_MAX: usize = 4;

/// A part of a change that takes longer is named in the log: whether the disk of the state directory, the storage of a
/// volume or an event loop has held it up.
const LONG_PART: Duration = Duration::from_secs(5);

/// Steps of a change that its event names.
const STEPS_TOLD: usize = 20;

/// What stands ready when a change is committed.
struct Staged<'a> {
    prepared: Prepared,
    portals: Portals,
    /// `None`: what is exported stays as it is.
    ready: Option<Box<dyn Ready + 'a>>,
    open: OpenVolumes,
}

/// Sockets that listen, and what they are.
#[derive(Default)]
struct Portals {
    changes: ListenerChanges,
    /// First those of iSCSI, then those of NVMe.
    entries: Vec<Entry>,
}

impl Plane {
    /// Carries out what was planned.
    pub(super) fn carry_out(
        &self,
        now: Arc<Now>,
        outlook: Outlook,
        options: ChangeOptions,
        caller: &Caller,
        record: &dyn Record,
    ) -> Result<Applied, Refusal> {
        let is_api_change = !outlook.objects.is_same_api(&now.objects);
        let mut plan = outlook.plan.clone();
        match is_api_change {
            true => self.need_store()?,
            false => plan.warnings.extend(self.want_store()),
        }
        let revision = Revision(now.revision.0 + 1);
        let coming: Vec<VolumeSource> = coming(&now, &outlook.config, &outlook.plan)
            .cloned()
            .collect();
        let names = coming.iter().map(|source| &*source.spec.name);
        let names = names.filter(|name| !now.open.contains_key(*name));
        if let Some(name) = self.leaving.wait_for(names, PATIENCE) {
            let title = format!("volume {name} is on its way out still");
            let problem = Problem::new(ProblemCode::Busy, title).about(format!("volume {name}"));
            let problem = problem.advise(
                "try again when `longshore volume list` shows it no more, or use another name",
            );
            return Err(Box::new(problem).into());
        }
        step!("begun");
        let began = Instant::now();
        let info = RevisionInfo {
            revision,
            time_ms: now_ms(),
            caller: caller.clone(),
            steps: outlook.plan.lines(),
        };
        let intent = record
            .intend(caller, now.revision, &info.steps)
            .map_err(|error| {
                let title = format!("cannot write the audit log: {error}");
                let problem = Problem::new(ProblemCode::of_io(&error), title);
                Box::new(
                    problem.advise("make room, or correct the permissions of the state directory"),
                )
            })?;
        step!("recorded");
        tell_of_long("writing the audit log", began);
        let outcome = self
            .stage(&now, &outlook, coming, revision)
            .and_then(|staged| self.commit_and_switch(&now, &outlook, staged, options, &info));
        let (open, listening) = match outcome {
            Ok(outcome) => outcome,
            Err(problem) => {
                intent.end(Err(&problem));
                return Err(Refusal::recorded(problem));
            }
        };
        step!("switched");
        let gone = gone(&now, &open);
        let grown = growths(&outlook, &open);
        let Outlook {
            file,
            settings,
            objects,
            config,
            ..
        } = outlook;
        *locked(&self.now) = Arc::new(Now {
            revision,
            file,
            settings,
            objects: Arc::new(objects),
            config: Arc::new(config),
            open: Arc::new(open),
            listening: Arc::new(listening),
            needs_restart: plan.needs_restart.clone(),
            transmit: now.transmit,
        });
        // So that volumes that leave have no user here.
        drop(now);
        self.take_up_growth(grown);
        if let Some(watch) = self.watch.get() {
            watch(&self.now().config);
        }
        intent.end(Ok(revision));
        tell_of_change(record, &info);
        let leaving = locked(&self.leaving.volumes);
        // Also one that is closed by now, if there is something to tell of it.
        let failures = self.leaving.failures_of(revision);
        let goes_on = |name: &String| leaving.contains_key(name) || failures.contains_key(name);
        let draining = gone.into_iter().filter(goes_on);
        Ok(Applied {
            revision,
            plan,
            draining: draining.collect(),
        })
    }

    /// Does all that can fail. What it has done is undone when it is dropped.
    fn stage(
        &self,
        now: &Now,
        outlook: &Outlook,
        coming: Vec<VolumeSource>,
        revision: Revision,
    ) -> Result<Staged<'_>, Refused> {
        let began = Instant::now();
        let kept = staying(now, &outlook.config, &coming);
        if !coming.is_empty() {
            let specs = outlook.config.enabled_volumes().map(|it| &it.spec);
            let volumes = descriptors::of_volumes(specs);
            descriptors::make_room(&outlook.config.limits, volumes);
        }
        let identities = kept.iter().filter(|_| !coming.is_empty());
        let preparation = Preparation {
            known: identities
                .map(|(name, volume)| (volume.identity().uuid, name.clone()))
                .collect(),
            sources: coming,
            growths: growths(outlook, &kept),
            settings: settings(outlook, &kept),
            state_directory: self.process.state_directory.clone(),
        };
        let prepared = self.prepare(revision, preparation)?;
        let mut open = kept;
        open.extend(prepared.volumes());
        let staged = portals(now, &outlook.listeners).and_then(|mut portals| {
            let ready = self.ready(outlook, &open, &mut portals)?;
            Ok((portals, ready))
        });
        tell_of_long("preparing volumes and sockets", began);
        match staged {
            Ok((portals, ready)) => Ok(Staged {
                prepared,
                portals,
                ready,
                open,
            }),
            Err(problem) => {
                self.undo(prepared);
                Err(problem)
            }
        }
    }

    /// Opens volumes and makes files longer.
    fn prepare(&self, revision: Revision, preparation: Preparation) -> Result<Prepared, Refused> {
        if preparation.sources.is_empty()
            && preparation.growths.is_empty()
            && preparation.settings.is_empty()
        {
            return Ok(Prepared::default());
        }
        let limit = self.storage_timeout();
        let look = move || (preparation.file_changes(), preparation);
        let looked = self.helpers.within(limit, look);
        let (changes, preparation) =
            looked.map_err(|error| error.refusal("the volumes cannot be looked at"))?;
        let changes = changes?;
        self.intend(revision, &changes)?;
        step!("intended");
        let open = move || Prepared::open(preparation, &changes.grown);
        let opened = self.helpers.within(limit, open);
        let opened = opened.map_err(|error| error.refusal("the volumes cannot be opened"));
        let prepared = opened
            .and_then(|prepared| prepared)
            .inspect_err(|_| self.forget_intent())?;
        step!("prepared");
        Ok(prepared)
    }

    /// Has the server check what it is to export, and make it ready.
    fn ready(
        &self,
        outlook: &Outlook,
        open: &OpenVolumes,
        portals: &mut Portals,
    ) -> Result<Option<Box<dyn Ready + '_>>, Refused> {
        let plan = &outlook.plan;
        let is_exported = |it: &KeyChange| !it.key.starts_with("engine.");
        let stays = plan.steps.is_empty()
            && plan.listeners.is_empty()
            && !plan.settings.iter().any(is_exported);
        if stays {
            return Ok(None);
        }
        let changes = std::mem::take(&mut portals.changes);
        let ready = self.switch.prepare(exports(&outlook.config, open), changes);
        let ready = ready.map_err(|refused| refusal(&refused))?;
        for (entry, id) in portals.entries.iter_mut().zip(ready.listeners()) {
            entry.id = id;
        }
        Ok(Some(ready))
    }

    /// Closes what was opened, and makes files what they were.
    fn undo(&self, prepared: Prepared) {
        let undone = self
            .helpers
            .within(self.storage_timeout(), move || drop(prepared));
        if let Err(error) = undone {
            tracing::warn!("what a refused change had opened is closed later: {error}");
        }
        self.forget_intent();
    }

    /// From here on it is a fault of storage, or the end of the server, if something fails.
    fn commit_and_switch(
        &self,
        now: &Now,
        outlook: &Outlook,
        staged: Staged<'_>,
        options: ChangeOptions,
        info: &RevisionInfo,
    ) -> Result<(OpenVolumes, Listening), Refused> {
        let Staged {
            mut prepared,
            portals,
            ready,
            open,
        } = staged;
        let began = Instant::now();
        if let Err(problem) = self.commit(
            info,
            &outlook.objects.api_document(),
            outlook.file.as_deref(),
        ) {
            self.undo(prepared);
            return Err(problem);
        }
        step!("committed");
        tell_of_long("storing the revision", began);
        let began = Instant::now();
        let gone = gone(now, &open);
        let switched = match ready {
            Some(ready) => self.switch_over(now, ready, &gone, options),
            None => Ok(Vec::new()),
        };
        tell_of_long("switching the event loops", began);
        let not_listening = match switched {
            Ok(not_listening) => not_listening,
            Err(problem) => {
                tracing::error!("revision {} is undone: {problem}", info.revision.0);
                step!("undoing");
                self.undo(prepared);
                self.take_back(now, outlook, info);
                step!("undone");
                return Err(problem);
            }
        };
        prepared.keep();
        self.forget_intent();
        set_limits(outlook, &open);
        let going = &outlook.listeners.going;
        let listening = now.listening.entries.iter().enumerate();
        let staying = listening.filter(|(place, _)| !going.contains(place));
        let mut entries: Vec<Entry> = staying.map(|(_, entry)| entry.clone()).collect();
        for entry in portals.entries {
            let failed = not_listening
                .iter()
                .find(|(address, _)| *address == entry.address);
            match failed {
                Some((address, reason)) => {
                    tracing::error!("cannot accept connections at {address}: {reason}");
                }
                None => entries.push(entry),
            }
        }
        let is_served = now.listening.is_served;
        Ok((open, Listening { entries, is_served }))
    }

    /// What was stored is what the next start has: it must not be what was refused.
    fn take_back(&self, now: &Now, outlook: &Outlook, info: &RevisionInfo) {
        let before = RevisionInfo {
            revision: Revision(info.revision.0 + 1),
            steps: vec![format!("undo revision {}", info.revision.0)],
            ..info.clone()
        };
        if let Err(error) = self.commit(&before, &now.objects.api_document(), now.file.as_deref()) {
            tracing::error!("cannot undo revision {}: {error}", info.revision.0);
        }
        *locked(&self.now) = Arc::new(Now {
            revision: before.revision,
            needs_restart: outlook.plan.needs_restart.clone(),
            ..now.clone()
        });
    }

    fn switch_over(
        &self,
        now: &Now,
        ready: Box<dyn Ready + '_>,
        gone: &[String],
        options: ChangeOptions,
    ) -> Result<Vec<(SocketAddr, String)>, Refused> {
        {
            let mut leaving = locked(&self.leaving.volumes);
            for name in gone {
                let id = ObjectId {
                    kind: ObjectKind::Volume,
                    name: name.clone(),
                };
                if let (Some(object), Some(volume)) = (now.objects.0.get(&id), now.open.get(name)) {
                    let leaver = Leaver {
                        described: Arc::clone(object),
                        volume: Some(Arc::clone(volume)),
                        closing_since: None,
                    };
                    leaving.insert(name.clone(), leaver);
                }
            }
        }
        let leaving = Arc::clone(&self.leaving);
        let revision = Revision(now.revision.0 + 1);
        let drain = Drain {
            timeout: match options.force {
                true => Duration::ZERO,
                false => self.process.drain_timeout,
            },
            on_closed: Arc::new(move |closed| {
                step!("closed");
                leaving.closed(closed, revision);
            }),
        };
        match ready.carry_out(drain) {
            Ok(not_listening) => Ok(not_listening),
            Err(NotSwitched::Late(reason)) => {
                tracing::warn!("{reason}");
                Ok(Vec::new())
            }
            Err(refused @ NotSwitched::Refused(_)) => {
                let mut leaving = locked(&self.leaving.volumes);
                gone.iter().for_each(|name| {
                    leaving.remove(name);
                });
                Err(refusal(&refused))
            }
        }
    }

    /// Has volumes take up the new length of their files, and hosts told of it.
    fn take_up_growth(&self, growths: Vec<Growth>) {
        if growths.is_empty() {
            return;
        }
        self.take_up_sizes(growths.iter().map(|it| it.name.clone()).collect());
        for Growth {
            name, volume, size, ..
        } in growths
        {
            // What has no end, such as /dev/zero, is as long as it is said to be.
            if volume.geometry().size_bytes() < size {
                let grow = move || volume.grow(size);
                match self.helpers.within(SIZE_TIMEOUT, grow) {
                    Ok(Ok(_)) => drop(self.take_up_sizes(vec![name])),
                    Ok(Err(error)) => tracing::warn!(volume = name, "it does not grow: {error}"),
                    Err(error) => tracing::warn!(volume = name, "it does not grow yet: {error}"),
                }
            }
        }
    }

    /// Takes up the sizes of all volumes. Returns how many have changed.
    pub fn refresh_sizes(&self) -> usize {
        // A change in progress may have made a file longer, and shorten it again.
        let Some(_turn) = self.turn.take(SIZES_PATIENCE) else {
            tracing::warn!("the sizes of volumes are not read: a change is being carried out");
            return 0;
        };
        self.take_up_sizes(self.now().open.keys().cloned().collect())
    }

    /// Takes up the sizes of these volumes. One that does not answer is left behind.
    fn take_up_sizes(&self, names: Vec<String>) -> usize {
        let sizes = Arc::new(Mutex::new(Sizes {
            left: names.into(),
            ..Sizes::default()
        }));
        for attempt in 0..STUCK_MAX {
            let (switch, shared) = (Arc::clone(&self.switch), Arc::clone(&sizes));
            let work = move || {
                while let Some(name) = Sizes::next(&shared, attempt) {
                    let outcome = switch.refresh_volume(&name);
                    locked(&shared).seen.extend(outcome.map(|it| (name, it)));
                }
            };
            match self.helpers.within(SIZE_TIMEOUT, work) {
                Ok(()) => break,
                Err(error) => {
                    let mut sizes = locked(&sizes);
                    // The thread that is behind ends when it comes back.
                    sizes.attempt = attempt + 1;
                    let volume = sizes.current.take();
                    tracing::warn!(volume, "cannot read its size: {error}");
                }
            }
        }
        let seen = std::mem::take(&mut locked(&sizes).seen);
        let mut changed = 0;
        for (volume, outcome) in seen {
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

    pub(super) fn take_transmit(&self, transmit: TransmitConfig) {
        let now = self.now();
        if now.transmit == transmit {
            return;
        }
        tracing::info!(before = %now.transmit, now = %transmit, "transmit policy changed");
        self.switch.set_transmit(transmit);
        *locked(&self.now) = Arc::new(Now {
            transmit,
            ..Now::clone(&now)
        });
    }
}

/// Volumes whose sizes are read, by one thread after the other.
#[derive(Default)]
struct Sizes {
    left: VecDeque<String>,
    current: Option<String>,
    /// The thread whose turn it is.
    attempt: usize,
    seen: Vec<(String, Result<Option<Resized>, VolumeError>)>,
}

impl Sizes {
    /// The next volume for a thread. `None`: there is none, or another thread has taken its place.
    fn next(sizes: &Mutex<Self>, attempt: usize) -> Option<String> {
        let mut sizes = locked(sizes);
        if sizes.attempt != attempt {
            return None;
        }
        sizes.current = sizes.left.pop_front();
        sizes.current.clone()
    }
}

/// Says what has held a change up.
fn tell_of_long(part: &str, began: Instant) {
    let took = began.elapsed();
    if took >= LONG_PART {
        tracing::warn!("a change was held up: {part} took {took:.1?}");
    }
}

fn refusal(refused: &NotSwitched) -> Refused {
    let (NotSwitched::Refused(reason) | NotSwitched::Late(reason)) = refused;
    let title = format!("the server refused the change: {reason}");
    Box::new(Problem::new(ProblemCode::Invalid, title))
}

fn tell_of_change(record: &dyn Record, info: &RevisionInfo) {
    let told = &info.steps[..info.steps.len().min(STEPS_TOLD)];
    let more = info.steps.len() - told.len();
    let mut message = format!(
        "revision {} by {}: {}",
        info.revision.0,
        info.caller.name,
        told.join(", ")
    );
    if more > 0 {
        message = format!("{message} and {more} more");
    }
    let data = json!({ "revision": info.revision.0, "steps": told, "more-steps": more });
    record.tell("change", &message, data);
}

/// Binds the addresses that come. From here on the kernel takes connections; they wait until the change is made.
fn portals(now: &Now, difference: &Difference) -> Result<Portals, Refused> {
    let refused = |error: PortalError| {
        let problem = Problem::new(ProblemCode::System, error.to_string());
        Box::new(problem)
    };
    let bound = difference.coming.iter().map(Portal::bind);
    let mut bound: Vec<Portal> = bound.collect::<Result<_, _>>().map_err(refused)?;
    // The server counts those of iSCSI first.
    bound.sort_by_key(|portal| portal.kind() != Kind::Iscsi);
    // The id is known when the server is ready.
    let entries = bound.iter().map(|portal| entry(ListenerId(0), portal));
    let entries = entries.collect();
    let (iscsi, nvme) = listeners(bound).map_err(refused)?;
    let removed = difference.going.iter();
    let removed = removed
        .map(|place| now.listening.entries[*place].id)
        .collect();
    Ok(Portals {
        changes: ListenerChanges {
            iscsi,
            nvme,
            removed,
        },
        entries,
    })
}

/// Volumes that are open and are to be larger.
fn growths(outlook: &Outlook, open: &OpenVolumes) -> Vec<Growth> {
    let steps = outlook.plan.steps.iter();
    let changes =
        steps.filter(|step| step.action == Action::Change && step.id.kind == ObjectKind::Volume);
    let growths = changes.filter_map(|step| {
        let name = &step.id.name;
        let spec = &source_of(&outlook.config, name)?.spec;
        let (volume, size) = (open.get(name)?, spec.size?);
        (size > volume.geometry().size_bytes()).then(|| Growth {
            name: name.clone(),
            volume: Arc::clone(volume),
            path: spec.path.clone(),
            in_pool: InPool::of(spec),
            size,
        })
    });
    growths.collect()
}

/// Volumes of pools that are open and get other settings.
fn settings(outlook: &Outlook, open: &OpenVolumes) -> Vec<NewSettings> {
    let steps = outlook.plan.steps.iter();
    let changes =
        steps.filter(|step| step.action == Action::Change && step.id.kind == ObjectKind::Volume);
    let settings = changes.filter_map(|step| {
        let name = &step.id.name;
        let spec = &source_of(&outlook.config, name)?.spec;
        open.get(name)?;
        NewSettings::of(spec)
    });
    settings.collect()
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
fn staying(now: &Now, config: &Config, coming: &[VolumeSource]) -> OpenVolumes {
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
