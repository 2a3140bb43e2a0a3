//! Changes on a server that only remembers what it was told.

mod crashes;

use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_api::change::{Applied, Caller, ChangeOptions, Plan, Revision, Wish};
use longshore_api::object::{Document, Keys, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::record::{Intent, Record};
use longshore_api::state::Session;
use longshore_server::config::{ListenerChanges, TransmitConfig};
use longshore_server::{ListenerId, Resized};
use longshore_volume::{Volume, VolumeError};
use serde_json::{Value, json};

use super::exports::{OpenVolumes, exports};
use super::plane::{Plane, Process};
use super::start::Start;
use super::switch::{
    Closed, Drain, Exports, Leaving, NotSwitched, Ready, Sessions, Switch, WaitsFor,
};
use crate::backends::backends;
use crate::config::Arguments;
use crate::config::file::ConfigFile;
use crate::memory::Bounds;

const TARGET: &str = "iqn.2026-11.com.example:t";
const HOST: &str = "iqn.2026-11.com.example:host";

/// A server that exports what it is told, and closes volumes at once or when told to.
#[derive(Default)]
struct Fake {
    exports: Mutex<Option<Exports>>,
    sessions: Mutex<Vec<Session>>,
    /// An event loop does not answer.
    is_busy: AtomicBool,
    /// Refuses to prepare.
    refuses: AtomicBool,
    /// Refuses what it has prepared.
    fails: AtomicBool,
    /// The volume that does not tell its size.
    hangs: Mutex<Option<String>>,
    record: Mutex<Vec<String>>,
    holds: AtomicBool,
    /// The storage of volumes that leave does not answer.
    is_stuck: AtomicBool,
    leaving: Mutex<Vec<Leaver>>,
}

type Leaver = (String, Arc<dyn Fn(Closed) + Send + Sync>);

impl Fake {
    /// The exports in short: volumes, then maps.
    fn shown(&self) -> Vec<String> {
        let exports = self.exports.lock().unwrap();
        let Some(exports) = &*exports else {
            return Vec::new();
        };
        let name = |volume: usize| exports.volumes[volume].identity().name.clone();
        let mut shown: Vec<String> = (0..exports.volumes.len()).map(name).collect();
        for target in &exports.targets {
            for entry in target.maps().flatten() {
                let mode = if entry.read_only { " ro" } else { "" };
                let (lun, volume) = (entry.lun, name(entry.volume));
                shown.push(format!("{} {lun}={volume}{mode}", target.name.as_str()));
            }
        }
        shown
    }

    fn note(&self, line: String) {
        self.record.lock().unwrap().push(line);
    }

    /// Whether a line of the record contains this.
    fn has(&self, text: &str) -> bool {
        let record = self.record.lock().unwrap();
        record.iter().any(|line| line.contains(text))
    }

    fn let_go(&self) {
        self.close_all(None);
    }

    fn close_all(&self, failure: Option<&str>) {
        for (volume, on_closed) in self.leaving.lock().unwrap().drain(..) {
            on_closed(Closed {
                volume,
                failure: failure.map(str::to_owned),
            });
        }
    }
}

struct Handle(Arc<Fake>);

struct Next<'a> {
    fake: &'a Fake,
    exports: Exports,
}

impl Ready for Next<'_> {
    fn listeners(&self) -> Vec<ListenerId> {
        Vec::new()
    }

    fn carry_out(self: Box<Self>, drain: Drain) -> Result<Vec<(SocketAddr, String)>, NotSwitched> {
        let fake = self.fake;
        if fake.fails.load(Ordering::Relaxed) {
            return Err(NotSwitched::Refused("no".to_owned()));
        }
        let mut exports = fake.exports.lock().unwrap();
        let before = exports.replace(self.exports);
        let exports = exports.as_ref().unwrap();
        let address = |volume: &Arc<dyn Volume>| Arc::as_ptr(volume).cast::<()>();
        let kept: HashSet<*const ()> = exports.volumes.iter().map(address).collect();
        for volume in before.into_iter().flat_map(|exports| exports.volumes) {
            if !kept.contains(&address(&volume)) {
                let name = volume.identity().name.clone();
                let on_closed = Arc::clone(&drain.on_closed);
                fake.leaving.lock().unwrap().push((name, on_closed));
            }
        }
        if !fake.holds.load(Ordering::Relaxed) {
            fake.let_go();
        }
        Ok(Vec::new())
    }
}

impl Record for Handle {
    fn intend(
        &self,
        caller: &Caller,
        _: Revision,
        steps: &[String],
    ) -> std::io::Result<Box<dyn Intent>> {
        let fake = Arc::clone(&self.0);
        let begun = format!("{}: {}", caller.name, steps.join(", "));
        Ok(Box::new(Intended { fake, begun }))
    }

    fn tell(&self, topic: &str, message: &str, _: Value) {
        self.0.note(format!("{topic}: {message}"));
    }
}

struct Intended {
    fake: Arc<Fake>,
    begun: String,
}

impl Intent for Intended {
    fn end(self: Box<Self>, outcome: Result<Revision, &Problem>) {
        let outcome = match outcome {
            Ok(revision) => format!("revision {}", revision.0),
            Err(problem) => format!("refused: {}", problem.title),
        };
        self.fake.note(format!("{}: {outcome}", self.begun));
    }
}

