//! Data of commands, both ways.

use super::*;
use crate::command::Fuse;
use crate::pdu::H2cData;
use crate::sgl::SglDescriptor;

#[test]
fn short_write_data_goes_in_the_capsule_and_long_data_waits_for_an_r2t() {
    let mut scene = Scene::ready(digesting());
    let data = pattern(16 * 512);
    scene.submit(&write(16), &data);
    scene.submit(&write(17), &[]);
    scene.submit(&read(17), &[]);
    let sent = scene.sent();
    let (offset, length) = (0, 8192);
    let in_capsule = SglDescriptor::Offset { offset, length };
    assert_eq!(entry_of(&sent[0]).sgl(), in_capsule);
    assert_eq!(sent[0].1, data);
    for pdu in &sent[1..] {
        let length = 17 * 512;
        assert_eq!(entry_of(pdu).sgl(), SglDescriptor::Transport { length });
        assert!(pdu.1.is_empty());
    }
    let ids: Vec<_> = sent.iter().map(|pdu| entry_of(pdu).id()).collect();
    let under_way = scene.host.under_way();
    let expected: Vec<_> = under_way.map(|slot| scene.host.command_id(slot)).collect();
    assert_eq!(ids, expected);
}

#[test]
fn an_r2t_is_answered_in_pieces_the_controller_takes() {
    let mut scene = Scene::ready(digesting());
    let data = pattern(20 * 512);
    let slot = scene.submit(&write(20), &[]);
    scene.r2t(slot, 77, 1000, 9000);
    let [r2t] = scene.r2ts()[..] else {
        panic!("one R2T")
    };
    scene.stream_of_command_only();
    let wanted = WriteData::Bytes(&data[1000..10_000]);
    scene.host.send_data(&r2t, wanted, &mut scene.transmit);
    let mut at = 1000;
    for (number, (header, bytes)) in scene.sent().into_iter().enumerate() {
        let header = H2cData::decode(header.first_chunk().unwrap());
        let expected = H2cData {
            last: number == 2,
            command: scene.host.command_id(slot),
            tag: TransferTag(77),
            offset: u32::try_from(at).unwrap(),
            length: if number == 2 { 808 } else { 4096 },
        };
        assert_eq!(header, expected);
        assert_eq!(bytes, data[at..at + bytes.len()]);
        at += bytes.len();
    }
    assert_eq!(at, 10_000);
}

impl Scene {
    /// Takes the command capsule from what was sent.
    fn stream_of_command_only(&mut self) {
        assert_eq!(self.sent().len(), 1);
    }
}

#[test]
fn r2ts_come_in_any_number_and_order() {
    let mut scene = Scene::ready(ConnectionConfig::default());
    let data = pattern(32 * 512);
    let (one, two) = (scene.submit(&write(32), &[]), scene.submit(&write(32), &[]));
    scene.sent();
    for at in (0..32).rev() {
        scene.r2t(
            if at % 2 == 0 { one } else { two },
            at,
            u32::from(at) * 512,
            512,
        );
    }
    let r2ts = scene.r2ts();
    assert_eq!(r2ts.len(), 32);
    for r2t in &r2ts {
        let start = r2t.buffer_offset as usize;
        let wanted = WriteData::Bytes(&data[start..start + 512]);
        scene.host.send_data(r2t, wanted, &mut scene.transmit);
    }
    let sent = scene.sent();
    assert_eq!(sent.len(), 32);
    for (header, bytes) in sent {
        let header = H2cData::decode(header.first_chunk().unwrap());
        assert!(header.last);
        assert_eq!(u32::from(header.tag.0) * 512, header.offset);
        let start = header.offset as usize;
        assert_eq!(bytes, data[start..start + 512]);
    }
}

#[test]
fn more_r2ts_at_a_time_than_allowed_are_refused() {
    let mut scene = Scene::ready(ConnectionConfig {
        max_r2t: 2,
        ..ConnectionConfig::default()
    });
    let slot = scene.submit(&write(32), &[]);
    scene.r2t(slot, 0, 0, 512);
    scene.r2t(slot, 1, 512, 512);
    let r2ts = scene.r2ts();
    let data = WriteData::Bytes(&[1; 512]);
    scene.host.send_data(&r2ts[0], data, &mut scene.transmit);
    scene.r2t(slot, 2, 1024, 512);
    assert_eq!(scene.events(), ["R2t 1024 512"]);
    scene.r2t(slot, 3, 1536, 512);
    scene.assert_refused(FatalErrorStatus::R2T_LIMIT_EXCEEDED, 0);
}

