//! Objects of the file, the command line and the API side by side.

use std::sync::Arc;

use longshore_api::change::Wish;
use longshore_api::object::{Document, ObjectKind, Owner};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::ProblemCode;
use serde_json::json;

use super::scene::{Scene, TARGET, map, mem, put, target, volume};

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
