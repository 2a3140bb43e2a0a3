//! The dashboard: log-in, cookie, pages, and what pages of strangers try.

use serde_json::json;

use crate::support::{Answer, Server};

impl Server {
    /// Asks for a log-in over the socket, and gives its code.
    fn code(&self) -> String {
        let made = self.ask("POST", "/api/v1/logins", None);
        assert_eq!(made.status, 200, "{made:?}");
        let url = made.json()["url"].as_str().unwrap().to_owned();
        let (base, code) = url.split_once("/login#").unwrap();
        assert_eq!(base, format!("http://{}", self.address));
        code.to_owned()
    }

    fn enter(&self, code: &str, headers: &[(&str, &str)]) -> Answer {
        self.post_form("/login", &format!("code={code}"), headers)
    }

    /// Logs a browser in, and gives its cookie as it sends it.
    fn cookie(&self) -> String {
        let entered = self.enter(&self.code(), &[]);
        assert_eq!(entered.status, 303, "{entered:?}");
        let cookie = entered.header("set-cookie").unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Makes a token, and gives its bearer.
    fn made(&self, name: &str) -> String {
        let body = json!({"name": name, "role": "read"});
        let made = self.ask("POST", "/api/v1/tokens", Some(&body)).json();
        format!("Bearer {}", made["token"].as_str().unwrap())
    }

    /// Logs a browser in with a token, and gives its cookie.
    fn cookie_by(&self, bearer: &str) -> String {
        let asked = self.ask_tcp("POST", "/api/v1/logins", &[("Authorization", bearer)]);
        let url = asked.json()["url"].as_str().unwrap().to_owned();
        let entered = self.enter(url.split_once('#').unwrap().1, &[]);
        let cookie = entered.header("set-cookie").unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }
}

#[test]
fn a_code_logs_a_browser_in_once_and_its_cookie_is_hidden_from_scripts() {
    let server = Server::start();
    let code = server.code();
    let entered = server.enter(&code, &[]);
    assert_eq!(entered.header("location"), Some("/"));
    let cookie = entered.header("set-cookie").unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    assert!(!cookie.contains(&code));
    let again = server.enter(&code, &[]);
    assert_eq!(again.status, 403);
    assert!(again.header("set-cookie").is_none() && again.body.contains("not valid"));
    assert_eq!(server.enter("", &[]).status, 403);
}

#[test]
fn pages_need_a_log_in_and_have_a_strict_policy() {
    let server = Server::start();
    for page in ["/", "/ui/volumes", "/ui/configuration"] {
        let refused = server.ask_tcp("GET", page, &[]);
        assert_eq!(
            (refused.status, refused.header("location")),
            (303, Some("/login")),
            "{page}"
        );
        let wrong = format!("longshore_{}=x", server.address.port());
        let refused = server.ask_tcp("GET", page, &[("Cookie", &wrong)]);
        assert_eq!(refused.status, 303, "{page}");
    }
    let cookie = server.cookie();
    for page in [
        "/",
        "/ui/volumes",
        "/ui/volumes/a",
        "/ui/targets",
        "/ui/targets/iqn.2026-11.x%3Ay",
        "/ui/sessions",
        "/ui/cores",
        "/ui/pipeline",
        "/ui/events",
        "/ui/configuration",
    ] {
        let shown = server.ask_tcp("GET", page, &[("Cookie", &cookie)]);
        assert_eq!(shown.status, 200, "{page}: {shown:?}");
        let policy = shown.header("content-security-policy").unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(shown.header("cache-control"), Some("no-store"));
        assert!(shown.body.starts_with("<!DOCTYPE html>"));
    }
    let missing = server.ask_tcp("GET", "/ui/volumes/none", &[("Cookie", &cookie)]);
    assert_eq!(missing.status, 404);
    assert!(missing.body.contains("there is no volume of this name"));
}

#[test]
fn the_files_of_a_page_are_there_and_may_be_kept() {
    let server = Server::start();
    let page = server.ask("GET", "/", None).body;
    let mut files = 0;
    for quoted in page.split('"').filter(|it| it.starts_with("/ui/assets/")) {
        let file = server.ask_tcp("GET", quoted, &[]);
        assert_eq!(file.status, 200, "{quoted}");
        assert!(file.header("cache-control").unwrap().contains("immutable"));
        files += 1;
    }
    assert!(files >= 5, "{page}");
    assert_eq!(
        server
            .ask_tcp("GET", "/ui/assets/0/dashboard.js", &[])
            .status,
        404
    );
}

#[test]
fn a_browser_may_use_the_api_and_pages_of_other_origins_may_not_with_its_cookie() {
    let server = Server::start();
    let (cookie, own) = (server.cookie(), server.origin());
    let read = |name, value| {
        server.ask_tcp(
            "GET",
            "/api/v1/volumes",
            &[("Cookie", &cookie), (name, value)],
        )
    };
    assert_eq!(read("Sec-Fetch-Site", "same-origin").status, 200);
    assert_eq!(read("Sec-Fetch-Site", "cross-site").status, 403);
    // Another port of this machine: the browser sends its cookie there.
    assert_eq!(read("Sec-Fetch-Site", "same-site").status, 403);
    let write = |headers: &[(&str, &str)]| {
        let headers = [&[("Cookie", cookie.as_str())], headers].concat();
        server
            .ask_tcp("DELETE", "/api/v1/volumes/a", &headers)
            .status
    };
    assert_eq!(write(&[("Origin", &own)]), 200);
    assert_eq!(write(&[]), 403);
    for origin in [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "http://localhost",
    ] {
        assert_eq!(write(&[("Origin", origin)]), 403, "{origin}");
    }
    assert_eq!(
        write(&[("Origin", &own), ("Sec-Fetch-Site", "same-site")]),
        403
    );
    assert_eq!(
        write(&[("Origin", &own), ("Sec-Fetch-Mode", "no-cors")]),
        403
    );
    let headers = [
        ("Cookie", cookie.as_str()),
        ("Origin", "http://evil.example"),
    ];
    let rebound = server.ask_as("evil.example", "GET", "/", &headers);
    assert_eq!(rebound.status, 403);
    let asked = server.plane.asked.lock().unwrap();
    let names: Vec<&str> = asked
        .iter()
        .map(|(.., caller)| caller.name.as_str())
        .collect();
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(names, [format!("uid {uid}, browser")]);
}

#[test]
fn pages_of_other_origins_cannot_log_a_browser_in_or_out() {
    let server = Server::start();
    let code = server.code();
    let foreign = [("Origin", "http://evil.example")];
    assert_eq!(server.enter(&code, &foreign).status, 403);
    assert_eq!(
        server
            .enter(&code, &[("Sec-Fetch-Site", "cross-site")])
            .status,
        403
    );
    let own = server.origin();
    assert_eq!(server.enter(&code, &[("Origin", &own)]).status, 303);
    let cookie = server.cookie();
    let out = |origin: &str| {
        let headers = [("Cookie", cookie.as_str()), ("Origin", origin)];
        server.ask_tcp("POST", "/logout", &headers).status
    };
    let shown = || server.ask_tcp("GET", "/", &[("Cookie", &cookie)]).status;
    assert_eq!((out("http://evil.example"), shown()), (403, 200));
    assert_eq!((out(&own), shown()), (303, 303));
}

#[test]
fn a_log_in_has_the_role_of_who_asked_and_ends_with_the_token() {
    let server = Server::start();
    let body = json!({"name": "ci", "role": "read"});
    let made = server.ask("POST", "/api/v1/tokens", Some(&body)).json();
    let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
    let asked = server.ask_tcp("POST", "/api/v1/logins", &[("Authorization", &bearer)]);
    assert_eq!(asked.json()["role"], "read");
    let url = asked.json()["url"].as_str().unwrap().to_owned();
    let entered = server.enter(url.split_once('#').unwrap().1, &[]);
    let cookie = entered
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let own = server.origin();
    let headers = [("Cookie", cookie.as_str()), ("Origin", own.as_str())];
    assert_eq!(
        server
            .ask_tcp("DELETE", "/api/v1/volumes/a", &headers)
            .status,
        403
    );
    let page = server.ask_tcp("GET", "/ui/volumes", &headers);
    assert!(page.status == 200 && !page.body.contains("data-method="));
    // It cannot give itself another one.
    assert_eq!(
        server.ask_tcp("POST", "/api/v1/logins", &headers).status,
        403
    );
    assert_eq!(server.ask("DELETE", "/api/v1/tokens/ci", None).status, 204);
    assert_eq!(server.ask_tcp("GET", "/ui/volumes", &headers).status, 303);
    assert_eq!(
        server.ask_tcp("GET", "/api/v1/volumes", &headers).status,
        401
    );
}

#[test]
fn a_log_in_does_not_come_back_with_another_token_of_the_same_name() {
    let server = Server::start();
    let cookie = server.cookie_by(&server.made("ci"));
    let shown = || {
        server
            .ask_tcp("GET", "/api/v1/volumes", &[("Cookie", &cookie)])
            .status
    };
    assert_eq!(shown(), 200);
    assert_eq!(server.ask("DELETE", "/api/v1/tokens/ci", None).status, 204);
    server.made("ci");
    assert_eq!(shown(), 401);
}

#[test]
fn anybody_may_send_a_code_and_nothing_longer() {
    let server = Server::start();
    let refused = server.enter(&"x".repeat(4096), &[]);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert_eq!(server.enter(&"x".repeat(512), &[]).status, 403);
}

#[test]
fn the_audit_log_tells_who_logged_in() {
    let server = Server::start();
    let path = server.directory.path().join("audit.log");
    assert_eq!(server.enter("guessed", &[]).status, 403);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    server.cookie_by(&server.bearer());
    let text = std::fs::read_to_string(&path).unwrap();
    let intents: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["kind"] == "intent")
        .collect();
    let told: Vec<_> = intents
        .iter()
        .map(|it| {
            (
                it["name"].as_str().unwrap(),
                it["steps"][0].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("token admin", "create log-in (admin)"),
            ("token admin, browser", "log in")
        ]
    );
}

#[test]
fn a_stream_of_events_ends_with_the_log_in_or_the_token_of_its_reader() {
    let server = Server::start();
    let own = server.origin();
    let (cookie, bearer) = (server.cookie(), server.made("ci"));
    let by_token = server.cookie_by(&bearer);
    let opened = |path: &str, name: &str, value: &str| {
        let mut lines = server.stream(path, &[("Connection", "close"), (name, value)]);
        let status = lines.next().unwrap();
        assert!(status.contains(" 200 "), "{status}");
        lines
    };
    let of_browser = opened("/api/v1/events", "Cookie", &cookie);
    let with_samples = opened("/api/v1/events?topics=sample", "Cookie", &cookie);
    let of_token = opened("/api/v1/events", "Authorization", &bearer);
    let of_its_browser = opened("/api/v1/events", "Cookie", &by_token);
    let headers = [("Cookie", cookie.as_str()), ("Origin", own.as_str())];
    assert_eq!(server.ask_tcp("POST", "/logout", &headers).status, 303);
    assert_eq!(server.ask("DELETE", "/api/v1/tokens/ci", None).status, 204);
    // Each of them ends, though nothing happens any more.
    for lines in [of_browser, with_samples, of_token, of_its_browser] {
        assert!(!lines.into_iter().any(|line| line.contains("remove token")));
    }
}

#[test]
fn a_token_for_metrics_gets_no_log_in() {
    let server = Server::start();
    let body = json!({"name": "m", "role": "metrics"});
    let made = server.ask("POST", "/api/v1/tokens", Some(&body)).json();
    let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
    let headers = [("Authorization", bearer.as_str())];
    assert_eq!(
        server.ask_tcp("POST", "/api/v1/logins", &headers).status,
        403
    );
    assert_eq!(server.ask_tcp("GET", "/", &headers).status, 403);
}

#[test]
fn a_port_that_is_forwarded_to_the_socket_shows_pages_and_refuses_strangers() {
    let server = Server::start();
    let own = [("Origin", "http://localhost:8080")];
    let ask = |host: &str, method: &str, headers: &[(&str, &str)]| {
        let path = if method == "GET" {
            "/"
        } else {
            "/api/v1/volumes/a"
        };
        server.ask_socket_as(host, method, path, headers).status
    };
    assert_eq!(ask("localhost:8080", "GET", &[]), 200);
    assert_eq!(ask("localhost:8080", "DELETE", &own), 200);
    assert_eq!(
        ask(
            "localhost:8080",
            "DELETE",
            &[("Origin", "http://evil.example")]
        ),
        403
    );
    assert_eq!(ask("evil.example:8080", "GET", &[]), 403);
    assert_eq!(
        ask(
            "evil.example",
            "DELETE",
            &[("Origin", "http://evil.example")]
        ),
        403
    );
}

#[test]
fn rates_come_once_a_second_for_those_who_name_them() {
    let server = Server::start();
    let cookie = server.cookie();
    let mut lines = server.stream("/api/v1/events?topics=rates", &[("Cookie", &cookie)]);
    let named = lines.find(|line| line == "event: rates");
    assert!(named.is_some());
    let data = lines.next().unwrap();
    let data: serde_json::Value =
        serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    assert!(
        data["limited-by"].is_string() && data["seconds"].is_f64(),
        "{data}"
    );
}
