//! Who gets in with which key, and keys that are replaced.

use longshore_nvme::psk::{Derivation, Version};

use super::*;

#[test]
fn both_suites_versions_and_derivations_get_in() {
    for hash in PskHash::ALL {
        let scene = Scene::start(hash, "", "");
        for (version, derivation) in [
            (Version::V0, Derivation::Standard),
            (Version::V1, Derivation::Standard),
            (Version::V1, Derivation::Compat),
        ] {
            let mut options = scene.options();
            let tls = options.nvme.tls.as_mut().unwrap();
            (tls.version, tls.derivation) = (version, derivation);
            let mut attachment = attach(&scene.url(), &options).unwrap();
            use_it(&mut attachment, usize::from(hash.id())).unwrap();
        }
        // Version 0 does not tell how a key is derived, and the standard's way counts.
        let mut options = scene.options();
        let tls = options.nvme.tls.as_mut().unwrap();
        (tls.version, tls.derivation) = (Version::V0, Derivation::Compat);
        assert!(is_no_tls(&refusal(&scene.url(), &options)));
    }
}

#[test]
fn the_derivation_of_version_0_is_what_the_rule_says() {
    let scene = Scene::start(PskHash::Sha256, "", "tls-derivation = \"compat\"\n");
    let mut options = scene.options();
    let tls = options.nvme.tls.as_mut().unwrap();
    (tls.version, tls.derivation) = (Version::V0, Derivation::Compat);
    use_it(&mut attach(&scene.url(), &options).unwrap(), 1).unwrap();
    scene.attach();
}

#[test]
fn a_wrong_key_a_strange_host_and_no_key_are_refused() {
    let scene = Scene::usual();
    let url = scene.url();
    let wrong = options(HOST, Some(&new_key(PskHash::Sha384)));
    assert!(is_no_tls(&refusal(&url, &wrong)));
    let strange = options(OTHER_HOST, Some(&scene.key));
    assert!(is_no_tls(&refusal(&url, &strange)));
    let plain = refusal(&url, &options(HOST, None));
    assert!(matches!(plain, Error::Refused { .. }), "{plain}");
    scene.server.wait_for_log("TLS handshake failed");
    use_it(&mut scene.attach(), 2).unwrap();
    // Nobody who reads the log learns a key.
    let text = scene.key.to_text();
    let secret = text.split(':').nth(2).unwrap();
    assert!(!scene.server.log().contains(secret));
}

/// The handshake proves one name, and Connect says another.
#[test]
fn a_host_is_not_another_one_by_its_key() {
    let other = new_key(PskHash::Sha384);
    let scratch = Scratch::new("tls-other");
    let path = scratch.join("web2.psk");
    keep(&path, &other);
    let rules = format!(
        "\n[[subsystem.access]]\nhosts = [\"{OTHER_HOST}\"]\ntls-key-files = [\"{}\"]\n",
        path.display()
    );
    let scene = Scene::start(PskHash::Sha256, "", &rules);
    for (host, key) in [(HOST, &scene.key), (OTHER_HOST, &other)] {
        attach(&scene.url(), &options(host, Some(key))).unwrap();
    }
    for (host, key) in [(OTHER_HOST, &scene.key), (HOST, &other)] {
        assert!(is_no_tls(&refusal(&scene.url(), &options(host, Some(key)))));
    }
}

#[test]
fn keys_are_replaced_while_hosts_write() {
    let scene = Scene::usual();
    let mut old = scene.attach();
    use_it(&mut old, 1).unwrap();
    let (new, new_file) = (new_key(PskHash::Sha384), scene.scratch.join("new.psk"));
    keep(&new_file, &new);
    let both = configuration(&scene.key_file, "").replace(
        "web1.psk\"]",
        &format!("web1.psk\", \"{}\"]", new_file.display()),
    );
    fs::write(&scene.file, both).unwrap();
    scene.server.reload().unwrap();
    let until = Instant::now() + LIMIT;
    let with_new = options(HOST, Some(&new));
    let mut attachment = loop {
        use_it(&mut old, 2).unwrap();
        match attach(&scene.url(), &with_new) {
            Ok(attachment) => break attachment,
            Err(error) => assert!(is_no_tls(&error) && Instant::now() < until, "{error}"),
        }
    };
    use_it(&mut attachment, 3).unwrap();
    scene.attach();
    // The old one goes.
    fs::write(&scene.file, configuration(&new_file, "")).unwrap();
    scene.server.reload().unwrap();
    while attach(&scene.url(), &scene.options()).is_ok() {
        assert!(Instant::now() < until, "the old key counts still");
    }
    // Connections stay, whatever opened them.
    use_it(&mut old, 4).unwrap();
    use_it(&mut attachment, 5).unwrap();
    attach(&scene.url(), &with_new).unwrap();
}

#[test]
fn files_that_others_can_read_or_that_hold_no_key_are_refused() {
    let scratch = Scratch::new("tls-files");
    let path = scratch.join("key");
    let refuse = || {
        let text = configuration(&path, "");
        let server = ServerBuilder::new().nvme().config(&text);
        let (status, log) = server.start_and_fail().unwrap();
        assert!(!status.success());
        log
    };
    keep(&path, &new_key(PskHash::Sha256));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refuse().contains("chmod"));
    fs::write(&path, "NVMeTLSkey-1:01:nonsense:\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let log = refuse();
    assert!(log.contains("longshore key generate --kind tls") && !log.contains("nonsense"));
}
