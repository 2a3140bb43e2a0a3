//! Reports about the server: status and documents.

use longshore_api::change::Revision;
use longshore_api::object::ObjectKind;
use longshore_api::plane::ControlPlane;
use serde_json::json;

use super::scene::{Scene, TARGET, mem, put, target};

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
