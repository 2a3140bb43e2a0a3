//! Plans and revisions.

use std::fs;

use serde_json::Value;

use crate::rig::{Rig, SUBSYSTEM, TARGET};

fn document(size: &str) -> String {
    format!(
        "[[volume]]\nname = \"a\"\nbackend = \"mem\"\nsize = \"{size}\"\n\n\
         [[target]]\nname = \"{TARGET}\"\nluns = [{{ lun = 0, volume = \"a\" }}]\n\n\
         [[subsystem]]\nnqn = \"{SUBSYSTEM}\"\nnamespaces = [{{ nsid = 1, volume = \"a\" }}]\n"
    )
}

#[test]
fn a_plan_has_changes_until_it_is_applied_and_applying_it_again_makes_no_revision() {
    let rig = Rig::start("");
    let file = rig.path("wanted.toml");
    fs::write(&file, document("1M")).unwrap();
    let planned = rig.verb(&["plan", &file]).expect(10);
    for line in [
        "+ add volume a".to_owned(),
        format!("+ add target {TARGET}"),
        format!("+ add subsystem {SUBSYSTEM}"),
        "3 changes to revision 0".to_owned(),
    ] {
        assert!(planned.stdout.contains(&line), "{planned:?}");
    }
    assert_eq!(rig.revision(), 0, "a plan changes nothing");
    // Whoever has planned against another revision is refused.
    let stale = rig.verb(&["apply", &file, "--revision", "5"]).expect(1);
    assert!(stale.stderr.contains("revision 0"), "{stale:?}");
    rig.verb(&["apply", &file, "--revision", "0"]).expect(0);
    assert_eq!(rig.revision(), 1);
    let nothing = rig.verb(&["plan", &file]).expect(0);
    assert_eq!(nothing.stdout, "no changes (revision 1)\n");

    let (mut initiator, mut host) = (rig.initiator(TARGET, 1), rig.host(SUBSYSTEM, 1));
    assert!(crate::rig::scsi_write(&mut initiator, 1, 3).is_good());
    assert_eq!(host.active_namespaces().unwrap(), [1]);

    rig.verb(&["apply", &file]).expect(0);
    let wanted = rig.get("/api/v1/config?owner=api");
    let mut wanted = wanted.as_object().unwrap().clone();
    wanted.remove("version");
    let wanted = Value::Object(wanted);
    for _ in 0..100 {
        let reply = rig.ask("PUT", "/api/v1/config", Some(&wanted));
        assert_eq!(reply.expect_success().header("etag"), Some("\"1\""));
    }
    assert_eq!(rig.revision(), 1);
    assert_eq!(crate::rig::scsi_read(&mut initiator, 1), 3);
}

#[test]
fn revisions_are_listed_shown_exported_and_brought_back() {
    let rig = Rig::start("");
    let file = rig.path("wanted.toml");
    fs::write(&file, document("1M")).unwrap();
    rig.verb(&["apply", &file]).expect(0);
    rig.verb(&["target", "allow", TARGET, "iqn.2026-11.local.longshore:one"])
        .expect(0);
    rig.verb(&["volume", "create", "b", "backend=mem", "size=1M"])
        .expect(0);
    assert_eq!(rig.revision(), 3);

    let history = rig.show(&["config", "history"]);
    let revisions = history["items"].as_array().unwrap();
    let numbers: Vec<_> = revisions.iter().map(|it| it["revision"].as_u64()).collect();
    assert_eq!(numbers, [Some(3), Some(2), Some(1)]);
    assert_eq!(revisions[0]["steps"][0], "add volume b");
    assert!(revisions[0]["caller"]["name"].is_string());

    let first = rig.verb(&["config", "show", "1"]).expect(0).stdout;
    assert!(first.contains("name = \"a\""), "{first}");
    assert!(
        !first.contains("access") && !first.contains("name = \"b\""),
        "{first}"
    );
    // Of the file's objects as well.
    let all = rig.verb(&["config", "export"]).expect(0).stdout;
    assert!(all.contains("name = \"f0\""), "{all}");

    rig.verb(&["config", "rollback", "1"]).expect(0);
    assert_eq!(rig.revision(), 4, "going back is a change like others");
    let exported = rig
        .verb(&["config", "export", "--owner", "api"])
        .expect(0)
        .stdout;
    assert_eq!(exported, first);
    assert_eq!(rig.ask("GET", "/api/v1/volumes/b", None).status, 404);
    // What was exported is a file that leads here.
    fs::write(&file, exported).unwrap();
    rig.verb(&["plan", &file]).expect(0);
    rig.verb(&["config", "rollback", "99"]).expect(1);
}