impl Switch for Handle {
    fn prepare(
        &self,
        exports: Exports,
        _: ListenerChanges,
    ) -> Result<Box<dyn Ready + '_>, NotSwitched> {
        if self.0.refuses.load(Ordering::Relaxed) {
            return Err(NotSwitched::Refused("no".to_owned()));
        }
        let fake = &*self.0;
        Ok(Box::new(Next { fake, exports }))
    }

    fn leaving(&self) -> Vec<Leaving> {
        let leaving = self.0.leaving.lock().unwrap();
        let leaving = leaving.iter().map(|(volume, _)| Leaving {
            volume: volume.clone(),
            waits_for: WaitsFor::Flush,
            stuck: self.0.is_stuck.load(Ordering::Relaxed),
        });
        leaving.collect()
    }

    fn sessions(&self) -> Sessions {
        Sessions {
            all: self.0.sessions.lock().unwrap().clone(),
            is_complete: !self.0.is_busy.load(Ordering::Relaxed),
        }
    }

    fn close_session(&self, id: &str) -> bool {
        let mut sessions = self.0.sessions.lock().unwrap();
        let before = sessions.len();
        sessions.retain(|session| session.id != id);
        sessions.len() != before
    }

    fn refresh_volume(&self, name: &str) -> Option<Result<Option<Resized>, VolumeError>> {
        while self.0.hangs.lock().unwrap().as_deref() == Some(name) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let exports = self.0.exports.lock().unwrap();
        let volumes = &exports.as_ref()?.volumes;
        let volume = volumes.iter().find(|it| it.identity().name == name)?;
        Some(volume.refresh_geometry().map(|_| None))
    }

    fn set_transmit(&self, _: TransmitConfig) {}
}

/// A server in a directory of its own, with its state and a file there.
struct Scene {
    directory: PathBuf,
    /// Removes the directory in the end.
    #[allow(dead_code)]
    scratch: Option<tempfile::TempDir>,
    arguments: Vec<String>,
    storage_timeout: Option<Duration>,
    memory: Option<Bounds>,
    fake: Arc<Fake>,
    plane: Option<Arc<Plane>>,
}

impl Scene {
    fn new(file: &str) -> Self {
        Self::with_arguments(file, &[])
    }

    fn with_arguments(file: &str, arguments: &[&str]) -> Self {
        let mut scene = Self::prepared(file, arguments);
        scene.start().unwrap();
        scene
    }

    fn prepared(file: &str, arguments: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let mut scene = Self::at(scratch.path());
        scene.arguments = arguments.iter().map(|it| (*it).to_owned()).collect();
        scene.scratch = Some(scratch);
        scene.write(file);
        scene
    }

