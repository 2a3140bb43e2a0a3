//! Changes: what the engine is asked.

use std::sync::atomic::Ordering;

use longshore_api::change::{Revision, Wish};
use longshore_api::object::ObjectKind;
use serde_json::json;

use crate::support::Server;

fn last(server: &Server) -> (Wish, longshore_api::change::ChangeOptions) {
    let asked = server.plane.asked.lock().unwrap();
    let (wish, options, _) = asked.last().unwrap().clone();
    (wish, options)
}

#[test]
fn an_object_is_put_patched_removed_and_enabled_by_name() {
    let server = Server::start();
    let keys = json!({"backend": "mem", "size": "1G"});
    let answer = server.ask("PUT", "/api/v1/volumes/b", Some(&keys));
    assert_eq!((answer.status, answer.header("etag")), (200, Some("\"8\"")));
    let Wish::Put { id, keys } = last(&server).0 else {
        panic!("no put");
    };
    assert_eq!(
        (id.to_string().as_str(), &keys["size"]),
        ("volume b", &json!("1G"))
    );

    let size = json!({"size": "2G"});
    server.ask("POST", "/api/v1/volumes/b:resize", Some(&size));
    assert!(matches!(last(&server).0, Wish::Patch { patch, .. } if patch["size"] == "2G"));

    // Names hold colons, and slashes that are encoded.
    let path = "/api/v1/subsystems/nqn.2014-08.org:a%2Fb:disable";
    assert_eq!(server.ask("POST", path, None).status, 200);
    let Wish::Enable { id, enabled } = last(&server).0 else {
        panic!("no switch");
    };
    assert_eq!(
        (id.kind, id.name.as_str()),
        (ObjectKind::Subsystem, "nqn.2014-08.org:a/b")
    );
    assert!(!enabled);
    let unknown = server.ask("POST", "/api/v1/volumes/b:explode", None);
    assert_eq!(unknown.status, 404);
}

#[test]
fn options_and_if_match_reach_the_engine_and_an_old_revision_is_412() {
    let server = Server::start();
    let delete =
        |path: &str, tag: &str| server.ask_with("DELETE", path, None, &[("If-Match", tag)]);
    assert_eq!(
        delete("/api/v1/volumes/a?drain&replace=true", "\"7\"").status,
        200
    );
    let (wish, options) = last(&server);
    assert!(matches!(wish, Wish::Remove { .. }));
    assert!(options.drain && options.replace && !options.force);
    assert_eq!(options.revision, Some(Revision(7)));
    let stale = delete("/api/v1/volumes/a", "\"6\"");
    assert_eq!(
        (stale.status, &stale.json()["code"]),
        (412, &json!("revision-changed"))
    );
    assert_eq!(delete("/api/v1/volumes/a?darin", "*").status, 400);
    assert_eq!(delete("/api/v1/volumes/a", "x").status, 400);
    let asked = server.plane.asked.lock().unwrap().len();
    let dry = server.ask("DELETE", "/api/v1/volumes/a?dry-run", None);
    assert!(dry.json().get("steps").is_some(), "{dry:?}");
    assert_eq!(server.plane.asked.lock().unwrap().len(), asked + 1);
}

#[test]
fn a_change_whose_volumes_drain_is_202_and_can_be_followed() {
    let server = Server::start();
    *server.plane.draining.lock().unwrap() = vec!["a".to_owned()];
    let answer = server.ask("DELETE", "/api/v1/volumes/a?drain", None);
    assert_eq!(answer.status, 202);
    let place = answer.header("location").unwrap().to_owned();
    let running = server.ask("GET", &place, None).json();
    assert_eq!(
        (&running["state"], &running["draining"]),
        (&json!("running"), &json!(["a"]))
    );
    // Its time is over, and its storage does not answer.
    server.plane.is_stuck.store(true, Ordering::Relaxed);
    let stuck = server.ask("GET", &place, None).json();
    assert_eq!(
        (&stuck["state"], &stuck["draining"]),
        (&json!("stuck"), &json!(["a"]))
    );
    server.plane.draining.lock().unwrap().clear();
    assert_eq!(server.ask("GET", &place, None).json()["state"], "done");
    let failures = [("a".to_owned(), "no space".to_owned())];
    server.plane.failures.lock().unwrap().extend(failures);
    let failed = server.ask("GET", &place, None).json();
    assert_eq!(failed["state"], "failed");
    let failure = failed["failure"].as_str().unwrap();
    assert!(
        failure.contains("volume a") && failure.contains("no space"),
        "{failure}"
    );
    assert_eq!(server.ask("GET", "/api/v1/operations/99", None).status, 404);
}

