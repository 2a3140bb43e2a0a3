//! What the two machines say to each other.

use super::*;
use crate::initiator::Residual;
use crate::pdu::{Function, LogoutReason, TaskManagementResponseCode};
use proptest::prelude::*;

#[test]
fn what_was_written_is_read_back_with_every_digest_and_r2t_setting() {
    for settings in 0..16_u8 {
        let bit = |n: u8| settings >> n & 1 == 1;
        for outstanding in [1, 3] {
            let setup = small(bit(0), bit(1), outstanding).digests(bit(2), bit(3));
            let mut pair = setup.log_in(777);
            pair.rig.placing = bit(0) ^ bit(3);
            pair.rig.referring = bit(1) ^ bit(3);
            pair.check_read_back(&[1, 511, 512, 1024, 3072, 3073, 4096, 20_001]);
        }
    }
}

#[test]
fn streams_may_be_cut_at_every_byte() {
    let setup = small(false, true, 2).digests(true, true);
    let pieces = [1, 2, 3, 47, 48, 49, 52, 1000, 100_000];
    shared::check_pieces(&pieces, |piece| setup.log_in(piece));
}

#[test]
fn a_burst_of_small_reads_is_one_segment_to_send() {
    let mut pair = Setup::default().log_in(100_000);
    pair.check_burst_is_one_segment(48);
}

#[test]
fn a_read_shorter_than_expected_is_an_underflow_and_a_longer_one_an_overflow() {
    for sending in SENDINGS {
        let mut pair = Setup::default().log_in(1000);
        pair.rig.sending = sending;
        let short = pair.submit(&cdb(READ, 0, 512), Transfer::Read(1000), &[]);
        let long = pair.submit(&cdb(READ, 0, 512), Transfer::Read(500), &[]);
        let none = pair.submit(&cdb(READ, 0, 512), Transfer::Read(0), &[]);
        let no_direction = pair.submit(&cdb(READ, 0, 512), Transfer::None, &[]);
        pair.run();
        assert_eq!(pair.outcome(short).residual, Residual::Underflow(488));
        assert_eq!(pair.outcome(short).data_in_length, 512);
        assert_eq!(pair.outcome(long).residual, Residual::Overflow(12));
        assert_eq!(pair.data_in[&long], pair.rig.device[..500]);
        for command in [none, no_direction] {
            assert_eq!(pair.outcome(command).residual, Residual::Overflow(512));
            assert_eq!(pair.outcome(command).status, Some(GOOD));
        }
    }
}

#[test]
fn a_write_takes_no_more_than_the_command_wants() {
    for setup in [
        small(true, false, 1),
        small(false, true, 4),
        Setup::default(),
    ] {
        let mut pair = setup.log_in(1000);
        let before = pair.rig.device.clone();
        let data = pattern(9000, 1);
        let write = pair.submit(&cdb(WRITE, 0, 512), Transfer::Write(9000), &data);
        let next = pair.start_write(20_000, &data);
        pair.run();
        assert_eq!(pair.outcome(write).residual, Residual::Underflow(8488));
        assert_eq!(pair.rig.device[..512], data[..512]);
        assert_eq!(pair.rig.device[512..9000], before[512..9000]);
        pair.assert_good(next);
    }
}

#[test]
fn a_write_expecting_less_than_the_command_is_an_overflow() {
    let mut pair = small(false, true, 1).log_in(1000);
    let data = pattern(2000, 1);
    let write = pair.submit(&cdb(WRITE, 0, 2500), Transfer::Write(2000), &data);
    pair.run();
    assert_eq!(pair.rig.device[..2000], data);
    // The device of this test says it moved what came.
    assert_eq!(pair.outcome(write).residual, Residual::None);
}

#[test]
fn a_read_that_fails_half_way_ends_with_sense_data_in_a_response() {
    let mut pair = small(true, true, 1).log_in(1000);
    let read = pair.submit(&cdb(FAILING_READ, 0, 8192), Transfer::Read(8192), &[]);
    pair.run();
    let outcome = pair.outcome(read);
    assert_eq!(outcome.status, Some(CHECK_CONDITION));
    assert_eq!(outcome.sense, SENSE);
    assert_eq!(outcome.data_in_length, 4096);
    assert_eq!(outcome.residual, Residual::Underflow(4096));
}

