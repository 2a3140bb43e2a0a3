//! Rudeness within a session: lengths, tags and numbers that lie (RFC 7143 §4.2, §11).

use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::pdu::{Pdu, RESERVED_TAG, opcode};

use crate::Scene;

const SOON: Duration = Duration::from_secs(20);
const MEBI: u64 = 1 << 20;

/// Sends a SCSI command whose ExpectedDataTransferLength has nothing to do with its CDB.
fn lying_command(peer: &mut Initiator, lun: u8, cdb: &[u8], flags: u8, length: u32) -> u32 {
    let command = peer
        .command_pdu(lun, cdb, Data::None)
        .set_byte(1, flags | 0x81)
        .set_word(20, length);
    peer.send(&command).unwrap();
    command.initiator_task_tag()
}

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;

#[test]
fn a_read_that_expects_4_gib_gets_its_block_and_the_residual() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    for lun in [0, 1] {
        let tag = lying_command(&mut peer, lun, &cdb::read_16(0, 1), READ, u32::MAX);
        let answer = peer.finish(tag, &[]).unwrap();
        assert!(answer.is_good(), "{answer:?}");
        assert_eq!(answer.data.len(), 512);
        assert_eq!((answer.flags, answer.residual), (0x02, u32::MAX - 512));
    }
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(8 * MEBI);
}

#[test]
fn a_write_that_announces_4_gib_is_asked_for_its_block_only() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    let tag = lying_command(&mut peer, 0, &cdb::write_16(64, 1, false), WRITE, u32::MAX);
    let answer = peer.finish(tag, &[9; 512]).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    assert_eq!((answer.flags, answer.residual), (0x02, u32::MAX - 512));
    let back = peer
        .command(0, &cdb::read_16(64, 1), Data::In(512))
        .unwrap();
    assert_eq!(back.data, [9; 512]);
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(8 * MEBI);
}

#[test]
fn transfers_of_terabytes_are_refused_without_taking_memory() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    for lun in [0, 1] {
        for (cdb, flags) in [
            (cdb::read_16(0, u32::MAX), READ),
            (cdb::write_16(0, u32::MAX, false), WRITE),
            (cdb::read_16(u64::MAX, u32::MAX), READ),
            (cdb::read_16(u64::MAX - 5, 1), READ),
        ] {
            let tag = lying_command(&mut peer, lun, &cdb, flags, u32::MAX);
            let answer = peer.finish(tag, &[]).unwrap();
            assert_eq!(answer.status, 2, "{answer:?}");
            assert_eq!(
                answer.sense_code().map(|code| code.0),
                Some(5),
                "ILLEGAL REQUEST"
            );
        }
    }
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(8 * MEBI);
}

#[test]
fn a_read_that_expects_less_than_it_asks_for_gets_what_it_expects() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    for expected in [0, 1, 511, 513, 4_095] {
        let tag = lying_command(&mut peer, 0, &cdb::read_16(0, 8), READ, expected);
        let answer = peer.finish(tag, &[]).unwrap();
        assert!(answer.is_good(), "{answer:?}");
        assert_eq!(answer.data.len(), expected as usize);
        assert_eq!((answer.flags, answer.residual), (0x04, 4_096 - expected));
    }
    scene.assert_others_do_not_notice();
}

#[test]
fn a_data_segment_longer_than_agreed_is_a_protocol_error() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    let command = peer
        .command_pdu(0, &cdb::write_16(0, 8, false), Data::None)
        .set_byte(1, 0xa1)
        .set_word(20, 4_096)
        .set_data_segment_length(0x00ff_ffff);
    peer.send_bytes(&command.bhs).unwrap();
    // The end of this PDU cannot be trusted, so the connection cannot go on.
    assert!(peer.is_closed_within(SOON).unwrap());
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(8 * MEBI);
}

