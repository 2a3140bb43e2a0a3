//! The state that could be next, checked before anything is touched.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_api::change::{Action, ChangeOptions, ListenerStep, Plan, Step, Wish};
use longshore_api::object::{Keys, ObjectId, ObjectKind, Owner};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::Session;
use longshore_pool::POOL;
use longshore_server::config::TargetConfig;
use longshore_volume::BackendName;

use super::super::exports::Views;
use super::super::listening::Difference;
use super::super::objects::{self, Described, Objects};
use super::super::plan;
use super::super::problems::{self, Refused};
use super::super::switch::Sessions;
use super::now::Now;
use super::parts::Plane;
use crate::config::file::ConfigFile;
use crate::config::target::UnknownVolumes;
use crate::config::warning::Warning;
use crate::config::{Config, Parts, VolumeSource};
use crate::held;

/// A state that could be next.
pub(super) struct Outlook {
    pub(super) file: Option<Arc<ConfigFile>>,
    pub(super) settings: Arc<Keys>,
    pub(super) objects: Objects,
    pub(super) config: Config,
    pub(super) plan: Plan,
    pub(super) listeners: Difference,
    /// Those that the change may concern.
    pub(super) sessions: Sessions,
}

impl Plane {
    /// The state that a wish leads to, checked, and the steps to it.
    pub(super) fn outlook(
        &self,
        now: &Now,
        wish: &Wish,
        options: ChangeOptions,
    ) -> Result<Outlook, Refused> {
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
            let title = format!("{object} maps volume `{volume}`, which is not there");
            let problem = Problem::new(ProblemCode::Invalid, title).about(object);
            problem.advise("add the volume, or remove it from the map")
        }))?;
        let listeners = now.listening.difference(&config);
        let refused = listeners.coming.iter().filter_map(|wanted| {
            let (title, advice) = held::refuses_listener(wanted.address().port())?;
            let title = format!("cannot listen on {}: {title}", wanted.address());
            Some(Problem::new(ProblemCode::Invalid, title).advise(advice))
        });
        problems::together(refused)?;
        let reach = config.check_reach(&now.listening.addresses(&listeners));
        let mut warnings = reach.map_err(|problem| Box::new(problems::of_config(&problem)))?;
        warnings.extend(config.warnings.iter().cloned());
        objects.add_defaults(&config);

        let (settings, mut needs_restart) =
            plan::settings(&now.settings, &file_settings, &self.started_with);
        needs_restart.extend(listeners.needs_restart.iter().cloned());
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
            listeners: now.listening.steps(&listeners),
            settings,
            needs_restart,
            warnings: warnings.filter(|it| !old_warnings.contains(it)).collect(),
        };
        if let Wish::Put { id, .. } = wish
            && options.create
        {
            refuse_other(now, &objects::normal_id(id), &plan)?;
        }
        plan::add_secrets(&mut plan, &objects, (&now.config, &config));
        let open = |name: &str| {
            let volume = now.open.get(name)?;
            let source = source_of(&config, name)?;
            Some(plan::Open {
                size_bytes: volume.geometry().size_bytes(),
                read_only: volume.characteristics().read_only,
                grows: [BackendName::FILE, POOL].contains(&source.spec.backend),
            })
        };
        let sessions = self.sessions_of(&plan);
        let found = plan::check(
            &plan,
            &objects,
            (&now.config, &config),
            &sessions.all,
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
            listeners,
            sessions,
        })
    }

    /// Whether volumes could be opened that are to come, and have room. Opens nothing.
    fn survey(&self, now: &Now, config: &Config, plan: &Plan) -> Result<(), Refused> {
        let coming: Vec<VolumeSource> = coming(now, config, plan).cloned().collect();
        if coming.is_empty() {
            return Ok(());
        }
        self.weigh(config, &coming)?;
        let survey = move || {
            let problems = coming.iter().filter_map(unfit);
            problems.collect::<Vec<Problem>>()
        };
        let surveyed = self.helpers.within(self.storage_timeout(), survey);
        let found = surveyed.map_err(|error| error.refusal("the volumes cannot be looked at"))?;
        problems::together(found)
    }

    /// Whether new volumes that are memory have room.
    fn weigh(&self, config: &Config, coming: &[VolumeSource]) -> Result<(), Refused> {
        let is_memory = |source: &&VolumeSource| source.spec.backend == BackendName::MEM;
        let (Some(bounds), Some(first)) = (&self.process.memory, coming.iter().find(is_memory))
        else {
            return Ok(());
        };
        let sizes = config.enabled_volumes().filter(is_memory);
        let sizes = sizes.map(|source| source.spec.size.unwrap_or(0));
        let bytes = sizes.fold(0, u64::saturating_add);
        bounds.admit(bytes).map_err(|reason| {
            let name = &first.spec.name;
            let object = format!("volume {name}");
            let problem = Problem::new(ProblemCode::NoSpace, format!("{object}: {reason}"));
            Box::new(problem.about(object).advise(
                "make it smaller, or let the server start with it: then payload memory makes room (limits.memory)",
            ))
        })
    }

    /// Refuses to take away what sessions use.
    pub(super) fn refuse_in_use(
        &self,
        now: &Now,
        outlook: &Outlook,
        options: ChangeOptions,
    ) -> Result<(), Refused> {
        if options.force {
            return Ok(());
        }
        if options.drain {
            return refuse_to_move(now, outlook);
        }
        if !outlook.sessions.is_complete {
            let title = "an event loop does not answer, so it is not known what its sessions use";
            let problem = Problem::new(ProblemCode::Busy, title);
            return Err(Box::new(problem.advise(
                "try again in a moment, or make the change whatever is in use, with --drain",
            )));
        }
        let users = users(now, outlook);
        if users.is_empty() {
            return Ok(());
        }
        let title = format!("what would go is in use: {}", users.join("; "));
        let mut problem = Problem::new(ProblemCode::InUse, title);
        let going = outlook.plan.steps.iter();
        if let Some(step) = going.last() {
            problem = problem.about(&step.id);
        }
        Err(Box::new(problem.advise(
            "let go of it on the hosts first, or change it nevertheless with --drain",
        )))
    }

    /// The sessions that a change may concern.
    fn sessions_of(&self, plan: &Plan) -> Sessions {
        let takes = |step: &Step| !matches!(step.action, Action::Add | Action::Adopt);
        let listener_goes = |step: &ListenerStep| step.action == Action::Remove;
        match plan.steps.iter().any(takes) || plan.listeners.iter().any(listener_goes) {
            true => self.switch.sessions(),
            false => Sessions {
                all: Vec::new(),
                is_complete: true,
            },
        }
    }
}

