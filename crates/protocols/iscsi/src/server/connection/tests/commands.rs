//! SCSI commands: order, admission, completion.

use super::*;
use crate::pdu::{BHS_LENGTH, DataIn};
use longshore_wire::transmit::PayloadId;

#[test]
fn commands_outside_the_window_are_ignored_without_a_word() {
    let mut wire = Wire::logged_in();
    wire.start(1, Transfer::Read(512));
    for cmd_sn in [CmdSn(99), CmdSn(100), CmdSn(108), CmdSn(0x8000_0065)] {
        let stray = command(2, cmd_sn, Transfer::Write(512));
        assert_eq!(wire.send(stray.encode(), &[7; 512]), []);
    }
    wire.assert_silent();
    wire.start(2, Transfer::Read(512));
}

#[test]
fn a_command_before_its_turn_waits_for_the_one_before_it() {
    let mut wire = Wire::logged_in();
    let late = command(2, CmdSn(101), Transfer::Read(512));
    let later = command(3, CmdSn(102), Transfer::None);
    assert_eq!(wire.send(later.encode(), &[]), []);
    assert_eq!(wire.send(late.encode(), &[]), []);
    assert_eq!(wire.send(late.encode(), &[]), []);
    let first = command(1, CmdSn(100), Transfer::None);
    let events = wire.send(first.encode(), &[]);
    let tags: Vec<_> = events
        .iter()
        .map(|event| match event {
            ConnectionEvent::Command(command) => {
                wire.target.task_info(command.task).initiator_task_tag.0
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tags, [1, 2, 3]);
    assert_eq!(wire.target.command_window().exp_cmd_sn, CmdSn(103));
}

#[test]
fn a_write_before_its_turn_keeps_all_of_its_unsolicited_data() {
    let mut wire = Wire::logged_in();
    let mut late = command(2, CmdSn(101), Transfer::Write(1000));
    late.is_final = false;
    assert_eq!(wire.send(late.encode(), &[1; 301]), []);
    assert_eq!(wire.send(unsolicited(2, 301, true).encode(), &[2; 699]), []);
    // The driver answers between the events, so they are taken one by one.
    let first = pdu_bytes(command(1, CmdSn(100), Transfer::None).encode(), &[]);
    let mut input = &first[..];
    let mut data = vec![0; 1000];
    let mut write = None;
    loop {
        let (directory, transmit) = (&mut wire.directory, &mut wire.transmit);
        match wire.target.next(&mut input, directory, transmit, 0) {
            ConnectionEvent::Command(command) if command.write => {
                assert_eq!(wire.target.payload_wanted(), None);
                wire.target
                    .want_data_out(command.task, 1000, &mut wire.transmit);
                write = Some(command.task);
            }
            ConnectionEvent::Command(_) => {}
            ConnectionEvent::DataOut {
                task,
                buffer_offset,
                bytes,
            } => {
                assert_eq!(Some(task), write);
                let start = buffer_offset as usize;
                data[start..start + bytes.len()].copy_from_slice(&bytes);
            }
            ConnectionEvent::DataOutComplete { task } => {
                assert_eq!(Some(task), write);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(data, [vec![1; 301], vec![2; 699]].concat());
    wire.assert_silent();
}

#[test]
fn an_initiator_that_never_fills_the_gap_is_given_up() {
    let mut setup = Setup::default();
    setup.config.queue_depth = 512;
    let mut wire = Wire::with(setup);
    for n in 1..512 {
        let late = command(n, CmdSn(100 + n), Transfer::Write(4096));
        if let [ConnectionEvent::Close(reason)] = &wire.send(late.encode(), &[0; 4096])[..] {
            assert!(matches!(reason, CloseReason::ProtocolError(_)));
            assert!(n > 200);
            return;
        }
    }
    panic!("two megabytes are held");
}

#[test]
fn an_immediate_command_does_not_wait_and_does_not_use_up_a_number() {
    let mut wire = Wire::logged_in();
    let window = wire.target.command_window();
    let mut now = command(1, CmdSn(100), Transfer::None);
    now.immediate = true;
    assert!(only_command(&wire.send(now.encode(), &[])).immediate);
    assert_eq!(wire.target.command_window(), window);
}

#[test]
fn immediate_commands_beyond_the_limit_are_rejected() {
    let mut setup = Setup::default();
    setup.config.immediate_commands = 2;
    let mut wire = Wire::with(setup);
    for tag in 1..=3 {
        let mut now = command(tag, CmdSn(100), Transfer::None);
        now.immediate = true;
        let events = wire.send(now.encode(), &[]);
        assert_eq!(events.len(), usize::from(tag < 3));
        if tag == 3 {
            wire.assert_rejected(now.encode(), RejectReason::IMMEDIATE_COMMAND_REJECT);
        }
    }
}

#[test]
fn max_cmd_sn_moves_up_with_each_response_and_never_down() {
    let mut wire = Wire::logged_in();
    let tasks: Vec<_> = (1..=8).map(|tag| wire.start(tag, Transfer::None)).collect();
    let closed = wire.target.command_window();
    assert_eq!(
        (closed.exp_cmd_sn, closed.max_cmd_sn),
        (CmdSn(108), CmdSn(107))
    );
    // One more than there is room for.
    let beyond = command(9, CmdSn(108), Transfer::None);
    assert_eq!(wire.send(beyond.encode(), &[]), []);
    for (n, task) in (1..).zip(tasks) {
        wire.good(task);
        let response = wire.response();
        assert_eq!(response.window.max_cmd_sn, CmdSn(107 + n));
    }
    assert_eq!(
        only_command(&wire.send(beyond.encode(), &[])).lun,
        beyond.lun
    );
}

#[test]
fn a_rejected_command_leaves_a_gap_that_later_commands_wait_for() {
    let mut wire = Wire::logged_in();
    let first = wire.start(1, Transfer::None);
    let duplicate = command(1, CmdSn(101), Transfer::None);
    assert_eq!(wire.send(duplicate.encode(), &[]), []);
    wire.assert_rejected(duplicate.encode(), RejectReason::TASK_IN_PROGRESS);
    let next = command(2, CmdSn(102), Transfer::None);
    assert_eq!(wire.send(next.encode(), &[]), []);
    let plug = command(3, CmdSn(101), Transfer::None);
    assert_eq!(wire.send(plug.encode(), &[]).len(), 2);
    wire.good(first);
    assert_eq!(wire.response().initiator_task_tag, InitiatorTaskTag(1));
}

#[test]
fn contradictory_commands_are_rejected() {
    let base = command(1, CmdSn(100), Transfer::Read(512));
    let protocol_error = RejectReason::PROTOCOL_ERROR;
    let cases = [
        (
            pdu::ScsiCommand {
                is_final: false,
                ..base
            },
            0,
            protocol_error,
        ),
        (
            pdu::ScsiCommand {
                attribute: Attribute::from_bits(5),
                ..base
            },
            0,
            protocol_error,
        ),
        (base, 100, protocol_error),
    ];
    for (command, length, reason) in cases {
        let mut wire = Wire::logged_in();
        assert_eq!(wire.send(command.encode(), &vec![0; length]), []);
        let length = u32::try_from(length).unwrap();
        wire.assert_rejected(with_length(command.encode(), length), reason);
        // The connection lives.
        wire.start(2, Transfer::Read(512));
    }
    let reserved = command(0xffff_ffff, CmdSn(100), Transfer::None);
    let mut wire = Wire::logged_in();
    wire.send(reserved.encode(), &[]);
    wire.assert_rejected(reserved.encode(), RejectReason::TASK_IN_PROGRESS);
}

#[test]
fn a_bidirectional_command_uses_up_its_number_and_returns_no_data() {
    let mut wire = Wire::logged_in();
    let mut both = wire.command(1, Transfer::Write(512));
    both.read = true;
    let mut with_length = wire.command(2, Transfer::Read(512)).encode();
    with_length.set_total_ahs_length_bytes(8);
    let mut with_length = with_length.0.to_vec();
    // Bidirectional Read Expected Data Transfer Length (§11.2.2.4): 512.
    with_length.extend([0, 5, 2, 0, 0, 0, 2, 0]);
    for bytes in [pdu_bytes(both.encode(), &[]), with_length] {
        let events = wire.feed(&bytes);
        let command = only_command(&events);
        assert!(command.read && command.write);
        let task = command.task;
        let completion = Completion {
            status: 2,
            sense: &[0x70, 0, 5],
            data_in: Payload::Bytes(&[1; 512]),
            scsi_length: 512,
        };
        wire.target.complete(task, completion, &mut wire.transmit);
        let response = wire.only_sent();
        assert_eq!(response.data, [0, 3, 0x70, 0, 5]);
    }
    assert_eq!(wire.target.command_window().exp_cmd_sn, CmdSn(102));
}

#[test]
fn a_length_without_a_direction_moves_nothing() {
    let mut wire = Wire::logged_in();
    let mut odd = wire.command(1, Transfer::None);
    odd.expected_data_transfer_length = 512;
    let events = wire.send(odd.encode(), &[]);
    assert_eq!(only_command(&events).expected_data_transfer_length, 0);
}

#[test]
fn a_read_expecting_four_gigabytes_gets_what_there_is_and_an_underflow() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::Read(u32::MAX));
    let place = wire
        .target
        .begin_inline_read(task, 512, &mut wire.transmit)
        .unwrap();
    assert_eq!(place.len(), 512);
    place.fill(9);
    wire.target.commit_inline_read(task, &mut wire.transmit);
    let sent = wire.only_sent();
    let data_in = DataIn::decode(&sent.bhs);
    assert!(data_in.is_final && data_in.has_status && data_in.underflow && !data_in.overflow);
    assert_eq!(data_in.residual_count, u32::MAX - 512);
    assert_eq!(sent.data, [9; 512]);
}

#[test]
fn data_in_is_cut_at_segments_and_bursts() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::Read(20_000));
    let completion = Completion {
        status: 0,
        sense: &[],
        data_in: Payload::Zeros(20_000),
        scsi_length: 20_000,
    };
    wire.target.complete(task, completion, &mut wire.transmit);
    let seen: Vec<_> = wire
        .sent()
        .iter()
        .map(|sent| {
            let data_in = DataIn::decode(&sent.bhs);
            let DataIn {
                buffer_offset,
                is_final,
                has_status,
                data_sn,
                ..
            } = data_in;
            (
                buffer_offset,
                sent.data.len(),
                is_final,
                has_status,
                data_sn.0,
            )
        })
        .collect();
    // MaxRecvDataSegmentLength 4096, MaxBurstLength 8192.
    let expected = [
        (0, 4096, false, false, 0),
        (4096, 4096, true, false, 1),
        (8192, 4096, false, false, 2),
        (12_288, 4096, true, false, 3),
        (16_384, 3616, true, true, 4),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_status_with_sense_data_never_travels_in_data_in() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::Read(512));
    let completion = Completion {
        status: 0,
        sense: &[0x70, 0, 1],
        data_in: Payload::Bytes(&[1; 512]),
        scsi_length: 512,
    };
    wire.target.complete(task, completion, &mut wire.transmit);
    let [data_in, response] = &wire.sent()[..] else {
        panic!("two PDUs")
    };
    assert!(!DataIn::decode(&data_in.bhs).has_status);
    assert_eq!(ScsiResponse::decode(&response.bhs).exp_data_sn, 1);
    assert_eq!(response.data, [0, 3, 0x70, 0, 1]);
}

#[test]
fn payload_that_is_not_sent_is_released_all_the_same() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::None);
    let id = PayloadId(7);
    let data_in = Payload::Buffer {
        id,
        bytes: &[0; 512],
    };
    let completion = Completion {
        status: 0,
        sense: &[],
        data_in,
        scsi_length: 512,
    };
    wire.target.complete(task, completion, &mut wire.transmit);
    let mut released = Vec::new();
    wire.transmit.advance(BHS_LENGTH, &mut released);
    assert_eq!(released, [id]);
    assert!(wire.transmit.is_empty());
}

#[test]
fn an_extended_cdb_that_cannot_be_read_closes_the_connection() {
    let mut wire = Wire::logged_in();
    let mut bhs = wire.command(1, Transfer::None).encode();
    bhs.set_total_ahs_length_bytes(8);
    let mut bytes = bhs.0.to_vec();
    bytes.extend([0xff, 0xff, 1, 0, 0, 0, 0, 0]);
    assert!(matches!(
        wire.feed(&bytes)[..],
        [ConnectionEvent::Close(CloseReason::ProtocolError(_))]
    ));
}
