//! Every request of the verbs is one of the OpenAPI document.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use longshore_tests::scratch::Scratch;
use serde_json::{Value, json};

/// Answers with documents that lead the verbs on, and tells which requests came: method and path.
fn listen(listener: UnixListener) -> Receiver<(String, String)> {
    let (told, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            if told.send(answer(stream)).is_err() {
                return;
            }
        }
    });
    requests
}

fn answer(stream: UnixStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).expect("a request");
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let mut words = first.split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let (status, body) = document(&method, &path);
    let body = body.to_string();
    let mut stream = reader.into_inner();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"1\"\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    (method, path)
}

/// What lets a verb go on to its next request; all else is refused.
fn document(method: &str, path: &str) -> (&'static str, Value) {
    let is_target = path.starts_with("/api/v1/targets/") || path.starts_with("/api/v1/subsystems/");
    match method {
        "GET" if path == "/api/v1/" => {
            let status = json!({
                "version": 1, "program-version": "0", "pid": 1, "started-ms": 1, "revision": 1, "engine": "epoll",
                "listeners": [], "volumes": 0, "targets": 0, "subsystems": 0, "sessions": 0,
                "needs-restart": [], "health": {"alive": true, "ready": true, "reasons": []},
            });
            ("200 OK", status)
        }
        "GET" if is_target => {
            let keys = json!({
                "luns": [{"lun": 0, "volume": "a"}], "namespaces": [{"nsid": 1, "volume": "a"}],
            });
            let object = json!({
                "version": 1, "kind": "target", "name": "x", "owner": "api", "state": "up", "keys": keys,
            });
            ("200 OK", object)
        }
        "GET" if path == "/api/v1/targets" => ("200 OK", json!({"version": 1, "items": []})),
        _ => {
            let problem = json!({"code": "not-found", "title": "nothing is here"});
            ("404 Not Found", problem)
        }
    }
}

/// All verbs that ask a server, with words that make them ask.
const VERBS: &[&str] = &[
    "status",
    "top --once",
    "dashboard",
    "volume list",
    "volume show a",
    "volume create a backend=mem size=1M",
    "volume set a size=2M",
    "volume resize a 2M --drain --dry-run",
    "volume disable a",
    "volume enable a",
    "volume remove a",
    "target list",
    "target show iqn.2026-11.x:y",
    "target show nqn.2026-11.x:y",
    "target create iqn.2026-11.x:y",
    "target create nqn.2026-11.x:y",
    "target set iqn.2026-11.x:y alias=z",
    "target set nqn.2026-11.x:y serial=z",
    "target map iqn.2026-11.x:y b",
    "target map nqn.2026-11.x:y b --number 7",
    "target unmap iqn.2026-11.x:y a",
    "target unmap nqn.2026-11.x:y a",
    "target allow iqn.2026-11.x:y iqn.2026-11.x:z",
    "target allow nqn.2026-11.x:y nqn.2026-11.x:z",
    "target deny iqn.2026-11.x:y iqn.2026-11.x:z",
    "target deny nqn.2026-11.x:y nqn.2026-11.x:z",
    "target disable iqn.2026-11.x:y",
    "target disable nqn.2026-11.x:y",
    "target enable iqn.2026-11.x:y",
    "target enable nqn.2026-11.x:y",
    "setting list",
    "setting show transmit",
    "setting set transmit nagle-margin=7",
    "setting remove discovery",
    "target remove iqn.2026-11.x:y",
    "target remove nqn.2026-11.x:y",
    "pool list",
    "pool show tank",
    "pool add tank /srv/b",
    "pool remove tank /srv/b --detach",
    "pool attach tank /srv/a /srv/b --detach",
    "pool replace tank /srv/a /srv/b --detach",
    "pool offline tank /srv/a",
    "pool scrub tank --detach",
    "pool stop tank",
    "pool destroy tank",
    "pool volume create tank a 1M",
    "pool volume resize tank a 2M",
    "pool volume set tank a --compression zstd",
    "pool volume delete tank a",
    "pool snapshot create tank s a",
    "pool snapshot clone tank a@s b",
    "pool snapshot rollback tank a@s",
    "pool snapshot delete tank a@s",
    "pool snapshot diff tank a@t --since a@s",
    "session list",
    "session show 1",
    "session close 1",
    "plan",
    "plan /dev/null",
    "apply",
    "apply /dev/null --revision 1",
    "config export --owner api",
    "config history",
    "config show 3",
    "config rollback 3",
    "events",
    "events --follow",
    "token list",
    "token show ci",
    "token create a --role read",
    "token remove a",
];

/// What follows the name of an object in a part of a path, such as `:resize`.
fn action(part: &str) -> Option<&str> {
    let (_, action) = part.strip_prefix('{')?.split_once('}')?;
    (!action.is_empty()).then_some(action)
}

/// Whether a path is one of the document's: `{name}` stands for one part, which ends in none of the actions.
fn matches(pattern: &str, path: &str, actions: &BTreeSet<&str>) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(part), Some(actual)) if part == actual => {}
            (Some(part), Some(actual)) => {
                let Some((_, end)) = part.strip_prefix('{').and_then(|it| it.split_once('}'))
                else {
                    return false;
                };
                let is_action = actions.iter().any(|action| actual.ends_with(action));
                let fits = actual
                    .strip_suffix(end)
                    .is_some_and(|name| !name.is_empty());
                if !fits || is_action == end.is_empty() {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

#[test]
fn every_request_of_the_verbs_is_in_the_openapi_document() {
    let scratch = Scratch::new("requests");
    let socket = scratch.join("s");
    let requests = listen(UnixListener::bind(&socket).unwrap());
    let document = longshore_control::openapi::value();
    let paths = document["paths"].as_object().unwrap();
    let parts = paths.keys().flat_map(|path| path.split('/'));
    let actions: BTreeSet<&str> = parts.filter_map(action).collect();
    let mut seen = BTreeSet::new();
    for verb in VERBS {
        let status = Command::new(env!("CARGO_BIN_EXE_longshore"))
            .args(verb.split(' '))
            .args(["--server", &socket.display().to_string()])
            .output()
            .unwrap()
            .status;
        assert_ne!(status.code(), Some(2), "{verb}");
        // The first may be told after the verb has had its answer.
        let first = requests.recv_timeout(Duration::from_secs(30));
        let first = first.unwrap_or_else(|_| panic!("{verb} asks for nothing"));
        for (method, path) in std::iter::once(first).chain(requests.try_iter()) {
            let found = paths.iter().find(|(pattern, methods)| {
                matches(pattern, &path, &actions) && methods.get(method.to_lowercase()).is_some()
            });
            let Some((pattern, methods)) = found else {
                panic!("{verb}: {method} {path}");
            };
            let id = methods[method.to_lowercase()]["operationId"].as_str();
            seen.insert((pattern.clone(), id.unwrap_or_default().to_owned()));
        }
    }
    // What no verb asks for, other clients do.
    let unused: Vec<&str> = paths
        .values()
        .flat_map(|methods| methods.as_object().unwrap().values())
        .filter_map(|operation| operation["operationId"].as_str())
        .filter(|id| !seen.iter().any(|(_, known)| known == id))
        .collect();
    let others = [
        "getOperation",
        "planConfig",
        "putSetting",
        "healthz",
        "readyz",
        "openapi",
        "metrics",
    ];
    for id in &unused {
        assert!(others.contains(id), "{id}: {unused:?}");
    }
}
