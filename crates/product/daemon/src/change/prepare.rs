//! Steps of a change that clients do not notice: volumes that are opened, files that are created. All of it can be
//! undone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use longshore_api::problem::{Problem, ProblemCode};
use longshore_volume::{BackendName, MachineId, Volume, VolumeSpec};
use uuid::Uuid;

use super::exports::OpenVolumes;
use super::step;
use super::store::{NewFile, remove_unused};
use crate::backends::backends;
use crate::config::VolumeSource;
use crate::machine;
use crate::opening::log_opened;

/// Volumes that were opened for a change. Files that were created for it are removed again unless they are
/// [kept](Self::keep).
#[derive(Default)]
pub(super) struct Prepared {
    volumes: Vec<(String, Arc<dyn Volume>)>,
    created: Vec<NewFile>,
}

/// The files that opening these volumes creates.
pub(super) fn new_files<'a>(sources: impl Iterator<Item = &'a VolumeSource>) -> Vec<NewFile> {
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
    /// Opens volumes. `others` stay open beside them.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be opened. None is open then.
    pub(super) fn open(
        sources: &[&VolumeSource],
        others: &OpenVolumes,
        state_directory: Option<&Path>,
    ) -> Result<Self, Box<Problem>> {
        let mut prepared = Self::default();
        let specs = sources.iter().map(|source| &source.spec);
        let machine = machine::settle(specs, state_directory)
            .map_err(|error| Box::new(Problem::new(ProblemCode::Invalid, error.to_string())))?;
        let mut known: HashMap<Uuid, String> = others
            .iter()
            .map(|(name, volume)| (volume.identity().uuid, name.clone()))
            .collect();
        for source in sources {
            prepared.add(source, machine.as_ref(), &mut known)?;
            step!("opened");
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
        std::mem::take(&mut self.volumes)
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = (String, Arc<dyn Volume>)> + '_ {
        self.volumes.iter().cloned()
    }
}

impl Drop for Prepared {
    /// While the volumes are open nobody else uses their files.
    fn drop(&mut self) {
        self.created.drain(..).for_each(|file| remove_unused(&file));
    }
}
