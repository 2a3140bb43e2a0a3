//! Data that nobody asked for, or that does not fit what was asked for.

use longshore_nvme::host::commands;
use longshore_nvme::status::Status;
use longshore_tests::nvme::pdu::{Pdu, fes, kind};

use crate::{MEBI, SOON, Scene, blocks};

#[test]
fn data_under_an_unknown_tag_does_not_reach_the_volume() {
    let mut scene = Scene::new();
    // Without a command, and with one whose tag is another.
    let mut queue = scene.queue();
    let data = Pdu::h2c_data(5, 7, 0, &[0xbb; 512]);
    queue.peer.send(&data).unwrap();
    queue.assert_terminated(fes::PDU_SEQUENCE_ERROR);
    let mut queue = scene.queue();
    let r2t = queue.start_write(256, 32, 5);
    let data = Pdu::h2c_data(5, r2t.half(10) ^ 0x5555, 0, &[0xbb; 512]);
    queue.peer.send(&data).unwrap();
    queue.assert_terminated(fes::PDU_SEQUENCE_ERROR);
    // The right tag with the wrong command.
    let mut queue = scene.queue();
    let r2t = queue.start_write(256, 32, 5);
    let data = Pdu::h2c_data(6, r2t.half(10), 0, &[0xbb; 16_384]);
    queue.peer.send(&data).unwrap();
    let request = queue.peer.receive().unwrap();
    assert_eq!(request.kind(), kind::C2H_TERM_REQ);
    assert_eq!(scene.stored(256, 32), [0; 16_384]);
    scene.assert_others_do_not_notice();
}

#[test]
fn data_outside_its_r2t_does_not_reach_the_volume() {
    let mut scene = Scene::new();
    // Not where it begins, beyond its end, far beyond.
    for (offset, length) in [(512, 512), (0, 16_896), (0xffff_fe00, 512), (16_384, 512)] {
        let mut queue = scene.queue();
        let r2t = queue.start_write(512, 32, 5);
        assert_eq!((r2t.word(12), r2t.word(16)), (0, 16_384));
        let data = Pdu::h2c_data(5, r2t.half(10), offset, &vec![0xcc; length]);
        queue.peer.send(&data).unwrap();
        queue.assert_terminated(fes::DATA_TRANSFER_OUT_OF_RANGE);
    }
    assert_eq!(scene.stored(512, 64), [0; 32_768]);
    scene.assert_others_do_not_notice();
}

#[test]
fn an_h2c_data_whose_lengths_differ_is_refused() {
    let mut scene = Scene::new();
    for datal in [0, 511, 513, u32::MAX] {
        let mut queue = scene.queue();
        let r2t = queue.start_write(640, 32, 5);
        let data = Pdu::h2c_data(5, r2t.half(10), 0, &[0xdd; 512]).set_word(16, datal);
        queue.peer.send(&data).unwrap();
        let field = queue.assert_terminated(fes::INVALID_PDU_HEADER_FIELD);
        assert_eq!(field, 16, "DATAL {datal}");
    }
    assert_eq!(scene.stored(640, 32), [0; 16_384]);
    scene.assert_others_do_not_notice();
}

#[test]
fn data_sent_twice_is_refused() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    let r2t = queue.start_write(700, 32, 5);
    let half = |offset, last: u8| {
        let data = Pdu::h2c_data(5, r2t.half(10), offset, &[1; 8192]);
        data.set_byte(1, last)
    };
    queue.peer.send(&half(0, 0)).unwrap();
    queue.peer.send(&half(0, 0)).unwrap();
    queue.assert_terminated(fes::DATA_TRANSFER_OUT_OF_RANGE);
    assert_eq!(scene.stored(700, 32), [0; 16_384]);
    // In two halves it is what was asked for.
    let mut queue = scene.queue();
    let r2t = queue.start_write(700, 32, 5);
    for (offset, last) in [(0, 0x00), (8192, 0x04)] {
        let data = Pdu::h2c_data(5, r2t.half(10), offset, &[1; 8192]);
        queue.peer.send(&data.set_byte(1, last)).unwrap();
    }
    assert_eq!(queue.status(5), 0);
    assert_eq!(scene.stored(700, 32), [1; 16_384]);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_write_that_announces_4_gib_is_refused_without_taking_memory() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    let write = commands::write(blocks(1, 0, 1), 0);
    let write = write.with(longshore_nvme::host::Transfer::ToController(u32::MAX));
    queue.start(&write, 4);
    assert_ne!(queue.status(4), 0);
    let read = commands::read(blocks(1, 0, 1));
    let read = read.with(longshore_nvme::host::Transfer::ToHost(u32::MAX));
    queue.start(&read, 5);
    // A block and its response, or a refusal.
    let first = queue.peer.receive().unwrap();
    assert!([kind::C2H_DATA, kind::CAPSULE_RESP].contains(&first.kind()));
    if first.kind() == kind::C2H_DATA {
        assert_eq!(first.word(16), 512);
        queue.status(5);
    }
    queue.assert_lives();
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(8 * MEBI);
}

