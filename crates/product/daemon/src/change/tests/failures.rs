//! Changes that are refused, fail or wait: nothing is left behind, and a record is.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_api::change::{ChangeOptions, Revision, Wish};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::ProblemCode;
use serde_json::json;

use super::scene::{Scene, keys, mem, put, volume};
use crate::change::turn::Turn;

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
        keys(json!({"backend": "file", "path": bad, "size": "1M", "uuid": "00000000-0000-0000-0000-000000000001", "naa": "5001405aaaabbbbb", "nguid": "none"})),
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
fn a_change_waits_for_the_one_before_and_not_for_ever() {
    let turn = Turn::default();
    let held = turn.take(Duration::ZERO).unwrap();
    assert!(turn.take(Duration::from_millis(1)).is_none());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| turn.take(Duration::from_secs(60)).is_some());
        drop(held);
        assert!(waits.join().unwrap());
    });
}
