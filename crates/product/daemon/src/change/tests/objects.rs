//! Objects that come, change and go, and plans of that.

use std::path::Path;

use longshore_api::change::{ChangeOptions, Revision, Wish};
use longshore_api::object::{Document, ObjectKind, ObjectState, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::ProblemCode;
use serde_json::{Value, json};

use super::scene::{Scene, TARGET, keys, map, mem, put, target, volume};

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
fn disabled_objects_are_known_and_not_served() {
    let scene = Scene::mapped();
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
    let scene = Scene::mapped();
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
