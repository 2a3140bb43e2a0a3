//! Growth of volumes, and the memory for new ones.

use std::sync::atomic::Ordering;

use longshore_api::change::Wish;
use longshore_api::object::ObjectState;
use longshore_api::problem::ProblemCode;
use serde_json::json;

use super::scene::{Scene, mem, put, volume};
use crate::memory::Bounds;

/// The volume `a`, in a file.
fn sized(path: &str, size: &str) -> Wish {
    put(
        volume("a"),
        json!({"backend": "file", "path": path, "size": size}),
    )
}

#[test]
fn a_volume_of_a_file_grows_and_never_shrinks() {
    let scene = Scene::new("");
    let path = scene.path("a.img");
    let sized = |size| sized(&path, size);
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
            .contains("only volumes of files and of pools grow")
    );
}

#[test]
fn a_refused_growth_leaves_the_file_as_it_was_and_the_next_start_serves_it() {
    let mut scene = Scene::new("");
    let path = scene.path("a.img");
    let sized = |size| sized(&path, size);
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
fn a_volume_that_does_not_tell_its_size_is_not_asked_when_another_grows() {
    let scene = Scene::new("");
    let path = scene.path("a.img");
    let sized = |size| sized(&path, size);
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
