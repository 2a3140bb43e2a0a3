//! What the two machines say to each other.

use proptest::prelude::*;

use super::*;
use crate::pdu::{FatalError, FatalErrorStatus};

#[test]
fn what_was_written_is_read_back_with_every_digest_alignment_and_r2t_setting() {
    for settings in 0..16_u8 {
        let bit = |n: u8| settings >> n & 1 == 1;
        for hpda in [0, 1, 6, 31] {
            for max_r2t in [1, 3] {
                let in_capsule = if bit(2) { 2048 } else { 0 };
                let mut setup = small(max_r2t, in_capsule).digests(bit(0), bit(1));
                setup.host.hpda = hpda;
                setup.queue.flow_control = bit(3);
                let mut pair = setup.connect(&[777]);
                pair.rig.placing = bit(0) ^ bit(3);
                pair.rig.referring = bit(1) ^ bit(2);
                pair.check_read_back(&[1, 511, 512, 2048, 2049, 4096, 20_001]);
            }
        }
    }
}

#[test]
fn streams_may_be_cut_at_every_byte() {
    let mut setup = small(2, 2048).digests(true, true);
    setup.host.hpda = 4;
    let pieces = [1, 2, 3, 23, 24, 25, 72, 76, 1000, 100_000];
    shared::check_pieces(&pieces, |piece| setup.connect(&[piece]));
}

#[test]
fn the_success_flag_spares_responses_only_without_flow_control() {
    for flow_control in [false, true] {
        let mut setup = Setup::default();
        setup.queue.flow_control = flow_control;
        setup.queue.entries = 4;
        let mut pair = setup.connect(&[1000]);
        for sending in SENDINGS {
            pair.rig.sending = sending;
            let read = pair.start_read(0, 512);
            pair.run();
            assert_eq!(pair.outcome(read).sq_head.is_some(), flow_control);
        }
        let write = pair.start_write(0, &[1; 512]);
        pair.run();
        // Connect, three reads and a write: five of four entries.
        let expected = if flow_control { 1 } else { 0 };
        assert_eq!(pair.outcome(write).sq_head, Some(expected));
    }
}

#[test]
fn so_many_r2ts_are_under_way_as_the_host_allows() {
    for (max_r2t, expected) in [(1, 1), (2, 2), (5, 5), (100, 7)] {
        let mut pair = small(max_r2t, 0).connect(&[100_000]);
        let data = pattern(20_001, 1);
        let write = pair.start_write(0, &data);
        let to_target = pair.rig.to_server.take();
        pair.feed_server(&to_target);
        assert_eq!(pair.rig.to_client.transmit.pending_bytes(), expected * 24);
        pair.run();
        pair.assert_good(write);
        assert_eq!(pair.r2ts, 7);
        assert_eq!(pair.rig.device[..20_001], data);
    }
}

#[test]
fn a_full_queue_is_served_and_free_again() {
    let mut setup = Setup::default();
    setup.queue.entries = 16;
    let mut pair = setup.connect(&[1000]);
    let reads: Vec<_> = (0..15).map(|n| pair.start_read(n * 100, 100)).collect();
    assert_eq!(pair.host.slots_free(), 0);
    pair.run();
    for (n, read) in reads.into_iter().enumerate() {
        pair.assert_good(read);
        assert_eq!(pair.data_in[&read], pair.rig.device[n * 100..n * 100 + 100]);
    }
    assert_eq!(pair.host.slots_free(), 15);
}

#[test]
fn a_burst_of_small_reads_is_one_segment_to_send() {
    let mut pair = Setup::default().connect(&[100_000]);
    pair.check_burst_is_one_segment(24);
}

#[test]
fn a_read_that_fails_half_way_ends_by_its_status() {
    let mut pair = small(1, 0).connect(&[1000]);
    let read = pair.start(FAILING_READ, 0, &[0; 8192]);
    pair.run();
    let outcome = pair.outcome(read);
    assert_eq!(outcome.status, Status::UNRECOVERED_READ_ERROR);
    assert_eq!(outcome.data_in_length, 4096);
}

#[test]
fn a_write_takes_no_more_than_the_command_wants() {
    for in_capsule in [0, 2048] {
        for length in [1000, 2048, 20_000] {
            let mut pair = small(2, in_capsule).digests(true, true).connect(&[333]);
            let before = pair.rig.device.clone();
            let data = pattern(length, 1);
            let write = pair.start(HALF_WRITE, 0, &data);
            let next = pair.start_write(30_000, &data);
            pair.run();
            pair.assert_good(write);
            pair.assert_good(next);
            let half = length / 2;
            assert_eq!(pair.rig.device[..half], data[..half]);
            assert_eq!(pair.rig.device[half..30_000], before[half..30_000]);
            assert_eq!(pair.rig.device[30_000..30_000 + length], data);
        }
    }
}