    /// In a directory that may have been used before.
    fn at(directory: &Path) -> Self {
        std::fs::create_dir_all(directory.join("state")).unwrap();
        Self {
            directory: directory.to_owned(),
            scratch: None,
            arguments: Vec::new(),
            storage_timeout: None,
            memory: None,
            fake: Arc::default(),
            plane: None,
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn write(&self, file: &str) {
        std::fs::write(self.path("x.toml"), file).unwrap();
    }

    /// Starts, or starts again.
    fn start(&mut self) -> Result<(), Box<Problem>> {
        self.plane = None;
        self.fake = Arc::default();
        let state = self.directory.join("state");
        let arguments = Arguments {
            volumes: self
                .arguments
                .iter()
                .map(|it| it.parse().unwrap())
                .collect(),
            ..Arguments::default()
        };
        let file = ConfigFile::load(Path::new(&self.path("x.toml"))).unwrap();
        let start = Start::read(arguments, Some(file), Some(&state), true)?;
        let mut open = OpenVolumes::new();
        for source in start.config.enabled_volumes() {
            let opened = backends().open(&source.spec).unwrap();
            open.insert(source.spec.name.clone(), opened.volume);
        }
        *self.fake.exports.lock().unwrap() = Some(exports(&start.config, &open));
        let process = Process {
            state_directory: Some(state),
            drain_timeout: Duration::from_secs(1),
            storage_timeout: self.storage_timeout,
            memory: self.memory.clone(),
            ..Process::default()
        };
        let switch = Box::new(Handle(Arc::clone(&self.fake)));
        let plane = Plane::new(start, open, switch, process);
        plane.set_record(Arc::new(Handle(Arc::clone(&self.fake))));
        self.plane = Some(plane);
        Ok(())
    }

    fn plane(&self) -> &Plane {
        self.plane.as_ref().unwrap()
    }

    fn revision(&self) -> u64 {
        self.plane().status().revision.0
    }

    fn apply(&self, wish: Wish) -> Result<Applied, Box<Problem>> {
        self.apply_with(wish, ChangeOptions::default())
    }

    fn apply_with(&self, wish: Wish, options: ChangeOptions) -> Result<Applied, Box<Problem>> {
        let caller = Caller {
            name: "uid 1000".to_owned(),
            from: "test".to_owned(),
        };
        self.plane().apply(wish, options, &caller)
    }

    fn plan(&self, wish: &Wish) -> Result<Plan, Box<Problem>> {
        self.plane().plan(wish, ChangeOptions::default())
    }

    /// A session of `HOST` with the target.
    fn log_in(&self, target: &str) {
        self.fake.sessions.lock().unwrap().push(Session {
            id: "1".to_owned(),
            protocol: "iscsi".to_owned(),
            peer_name: HOST.to_owned(),
            addresses: Vec::new(),
            target: target.to_owned(),
            connections: 1,
            since_ms: 0,
            volumes: Vec::new(),
        });
    }

    fn state_of(&self, volume: &str) -> Option<ObjectState> {
        let volumes = self.plane().objects(ObjectKind::Volume);
        let found = volumes.iter().find(|object| object.id.name == volume);
        found.map(|object| object.state)
    }
}

fn keys(value: Value) -> Keys {
    match value {
        Value::Object(keys) => keys,
        other => panic!("{other} is no object"),
    }
}

fn volume(name: &str) -> ObjectId {
    ObjectId {
        kind: ObjectKind::Volume,
        name: name.to_owned(),
    }
}

fn target(name: &str) -> ObjectId {
    ObjectId {
        kind: ObjectKind::Target,
        name: name.to_owned(),
    }
}

fn put(id: ObjectId, value: Value) -> Wish {
    let keys = keys(value);
    Wish::Put { id, keys }
}

fn mem(name: &str) -> Wish {
    put(volume(name), json!({"backend": "mem", "size": "1M"}))
}

fn map(luns: Value) -> Wish {
    put(target(TARGET), json!({ "luns": luns }))
}

const DRAIN: ChangeOptions = ChangeOptions {
    revision: None,
    drain: true,
    force: false,
    replace: false,
    create: false,
};

#[test]
fn objects_come_are_mapped_and_go_and_a_restart_finds_them_again() {
    let mut scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    let applied = scene
        .apply(map(json!([{"lun": 3, "volume": "a"}])))
        .unwrap();
    assert_eq!(applied.revision, Revision(2));
    let served = ["a", &format!("{TARGET} 3=a")];
    assert_eq!(scene.fake.shown(), served);

    scene.start().unwrap();
    assert_eq!(
        (scene.revision(), scene.fake.shown()),
        (2, served.map(str::to_owned).to_vec())
    );
    let (_, document) = scene.plane().document(Some(Owner::Api));
    assert_eq!(document.volumes["a"]["size"], "1M");

    scene.apply(Wish::Remove { id: volume("a") }).unwrap();
    assert!(scene.fake.shown().is_empty(), "its maps go with it");
    scene.start().unwrap();
    assert!(scene.fake.shown().is_empty());
    assert_eq!(scene.plane().objects(ObjectKind::Volume), []);
}

#[test]
fn a_change_that_is_there_already_makes_no_revision() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    for _ in 0..100 {
        let again = put(volume("a"), json!({"backend": "mem", "size": 1_048_576}));
        let applied = scene.apply(again).unwrap();
        assert!(applied.plan.is_empty());
        assert_eq!(applied.revision, Revision(1));
    }
    let (_, document) = scene.plane().document(None);
    assert!(scene.plan(&Wish::Replace(document)).unwrap().is_empty());
}

#[test]
fn a_plan_says_what_would_be_done_and_does_nothing() {
    let scene = Scene::new("");
    let path = scene.path("a.img");
    let wish = put(
        volume("a"),
        json!({"backend": "file", "path": path, "size": "1M"}),
    );
    let plan = scene.plan(&wish).unwrap();
    assert_eq!(plan.lines(), ["add volume a"]);
    assert_eq!(plan.revision, Some(Revision(0)));
    assert!(!Path::new(&path).exists() && scene.fake.shown().is_empty());
    scene.apply(wish).unwrap();
    assert!(Path::new(&path).exists());
}

#[test]
fn volumes_come_before_maps_and_maps_go_before_volumes() {
    let scene = Scene::new("");
    scene.apply(mem("old")).unwrap();
    scene
        .apply(map(json!([{"lun": 0, "volume": "old"}])))
        .unwrap();
    let mut document = Document::default();
    document.volumes.insert(
        "new".to_owned(),
        keys(json!({"backend": "mem", "size": "1M"})),
    );
    let other = "iqn.2026-11.com.example:other";
    document.targets.insert(
        other.to_owned(),
        keys(json!({"luns": [{"lun": 0, "volume": "new"}]})),
    );
    let plan = scene.plan(&Wish::Replace(document)).unwrap();
    assert_eq!(
        plan.lines(),
        [
            "add volume new".to_owned(),
            format!("add target {other}"),
            format!("remove target {TARGET}"),
            "remove volume old".to_owned(),
        ]
    );
}

#[test]
fn objects_of_the_file_belong_to_the_file() {
    let scene = Scene::new("[[volume]]\nname = \"f\"\nbackend = \"mem\"\nsize = \"1M\"\n");
    for wish in [
        mem("f"),
        Wish::Remove { id: volume("f") },
        Wish::Enable {
            id: volume("f"),
            enabled: false,
        },
    ] {
        let refused = scene.apply(wish).unwrap_err();
        assert_eq!(refused.code, ProblemCode::OtherOwner);
        let location = refused.location.unwrap();
        assert!(location.ends_with("x.toml:2"), "{location}");
    }
    let command_line = Scene::with_arguments("", &["c,backend=mem,size=1M"]);
    let refused = command_line.apply(mem("c")).unwrap_err();
    assert!(refused.title.contains("command line"), "{refused}");
}

#[test]
fn one_name_with_two_owners_is_refused_at_start_and_both_places_are_named() {
    let mut scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene.write("[[volume]]\nname = \"a\"\nbackend = \"mem\"\nsize = \"2M\"\n");
    let refused = scene.start().unwrap_err().to_string();
    assert!(
        refused.contains("x.toml:2") && refused.contains("the API"),
        "{refused}"
    );
}

#[test]
fn an_equal_object_of_the_api_becomes_the_files() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene.write("[[volume]]\nname = \"a\"\nbackend = \"mem\"\nsize = 1048576\n");
    let before = scene.fake.exports.lock().unwrap().as_ref().unwrap().volumes[0].clone();
    let applied = scene.apply(Wish::ReadFile).unwrap();
    assert_eq!(applied.plan.lines()[0], "adopt volume a");
    let after = scene.fake.exports.lock().unwrap().as_ref().unwrap().volumes[0].clone();
    assert!(Arc::ptr_eq(&before, &after), "it stays open");
    assert_eq!(
        scene.plane().document(Some(Owner::Api)).1,
        Document::default()
    );
    assert_eq!(
        scene.apply(mem("a")).unwrap_err().code,
        ProblemCode::OtherOwner
    );
}

