use super::*;
use crate::psk::{ConfiguredKey, Derivation, Origin, PskHash, TlsPsk, Version};

const KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

fn key(text: &str) -> ConfiguredKey {
    ConfiguredKey::parse(text).unwrap()
}

fn other_key(hash: PskHash) -> ConfiguredKey {
    ConfiguredKey::generate(Some(hash), &mut |bytes| bytes.fill(7))
}

fn tls(keys: Vec<ConfiguredKey>, required: bool) -> Option<Arc<TlsKeys>> {
    Some(Arc::new(TlsKeys {
        keys,
        derivation: Derivation::Standard,
        required,
    }))
}

/// `shared` takes TLS of `guest`, and nothing else of `owner`, for which it has two keys.
fn secure_scene() -> Scene {
    let scene = scene();
    let rule = |host: &str, tls| HostRule {
        hosts: vec![nqn(host).into()],
        namespaces: vec![grant(1, false)],
        credentials: None,
        tls,
    };
    let hosts = HostAccess {
        rules: vec![
            rule("guest", tls(vec![key(KEY)], false)),
            rule(
                "owner",
                tls(vec![key(KEY), other_key(PskHash::Sha384)], true),
            ),
        ],
        default_namespaces: Some(Vec::new()),
    };
    let config = subsystem("shared", &scene.namespaces, hosts);
    let other = subsystem("private", &scene.namespaces, HostAccess::default());
    scene.subsystems.reconfigure(vec![config, other]);
    scene
}

fn derive(
    key: &ConfiguredKey,
    host: &str,
    subsystem: &Nqn,
    version: Version,
    derivation: Derivation,
) -> TlsPsk {
    let retained = key.retained(&nqn(host), derivation);
    retained
        .tls_psk(&nqn(host), subsystem, version, Origin::Configured)
        .unwrap()
}

fn find(scene: &Scene, offered: &TlsPsk) -> Option<TlsPsk> {
    let identity = offered.identity.to_string();
    scene.subsystems.tls_psk(identity.as_bytes())
}

#[test]
fn keys_are_found_by_every_identity_of_theirs() {
    let scene = secure_scene();
    let second = other_key(PskHash::Sha384);
    for subsystem in [nqn("shared"), discovery()] {
        for derivation in Derivation::ALL {
            for key in [&key(KEY), &second] {
                let offered = derive(key, "owner", &subsystem, Version::V1, derivation);
                assert_eq!(find(&scene, &offered).unwrap().key(), offered.key());
            }
        }
        let offered = derive(
            &key(KEY),
            "owner",
            &subsystem,
            Version::V0,
            Derivation::Standard,
        );
        assert_eq!(find(&scene, &offered).unwrap().key(), offered.key());
    }
}

#[test]
fn keys_are_for_their_hosts_and_subsystems_alone() {
    let scene = secure_scene();
    let strange = [
        derive(
            &other_key(PskHash::Sha256),
            "owner",
            &nqn("shared"),
            Version::V1,
            Derivation::Standard,
        ),
        derive(
            &other_key(PskHash::Sha384),
            "guest",
            &nqn("shared"),
            Version::V1,
            Derivation::Standard,
        ),
        derive(
            &key(KEY),
            "stranger",
            &nqn("shared"),
            Version::V1,
            Derivation::Standard,
        ),
        derive(
            &key(KEY),
            "owner",
            &nqn("private"),
            Version::V1,
            Derivation::Standard,
        ),
        derive(
            &key(KEY),
            "owner",
            &nqn("nowhere"),
            Version::V1,
            Derivation::Standard,
        ),
    ];
    for offered in strange {
        assert!(find(&scene, &offered).is_none(), "{offered:?}");
    }
    for bytes in [&b""[..], b"NVMe1R01", &[0xff; 300]] {
        assert!(scene.subsystems.tls_psk(bytes).is_none());
    }
}