/// Refuses to create what is there already and is another.
fn refuse_other(now: &Now, id: &ObjectId, plan: &Plan) -> Result<(), Refused> {
    if now.objects.get(id).is_none() || !plan.steps.iter().any(|step| step.id == *id) {
        return Ok(());
    }
    let problem = Problem::new(
        ProblemCode::Exists,
        format!("there is a {id} with other keys"),
    );
    let verb = match id.kind {
        ObjectKind::Volume => "volume",
        ObjectKind::Target | ObjectKind::Subsystem => "target",
        ObjectKind::Setting => "setting",
    };
    Err(Box::new(problem.about(id).advise(format!(
        "choose another name, or change it: longshore {verb} set"
    ))))
}

/// What speaks against opening a volume.
fn unfit(source: &VolumeSource) -> Option<Problem> {
    let survey = || crate::backends::backends().survey(&source.spec).err();
    let (reason, advice) = match held::refuses_volume(&source.spec) {
        Some((reason, advice)) => (reason, Some(advice)),
        None => (survey()?.to_string(), None),
    };
    let name = &source.spec.name;
    let title = format!("volume {name}: {reason}");
    let mut problem = Problem::new(ProblemCode::Invalid, title).about(format!("volume {name}"));
    problem.advice = advice;
    let at = source
        .location
        .as_ref()
        .filter(|_| source.owner == Owner::File);
    Some(match at {
        Some(at) => problem.at(format!("{}:{}", at.path.display(), at.line)),
        None => problem,
    })
}

/// Refuses to move a volume from the map of a session to another target or subsystem in one change: what the session has
/// under way could be written when hosts of the new map write already.
fn refuse_to_move(now: &Now, outlook: &Outlook) -> Result<(), Refused> {
    let sessions = &outlook.sessions.all;
    if sessions.is_empty() {
        return Ok(());
    }
    let (before, after) = (Views::of(&now.config), Views::of(&outlook.config));
    let arrivals = before.arrivals(&after);
    let moved = sessions.iter().find_map(|session| {
        let lost = before.lost(&after, session);
        let moved = lost.into_iter().find(|volume| arrivals.contains(volume))?;
        Some((session, moved))
    });
    let Some((session, volume)) = moved else {
        return Ok(());
    };
    let title = format!(
        "volume {volume} would move while {} (session {}) uses it: what that host has under way could be written after \
         the first writes of other hosts",
        session.peer_name, session.id
    );
    let problem = Problem::new(ProblemCode::InUse, title).about(format!("volume {volume}"));
    Err(Box::new(problem.advise(format!(
        "disable the volume first (`longshore volume disable {volume} --drain`), move it when it is closed, and enable it"
    ))))
}

/// Who uses what would go, one line each.
pub(super) fn users(now: &Now, outlook: &Outlook) -> Vec<String> {
    if outlook.plan.is_empty() {
        return Vec::new();
    }
    let sessions = &outlook.sessions.all;
    let mut users = plan::users((&now.config, &outlook.config), sessions);
    let lost = now.listening.groups_lost(&outlook.listeners);
    if lost.is_empty() {
        return users;
    }
    let targets = &outlook.config.targets;
    let through_them = |session: &&Session| {
        let name = |target: &&TargetConfig| target.name.as_str() == session.target;
        let groups = targets
            .iter()
            .find(name)
            .map(|target| &target.portal_groups);
        groups.is_some_and(|groups| groups.is_empty() || groups.iter().any(|it| lost.contains(it)))
    };
    let sessions = sessions.iter().filter(through_them);
    users.extend(sessions.map(|session| {
        format!(
            "{} (session {}) may have come by the last listener of portal group {}",
            session.peer_name, session.id, lost[0]
        )
    }));
    users
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

/// Volumes that are to be opened.
pub(super) fn coming<'a>(
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

pub(super) fn source_of<'a>(config: &'a Config, name: &str) -> Option<&'a VolumeSource> {
    config
        .volumes
        .iter()
        .find(|source| source.spec.name == name)
}

pub(super) fn check_revision(now: &Now, options: ChangeOptions) -> Result<(), Refused> {
    match options.revision {
        Some(expected) if expected != now.revision => {
            let title = format!(
                "the configuration is at revision {} and not at {} any more",
                now.revision.0, expected.0
            );
            let problem = Problem::new(ProblemCode::RevisionChanged, title);
            Err(Box::new(problem.advise(
                "plan the change again, against the revision of now",
            )))
        }
        _ => Ok(()),
    }
}
