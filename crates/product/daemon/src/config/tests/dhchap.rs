//! Secrets of NVMe hosts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longshore_nvme::auth::{Group, Hash};
use longshore_nvme::nqn::Nqn;
use tempfile::TempDir;

use super::*;

const HOST: &str = "DHHC-1:01:RIMq8wC7bb1BS0FKMBeV5dMXqQzYZOvvCZfTykmlR0LeRJ5k:";
pub(super) const TLS: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const CONTROLLER: &str = "DHHC-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

pub(super) fn keep(directory: &TempDir, name: &str, text: &str, mode: u32) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, format!("{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

/// An example whose secret files exist, in that directory.
pub(super) fn with_secret_files(directory: &TempDir, example: &str) -> String {
    let host = keep(directory, "web1.dhchap", HOST, 0o600);
    let controller = keep(directory, "storage.dhchap", CONTROLLER, 0o600);
    let key = keep(directory, "web1.psk", TLS, 0o600);
    example
        .replace("web1.psk", &key)
        .replace("web1.dhchap", &host)
        .replace("storage.dhchap", &controller)
}

pub(super) fn rule(hosts: &str, keys: &str) -> String {
    format!("[[subsystem.access]]\nhosts = [\"{hosts}\"]\n{keys}\n")
}

pub(super) const SUBSYSTEM: &str = "[[subsystem]]\nnqn = \"nqn.2026-11.com.example:s\"\n";

#[test]
fn hosts_of_a_rule_have_its_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let host = keep(&directory, "host", HOST, 0o600);
    let controller = keep(&directory, "controller", CONTROLLER, 0o640);
    let keys = format!(
        "dhchap-secret-file = \"{host}\"\ndhchap-ctrl-secret-file = \"{controller}\"\n\
         dhchap-hashes = [\"sha512\", \"SHA256\"]\ndhchap-groups = [\"ffdhe8192\"]"
    );
    let text = format!("{SUBSYSTEM}{}", rule("nqn.2026-11.com.example:h", &keys));
    let config = config(&text);
    let credentials = config.subsystems[0].hosts[0].credentials.clone().unwrap();
    assert_eq!(credentials.host.to_text().as_str(), HOST);
    assert_eq!(
        credentials.controller.as_ref().unwrap().to_text().as_str(),
        CONTROLLER
    );
    assert_eq!(credentials.hashes, [Hash::Sha512, Hash::Sha256]);
    assert_eq!(credentials.groups, [Group::Ffdhe8192]);
    assert!(credentials.required);
}

/// A rule for all others comes last, wherever it stands, and an open subsystem is none that asks for secrets.
#[test]
fn a_rule_with_a_secret_for_all_others_is_the_last_one() {
    let directory = tempfile::tempdir().unwrap();
    let host = keep(&directory, "host", HOST, 0o600);
    let keys = format!("dhchap-secret-file = \"{host}\"\ndhchap-required = false");
    let named = rule("nqn.2026-11.com.example:h", "");
    let text = format!("{SUBSYSTEM}{}{named}", rule("*", &keys));
    let config = config(&text);
    let subsystem = &config.subsystems[0];
    assert!(!subsystem.is_open());
    let of = |name: &str| {
        let name = Nqn::new(name).unwrap();
        let rules = subsystem.hosts.iter();
        let mut matching = rules.filter(|rule| rule.hosts.iter().any(|known| known.matches(&name)));
        matching.next().unwrap().credentials.clone()
    };
    assert!(of("nqn.2026-11.com.example:h").is_none());
    let others = of("nqn.2026-11.com.example:other").unwrap();
    assert!(!others.required);
    // Recorded messages allow guesses without a group, which is not allowed unless it is named.
    assert!(!others.groups.contains(&Group::Null) && others.groups.len() == 5);
    let text = format!(
        "{SUBSYSTEM}{}",
        rule("*", &format!("{keys}\ndhchap-groups = [\"null\"]"))
    );
    let config = self::config(&text);
    let named = config.subsystems[0].hosts[0].credentials.clone().unwrap();
    assert_eq!(named.groups, [Group::Null]);
}

#[test]
fn secrets_that_are_of_no_use_are_refused_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let host = keep(&directory, "host", HOST, 0o600);
    let exposed = keep(&directory, "exposed", HOST, 0o644);
    let malformed = keep(&directory, "malformed", &HOST.replace("RIM", "SIM"), 0o600);
    let missing = Path::new(&host)
        .with_file_name("missing")
        .display()
        .to_string();
    for (keys, expected) in [
        (
            format!("dhchap-secret-file = \"{exposed}\""),
            "has mode 644",
        ),
        (format!("dhchap-secret-file = \"{malformed}\""), "checksum"),
        (
            format!("dhchap-secret-file = \"{missing}\""),
            "cannot read secret file",
        ),
        (
            format!("dhchap-secret-file = \"{host}\"\ndhchap-ctrl-secret-file = \"{host}\""),
            "hold the same secret",
        ),
        (
            "dhchap-required = true".to_owned(),
            "`dhchap-required` has no effect",
        ),
        (
            "dhchap-secure-channel = \"none\"".to_owned(),
            "`dhchap-secure-channel` has no effect",
        ),
        (
            format!("dhchap-secret-file = \"{host}\"\ndhchap-secure-channel = \"maybe\""),
            "none, permitted and required",
        ),
        (
            format!("dhchap-secret-file = \"{host}\"\ndhchap-groups = [\"ffdhe1024\"]"),
            "not a group",
        ),
        (
            format!("dhchap-secret-file = \"{host}\"\ndhchap-hashes = [\"md5\"]"),
            "not a hash function",
        ),
        (
            format!("dhchap-secret-file = \"{host}\"\ndhchap-hashes = []"),
            "at least one",
        ),
    ] {
        let text = format!("{SUBSYSTEM}{}", rule("nqn.2026-11.com.example:h", &keys));
        let message = refusal(&text);
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains(&HOST[10..30]), "{message}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn keys_for_tls_are_made_as_the_rule_says() {
    use longshore_nvme::auth::Concatenation;
    let directory = tempfile::tempdir().unwrap();
    let host = keep(&directory, "host", HOST, 0o600);
    for (more, expected) in [
        ("", Concatenation::Permitted),
        ("dhchap-secure-channel = \"none\"", Concatenation::None),
        (
            "dhchap-secure-channel = \"permitted\"",
            Concatenation::Permitted,
        ),
        (
            "dhchap-secure-channel = \"required\"",
            Concatenation::Required,
        ),
    ] {
        let keys = format!("dhchap-secret-file = \"{host}\"\n{more}");
        let text = format!("{SUBSYSTEM}{}", rule("nqn.2026-11.com.example:h", &keys));
        let config = config(&text);
        let credentials = config.subsystems[0].hosts[0].credentials.clone().unwrap();
        assert_eq!(credentials.concatenation, expected);
    }
}
