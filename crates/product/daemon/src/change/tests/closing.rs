//! The end of removed volumes: drain, last flush, close of the storage.

use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_api::change::Wish;
use longshore_api::object::{ObjectKind, ObjectState};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::ProblemCode;
use serde_json::json;

use super::scene::{Scene, mem, put, volume};

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
