//! Steps of a change that clients do not notice: volumes that are opened, files that are created. All of it can be
//! undone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_api::problem::{Problem, ProblemCode};
use longshore_volume::{BackendName, MachineId, Volume, VolumeSpec};
use uuid::Uuid;

use super::growth::{GrownFile, Growth, shrink_all_back};
use super::step;
use super::store::{NewFile, remove_unused};
use crate::backends::backends;
use crate::config::VolumeSource;
use crate::machine;
use crate::opening::log_opened;
use crate::pools::{self, MadeVolume, NewSettings, SetVolume};

/// Volumes that were opened for a change. Files that were created or made longer for it are as before again unless they
/// are [kept](Self::keep).
#[derive(Default)]
pub(super) struct Prepared {
    volumes: Vec<(String, Arc<dyn Volume>)>,
    created: Vec<NewFile>,
    grown: Vec<GrownFile>,
    made: Vec<MadeVolume>,
    set: Vec<SetVolume>,
}

/// What is to be prepared.
pub(super) struct Preparation {
    /// Volumes to be opened.
    pub sources: Vec<VolumeSource>,
    /// Volumes that are open and are to be larger.
    pub growths: Vec<Growth>,
    /// Volumes of pools that are open and get other settings.
    pub settings: Vec<NewSettings>,
    /// The identities of the volumes that stay open.
    pub known: HashMap<Uuid, String>,
    pub state_directory: Option<PathBuf>,
}

/// What preparing does to files.
#[derive(Default)]
pub(super) struct FileChanges {
    pub new: Vec<NewFile>,
    pub grown: Vec<GrownFile>,
}

impl Preparation {
    /// What it would do to files. May block.
    ///
    /// # Errors
    /// Why a volume cannot grow.
    pub(super) fn file_changes(&self) -> Result<FileChanges, Box<Problem>> {
        let mut grown = Vec::new();
        for growth in &self.growths {
            let planned = growth
                .plan()
                .map_err(|reason| cannot_grow(growth, &reason))?;
            grown.extend(planned);
        }
        let new = new_files(self.sources.iter());
        Ok(FileChanges { new, grown })
    }
}

fn cannot_grow(growth: &Growth, reason: &str) -> Box<Problem> {
    let object = format!("volume {}", growth.name);
    let title = format!("{object}: it cannot grow: {reason}");
    Box::new(Problem::new(ProblemCode::System, title).about(object))
}

/// The files that opening these volumes creates.
fn new_files<'a>(sources: impl Iterator<Item = &'a VolumeSource>) -> Vec<NewFile> {
    let specs = sources.map(|source| &source.spec);
    let creates = specs.filter(|spec| spec.backend == BackendName::FILE);
    let files = creates.filter_map(|spec| {
        let (path, size) = (spec.path.as_ref()?, spec.size?);
        let path = std::path::absolute(path).ok()?;
        let is_new = path.symlink_metadata().is_err();
        is_new.then_some(NewFile { path, size })
    });
    files.collect()
}

impl Prepared {
    /// Opens volumes, and makes files longer. May block.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be had. None is open then.
    pub(super) fn open(
        preparation: Preparation,
        grown: &[GrownFile],
    ) -> Result<Self, Box<Problem>> {
        let Preparation {
            sources,
            settings,
            mut known,
            state_directory,
            ..
        } = preparation;
        let mut prepared = Self::default();
        let specs = sources.iter().map(|source| &source.spec);
        let machine = machine::settle(specs, state_directory.as_deref())
            .map_err(|error| Box::new(Problem::new(ProblemCode::Invalid, error.to_string())))?;
        for source in &sources {
            prepared.add(source, machine.as_ref(), &mut known)?;
            step!("opened");
        }
        for file in grown {
            prepared.grown.push(file.clone());
            file.grow().map_err(|error| {
                let path = file.path.display();
                let title = format!("{path} cannot grow to {} bytes: {error}", file.size);
                Box::new(Problem::new(ProblemCode::System, title))
            })?;
            step!("grown");
        }
        for new in &settings {
            let set = new.apply().map_err(|error| {
                let about = format!("volume {}", new.name);
                Box::new(pools::problem(&new.name, &error).about(about))
            })?;
            prepared.set.extend(set);
        }
        Ok(prepared)
    }

    fn add(
        &mut self,
        source: &VolumeSource,
        machine: Option<&MachineId>,
        known: &mut HashMap<Uuid, String>,
    ) -> Result<(), Box<Problem>> {
        let name = &source.spec.name;
        let refused = |title: String| {
            let mut problem =
                Problem::new(ProblemCode::Invalid, title).about(format!("volume {name}"));
            if let Some(at) = source
                .location
                .as_ref()
                .filter(|at| !at.path.starts_with("api:"))
            {
                problem = problem.at(format!("{}:{}", at.path.display(), at.line));
            }
            problem
        };
        let spec = VolumeSpec {
            machine_id: machine.cloned(),
            ..source.spec.clone()
        };
        let opened = backends()
            .open(&spec)
            .map_err(|error| Box::new(refused(format!("volume {name}: {error}"))))?;
        if opened.created
            && let (Some(path), Some(size)) = (&spec.path, spec.size)
        {
            let path = path.clone();
            self.created.push(NewFile { path, size });
        }
        if opened.created {
            self.made.extend(MadeVolume::of(&spec));
        }
        let volume = opened.volume;
        log_opened(source, volume.as_ref());
        let uuid = volume.identity().uuid;
        self.volumes.push((name.clone(), volume));
        match known.insert(uuid, name.clone()) {
            Some(other) => {
                let title =
                    format!("volume {name} has the identity of volume {other}: UUID {uuid}");
                let advice = "give one of them another uuid: hosts would take both for one disk";
                Err(Box::new(refused(title).advise(advice)))
            }
            None => Ok(()),
        }
    }

    /// The change came about. Returns the volumes.
    pub(super) fn keep(&mut self) -> Vec<(String, Arc<dyn Volume>)> {
        self.created.clear();
        self.grown.clear();
        self.made.clear();
        self.set.clear();
        std::mem::take(&mut self.volumes)
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = (String, Arc<dyn Volume>)> + '_ {
        self.volumes.iter().cloned()
    }
}

impl Drop for Prepared {
    /// While the volumes are open nobody else uses their files.
    fn drop(&mut self) {
        shrink_all_back(&std::mem::take(&mut self.grown));
        self.created.drain(..).for_each(|file| remove_unused(&file));
        self.set.drain(..).for_each(|set| set.undo());
        let made = std::mem::take(&mut self.made);
        if !made.is_empty() {
            // Volumes that are open cannot be deleted.
            self.volumes.clear();
            made.iter().for_each(MadeVolume::delete);
        }
    }
}