#[test]
fn r2ts_for_what_cannot_be_sent_are_refused() {
    let range = FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE;
    let field = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
    // More than the command has, beyond its end, wrapped around, nothing.
    for (offset, length, status, information) in [
        (0, 16_385, range, 0),
        (16_000, 512, range, 0),
        (u32::MAX, 2, range, 0),
        (0, 0, field, 16),
    ] {
        let mut scene = Scene::ready(ConnectionConfig::default());
        let slot = scene.submit(&write(32), &[]);
        scene.r2t(slot, 0, offset, length);
        scene.assert_refused(status, information);
    }
    // What has been asked for.
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&write(32), &[]);
    scene.r2t(slot, 0, 0, 16_384);
    scene.r2t(slot, 1, 0, 512);
    scene.assert_refused(range, 0);
    // What went in the capsule, and a read.
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&write(1), &[7; 512]);
    scene.r2t(slot, 0, 0, 512);
    scene.assert_refused(range, 0);
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&read(1), &[]);
    scene.r2t(slot, 0, 0, 512);
    scene.assert_refused(field, 8);
}

#[test]
fn data_comes_in_pieces_and_ends_by_a_response_or_by_the_success_flag() {
    let mut scene = Scene::ready(digesting());
    let (one, two) = (scene.submit(&read(8), &[]), scene.submit(&read(8), &[]));
    scene.data(one, 0, 1000, false, false);
    scene.data(two, 0, 4000, false, false);
    scene.data(one, 1000, 3096, true, false);
    scene.data(two, 4000, 96, true, true);
    scene.answer(one, Status::SUCCESS);
    let success = Status::SUCCESS;
    let expected = [
        "Data 0 1000".to_owned(),
        "Data 0 4000".to_owned(),
        "Data 1000 3096".to_owned(),
        "Data 4000 96".to_owned(),
        format!("Completed {} {success}", two.0),
        format!("Completed {} {success}", one.0),
    ];
    assert_eq!(scene.events(), expected);
    assert_eq!(scene.host.under_way().count(), 0);
}

#[test]
fn an_outcome_tells_result_queue_head_and_length() {
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&read(8), &[]);
    scene.data(slot, 0, 512, true, false);
    scene.answer(slot, Status::LBA_OUT_OF_RANGE.do_not_retry());
    let stream = flatten(&scene.answers, &[]);
    let mut rest = &stream[..];
    scene.host.next(&mut rest, &mut scene.transmit);
    let outcome = CommandOutcome {
        status: Status::LBA_OUT_OF_RANGE.do_not_retry(),
        result: 0x1122_3344_5566_7788,
        sq_head: Some(9),
        data_in_length: 512,
        data_out_length: 0,
        data_digest_error: false,
    };
    let event = scene.host.next(&mut rest, &mut scene.transmit);
    assert_eq!(event, ConnectionEvent::Completed { slot, outcome });
}

#[test]
fn data_that_does_not_belong_to_its_command_is_refused() {
    let range = FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE;
    // A gap, and more than there is room for.
    for (offset, length) in [(512, 512), (0, 4097)] {
        let mut scene = Scene::ready(ConnectionConfig::default());
        let slot = scene.submit(&read(8), &[]);
        scene.data(slot, offset, length, true, false);
        scene.assert_refused(range, 0);
    }
    // The same again.
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&read(8), &[]);
    scene.data(slot, 0, 512, false, false);
    scene.data(slot, 0, 512, false, false);
    scene.assert_refused(range, 0);
    // Behind the last, and success in the middle.
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&read(8), &[]);
    scene.data(slot, 0, 512, true, false);
    scene.data(slot, 512, 512, true, false);
    scene.assert_refused(FatalErrorStatus::PDU_SEQUENCE_ERROR, 0);
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&read(8), &[]);
    scene.data(slot, 0, 512, false, true);
    scene.assert_refused(FatalErrorStatus::INVALID_PDU_HEADER_FIELD, 1);
    // For a write.
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&write(1), &[7; 512]);
    scene.data(slot, 0, 512, true, false);
    scene.assert_refused(FatalErrorStatus::INVALID_PDU_HEADER_FIELD, 8);
}

#[test]
fn a_datal_that_differs_from_the_data_is_refused() {
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&read(8), &[]);
    let lying = C2hData {
        last: true,
        success: false,
        command: scene.host.command_id(slot),
        offset: 0,
        length: 512,
    };
    let chunk = Chunk::Bytes(&[0; 508]);
    scene
        .encoder
        .push_data(lying.encode(), chunk, &mut scene.answers);
    scene.assert_refused(FatalErrorStatus::INVALID_PDU_HEADER_FIELD, 16);
}

