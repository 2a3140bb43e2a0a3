//! Fused Compare and Write.

use longshore_block::extent::Extent;

use super::*;
use crate::io::{Arrival, Fusing, Next, Transfer, limits};

fn first(lba: u64, blocks: u64) -> SubmissionEntry {
    fused(ranged(io::COMPARE, lba, blocks), Fuse::First)
}

fn second(lba: u64, blocks: u64) -> SubmissionEntry {
    fused(ranged(io::WRITE, lba, blocks), Fuse::Second)
}

#[track_caller]
fn assert_both(outcome: FusedOutcome, first: Status, second: Status) {
    assert_eq!(
        (outcome.first.status, outcome.second.status),
        (first, second)
    );
}

#[test]
fn the_write_happens_if_the_compare_succeeds() {
    let mut world = World::new();
    let (old, new) = (world.read_back(9, 2).to_vec(), pattern(77, 2));
    let outcome = world.run_pair((&first(9, 2), &old), (&second(9, 2), &new));
    assert_both(outcome, Status::SUCCESS, Status::SUCCESS);
    assert_eq!(world.read_back(9, 2), new);
    let extent = Extent::new(9, 2);
    assert_eq!(world.locks, [(0, extent)]);
    assert_eq!(
        world.log,
        [
            (0, Operation::Read { extent }),
            (0, Operation::Write { extent, fua: false }),
        ]
    );
}

#[test]
fn the_write_does_nothing_if_the_compare_fails() {
    let mut world = World::new();
    let (old, new) = (world.read_back(9, 2).to_vec(), pattern(77, 2));
    let outcome = world.run_pair((&first(9, 2), &new), (&second(9, 2), &new));
    let failure = Status::COMPARE_FAILURE.do_not_retry();
    assert_both(outcome, failure, Status::ABORTED_FAILED_FUSED);
    assert_eq!(world.read_back(9, 2), old);
}

#[test]
fn ranges_and_namespaces_must_be_the_same() {
    let mut world = World::with(vec![TestNamespace::new(1), TestNamespace::new(2)]);
    let data = vec![0; 3 * BLOCK];
    let mut elsewhere = second(9, 2);
    elsewhere.set_dword(1, 2);
    for (other, length) in [(second(9, 3), 3), (second(8, 2), 2), (elsewhere, 2)] {
        let outcome = world.run_pair(
            (&first(9, 2), &data[..2 * BLOCK]),
            (&other, &data[..length * BLOCK]),
        );
        let invalid = Status::INVALID_FIELD.do_not_retry();
        assert_both(outcome, invalid, invalid);
    }
    assert!(world.log.is_empty());
}

#[test]
fn no_other_commands_can_be_fused() {
    let mut world = World::new();
    let data = vec![0; BLOCK];
    let fuse = |opcode, fuse| fused(ranged(opcode, 0, 1), fuse);
    for (one, other) in [
        (fuse(io::WRITE, Fuse::First), second(0, 1)),
        (fuse(io::READ, Fuse::First), second(0, 1)),
        (fuse(io::FLUSH, Fuse::First), second(0, 1)),
        (first(0, 1), fuse(io::COMPARE, Fuse::Second)),
        (first(0, 1), fuse(io::READ, Fuse::Second)),
        (first(0, 1), fuse(io::WRITE_ZEROES, Fuse::Second)),
    ] {
        let outcome = world.run_pair((&one, &data), (&other, &data));
        let invalid = Status::INVALID_FIELD.do_not_retry();
        assert_both(outcome, invalid, invalid);
    }
    for opcode in [io::READ, io::WRITE, io::COMPARE, io::FLUSH, io::VERIFY] {
        let answer = world.run(&fuse(opcode, Fuse::Reserved), &data);
        assert_refused(&answer, Status::INVALID_FIELD);
    }
    assert!(world.log.is_empty());
}

#[test]
fn a_half_of_more_than_acwu_is_refused_before_its_data_is_asked_for() {
    let mut world = World::new();
    let most = u64::from(limits::COMPARE_AND_WRITE_BLOCKS);
    let data = vec![0; (most as usize + 1) * BLOCK];
    for half in [first(0, most + 1), second(0, most + 1)] {
        let command = Command::begin(&world.namespaces, &half, data.len() as u32);
        assert_eq!(command.transfer(), Transfer::NONE);
    }
    let outcome = world.run_pair((&first(0, most + 1), &data), (&second(0, most + 1), &data));
    let exceeded = Status::ATOMIC_WRITE_UNIT_EXCEEDED.do_not_retry();
    assert_both(outcome, exceeded, Status::ABORTED_FAILED_FUSED);
    let old = world.read_back(0, most).to_vec();
    let outcome = world.run_pair((&first(0, most), &old), (&second(0, most + 1), &data));
    assert_both(outcome, Status::SUCCESS, exceeded);
    assert_eq!(world.read_back(0, most), old);
    let outcome = world.run_pair((&first(0, most), &old), (&second(0, most), &old));
    assert_both(outcome, Status::SUCCESS, Status::SUCCESS);
}

