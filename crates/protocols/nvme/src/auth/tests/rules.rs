//! Hosts that break rules, and what controllers answer.

use super::*;

/// A controller in the middle of a transaction, with the Reply of the host.
fn asked() -> (Controller, Arc<Credentials>, Vec<u8>) {
    let credentials = Arc::new(Credentials {
        groups: vec![Group::Ffdhe2048],
        ..credentials()
    });
    let parties = parties();
    let mut controller = Controller::new(parties.clone());
    let mut host = Host::new(&parties, &credentials.host, None, 7);
    send(&mut controller, &credentials, &host.negotiate());
    let (_, challenge) = receive(&mut controller);
    let mut bytes = Bytes(5);
    let Answer::Reply(reply) = host.handle(&challenge, &mut |out| bytes.fill(out)) else {
        panic!("the host replies");
    };
    (controller, credentials, reply)
}

#[track_caller]
fn assert_failure(controller: &mut Controller, failure: Failure) {
    let (received, bytes) = receive(controller);
    assert_eq!(received, Received::Failed(failure));
    let message = Frame::decode(&bytes).unwrap().message;
    assert_eq!(message, Message::Failure1(failure));
    assert!(!controller.is_authenticated());
    let over = controller.receive(RECEIVE_LENGTH, &mut Vec::new());
    assert_eq!(over, Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()));
}

#[test]
fn a_reply_that_is_changed_is_refused() {
    let (mut controller, credentials, reply) = asked();
    for (at, failure) in [
        (4, Failure::INCORRECT_PAYLOAD),
        (6, Failure::INCORRECT_PAYLOAD),
        (10, Failure::INCORRECT_PAYLOAD),
        (16, Failure::FAILED),
        (reply.len() - 1, Failure::FAILED),
    ] {
        let mut changed = reply.clone();
        changed[at] ^= 1;
        send(&mut controller, &credentials, &changed);
        assert_failure(&mut controller, failure);
        (controller, _, _) = asked();
    }
}

