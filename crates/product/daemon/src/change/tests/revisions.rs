//! Revisions: their numbers, return to an earlier one, servers that keep none.

use std::sync::Arc;

use longshore_api::change::{Caller, ChangeOptions, Revision, Wish};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::ProblemCode;

use super::fake::Handle;
use super::scene::{Scene, mem};
use crate::change::exports::OpenVolumes;
use crate::change::plane::{Plane, Process};
use crate::change::start::Start;
use crate::config::Arguments;
use crate::config::file::ConfigFile;

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