#[test]
fn an_extended_cdb_arrives_whole() {
    for digest in [false, true] {
        let mut pair = Setup::default().digests(digest, digest).log_in(5);
        let mut long = cdb(READ, 4096, 512).to_vec();
        long.extend(0..250_u8);
        let read = pair.submit(&long, Transfer::Read(512), &[]);
        pair.run();
        pair.assert_good(read);
        assert_eq!(pair.data_in[&read], pair.rig.device[4096..4608]);
    }
}

#[test]
fn a_stuck_task_is_aborted_and_its_place_in_the_window_comes_back() {
    let mut setup = Setup::default();
    setup.connection.queue_depth = 2;
    let mut pair = setup.log_in(1000);
    let cmd_sn = pair.initiator.next_cmd_sn();
    let stuck = pair.submit(&cdb(STUCK, 0, 512), Transfer::Read(512), &[]);
    let other = pair.submit(&cdb(STUCK, 0, 512), Transfer::Read(512), &[]);
    pair.run();
    assert_eq!(pair.initiator.window_open(), 0);
    let (lun, to) = (Lun::ZERO, Some((stuck, cmd_sn)));
    pair.initiator
        .task_management(
            Function::ABORT_TASK,
            lun,
            to,
            &mut pair.rig.to_server.transmit,
        )
        .unwrap();
    pair.run();
    pair.initiator.forget(stuck);
    assert_eq!(pair.initiator.window_open(), 1);
    pair.initiator
        .task_management(
            Function::LOGICAL_UNIT_RESET,
            lun,
            None,
            &mut pair.rig.to_server.transmit,
        )
        .unwrap();
    pair.run();
    pair.initiator.forget(other);
    assert_eq!(pair.initiator.window_open(), 2);
    assert_eq!(pair.target.tasks().count(), 0);
    let complete = format!("{:?}", TaskManagementResponseCode::FUNCTION_COMPLETE);
    assert!(
        pair.initiator_log
            .iter()
            .all(|event| event.contains(&complete))
    );
    assert_eq!(pair.initiator_log.len(), 2);
}

#[test]
fn the_queue_holds_as_many_commands_as_the_window_promises() {
    let mut setup = Setup::default();
    setup.connection.queue_depth = 16;
    let mut pair = setup.log_in(1000);
    assert_eq!(pair.initiator.window_open(), 16);
    let reads: Vec<_> = (0..16).map(|n| pair.start_read(n * 100, 100)).collect();
    assert_eq!(pair.initiator.window_open(), 0);
    pair.run();
    reads.into_iter().for_each(|read| pair.assert_good(read));
    assert_eq!(pair.initiator.window_open(), 16);
}

#[test]
fn a_ping_comes_back_with_its_data() {
    let mut pair = Setup::default().digests(true, true).log_in(13);
    pair.initiator
        .ping(b"hello", &mut pair.rig.to_server.transmit)
        .unwrap();
    pair.run();
    assert!(
        pair.initiator_log[0].starts_with("Pong"),
        "{:?}",
        pair.initiator_log
    );
    assert!(pair.initiator_log[0].contains(&format!("{:?}", b"hello".to_vec())));
}

#[test]
fn logout_closes_both_ends() {
    for reason in [LogoutReason::CLOSE_SESSION, LogoutReason::CLOSE_CONNECTION] {
        let mut pair = Setup::default().log_in(1000);
        pair.initiator
            .logout(reason, &mut pair.rig.to_server.transmit)
            .unwrap();
        pair.run();
        assert_eq!(pair.logged_out, Some(LogoutResult::CLOSED));
        assert_eq!(pair.target_closed, Some(server::CloseReason::Logout));
        assert_eq!(pair.initiator_closed, Some(initiator::CloseReason::Logout));
    }
}

#[test]
fn connection_recovery_is_refused_and_the_connection_lives() {
    let mut pair = Setup::default().log_in(1000);
    let reason = LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY;
    pair.initiator
        .logout(reason, &mut pair.rig.to_server.transmit)
        .unwrap();
    pair.run();
    assert_eq!(pair.logged_out, Some(LogoutResult::RECOVERY_NOT_SUPPORTED));
    let read = pair.start_read(0, 512);
    pair.run();
    pair.assert_good(read);
}

