//! Carries out what was planned.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_api::change::{
    Action, Applied, Caller, ChangeOptions, KeyChange, Revision, RevisionInfo,
};
use longshore_api::object::{ObjectId, ObjectKind};
use longshore_api::problem::{Problem, ProblemCode};
use serde_json::json;

use super::super::exports::{OpenVolumes, exports};
use super::super::prepare::Prepared;
use super::super::problems::Refused;
use super::super::step;
use super::super::switch::{Drain, NotSwitched};
use super::locks::{locked, now_ms};
use super::now::Now;
use super::outlook::{Outlook, coming, source_of};
use super::parts::{PATIENCE, Plane};
use crate::config::transmit::TransmitConfig;
use crate::config::{Config, VolumeSource};

/// Steps of a change that its event names.
const STEPS_TOLD: usize = 20;

impl Plane {
    /// Carries out what was planned.
    pub(super) fn carry_out(
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
            let title = format!("volume {name} is on its way out still");
            let problem = Problem::new(ProblemCode::Busy, title).about(format!("volume {name}"));
            return Err(Box::new(problem.advise(
                "try again when `longshore volume list` shows it no more, or use another name",
            )));
        }
        step!("begun");
        let intent = record
            .intend(caller, now.revision, &lines)
            .map_err(|error| {
                let title = format!("cannot write the audit log: {error}");
                let problem = Problem::new(ProblemCode::of_io(&error), title);
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

    /// Does what can fail, and undoes it if something does.
    pub(super) fn prepare(
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
    pub(super) fn switch_over(
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
        let revision = Revision(now.revision.0 + 1);
        let drain = Drain {
            timeout: match options.force {
                true => Duration::ZERO,
                false => self.process.drain_timeout,
            },
            on_closed: Arc::new(move |closed| leaving.closed(&closed, revision)),
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

    pub(super) fn take_transmit(&self, transmit: TransmitConfig) {
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
