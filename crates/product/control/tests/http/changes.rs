//! Changes: what the engine is asked.

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
    server.plane.draining.lock().unwrap().clear();
    assert_eq!(server.ask("GET", &place, None).json()["state"], "done");
    assert_eq!(server.ask("GET", "/api/v1/operations/99", None).status, 404);
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
