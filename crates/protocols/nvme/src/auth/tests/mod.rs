//! Both roles, back to back, and controllers with hosts that break rules.

use std::sync::Arc;

use proptest::prelude::*;

use super::host::Answer;
use super::message::{Frame, Message};
use super::*;
use crate::nqn::Nqn;
use crate::status::Status;

mod concatenation;
mod rules;
mod transcripts;

/// Random enough for a test, and the same each time.
struct Bytes(u64);

impl Bytes {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = self.0.to_be_bytes()[0];
        }
    }
}

fn parties() -> Parties {
    Parties {
        host: Nqn::new("nqn.2026-11.test:host").unwrap(),
        subsystem: Nqn::new("nqn.2026-11.test:subsystem").unwrap(),
    }
}

fn secret(hash: Option<Hash>, seed: u64) -> Secret {
    Secret::generate(hash, &mut |bytes| Bytes(seed).fill(bytes))
}

fn credentials() -> Credentials {
    Credentials {
        host: secret(Some(Hash::Sha256), 1),
        controller: Some(secret(None, 2)),
        hashes: Hash::ALL.to_vec(),
        groups: vec![Group::Null],
        required: true,
        concatenation: Concatenation::None,
    }
}

/// Hands a message to the controller, and computes what it wants computed. Whether that was something.
fn send(controller: &mut Controller, credentials: &Arc<Credentials>, data: &[u8]) -> (Sent, bool) {
    let mut bytes = Bytes(data.len() as u64 + 77);
    match controller.send(data, credentials, &mut |out| bytes.fill(out)) {
        Sent::Compute(computation) => {
            controller.computed(computation.run());
            (Sent::Taken, true)
        }
        sent => (sent, false),
    }
}

fn receive(controller: &mut Controller) -> (Received, Vec<u8>) {
    let mut out = Vec::new();
    let received = controller.receive(RECEIVE_LENGTH, &mut out).unwrap();
    (received, out)
}

/// What came of an authentication: for the host, and whether the controller lets it in.
fn authenticate(
    controller: &mut Controller,
    credentials: &Arc<Credentials>,
    host: &mut Host<'_>,
) -> Result<(), HostError> {
    let mut bytes = Bytes(99);
    let mut message = host.negotiate();
    loop {
        send(controller, credentials, &message);
        let (_, answer) = receive(controller);
        match host.handle(&answer, &mut |out| bytes.fill(out)) {
            Answer::Reply(reply) => message = reply,
            Answer::Confirm(last) => {
                let (sent, _) = send(controller, credentials, &last);
                assert!(matches!(sent, Sent::Authenticated), "{sent:?}");
                return Ok(());
            }
            Answer::Done => return Ok(()),
            Answer::Failed(last, error) => {
                if let Some(last) = last {
                    let (sent, _) = send(controller, credentials, &last);
                    assert!(matches!(sent, Sent::GivenUp(_)), "{sent:?}");
                }
                return Err(error);
            }
        }
    }
}

#[test]
fn both_roles_agree_with_each_hash_and_group() {
    for group in Group::ALL {
        for hash in Hash::ALL {
            // The large groups take long, and differ in nothing but their size.
            if group.length() > 512 && hash != Hash::Sha512 {
                continue;
            }
            for is_mutual in [false, true] {
                let credentials = Arc::new(Credentials {
                    hashes: vec![hash],
                    groups: vec![group],
                    ..credentials()
                });
                let parties = parties();
                let mut controller = Controller::new(parties.clone());
                let theirs = credentials.controller.as_ref().filter(|_| is_mutual);
                let mut host = Host::new(&parties, &credentials.host, theirs, 7);
                assert_eq!(
                    authenticate(&mut controller, &credentials, &mut host),
                    Ok(())
                );
                assert!(controller.is_authenticated() && !controller.is_under_way());
            }
        }
    }
}

/// What Linux 6.12 insists on, as it is written: HL without a proof, and failures as common messages.
#[test]
fn messages_are_as_linux_reads_them() {
    let success = Message::Success1 {
        hash_length: 48,
        proof: None,
    };
    let frame = |message| {
        let transaction = 0x0102;
        Frame {
            transaction,
            message,
        }
        .encode()
    };
    let bytes = frame(success);
    assert_eq!(bytes[..9], [1, 3, 0, 0, 2, 1, 48, 0, 0]);
    assert_eq!(bytes.len(), 16 + 48);
    let bytes = frame(Message::Failure1(Failure::FAILED));
    assert_eq!(bytes, [0, 0xf1, 0, 0, 2, 1, 1, 1]);
    let bytes = frame(Message::Failure2(Failure::FAILED));
    assert_eq!(bytes, [0, 0xf0, 0, 0, 2, 1, 1, 1]);
}

