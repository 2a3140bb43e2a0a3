//! Who may do what.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::Server;

#[test]
fn tcp_needs_a_token_on_loopback_too_and_the_socket_of_the_own_user_needs_none() {
    let server = Server::start();
    let refused = server.ask_tcp("GET", "/api/v1/volumes", &[]);
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(refused.header("www-authenticate").is_some());
    assert_eq!(refused.json()["code"], "unauthenticated");
    let wrong = [("Authorization", "Bearer longshore_x")];
    assert_eq!(server.ask_tcp("GET", "/api/v1/volumes", &wrong).status, 401);
    let bearer = server.bearer();
    let right = [("Authorization", bearer.as_str())];
    assert_eq!(server.ask_tcp("GET", "/api/v1/volumes", &right).status, 200);
    assert_eq!(server.ask("GET", "/api/v1/volumes", None).status, 200);
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(server.ask_tcp("GET", open, &[]).status, 200, "{open}");
    }
}

#[test]
fn a_token_may_what_its_role_allows_until_it_is_removed() {
    let server = Server::start();
    let token = |role: &str| {
        let body = json!({"name": role, "role": role});
        let made = server.ask("POST", "/api/v1/tokens", Some(&body)).json();
        format!("Bearer {}", made["token"].as_str().unwrap())
    };
    let allowed = |bearer: &str| {
        [
            ("GET", "/metrics"),
            ("GET", "/api/v1/volumes"),
            ("DELETE", "/api/v1/sessions/1"),
            ("DELETE", "/api/v1/volumes/a"),
        ]
        .map(|(method, path)| {
            let answer = server.ask_tcp(method, path, &[("Authorization", bearer)]);
            answer.status < 300
        })
    };
    assert_eq!(allowed(&token("metrics")), [true, false, false, false]);
    assert_eq!(allowed(&token("read")), [true, true, false, false]);
    assert_eq!(allowed(&token("operate")), [true, true, true, false]);
    let admin = server.bearer();
    assert_eq!(allowed(&admin), [true; 4]);
    assert_eq!(
        server.ask("DELETE", "/api/v1/tokens/admin", None).status,
        204
    );
    assert_eq!(allowed(&admin), [false; 4]);
}

#[test]
fn a_token_is_shown_without_its_secret() {
    let server = Server::start();
    let shown = server.ask("GET", "/api/v1/tokens/admin", None);
    assert_eq!(shown.json()["role"], "admin");
    assert!(!shown.body.contains(&server.token) && !shown.body.contains("sha256"));
    assert_eq!(server.ask("GET", "/api/v1/tokens/none", None).status, 404);
}

#[test]
fn connections_without_a_token_do_not_keep_others_out() {
    let server = Server::start();
    let mut idle: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    // The socket has places of its own.
    assert_eq!(server.ask("GET", "/api/v1/volumes", None).status, 200);
    // Those with a token get in as those without one are sent away.
    let bearer = server.bearer();
    let headers = [("Authorization", bearer.as_str())];
    assert_eq!(
        server.ask_tcp("GET", "/api/v1/volumes", &headers).status,
        200
    );
    // The first ones are closed: nothing was asked, and nothing is answered.
    let mut nothing = Vec::new();
    idle[0].read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty());
}

#[test]
fn a_connection_with_a_token_may_stay() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    let (address, token) = (server.address, &server.token);
    let path = "/api/v1/events?topics=change";
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    .unwrap();
    let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("200"));
    // Longer than one without a token would have.
    std::thread::sleep(Duration::from_secs(7));
    server.events.publish("change", "still there", json!({}));
    assert!(lines.any(|line| line.contains("still there")));
}

#[test]
fn a_name_that_is_not_ours_is_refused_whatever_token_comes_with_it() {
    let server = Server::start();
    let bearer = server.bearer();
    let headers = [("Authorization", bearer.as_str())];
    for path in ["/healthz", "/api/v1/volumes", "/nothing"] {
        let refused = server.ask_as("evil.example", "GET", path, &headers);
        assert_eq!(refused.status, 403, "{path}");
    }
    let port = server.address.port();
    for host in ["storage.example".to_owned(), format!("localhost:{port}")] {
        let admitted = server.ask_as(&host, "GET", "/api/v1/volumes", &headers);
        assert_eq!(admitted.status, 200, "{host}");
    }
}

#[test]
fn pages_of_other_origins_cannot_write() {
    let server = Server::start();
    let bearer = server.bearer();
    let own = format!("http://{}", server.address);
    for (name, value, status) in [
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Origin", own.as_str(), 200),
    ] {
        let headers = [("Authorization", bearer.as_str()), (name, value)];
        let answer = server.ask_tcp("DELETE", "/api/v1/volumes/a", &headers);
        assert_eq!(answer.status, status, "{name}: {value}");
    }
}

#[test]
fn secrets_come_back_nowhere() {
    let server = Server::start();
    let body = json!({"name": "ci", "role": "read"});
    let made = server.ask("POST", "/api/v1/tokens", Some(&body)).json();
    let secret = made["token"].as_str().unwrap();
    // A document with a secret that cannot be read.
    let broken = json!({"volumes": "hunter2-hunter2"});
    let refused = server.ask("PUT", "/api/v1/config", Some(&broken));
    assert_eq!(refused.status, 400);
    assert!(!refused.body.contains("hunter2"), "{refused:?}");
    for path in ["/api/v1/tokens", "/api/v1/events?after=0", "/metrics"] {
        let accept = [("Accept", "application/json")];
        let answer = server.ask_with("GET", path, None, &accept);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.contains(secret) && !answer.body.contains(&server.token));
    }
    for file in ["audit.log", "tokens.json"] {
        let text = std::fs::read_to_string(server.directory.path().join(file)).unwrap();
        assert!(!text.contains(secret), "{file}");
    }
    let audit = std::fs::read_to_string(server.directory.path().join("audit.log")).unwrap();
    assert!(audit.contains("create token ci (read)"), "{audit}");
}
