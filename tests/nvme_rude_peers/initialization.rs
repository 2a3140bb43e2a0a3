//! Rudeness before a queue is there.

use std::time::Duration;

use longshore_nvme::host::commands::{self, ANY_CONTROLLER};
use longshore_nvme::status::Status;
use longshore_tests::nvme::HostOptions;
use longshore_tests::nvme::pdu::{Pdu, fes, kind};
use longshore_tests::random::Random;

use crate::{IMPATIENT, SOON, Scene, assert_terminated, blocks, entry};

#[test]
fn garbage_instead_of_an_ic_req_closes_the_connection() {
    let mut scene = Scene::new();
    let mut random = Random::new(11);
    for length in [8, 127, 128, 1_000, 100_000] {
        let mut garbage = vec![0; length];
        random.fill(&mut garbage);
        garbage[0] = 0xff; // no type of PDU
        let mut peer = scene.raw();
        let _ = peer.send_bytes(&garbage); // the server may hang up in the middle
        let (_, closed) = peer.drain(SOON).unwrap();
        assert!(closed, "{length} bytes of garbage");
    }
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(4 << 20);
}

#[test]
fn an_ic_req_that_cannot_be_is_refused_by_field() {
    let mut scene = Scene::new();
    let good = Pdu::ic_req();
    for (bad, field) in [
        (good.clone().set_byte(2, 127), 2),
        (good.clone().set_word(4, 129), 4),
        (good.clone().set_byte(10, 32), 10),
    ] {
        let mut peer = scene.raw();
        peer.send(&bad).unwrap();
        let found = assert_terminated(&mut peer, fes::INVALID_PDU_HEADER_FIELD);
        assert_eq!(found, field);
    }
    // A version that there is not: by either of the two statuses that fit.
    let mut peer = scene.raw();
    peer.send(&good.set_half(8, 1)).unwrap();
    let request = peer.receive().unwrap();
    assert_eq!(request.kind(), kind::C2H_TERM_REQ);
    let statuses = [fes::INVALID_PDU_HEADER_FIELD, fes::UNSUPPORTED_PARAMETER];
    assert!(statuses.contains(&request.half(8)));
    assert_eq!(request.word(10), 8);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_command_before_the_ic_req_and_a_second_ic_req_are_out_of_sequence() {
    let mut scene = Scene::new();
    let read = entry(&commands::read(blocks(1, 0, 1)), 1, false);
    let mut peer = scene.raw();
    peer.send(&Pdu::command(&read)).unwrap();
    assert_terminated(&mut peer, fes::PDU_SEQUENCE_ERROR);
    let mut peer = scene.initialized();
    peer.send(&Pdu::ic_req()).unwrap();
    assert_terminated(&mut peer, fes::PDU_SEQUENCE_ERROR);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_command_before_connect_is_a_sequence_error() {
    let mut scene = Scene::new();
    let mut peer = scene.initialized();
    for command in [
        commands::read(blocks(1, 0, 1)),
        commands::identify(0x01, longshore_nvme::command::NamespaceId(0)),
        commands::property_get(commands::Property::CAP),
        commands::keep_alive(),
    ] {
        peer.send(&Pdu::command(&entry(&command, 9, false)))
            .unwrap();
        let response = peer.receive().unwrap();
        assert_eq!(response.kind(), kind::CAPSULE_RESP);
        let status = Status(response.half(22) >> 1).code();
        assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR, "{command:?}");
    }
    scene.assert_others_do_not_notice();
}

#[test]
fn silence_ends_with_the_timeout_wherever_it_begins() {
    let mut scene = Scene::with(IMPATIENT);
    let hello = Pdu::ic_req().to_bytes();
    for length in [0, 1, 8, 127, 128] {
        let mut peer = scene.raw();
        peer.send_bytes(&hello[..length]).unwrap();
        let (_, closed) = peer.drain(SOON).unwrap();
        assert!(closed, "after {length} bytes");
    }
    // After half of Connect, and after a Connect that was refused.
    let options = HostOptions::default();
    let connect = options.connect(0, ANY_CONTROLLER);
    let entry = entry(&connect.command(), 1, true);
    let capsule = Pdu::command(&entry).with_data(&connect.data()).to_bytes();
    for length in [1, 72, 500, capsule.len() - 1] {
        let mut peer = scene.initialized();
        peer.send_bytes(&capsule[..length]).unwrap();
        let (_, closed) = peer.drain(SOON).unwrap();
        assert!(closed, "after {length} bytes of Connect");
    }
    let mut refused = options.clone();
    refused.subsystem = "nqn.2026-11.local.longshore:nowhere".to_owned();
    let (mut queue, answer) = refused
        .try_connect(scene.server.nvme(0), 0, ANY_CONTROLLER)
        .unwrap();
    assert!(!answer.is_success());
    assert!(queue.is_closed_within(SOON).unwrap());
    scene.assert_others_do_not_notice();
}

#[test]
fn an_ic_req_that_comes_byte_by_byte_does_not_outlast_the_timeout() {
    let mut scene = Scene::with(IMPATIENT);
    let mut peer = scene.raw();
    // A byte every 100 ms would take 13 seconds; the limit is one.
    let sent = Pdu::ic_req()
        .to_bytes()
        .iter()
        .take_while(|byte| {
            // Slower bytes are as good, and fewer of them are taken.
            std::thread::sleep(Duration::from_millis(100));
            peer.send_bytes(&[**byte]).is_ok()
        })
        .count();
    assert!(sent < 120, "{sent} bytes were taken, one at a time");
    scene.assert_others_do_not_notice();
}

#[test]
fn connects_that_cannot_be_are_refused_and_the_server_goes_on() {
    let mut scene = Scene::new();
    let options = HostOptions::default();
    let at = scene.server.nvme(0);
    for (queue_id, controller_id) in [
        (0, 1),
        (1, ANY_CONTROLLER),
        (1, 0x4711),
        (u16::MAX, ANY_CONTROLLER),
    ] {
        let (_, answer) = options.try_connect(at, queue_id, controller_id).unwrap();
        assert!(!answer.is_success(), "queue {queue_id}");
    }
    // Data that is no text, of no length, too long.
    let connect = options.connect(0, ANY_CONTROLLER);
    let mut data = connect.data();
    data[256..512].fill(0xff);
    let mut queue = options.open(at).unwrap();
    let answer = queue.run(&connect.command(), &data).unwrap();
    assert!(!answer.is_success(), "a name without end");
    for length in [0, 1, 1023] {
        let transfer = longshore_nvme::host::Transfer::ToController(length);
        let command = connect.command().with(transfer);
        let mut queue = options.open(at).unwrap();
        let answer = queue.run(&command, &data[..length as usize]).unwrap();
        assert!(!answer.is_success(), "{length} bytes of data");
    }
    // A record format that there is not.
    let mut command = connect.command();
    command.entry.0[40] = 7;
    let mut queue = options.open(at).unwrap();
    let answer = queue.run(&command, &connect.data()).unwrap();
    assert_eq!(answer.code(), Status::CONNECT_INCOMPATIBLE_FORMAT);
    scene.assert_others_do_not_notice();
}
