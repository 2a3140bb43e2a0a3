//! The file and the API beside each other: owners, SIGHUP, restarts.

use serde_json::json;

use crate::rig::{Change, Hand, Rig, SUBSYSTEM, TARGET, scsi_read, scsi_write, wait_for};

#[test]
fn sighup_adds_a_volume_and_names_what_needs_a_restart() {
    let rig = Rig::start("");
    let default = longshore_tests::server::TARGET;
    let mut initiator = rig.initiator(default, 1);
    rig.write_file(
        "\n[[volume]]\nname = \"f1\"\nbackend = \"mem\"\nsize = \"1M\"\n\n[engine]\ncores = \"0\"\n",
    );
    rig.server().reload().unwrap();
    rig.server().wait_for_log("SIGHUP: add volume f1");
    rig.server()
        .wait_for_log("SIGHUP: engine.cores takes effect at the next start");
    crate::rig::wait_for_scsi_event(&mut initiator);
    let status = rig.get("/api/v1/");
    assert_eq!(status["needs-restart"], json!(["engine.cores"]));
    let volume = rig.show(&["volume", "show", "f1"]);
    assert_eq!(
        (&volume["owner"], &volume["state"]),
        (&json!("file"), &json!("up"))
    );

    // A file that cannot be read changes nothing, and all that is wrong is said.
    let revision = rig.revision();
    rig.write_file(
        "\n[[volume]]\nname = \"f1\"\nbackend = \"mem\"\nsize = \"many\"\n[limits]\nx = 1\n",
    );
    rig.server().reload().unwrap();
    rig.server()
        .wait_for_log("SIGHUP: all settings are unchanged");
    assert_eq!(rig.revision(), revision);
    assert_eq!(rig.ask("GET", "/api/v1/volumes/f1", None).status, 200);
}

#[test]
fn objects_of_the_file_are_changed_in_the_file_and_the_refusal_names_its_line() {
    let rig = Rig::start(&format!(
        "\n[[target]]\nname = \"{TARGET}\"\nluns = [{{ lun = 0, volume = \"f0\" }}]\n"
    ));
    let file = rig.path("longshore.toml");
    let keys = json!({"backend": "mem", "size": "1M"});
    for (method, path, body, line) in [
        ("PUT", "/api/v1/volumes/f0".to_owned(), Some(keys), 5),
        ("DELETE", "/api/v1/volumes/f0".to_owned(), None, 5),
        (
            "POST",
            "/api/v1/volumes/f0:resize".to_owned(),
            Some(json!({"size": "16M"})),
            5,
        ),
        ("DELETE", format!("/api/v1/targets/{TARGET}"), None, 11),
        (
            "DELETE",
            format!("/api/v1/targets/{TARGET}/luns/0"),
            None,
            11,
        ),
    ] {
        let reply = rig.ask(method, &path, body.as_ref());
        assert_eq!(reply.status, 409, "{method} {path}: {reply:?}");
        let problem = reply.json();
        let location = problem["location"].as_str().unwrap();
        assert!(location.starts_with(&file), "{location}");
        let found: u64 = location[file.len() + 1..].parse().unwrap();
        assert!((line - 1..=line + 1).contains(&found), "{location}");
        assert!(problem["advice"].as_str().unwrap().contains("SIGHUP"));
    }
    let verb = rig.verb(&["volume", "resize", "f0", "16M"]).expect(1);
    assert!(verb.stderr.contains(&format!("{file}:")), "{verb:?}");
    assert_eq!(rig.revision(), 0);
}

#[test]
fn objects_of_the_api_outlive_sighup_kills_and_restarts() {
    let mut rig = Rig::start("");
    let keys = json!({"backend": "file", "path": rig.path("v1.img"), "size": "4M"});
    for change in [
        Change::CreateVolume("v1", keys),
        Change::CreateTarget(TARGET),
        Change::CreateTarget(SUBSYSTEM),
        Change::Map(TARGET, "v1", 0),
        Change::Map(SUBSYSTEM, "v1", 0),
    ] {
        rig.make(Hand::Http, &change);
    }
    let mut initiator = rig.initiator(TARGET, 1);
    assert!(scsi_write(&mut initiator, 5, 6).is_good());
    let config = rig.get("/api/v1/config?owner=api");
    rig.server().reload().unwrap();
    rig.server().wait_for_log("SIGHUP: read the sizes");
    assert_eq!(rig.get("/api/v1/config?owner=api"), config);
    assert_eq!(
        scsi_read(&mut initiator, 5),
        6,
        "the session has seen nothing of it"
    );
    drop(initiator);
    for ending in ["kill", "stop"] {
        match ending {
            "kill" => rig.kill(),
            _ => assert!(rig.stop().0.success()),
        }
        rig.start_again();
        assert_eq!(rig.get("/api/v1/config?owner=api"), config, "{ending}");
        assert_eq!(rig.revision(), 5, "{ending}");
        assert_eq!(scsi_read(&mut rig.initiator(TARGET, 1), 5), 6);
        let host = rig.host(SUBSYSTEM, 1).active_namespaces().unwrap();
        assert_eq!(host, [1]);
    }
}

#[test]
fn one_name_in_the_file_and_in_the_api_is_refused_with_both_places() {
    let mut rig = Rig::start("");
    let keys = json!({"backend": "mem", "size": "1M"});
    rig.make(Hand::Http, &Change::CreateVolume("v1", keys));
    let both =
        |size: &str| format!("\n[[volume]]\nname = \"v1\"\nbackend = \"mem\"\nsize = \"{size}\"\n");
    let places = [
        format!("{}:11", rig.path("longshore.toml")),
        "API".to_owned(),
    ];
    rig.write_file(&both("2M"));
    rig.server().reload().unwrap();
    rig.server()
        .wait_for_log("SIGHUP: all settings are unchanged");
    let log = rig.server().log();
    assert!(places.iter().all(|place| log.contains(place)), "{log}");
    assert_eq!(rig.get("/api/v1/volumes/v1")["owner"], "api");
    rig.kill();
    let refused = rig.start_and_fail();
    assert!(
        places.iter().all(|place| refused.contains(place)),
        "{refused}"
    );

    // The same in both: it becomes the file's.
    rig.write_file(&both("1M"));
    rig.start_again();
    wait_for("the file to own it", || {
        rig.get("/api/v1/volumes/v1")["owner"] == "file"
    });
}
