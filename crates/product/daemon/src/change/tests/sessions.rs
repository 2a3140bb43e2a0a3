//! Changes to volumes and targets that sessions use.

use std::sync::atomic::Ordering;

use longshore_api::change::{ChangeOptions, Wish};
use longshore_api::object::ObjectState;
use longshore_api::plane::ControlPlane;
use longshore_api::problem::ProblemCode;
use serde_json::json;

use super::scene::{DRAIN, HOST, Scene, TARGET, keys, map, mem, put, target, volume};

#[test]
fn what_sessions_use_does_not_go_unless_it_is_drained() {
    let scene = Scene::mapped();
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
fn a_volume_in_use_does_not_move_to_other_hosts_in_one_change() {
    let scene = Scene::mapped();
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
    let scene = Scene::mapped();
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