#[test]
fn immediate_data_beyond_what_the_command_takes_does_no_harm() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    // One block by its CDB and 512 bytes expected, with 8 KiB of data coming along.
    let command = peer
        .command_pdu(0, &cdb::write_16(128, 1, false), Data::None)
        .set_byte(1, 0xa1)
        .set_word(20, 512)
        .with_data(&[0xee; 8_192]);
    peer.send(&command).unwrap();
    // Whether it is refused or the connection closed, the next block must not be written.
    let _ = peer.receive();
    let mut other = scene.session(2);
    let next = other
        .command(0, &cdb::read_16(129, 1), Data::In(512))
        .unwrap();
    assert_eq!(next.data, [0; 512]);
    scene.assert_others_do_not_notice();
}

#[test]
fn data_out_that_nobody_asked_for_is_rejected_and_the_session_lives() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    let data_out = Pdu::new(opcode::DATA_OUT)
        .set_byte(1, 0x80)
        .set_word(16, 0x4711)
        .set_word(20, 0x0815)
        .set_word(28, peer.exp_stat_sn)
        .with_data(&[1; 512]);
    peer.send(&data_out).unwrap();
    peer_lives_after_optional_reject(&mut peer);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_wrong_target_transfer_tag_does_not_reach_the_volume() {
    let mut scene = Scene::new();
    let login = Login {
        immediate_data: false,
        initial_r2t: true,
        ..Login::numbered(1)
    };
    let mut peer = scene.session_by(&login);
    let tag = lying_command(&mut peer, 0, &cdb::write_16(256, 1, false), WRITE, 512);
    let r2t = peer.receive().unwrap();
    assert_eq!(r2t.opcode(), opcode::R2T);
    let data_out = |ttt: u32, fill: u8, exp_stat_sn: u32| {
        Pdu::new(opcode::DATA_OUT)
            .set_byte(1, 0x80)
            .set_word(16, tag)
            .set_word(20, ttt)
            .set_word(28, exp_stat_sn)
            .with_data(&[fill; 512])
    };
    let wrong = data_out(r2t.target_transfer_tag() ^ 0x5555, 0xbb, peer.exp_stat_sn);
    peer.send(&wrong).unwrap();
    let right = data_out(r2t.target_transfer_tag(), 0xaa, peer.exp_stat_sn);
    let _ = peer.send(&right);
    while let Ok(pdu) = peer.receive() {
        if pdu.opcode() == opcode::SCSI_RESPONSE {
            break;
        }
    }
    let block = scene
        .session(2)
        .command(0, &cdb::read_16(256, 1), Data::In(512))
        .unwrap();
    assert_ne!(
        block.data, [0xbb; 512],
        "data under a wrong tag was written"
    );
    scene.assert_others_do_not_notice();
}

#[test]
fn a_data_out_beyond_its_burst_does_not_reach_the_volume() {
    let mut scene = Scene::new();
    let login = Login {
        immediate_data: false,
        initial_r2t: true,
        ..Login::numbered(1)
    };
    let mut peer = scene.session_by(&login);
    let tag = lying_command(&mut peer, 0, &cdb::write_16(512, 1, false), WRITE, 512);
    let r2t = peer.receive().unwrap();
    let data_out = Pdu::new(opcode::DATA_OUT)
        .set_byte(1, 0x80)
        .set_word(16, tag)
        .set_word(20, r2t.target_transfer_tag())
        .set_word(28, peer.exp_stat_sn)
        .set_word(40, 0xffff_fe00)
        .with_data(&[0xcc; 4_096]);
    peer.send(&data_out).unwrap();
    let _ = peer.drain(Duration::from_millis(300));
    let next = scene
        .session(2)
        .command(0, &cdb::read_16(513, 7), Data::In(3_584))
        .unwrap();
    assert_eq!(next.data, [0; 3_584]);
    scene.assert_others_do_not_notice();
}

