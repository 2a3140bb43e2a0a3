//! What the server starts with: the file, the command line, and the objects of the API that were stored.

use std::path::Path;
use std::sync::Arc;

use longshore_api::change::{Caller, Revision, RevisionInfo};
use longshore_api::object::{Document, Keys, ObjectId, ObjectKind};
use longshore_api::problem::Problem;

use super::locks::now_ms;
use super::objects::{self, Described, Objects};
use super::problems;
use super::store::{Others, Store, StoreError};
use crate::config::file::ConfigFile;
use crate::config::target::UnknownVolumes;
use crate::config::transmit::TransmitKeys;
use crate::config::{Arguments, Config, Parts};

/// The state at start.
pub struct Start {
    pub arguments: Arguments,
    pub file: Option<Arc<ConfigFile>>,
    /// Those of the file, outside of objects.
    pub settings: Arc<Keys>,
    pub objects: Objects,
    pub config: Config,
    pub revision: Revision,
    /// Where the API's objects are, if there are any or were.
    pub store: Option<Store>,
}

impl Start {
    /// Puts all together.
    ///
    /// `is_chosen`: somebody has named the state directory. Otherwise another server may have it already, and the API's
    /// objects are that server's.
    ///
    /// # Errors
    /// All problems.
    pub fn read(
        arguments: Arguments,
        file: Option<ConfigFile>,
        state_directory: Option<&Path>,
        is_chosen: bool,
    ) -> Result<Self, Box<Problem>> {
        let mut store =
            open_store(state_directory, is_chosen).map_err(|error| problems::of_store(&error))?;
        let newest = store.as_ref().map(Store::newest).transpose();
        let newest = newest
            .map_err(|error| problems::of_store(&error))?
            .flatten();
        let mut revision = newest
            .as_ref()
            .map_or(Revision(0), |(info, _)| info.revision);
        let document = newest.map(|(_, document)| document).unwrap_or_default();
        let file = file.map(Arc::new);
        if let Some(store) = &mut store {
            let others = others(&arguments, file.as_deref());
            let counted = count_start(store, &mut revision, &document, others);
            counted.map_err(|error| problems::of_store(&error))?;
        }
        let said = file.as_deref().map(objects::of_file).unwrap_or_default();
        let mut fixed = said.objects;
        fixed.extend(objects::of_arguments(&arguments));
        let mut api = Vec::new();
        for kind in ObjectKind::ALL {
            for (name, keys) in document.of_kind(kind) {
                let name = name.clone();
                let id = ObjectId { kind, name };
                let object = Described::of_api(&id, keys.clone())?;
                api.push((id, object));
            }
        }
        let mut objects = match objects::together(fixed, api) {
            Ok(objects) => objects,
            Err(found) => {
                problems::together(found)?;
                Objects::default()
            }
        };
        let sources = objects.sources();
        let config = Config::assemble_all(Parts {
            file: file.as_deref(),
            arguments: &arguments,
            objects: &sources,
            unknown: UnknownVolumes::LeftOut,
        });
        let config = match config {
            Ok(config) => config,
            Err(found) => {
                problems::together(found.iter().map(problems::of_config))?;
                unreachable!("a configuration is refused for a reason")
            }
        };
        objects.add_defaults(&config);
        Ok(Self {
            arguments,
            file,
            settings: said.settings,
            objects,
            config,
            revision,
            store,
        })
    }
}

/// What is beside the objects of the API.
pub(super) fn others(arguments: &Arguments, file: Option<&ConfigFile>) -> Others {
    let mut given = format!("{:?}", arguments.volumes);
    if arguments.transmit != TransmitKeys::default() {
        given += &format!("{:?}", arguments.transmit);
    }
    Others::of(file.map(|file| &*file.text), &given)
}

/// A file that was edited while no server ran makes another state, so it gets another number.
fn count_start(
    store: &mut Store,
    revision: &mut Revision,
    document: &Document,
    others: Others,
) -> Result<(), StoreError> {
    let known = store.others()?;
    if known.is_none_or(|known| known == others) {
        return Ok(());
    }
    *revision = Revision(revision.0 + 1);
    let info = RevisionInfo {
        revision: *revision,
        time_ms: now_ms(),
        caller: Caller {
            name: "start".to_owned(),
            from: "start".to_owned(),
        },
        steps: vec!["start with another file or command line".to_owned()],
    };
    store.commit(&info, document, others)
}

/// Opens what is stored. Nothing is created where nothing was stored.
fn open_store(
    state_directory: Option<&Path>,
    is_chosen: bool,
) -> Result<Option<Store>, StoreError> {
    let Some(directory) = state_directory.filter(|directory| Store::is_there(directory)) else {
        return Ok(None);
    };
    let opened = match is_chosen {
        true => Store::open(directory),
        false => Store::open_soon(directory),
    };
    match opened {
        Err(StoreError::Locked { path }) if !is_chosen => {
            tracing::warn!(
                "another server uses the objects of the API in {}: this one serves only its file and command line, \
                 and its API cannot change objects; name another directory with --state-dir",
                path.display()
            );
            Ok(None)
        }
        opened => opened.map(Some),
    }
}
