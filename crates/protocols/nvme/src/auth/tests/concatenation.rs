//! Keys for TLS that are made of an authentication.

use super::*;

fn making(concatenation: Concatenation) -> Arc<Credentials> {
    Arc::new(Credentials {
        groups: vec![Group::Null, Group::Ffdhe2048],
        hashes: vec![Hash::Sha512, Hash::Sha384, Hash::Sha256],
        concatenation,
        ..credentials()
    })
}

/// What both ends have made of a transaction.
fn make(
    credentials: &Arc<Credentials>,
    (queue, wanted): (QueueChannel, SecureChannel),
    is_mutual: bool,
) -> Result<(Vec<u8>, Vec<u8>), HostError> {
    let parties = parties();
    let mut controller = Controller::new(parties.clone()).over(queue);
    let theirs = credentials.controller.as_ref().filter(|_| is_mutual);
    let mut host = Host::new(&parties, &credentials.host, theirs, 7).concatenating(wanted);
    authenticate(&mut controller, credentials, &mut host)?;
    let ours = host.take_generated().expect("a key was asked for");
    let generated = controller.take_generated().expect("a key was made");
    assert!(controller.take_generated().is_none());
    assert_eq!(*generated.credentials, **credentials);
    Ok((ours.to_vec(), generated.key.to_vec()))
}

#[test]
fn both_roles_make_the_same_key_and_another_each_time() {
    let credentials = making(Concatenation::Permitted);
    for place in [
        (QueueChannel::Plain, SecureChannel::New),
        (QueueChannel::Secure, SecureChannel::Replace),
    ] {
        for is_mutual in [false, true] {
            let (ours, theirs) = make(&credentials, place, is_mutual).unwrap();
            assert_eq!(ours, theirs);
            // Of the first hash that a cipher suite has, and with the group, although others are preferred.
            assert_eq!(ours.len(), Hash::Sha384.length());
        }
    }
    let parties = parties();
    let keys: Vec<Vec<u8>> = [5, 6]
        .into_iter()
        .map(|seed| {
            let mut controller = Controller::new(parties.clone()).over(QueueChannel::Plain);
            let mut host =
                Host::new(&parties, &credentials.host, None, 7).concatenating(SecureChannel::New);
            let mut bytes = Bytes(seed);
            send(&mut controller, &credentials, &host.negotiate());
            let (_, challenge) = receive(&mut controller);
            let Answer::Reply(reply) = host.handle(&challenge, &mut |out| bytes.fill(out)) else {
                panic!("the host replies");
            };
            send(&mut controller, &credentials, &reply);
            receive(&mut controller);
            controller.take_generated().unwrap().key.to_vec()
        })
        .collect();
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn keys_are_made_where_they_may_be_and_nowhere_else() {
    let mismatch = Err(HostError::Refused(Failure::CONCATENATION_MISMATCH));
    let permitted = making(Concatenation::Permitted);
    for place in [
        (QueueChannel::Other, SecureChannel::New),
        (QueueChannel::Other, SecureChannel::Replace),
        (QueueChannel::Plain, SecureChannel::Replace),
        (QueueChannel::Secure, SecureChannel::New),
    ] {
        assert_eq!(make(&permitted, place, false), mismatch);
    }
    let none = making(Concatenation::None);
    let usual = (QueueChannel::Plain, SecureChannel::New);
    assert_eq!(make(&none, usual, false), mismatch);
    assert!(make(&making(Concatenation::Required), usual, false).is_ok());
}

#[test]
fn a_host_that_wants_no_key_is_let_in_unless_one_is_required() {
    for (queue, concatenation, is_let_in) in [
        (QueueChannel::Plain, Concatenation::Permitted, true),
        (QueueChannel::Plain, Concatenation::Required, false),
        (QueueChannel::Secure, Concatenation::Required, true),
        (QueueChannel::Other, Concatenation::Required, true),
    ] {
        let (parties, credentials) = (parties(), making(concatenation));
        let mut controller = Controller::new(parties.clone()).over(queue);
        let mut host = Host::new(&parties, &credentials.host, None, 7);
        let outcome = authenticate(&mut controller, &credentials, &mut host);
        assert_eq!(outcome.is_ok(), is_let_in, "{queue:?} {concatenation:?}");
        assert!(controller.take_generated().is_none());
    }
}

#[test]
fn no_key_is_made_without_a_group_or_by_a_hash_without_a_suite() {
    let place = (QueueChannel::Plain, SecureChannel::New);
    let with = |hash, group| {
        let credentials = Arc::new(Credentials {
            hashes: vec![hash],
            groups: vec![group],
            concatenation: Concatenation::Permitted,
            ..credentials()
        });
        make(&credentials, place, false)
    };
    assert_eq!(
        with(Hash::Sha512, Group::Ffdhe2048),
        Err(HostError::Refused(Failure::HASH_NOT_USABLE))
    );
    assert_eq!(
        with(Hash::Sha256, Group::Null),
        Err(HostError::Refused(Failure::GROUP_NOT_USABLE))
    );
}

/// As Linux does: a C2 for the key, and S2 = 0, since the controller does not have to prove itself.
#[test]
fn a_reply_without_a_challenge_makes_no_key() {
    let (parties, credentials) = (parties(), making(Concatenation::Permitted));
    let mut controller = Controller::new(parties.clone()).over(QueueChannel::Plain);
    let mut host =
        Host::new(&parties, &credentials.host, None, 7).concatenating(SecureChannel::New);
    send(&mut controller, &credentials, &host.negotiate());
    let (_, challenge) = receive(&mut controller);
    let Answer::Reply(mut reply) = host.handle(&challenge, &mut |out| out.fill(3)) else {
        panic!("the host replies");
    };
    assert_eq!((reply[8], &reply[12..16]), (1, &[0; 4][..]));
    // CVALID.
    reply[8] = 0;
    send(&mut controller, &credentials, &reply);
    let (received, _) = receive(&mut controller);
    assert_eq!(received, Received::Failed(Failure::INCORRECT_PAYLOAD));
    assert!(controller.take_generated().is_none());
}

#[test]
fn a_wrong_proof_makes_no_key() {
    let (parties, credentials) = (parties(), making(Concatenation::Permitted));
    let mut controller = Controller::new(parties.clone()).over(QueueChannel::Plain);
    let wrong = secret(None, 3);
    let mut host = Host::new(&parties, &wrong, None, 7).concatenating(SecureChannel::New);
    let outcome = authenticate(&mut controller, &credentials, &mut host);
    assert_eq!(outcome, Err(HostError::Refused(Failure::FAILED)));
    assert!(controller.take_generated().is_none() && host.take_generated().is_none());
    // A controller that does not know its secret makes none that the host takes.
    let mut controller = Controller::new(parties.clone()).over(QueueChannel::Plain);
    let mut host =
        Host::new(&parties, &credentials.host, Some(&wrong), 7).concatenating(SecureChannel::New);
    let outcome = authenticate(&mut controller, &credentials, &mut host);
    assert_eq!(outcome, Err(HostError::NotProved));
    assert!(controller.take_generated().is_none() && host.take_generated().is_none());
}
