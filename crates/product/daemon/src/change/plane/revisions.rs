//! Revisions: what is stored before a change takes effect.

use longshore_api::change::{Revision, RevisionInfo};
use longshore_api::object::Document;
use longshore_api::problem::{Problem, ProblemCode};

use super::super::prepare::new_files;
use super::super::problems::{self, Refused};
use super::super::store::{Intent, Store};
use super::locks::locked;
use super::parts::Plane;
use crate::config::VolumeSource;

impl Plane {
    /// The objects of the API at a revision, with their secrets.
    pub(super) fn stored(&self, revision: Revision) -> Result<Document, Refused> {
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

    /// Makes a place for the objects of the API if there is none yet.
    pub(super) fn need_store(&self) -> Result<(), Refused> {
        let mut store = locked(&self.store);
        if store.is_some() {
            return Ok(());
        }
        let Some(directory) = &self.process.state_directory else {
            let title = "there is no state directory, so what the API changes could not be stored";
            let problem = Problem::new(ProblemCode::NoStateDirectory, title);
            return Err(Box::new(problem.advise(
                "start the server with --state-dir DIRECTORY, or describe the object in its configuration file",
            )));
        };
        if Store::is_there(directory) {
            // It was there at start, and another server's. That server may have ended; what it has stored was not read.
            let title = format!(
                "another server has the objects of the API in {}, or had them when this one started",
                Store::place(directory).display()
            );
            let problem = Problem::new(ProblemCode::Unavailable, title);
            return Err(Box::new(problem.advise(
                "restart this server, with another directory by --state-dir if the other server goes on",
            )));
        }
        *store = Some(Store::open(directory).map_err(|error| problems::of_store(&error))?);
        Ok(())
    }

    pub(super) fn intend(
        &self,
        revision: Revision,
        sources: &[&VolumeSource],
    ) -> Result<(), Refused> {
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

    pub(super) fn forget_intent(&self) {
        if let Some(store) = &*locked(&self.store)
            && let Err(error) = store.forget_intent()
        {
            tracing::warn!("{error}");
        }
    }

    pub(super) fn commit(&self, info: &RevisionInfo, document: &Document) -> Result<(), Refused> {
        match &mut *locked(&self.store) {
            Some(store) => store
                .commit(info, document)
                .map_err(|error| problems::of_store(&error)),
            None => Ok(()),
        }
    }
}
