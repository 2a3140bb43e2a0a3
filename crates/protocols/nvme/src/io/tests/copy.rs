//! Copy.

use proptest::prelude::*;

use super::*;
use crate::io::limits;

fn sources(list: &[(u64, u64)]) -> Vec<u8> {
    list.iter()
        .flat_map(|(lba, blocks)| {
            let mut range = vec![0xa5; 32];
            range[8..16].copy_from_slice(&lba.to_le_bytes());
            range[16..18].copy_from_slice(&((blocks - 1) as u16).to_le_bytes());
            range
        })
        .collect()
}

fn copy(destination: u64, count: usize) -> SubmissionEntry {
    let mut entry = plain(io::COPY);
    entry.set_qword(10, destination);
    entry.set_dword(12, count as u32 - 1);
    entry
}

#[test]
fn ranges_are_copied_behind_each_other() {
    let mut world = World::new();
    let expected = [
        world.read_back(100, 7),
        world.read_back(3, 1),
        world.read_back(50, 600),
    ]
    .concat();
    let list = sources(&[(100, 7), (3, 1), (50, 600)]);
    assert_eq!(world.run(&copy(1000, 3), &list).outcome, IoOutcome::SUCCESS);
    assert_eq!(world.read_back(1000, 608), expected);
}

#[test]
fn an_overlapping_range_is_copied_as_if_read_first() {
    for (source, destination) in [(0, 1), (0, 700), (700, 0), (1, 0), (5, 5)] {
        let mut world = World::new();
        let expected = world.read_back(source, 1300).to_vec();
        let list = sources(&[(source, 1300)]);
        assert!(
            world
                .run(&copy(destination, 1), &list)
                .status()
                .is_success()
        );
        assert_eq!(world.read_back(destination, 1300), expected);
    }
}

#[test]
fn fua_is_that_of_every_write() {
    let mut world = World::new();
    let entry = set_bit(copy(1000, 2), 12, FUA);
    assert!(
        world
            .run(&entry, &sources(&[(0, 600), (700, 1)]))
            .status()
            .is_success()
    );
    let writes = world.log.iter().filter(|(_, operation)| operation.writes());
    for (_, operation) in writes {
        assert!(matches!(operation, Operation::Write { fua: true, .. }));
    }
}

#[test]
fn limits_of_ranges_and_blocks_are_those_of_identify() {
    let mut world = World::new();
    let refused = |world: &mut World, list: &[(u64, u64)]| {
        let answer = world.run(&copy(0, list.len()), &sources(list));
        assert_refused(&answer, Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        assert_eq!(answer.outcome.result, 0);
    };
    let many = vec![(0, 1); usize::from(limits::COPY_RANGES) + 1];
    refused(&mut world, &many);
    refused(&mut world, &[(0, u64::from(limits::COPY_RANGE_BLOCKS) + 1)]);
    let longest = (0, u64::from(limits::COPY_RANGE_BLOCKS));
    refused(&mut world, &[longest, longest, longest, longest, (0, 1)]);
    let allowed = vec![(0, 1); usize::from(limits::COPY_RANGES)];
    let list = sources(&allowed);
    assert!(
        world
            .run(&copy(5, allowed.len()), &list)
            .status()
            .is_success()
    );
}

#[test]
fn ranges_outside_the_namespace_are_refused_before_anything_is_written() {
    let mut world = World::new();
    for (destination, bad) in [(0, (BLOCKS, 1)), (0, (u64::MAX, 1)), (BLOCKS - 1, (0, 1))] {
        let answer = world.run(&copy(destination, 2), &sources(&[(0, 1), bad]));
        assert_refused(&answer, Status::LBA_OUT_OF_RANGE);
    }
    assert!(world.log.is_empty());
}

#[test]
fn other_descriptor_formats_are_an_invalid_field() {
    let mut world = World::new();
    for format in 1..16 {
        let mut entry = copy(0, 1);
        entry.set_dword(12, format << 8);
        assert_refused(
            &world.run(&entry, &sources(&[(0, 1)])),
            Status::INVALID_FIELD,
        );
    }
}

#[test]
fn a_failure_names_the_first_range_that_was_not_copied() {
    let mut world = World::new();
    let list = sources(&[(0, 1), (10, 1), (20, 1)]);
    for (operations, range, status) in [
        (0, 0, Status::UNRECOVERED_READ_ERROR),
        (1, 0, Status::WRITE_FAULT),
        (2, 1, Status::UNRECOVERED_READ_ERROR),
        (5, 2, Status::WRITE_FAULT),
    ] {
        world.fail(operations, MediaError::Io);
        let answer = world.run(&copy(1000, 3), &list);
        assert_eq!((answer.status(), answer.outcome.result), (status, range));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn copies_without_overlap_equal_those_of_a_byte_array(
        list in prop::collection::vec((0_u64..1000, 1_u64..200), 1..5),
    ) {
        let mut world = World::new();
        let mut expected = world.media[0].clone();
        let mut at = 1200;
        for (lba, blocks) in &list {
            expected.copy_within(bytes(*lba, *blocks), bytes(at, 0).start);
            at += blocks;
        }
        let answer = world.run(&copy(1200, list.len()), &sources(&list));
        prop_assert!(answer.status().is_success());
        prop_assert!(world.media[0] == expected);
    }
}
