//! The document and what is there.

use std::collections::HashSet;

use longshore_control::openapi;
use serde_json::Value;

use crate::support::Server;

#[test]
fn every_route_of_the_document_is_there_and_has_a_name_of_its_own() {
    let server = Server::start();
    let served = server.ask("GET", "/openapi.json", None).json();
    assert_eq!(served, openapi::value());
    assert_eq!(served["openapi"], "3.1.0");
    let mut ids = HashSet::new();
    for (path, methods) in served["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id}");
            assert!(
                operation["summary"]
                    .as_str()
                    .is_some_and(|it| !it.is_empty())
            );
            if path == "/api/v1/events" {
                continue;
            }
            let path = path
                .replace("{name}", "x")
                .replace(['{', '}'], "")
                .replace("revision:", "1:");
            let answer = server.ask(&method.to_uppercase(), &path, None);
            assert_ne!(answer.status, 405, "{method} {path}");
            let no_route = answer.status == 404
                && (answer.body.contains("nothing at") || answer.body.contains("no such action"));
            assert!(!no_route, "{method} {path}: {answer:?}");
        }
    }
    assert!(ids.len() > 40, "{}", ids.len());
}

#[test]
fn the_document_names_the_media_types_that_are_sent() {
    let server = Server::start();
    let document = openapi::value();
    for (path, accepts) in [
        (
            "/metrics",
            &["text/plain", "application/openmetrics-text"][..],
        ),
        ("/api/v1/events", &["application/json"]),
        ("/api/v1/volumes", &["application/json"]),
    ] {
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        for accept in accepts {
            let answer = server.ask_with("GET", path, None, &[("Accept", accept)]);
            let kind = answer.header("content-type").unwrap();
            let kind = kind.split(';').next().unwrap();
            assert_eq!(kind, *accept, "{path}");
            assert!(content.get(kind).is_some(), "{path}: {content}");
        }
    }
    let events = &document["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"];
    assert!(events.get("text/event-stream").is_some(), "{events}");
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    let document = openapi::value();
    let mut waiting = vec![&document];
    let mut references = 0;
    while let Some(value) = waiting.pop() {
        match value {
            Value::Array(items) => waiting.extend(items),
            Value::Object(keys) => {
                if let Some(Value::String(place)) = keys.get("$ref") {
                    references += 1;
                    let pointer = place.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{place}");
                }
                waiting.extend(keys.values());
            }
            _ => {}
        }
    }
    assert!(references > 30);
}

#[test]
fn health_and_readiness_are_statuses_with_reasons() {
    let server = Server::start();
    assert_eq!(server.ask("GET", "/healthz", None).status, 200);
    let mut health = server.plane.health.lock().unwrap();
    health.ready = false;
    health.reasons = vec!["the server is stopping".to_owned()];
    drop(health);
    // What was collected holds for a second.
    loop {
        let answer = server.ask("GET", "/readyz", None);
        if answer.status == 503 {
            assert_eq!(answer.json()["reasons"][0], "the server is stopping");
            break;
        }
    }
    assert_eq!(server.ask("GET", "/healthz", None).status, 200);
}

#[test]
fn metrics_come_in_the_form_that_is_accepted() {
    let server = Server::start();
    let text = server.ask("GET", "/metrics", None);
    let kind = text.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let accept = [(
        "Accept",
        "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    )];
    let open = server.ask_with("GET", "/metrics", None, &accept);
    let kind = open.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(open.body.contains("# EOF"));
}

#[test]
fn what_is_not_there_is_a_problem_document() {
    let server = Server::start();
    for (method, path, status) in [
        ("GET", "/x", 404),
        ("POST", "/healthz", 405),
        ("GET", "/api/v1/volumes/z", 404),
    ] {
        let answer = server.ask(method, path, None);
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(answer.json()["status"], status);
    }
}
