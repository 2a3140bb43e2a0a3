//! Secrets that the server was given are nowhere to be found.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use longshore_initiator::attach::attach;
use longshore_initiator::options::{Options, TlsOptions};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::{ConfiguredKey, Derivation, Origin, PskHash, Version};
use longshore_tests::api::ApiAddress;
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{ServerBuilder, TARGET, free_port};
use serde_json::json;

use crate::rig::{Rig, host_nqn, keep, secret};

/// All that is in the files below a folder. The first token has a file of its own there, for its user alone.
fn contents(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &contents(&path);
        } else if path.ends_with("admin-token") {
            assert_eq!(path.metadata().unwrap().mode() & 0o077, 0);
        } else if path.metadata().unwrap().is_file() {
            text += &String::from_utf8_lossy(&fs::read(&path).unwrap());
        }
    }
    text
}

/// Answers of the API.
const READABLE: [&str; 18] = [
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/api/v1/",
    "/api/v1/config",
    "/api/v1/config/revisions",
    "/api/v1/config/revisions/1",
    "/api/v1/events?after=0",
    "/api/v1/sessions",
    "/api/v1/statistics",
    "/api/v1/subsystems",
    "/api/v1/targets",
    "/api/v1/tokens",
    "/api/v1/volumes",
    "/api/v1/config?owner=file",
    "/api/v1/config?owner=api",
];

/// What a key for TLS could show itself as: its text, its bytes, and what is derived of it.
fn forms(key: &ConfiguredKey) -> Vec<Vec<u8>> {
    let text = key.to_text();
    let base64 = text.split(':').nth(2).unwrap();
    let (host, subsystem) = (host_nqn(1), Nqn::new(SUBSYSTEM).unwrap());
    let mut forms = vec![base64.as_bytes().to_vec()];
    for derivation in Derivation::ALL {
        for version in Version::ALL {
            let retained = key.retained(&host, derivation);
            let psk = retained.tls_psk(&host, &subsystem, version, Origin::Configured);
            forms.push(psk.unwrap().key().to_vec());
        }
    }
    forms
}

/// Whether bytes are there as they are, or as digits, or in base64.
fn shows(written: &[u8], secret: &[u8]) -> bool {
    let hex: String = secret.iter().map(|it| format!("{it:02x}")).collect();
    let base64 = BASE64.encode(secret);
    // Its last digits depend on what follows.
    let base64 = base64.trim_end_matches('=');
    let forms = [
        secret,
        hex.as_bytes(),
        &base64.as_bytes()[..base64.len() - 1],
    ];
    forms.into_iter().any(|form| {
        let mut places = written.windows(form.len());
        places.any(|place| place.eq_ignore_ascii_case(form))
    })
}

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
    let [tls_key, wrong_key] = [3, 4].map(|seed| {
        ConfiguredKey::generate(Some(PskHash::Sha256), &mut |bytes| {
            bytes.copy_from_slice(&[seed; 32].map(|byte: u8| byte.wrapping_mul(57)));
        })
    });
    let tls_file = keep(&scratch, "psk", &tls_key.to_text());
    let rig = Rig::start_with(
        "confidential",
        &format!(
            "dhchap-groups = [\"null\", \"ffdhe2048\"]\ntls-key-files = [\"{}\"]\ntls-required = false\n",
            tls_file.display()
        ),
        &more,
        |builder| {
            builder
                .argument("--socket")
                .argument(&socket.display().to_string())
                .argument("--api")
                .argument(&free_port().to_string())
        },
    );
    let token = fs::read_to_string(rig.scratch.join("state/admin-token")).unwrap();
    let texts = [1, 2, 9].map(|seed| secret(seed).to_text().to_string());
    let keys = texts
        .iter()
        .map(|text| text.split(':').nth(2).unwrap().to_owned());
    let mut secrets: Vec<String> = keys.collect();
    secrets.extend([
        token.trim().to_owned(),
        "the-secret-in-a-file-of-35-letters.".to_owned(),
        "the-mutual-secret-of-ours".to_owned(),
        "the-inline-secret-of-ann".to_owned(),
        "a-guess-that-is-logged-nowhere".to_owned(),
    ]);
    rig.attach(1, Some(secret(1)), Some(secret(9))).unwrap();
    rig.refusal(2, Some(secret(1)), None);
    // Over TLS, with a key that is made of the authentication, and with a key that is wrong.
    let over_tls = |key: Option<&ConfiguredKey>, concatenate: bool| {
        let url = format!("nvme+tcp://{}/{SUBSYSTEM}/1", rig.nvme);
        let mut options = Options {
            host_nqn: Some(host_nqn(1)),
            ..Options::default()
        };
        options.nvme.secret = Some(secret(1));
        options.nvme.tls = key.map(|key| TlsOptions::new(key.clone()));
        options.nvme.concatenate = concatenate;
        attach(&url.parse().unwrap(), &options)
    };
    over_tls(Some(&tls_key), false).unwrap();
    over_tls(None, true).unwrap();
    over_tls(Some(&wrong_key), false).unwrap_err();
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
    let everything = place.ask("GET", "/api/v1/config", None).unwrap().json();
    let planned = place.ask("POST", "/api/v1/config:plan", Some(&everything));
    written += &planned.unwrap().body;
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
    let environment = fs::read(format!("/proc/{}/environ", rig.server.pid())).unwrap();
    written += &String::from_utf8_lossy(&environment);
    for said in [
        "bob",
        "NVMe authentication failed",
        "TLS handshake failed",
        "NVMe1R01",
    ] {
        assert!(written.contains(said), "{said}");
    }
    let written = written.as_bytes();
    for secret in secrets {
        assert!(!shows(written, secret.as_bytes()), "{secret}");
    }
    for (name, key) in [("the key for TLS", &tls_key), ("the wrong key", &wrong_key)] {
        for form in forms(key) {
            assert!(!shows(written, &form), "{name}: {form:?}");
        }
    }
    // What is looked for would be found.
    assert!(shows(b"..6B6579..", b"key") && shows(b"..a2V5..", b"key") && shows(b"KEY", b"key"));
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
