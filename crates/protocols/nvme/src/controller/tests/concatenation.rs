use zeroize::Zeroizing;

use super::*;
use crate::auth::{Concatenation, Credentials, GeneratedKey, Group, Hash, QueueChannel, Secret};
use crate::psk::{Origin, RetainedPsk, TlsPsk, Version};

const ATR: u64 = 1 << 17;
const ASCR: u64 = 1 << 18;

fn credentials(seed: u8, concatenation: Concatenation) -> Arc<Credentials> {
    Arc::new(Credentials {
        host: Secret::generate(None, &mut |bytes| bytes.fill(seed)),
        controller: None,
        hashes: vec![Hash::Sha256],
        groups: vec![Group::Ffdhe2048],
        required: true,
        concatenation,
    })
}

/// `shared` has credentials of `guest`, by which a key may be made, or has to.
fn scene_with(credentials: &Arc<Credentials>) -> Scene {
    let mut scene = scene();
    set(&scene, credentials);
    scene.driver.has_tls = true;
    scene
}

fn set(scene: &Scene, credentials: &Arc<Credentials>) {
    let hosts = HostAccess {
        rules: vec![HostRule {
            hosts: vec![nqn("guest").into()],
            namespaces: vec![grant(1, false)],
            credentials: Some(Arc::clone(credentials)),
            tls: None,
        }],
        default_namespaces: None,
    };
    let config = subsystem("shared", &scene.namespaces, hosts);
    scene.subsystems.reconfigure(vec![config]);
}

/// Has a key made, as an authentication does.
fn make(association: &Association, credentials: &Arc<Credentials>, seed: u8) -> TlsPsk {
    association.controller.keep_generated(GeneratedKey {
        key: Zeroizing::new(vec![seed; 32]),
        credentials: Arc::clone(credentials),
    });
    let retained = RetainedPsk::generated(Zeroizing::new(vec![seed; 32])).unwrap();
    let (host, shared) = (nqn("guest"), nqn("shared"));
    let psk = retained.tls_psk(&host, &shared, Version::V1, Origin::Generated);
    psk.unwrap()
}

fn admin(scene: &Scene) -> Association {
    let connect = connect_by("guest", &nqn("shared"));
    scene.connect(&connect, ADMIN_QUEUE).unwrap()
}

fn find(scene: &Scene, psk: &TlsPsk) -> Option<Vec<u8>> {
    let identity = psk.identity.to_string();
    assert!(identity.starts_with("NVMe1G01 "), "{identity}");
    let found = scene.subsystems.tls_psk(identity.as_bytes())?;
    Some(found.key().to_vec())
}

#[test]
fn a_key_that_was_made_opens_tls_while_its_secret_counts() {
    let first = credentials(1, Concatenation::Permitted);
    let scene = scene_with(&first);
    assert!(scene.subsystems.has_tls_keys());
    let association = admin(&scene);
    let one = make(&association, &first, 1);
    let two = make(&association, &first, 2);
    assert_eq!(find(&scene, &one).unwrap(), one.key());
    let three = make(&association, &first, 3);
    assert!(find(&scene, &one).is_none());
    assert_eq!(find(&scene, &two).unwrap(), two.key());
    // The queue that it was made on is gone as soon as the host comes back.
    drop(association);
    assert_eq!(find(&scene, &three).unwrap(), three.key());
    set(&scene, &credentials(2, Concatenation::Permitted));
    assert!(find(&scene, &three).is_none());
    set(&scene, &first);
    assert!(find(&scene, &three).is_some());
    set(&scene, &credentials(1, Concatenation::None));
    assert!(find(&scene, &three).is_none() && !scene.subsystems.has_tls_keys());
}

#[test]
fn a_host_with_a_key_that_was_made_has_proved_itself() {
    let credentials = credentials(1, Concatenation::Permitted);
    let mut scene = scene_with(&credentials);
    let association = admin(&scene);
    assert_eq!(association.result & (ATR | ASCR), ATR);
    assert_eq!(association.channel, QueueChannel::Plain);
    let psk = make(&association, &credentials, 1);
    drop(association);
    scene.driver.tls_identity = Some(psk.identity);
    let association = admin(&scene);
    assert_eq!(association.result & (ATR | ASCR), 0);
    assert!(!association.must_authenticate && association.credentials.is_some());
    assert_eq!(association.channel, QueueChannel::Secure);
}

#[test]
fn a_host_that_must_have_a_key_made_uses_nothing_without() {
    let credentials = credentials(1, Concatenation::Required);
    let mut scene = scene_with(&credentials);
    let shared = nqn("shared");
    let controller = scene.enabled("guest", &shared);
    let refusal = scene.io_queue(&controller, 1).unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_INVALID_HOST.do_not_retry());
    let association = admin(&scene);
    assert_eq!(association.result & (ATR | ASCR), ATR | ASCR);
    let psk = make(&association, &credentials, 1);
    scene.driver.tls_identity = Some(psk.identity);
    let controller = scene.enabled("guest", &shared);
    let io = scene.io_queue(&controller, 1).unwrap();
    assert_eq!(io.channel, QueueChannel::Other);
    // At an address without TLS there is no way.
    scene.driver.tls_identity = None;
    scene.driver.has_tls = false;
    let connect = connect_by("guest", &shared);
    scene.connect(&connect, ADMIN_QUEUE).unwrap_err();
}

#[test]
fn no_keys_are_made_where_there_is_no_tls() {
    let mut scene = scene_with(&credentials(1, Concatenation::Permitted));
    scene.driver.has_tls = false;
    assert_eq!(admin(&scene).channel, QueueChannel::Other);
}