#[test]
fn a_refused_compare_takes_the_write_with_it() {
    let mut world = World::new();
    let data = vec![0; BLOCK];
    let outcome = world.run_pair((&first(BLOCKS, 1), &data), (&second(BLOCKS, 1), &data));
    let refused = Status::LBA_OUT_OF_RANGE.do_not_retry();
    assert_both(outcome, refused, Status::ABORTED_FAILED_FUSED);
    world.fail(0, MediaError::Io);
    let outcome = world.run_pair((&first(0, 1), &data), (&second(0, 1), &data));
    let failed = Status::UNRECOVERED_READ_ERROR;
    assert_both(outcome, failed, Status::ABORTED_FAILED_FUSED);
}

#[test]
fn a_write_that_is_refused_or_fails_leaves_the_compare_its_status() {
    let mut world = World::new();
    let old = world.read_back(0, 1).to_vec();
    world.fail(1, MediaError::Io);
    let outcome = world.run_pair((&first(0, 1), &old), (&second(0, 1), &old));
    assert_both(outcome, Status::SUCCESS, Status::WRITE_FAULT);
    world.namespaces[0].write_protected = true;
    let protected = Status::NAMESPACE_WRITE_PROTECTED.do_not_retry();
    let outcome = world.run_pair((&first(0, 1), &old), (&second(0, 1), &old));
    assert_both(outcome, Status::SUCCESS, protected);
    let failure = Status::COMPARE_FAILURE.do_not_retry();
    let wrong = vec![0; BLOCK];
    let outcome = world.run_pair((&first(0, 1), &wrong), (&second(0, 1), &old));
    assert_both(outcome, failure, Status::ABORTED_FAILED_FUSED);
}

#[test]
fn fua_of_both_is_honoured() {
    let mut world = World::new();
    world.namespaces[0].volatile_cache = true;
    let old = world.read_back(0, 1).to_vec();
    let fua = |entry| set_bit(entry, 12, FUA);
    let outcome = world.run_pair((&fua(first(0, 1)), &old), (&fua(second(0, 1)), &old));
    assert_both(outcome, Status::SUCCESS, Status::SUCCESS);
    assert_eq!(world.log[0], (0, Operation::Flush));
    assert!(matches!(world.log[2].1, Operation::Write { fua: true, .. }));
}

fn arrival(orphan: Option<u32>, next: Next<u32>) -> Arrival<u32> {
    Arrival { orphan, next }
}

#[test]
fn first_and_second_become_a_pair() {
    let mut fusing = Fusing::default();
    assert_eq!(
        fusing.arrive(Fuse::Normal, 1),
        arrival(None, Next::Alone(1))
    );
    assert_eq!(fusing.arrive(Fuse::First, 2), arrival(None, Next::Wait));
    let pair = Next::Pair {
        first: 2,
        second: 3,
    };
    assert_eq!(fusing.arrive(Fuse::Second, 3), arrival(None, pair));
    assert_eq!(
        fusing.arrive(Fuse::Normal, 4),
        arrival(None, Next::Alone(4))
    );
}

#[test]
fn halves_without_a_partner_are_orphans() {
    let mut fusing = Fusing::default();
    assert_eq!(fusing.arrive(Fuse::Second, 1), arrival(Some(1), Next::Wait));
    fusing.arrive(Fuse::First, 2);
    assert_eq!(fusing.arrive(Fuse::First, 3), arrival(Some(2), Next::Wait));
    assert_eq!(
        fusing.arrive(Fuse::Normal, 4),
        arrival(Some(3), Next::Alone(4))
    );
    assert_eq!(fusing.arrive(Fuse::Second, 5), arrival(Some(5), Next::Wait));
    fusing.arrive(Fuse::First, 6);
    assert_eq!(fusing.take_first_if(|first| *first == 9), None);
    assert_eq!(fusing.take_first_if(|first| *first == 6), Some(6));
    assert_eq!(
        fusing.arrive(Fuse::Normal, 7),
        arrival(None, Next::Alone(7))
    );
}
