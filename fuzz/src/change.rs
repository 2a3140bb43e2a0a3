//! What the API is asked for.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use longshore_api::change::{ChangeOptions, Plan, Wish};
use longshore_api::object::{Document, ObjectId, ObjectKind};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::Problem;
use longshore_api::state::Session;
use longshore_daemon::change::exports::OpenVolumes;
use longshore_daemon::change::plane::{Plane, Process};
use longshore_daemon::change::start::Start;
use longshore_daemon::change::switch::{Drain, Exports, Leaving, NotSwitched, Switch};
use longshore_daemon::config::Arguments;
use longshore_daemon::config::file::ConfigFile;
use longshore_server::Resized;
use longshore_server::config::TransmitConfig;
use longshore_volume::VolumeError;

const FILE: &str = "[[volume]]\nname = \"f\"\nbackend = \"mem\"\nsize = \"1M\"\n";

/// A server that serves nothing: changes are only planned.
struct Idle;

impl Switch for Idle {
    fn switch(&self, _: Exports, _: Drain) -> Result<(), NotSwitched> {
        Ok(())
    }

    fn leaving(&self) -> Vec<Leaving> {
        Vec::new()
    }

    fn sessions(&self) -> Vec<Session> {
        Vec::new()
    }

    fn close_session(&self, _: &str) -> bool {
        false
    }

    fn refresh_volumes(&self) -> Vec<(String, Result<Option<Resized>, VolumeError>)> {
        Vec::new()
    }

    fn set_transmit(&self, _: TransmitConfig) {}
}

thread_local! {
    static PLANE: OnceCell<Arc<Plane>> = const { OnceCell::new() };
}

fn plane() -> Arc<Plane> {
    let file = ConfigFile::parse(Path::new("longshore.toml"), FILE.to_owned()).expect("a file");
    let start = Start::read(Arguments::default(), Some(file), None, false).expect("it is served");
    Plane::new(
        start,
        OpenVolumes::new(),
        Box::new(Idle),
        Process::default(),
    )
}

/// Objects of the API as JSON: planned together, and each alone.
pub(crate) fn change_documents(data: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Document>(data) else {
        return;
    };
    let plan = |wish: &Wish| {
        PLANE.with(|cell| cell.get_or_init(plane).plan(wish, ChangeOptions::default()))
    };
    for kind in ObjectKind::ALL {
        for (name, keys) in document.of_kind(kind) {
            let id = ObjectId {
                kind,
                name: name.clone(),
            };
            let (put, patch) = (id.clone(), id);
            show(plan(&Wish::Put {
                id: put,
                keys: keys.clone(),
            }));
            show(plan(&Wish::Patch {
                id: patch,
                patch: keys.clone(),
            }));
        }
    }
    show(plan(&Wish::Replace(document)));
}

fn show(planned: Result<Plan, Box<Problem>>) {
    let text = match planned {
        Ok(plan) => serde_json::to_string(&plan),
        Err(problem) => serde_json::to_string(&problem),
    };
    drop(text.expect("it can be told"));
}
