//! Write data: what is asked for, and initiators that send something else.

use super::*;
use crate::server::command::DataOutFailure;

const CRC_ERROR: DataOutFailure = DataOutFailure::PROTOCOL_SERVICE_CRC_ERROR;
const WRONG_AMOUNT: DataOutFailure = DataOutFailure::INCORRECT_AMOUNT_OF_DATA;
const UNEXPECTED: DataOutFailure = DataOutFailure::UNEXPECTED_UNSOLICITED_DATA;

/// A write of `length` bytes with nothing unsolicited, and the R2Ts it starts with.
fn start_write(wire: &mut Wire, tag: u32, length: u32) -> (TaskId, Vec<R2t>) {
    let task = wire.start(tag, Transfer::Write(length));
    wire.target
        .want_data_out(task, u64::from(length), &mut wire.transmit);
    (task, wire.r2ts())
}

fn failed(task: TaskId, failure: DataOutFailure) -> ConnectionEvent<'static> {
    ConnectionEvent::DataOutFailed { task, failure }
}

/// A command whose event has come: its task, and what follows its header.
fn reported<'a>(wire: &mut Wire, mut bytes: &'a [u8]) -> (TaskId, &'a [u8]) {
    let (directory, transmit) = (&mut wire.directory, &mut wire.transmit);
    match wire.target.next(&mut bytes, directory, transmit, 0) {
        ConnectionEvent::Command(command) => (command.task, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn immediate_data_that_are_all_there_can_be_used_where_they_are() {
    let mut wire = Wire::logged_in();
    let mut bytes = pdu_bytes(wire.command(1, Transfer::Write(1001)).encode(), &[7; 1001]);
    bytes.extend(pdu_bytes(wire.command(2, Transfer::None).encode(), &[]));
    let (task, mut rest) = reported(&mut wire, &bytes);
    assert_eq!(
        wire.target.whole_immediate(task, rest),
        Some(&[7; 1001][..])
    );
    wire.target.take_immediate(&mut rest);
    wire.good(task);
    assert_eq!(wire.response().initiator_task_tag, InitiatorTaskTag(1));
    let second = only_command(&wire.feed(rest)).task;
    wire.good(second);
    assert_eq!(wire.response().initiator_task_tag, InitiatorTaskTag(2));
}

#[test]
fn immediate_data_that_are_cut_or_a_part_are_not_whole() {
    let mut wire = Wire::logged_in();
    let bytes = pdu_bytes(wire.command(1, Transfer::Write(1001)).encode(), &[7; 1001]);
    let (task, rest) = reported(&mut wire, &bytes);
    // Padding counts.
    let cut = &rest[..rest.len() - 1];
    assert_eq!(wire.target.whole_immediate(task, cut), None);
    assert!(wire.target.whole_immediate(task, rest).is_some());
    assert_eq!(wire.target.whole_immediate(TaskId(5), rest), None);

    let mut wire = Wire::logged_in();
    let bytes = pdu_bytes(wire.command(1, Transfer::Write(2000)).encode(), &[7; 1000]);
    let (task, rest) = reported(&mut wire, &bytes);
    assert_eq!(wire.target.whole_immediate(task, rest), None);
}

#[test]
fn bursts_are_asked_for_in_order_as_many_at_a_time_as_was_negotiated() {
    let mut wire = Wire::logged_in();
    let (task, first) = start_write(&mut wire, 1, 20_000);
    let shape = |r2t: &R2t| {
        (
            r2t.r2t_sn.0,
            r2t.buffer_offset,
            r2t.desired_data_transfer_length,
        )
    };
    let shapes: Vec<_> = first.iter().map(shape).collect();
    assert_eq!(shapes, [(0, 0, 8192), (1, 8192, 8192)]);
    assert_ne!(first[0].target_transfer_tag, first[1].target_transfer_tag);
    for r2t in &first {
        let mut data_out = answer(r2t, false);
        assert_eq!(wire.send(data_out.encode(), &[1; 4096]).len(), 1);
        data_out = DataOut {
            is_final: true,
            data_sn: DataSn(1),
            buffer_offset: r2t.buffer_offset + 4096,
            ..data_out
        };
        assert_eq!(wire.send(data_out.encode(), &[2; 4096]).len(), 1);
    }
    let last = wire.r2ts();
    let shapes: Vec<_> = last.iter().map(shape).collect();
    assert_eq!(shapes, [(2, 16_384, 3616)]);
    let events = wire.send(answer(&last[0], true).encode(), &[3; 3616]);
    assert_eq!(
        events.last(),
        Some(&ConnectionEvent::DataOutComplete { task })
    );
    wire.good(task);
    assert_eq!(wire.response().exp_data_sn, 0);
}

#[test]
fn what_lies_beyond_unsolicited_data_is_asked_for_at_once() {
    let mut wire = Wire::logged_in();
    let mut write = wire.command(1, Transfer::Write(10_000));
    write.is_final = false;
    let bytes = pdu_bytes(write.encode(), &[1; 1000]);
    let mut input = &bytes[..];
    let (directory, transmit) = (&mut wire.directory, &mut wire.transmit);
    let ConnectionEvent::Command(command) = wire.target.next(&mut input, directory, transmit, 0)
    else {
        panic!("a command")
    };
    wire.target
        .want_data_out(command.task, 10_000, &mut wire.transmit);
    let r2ts = wire.r2ts();
    assert_eq!(
        (r2ts[0].buffer_offset, r2ts[0].desired_data_transfer_length),
        (4096, 5904)
    );
    assert_eq!(wire.feed(input).len(), 1);
    assert_eq!(
        wire.send(unsolicited(1, 1000, true).encode(), &[2; 3096])
            .len(),
        1
    );
    let mut data_out = answer(&r2ts[0], false);
    wire.send(data_out.encode(), &[3; 4000]);
    data_out.is_final = true;
    data_out.data_sn = DataSn(1);
    data_out.buffer_offset = 8096;
    let events = wire.send(data_out.encode(), &[3; 1904]);
    assert_eq!(
        events.last(),
        Some(&ConnectionEvent::DataOutComplete { task: command.task })
    );
}

#[test]
fn immediate_data_that_was_not_agreed_upon_fails_the_command() {
    let mut setup = Setup::default();
    setup.directory.config.immediate_data = false;
    let mut wire = Wire::with(setup);
    let write = wire.command(1, Transfer::Write(512));
    let events = wire.send(write.encode(), &[1; 512]);
    let [ConnectionEvent::Command(command), last] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*last, failed(command.task, UNEXPECTED));
}

#[test]
fn unsolicited_data_that_was_not_agreed_upon_fails_the_command_after_its_last_pdu() {
    let mut setup = Setup::default();
    setup.directory.config.initial_r2t = true;
    let mut wire = Wire::with(setup);
    let mut write = wire.command(1, Transfer::Write(3000));
    write.is_final = false;
    let task = only_command(&wire.send(write.encode(), &[])).task;
    wire.target.want_data_out(task, 3000, &mut wire.transmit);
    wire.assert_silent();
    let mut data_out = unsolicited(1, 0, false);
    assert_eq!(wire.send(data_out.encode(), &[1; 1500]), []);
    data_out = DataOut {
        is_final: true,
        data_sn: DataSn(1),
        buffer_offset: 1500,
        ..data_out
    };
    assert_eq!(
        wire.send(data_out.encode(), &[1; 1500]),
        [failed(task, UNEXPECTED)]
    );
}

#[test]
fn unsolicited_data_nobody_announced_fails_the_command() {
    let mut wire = Wire::logged_in();
    let (task, r2ts) = start_write(&mut wire, 1, 3000);
    assert_eq!(wire.send(unsolicited(1, 0, true).encode(), &[1; 100]), []);
    // The R2T is still owed; only then is it over.
    let events = wire.send(answer(&r2ts[0], true).encode(), &[1; 3000]);
    assert_eq!(events, [failed(task, UNEXPECTED)]);
}

#[test]
fn more_immediate_data_than_expected_fails_the_command() {
    for (expected, length) in [(100, 200), (100_000, 4096 + 4)] {
        let mut setup = Setup::default();
        setup.directory.config.max_recv_data_segment_length = 8192;
        let mut wire = Wire::with(setup);
        let write = wire.command(1, Transfer::Write(expected));
        let events = wire.send(write.encode(), &vec![1; length]);
        let [ConnectionEvent::Command(command), last] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(*last, failed(command.task, WRONG_AMOUNT));
    }
}

#[test]
fn less_unsolicited_data_than_possible_fails_the_command() {
    let mut wire = Wire::logged_in();
    let mut write = wire.command(1, Transfer::Write(10_000));
    write.is_final = false;
    let task = only_command(&wire.send(write.encode(), &[])).task;
    assert_eq!(
        wire.send(unsolicited(1, 0, true).encode(), &[1; 1000])
            .last(),
        Some(&failed(task, WRONG_AMOUNT))
    );
}

#[test]
fn a_short_unsolicited_burst_of_a_short_write_is_completed_by_r2t() {
    let mut wire = Wire::logged_in();
    let mut write = wire.command(1, Transfer::Write(2000));
    write.is_final = false;
    let task = only_command(&wire.send(write.encode(), &[])).task;
    wire.target.want_data_out(task, 2000, &mut wire.transmit);
    wire.assert_silent();
    wire.send(unsolicited(1, 0, true).encode(), &[1; 500]);
    let r2ts = wire.r2ts();
    assert_eq!(
        (r2ts[0].buffer_offset, r2ts[0].desired_data_transfer_length),
        (500, 1500)
    );
}

#[test]
fn a_burst_of_the_wrong_length_fails_the_command() {
    for length in [2999_usize, 3001] {
        let mut wire = Wire::logged_in();
        let (task, r2ts) = start_write(&mut wire, 1, 3000);
        let events = wire.send(answer(&r2ts[0], true).encode(), &vec![1; length]);
        assert_eq!(events.last(), Some(&failed(task, WRONG_AMOUNT)), "{length}");
    }
}

#[test]
fn a_data_sn_out_of_order_counts_as_a_lost_pdu() {
    for data_sn in [1, 27, u32::MAX] {
        let mut wire = Wire::logged_in();
        let (task, r2ts) = start_write(&mut wire, 1, 3000);
        let data_out = DataOut {
            data_sn: DataSn(data_sn),
            ..answer(&r2ts[0], true)
        };
        assert_eq!(
            wire.send(data_out.encode(), &[1; 3000]),
            [failed(task, CRC_ERROR)]
        );
    }
}

#[test]
fn data_at_the_wrong_place_fails_the_command() {
    for buffer_offset in [1, 3000, u32::MAX] {
        let mut wire = Wire::logged_in();
        let (task, r2ts) = start_write(&mut wire, 1, 3000);
        let data_out = DataOut {
            buffer_offset,
            ..answer(&r2ts[0], true)
        };
        assert_eq!(
            wire.send(data_out.encode(), &[1; 3000]),
            [failed(task, WRONG_AMOUNT)]
        );
    }
}

#[test]
fn data_for_unknown_tags_is_rejected() {
    let mut wire = Wire::logged_in();
    let (_, r2ts) = start_write(&mut wire, 1, 3000);
    let read = wire.start(2, Transfer::Read(512));
    let known = answer(&r2ts[0], true);
    let TargetTransferTag(ttt) = known.target_transfer_tag;
    for data_out in [
        DataOut {
            initiator_task_tag: InitiatorTaskTag(77),
            ..known
        },
        DataOut {
            initiator_task_tag: InitiatorTaskTag(0xffff_ffff),
            ..known
        },
        DataOut {
            initiator_task_tag: InitiatorTaskTag(2),
            ..known
        },
        DataOut {
            target_transfer_tag: TargetTransferTag(ttt ^ 1),
            ..known
        },
    ] {
        assert_eq!(wire.send(data_out.encode(), &[1; 100]), []);
        let header = with_length(data_out.encode(), 100);
        wire.assert_rejected(header, RejectReason::INVALID_PDU_FIELD);
    }
    wire.good(read);
}

#[test]
fn data_out_after_abort_is_discarded() {
    let mut wire = Wire::logged_in();
    let (task, r2ts) = start_write(&mut wire, 1, 3000);
    let bytes = pdu_bytes(answer(&r2ts[0], true).encode(), &[1; 3000]);
    // In the middle of a data segment, and again with a whole PDU.
    assert_eq!(wire.feed(&bytes[..1000]).len(), 1);
    wire.target.abort(task);
    assert_eq!(wire.target.payload_wanted(), None);
    assert_eq!(wire.feed(&bytes[1000..]), []);
    assert_eq!(wire.feed(&bytes), []);
    wire.assert_silent();
    assert_eq!(wire.target.command_window().max_cmd_sn, CmdSn(108));
    // The tag can be used again.
    let (task, r2ts) = start_write(&mut wire, 1, 100);
    let events = wire.send(answer(&r2ts[0], true).encode(), &[1; 100]);
    assert_eq!(
        events.last(),
        Some(&ConnectionEvent::DataOutComplete { task })
    );
}

#[test]
fn a_task_completed_before_its_data_takes_nothing_more() {
    let mut wire = Wire::logged_in();
    let write = wire.command(1, Transfer::Write(4000));
    let bytes = pdu_bytes(write.encode(), &[1; 4000]);
    let mut input = &bytes[..];
    let (directory, transmit) = (&mut wire.directory, &mut wire.transmit);
    let ConnectionEvent::Command(command) = wire.target.next(&mut input, directory, transmit, 0)
    else {
        panic!("a command")
    };
    wire.good(command.task);
    assert_eq!(wire.feed(input), []);
    let response = wire.response();
    assert!(response.underflow);
    assert_eq!(response.residual_count, 4000);
}

#[test]
fn an_event_of_a_task_that_ended_is_not_delivered() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::Write(0));
    wire.target.want_data_out(task, 0, &mut wire.transmit);
    wire.target.abort(task);
    assert_eq!(wire.feed(&[]), []);
}