#[test]
fn what_creates_says_so_and_what_it_replaces_is_named_by_a_revision() {
    let server = Server::start();
    let put = |tag: &str| {
        let keys = json!({"backend": "mem"});
        server.ask_with(
            "PUT",
            "/api/v1/volumes/b",
            Some(&keys),
            &[("If-None-Match", tag)],
        )
    };
    assert_eq!(put("*").status, 200);
    assert!(last(&server).1.create);
    assert_eq!(put("\"7\"").status, 400);
    let keys = json!({"backend": "mem"});
    server.ask("PUT", "/api/v1/volumes/b", Some(&keys));
    assert!(!last(&server).1.create);
}

#[test]
fn iscsi_names_are_found_in_capitals_and_others_are_not() {
    let server = Server::start();
    let found = server.ask("GET", "/api/v1/targets/IQN.2026-11.X:y", None);
    assert_eq!(found.json()["name"], "iqn.2026-11.x:y");
    assert_eq!(server.ask("GET", "/api/v1/volumes/A", None).status, 404);
    let path = "/api/v1/targets/IQN.2026-11.X:Y/luns/3";
    let mapped = server.ask("PUT", path, Some(&json!({"volume": "b"})));
    assert_eq!(mapped.status, 200, "{mapped:?}");
    assert!(matches!(last(&server).0, Wish::Patch { id, .. } if id.name == "iqn.2026-11.x:y"));
}

#[test]
fn a_change_that_hangs_holds_up_nothing_but_other_changes() {
    let server = Server::start();
    let hanging = server.plane.storage.lock().unwrap();
    std::thread::scope(|scope| {
        let remove = || server.ask("DELETE", "/api/v1/volumes/a", None);
        let first = scope.spawn(remove);
        while server.plane.begun.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let others: Vec<_> = (0..3).map(|_| scope.spawn(remove)).collect();
        for path in [
            "/healthz",
            "/metrics",
            "/api/v1/volumes",
            "/api/v1/sessions",
            "/api/v1/tokens",
        ] {
            assert_eq!(server.ask("GET", path, None).status, 200, "{path}");
        }
        let plan = server.ask("DELETE", "/api/v1/volumes/a?dry-run", None);
        assert_eq!(plan.status, 200);
        let body = json!({"name": "ci", "role": "read"});
        assert_eq!(
            server.ask("POST", "/api/v1/tokens", Some(&body)).status,
            200
        );
        assert_eq!(server.ask("DELETE", "/api/v1/sessions/1", None).status, 204);
        // Those behind it are told to come again.
        for other in others {
            let answer = other.join().unwrap();
            assert_eq!(
                (answer.status, &answer.json()["code"]),
                (409, &json!("busy"))
            );
            assert!(
                answer.json()["advice"]
                    .as_str()
                    .unwrap()
                    .contains("try again")
            );
        }
        assert_eq!(server.plane.begun.load(Ordering::Relaxed), 1);
        drop(hanging);
        assert_eq!(first.join().unwrap().status, 200);
    });
    assert_eq!(server.ask("DELETE", "/api/v1/volumes/a", None).status, 200);
}

#[test]
fn an_entry_of_a_map_is_changed_on_condition_that_nobody_else_has_changed_it() {
    let server = Server::start();
    let path = "/api/v1/targets/iqn.2026-11.x:y/luns/3";
    let answer = server.ask("PUT", path, Some(&json!({"volume": "b"})));
    assert_eq!(answer.status, 200, "{answer:?}");
    let (wish, options) = last(&server);
    let Wish::Patch { patch, .. } = wish else {
        panic!("no patch");
    };
    let luns = json!([{"lun": 0, "volume": "a"}, {"lun": 3, "volume": "b"}]);
    assert_eq!(
        (patch["luns"].clone(), options.revision),
        (luns, Some(Revision(7)))
    );
    assert_eq!(server.ask("DELETE", path, None).status, 404);
    let unknown = "/api/v1/targets/iqn.2026-11.x:z/luns/3";
    assert_eq!(server.ask("DELETE", unknown, None).status, 404);
}

#[test]
fn an_entry_that_is_there_is_not_replaced_by_what_creates() {
    let server = Server::start();
    let path = "/api/v1/targets/iqn.2026-11.x:y/luns/0";
    let create = |body: &serde_json::Value| {
        let headers = [("If-None-Match", "*")];
        server.ask_with("PUT", path, Some(body), &headers)
    };
    let refused = create(&json!({"volume": "b"}));
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (409, Some("exists"))
    );
    assert_eq!(create(&json!({"volume": "a"})).status, 200);
    let replaced = server.ask("PUT", path, Some(&json!({"volume": "b"})));
    assert_eq!(replaced.status, 200);
}

#[test]
fn a_body_that_is_no_document_or_too_long_is_refused_with_a_problem() {
    let server = Server::start();
    let refused = server.ask("PUT", "/api/v1/config", Some(&json!({"volume": {}})));
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert!(
        refused.json()["location"]
            .as_str()
            .unwrap()
            .starts_with("body:1:")
    );
    let length = (33_u64 << 20).to_string();
    let headers = [("Content-Length", length.as_str())];
    let refused = server.ask_with("PUT", "/api/v1/config", None, &headers);
    assert_eq!(refused.status, 413);
}