#[test]
fn commands_outside_the_window_are_ignored() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    for wrong in [
        peer.max_cmd_sn.wrapping_add(10),
        peer.cmd_sn.wrapping_sub(2),
        0x8000_0000,
    ] {
        let right = peer.cmd_sn;
        let command = peer
            .command_pdu(0, &cdb::TEST_UNIT_READY, Data::None)
            .set_word(24, wrong);
        peer.cmd_sn = right;
        peer.send(&command).unwrap();
        // RFC 7143 §4.2.2.1: silently ignored. The echo below would come behind an answer.
        peer.ping().unwrap();
    }
    assert!(
        peer.command(0, &cdb::TEST_UNIT_READY, Data::None)
            .unwrap()
            .is_good()
    );
    scene.assert_others_do_not_notice();
}

#[test]
fn a_command_that_comes_early_waits_for_the_one_before_it() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    let first = peer.command_pdu(0, &cdb::write_16(9, 1, false), Data::Out(&[3; 512]));
    let second = peer.command_pdu(0, &cdb::read_16(9, 1), Data::In(512));
    peer.send(&second).unwrap();
    peer.ping().unwrap();
    peer.send(&first).unwrap();
    let answer = peer.finish(first.initiator_task_tag(), &[]).unwrap();
    assert!(answer.is_good());
    let answer = peer.finish(second.initiator_task_tag(), &[]).unwrap();
    assert_eq!(answer.data, [3; 512]);
    scene.assert_others_do_not_notice();
}

#[test]
fn aborting_a_task_that_does_not_exist_says_so() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    let tag = peer.new_tag();
    let abort = Pdu::new(opcode::TASK_MANAGEMENT_REQUEST)
        .immediate()
        .set_byte(1, 0x81) // ABORT TASK
        .set_word(16, tag)
        .set_word(20, 0x00de_ad00)
        .set_word(24, peer.cmd_sn)
        .set_word(28, peer.exp_stat_sn)
        .set_word(32, peer.cmd_sn.wrapping_sub(2));
    peer.send(&abort).unwrap();
    let response = peer.receive().unwrap();
    assert_eq!(response.opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
    assert_eq!(response.bhs[2], 1, "task does not exist, RFC 7143 §11.6.1");
    scene.assert_others_do_not_notice();
}

#[test]
fn a_unit_reset_right_behind_a_write_is_answered_as_complete() {
    // What `iSCSITMF.LUNResetSimpleAsync` of libiscsi means to test; its own check of a variable
    // that only a later callback sets fails against every target.
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    let write = peer.command_pdu(0, &cdb::write_16(800, 8, false), Data::Out(&[4; 4_096]));
    let tag = peer.new_tag();
    let reset = Pdu::new(opcode::TASK_MANAGEMENT_REQUEST)
        .immediate()
        .set_byte(1, 0x85) // LOGICAL UNIT RESET
        .set_word(16, tag)
        .set_word(20, RESERVED_TAG)
        .set_word(24, peer.cmd_sn)
        .set_word(28, peer.exp_stat_sn);
    let both = [write.to_bytes(false, false), reset.to_bytes(false, false)].concat();
    peer.send_bytes(&both).unwrap();
    let mut pdu = peer.receive().unwrap();
    if pdu.opcode() == opcode::SCSI_RESPONSE {
        assert_eq!(pdu.initiator_task_tag(), write.initiator_task_tag());
        pdu = peer.receive().unwrap();
    }
    assert_eq!(pdu.opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
    assert_eq!(
        (pdu.initiator_task_tag(), pdu.bhs[2]),
        (tag, 0),
        "function complete"
    );
    peer.become_ready(0).unwrap();
    scene.healthy.become_ready(0).unwrap();
    scene.assert_others_do_not_notice();
}

#[test]
fn unknown_opcodes_are_rejected_and_the_session_lives() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    for op in [0x07, 0x0f, 0x1c, 0x1e] {
        let unknown = Pdu::new(op)
            .immediate()
            .set_byte(1, 0x80)
            .set_word(16, 0x77)
            .set_word(24, peer.cmd_sn)
            .set_word(28, peer.exp_stat_sn);
        peer.send(&unknown).unwrap();
        let reject = peer.receive().unwrap();
        assert_eq!(reject.opcode(), opcode::REJECT, "opcode {op:#x}");
        assert_eq!(
            reject.bhs[2], 0x05,
            "command not supported, RFC 7143 §11.17.1"
        );
        assert_eq!(
            reject.data[..48],
            unknown.bhs,
            "the rejected header comes back"
        );
        peer.ping().unwrap();
    }
    scene.assert_others_do_not_notice();
}

