//! Secrets of NVMe hosts: files that are made, checked, derived from and listed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A key of libnvme's tests.
const TLS: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

fn run(folder: &TempDir, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.arg("key").args(words).current_dir(folder);
    command.env_remove("CREDENTIALS_DIRECTORY");
    command.output().expect("the command")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn good(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that has failed.
fn bad(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_secret_is_made_for_its_owner_alone_and_found_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, hash, bytes) in [
        ("dhchap", "none", 32),
        ("dhchap", "sha256", 32),
        ("dhchap", "sha384", 48),
        ("dhchap", "sha512", 64),
        ("tls", "none", 32),
        ("tls", "sha256", 32),
        ("tls", "sha384", 48),
    ] {
        let name = format!("{kind}-{hash}");
        let words = ["generate", &name, "--kind", kind, "--hash", hash];
        assert_eq!(good(run(&folder, &words)), "");
        let path = folder.path().join(&name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let checked = run(&folder, &["check", &name, "--output", "json"]);
        let found = json(&checked);
        assert_eq!(
            (&found["kind"], &found["bytes"]),
            (&kind.into(), &bytes.into())
        );
        let hash = Some(hash).filter(|it| *it != "none");
        assert_eq!(found["hash"].as_str(), hash);
        assert_eq!(found["exposed"], false);
        // What it printed is not the secret.
        let secret = fs::read_to_string(&path).unwrap();
        let key = secret.trim().split(':').nth(2).unwrap();
        assert!(!String::from_utf8(checked.stdout).unwrap().contains(key));
    }
    let printed = good(run(&folder, &["generate"]));
    assert!(
        printed.starts_with("DHHC-1:01:") && printed.ends_with(":\n"),
        "{printed}"
    );
    assert_ne!(printed, good(run(&folder, &["generate"])));
}

#[test]
fn a_file_that_exists_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("key"), "precious", 0o600);
    let error = bad(run(&folder, &["generate", "key"]));
    assert!(error.contains("key exists"), "{error}");
    assert_eq!(fs::read(folder.path().join("key")).unwrap(), b"precious");
    let error = bad(run(
        &folder,
        &["generate", "--kind", "tls", "--hash", "sha512"],
    ));
    assert!(error.contains("sha256 or sha384"), "{error}");
}

#[test]
fn what_is_wrong_with_a_file_is_said_without_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let mistyped = TLS.replace("VRL", "WRL");
    for (text, expected) in [
        ("", "holds neither"),
        ("secret-of-somebody", "holds neither"),
        (mistyped.as_str(), "checksum"),
        ("DHHC-1:07:AAAA:", "has 0 bytes"),
    ] {
        write(&folder.path().join("key"), text, 0o600);
        let error = bad(run(&folder, &["check", "key"]));
        assert!(error.contains(expected), "{error}");
        assert!(text.is_empty() || !error.contains(text), "{error}");
    }
    let error = bad(run(&folder, &["check", "missing"]));
    assert!(error.contains("cannot read missing"), "{error}");
    write(&folder.path().join("key"), TLS, 0o644);
    let text = good(run(&folder, &["check", "key"]));
    assert!(text.contains("0644, which the server refuses"), "{text}");
}

#[test]
fn a_secret_is_read_from_standard_input() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(["key", "check", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(TLS.as_bytes())
        .unwrap();
    let text = good(child.wait_with_output().unwrap());
    assert!(text.contains("key for TLS"), "{text}");
    assert!(!text.contains("mode"), "{text}");
}

#[test]
fn identities_are_derived_and_keys_for_tls_are_shown_on_request() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("key"), TLS, 0o600);
    let names = [
        "--host",
        "nqn.2026-11.test:h",
        "--subsystem",
        "nqn.2026-11.test:s",
    ];
    let derive = |more: &[&str]| run(&folder, &[&["derive", "key"], &names[..], more].concat());
    let first = json(&derive(&["--output", "json"]));
    let identity = first["identity"].as_str().unwrap();
    assert!(
        identity.starts_with("NVMe1R01 nqn.2026-11.test:h nqn.2026-11.test:s "),
        "{identity}"
    );
    assert_eq!(first["cipher_suite"], "TLS_AES_128_GCM_SHA256");
    assert!(first.get("psk").is_none());
    let compat = json(&derive(&["--derivation", "compat", "--output", "json"]));
    assert_ne!(first["identity"], compat["identity"]);
    let old = json(&derive(&[
        "--identity",
        "0",
        "--reveal",
        "--output",
        "json",
    ]));
    assert_eq!(
        old["identity"],
        "NVMe0R01 nqn.2026-11.test:h nqn.2026-11.test:s"
    );
    assert_eq!(old["psk"].as_str().map(str::len), Some(64));
    write(
        &folder.path().join("other"),
        &good(run(&folder, &["generate"])),
        0o600,
    );
    let error = bad(run(&folder, &[&["derive", "other"], &names[..]].concat()));
    assert!(error.contains("DH-HMAC-CHAP"), "{error}");
}

#[test]
fn secrets_of_a_configuration_are_listed_with_what_is_wrong_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let configuration = "
[[volume]]
name = \"far\"
backend = \"nvme-tcp\"
url = \"nvme+tcp://192.0.2.1/nqn.2026-11.test:s/1\"
dhchap-secret-file = \"far.dhchap\"

[[subsystem]]
nqn = \"nqn.2026-11.test:disks\"

[[subsystem.access]]
hosts = [\"nqn.2026-11.test:web\"]
dhchap-secret-file = \"web.dhchap\"
dhchap-ctrl-secret-file = \"storage.dhchap\"
";
    write(&folder.path().join("longshore.toml"), configuration, 0o644);
    for name in ["far.dhchap", "web.dhchap", "storage.dhchap"] {
        good(run(&folder, &["generate", name]));
    }
    let text = good(run(&folder, &["list", "longshore.toml"]));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(
        rows[1].contains("nqn.2026-11.test:web") && rows[1].contains("host"),
        "{text}"
    );
    assert!(rows[2].contains("controller"), "{text}");
    assert!(rows[3].starts_with("far"), "{text}");

    write(&folder.path().join("far.dhchap"), "nothing", 0o600);
    let exposed = fs::Permissions::from_mode(0o644);
    fs::set_permissions(folder.path().join("web.dhchap"), exposed).unwrap();
    let listed = run(&folder, &["list", "longshore.toml", "--output", "json"]);
    assert_eq!(listed.status.code(), Some(1));
    let document = json(&listed);
    let problems: Vec<bool> = document["secrets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row.get("problem").is_some())
        .collect();
    assert_eq!(problems, [true, false, true], "{document}");
}