#[test]
fn only_groups_compute_and_never_within_the_machine() {
    let groups = [(Group::Null, false), (Group::Ffdhe2048, true)];
    for (group, expected) in groups {
        let credentials = Arc::new(Credentials {
            groups: vec![group],
            ..credentials()
        });
        let parties = parties();
        let mut controller = Controller::new(parties.clone());
        let mut host = Host::new(&parties, &credentials.host, None, 7);
        let (_, computes) = send(&mut controller, &credentials, &host.negotiate());
        assert_eq!(computes, expected);
        let (_, challenge) = receive(&mut controller);
        let Answer::Reply(reply) = host.handle(&challenge, &mut |out| out.fill(3)) else {
            panic!("the host replies");
        };
        let (_, computes) = send(&mut controller, &credentials, &reply);
        assert_eq!(computes, expected);
    }
}

#[test]
fn a_host_with_another_secret_is_not_let_in() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let credentials = Arc::new(Credentials {
            groups: vec![group],
            ..credentials()
        });
        let parties = parties();
        let mut controller = Controller::new(parties.clone());
        let wrong = secret(Some(Hash::Sha256), 4);
        let mut host = Host::new(&parties, &wrong, None, 7);
        let ended = authenticate(&mut controller, &credentials, &mut host);
        assert_eq!(ended, Err(HostError::Refused(Failure::FAILED)));
        assert!(!controller.is_authenticated());
        let (sent, _) = send(&mut controller, &credentials, &host.negotiate());
        assert!(
            matches!(sent, Sent::Refused(Status(_))),
            "the queue is over"
        );
    }
}

#[test]
fn a_controller_without_its_secret_is_found_out() {
    let credentials = Arc::new(credentials());
    let parties = parties();
    let mut controller = Controller::new(parties.clone());
    let other = secret(None, 5);
    let mut host = Host::new(&parties, &credentials.host, Some(&other), 7);
    let ended = authenticate(&mut controller, &credentials, &mut host);
    assert_eq!(ended, Err(HostError::NotProved));
    assert!(!controller.is_authenticated());
}

/// The answer is the one to a wrong proof: it says nothing of what the controller knows.
#[test]
fn a_proof_that_the_controller_has_no_secret_for_is_refused() {
    let credentials = Arc::new(Credentials {
        controller: None,
        ..credentials()
    });
    let parties = parties();
    let mut controller = Controller::new(parties.clone());
    let theirs = secret(None, 2);
    let mut host = Host::new(&parties, &credentials.host, Some(&theirs), 7);
    let ended = authenticate(&mut controller, &credentials, &mut host);
    assert_eq!(ended, Err(HostError::Refused(Failure::FAILED)));
}

#[test]
fn a_queue_stays_authenticated_while_it_authenticates_again() {
    let credentials = Arc::new(credentials());
    let parties = parties();
    let mut controller = Controller::new(parties.clone());
    let mut host = Host::new(&parties, &credentials.host, None, 7);
    authenticate(&mut controller, &credentials, &mut host).unwrap();
    let mut again = Host::new(&parties, &credentials.host, None, 8);
    send(&mut controller, &credentials, &again.negotiate());
    assert!(controller.is_authenticated() && controller.is_under_way());
    let rotated = Arc::new(Credentials {
        host: secret(None, 6),
        ..Credentials::clone(&credentials)
    });
    // The secret that holds is that of the beginning of the transaction.
    assert_eq!(
        authenticate(&mut controller, &credentials, &mut again),
        Ok(())
    );
    let mut stale = Host::new(&parties, &credentials.host, None, 9);
    let ended = authenticate(&mut controller, &rotated, &mut stale);
    assert_eq!(ended, Err(HostError::Refused(Failure::FAILED)));
    assert!(!controller.is_authenticated());
}

#[test]
fn challenges_are_new_and_sequence_numbers_are_never_zero() {
    let credentials = Arc::new(credentials());
    let parties = parties();
    let mut controller = Controller::new(parties.clone());
    let mut seen = Vec::new();
    for transaction in 0..2 {
        let host = Host::new(&parties, &credentials.host, None, transaction);
        let mut bytes = Bytes(u64::from(transaction));
        let negotiate = host.negotiate();
        // The first sequence number drawn is the last one there is.
        let mut fill = |out: &mut [u8]| match out.len() {
            4 => out.fill(0xff),
            _ => bytes.fill(out),
        };
        controller.send(&negotiate, &credentials, &mut fill);
        let (_, frame) = receive(&mut controller);
        let frame = Frame::decode(&frame).unwrap();
        let Message::Challenge {
            sequence,
            challenge,
            ..
        } = frame.message
        else {
            panic!("{frame:?}");
        };
        assert_ne!(sequence, 0);
        assert!(!seen.contains(&(sequence, challenge.clone())));
        seen.push((sequence, challenge));
    }
}

