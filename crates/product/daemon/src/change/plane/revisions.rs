//! Revisions: what is stored before a change takes effect.

use longshore_api::change::{Revision, RevisionInfo};
use longshore_api::object::Document;
use longshore_api::problem::{Problem, ProblemCode};

use super::super::locks::locked;
use super::super::prepare::FileChanges;
use super::super::problems::{self, Refused};
use super::super::start::others;
use super::super::store::{Intent, Store};
use super::parts::Plane;
use crate::config::file::ConfigFile;

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

    /// The same for a change of the file's objects, which need no place: their revision is kept where there is one. Tells
    /// why it is not.
    pub(super) fn want_store(&self) -> Option<String> {
        let problem = self.need_store().err()?;
        Some(match &self.process.state_directory {
            None => "there is no state directory: revisions are not kept, and their numbers begin again at each start"
                .to_owned(),
            Some(_) => format!("the revision is not kept: {problem}"),
        })
    }

    pub(super) fn intend(&self, revision: Revision, changes: &FileChanges) -> Result<(), Refused> {
        let store = locked(&self.store);
        let Some(store) = &*store else { return Ok(()) };
        if changes.new.is_empty() && changes.grown.is_empty() {
            return Ok(());
        }
        let intent = Intent {
            revision: revision.0,
            files: changes.new.clone(),
            grown: changes.grown.clone(),
        };
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

    /// `file`: the one that is in force with it.
    pub(super) fn commit(
        &self,
        info: &RevisionInfo,
        document: &Document,
        file: Option<&ConfigFile>,
    ) -> Result<(), Refused> {
        let others = others(&self.arguments, file);
        match &mut *locked(&self.store) {
            Some(store) => store
                .commit(info, document, others)
                .map_err(|error| problems::of_store(&error)),
            None => Ok(()),
        }
    }
}