#[test]
fn other_commands_pass_one_that_is_stuck() {
    let mut pair = small(1, 2048).connect(&[1000]);
    let stuck = pair.start(STUCK, 0, &[1; 5000]);
    pair.run();
    assert!(!pair.outcomes.contains_key(&stuck));
    let read = pair.start_read(0, 5000);
    pair.run();
    pair.assert_good(read);
    let id = pair.host.command_id(stuck);
    assert_eq!(pair.target.find(id), pair.stuck.first().copied());
    let slot = pair.stuck[0];
    pair.complete(slot, Status::ABORT_REQUESTED);
    pair.run();
    assert_eq!(pair.outcome(stuck).status, Status::ABORT_REQUESTED);
}

#[test]
fn an_end_by_the_host_reaches_the_controller_with_its_reason() {
    let error = FatalError {
        status: FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
        information: 7,
    };
    let mut pair = Setup::default().digests(true, true).connect(&[5]);
    pair.host.terminate(error, &mut pair.rig.to_server.transmit);
    pair.run();
    let reason = server::CloseReason::HostTerminated(error);
    assert_eq!(pair.target_closed, Some(reason));
}

#[test]
fn a_damaged_header_ends_the_connection_and_damaged_write_data_its_command() {
    // In the capsule, and by two R2Ts.
    for (in_capsule, length) in [(2048, 2000), (0, 3001)] {
        let data = pattern(length, 1);
        for at in (0..length + 2 * 32 + 76).step_by(7) {
            let setup = small(4, in_capsule).digests(true, true);
            let mut pair = setup.connect(&[1000]);
            pair.rig.to_server.damage = Some(pair.rig.to_server.sent + at);
            let before = pair.rig.device.clone();
            let write = pair.start_write(0, &data);
            pair.run();
            if pair.target_closed.is_some() {
                // The host hears of it.
                assert!(pair.host_closed.is_some(), "flip at {at}");
                assert_eq!(pair.rig.device, before);
                continue;
            }
            if pair.outcomes.contains_key(&write) {
                let status = pair.outcome(write).status;
                // Behind the end nothing was damaged.
                if pair.rig.to_server.sent > pair.rig.to_server.damage.unwrap() {
                    assert_eq!(status, Status::TRANSIENT_TRANSPORT_ERROR, "flip at {at}");
                    assert_eq!(pair.rig.device, before);
                }
                // The connection lives.
                pair.rig.to_server.damage = None;
                let again = pair.start_write(0, &data);
                pair.run();
                pair.assert_good(again);
            }
        }
    }
}

#[test]
fn a_damaged_header_ends_the_connection_and_damaged_read_data_its_command() {
    for sending in SENDINGS {
        for at in (0..28 + 3000 + 4).step_by(11) {
            let mut pair = Setup::default().digests(true, true).connect(&[1000]);
            pair.rig.sending = sending;
            pair.rig.to_client.damage = Some(pair.rig.to_client.sent + at);
            let read = pair.start_read(0, 3000);
            pair.run();
            if at < 28 {
                assert!(pair.host_closed.is_some(), "flip at {at}");
                // The controller hears of it.
                let reason = pair.target_closed;
                let is_told = matches!(reason, Some(server::CloseReason::HostTerminated(_)));
                assert!(is_told, "flip at {at}: {reason:?}");
                continue;
            }
            let outcome = pair.outcome(read);
            assert!(outcome.data_digest_error, "flip at {at}");
            assert_eq!(outcome.status, Status::TRANSIENT_TRANSPORT_ERROR);
            let again = pair.start_read(0, 3000);
            pair.run();
            pair.assert_good(again);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    #[test]
    fn any_sequence_of_reads_and_writes_agrees_with_a_byte_array(
        steps in shared::steps(),
        pieces in prop::collection::vec(1_usize..3000, 1..20),
        settings: u8,
        max_r2t in 1_u32..5,
        hpda in 0_u8..32,
        in_capsule in 0_u32..2049,
    ) {
        let bit = |n: u8| settings >> n & 1 == 1;
        let mut setup = small(max_r2t, in_capsule).digests(bit(0), bit(1));
        setup.host.hpda = hpda;
        setup.queue.flow_control = bit(2);
        let mut pair = setup.connect(&pieces);
        pair.rig.placing = bit(3);
        pair.rig.referring = bit(4);
        pair.rig.sending = SENDINGS[usize::from(settings >> 5) % 3];
        pair.check_against_array(steps, !bit(7));
    }

    #[test]
    fn no_host_makes_a_controller_panic(
        bytes: Vec<u8>,
        piece in 1_usize..100,
        connected: bool,
    ) {
        let mut pair = Setup::default().connect(&[piece]);
        if !connected {
            pair.target = server::Connection::new(server::ConnectionConfig::default(), 0);
        }
        pair.feed_server(&bytes);
    }
}
