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
                pair.placing = bit(0) ^ bit(3);
                pair.referring = bit(1) ^ bit(2);
                for (n, length) in [1, 511, 512, 2048, 2049, 4096, 20_001]
                    .into_iter()
                    .enumerate()
                {
                    let data = pattern(length, n);
                    let write = pair.start_write(n * 40_000, &data);
                    pair.run();
                    pair.assert_success(write);
                    for sending in SENDINGS {
                        pair.sending = sending;
                        let read = pair.start_read(n * 40_000, length);
                        pair.run();
                        pair.assert_success(read);
                        assert_eq!(pair.data_in[&read], data, "{setup:?} {sending:?}");
                    }
                }
                assert_eq!(pair.target.commands().count(), 0);
                assert_eq!(pair.host.under_way().count(), 0);
            }
        }
    }
}

#[test]
fn streams_may_be_cut_at_every_byte() {
    let lengths = [1, 700, 5000];
    for piece in [1, 2, 3, 23, 24, 25, 72, 76, 1000, 100_000] {
        for placing in [false, true] {
            let mut setup = small(2, 2048).digests(true, true);
            setup.host.hpda = 4;
            let mut pair = setup.connect(&[piece]);
            pair.placing = placing;
            let writes: Vec<_> = lengths
                .iter()
                .enumerate()
                .map(|(n, length)| pair.start_write(n * 10_000, &pattern(*length, n)))
                .collect();
            pair.run();
            let reads: Vec<_> = lengths
                .iter()
                .enumerate()
                .map(|(n, length)| pair.start_read(n * 10_000, *length))
                .collect();
            pair.run();
            for write in writes {
                pair.assert_success(write);
            }
            for (n, read) in reads.into_iter().enumerate() {
                pair.assert_success(read);
                assert_eq!(pair.data_in[&read], pattern(lengths[n], n), "piece {piece}");
            }
        }
    }
}

#[test]
fn the_success_flag_spares_responses_only_without_flow_control() {
    for flow_control in [false, true] {
        let mut setup = Setup::default();
        setup.queue.flow_control = flow_control;
        setup.queue.entries = 4;
        let mut pair = setup.connect(&[1000]);
        for sending in SENDINGS {
            pair.sending = sending;
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
        let to_target = drain(&mut pair.to_target, &mut pair.host_payloads);
        pair.feed_target(&to_target);
        assert_eq!(pair.to_host.pending_bytes(), expected * 24);
        pair.run();
        pair.assert_success(write);
        assert_eq!(pair.r2ts, 7);
        assert_eq!(pair.device[..20_001], data);
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
        pair.assert_success(read);
        assert_eq!(pair.data_in[&read], pair.device[n * 100..n * 100 + 100]);
    }
    assert_eq!(pair.host.slots_free(), 15);
}

#[test]
fn a_burst_of_small_reads_is_one_segment_to_send() {
    let mut pair = Setup::default().connect(&[100_000]);
    pair.sending = Sending::Inline;
    for n in 0..32 {
        pair.start_read(n * 512, 512);
    }
    let to_target = drain(&mut pair.to_target, &mut pair.host_payloads);
    pair.feed_target(&to_target);
    assert_eq!(pair.to_host.segments().count(), 1);
    assert_eq!(pair.to_host.pending_bytes(), 32 * (24 + 512));
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
            let before = pair.device.clone();
            let data = pattern(length, 1);
            let write = pair.start(HALF_WRITE, 0, &data);
            let next = pair.start_write(30_000, &data);
            pair.run();
            pair.assert_success(write);
            pair.assert_success(next);
            let half = length / 2;
            assert_eq!(pair.device[..half], data[..half]);
            assert_eq!(pair.device[half..30_000], before[half..30_000]);
            assert_eq!(pair.device[30_000..30_000 + length], data);
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
    pair.assert_success(read);
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
    pair.host.terminate(error, &mut pair.to_target);
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
            pair.damage_to_target = Some(pair.sent_to_target + at);
            let before = pair.device.clone();
            let write = pair.start_write(0, &data);
            pair.run();
            if pair.target_closed.is_some() {
                // The host hears of it.
                assert!(pair.host_closed.is_some(), "flip at {at}");
                assert_eq!(pair.device, before);
                continue;
            }
            if pair.outcomes.contains_key(&write) {
                let status = pair.outcome(write).status;
                // Behind the end nothing was damaged.
                if pair.sent_to_target > pair.damage_to_target.unwrap() {
                    assert_eq!(status, Status::TRANSIENT_TRANSPORT_ERROR, "flip at {at}");
                    assert_eq!(pair.device, before);
                }
                // The connection lives.
                pair.damage_to_target = None;
                let again = pair.start_write(0, &data);
                pair.run();
                pair.assert_success(again);
            }
        }
    }
}

#[test]
fn a_damaged_header_ends_the_connection_and_damaged_read_data_its_command() {
    for sending in SENDINGS {
        for at in (0..28 + 3000 + 4).step_by(11) {
            let mut pair = Setup::default().digests(true, true).connect(&[1000]);
            pair.sending = sending;
            pair.damage_to_host = Some(pair.sent_to_host + at);
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
            pair.assert_success(again);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { offset: usize, length: usize },
    Read { offset: usize, length: usize },
    Run,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (0_usize..50_000, 1_usize..12_000);
    let step = prop_oneof![
        place
            .clone()
            .prop_map(|(offset, length)| Step::Write { offset, length }),
        place.prop_map(|(offset, length)| Step::Read { offset, length }),
        Just(Step::Run),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    /// Commands in flight together may be served in any order as far as overlapping writes go, so a
    /// write waits for what came before; reads run along.
    #[test]
    fn any_sequence_of_reads_and_writes_agrees_with_a_byte_array(
        steps in steps(),
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
        pair.placing = bit(3);
        pair.referring = bit(4);
        pair.sending = SENDINGS[usize::from(settings >> 5) % 3];
        let mut model = pair.device.clone();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write { offset, length } => {
                    let data = pattern(length, n);
                    model[offset..offset + length].copy_from_slice(&data);
                    pair.run();
                    let write = pair.start_write(offset, &data);
                    pair.run();
                    pair.assert_success(write);
                }
                Step::Read { offset, length } => {
                    let read = pair.start_read(offset, length);
                    if bit(7) {
                        continue;
                    }
                    pair.run();
                    pair.assert_success(read);
                    prop_assert_eq!(&pair.data_in[&read], &model[offset..offset + length]);
                }
                Step::Run => pair.run(),
            }
        }
        pair.run();
        prop_assert_eq!(&pair.device, &model);
        prop_assert_eq!(pair.target.commands().count(), 0);
        prop_assert_eq!(pair.host.under_way().count(), 0);
        prop_assert_eq!((pair.target_closed, pair.host_closed), (None, None));
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
        pair.feed_target(&bytes);
    }
}