#[test]
fn a_file_that_is_read_again_changes_its_own_objects_alone() {
    let file = |volumes: &[&str]| {
        let tables = volumes.iter();
        let tables = tables.map(|name| {
            format!("[[volume]]\nname = \"{name}\"\nbackend = \"mem\"\nsize = \"1M\"\n")
        });
        tables.collect::<String>()
    };
    let scene = Scene::new(&file(&["f"]));
    scene.apply(mem("a")).unwrap();
    scene.write(&format!("{}[engine]\ncores = \"0\"\n", file(&["f", "g"])));
    let applied = scene.apply(Wish::ReadFile).unwrap();
    assert_eq!(applied.plan.lines()[0], "add volume g");
    assert_eq!(applied.plan.needs_restart, ["engine.cores"]);
    assert_eq!(scene.plane().status().needs_restart, ["engine.cores"]);
    let default = "iqn.2026-11.local.longshore:default";
    let served = ["f".to_owned(), "g".to_owned(), "a".to_owned()];
    let maps = [format!("{default} 0=f"), format!("{default} 1=g")];
    assert_eq!(scene.fake.shown(), [&served[..], &maps].concat());

    scene.write("[[volume]]\nname = \"f\"\n[[target]]\nname = \"x\"\n");
    let refused = scene.apply(Wish::ReadFile).unwrap_err();
    assert_eq!(refused.further.len(), 1, "all problems: {refused}");
    assert!(refused.location.unwrap().contains("x.toml:2:8"));
    assert_eq!(scene.fake.shown(), [&served[..], &maps].concat());

    // A volume in front of others would give their numbers to others.
    scene.log_in(default);
    scene.write(&file(&["new", "f", "g"]));
    let refused = scene.apply(Wish::ReadFile).unwrap_err().to_string();
    assert!(
        refused.contains("number 0 would change from volume f to new"),
        "{refused}"
    );
}

#[test]
fn a_flush_that_failed_belongs_to_the_change_that_took_the_volume_away() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene.apply(mem("b")).unwrap();
    scene.fake.holds.store(true, Ordering::Relaxed);
    let remove = |name: &str| scene.apply(Wish::Remove { id: volume(name) }).unwrap();
    let first = remove("a");
    assert_eq!(first.draining, ["a"]);
    assert!(scene.plane().failed_flushes(first.revision).is_empty());
    scene.fake.close_all(Some("no space left"));
    let second = remove("b");
    scene.fake.let_go();
    let failed = scene.plane().failed_flushes(first.revision);
    assert_eq!(failed.get("a").map(String::as_str), Some("no space left"));
    assert!(scene.plane().failed_flushes(second.revision).is_empty());
}

#[test]
fn creating_what_is_there_changes_nothing_and_is_refused_for_other_keys() {
    let scene = Scene::new("");
    let create = |keys: Value| {
        let options = ChangeOptions {
            create: true,
            ..ChangeOptions::default()
        };
        scene.apply_with(put(volume("a"), keys), options)
    };
    let keys = json!({"backend": "mem", "size": "1M"});
    assert_eq!(create(keys.clone()).unwrap().revision, Revision(1));
    // As one who has not heard of the first answer asks again.
    assert_eq!(create(keys).unwrap().revision, Revision(1));
    let other = create(json!({"backend": "mem", "size": "2M"})).unwrap_err();
    assert_eq!(other.code, ProblemCode::Exists);
    assert_eq!(other.object.as_deref(), Some("volume a"));
    assert_eq!(scene.revision(), 1);
}

#[test]
fn what_sessions_use_does_not_go_unless_it_is_drained() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene
        .apply(map(json!([{"lun": 0, "volume": "a"}])))
        .unwrap();
    scene.log_in(TARGET);
    let remove = || Wish::Remove { id: volume("a") };
    for wish in [
        remove(),
        map(json!([])),
        Wish::Remove { id: target(TARGET) },
        Wish::Enable {
            id: target(TARGET),
            enabled: false,
        },
    ] {
        let plan = scene.plan(&wish).unwrap();
        assert!(
            plan.warnings.iter().any(|it| it.contains("needs --drain")),
            "{plan:?}"
        );
        let refused = scene.apply(wish).unwrap_err();
        assert_eq!(refused.code, ProblemCode::InUse);
        assert!(refused.title.contains(HOST), "{refused}");
    }
    scene.fake.holds.store(true, Ordering::Relaxed);
    let applied = scene.apply_with(remove(), DRAIN).unwrap();
    assert_eq!(applied.draining, ["a"]);
    assert_eq!(scene.state_of("a"), Some(ObjectState::Draining));
    scene.fake.let_go();
    assert_eq!(scene.state_of("a"), None);
}

