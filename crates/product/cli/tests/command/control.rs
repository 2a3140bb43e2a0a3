//! Verbs that speak to a running server, over its socket and over TCP.

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
    assert!(ask(&run, &["token", "remove", "ci"]).status.success());
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
