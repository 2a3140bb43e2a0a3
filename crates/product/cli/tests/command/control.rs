//! Verbs that speak to a running server, over its socket and over TCP.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::Run;

/// `longshore` with these arguments, for the server of a run.
fn longshore(server: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(arguments).env("LONGSHORE_SERVER", server);
    command.env_remove("LONGSHORE_TOKEN");
    command
}

fn ask(run: &Run, arguments: &[&str]) -> Output {
    let socket = run.path("longshore.sock");
    longshore(&socket, arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(run: &Run, arguments: &[&str]) -> Value {
    let output = ask(run, &[arguments, &["--output", "json"]].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["version"].is_u64(), "{value}");
    value
}

#[test]
fn status_is_told_over_the_socket_and_over_tcp_with_a_token() {
    let run = Run::serve_memory(&["--api", "127.0.0.1:0"]).start();
    let output = ask(&run, &["status"]);
    assert!(text(&output).contains("serves"), "{}", text(&output));
    let address = run.addresses_of("api")[0];
    let url = format!("http://{address}");
    let without = ask(&run, &["status", "--server", &url]);
    assert_eq!(without.status.code(), Some(1));
    let message = complaint(&without);
    assert!(message.contains("--token-file"), "{message}");
    let file = run.path("state/admin-token").display().to_string();
    let with = ask(&run, &["status", "--server", &url, "--token-file", &file]);
    assert!(with.status.success(), "{}", complaint(&with));
    let status = json(&run, &["status"]);
    let listeners = status["listeners"].as_array().unwrap();
    let api = listeners.iter().find(|it| it["service"] == "api").unwrap();
    assert_eq!(api["address"], address.to_string());
}

#[test]
fn without_a_server_the_message_names_the_socket_and_what_to_do() {
    let run = Run::serve_memory(&[]);
    let output = ask(&run, &["volume", "list"]);
    assert_eq!(output.status.code(), Some(1));
    let message = complaint(&output);
    for part in ["longshore.sock", "longshore serve", "--server"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn what_is_served_can_be_listed_shown_and_exported() {
    let run = Run::serve_memory(&[]).start();
    let volumes = json(&run, &["volume", "list"]);
    assert_eq!(volumes["items"][0]["name"], "disk0");
    assert_eq!(volumes["items"][0]["facts"]["size-bytes"], 1 << 20);
    let volume = json(&run, &["volume", "show", "disk0"]);
    assert_eq!(volume["owner"], "command-line");
    let missing = ask(&run, &["volume", "show", "disk1"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(complaint(&missing).contains("longshore volume list"));
    let targets = json(&run, &["target", "list"]);
    assert!(!targets["items"].as_array().unwrap().is_empty());
    let export = text(&ask(&run, &["config", "export"]));
    assert!(export.contains("[[volume]]\nname = \"disk0\""), "{export}");
    assert!(text(&ask(&run, &["session", "list"])).starts_with("ID "));
}

#[test]
fn objects_of_the_command_line_are_not_changed_by_the_api() {
    let run = Run::serve_memory(&[]).start();
    let output = ask(&run, &["volume", "resize", "disk0", "2M"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        complaint(&output).contains("command line"),
        "{}",
        complaint(&output)
    );
}

#[test]
fn a_plan_tells_by_its_status_whether_there_are_changes() {
    let run = Run::serve_memory(&[]).with_file(
        "new.toml",
        "[[volume]]\nname = \"b\"\nbackend = \"mem\"\nsize = \"1M\"\n",
    );
    let run = run.with_file("empty.toml", "").start();
    let file = |name: &str| run.path(name).display().to_string();
    let nothing = ask(&run, &["plan", &file("empty.toml")]);
    assert_eq!(nothing.status.code(), Some(0), "{}", complaint(&nothing));
    assert!(text(&nothing).contains("no changes"), "{}", text(&nothing));
    let changes = ask(&run, &["plan", &file("new.toml")]);
    assert_eq!(changes.status.code(), Some(10), "{}", complaint(&changes));
    assert!(
        text(&changes).contains("+ add volume b"),
        "{}",
        text(&changes)
    );
    let stale = ask(&run, &["apply", &file("new.toml"), "--revision", "99"]);
    assert_eq!(stale.status.code(), Some(1));
}

#[test]
fn tokens_are_made_listed_and_removed_and_their_secret_is_shown_once() {
    let run = Run::serve_memory(&[]).start();
    let made = ask(
        &run,
        &[
            "token",
            "create",
            "ci",
            "--role",
            "read",
            "--expires",
            "30d",
        ],
    );
    let secret = text(&made).trim().to_owned();
    assert!(secret.starts_with("longshore_"), "{secret}");
    let listed = json(&run, &["token", "list"]);
    assert_eq!(listed["items"][0]["name"], "ci");
    assert!(listed["items"][0]["expires-ms"].is_u64());
    assert!(!listed.to_string().contains(&secret));
    let shown = json(&run, &["token", "show", "ci"]);
    assert_eq!(
        (&shown["name"], &shown["role"]),
        (&"ci".into(), &"read".into())
    );
    assert!(!shown.to_string().contains(&secret));
    assert!(text(&ask(&run, &["token", "show", "ci"])).contains("expires"));
    assert_eq!(json(&run, &["token", "remove", "ci"])["name"], "ci");
    assert_eq!(ask(&run, &["token", "remove", "ci"]).status.code(), Some(1));
    let role = ask(&run, &["token", "create", "x", "--role", "root"]);
    assert_eq!(role.status.code(), Some(2));
}

#[test]
fn events_are_listed_and_top_tells_rates_once() {
    let run = Run::serve_memory(&[]).start();
    let events = json(&run, &["events"]);
    let items = events["items"].as_array().unwrap();
    let opened = items.iter().any(|it| it["message"] == "volume opened");
    assert!(opened, "{events}");
    let rates = json(&run, &["top", "--once", "--interval", "200ms"]);
    assert_eq!(rates["volumes"][0]["name"], "disk0");
    assert!(rates["seconds"].as_f64().unwrap() > 0.1);
    assert!(rates["limited-by"].is_string());
    let no_terminal = ask(&run, &["top"]);
    assert_eq!(no_terminal.status.code(), Some(1));
    assert!(complaint(&no_terminal).contains("--once"));
}

#[test]
fn what_is_created_twice_is_the_same_or_refused() {
    let run = Run::serve_memory(&[]).start();
    let create = |size: &str| ask(&run, &["volume", "create", "b", "backend=mem", size]);
    assert!(
        create("size=1M").status.success(),
        "{}",
        complaint(&create("size=1M"))
    );
    assert!(text(&create("size=1M")).contains("no changes"));
    let other = create("size=2M");
    assert_eq!(other.status.code(), Some(1), "{}", text(&other));
    assert!(
        complaint(&other).contains("longshore volume set"),
        "{}",
        complaint(&other)
    );
}

#[test]
fn a_rule_names_the_accounts_of_an_initiator() {
    let run =
        Run::serve_memory(&["--sandbox-path", "{dir}"]).with_file("secret", "a secret of one\n");
    let run = run.start();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(run.path("secret"), mode).unwrap();
    let target = "iqn.2026-11.com.example:t";
    let made = ask(&run, &["target", "create", target, "luns=[]"]);
    assert!(made.status.success(), "{}", complaint(&made));
    let account = format!("one={}", run.path("secret").display());
    let allow = [
        "target",
        "allow",
        target,
        "iqn.2026-11.com.example:h",
        "--account",
        &account,
    ];
    let allowed = ask(&run, &allow);
    assert!(allowed.status.success(), "{}", complaint(&allowed));
    let rules = json(&run, &["target", "show", target])["keys"]["access"].clone();
    assert_eq!(rules[0]["accounts"][0]["user"], "one", "{rules}");
    let wrong = ask(
        &run,
        &["target", "allow", target, "iqn.x", "--account", "one"],
    );
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn logins_are_events_when_the_log_shows_warnings_alone() {
    let run = Run::serve_memory(&["--log-level", "warn"]).start();
    let portal = run.addresses_of("iscsi")[0];
    let login = longshore_tests::initiator::Login::numbered(1);
    let initiator = longshore_tests::initiator::Initiator::log_in(portal, &login).unwrap();
    let events = json(&run, &["events", "--topics", "session"]);
    assert_eq!(events["items"][0]["message"], "logged in", "{events}");
    assert!(events["epoch"].is_u64());
    assert!(!run.stderr().contains("logged in"), "{}", run.stderr());
    let id = json(&run, &["session", "list"])["items"][0]["id"].clone();
    let closed = json(&run, &["session", "close", id.as_str().unwrap()]);
    assert_eq!(closed["id"], id);
    drop(initiator);
}

/// Answers requests on a socket as a server whose storage does not come back.
fn stuck_server(listener: &UnixListener, state: &str) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
        let first = head.next().unwrap().unwrap();
        while !head.next().unwrap().unwrap().is_empty() {}
        let (more, body) = if first.starts_with("DELETE") {
            let plan = r#"{"revision":1,"steps":[],"needs-restart":[],"warnings":[]}"#;
            (
                "Location: /api/v1/operations/2\r\n",
                format!(r#"{{"version":1,"revision":2,"plan":{plan},"draining":["a"]}}"#),
            )
        } else {
            let draining = if state == "stuck" { r#"["a"]"# } else { "[]" };
            (
                "",
                format!(
                    r#"{{"version":1,"id":"2","state":"{state}","revision":2,"draining":{draining},"waits-for":{{"a":"the last flush"}},"failure":"volume a may have lost data"}}"#
                ),
            )
        };
        let length = body.len();
        let kind = "Content-Type: application/json\r\nConnection: close\r\n";
        let head = format!("HTTP/1.1 200 OK\r\n{more}{kind}Content-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
    }
}

#[test]
fn a_removal_that_does_not_end_well_is_told_and_ends_with_1() {
    for (state, expected) in [
        ("stuck", "the last flush (volume a)"),
        ("failed", "may have lost data"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || stuck_server(&listener, state));
        let remove = ["volume", "remove", "a", "--drain"];
        let output = longshore(&socket, &remove).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let message = complaint(&output);
        assert!(
            message.contains(expected) && message.contains("revision 2"),
            "{message}"
        );
    }
}

#[test]
fn a_living_server_keeps_its_socket_and_a_dead_one_is_replaced() {
    let first = Run::serve_memory(&["--socket", "{dir}/s"]).start();
    let socket = first.path("s").display().to_string();
    let (status, message) = Run::serve_memory(&["--socket", &socket]).refuse();
    assert_eq!(status, 1);
    assert!(message.contains("another server listens on"), "{message}");
    first.signal("KILL");
    let mut first = first;
    first.end();
    let second = Run::serve_memory(&["--socket", &socket]).start();
    let output = longshore(Path::new(&socket), &["status"]).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    drop(second);
}

#[test]
fn a_default_socket_that_is_taken_is_a_warning() {
    let first = Run::serve_memory(&[]).start();
    let directory = first.scratch.path().to_owned();
    let second = Run::serve_memory(&[]).with(|command| {
        command.env("RUNTIME_DIRECTORY", directory);
    });
    let second = second.start();
    assert!(
        second.stderr().contains("no socket for the API"),
        "{}",
        second.stderr()
    );
    assert!(ask(&first, &["status"]).status.success());
}

#[test]
fn the_api_needs_tls_beyond_loopback_unless_plain_is_allowed() {
    let (status, message) = Run::serve_memory(&["--api", "0.0.0.0:0"]).refuse();
    assert_eq!(status, 1);
    assert!(message.contains("tls-certificate"), "{message}");
    let file = "[api]\nallow-plain = true\n";
    let run = Run::serve_memory(&["--api", "0.0.0.0:0", "--config", "{dir}/c.toml"]);
    let run = run.with_file("c.toml", file).start();
    assert!(run.addresses_of("api")[0].ip().is_unspecified());
}

#[test]
fn tls_is_served_with_a_certificate_of_the_file_and_checked_by_the_verbs() {
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let file = "[api]\ntls-certificate = \"cert.pem\"\ntls-key = \"key.pem\"\n";
    let run = Run::serve_memory(&["--api", "127.0.0.1:0", "--config", "{dir}/c.toml"])
        .with_file("c.toml", file)
        .with_file("cert.pem", &made.cert.pem())
        .with_file("key.pem", &made.signing_key.serialize_pem())
        .start();
    let url = format!("https://localhost:{}", run.addresses_of("api")[0].port());
    let token = run.path("state/admin-token").display().to_string();
    let status = ["status", "--server", &url, "--token-file", &token];
    let unknown = ask(&run, &status);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        complaint(&unknown).contains("--ca-file"),
        "{}",
        complaint(&unknown)
    );
    let certificate = run.path("cert.pem").display().to_string();
    let known = ask(&run, &[&status[..], &["--ca-file", &certificate]].concat());
    assert!(known.status.success(), "{}", complaint(&known));
}