#[test]
fn a_removed_volume_whose_storage_does_not_answer_is_named_with_what_it_waits_for() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    let looking = scene.plane().volumes();
    scene.fake.holds.store(true, Ordering::Relaxed);
    let applied = scene.apply(Wish::Remove { id: volume("a") }).unwrap();
    assert_eq!(applied.draining, ["a"]);
    let waits_for = || {
        let volumes = scene.plane().objects(ObjectKind::Volume);
        volumes[0].facts["waits-for"].as_str().unwrap().to_owned()
    };
    assert_eq!(waits_for(), "the last flush");
    assert_eq!(scene.plane().status().health.reasons, [""; 0]);
    scene.fake.is_stuck.store(true, Ordering::Relaxed);
    assert_eq!(scene.state_of("a"), Some(ObjectState::Stuck));
    let health = scene.plane().status().health;
    assert!(health.ready, "nothing that is served needs it");
    let [reason] = &health.reasons[..] else {
        panic!("{health:?}");
    };
    assert!(
        reason.contains("volume a") && reason.contains("the last flush"),
        "{reason}"
    );
    // The server has let go of it, and somebody looks at it.
    scene.fake.let_go();
    assert_eq!(waits_for(), "the close of its storage");
    assert_eq!(scene.state_of("a"), Some(ObjectState::Draining));
    drop(looking);
    while scene.state_of("a").is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_status_does_not_look_at_the_file_system() {
    let scene = Scene::new("");
    let file = scene.path("x.toml");
    let named = |scene: &Scene| scene.plane().status().config_file.unwrap();
    let before = named(&scene);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(named(&scene), before);
}

#[test]
fn another_revision_than_the_one_planned_against_is_refused() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    let options = ChangeOptions {
        revision: Some(Revision(0)),
        ..ChangeOptions::default()
    };
    let refused = scene.apply_with(mem("b"), options).unwrap_err();
    assert_eq!(refused.code, ProblemCode::RevisionChanged);
    let options = ChangeOptions {
        revision: Some(Revision(1)),
        ..options
    };
    scene.apply_with(mem("b"), options).unwrap();
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let mut scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    let before = scene.plane().document(None);
    let (good, bad) = (scene.path("good.img"), scene.path("bad.img"));
    let mut document = before.1.clone();
    document.volumes.insert(
        "good".to_owned(),
        keys(json!({"backend": "file", "path": good, "size": "1M", "uuid": "00000000-0000-0000-0000-000000000001"})),
    );
    document.volumes.insert(
        "twin".to_owned(),
        keys(json!({"backend": "file", "path": bad, "size": "1M", "uuid": "00000000-0000-0000-0000-000000000001", "naa": "5001405aaaabbbbb"})),
    );
    let refused = scene.apply(Wish::Replace(document.clone())).unwrap_err();
    assert!(
        refused.title.contains("identity of volume good"),
        "{refused}"
    );
    assert!(!Path::new(&good).exists() && !Path::new(&bad).exists());
    assert_eq!(scene.plane().document(None), before);

    document.volumes.remove("twin");
    // Before the commit, and after it.
    for (refuses, revision) in [(&scene.fake.refuses, 1), (&scene.fake.fails, 3)] {
        refuses.store(true, Ordering::Relaxed);
        scene.apply(Wish::Replace(document.clone())).unwrap_err();
        assert!(!Path::new(&good).exists());
        assert_eq!(scene.revision(), revision);
        refuses.store(false, Ordering::Relaxed);
    }
    assert_eq!(scene.plane().document(None).1, before.1);
    scene.start().unwrap();
    assert_eq!(scene.plane().document(None).1, before.1);
    assert_eq!(scene.fake.shown(), ["a"]);
}

#[test]
fn a_volume_of_a_file_grows_and_never_shrinks() {
    let scene = Scene::new("");
    let path = scene.path("a.img");
    let sized = |size: &str| {
        put(
            volume("a"),
            json!({"backend": "file", "path": path, "size": size}),
        )
    };
    scene.apply(sized("1M")).unwrap();
    let plan = scene.apply(sized("2M")).unwrap().plan;
    assert_eq!(
        plan.steps[0].effect.as_deref(),
        Some("hosts are notified of the new size")
    );
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 << 20);
    let refused = scene.apply(sized("1M")).unwrap_err();
    assert!(refused.title.contains("cannot shrink"), "{refused}");
    let grown = scene
        .apply(mem("m"))
        .and_then(|_| scene.apply(put(volume("m"), json!({"backend": "mem", "size": "2M"}))));
    assert!(
        grown
            .unwrap_err()
            .title
            .contains("only volumes of files grow")
    );
}

#[test]
fn a_refused_growth_leaves_the_file_as_it_was_and_the_next_start_serves_it() {
    let mut scene = Scene::new("");
    let path = scene.path("a.img");
    let sized = |size: &str| {
        put(
            volume("a"),
            json!({"backend": "file", "path": path, "size": size}),
        )
    };
    scene.apply(sized("1M")).unwrap();
    for refuses in [&scene.fake.refuses, &scene.fake.fails] {
        refuses.store(true, Ordering::Relaxed);
        scene.apply(sized("2M")).unwrap_err();
        refuses.store(false, Ordering::Relaxed);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
        let state = scene.state_of("a");
        assert_eq!(state, Some(ObjectState::Up), "it is as long as it was");
    }
    scene.start().unwrap();
    scene.apply(sized("2M")).unwrap();
    let volumes = scene.plane().volumes();
    assert_eq!(volumes[0].geometry().size_bytes(), 2 << 20);
}