#[test]
fn discovery_lists_the_targets_in_pieces_the_initiator_takes() {
    let mut setup = Setup {
        discovery: true,
        ..Setup::default()
    };
    setup.initiator.max_recv_data_segment_length = 512;
    let mut pair = setup.log_in(100);
    for n in 0..100 {
        let mut record = pair.directory.records[0].clone();
        record.name = name(&format!("iqn.2026-11.local.longshore:disk{n}"));
        pair.directory.records.push(record);
    }
    pair.initiator
        .text(b"SendTargets=All\0", &mut pair.rig.to_server.transmit)
        .unwrap();
    pair.run();
    let [event] = &pair.initiator_log[..] else {
        panic!("one answer")
    };
    assert!(event.starts_with("Text TargetName="));
    assert_eq!(event.matches("TargetName=").count(), 102);
    assert_eq!(event.matches("TargetAddress=").count(), 203);
}

#[test]
fn a_new_segment_length_declared_in_full_feature_phase_is_in_force_at_once() {
    let mut pair = Setup::default().log_in(1000);
    let text = b"MaxRecvDataSegmentLength=512\0";
    pair.initiator
        .text(text, &mut pair.rig.to_server.transmit)
        .unwrap();
    pair.run();
    let operational = &pair.target.session().unwrap().operational;
    assert_eq!(operational.initiator_max_recv_data_segment_length, 512);
    let read = pair.start_read(0, 2048);
    pair.run();
    pair.assert_good(read);
    assert_eq!(pair.data_in[&read], pair.rig.device[..2048]);
}

#[test]
fn a_text_longer_than_a_data_segment_is_joined() {
    let mut setup = Setup::default();
    setup.target.max_recv_data_segment_length = 512;
    let mut pair = setup.log_in(1000);
    let text: String = (0..100)
        .map(|n| format!("X-com.example.key{n}=value\0"))
        .collect();
    pair.initiator
        .text(text.as_bytes(), &mut pair.rig.to_server.transmit)
        .unwrap();
    pair.run();
    let [event] = &pair.initiator_log[..] else {
        panic!("one answer")
    };
    assert!(event.starts_with("Text X-com.example.key0=NotUnderstood"));
    assert_eq!(event.matches("NotUnderstood").count(), 100);
}

#[test]
fn a_damaged_header_closes_the_connection_and_damaged_data_fails_the_command() {
    let data = pattern(3000, 1);
    // From the start of the command to the end of its data: every 20th byte.
    for at in (0..3000 + 3 * (48 + 8)).step_by(20) {
        let mut pair = small(false, true, 1).digests(true, true).log_in(1000);
        pair.rig.to_server.damage = Some(pair.rig.to_server.sent + at);
        let before = pair.rig.device.clone();
        let write = pair.start_write(0, &data);
        pair.run();
        match &pair.target_closed {
            Some(server::CloseReason::HeaderDigestError) => assert_eq!(pair.rig.device, before),
            Some(other) => panic!("{other:?}"),
            None if pair.outcomes.is_empty() => {
                // A length that grew: the target waits for the rest of the header.
                assert!(pair.target.is_inside_pdu(), "flip at {at}");
            }
            None => {
                let outcome = pair.outcome(write);
                assert_eq!(outcome.status, Some(CHECK_CONDITION), "flip at {at}");
                assert_eq!(pair.rig.device, before);
                assert!(
                    pair.target_log[0].contains("asc: 71, ascq: 5"),
                    "{:?}",
                    pair.target_log
                );
                assert!(pair.initiator_log[0].contains("DATA_DIGEST_ERROR"));
                // The connection lives.
                let again = pair.start_write(0, &data);
                pair.run();
                pair.assert_good(again);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_sequence_of_reads_and_writes_agrees_with_a_byte_array(
        steps in shared::steps(),
        piece in 1_usize..5000,
        settings: u8,
        outstanding in 1_u16..5,
    ) {
        let bit = |n: u8| settings >> n & 1 == 1;
        let setup = small(bit(0), bit(1), outstanding).digests(bit(2), bit(3));
        let mut pair = setup.log_in(piece);
        pair.rig.placing = bit(4);
        pair.rig.sending = SENDINGS[usize::from(settings >> 5) % 3];
        pair.check_against_array(steps, !bit(7));
    }

    #[test]
    fn garbage_never_panics_the_target(bytes: Vec<u8>, piece in 1_usize..100, logged_in: bool) {
        let mut pair = Setup::default().log_in(piece);
        if !logged_in {
            pair.target = server::Connection::new(ConnectionConfig::default(), 0);
        }
        pair.writes.clear();
        pair.feed_server(&bytes);
    }
}