fn proves(host: &str, subsystem: &Nqn) -> Option<Identity> {
    let psk = derive(
        &key(KEY),
        host,
        subsystem,
        Version::V1,
        Derivation::Standard,
    );
    Some(psk.identity)
}

#[test]
fn a_host_is_who_its_key_is_for() {
    let mut scene = secure_scene();
    let shared = nqn("shared");
    scene.driver.tls_identity = proves("owner", &shared);
    let controller = scene.enabled("owner", &shared);
    scene.io_queue(&controller, 1).unwrap();
    let refused = |scene: &Scene, host: &str, subsystem: &Nqn| {
        let refusal = scene.connect(&connect_by(host, subsystem), ADMIN_QUEUE);
        refusal.unwrap_err()
    };
    let by_host = refused(&scene, "guest", &shared);
    assert_eq!(by_host.status, Status::CONNECT_INVALID_HOST.do_not_retry());
    assert_eq!(by_host.result, 1 << 16 | 512);
    assert_eq!(refused(&scene, "owner", &discovery()).result, 1 << 16 | 256);
    let nobody = Connect {
        host: Nqn::from_field(&[0; 256]).unwrap(),
        ..connect_by("owner", &shared)
    };
    scene.connect(&nobody, ADMIN_QUEUE).unwrap_err();
    // A queue of another proof does not join.
    scene.driver.tls_identity = proves("guest", &shared);
    scene.io_queue(&controller, 2).unwrap_err();
    scene.driver.tls_identity = None;
    scene.io_queue(&controller, 2).unwrap_err();
}

/// Where a host may come either way, its queues come the same way.
#[test]
fn queues_of_a_controller_are_all_over_tls_or_none_is() {
    let mut scene = secure_scene();
    let shared = nqn("shared");
    for first in [true, false] {
        let identity = |is_secure: bool| is_secure.then(|| proves("guest", &shared)).flatten();
        scene.driver.tls_identity = identity(first);
        let controller = scene.enabled("guest", &shared);
        scene.driver.tls_identity = identity(!first);
        let refusal = scene.io_queue(&controller, 1).unwrap_err();
        assert_eq!(refusal.status, Status::CONNECT_INVALID_HOST.do_not_retry());
        scene.driver.tls_identity = identity(first);
        scene.io_queue(&controller, 1).unwrap();
    }
}

#[test]
fn without_tls_those_connect_that_may() {
    let mut scene = secure_scene();
    let shared = nqn("shared");
    for host in ["guest", "stranger"] {
        scene.connected(host, &shared);
    }
    scene
        .connect(&connect_by("owner", &shared), ADMIN_QUEUE)
        .unwrap_err();
    scene.connected("owner", &discovery());
    scene.driver.requires_tls = true;
    for (host, subsystem) in [("guest", &shared), ("owner", &discovery())] {
        scene
            .connect(&connect_by(host, subsystem), ADMIN_QUEUE)
            .unwrap_err();
    }
}

#[test]
fn discovery_tells_who_needs_tls() {
    let mut scene = secure_scene();
    let entry = |tls| DiscoveryEntry {
        subsystem: nqn("shared"),
        kind: SubsystemType::Nvm,
        address: "192.0.2.1:4420".parse().unwrap(),
        port_id: 7,
        tls,
    };
    scene.driver.entries = [TlsUse::None, TlsUse::Permitted, TlsUse::Required]
        .map(entry)
        .to_vec();
    let told = |host: &str| {
        let controller = scene.enabled(host, &discovery());
        let command = crate::host::commands::get_log_page(0x70, NamespaceId::BROADCAST, 0, 4096);
        let page = scene.send(&controller, &command).data();
        page[1024..]
            .chunks(1024)
            .map(|entry| (entry[3], entry[768]))
            .collect::<Vec<_>>()
    };
    assert_eq!(told("stranger"), [(4, 0), (4, 0), (5, 2)]);
    assert_eq!(told("guest"), [(4, 0), (6, 2), (5, 2)]);
    assert_eq!(told("owner"), [(4, 0), (5, 2), (5, 2)]);
}