#[test]
fn a_volume_is_closed_when_its_file_is_free_and_not_before() {
    let scene = Scene::new("");
    let path = scene.path("a.img");
    let wish = |name: &str| {
        put(
            volume(name),
            json!({"backend": "file", "path": path, "size": "1M"}),
        )
    };
    scene.apply(wish("a")).unwrap();
    // Somebody looks at it.
    let volumes = scene.plane().volumes();
    scene.apply(Wish::Remove { id: volume("a") }).unwrap();
    let refused = scene.apply(wish("b")).unwrap_err();
    assert_eq!(refused.code, ProblemCode::Invalid, "{refused}");
    assert!(!scene.fake.has("volume a is closed"));
    assert_eq!(scene.state_of("a"), Some(ObjectState::Draining));
    drop(volumes);
    while !scene.fake.has("volume a is closed") {
        std::thread::sleep(Duration::from_millis(1));
    }
    scene.apply(wish("b")).unwrap();
}

#[test]
fn a_volume_in_use_does_not_move_to_other_hosts_in_one_change() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene
        .apply(map(json!([{"lun": 0, "volume": "a"}])))
        .unwrap();
    scene.log_in(TARGET);
    let moved = || {
        let (_, mut document) = scene.plane().document(None);
        document.targets.clear();
        document.targets.insert(
            "iqn.2026-11.com.example:other".to_owned(),
            keys(json!({"luns": [{"lun": 0, "volume": "a"}]})),
        );
        Wish::Replace(document)
    };
    let refused = scene.apply_with(moved(), DRAIN).unwrap_err();
    assert_eq!(refused.code, ProblemCode::InUse);
    assert!(refused.advice.unwrap().contains("disable"));
    // As long as it is disabled, nobody writes.
    let disable = Wish::Enable {
        id: volume("a"),
        enabled: false,
    };
    scene.apply_with(disable, DRAIN).unwrap();
    scene.apply_with(moved(), DRAIN).unwrap();
    let enable = Wish::Enable {
        id: volume("a"),
        enabled: true,
    };
    scene.apply(enable).unwrap();
    assert_eq!(scene.fake.shown().len(), 2);
}

#[test]
fn nothing_is_taken_away_while_it_is_not_known_who_uses_it() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene
        .apply(map(json!([{"lun": 0, "volume": "a"}])))
        .unwrap();
    scene.fake.is_busy.store(true, Ordering::Relaxed);
    let remove = || Wish::Remove { id: volume("a") };
    let warnings = scene.plan(&remove()).unwrap().warnings;
    assert!(
        warnings.iter().any(|it| it.contains("does not answer")),
        "{warnings:?}"
    );
    let refused = scene.apply(remove()).unwrap_err();
    assert_eq!(refused.code, ProblemCode::Busy, "{refused}");
    scene.apply(mem("b")).unwrap();
    scene.apply_with(remove(), DRAIN).unwrap();
}

#[test]
fn every_refusal_is_on_record_and_not_the_last_word_for_ever() {
    let scene = Scene::new("[[volume]]\nname = \"f\"\nbackend = \"mem\"\nsize = \"1M\"\n");
    let good = std::fs::read_to_string(scene.path("x.toml")).unwrap();
    scene.write("[[volume]]\nname = \"f\"\n");
    scene.plane().reload();
    assert!(
        scene
            .fake
            .has("SIGHUP: read the configuration file: refused: ")
    );
    scene.write(&good);
    scene.plane().reload();
    assert!(
        scene
            .fake
            .has("SIGHUP: read the configuration file: revision 0")
    );
    scene.apply(mem("f")).unwrap_err();
    assert!(scene.fake.has("uid 1000: put volume f: refused: "));
    let options = ChangeOptions {
        revision: Some(Revision(7)),
        ..ChangeOptions::default()
    };
    scene.apply_with(mem("a"), options).unwrap_err();
    assert!(scene.fake.has("uid 1000: put volume a: refused: "));
    // What was begun has its own record.
    scene.fake.refuses.store(true, Ordering::Relaxed);
    scene.apply(mem("b")).unwrap_err();
    let record = scene.fake.record.lock().unwrap();
    let of_b = record.iter().filter(|line| line.contains("volume b"));
    assert_eq!(of_b.count(), 1, "{record:?}");
}

#[test]
fn changes_of_the_file_alone_keep_revisions_whose_numbers_go_on_after_a_restart() {
    let file = |size: &str| {
        format!("[[volume]]\nname = \"f\"\nbackend = \"mem\"\nsize = \"1M\"\nmax-iops = {size}\n")
    };
    let mut scene = Scene::new(&file("1"));
    scene.write(&file("2"));
    let applied = scene.apply(Wish::ReadFile).unwrap();
    assert!(applied.plan.warnings.is_empty(), "{:?}", applied.plan);
    assert_eq!(applied.revision, Revision(1));
    scene.start().unwrap();
    assert_eq!(scene.revision(), 1);
    let kept = scene.plane().revisions();
    assert_eq!(kept[0].steps, ["change volume f: max-iops"]);
    // The file is another one than at revision 1, so that is not the state any more.
    scene.write(&file("3"));
    scene.start().unwrap();
    assert_eq!(scene.revision(), 2);
    scene.start().unwrap();
    assert_eq!(scene.revision(), 2);
}

#[test]
fn a_disk_that_does_not_answer_holds_no_other_change_up() {
    // A server that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "iscsi://{}/iqn.2026-11.com.example:none/0",
        silent.local_addr().unwrap()
    );
    let mut scene = Scene::prepared("", &[]);
    scene.storage_timeout = Some(Duration::from_millis(50));
    scene.start().unwrap();
    let remote = put(volume("r"), json!({"backend": "iscsi", "url": url}));
    let refused = scene.apply(remote).unwrap_err();
    assert_eq!(refused.code, ProblemCode::Unavailable, "{refused}");
    scene.apply(mem("a")).unwrap();
    assert_eq!(scene.fake.shown(), ["a"]);
}