#[test]
fn payload_by_reference_is_released_once_for_each_call() {
    for digests in [Digests::default(), BOTH] {
        let mut scene = Scene::ready(ConnectionConfig {
            digests,
            ..ConnectionConfig::default()
        });
        let data = pattern(64 * 512);
        let id = PayloadId(3);
        let reference = |start: usize, length: usize| WriteData::Buffer {
            id,
            start,
            bytes: &data[start..start + length],
        };
        let short = reference(100, 512);
        scene
            .host
            .submit(&write(1), short, &mut scene.transmit)
            .unwrap();
        let slot = scene
            .host
            .submit(&write(64), reference(0, 64 * 512), &mut scene.transmit)
            .unwrap();
        scene.r2t(slot, 0, 0, 20_000);
        scene.r2t(slot, 1, 20_000, 12_768);
        for r2t in scene.r2ts() {
            let wanted = reference(r2t.buffer_offset as usize, r2t.length as usize);
            scene.host.send_data(&r2t, wanted, &mut scene.transmit);
        }
        let stream = flatten(&scene.transmit, &data);
        let mut released = Vec::new();
        scene.transmit.advance(stream.len(), &mut released);
        assert_eq!(released, [id, id, id]);
        let pdus = scene.parse(&stream);
        assert_eq!(pdus[0].1, data[100..612]);
        let sent: Vec<u8> = pdus[2..].iter().flat_map(|pdu| pdu.1.clone()).collect();
        assert_eq!(sent, data);
    }
}

#[test]
fn data_for_a_command_that_has_ended_is_not_sent() {
    let mut scene = Scene::ready(ConnectionConfig::default());
    let slot = scene.submit(&write(32), &[]);
    scene.r2t(slot, 0, 0, 512);
    let r2ts = scene.r2ts();
    scene.answer(slot, Status::ABORT_REQUESTED);
    scene.events();
    scene.stream();
    let again = scene.submit(&write(32), &[]);
    assert_eq!(slot, again);
    scene.stream();
    let data = WriteData::Bytes(&[1; 512]);
    scene.host.send_data(&r2ts[0], data, &mut scene.transmit);
    assert!(scene.transmit.is_empty());
}

#[test]
fn data_can_be_received_straight_into_its_place() {
    for digests in [Digests::default(), BOTH] {
        let mut scene = Scene::ready(ConnectionConfig {
            digests,
            hpda: 31,
            ..ConnectionConfig::default()
        });
        let slot = scene.submit(&read(2), &[]);
        scene.data(slot, 0, 1024, true, true);
        let stream = flatten(&scene.answers, &[]);
        assert_eq!(scene.host.payload_wanted(), None);
        let (head, rest) = stream.split_at(128);
        assert!(scene.feed(head).is_empty());
        let wanted = PayloadWanted {
            slot,
            buffer_offset: 0,
            length: 1024,
        };
        assert_eq!(scene.host.payload_wanted(), Some(wanted));
        scene.host.payload_received(&rest[..1000]);
        let wanted = PayloadWanted {
            slot,
            buffer_offset: 1000,
            length: 24,
        };
        assert_eq!(scene.host.payload_wanted(), Some(wanted));
        scene.host.payload_received(&rest[1000..1024]);
        assert_eq!(scene.host.payload_wanted(), None);
        let done = format!("Completed {} {}", slot.0, Status::SUCCESS);
        assert_eq!(scene.feed(&rest[1024..]), [done]);
    }
}

#[test]
fn the_halves_of_a_fused_pair_leave_next_to_each_other_or_not_at_all() {
    let config = ConnectionConfig {
        commands: 3,
        ..digesting()
    };
    let mut scene = Scene::ready(config);
    let blocks = blocks(1);
    let (compare, write) = (commands::compare(blocks), commands::write(blocks, 0));
    let (old, new) = (pattern(512), vec![0x77; 512]);
    let submit = |scene: &mut Scene| {
        scene.host.submit_fused(
            [&compare, &write],
            [WriteData::Bytes(&old), WriteData::Bytes(&new)],
            &mut scene.transmit,
        )
    };
    let pair = submit(&mut scene).unwrap();
    assert_eq!(submit(&mut scene), Err(NotSent::Busy), "one slot is left");
    let sent = scene.sent();
    assert_eq!(sent.len(), 2);
    let fuses = [Fuse::First, Fuse::Second];
    for (half, (slot, fuse)) in pair.into_iter().zip(fuses).enumerate() {
        let entry = entry_of(&sent[half]);
        assert_eq!(entry.fuse(), fuse);
        assert_eq!(entry.id(), scene.host.command_id(slot));
    }
    assert_eq!((&sent[0].1, &sent[1].1), (&old, &new));
}

#[test]
fn an_outcome_tells_how_much_data_the_controller_took() {
    let mut scene = Scene::ready(ConnectionConfig::default());
    let data = pattern(20 * 512);
    let slot = scene.submit(&write(20), &[]);
    scene.r2t(slot, 1, 0, 4096);
    let [r2t] = scene.r2ts()[..] else {
        panic!("one R2T")
    };
    let wanted = WriteData::Bytes(&data[..4096]);
    scene.host.send_data(&r2t, wanted, &mut scene.transmit);
    scene.answer(slot, Status::SUCCESS);
    let stream = flatten(&scene.answers, &[]);
    let event = scene.host.next(&mut &stream[..], &mut scene.transmit);
    let ConnectionEvent::Completed { outcome, .. } = event else {
        panic!("{event:?}")
    };
    assert_eq!(outcome.data_out_length, 4096);
}