/// SHA-256 of each prime. Computed with Python from the formula of RFC 7919; ends agree with the RFC's text.
#[test]
fn primes_are_those_of_rfc_7919() {
    let digests = [
        (Group::Ffdhe2048, "9cd3b7f336872f46"),
        (Group::Ffdhe3072, "0eaf67db3a839156"),
        (Group::Ffdhe4096, "4648414224ac881b"),
        (Group::Ffdhe6144, "227ac9066b3ddd9e"),
        (Group::Ffdhe8192, "770b14efaf6f0499"),
    ];
    for (group, digest) in digests {
        let found = Hash::Sha256.digest(&group.prime());
        let hex: String = found[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, digest, "{group:?}");
        assert_eq!(group.prime().len(), group.length());
    }
}

#[test]
fn values_that_give_the_secret_away_are_no_public_values() {
    for group in Group::ALL.into_iter().skip(1) {
        let mut value = vec![0; group.length()];
        assert!(!group.is_public_value(&value));
        *value.last_mut().unwrap() = 1;
        assert!(!group.is_public_value(&value));
        *value.last_mut().unwrap() = 2;
        assert!(group.is_public_value(&value));
        let mut prime = group.prime();
        assert!(!group.is_public_value(&prime));
        *prime.last_mut().unwrap() = 0xfe;
        assert!(!group.is_public_value(&prime), "p - 1");
        *prime.last_mut().unwrap() = 0xfd;
        assert!(group.is_public_value(&prime), "p - 2");
        assert!(!group.is_public_value(&prime[1..]));
    }
}

#[test]
fn private_exponents_have_the_length_of_their_group() {
    for (group, bits) in [(Group::Ffdhe2048, 225), (Group::Ffdhe8192, 400)] {
        for fill in [0x00, 0xff] {
            let exponent = group.private_exponent(&mut |out| out.fill(fill));
            let leading = exponent[0].leading_zeros();
            assert_eq!(exponent.len() * 8 - leading as usize, bits);
        }
    }
}

/// 2^e mod p by Python, for e of 225 bits.
#[test]
fn a_public_value_is_the_power_that_others_compute() {
    let exponent = Group::Ffdhe2048.private_exponent(&mut |out| out.fill(0x5a));
    let value = Group::Ffdhe2048.public_value(&exponent);
    let hex: String = value[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hex, "c1aa0f5f9461132ffdd9c9b4827f7d28");
    assert_eq!(value.len(), 256);
}

fn message() -> impl Strategy<Value = Message> {
    let value = |length: usize| prop::collection::vec(any::<u8>(), length);
    let identifiers = || prop::collection::vec(any::<u8>(), 0..=30);
    let length = prop::sample::select(vec![32, 48, 64]);
    let public = || prop::collection::vec(any::<u8>(), 0..=1024);
    prop_oneof![
        (
            any::<u8>(),
            prop::option::of((identifiers(), identifiers()))
        )
            .prop_map(|(secure_channel, offer)| Message::Negotiate {
                secure_channel,
                offer
            }),
        (
            any::<[u8; 2]>(),
            any::<u32>(),
            length.clone().prop_flat_map(value),
            public()
        )
            .prop_map(|([hash, group], sequence, challenge, public_value)| {
                Message::Challenge {
                    hash,
                    group,
                    sequence,
                    challenge,
                    public_value,
                }
            }),
        (
            length.prop_flat_map(move |length| (value(length), prop::option::of(value(length)))),
            any::<u32>(),
            public()
        )
            .prop_map(
                |((proof, challenge), sequence, public_value)| Message::Reply {
                    proof,
                    sequence,
                    challenge,
                    public_value,
                }
            ),
        (prop::sample::select(vec![32, 48, 64]), any::<bool>()).prop_map(
            |(hash_length, has_proof)| {
                let proof = has_proof.then(|| vec![7; usize::from(hash_length)]);
                Message::Success1 { hash_length, proof }
            }
        ),
        Just(Message::Success2),
        any::<u8>().prop_map(|code| Message::Failure1(Failure(code))),
        any::<u8>().prop_map(|code| Message::Failure2(Failure(code))),
    ]
}

proptest! {
    #[test]
    fn messages_decode_to_what_was_encoded(transaction: u16, message in message(), behind in 0..9_usize) {
        let frame = Frame { transaction, message };
        let mut bytes = frame.encode();
        bytes.resize(bytes.len() + behind, 0);
        prop_assert_eq!(Frame::decode(&bytes), Ok(frame));
    }

    #[test]
    fn a_message_that_was_cut_is_refused(transaction: u16, message in message(), cut in any::<prop::sample::Index>()) {
        // Without a proof its place may be missing.
        let end = match &message {
            Message::Success1 { proof: None, .. } => 16,
            _ => usize::MAX,
        };
        let bytes = Frame { transaction, message }.encode();
        let cut = cut.index(bytes.len().min(end));
        prop_assert!(Frame::decode(&bytes[..cut]).is_err());
    }
}