#[test]
fn a_volume_that_does_not_tell_its_size_is_not_asked_when_another_grows() {
    let scene = Scene::new("");
    let path = scene.path("a.img");
    let sized = |size: &str| {
        put(
            volume("a"),
            json!({"backend": "file", "path": path, "size": size}),
        )
    };
    scene.apply(mem("stuck")).unwrap();
    scene.apply(sized("1M")).unwrap();
    *scene.fake.hangs.lock().unwrap() = Some("stuck".to_owned());
    scene.apply(sized("2M")).unwrap();
    let volumes = scene.plane().volumes();
    assert_eq!(volumes[0].geometry().size_bytes(), 2 << 20);
    *scene.fake.hangs.lock().unwrap() = None;
}

#[test]
fn volumes_in_memory_are_weighed_when_they_come() {
    let mut scene = Scene::prepared("", &[]);
    scene.memory = Some(Bounds::of_group(64 << 20));
    scene.start().unwrap();
    scene.apply(mem("a")).unwrap();
    let large = || put(volume("b"), json!({"backend": "mem", "size": "1G"}));
    for refused in [
        scene.plan(&large()).unwrap_err(),
        scene.apply(large()).unwrap_err(),
    ] {
        assert_eq!(refused.code, ProblemCode::NoSpace, "{refused}");
        assert!(refused.advice.unwrap().contains("limits.memory"));
    }
    scene
        .apply(put(volume("n"), json!({"backend": "null", "size": "1T"})))
        .unwrap();
}

#[test]
fn another_volume_takes_a_place_only_when_that_is_asked_for() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene.apply(mem("b")).unwrap();
    scene
        .apply(map(json!([{"lun": 0, "volume": "a"}])))
        .unwrap();
    scene.log_in(TARGET);
    let other = || map(json!([{"lun": 0, "volume": "b"}]));
    let path = || put(volume("a"), json!({"backend": "null", "size": "1M"}));
    let replace = ChangeOptions {
        replace: true,
        ..DRAIN
    };
    for wish in [other, path] {
        let refused = scene.apply(wish()).unwrap_err();
        assert!(refused.advice.unwrap().contains("--replace"));
        scene.apply_with(wish(), replace).unwrap();
    }
    assert_eq!(scene.fake.shown(), ["a", "b", &format!("{TARGET} 0=b")]);
}

#[test]
fn disabled_objects_are_known_and_not_served() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene
        .apply(map(json!([{"lun": 0, "volume": "a"}])))
        .unwrap();
    let enable = |id, enabled| scene.apply(Wish::Enable { id, enabled }).unwrap();
    enable(volume("a"), false);
    assert!(scene.fake.shown().is_empty());
    assert_eq!(scene.state_of("a"), Some(ObjectState::Disabled));
    enable(volume("a"), true);
    let served = ["a".to_owned(), format!("{TARGET} 0=a")];
    assert_eq!(scene.fake.shown(), served);
    enable(target(TARGET), false);
    assert_eq!(scene.fake.shown(), ["a"]);
    enable(target(TARGET), true);
    assert_eq!(scene.fake.shown(), served);
}

#[test]
fn a_volume_becomes_read_only_and_writable_again_while_it_is_open() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene
        .apply(map(json!([{"lun": 0, "volume": "a"}])))
        .unwrap();
    let set = |yes: bool| Wish::Patch {
        id: volume("a"),
        patch: keys(json!({ "read-only": yes })),
    };
    scene.apply(set(true)).unwrap();
    assert_eq!(scene.fake.shown()[1], format!("{TARGET} 0=a ro"));
    scene.apply(set(false)).unwrap();
    assert_eq!(scene.fake.shown()[1], format!("{TARGET} 0=a"));
}

#[test]
fn the_default_target_can_have_volumes_of_the_api_when_the_file_names_none() {
    let default = "iqn.2026-11.local.longshore:default";
    let scene = Scene::with_arguments("", &["c,backend=mem,size=1M"]);
    scene.apply(mem("a")).unwrap();
    let shown = || scene.fake.shown();
    assert_eq!(
        shown(),
        ["c", "a", &format!("{default} 0=c")],
        "not by itself"
    );
    let listed = scene.plane().objects(ObjectKind::Target);
    let luns = json!([{"lun": 0, "volume": "c"}, {"lun": 7, "volume": "a"}]);
    assert_eq!(listed[0].keys["luns"][0], luns[0]);
    scene
        .apply(put(target(default), json!({ "luns": luns })))
        .unwrap();
    assert_eq!(
        shown()[2..],
        [format!("{default} 0=c"), format!("{default} 7=a")]
    );
}

#[test]
fn an_earlier_revision_comes_back() {
    let scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    scene.apply(mem("b")).unwrap();
    scene.apply(Wish::Rollback(Revision(1))).unwrap();
    assert_eq!(
        (scene.revision(), scene.fake.shown()),
        (3, vec!["a".to_owned()])
    );
    let steps: Vec<_> = scene
        .plane()
        .revisions()
        .into_iter()
        .map(|it| it.steps)
        .collect();
    assert_eq!(steps[0], ["remove volume b"]);
    assert_eq!(steps.len(), 3);
    let refused = scene.apply(Wish::Rollback(Revision(9))).unwrap_err();
    assert_eq!(refused.code, ProblemCode::NotFound);
}

