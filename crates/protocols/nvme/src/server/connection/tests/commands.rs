//! Commands: admission, completions, data for the host.

use super::*;

fn without_flow_control() -> Setup {
    let mut setup = Setup::default();
    setup.queue.flow_control = false;
    setup
}

fn success(id: u16, sq_head: u16) -> Said {
    Said::Response(CompletionEntry {
        result: 0,
        sq_head,
        id: CommandId(id),
        status: Status::SUCCESS,
    })
}

fn c2h_data(id: u16, length: u32, success: bool) -> C2hData {
    C2hData {
        last: true,
        success,
        command: CommandId(id),
        offset: 0,
        length,
    }
}

#[test]
fn a_read_is_answered_by_data_and_a_response() {
    for digests in all_digests() {
        let setup = Setup {
            digests,
            ..Setup::default()
        };
        let mut wire = in_any_pieces(&setup, |wire| wire.capsule(read(9, 512), &[]));
        let data = Said::Data(c2h_data(9, 512, false), pattern(512));
        // Connect was the first.
        assert_eq!(wire.said(), [data, success(9, 2)]);
    }
}

#[test]
fn without_flow_control_data_that_say_success_are_enough() {
    let mut wire = in_any_pieces(&without_flow_control(), |wire| {
        wire.capsule(read(9, 512), &[])
    });
    let data = Said::Data(c2h_data(9, 512, true), pattern(512));
    assert_eq!(wire.said(), [data]);
}

#[test]
fn each_way_of_sending_data_gives_the_same_bytes() {
    for digests in all_digests() {
        for flow_control in [false, true] {
            let mut setup = Setup {
                digests,
                hpda: 3,
                ..Setup::default()
            };
            setup.queue.flow_control = flow_control;
            let mut wire = Wire::held(&setup);
            let data = vec![0; 4096];
            let mut sent = Vec::new();
            for payload in [
                Payload::Bytes(&data),
                Payload::Zeros(4096),
                Payload::Buffer {
                    id: BUFFER,
                    bytes: &data,
                },
            ] {
                let bytes = wire.capsule(read(9, 4096), &[]);
                wire.hear(&bytes);
                let slot = wire.arrived().slot;
                wire.complete_with(slot, payload);
                wire.buffer.clone_from(&data);
                let said = wire.said();
                assert!(matches!(&said[0], Said::Data(_, bytes) if *bytes == data));
                sent.push(said[0].clone());
            }
            sent.dedup();
            assert_eq!(sent.len(), 1);
            assert_eq!(wire.released, [BUFFER]);
        }
    }
}

#[test]
fn data_begin_where_the_host_wants_them() {
    for (hpda, digests, pdo) in [
        (0, Digests::default(), 24),
        (0, BOTH_DIGESTS, 28),
        (1, BOTH_DIGESTS, 32),
        (15, Digests::default(), 64),
        (31, BOTH_DIGESTS, 128),
    ] {
        let setup = Setup {
            digests,
            hpda,
            ..without_flow_control()
        };
        let mut wire = Wire::connected(&setup);
        let before = wire.sent.len();
        let bytes = wire.capsule(read(9, 10), &[]);
        wire.hear(&bytes);
        assert_eq!(usize::from(wire.sent[before + 3]), pdo);
        let digest = if digests.data { 4 } else { 0 };
        assert_eq!(wire.sent.len() - before, pdo + 10 + digest);
        let padding = &wire.sent[before + 28..before + pdo.max(28)];
        assert!(padding.iter().all(|byte| *byte == 0));
        assert_eq!(wire.one(), Said::Data(c2h_data(9, 10, true), pattern(10)));
    }
}

#[test]
fn success_is_not_said_by_data_that_need_a_response() {
    let result = Completion {
        status: Status::SUCCESS,
        result: 1,
        data: Payload::Zeros(512),
    };
    let failure = Completion {
        status: Status::UNRECOVERED_READ_ERROR,
        result: 0,
        data: Payload::Zeros(512),
    };
    let short = Completion {
        status: Status::SUCCESS,
        result: 0,
        data: Payload::Zeros(511),
    };
    for completion in [result, failure, short] {
        let mut wire = Wire::held(&without_flow_control());
        let bytes = wire.capsule(read(9, 512), &[]);
        wire.hear(&bytes);
        let slot = wire.arrived().slot;
        wire.complete(slot, completion);
        let said = wire.said();
        let [Said::Data(data, _), Said::Response(entry)] = &said[..] else {
            panic!("{said:?}");
        };
        assert!(!data.success);
        assert_eq!(entry.status, completion.status);
        assert_eq!(entry.result, completion.result);
        assert_eq!(entry.sq_head, 0);
    }
}