#[test]
fn transfers_of_gigabytes_beyond_the_end_are_refused_before_data_is_asked_for() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    for lba in [1 << 40, u64::MAX - 5] {
        queue.start(&commands::write(blocks(1, lba, 65_536), 0), 4);
        let status = Status(queue.status(4));
        let statuses = [Status::LBA_OUT_OF_RANGE, Status::INVALID_FIELD];
        assert!(statuses.contains(&status), "{status}");
    }
    queue.assert_lives();
    scene.assert_others_do_not_notice();
}

#[test]
fn a_connection_that_ends_in_the_middle_of_its_data_writes_nothing() {
    let mut scene = Scene::new();
    for length in [1, 24, 25, 10_000] {
        let mut queue = scene.queue();
        let r2t = queue.start_write(900, 32, 5);
        let data = Pdu::h2c_data(5, r2t.half(10), 0, &[0xee; 16_384]);
        queue.peer.send_bytes(&data.to_bytes()[..length]).unwrap();
    }
    scene.wait_until_server_rests();
    assert_eq!(scene.stored(900, 32), [0; 16_384]);
    scene.assert_others_do_not_notice();
}

#[test]
fn data_for_an_aborted_write_is_taken_and_thrown_away() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    let r2t = queue.start_write(1000, 32, 5);
    let abort = commands::abort(1, longshore_nvme::command::CommandId(5));
    let answer = queue.host.admin.run(&abort, &[]).unwrap().expect_success();
    assert_eq!(answer.result & 1, 0, "it was aborted");
    let data = Pdu::h2c_data(5, r2t.half(10), 0, &[0xee; 16_384]);
    queue.peer.send(&data).unwrap();
    assert_eq!(Status(queue.status(5)), Status::ABORT_REQUESTED);
    assert_eq!(scene.stored(1000, 32), [0; 16_384]);
    queue.assert_lives();
    scene.assert_others_do_not_notice();
}

#[test]
fn an_aborted_write_gets_no_further_r2t() {
    let mut scene = Scene::new();
    // MAXR2T counts from 0.
    let request = Pdu::ic_req().set_word(12, 3);
    let mut queue = scene.queue_of(scene.initialized_by(&request));
    let first = queue.start_write(1024, 32_768, 5);
    let mut r2ts = vec![first];
    r2ts.extend((1..4).map(|_| queue.peer.receive().unwrap()));
    let asked: u32 = r2ts.iter().map(|r2t| r2t.word(16)).sum();
    assert!(asked < 16 << 20, "there is more to ask for");
    let abort = commands::abort(1, longshore_nvme::command::CommandId(5));
    let answer = queue.host.admin.run(&abort, &[]).unwrap().expect_success();
    assert_eq!(answer.result & 1, 0, "it was aborted");
    for r2t in &r2ts {
        assert_eq!((r2t.kind(), r2t.half(8)), (kind::R2T, 5));
        let data = vec![0xee; usize::try_from(r2t.word(16)).unwrap()];
        let data = Pdu::h2c_data(5, r2t.half(10), r2t.word(12), &data);
        queue.peer.send(&data).unwrap();
    }
    assert_eq!(Status(queue.status(5)), Status::ABORT_REQUESTED);
    assert_eq!(scene.stored(1024, 32), [0; 16_384]);
    queue.assert_lives();
    scene.assert_others_do_not_notice();
}

#[test]
fn the_end_of_the_admin_queue_ends_a_write_that_waits_for_data() {
    let mut scene = Scene::new();
    let mut queue = scene.queue();
    queue.start_write(1100, 32, 5);
    drop(queue.host);
    let (_, closed) = queue.peer.drain(SOON).unwrap();
    assert!(closed);
    assert_eq!(scene.stored(1100, 32), [0; 16_384]);
    scene.assert_others_do_not_notice();
}