#[test]
fn a_public_value_that_is_none_is_refused_before_anything_is_computed() {
    for value in [0, 1] {
        let (mut controller, credentials, mut reply) = asked();
        let start = reply.len() - Group::Ffdhe2048.length();
        reply[start..].fill(0);
        *reply.last_mut().unwrap() = value;
        let (_, computes) = send(&mut controller, &credentials, &reply);
        assert!(!computes);
        assert_failure(&mut controller, Failure::INCORRECT_PAYLOAD);
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let (_, credentials, reply) = asked();
    let mut controller = Controller::new(parties());
    send(&mut controller, &credentials, &reply);
    assert_failure(&mut controller, Failure::INCORRECT_MESSAGE);
    for message in [
        Message::Success2,
        Message::Success1 {
            hash_length: 32,
            proof: None,
        },
    ] {
        let (mut controller, ..) = asked();
        let transaction = 7;
        let frame = Frame {
            transaction,
            message,
        };
        send(&mut controller, &credentials, &frame.encode());
        assert_failure(&mut controller, Failure::INCORRECT_MESSAGE);
    }
    let mut controller = Controller::new(parties());
    send(&mut controller, &credentials, &[0xff; 20]);
    assert_failure(&mut controller, Failure::INCORRECT_MESSAGE);
    let mut controller = Controller::new(parties());
    send(&mut controller, &credentials, &[0, 0, 0]);
    assert_failure(&mut controller, Failure::INCORRECT_PAYLOAD);
}

#[test]
fn offers_without_common_ground_are_refused() {
    let offer = |secure_channel, offer| Message::Negotiate {
        secure_channel,
        offer,
    };
    let all = || Some((vec![1, 2, 3], vec![0, 1, 2, 3, 4, 5]));
    for (message, failure) in [
        (offer(1, all()), Failure::CONCATENATION_MISMATCH),
        (offer(3, all()), Failure::CONCATENATION_MISMATCH),
        (offer(0, None), Failure::PROTOCOL_NOT_USABLE),
        (offer(0, Some((vec![4], vec![0]))), Failure::HASH_NOT_USABLE),
        (
            offer(0, Some((vec![1], vec![6]))),
            Failure::GROUP_NOT_USABLE,
        ),
        (
            offer(0, Some((vec![1], vec![1]))),
            Failure::GROUP_NOT_USABLE,
        ),
    ] {
        let mut controller = Controller::new(parties());
        let transaction = 3;
        let frame = Frame {
            transaction,
            message,
        };
        send(&mut controller, &Arc::new(credentials()), &frame.encode());
        assert_failure(&mut controller, failure);
    }
}

#[test]
fn a_message_while_the_last_one_is_computed_is_refused() {
    let (mut controller, credentials, reply) = asked();
    let sent = controller.send(&reply, &credentials, &mut |_| {});
    let Sent::Compute(computation) = sent else {
        panic!("{sent:?}");
    };
    let (sent, _) = send(&mut controller, &credentials, &reply);
    assert!(matches!(sent, Sent::Refused(Status(_))), "{sent:?}");
    assert!(controller.receive(RECEIVE_LENGTH, &mut Vec::new()).is_err());
    controller.computed(computation.run());
    let (received, _) = receive(&mut controller);
    assert_eq!(received, Received::Authenticated);
}

#[test]
fn a_host_that_begins_anew_again_and_again_computes_nothing_more() {
    let credentials = Arc::new(Credentials {
        groups: vec![Group::Ffdhe2048],
        ..credentials()
    });
    let parties = parties();
    let mut controller = Controller::new(parties.clone());
    let mut host = Host::new(&parties, &credentials.host, None, 7);
    let mut computed = 0;
    for _ in 0..5 {
        let (sent, computes) = send(&mut controller, &credentials, &host.negotiate());
        computed += usize::from(computes);
        assert_eq!(matches!(sent, Sent::Refused(_)), !computes);
    }
    assert_eq!(computed, 2);
    // The last one that was taken goes on, and success begins a new count.
    let (_, challenge) = receive(&mut controller);
    let Answer::Reply(reply) = host.handle(&challenge, &mut |out| out.fill(3)) else {
        panic!("the host replies");
    };
    send(&mut controller, &credentials, &reply);
    assert_eq!(receive(&mut controller).0, Received::Authenticated);
    let (_, computes) = send(&mut controller, &credentials, &host.negotiate());
    assert!(computes);
}

#[test]
fn a_message_that_nobody_had_time_for_can_be_sent_again() {
    let credentials = Arc::new(Credentials {
        groups: vec![Group::Ffdhe2048],
        ..credentials()
    });
    let parties = parties();
    let mut controller = Controller::new(parties.clone());
    let mut host = Host::new(&parties, &credentials.host, None, 7);
    let mut bytes = Bytes(5);
    for _ in 0..5 {
        let sent = controller.send(&host.negotiate(), &credentials, &mut |out| bytes.fill(out));
        assert!(matches!(sent, Sent::Compute(_)), "{sent:?}");
        controller.postponed();
    }
    send(&mut controller, &credentials, &host.negotiate());
    let (_, challenge) = receive(&mut controller);
    let Answer::Reply(reply) = host.handle(&challenge, &mut |out| out.fill(3)) else {
        panic!("the host replies");
    };
    for _ in 0..5 {
        let sent = controller.send(&reply, &credentials, &mut |_| {});
        assert!(matches!(sent, Sent::Compute(_)), "{sent:?}");
        controller.postponed();
    }
    send(&mut controller, &credentials, &reply);
    assert_eq!(receive(&mut controller).0, Received::Authenticated);
}

#[test]
fn a_failure_holds_before_it_is_read_and_nothing_more_is_taken() {
    let (mut controller, credentials, reply) = asked();
    send(&mut controller, &credentials, &reply);
    assert_eq!(receive(&mut controller).0, Received::Authenticated);
    let parties = parties();
    let wrong = secret(None, 6);
    let mut host = Host::new(&parties, &wrong, None, 8);
    send(&mut controller, &credentials, &host.negotiate());
    let (_, challenge) = receive(&mut controller);
    let Answer::Reply(guess) = host.handle(&challenge, &mut |out| out.fill(3)) else {
        panic!("the host replies");
    };
    assert!(controller.is_authenticated() && controller.failure().is_none());
    send(&mut controller, &credentials, &guess);
    assert!(!controller.is_authenticated());
    assert_eq!(controller.failure(), Some(Failure::FAILED));
    for message in [host.negotiate(), guess] {
        let (sent, _) = send(&mut controller, &credentials, &message);
        assert!(matches!(sent, Sent::Refused(_)), "{sent:?}");
    }
    assert_failure(&mut controller, Failure::FAILED);
}

#[test]
fn a_receive_that_is_too_short_takes_nothing() {
    let (mut controller, credentials, reply) = asked();
    send(&mut controller, &credentials, &reply);
    let mut out = Vec::new();
    assert!(controller.receive(15, &mut out).is_err());
    assert!(out.is_empty() && !controller.is_authenticated());
    let (received, _) = receive(&mut controller);
    assert_eq!(received, Received::Authenticated);
}

#[test]
fn a_host_says_which_choice_of_the_controller_it_cannot_use() {
    let credentials = Arc::new(Credentials {
        groups: vec![Group::Null],
        hashes: vec![Hash::Sha256],
        ..credentials()
    });
    let parties = parties();
    let refusal = |hashes: &[Hash], groups: &[Group]| {
        let mut controller = Controller::new(parties.clone());
        let usual = Host::new(&parties, &credentials.host, None, 7);
        send(&mut controller, &credentials, &usual.negotiate());
        let (_, challenge) = receive(&mut controller);
        let mut host = Host::new(&parties, &credentials.host, None, 7).offering(hashes, groups);
        match host.handle(&challenge, &mut |_| {}) {
            Answer::Failed(Some(last), error) => (Frame::decode(&last).unwrap().message, error),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refusal(&[Hash::Sha512], &[Group::Null]),
        (
            Message::Failure2(Failure::HASH_NOT_USABLE),
            HostError::HashNotOffered
        )
    );
    assert_eq!(
        refusal(&[Hash::Sha256], &[Group::Ffdhe2048]),
        (
            Message::Failure2(Failure::GROUP_NOT_USABLE),
            HostError::GroupNotOffered
        )
    );
}
