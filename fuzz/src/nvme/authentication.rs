//! Secrets, keys and identities as texts, and messages of DH-HMAC-CHAP as a peer may write them, for both roles. The null group alone: the others add an
//! exponentiation between the same messages.

use std::sync::Arc;

use longshore_nvme::auth::{
    Concatenation, Controller, Credentials, Frame, Group, Hash, Host, Parties, QueueChannel,
    RECEIVE_LENGTH, Received, Secret, Sent,
};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::psk::{ConfiguredKey, Identity};

use crate::input::Input;

const LENGTH_MAX: usize = 4096;

fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("a valid name")
}

pub(crate) fn nvme_authentication(bytes: &[u8]) {
    if let Ok(frame) = Frame::decode(bytes) {
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(secret) = Secret::parse(text)
    {
        assert_eq!(secret.to_text().as_str(), text);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(key) = ConfiguredKey::parse(text)
    {
        assert_eq!(key.to_text().as_str(), text);
    }
    if let Some(offers) = longshore_tls::hello::offers(bytes) {
        // Each stands in the bytes, with a length and an age, and none is longer than what the server looks up.
        let total: usize = offers.iter().map(|offer| offer.identity.len() + 7).sum();
        assert!(total <= bytes.len() && !offers.is_empty());
        assert!(offers.len() <= longshore_tls::hello::IDENTITIES_MAX);
    }
    if let Ok(identity) = Identity::parse(bytes) {
        assert_eq!(identity.to_string().as_bytes(), bytes);
    }
    let parties = Parties {
        host: nqn("nqn.2026-11.local.longshore:host"),
        subsystem: nqn("nqn.2026-11.local.longshore:subsystem"),
    };
    let mut random = |out: &mut [u8]| out.fill(7);
    let credentials = Arc::new(Credentials {
        host: Secret::generate(Some(Hash::Sha256), &mut random),
        controller: None,
        hashes: Hash::ALL.to_vec(),
        groups: vec![Group::Null],
        required: true,
        concatenation: Concatenation::Permitted,
    });
    let mut controller = Controller::new(parties.clone()).over(QueueChannel::Plain);
    // A host that knows another secret, and now and then changes what it sends.
    let wrong = Secret::generate(None, &mut |out| out.fill(9));
    let mut host = Host::new(&parties, &wrong, None, 1);
    let mut good = host.negotiate();
    let mut input = Input(bytes);
    for _ in 0..16 {
        let mut message = good.clone();
        match input.byte() % 4 {
            0 => {}
            1 => message = input.piece().to_vec(),
            _ => {
                let at = usize::from(input.byte()) % message.len().max(1);
                if let Some(byte) = message.get_mut(at) {
                    *byte ^= input.byte();
                }
            }
        }
        let sent = controller.send(&message, &credentials, &mut random);
        assert!(
            !matches!(sent, Sent::Compute(_)),
            "the null group computes nothing"
        );
        let mut out = Vec::new();
        let received = controller.receive(RECEIVE_LENGTH, &mut out);
        assert!(out.len() <= LENGTH_MAX);
        assert!(
            !matches!(received, Ok(Received::Authenticated)),
            "it does not know the secret"
        );
        assert!(!controller.is_authenticated());
        if let longshore_nvme::auth::Answer::Reply(reply) = host.handle(&out, &mut random) {
            good = reply;
        }
    }
    let mut host = Host::new(&parties, &wrong, Some(&wrong), 1);
    let _ = host.handle(bytes, &mut random);
    let _ = host.handle(bytes, &mut random);
}
