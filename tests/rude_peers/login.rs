//! Rudeness before a session is there (RFC 7143 §6).

use std::time::{Duration, Instant};

use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::pdu::{Pdu, opcode, text};
use longshore_tests::random::Random;

use crate::{IMPATIENT, LIMITS, Scene};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn garbage_instead_of_a_login_closes_the_connection() {
    let mut scene = Scene::with(IMPATIENT);
    let mut random = Random::new(11);
    for length in [1, 47, 48, 49, 1_000, 100_000] {
        let mut garbage = vec![0; length];
        random.fill(&mut garbage);
        garbage[0] = 0xff; // no opcode of an initiator
        let mut peer = scene.connection();
        let _ = peer.send_bytes(&garbage); // the server may hang up in the middle
        assert!(
            peer.is_closed_within(SOON).unwrap(),
            "{length} bytes of garbage"
        );
    }
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(4 << 20);
}

#[test]
fn a_command_before_login_closes_the_connection() {
    let mut scene = Scene::new();
    for op in [
        opcode::SCSI_COMMAND,
        opcode::NOP_OUT,
        opcode::TEXT_REQUEST,
        opcode::DATA_OUT,
    ] {
        let mut peer = scene.connection();
        peer.send(&Pdu::new(op).set_byte(1, 0x80)).unwrap();
        assert!(peer.is_closed_within(SOON).unwrap(), "opcode {op:#x}");
    }
    scene.assert_others_do_not_notice();
}

#[test]
fn half_a_login_and_then_silence_ends_with_the_login_timeout() {
    let mut scene = Scene::with(IMPATIENT);
    let whole = Login::default().request().to_bytes(false, false);
    for length in [0, 1, 24, 48, whole.len() - 1] {
        let mut peer = scene.connection();
        peer.send_bytes(&whole[..length]).unwrap();
        assert!(
            peer.is_closed_within(SOON).unwrap(),
            "{length} bytes of a login"
        );
    }
    scene.assert_others_do_not_notice();
}

#[test]
fn a_login_that_comes_byte_by_byte_does_not_outlast_the_timeout() {
    let mut scene = Scene::with(IMPATIENT);
    let mut peer = scene.connection();
    let whole = Login::default().request().to_bytes(false, false);
    // A byte every 100 ms would take half a minute; the limit is one second.
    let sent = whole
        .iter()
        .take_while(|&&byte| {
            // Slower bytes are as good, and fewer of them are taken.
            std::thread::sleep(Duration::from_millis(100));
            peer.send_bytes(&[byte]).is_ok()
        })
        .count();
    assert!(sent < 150, "{sent} bytes were taken, one at a time");
    scene.assert_others_do_not_notice();
}

#[test]
fn timers_of_peers_that_left_before_their_login_do_no_harm() {
    let mut scene = Scene::with(IMPATIENT);
    let peers: Vec<Initiator> = (0..50).map(|_| scene.connection()).collect();
    drop(peers);
    // Time is the subject: the server's limit of a second passes.
    std::thread::sleep(Duration::from_millis(1_200));
    scene.session(5).log_out().unwrap();
    scene.assert_others_do_not_notice();
}

#[test]
fn connections_beyond_the_pending_logins_are_closed_and_logins_work_during_the_flood() {
    // Only the limit closes any of them: a login may take longer than the test.
    let mut scene = Scene::with(&LIMITS.replace("\"10s\"", "\"60s\""));
    let mut flood: Vec<Initiator> = (0..300).map(|_| scene.connection()).collect();
    let end = Instant::now() + Duration::from_secs(20);
    let mut closed = 0;
    while closed < 300 - 64 - 8 && Instant::now() < end {
        flood.retain_mut(|peer| !peer.is_closed_within(Duration::from_millis(2)).unwrap());
        closed = 300 - flood.len();
    }
    assert!(
        closed >= 300 - 64 - 8,
        "{closed} of 300 connections were closed at a limit of 64"
    );
    scene.assert_others_do_not_notice();
    // Silent ones make room for those who log in.
    scene.session(4).log_out().unwrap();
    drop(flood);
    scene.session(5).log_out().unwrap();
    scene.assert_memory_grew_at_most(8 << 20);
}

#[test]
fn keys_without_end_are_not_collected() {
    let mut scene = Scene::new();
    let mut peer = scene.connection();
    let keys = text(&[("InitiatorName", "iqn.2026-11.local.longshore:endless")]);
    let padding = vec![b'x'; 7_000];
    // C bit set: the rest follows in the next PDU, and there is always a next one.
    let endless = Pdu::new(opcode::LOGIN_REQUEST)
        .immediate()
        .set_byte(1, 0x44)
        .set_word(8, 0x8012_3456)
        .with_data(&[keys, padding].concat());
    let mut taken = 0;
    while taken < 1_000 && peer.send(&endless).is_ok() && peer.receive().is_ok() {
        taken += 1;
    }
    assert!(
        taken < 1_000,
        "a thousand login requests with more to come were taken"
    );
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(4 << 20);
}

#[test]
fn a_login_with_a_data_segment_that_lies_does_not_hold_memory() {
    let mut scene = Scene::new();
    let mut peers = Vec::new();
    for _ in 0..32 {
        let mut peer = scene.connection();
        let request = Login::default()
            .request()
            .set_data_segment_length(0x00ff_ffff);
        peer.send_bytes(&request.bhs).unwrap();
        peers.push(peer);
    }
    scene.assert_memory_grew_at_most(8 << 20);
    for mut peer in peers {
        // Before negotiation a data segment has at most 8192 bytes (RFC 7143 §6.3).
        assert!(peer.is_closed_within(SOON).unwrap());
    }
    scene.assert_others_do_not_notice();
}

#[test]
fn an_unknown_target_is_refused_with_not_found() {
    let mut scene = Scene::new();
    let login = Login {
        target: Some("iqn.2026-11.local.longshore:nowhere".to_owned()),
        ..Login::default()
    };
    let mut peer = scene.connection();
    assert_eq!(peer.try_login(&login).unwrap(), 0x0203);
    assert!(peer.is_closed_within(SOON).unwrap());
    scene.assert_others_do_not_notice();
}

#[test]
fn a_session_that_does_not_answer_pings_is_closed() {
    let mut scene = Scene::with("[limits]\nnop-interval = \"1s\"\nnop-timeout = \"1s\"\n");
    let mut silent = scene.session(3);
    // Half a PDU is no sign of life.
    silent.send_bytes(&[0; 20]).unwrap();
    let (bytes, closed) = silent.drain(SOON).unwrap();
    assert!(closed);
    assert_eq!(bytes.first(), Some(&opcode::NOP_IN), "it is asked before");
    scene.healthy = scene.session(4);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_second_login_of_the_same_nexus_takes_the_place_of_the_first() {
    let mut scene = Scene::new();
    let mut first = scene.session(7);
    let mut second = scene.session(7);
    assert!(
        first.is_closed_within(SOON).unwrap(),
        "session reinstatement, RFC 7143 §6.3.5"
    );
    second.ping().unwrap();
    scene.assert_others_do_not_notice();
}