#[test]
fn snack_is_refused_at_error_recovery_level_0() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    let snack = Pdu::new(opcode::SNACK_REQUEST)
        .set_byte(1, 0x81)
        .set_word(16, RESERVED_TAG)
        .set_word(20, RESERVED_TAG)
        .set_word(28, peer.exp_stat_sn);
    peer.send(&snack).unwrap();
    peer_lives_after_optional_reject(&mut peer);
    scene.assert_others_do_not_notice();
}

#[test]
fn commands_to_luns_that_are_not_there_say_so() {
    let mut scene = Scene::new();
    let mut peer = scene.session(1);
    for lun in [2, 77, 255] {
        let answer = peer
            .command(lun, &cdb::TEST_UNIT_READY, Data::None)
            .unwrap();
        assert_eq!(
            answer.sense_code(),
            Some((5, 0x25, 0)),
            "LOGICAL UNIT NOT SUPPORTED"
        );
        // SPC-4 §6.6.2: INQUIRY is answered for every LUN, with peripheral qualifier 011b.
        let answer = peer.command(lun, &cdb::INQUIRY, Data::In(96)).unwrap();
        assert_eq!(answer.data[0], 0x7f);
    }
    scene.assert_others_do_not_notice();
}

#[test]
fn a_header_digest_that_does_not_fit_closes_and_a_data_digest_fails_its_command() {
    let mut scene = Scene::new();
    let login = Login {
        header_digest: true,
        data_digest: true,
        ..Login::numbered(1)
    };
    let mut peer = scene.session_by(&login);
    let write = peer.command_pdu(0, &cdb::write_16(700, 1, false), Data::Out(&[5; 512]));
    let mut bytes = write.to_bytes(true, true);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    peer.send_bytes(&bytes).unwrap();
    // RFC 7143 §7.8: Reject with reason "data digest error", and the command ends in failure.
    let mut seen = Vec::new();
    while !seen.contains(&opcode::SCSI_RESPONSE) {
        let pdu = peer.receive().unwrap();
        if pdu.opcode() == opcode::REJECT {
            assert_eq!(pdu.bhs[2], 0x02);
        } else if pdu.opcode() == opcode::SCSI_RESPONSE {
            assert_ne!(
                (pdu.bhs[2], pdu.bhs[3]),
                (0, 0),
                "a write with damaged data succeeded"
            );
        }
        seen.push(pdu.opcode());
    }
    let block = peer
        .command(0, &cdb::read_16(700, 1), Data::In(512))
        .unwrap();
    assert_eq!(block.data, [0; 512], "damaged data was written");

    let ping = Pdu::new(opcode::NOP_OUT)
        .immediate()
        .set_byte(1, 0x80)
        .set_word(16, 9);
    let mut bytes = ping.to_bytes(true, true);
    bytes[48] ^= 1;
    peer.send_bytes(&bytes).unwrap();
    assert!(
        peer.is_closed_within(SOON).unwrap(),
        "a header digest error at level 0"
    );
    scene.assert_others_do_not_notice();
}

/// The peer may be told by a Reject; a ping works either way.
fn peer_lives_after_optional_reject(peer: &mut Initiator) {
    let ping = Pdu::new(opcode::NOP_OUT)
        .immediate()
        .set_byte(1, 0x80)
        .set_word(16, 0x5150)
        .set_word(20, RESERVED_TAG)
        .set_word(24, peer.cmd_sn)
        .set_word(28, peer.exp_stat_sn);
    peer.send(&ping).unwrap();
    let mut pdu = peer.receive().unwrap();
    if pdu.opcode() == opcode::REJECT {
        pdu = peer.receive().unwrap();
    }
    assert_eq!(
        (pdu.opcode(), pdu.initiator_task_tag()),
        (opcode::NOP_IN, 0x5150)
    );
}
