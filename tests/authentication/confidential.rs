//! Secrets that the server was given are nowhere to be found.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longshore_tests::api::ApiAddress;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{ServerBuilder, TARGET, free_port};
use serde_json::json;

use crate::rig::{Rig, keep, secret};

/// All that is in the files below a folder.
fn contents(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &contents(&path);
        } else if path.metadata().unwrap().is_file() {
            text += &String::from_utf8_lossy(&fs::read(&path).unwrap());
        }
    }
    text
}

/// Answers of the API.
const READABLE: [&str; 11] = [
    "/metrics",
    "/openapi.json",
    "/api/v1/config",
    "/api/v1/config/revisions",
    "/api/v1/config/revisions/1",
    "/api/v1/events?after=0",
    "/api/v1/sessions",
    "/api/v1/statistics",
    "/api/v1/subsystems",
    "/api/v1/targets",
    "/api/v1/volumes",
];

#[test]
fn nothing_that_the_server_writes_contains_a_secret() {
    let scratch = Scratch::new("confidential-socket");
    let socket = scratch.join("socket");
    let chap_file = keep(&scratch, "chap", "the-secret-in-a-file-of-35-letters.");
    let more = format!(
        "[log]\nlevel = \"trace\"\n[[target]]\nname = \"{TARGET}\"\nmutual = {{ user = \"us\", secret = \
         \"the-mutual-secret-of-ours\" }}\naccounts = [{{ user = \"ann\", secret = \"the-inline-secret-of-ann\" }}, \
         {{ user = \"bob\", secret-file = \"{}\" }}]\n",
        chap_file.display(),
    );
    let rig = Rig::start_with(
        "confidential",
        "dhchap-groups = [\"null\", \"ffdhe2048\"]",
        &more,
        |builder| {
            builder
                .argument("--socket")
                .argument(&socket.display().to_string())
        },
    );
    let texts = [1, 2, 9].map(|seed| secret(seed).to_text().to_string());
    let keys = texts
        .iter()
        .map(|text| text.split(':').nth(2).unwrap().to_owned());
    let mut secrets: Vec<String> = keys.collect();
    secrets.extend([
        "the-secret-in-a-file-of-35-letters.".to_owned(),
        "the-mutual-secret-of-ours".to_owned(),
        "the-inline-secret-of-ann".to_owned(),
        "a-guess-that-is-logged-nowhere".to_owned(),
    ]);
    rig.attach(1, Some(secret(1)), Some(secret(9))).unwrap();
    rig.refusal(2, Some(secret(1)), None);
    let place = ApiAddress::Socket(socket);
    let body = json!({
        "accounts": [{ "user": "eve", "secret-file": chap_file.display().to_string() }],
        "mutual": { "user": "us", "secret": "a-guess-that-is-logged-nowhere", "surplus": 1 },
    });
    // Refused, and not repeated.
    let target = "/api/v1/targets/iqn.2026-11.local.longshore:by-api";
    let refused = place.ask("PUT", target, Some(&body)).unwrap();
    assert!(refused.status >= 400, "{refused:?}");
    let mut written = refused.body;
    // Makes a revision, which repeats what was there before.
    let volume = json!({ "backend": "mem", "size": "1M" });
    let made = place.ask("PUT", "/api/v1/volumes/another", Some(&volume));
    written += &made.unwrap().body;
    for path in READABLE {
        let answer = place.ask("GET", path, None).unwrap();
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        written += &answer.body;
    }
    rig.server.reload().unwrap();
    rig.server.wait_for_log("SIGHUP");
    written += &rig.server.log();
    written += &contents(&rig.scratch.join("state"));
    let cmdline = fs::read(format!("/proc/{}/cmdline", rig.server.pid())).unwrap();
    written += &String::from_utf8_lossy(&cmdline);
    assert!(written.contains("bob") && written.contains("NVMe authentication failed"));
    let lowercase = written.to_lowercase();
    for secret in secrets {
        assert!(!written.contains(&secret), "{secret}");
        let hex: String = secret.bytes().map(|it| format!("{it:02x}")).collect();
        assert!(!lowercase.contains(&hex), "{secret} in hexadecimal");
    }
}

/// Files below /proc/PID belong to root then, whoever the process is.
#[test]
fn other_processes_of_the_same_user_cannot_read_its_memory() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root starts a server as another user");
        return;
    }
    let listen = free_port();
    let server = ServerBuilder::new()
        .as_ordinary_user(64 << 10)
        .volume("m,backend=mem,size=1M")
        .iscsi_at(listen, "")
        .start()
        .unwrap();
    let process = format!("/proc/{}", server.pid());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    let user = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap();
    assert_ne!(user.split_whitespace().next(), Some("0"));
    assert_eq!(fs::metadata(format!("{process}/mem")).unwrap().uid(), 0);
}
