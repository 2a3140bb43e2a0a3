//! Keys with which NVMe hosts open TLS.

use longshore_nvme::psk::Derivation;
use longshore_server::config::TlsUse;

use super::dhchap::{SUBSYSTEM, TLS, keep, rule};
use super::*;

const HOST: &str = "nqn.2026-11.com.example:h";

#[test]
fn hosts_of_a_rule_have_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (
        keep(&directory, "one", TLS, 0o600),
        keep(&directory, "other", TLS, 0o640),
    );
    let keys = format!("tls-key-files = [\"{one}\", \"{other}\"]\ntls-derivation = \"compat\"");
    let named = config(&format!("{SUBSYSTEM}{}", rule(HOST, &keys)));
    let tls = named.subsystems[0].hosts[0].tls.clone().unwrap();
    assert_eq!(tls.keys.len(), 2);
    assert_eq!(tls.keys[0].to_text().as_str(), TLS);
    assert!(tls.required && tls.derivation == Derivation::Compat);
    // For all others they need a rule, and the subsystem is not open.
    let keys = format!("tls-key-files = [\"{one}\"]\ntls-required = false");
    let others = config(&format!("{SUBSYSTEM}{}", rule("*", &keys)));
    assert!(!others.subsystems[0].is_open());
    assert!(!others.subsystems[0].hosts[0].tls.clone().unwrap().required);
}

#[test]
fn what_is_wrong_with_keys_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let good = keep(&directory, "good", TLS, 0o600);
    let exposed = keep(&directory, "exposed", TLS, 0o644);
    let dhchap = keep(&directory, "dhchap", "DHHC-1:00:x:", 0o600);
    for (keys, expected) in [
        (
            "tls-required = true".to_owned(),
            "no effect without `tls-key-files`",
        ),
        ("tls-key-files = []".to_owned(), "at least one file"),
        (format!("tls-key-files = [\"{exposed}\"]"), "chmod"),
        (
            format!("tls-key-files = [\"{dhchap}\"]"),
            "key generate --kind tls",
        ),
        ("tls-key-files = [\"nowhere\"]".to_owned(), "nowhere"),
        (
            format!("tls-key-files = [\"{good}\"]\ntls-derivation = \"odd\""),
            "use standard or compat",
        ),
    ] {
        let message = assemble(&format!("{SUBSYSTEM}{}", rule(HOST, &keys))).unwrap_err();
        assert!(message.contains(expected), "{keys}: {message}");
    }
}

#[test]
fn addresses_say_whether_tls_is_spoken() {
    let of = |text: &str| {
        let listener = config(&format!("[listen]\nnvme = [{text}]\n"));
        listener.nvme_listeners[0].tls
    };
    assert_eq!(of("\"127.0.0.1:0\""), TlsUse::Permitted);
    assert_eq!(of("\"127.0.0.1:0,tls=required\""), TlsUse::Required);
    assert_eq!(
        of("{ address = \"127.0.0.1:0\", tls = \"none\" }"),
        TlsUse::None
    );
    let message = assemble("[listen]\nnvme = [\"127.0.0.1:0,tls=yes\"]\n").unwrap_err();
    assert!(message.contains("none, permitted or required"), "{message}");
}
