//! What the API is asked for.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use longshore_api::change::{Caller, ChangeOptions, Plan, Revision, Wish};
use longshore_api::object::{Document, ObjectId, ObjectKind};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::Problem;
use longshore_api::state::Session;
use longshore_daemon::change::exports::OpenVolumes;
use longshore_daemon::change::plane::{Plane, Process};
use longshore_daemon::change::start::Start;
use longshore_daemon::change::switch::{
    Drain, Exports, Leaving, NotSwitched, Ready, Sessions, Switch,
};
use longshore_daemon::config::Arguments;
use longshore_daemon::config::file::ConfigFile;
use longshore_server::config::{ListenerChanges, TransmitConfig};
use longshore_server::{ListenerId, Resized};
use longshore_volume::VolumeError;

const FILE: &str = "[[volume]]\nname = \"f\"\nbackend = \"mem\"\nsize = \"1M\"\n";

/// A server that serves nothing: changes are only planned.
struct Idle;

impl Ready for Idle {
    fn listeners(&self) -> Vec<ListenerId> {
        Vec::new()
    }

    fn carry_out(self: Box<Self>, _: Drain) -> Result<Vec<(SocketAddr, String)>, NotSwitched> {
        Ok(Vec::new())
    }
}

impl Switch for Idle {
    fn prepare(&self, _: Exports, _: ListenerChanges) -> Result<Box<dyn Ready + '_>, NotSwitched> {
        Ok(Box::new(Self))
    }

    fn leaving(&self) -> Vec<Leaving> {
        Vec::new()
    }

    fn sessions(&self) -> Sessions {
        Sessions {
            all: vec![session()],
            is_complete: true,
        }
    }

    fn close_session(&self, _: &str) -> bool {
        false
    }

    fn refresh_volume(&self, _: &str) -> Option<Result<Option<Resized>, VolumeError>> {
        None
    }

    fn set_transmit(&self, _: TransmitConfig) {}
}

/// An initiator that uses what the API has exported.
fn session() -> Session {
    Session {
        id: "1".to_owned(),
        protocol: "iscsi".to_owned(),
        peer_name: "iqn.2026-11.com.example:host".to_owned(),
        addresses: Vec::new(),
        target: TARGET.to_owned(),
        connections: 1,
        since_ms: 0,
        volumes: vec!["a".to_owned()],
    }
}

const TARGET: &str = "iqn.2026-11.com.example:t";
const SECRETS: [&str; 2] = ["correct-horse-battery", "staple-of-another-kind"];

/// Objects of the API, with secrets, that are there before.
const OBJECTS: &str = r#"{
    "volumes": {
        "a": {"backend": "null", "size": "1M", "max-iops": 100},
        "b": {"backend": "null", "size": 2097152, "read-only": true, "enabled": false}
    },
    "targets": {
        "iqn.2026-11.com.example:t": {
            "luns": [{"lun": 0, "volume": "a"}, {"lun": 7, "volume": "f", "read-only": true}],
            "accounts": [{"user": "ann", "secret": "correct-horse-battery"}],
            "access": [{
                "initiators": ["iqn.2026-11.com.example:*"],
                "luns": [{"lun": 1, "volume": "a"}],
                "accounts": [{"user": "bob", "secret": "staple-of-another-kind"}]
            }]
        }
    },
    "subsystems": {
        "nqn.2026-11.com.example:s": {"namespaces": [{"nsid": 5, "volume": "a"}]}
    }
}"#;

thread_local! {
    static PLANE: OnceCell<Arc<Plane>> = const { OnceCell::new() };
    static SERVED: OnceCell<(Served, Document)> = const { OnceCell::new() };
}

/// A server whose state directory goes with it.
struct Served {
    plane: Arc<Plane>,
    _directory: longshore_tests::scratch::Scratch,
}

fn plane() -> Arc<Plane> {
    plane_in(None)
}

fn plane_in(state_directory: Option<&Path>) -> Arc<Plane> {
    let file = ConfigFile::parse(Path::new("longshore.toml"), FILE.to_owned()).expect("a file");
    let start = Start::read(Arguments::default(), Some(file), state_directory, true);
    let process = Process {
        state_directory: state_directory.map(Path::to_owned),
        ..Process::default()
    };
    Plane::new(
        start.expect("it is served"),
        OpenVolumes::new(),
        Box::new(Idle),
        process,
    )
}

/// A server with objects of the API, and these.
fn served() -> (Served, Document) {
    let directory = longshore_tests::scratch::Scratch::new("fuzz-change");
    let plane = plane_in(Some(directory.path()));
    let document: Document = serde_json::from_str(OBJECTS).expect("objects");
    let wish = Wish::Replace(document.clone());
    plane
        .apply(wish, ChangeOptions::default(), &caller())
        .unwrap_or_else(|problem| panic!("{problem}"));
    let served = Served {
        plane,
        _directory: directory,
    };
    (served, document)
}

fn caller() -> Caller {
    Caller {
        name: "uid 0".to_owned(),
        from: "fuzz".to_owned(),
    }
}

/// Objects of the API as JSON: planned together, and each alone; on an empty server, and beside objects that are there.
pub(crate) fn change_documents(data: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Document>(data) else {
        return;
    };
    let wishes = wishes(&document);
    let asked = serde_json::to_string(&document).expect("it was read");
    for wish in &wishes {
        let planned = PLANE.with(|cell| {
            let plane = cell.get_or_init(plane);
            plane.plan(wish, ChangeOptions::default())
        });
        show(planned, &asked);
    }
    SERVED.with(|cell| {
        let (Served { plane, .. }, before) = cell.get_or_init(served);
        let options = ChangeOptions {
            replace: data.len().is_multiple_of(2),
            drain: data.len().is_multiple_of(3),
            ..ChangeOptions::default()
        };
        for wish in &wishes {
            show(plane.plan(wish, options), &asked);
        }
        // What was planned stays a plan.
        assert_eq!(
            plane
                .plan(&Wish::Replace(before.clone()), options)
                .map(|plan| plan.is_empty()),
            Ok(true)
        );
    });
}

/// What a document can ask for.
fn wishes(document: &Document) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for kind in ObjectKind::ALL {
        for (name, keys) in document.of_kind(kind) {
            let id = || ObjectId {
                kind,
                name: name.clone(),
            };
            wishes.push(Wish::Put {
                id: id(),
                keys: keys.clone(),
            });
            wishes.push(Wish::Patch {
                id: id(),
                patch: keys.clone(),
            });
            wishes.push(Wish::Enable {
                id: id(),
                enabled: keys.len() % 2 == 0,
            });
            wishes.push(Wish::Remove { id: id() });
        }
    }
    wishes.push(Wish::Replace(document.clone()));
    let number = document.volumes.len();
    wishes.push(Wish::Rollback(Revision(u64::try_from(number).unwrap_or(0))));
    wishes
}

/// `asked` may name what is secret, anywhere.
fn show(planned: Result<Plan, Box<Problem>>, asked: &str) {
    let text = match planned {
        Ok(plan) => serde_json::to_string(&plan),
        Err(problem) => serde_json::to_string(&problem),
    };
    let text = text.expect("it can be told");
    for secret in SECRETS.iter().filter(|secret| !asked.contains(*secret)) {
        assert!(!text.contains(secret), "a secret is shown: {text}");
    }
}
