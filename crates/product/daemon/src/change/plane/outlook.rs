//! The state that could be next, checked before anything is touched.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_api::change::{Action, ChangeOptions, Plan, Step, Wish};
use longshore_api::object::{Keys, ObjectId, ObjectKind, Owner};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::state::Session;
use longshore_volume::BackendName;

use super::super::objects::{self, Described, Objects};
use super::super::plan;
use super::super::problems::{self, Refused};
use super::now::Now;
use super::parts::Plane;
use crate::config::file::ConfigFile;
use crate::config::target::UnknownVolumes;
use crate::config::warning::Warning;
use crate::config::{Config, Parts, VolumeSource};

/// A state that could be next.
pub(super) struct Outlook {
    pub(super) file: Option<Arc<ConfigFile>>,
    pub(super) settings: Arc<Keys>,
    pub(super) objects: Objects,
    pub(super) config: Config,
    pub(super) plan: Plan,
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
    pub(super) fn survey(&self, now: &Now, config: &Config, plan: &Plan) -> Result<(), Refused> {
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

    /// Refuses to take away what sessions use.
    pub(super) fn refuse_in_use(
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

    pub(super) fn users(&self, now: &Now, outlook: &Outlook) -> Vec<String> {
        if outlook.plan.is_empty() {
            return Vec::new();
        }
        plan::users(
            (&now.config, &outlook.config),
            &self.sessions_of(&outlook.plan),
        )
    }

    /// The sessions that a change may concern.
    pub(super) fn sessions_of(&self, plan: &Plan) -> Vec<Session> {
        let takes = |step: &Step| !matches!(step.action, Action::Add | Action::Adopt);
        match plan.steps.iter().any(takes) {
            true => self.switch.sessions(),
            false => Vec::new(),
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
    };
    Err(Box::new(problem.about(id).advise(format!(
        "choose another name, or change it: longshore {verb} set"
    ))))
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