#[test]
fn data_beyond_what_the_host_has_room_for_are_cut_off() {
    let mut wire = Wire::held(&without_flow_control());
    let bytes = wire.capsule(read(9, 100), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    wire.complete_with(slot, Payload::Bytes(&pattern(200)));
    assert_eq!(wire.one(), Said::Data(c2h_data(9, 100, true), pattern(100)));
}

#[test]
fn payload_that_nobody_wants_is_released_all_the_same() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(flush(9), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    let payload = Payload::Buffer {
        id: BUFFER,
        bytes: &[1, 2, 3],
    };
    wire.complete_with(slot, payload);
    assert_eq!(wire.said(), [success(9, 2)]);
    assert_eq!(wire.released, [BUFFER]);
}

#[test]
fn an_inline_read_taken_back_leaves_no_trace() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(read(9, 512), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    assert!(
        wire.target
            .begin_inline_read(slot, 512, &mut wire.transmit)
            .is_some()
    );
    wire.target.rollback_inline_read(slot, &mut wire.transmit);
    assert!(wire.transmit.is_empty());
    wire.complete(slot, Completion::status(Status::LBA_OUT_OF_RANGE));
    assert_eq!(wire.response().status, Status::LBA_OUT_OF_RANGE);
}

#[test]
fn an_inline_read_is_bounded_by_what_the_host_has_room_for() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(read(9, 100), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    let place = wire.target.begin_inline_read(slot, 512, &mut wire.transmit);
    assert_eq!(place.unwrap().len(), 100);
    wire.target.rollback_inline_read(slot, &mut wire.transmit);
    let bytes = wire.capsule(read(10, 1 << 20), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    let place = wire
        .target
        .begin_inline_read(slot, 1 << 20, &mut wire.transmit);
    assert!(place.is_none());
}

#[test]
fn sq_head_goes_around_with_the_entries_of_the_queue() {
    let mut wire = Wire::connected(&Setup::default());
    let mut heads = Vec::new();
    for id in 0..9 {
        let bytes = wire.capsule(flush(id), &[]);
        wire.hear(&bytes);
        heads.push(wire.response().sq_head);
    }
    assert_eq!(heads, [2, 3, 4, 5, 6, 7, 0, 1, 2]);
}

#[test]
fn a_command_identifier_in_use_is_a_conflict_and_does_no_harm() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(read(9, 512), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    assert_eq!(wire.target.find(CommandId(9)), Some(slot));
    let bytes = wire.capsule(write_in_capsule(9, 0, 512), &[1; 512]);
    wire.hear(&bytes);
    let status = Status::COMMAND_ID_CONFLICT.do_not_retry();
    assert_eq!(wire.response().status, status);
    assert_eq!(wire.seen.len(), 1);
    wire.complete_with(slot, Payload::Zeros(512));
    assert_eq!(wire.said().len(), 2);
    assert_eq!(wire.target.find(CommandId(9)), None);
    assert_eq!(wire.target.commands().count(), 0);
}

#[test]
fn a_command_takes_the_place_of_an_event_request_with_its_identifier() {
    const EVENTS: Opcode = opcode::admin::ASYNC_EVENT_REQUEST;
    let queue = QueueParameters {
        id: 0,
        entries: 8,
        flow_control: true,
    };
    let setup = Setup {
        queue,
        ..Setup::default()
    };
    let mut wire = Wire::held(&setup);
    for id in [9, 10] {
        let bytes = wire.capsule(admin(EVENTS, id), &[]);
        wire.hear(&bytes);
    }
    let bytes = wire.capsule(admin(opcode::admin::KEEP_ALIVE, 9), &[]);
    wire.hear(&bytes);
    assert_eq!(wire.said(), [], "nothing tells of the request");
    assert_eq!(wire.target.take_replaced_event_requests(), [CommandId(9)]);
    assert_eq!(wire.target.take_replaced_event_requests(), []);
    let slot = wire.target.find(CommandId(9)).unwrap();
    wire.complete(slot, Completion::status(Status::SUCCESS));
    let response = wire.response();
    assert_eq!(response.id, CommandId(9));
    // Connect, the request and its successor.
    assert_eq!(response.sq_head, 3);
    assert!(wire.target.find(CommandId(10)).is_some());
    assert_eq!(wire.target.commands().count(), 1);
    // A command that is refused takes the place as well: its completion has that identifier.
    let mut bad = read(10, 512);
    bad.set_sgl(SglDescriptor::Other(0xff));
    let bytes = wire.capsule(bad, &[]);
    wire.hear(&bytes);
    assert_eq!(wire.response().id, CommandId(10));
    assert_eq!(wire.target.take_replaced_event_requests(), [CommandId(10)]);
    assert_eq!(wire.target.commands().count(), 0);
}

#[test]
fn an_io_command_with_the_opcode_of_an_event_request_is_a_command_like_others() {
    let mut wire = Wire::held(&Setup::default());
    for _ in 0..2 {
        let bytes = wire.capsule(admin(opcode::admin::ASYNC_EVENT_REQUEST, 9), &[]);
        wire.hear(&bytes);
    }
    let status = Status::COMMAND_ID_CONFLICT.do_not_retry();
    assert_eq!(wire.response().status, status);
    assert_eq!(wire.target.commands().count(), 1);
}

#[test]
fn a_queue_takes_as_many_commands_as_it_has_entries() {
    let mut wire = Wire::held(&Setup::default());
    for id in 0..8 {
        let bytes = wire.capsule(flush(id), &[]);
        wire.hear(&bytes);
    }
    assert_eq!(wire.target.commands().count(), 8);
    assert_eq!(wire.said(), []);
    // A place that is free again can be used again.
    let slot = wire.arrived().slot;
    wire.complete(slot, Completion::status(Status::SUCCESS));
    let bytes = wire.capsule(flush(20), &[]);
    wire.hear(&bytes);
    assert_eq!(wire.arrived().slot, slot);
    let bytes = wire.capsule(flush(21), &[]);
    wire.hear(&bytes);
    let error = wire.terminated();
    assert_eq!(error.status, FatalErrorStatus::PDU_SEQUENCE_ERROR);
}

#[test]
fn a_queue_of_two_entries_takes_two_commands() {
    let mut setup = Setup::default();
    setup.queue.entries = 2;
    let mut wire = Wire::held(&setup);
    for id in 0..3 {
        let bytes = wire.capsule(flush(id), &[]);
        wire.hear(&bytes);
    }
    wire.terminated();
    assert_eq!(wire.target.commands().count(), 2);
}

/// What the data pointer of a command can say: status of the answer, or how its data move.
#[test]
fn data_pointers_are_checked() {
    const EMPTY: &[u8] = &[];
    let invalid_type = Err(Status::SGL_DESCRIPTOR_TYPE_INVALID);
    let invalid_field = Err(Status::INVALID_FIELD);
    let none = Ok(DataTransfer::None);
    let transport = |length| SglDescriptor::Transport { length };
    let offset = |offset, length| SglDescriptor::Offset { offset, length };
    let address = |address, length| SglDescriptor::Address { address, length };
    let data: &[u8] = &[5; 512];
    let cases = [
        (
            io::WRITE,
            transport(512),
            EMPTY,
            Ok(DataTransfer::ToController { length: 512 }),
        ),
        (io::WRITE, transport(0), EMPTY, none),
        (
            io::WRITE,
            offset(0, 512),
            data,
            Ok(DataTransfer::InCapsule { length: 512 }),
        ),
        (
            io::WRITE,
            offset(12, 500),
            data,
            Ok(DataTransfer::InCapsule { length: 500 }),
        ),
        (
            io::WRITE,
            offset(0, 100),
            data,
            Ok(DataTransfer::InCapsule { length: 100 }),
        ),
        (io::WRITE, offset(0, 0), data, none),
        (io::WRITE, offset(0, 0), EMPTY, none),
        (
            io::WRITE,
            offset(0, 513),
            data,
            Err(Status::DATA_SGL_LENGTH_INVALID),
        ),
        (
            io::WRITE,
            offset(12, 501),
            data,
            Err(Status::DATA_SGL_LENGTH_INVALID),
        ),
        (
            io::WRITE,
            offset(0, u32::MAX),
            EMPTY,
            Err(Status::DATA_SGL_LENGTH_INVALID),
        ),
        (
            io::WRITE,
            offset(513, 1),
            data,
            Err(Status::SGL_OFFSET_INVALID),
        ),
        (
            io::WRITE,
            offset(u64::MAX, 1),
            data,
            Err(Status::SGL_OFFSET_INVALID),
        ),
        (io::WRITE, SglDescriptor::NONE, EMPTY, none),
        (io::WRITE, address(0x1000, 512), EMPTY, invalid_type),
        (io::WRITE, SglDescriptor::Other(0x20), EMPTY, invalid_type),
        (io::WRITE, SglDescriptor::Other(0x20), data, invalid_type),
        (io::WRITE, SglDescriptor::Other(0x4a), EMPTY, invalid_type),
        (
            io::READ,
            transport(512),
            EMPTY,
            Ok(DataTransfer::ToHost { length: 512 }),
        ),
        (io::READ, transport(0), EMPTY, none),
        (io::READ, SglDescriptor::NONE, EMPTY, none),
        (io::READ, address(0, 512), EMPTY, invalid_type),
        (io::READ, offset(0, 512), EMPTY, invalid_field),
        (io::READ, offset(0, 512), data, invalid_field),
        (io::READ, SglDescriptor::Other(0x10), EMPTY, invalid_type),
        // Nothing is to be moved, whatever is there.
        (io::FLUSH, transport(512), EMPTY, none),
        (io::FLUSH, offset(0, 512), data, none),
        (io::FLUSH, SglDescriptor::Other(0xff), data, none),
        (Opcode(0x83), transport(512), EMPTY, none),
    ];
    for (opcode, sgl, data, expected) in cases {
        let mut entry = SubmissionEntry::new(opcode, CommandId(3), NamespaceId(1));
        entry.set_sgl(sgl);
        let mut wire = Wire::held(&Setup::default());
        let bytes = wire.capsule(entry, data);
        wire.hear(&bytes);
        let what = format!("{opcode:?} {sgl:?}");
        match expected {
            Ok(transfer) => assert_eq!(wire.arrived().data, transfer, "{what}"),
            Err(status) => {
                assert_eq!(wire.response().status, status.do_not_retry(), "{what}");
                assert_eq!(wire.seen, [], "{what}");
            }
        }
        // The stream goes on behind it.
        let bytes = wire.capsule(flush(4), &[]);
        wire.hear(&bytes);
        assert_eq!(wire.arrived().entry, flush(4), "{what}");
    }
}

#[test]
fn only_sgls_are_data_pointers() {
    for (psdt, status) in [
        (0b00, Some(Status::INVALID_FIELD)),
        (0b01, None),
        (0b10, Some(Status::INVALID_FIELD)),
        (0b11, Some(Status::INVALID_FIELD)),
    ] {
        let mut entry = read(3, 512);
        entry.0[1] = psdt << 6;
        let mut wire = Wire::held(&Setup::default());
        let bytes = wire.capsule(entry, &[]);
        wire.hear(&bytes);
        match status {
            None => assert_eq!(wire.seen.len(), 1),
            Some(status) => assert_eq!(wire.response().status, status.do_not_retry()),
        }
        // Of a command without data it does not matter.
        let mut entry = flush(4);
        entry.0[1] = psdt << 6;
        let bytes = wire.capsule(entry, &[]);
        wire.hear(&bytes);
        assert_eq!(wire.arrived().entry, entry);
    }
}

#[test]
fn in_capsule_data_reach_as_far_as_the_sgl_says() {
    let data = pattern(512);
    let wire = in_any_pieces(&Setup::default(), |wire| {
        wire.capsule(write_in_capsule(3, 12, 400), &data)
    });
    let [Seen::Command(_), Seen::Complete(_, written)] = &wire.seen[..] else {
        panic!("{:?}", wire.seen);
    };
    assert_eq!(*written, data[12..412]);
}

#[test]
fn admin_queues_take_8192_bytes_in_a_capsule_even_if_others_take_less() {
    for (id, opcode, fine) in [
        (0, io::WRITE, true),
        (1, io::WRITE, false),
        (1, opcode::FABRICS, true),
    ] {
        let mut setup = Setup {
            config: |config| config.in_capsule_data_bytes = 4096,
            ..Setup::default()
        };
        setup.queue.id = id;
        let mut wire = Wire::connected(&setup);
        // FCTYPE 1, of Fabrics commands; else NSID.
        let mut entry = SubmissionEntry::new(opcode, CommandId(1), NamespaceId(1));
        entry.set_sgl(SglDescriptor::Offset {
            offset: 0,
            length: 8192,
        });
        let bytes = wire.capsule(entry, &pattern(8192));
        wire.hear(&bytes);
        if fine {
            assert_eq!(wire.response().status, Status::SUCCESS);
        } else {
            let error = wire.terminated();
            let status = FatalErrorStatus::DATA_TRANSFER_LIMIT_EXCEEDED;
            assert_eq!(error, FatalError::plain(status));
        }
    }
}

#[test]
#[should_panic(expected = "the command is live")]
fn a_command_is_completed_once() {
    let mut wire = Wire::held(&Setup::default());
    let bytes = wire.capsule(flush(1), &[]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    wire.complete(slot, Completion::status(Status::SUCCESS));
    wire.complete(slot, Completion::status(Status::SUCCESS));
}
