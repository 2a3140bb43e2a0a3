//! Settings of the server that change as objects do: accounts of discovery, and when responses are sent.

use longshore_tests::api::VerbResult;
use longshore_tests::server::program;
use serde_json::json;
use std::process::Command;

use crate::rig::{Rig, wait_for};

/// Asks for the targets, with an account or without one.
fn discover(rig: &Rig, account: Option<(&str, &str)>) -> VerbResult {
    let mut discover = Command::new(program());
    discover.args(["discover", &rig.iscsi.to_string()]);
    if let Some((user, secret)) = account {
        discover.env("LIBISCSI_CHAP_USERNAME", user);
        discover.env("LIBISCSI_CHAP_PASSWORD", secret);
    }
    VerbResult::of(discover)
}

#[test]
fn accounts_of_discovery_come_and_go_while_the_server_runs() {
    let mut rig = Rig::start("");
    let account = Some(("web", "its-first-secret"));
    discover(&rig, None).expect(0);
    let accounts = json!([{"user": "web", "secret": "its-first-secret"}]);
    let set = format!("accounts={accounts}");
    rig.verb(&["setting", "set", "discovery", &set]).expect(0);
    assert_ne!(discover(&rig, None).code, Some(0));
    discover(&rig, account).expect(0);

    // It survives a restart, and no output shows the secret.
    rig.stop();
    rig.start_again();
    assert_ne!(discover(&rig, None).code, Some(0));
    discover(&rig, account).expect(0);
    let shown = rig.verb(&["setting", "show", "discovery"]).expect(0);
    assert!(shown.stdout.contains("web"), "{shown:?}");
    for verb in [
        &["setting", "list"][..],
        &["setting", "show", "discovery"],
        &["config", "export"],
    ] {
        let told = rig.verb(verb).expect(0);
        assert!(!told.stdout.contains("its-first-secret"), "{told:?}");
    }
    // What is read can be written again.
    let read = rig.get("/api/v1/settings/discovery");
    let revision = rig.revision();
    let put = rig.ask("PUT", "/api/v1/settings/discovery", Some(&read["keys"]));
    put.expect_success();
    assert_eq!(rig.revision(), revision);

    rig.verb(&["setting", "remove", "discovery"]).expect(0);
    discover(&rig, None).expect(0);
    rig.verb(&["setting", "show", "discovery"]).expect(1);
}

#[test]
fn the_transmit_policy_changes_and_is_there_again_after_a_restart() {
    let mut rig = Rig::start("");
    let keys = ["transmit=adaptive-nagle", "nagle-threshold=32"];
    let set = [&["setting", "set", "transmit"][..], &keys].concat();
    rig.verb(&set).expect(0);
    let told = "transmit policy changed";
    wait_for("the new policy", || rig.server().log().contains(told));
    for wrong in ["cores=3", "nagle-threshold=-1", "transmit=fast"] {
        let refused = rig.verb(&["setting", "set", "transmit", wrong]);
        assert_ne!(refused.code, Some(0), "{refused:?}");
    }
    let other = rig.ask("PUT", "/api/v1/settings/listen", Some(&json!({})));
    assert_eq!(other.status, 404, "{other:?}");
    rig.stop();
    rig.start_again();
    let shown = rig.show(&["setting", "show", "transmit"]);
    assert_eq!(shown["keys"]["nagle-threshold"], 32);
    assert_eq!(shown["owner"], "api");

    // A file that says something else has no place beside it.
    rig.stop();
    rig.write_file("\n[engine]\nnagle-margin = 7\n");
    let log = rig.start_and_fail();
    assert!(log.contains("setting transmit"), "{log}");
}

#[test]
fn settings_of_the_file_are_shown_and_changed_there_alone() {
    let rig = Rig::start("\n[engine]\nnagle-margin = 7\nsplice = \"off\"\n");
    let shown = rig.show(&["setting", "list"]);
    let all = shown["items"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{shown}");
    assert_eq!(all[0]["name"], "transmit");
    assert_eq!(all[0]["owner"], "file");
    assert_eq!(all[0]["keys"], json!({"nagle-margin": 7}));
    let refused = rig.verb(&["setting", "set", "transmit", "nagle-margin=8"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("configuration file"), "{refused:?}");
    rig.verb(&["setting", "set", "discovery", "accounts=[]"])
        .expect(0);
    rig.verb(&["setting", "set", "discovery", "accounts="])
        .expect(0);
    let shown = rig.show(&["setting", "list"]);
    let left = shown["items"].as_array().unwrap().len();
    assert_eq!(left, 1, "one without keys is none: {shown}");
}

#[test]
fn a_file_that_is_applied_brings_its_settings() {
    let rig = Rig::start("");
    let path = rig.path("moved.toml");
    let text = "[discovery]\naccounts = [{ user = \"web\", secret-file = \"web.secret\" }]\n\
                [engine]\nnagle-threshold = 12\ncores = \"0\"\n";
    std::fs::write(&path, text).unwrap();
    let secret = rig.path("web.secret");
    std::fs::write(&secret, "secret-of-a-file").unwrap();
    let owner_alone = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, owner_alone).unwrap();
    let applied = rig.verb(&["apply", &path]).expect(0);
    assert!(applied.stderr.contains("[engine] left out"), "{applied:?}");
    discover(&rig, Some(("web", "secret-of-a-file"))).expect(0);
    assert_ne!(discover(&rig, None).code, Some(0));
    let shown = rig.show(&["setting", "show", "transmit"]);
    assert_eq!(shown["keys"], json!({"nagle-threshold": 12}));
    rig.verb(&["plan", &path]).expect(0);
}