#[test]
fn secrets_are_stored_and_never_shown() {
    let mut scene = Scene::new("");
    scene.apply(mem("a")).unwrap();
    let with_secret = |secret: &str| {
        put(
            target(TARGET),
            json!({"luns": [{"lun": 0, "volume": "a"}], "accounts": [{"user": "ann", "secret": secret}]}),
        )
    };
    let secret = "correct-horse-battery";
    let plan = scene.plan(&with_secret(secret)).unwrap();
    let applied = scene.apply(with_secret(secret)).unwrap();
    // What was read can be written, and changes nothing.
    assert!(scene.apply(with_secret("set")).unwrap().plan.is_empty());
    scene.start().unwrap();
    let shown = [
        serde_json::to_string(&plan).unwrap(),
        serde_json::to_string(&applied).unwrap(),
        serde_json::to_string(&scene.plane().document(None).1).unwrap(),
        serde_json::to_string(&scene.plane().objects(ObjectKind::Target)).unwrap(),
        serde_json::to_string(&scene.plane().revisions()).unwrap(),
        serde_json::to_string(&scene.plane().at_revision(Revision(2))).unwrap(),
    ];
    for text in shown {
        assert!(!text.contains(secret), "{text}");
    }
    let exports = scene.fake.exports.lock().unwrap();
    let target = &exports.as_ref().unwrap().targets;
    let target = target.iter().find(|it| it.name.as_str() == TARGET).unwrap();
    assert_eq!(
        target.authentication.chap.as_ref().unwrap().accounts[0].name,
        "ann"
    );
}

#[test]
fn without_a_state_directory_the_api_changes_nothing() {
    let start = Start::read(Arguments::default(), None, None, false).unwrap();
    let switch = Box::new(Handle(Arc::default()));
    let plane = Plane::new(start, OpenVolumes::new(), switch, Process::default());
    let caller = Caller {
        name: "uid 0".to_owned(),
        from: "test".to_owned(),
    };
    let refused = plane
        .apply(mem("a"), ChangeOptions::default(), &caller)
        .unwrap_err();
    assert!(refused.advice.unwrap().contains("--state-dir"));
}

#[test]
fn without_a_state_directory_a_change_of_the_file_says_that_no_revision_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    let text = "[[volume]]\nname = \"f\"\nbackend = \"mem\"\nsize = \"1M\"\n";
    std::fs::write(&path, text).unwrap();
    let file = ConfigFile::load(&path).unwrap();
    let start = Start::read(Arguments::default(), Some(file), None, false).unwrap();
    let switch = Box::new(Handle(Arc::default()));
    let plane = Plane::new(start, OpenVolumes::new(), switch, Process::default());
    std::fs::write(&path, format!("{text}read-only = true\n")).unwrap();
    let caller = Caller {
        name: "uid 0".to_owned(),
        from: "test".to_owned(),
    };
    let applied = plane.apply(Wish::ReadFile, ChangeOptions::default(), &caller);
    let warnings = applied.unwrap().plan.warnings;
    assert!(
        warnings
            .iter()
            .any(|it| it.contains("revisions are not kept")),
        "{warnings:?}"
    );
}

#[test]
fn what_cannot_be_read_names_the_object() {
    let scene = Scene::new("");
    for (wish, expected) in [
        (
            put(volume("a"), json!({"backend": "fil"})),
            "did you mean `file`?",
        ),
        (
            put(volume("a"), json!({"backend": "mem", "sise": 1})),
            "did you mean `size`?",
        ),
        (
            put(volume("a"), json!({"backend": "file", "path": "a.img"})),
            "write an absolute path",
        ),
        (
            put(volume("a b"), json!({"backend": "mem", "size": "1M"})),
            "is not a volume name",
        ),
        (
            map(json!([{"lun": 0, "volume": "none"}])),
            "there is no volume `none`",
        ),
        (put(target("x"), json!({})), "is not an iSCSI name"),
    ] {
        let refused = scene.apply(wish).unwrap_err();
        assert!(
            refused.to_string().contains(expected),
            "{expected}: {refused}"
        );
        assert!(refused.object.is_some(), "{refused:?}");
    }
}

#[test]
fn a_map_of_a_volume_that_the_file_had_does_not_keep_the_server_from_starting() {
    let mut scene = Scene::new("[[volume]]\nname = \"f\"\nbackend = \"mem\"\nsize = \"1M\"\n");
    scene.apply(mem("a")).unwrap();
    let both = json!([{"lun": 0, "volume": "f"}, {"lun": 1, "volume": "a"}]);
    scene.apply(map(both)).unwrap();
    scene.write("");
    let refused = scene.apply(Wish::ReadFile).unwrap_err();
    assert_eq!(
        refused.object.as_deref(),
        Some(&*format!("target {TARGET}"))
    );
    scene.start().unwrap();
    assert_eq!(scene.fake.shown(), ["a", &format!("{TARGET} 1=a")]);
    scene.apply(mem("b")).unwrap();
}

#[test]
fn a_change_waits_for_the_one_before_and_not_for_ever() {
    let turn = super::turn::Turn::default();
    let held = turn.take(Duration::ZERO).unwrap();
    assert!(turn.take(Duration::from_millis(1)).is_none());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| turn.take(Duration::from_secs(60)).is_some());
        drop(held);
        assert!(waits.join().unwrap());
    });
}