#[test]
fn a_command_that_wants_no_data_is_told_so_at_once() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::Write(9000));
    wire.target.want_data_out(task, 0, &mut wire.transmit);
    assert_eq!(wire.feed(&[]), [ConnectionEvent::DataOutComplete { task }]);
    wire.assert_silent();
}

#[test]
fn empty_data_pdus_are_taken() {
    let mut wire = Wire::logged_in();
    let (task, r2ts) = start_write(&mut wire, 1, 100);
    assert_eq!(wire.send(answer(&r2ts[0], false).encode(), &[]), []);
    let data_out = DataOut {
        data_sn: DataSn(1),
        ..answer(&r2ts[0], true)
    };
    let events = wire.send(data_out.encode(), &[1; 100]);
    assert_eq!(
        events.last(),
        Some(&ConnectionEvent::DataOutComplete { task })
    );
}

#[test]
fn a_write_expecting_four_gigabytes_is_asked_for_what_the_command_wants() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::Write(u32::MAX));
    wire.target.want_data_out(task, 512, &mut wire.transmit);
    let r2ts = wire.r2ts();
    assert_eq!(r2ts[0].desired_data_transfer_length, 512);
    wire.send(answer(&r2ts[0], true).encode(), &[1; 512]);
    let completion = Completion {
        status: 0,
        sense: &[],
        data_in: Payload::None,
        scsi_length: 512,
    };
    wire.target.complete(task, completion, &mut wire.transmit);
    assert_eq!(wire.response().residual_count, u32::MAX - 512);
}

#[test]
fn announced_data_that_is_not_wanted_may_come_while_the_command_is_carried_out() {
    let mut wire = Wire::logged_in();
    let mut write = wire.command(1, Transfer::Write(2000));
    write.is_final = false;
    let task = only_command(&wire.send(write.encode(), &[])).task;
    wire.target.want_data_out(task, 100, &mut wire.transmit);
    let data_out = unsolicited(1, 0, false);
    let events = wire.send(data_out.encode(), &[1; 1000]);
    assert_eq!(
        events.last(),
        Some(&ConnectionEvent::DataOutComplete { task })
    );
    let rest = DataOut {
        is_final: true,
        data_sn: DataSn(1),
        buffer_offset: 1000,
        ..data_out
    };
    assert_eq!(wire.send(rest.encode(), &[1; 1000]), []);
    wire.assert_silent();
    // More than was announced.
    let more = DataOut {
        data_sn: DataSn(2),
        buffer_offset: 2000,
        ..rest
    };
    assert_eq!(wire.send(more.encode(), &[1; 10]), []);
    let header = with_length(more.encode(), 10);
    wire.assert_rejected(header, RejectReason::INVALID_PDU_FIELD);
    wire.good(task);
    assert_eq!(wire.response().status, 0);
}
