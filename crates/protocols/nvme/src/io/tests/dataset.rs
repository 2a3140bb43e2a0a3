//! Dataset Management.

use longshore_block::extent::{BlockCount, Extent, Lba};

use super::*;

fn ranges(list: &[(u64, u32)]) -> Vec<u8> {
    list.iter()
        .flat_map(|(lba, blocks)| {
            let mut range = vec![0xa5; 4];
            range.extend(blocks.to_le_bytes());
            range.extend(lba.to_le_bytes());
            range
        })
        .collect()
}

fn deallocate(count: usize) -> SubmissionEntry {
    let mut entry = set_bit(plain(io::DATASET_MANAGEMENT), 11, 2);
    entry.set_dword(10, count as u32 - 1);
    entry
}

#[test]
fn all_ranges_are_deallocated_in_their_order() {
    let mut world = World::new();
    let list = ranges(&[(10, 5), (0, 0), (3, 1), (u64::MAX, 0), (2040, 8)]);
    assert!(world.run(&deallocate(5), &list).status().is_success());
    let unmap = |lba, blocks| {
        let (lba, blocks) = (Lba(lba), BlockCount(blocks));
        (
            0,
            Operation::Unmap {
                extent: Extent { lba, blocks },
            },
        )
    };
    assert_eq!(world.log, [unmap(10, 5), unmap(3, 1), unmap(2040, 8)]);
}

#[test]
fn two_hundred_fifty_six_ranges_fit() {
    let mut world = World::new();
    let list: Vec<_> = (0..256).map(|n| (n * 8, 1)).collect();
    assert!(
        world
            .run(&deallocate(256), &ranges(&list))
            .status()
            .is_success()
    );
    assert_eq!(world.log.len(), 256);
}

#[test]
fn one_range_out_of_range_stops_all() {
    let mut world = World::new();
    for bad in [(2040, 9), (BLOCKS, 1), (u64::MAX, 2)] {
        let answer = world.run(&deallocate(2), &ranges(&[(0, 8), bad]));
        assert_refused(&answer, Status::LBA_OUT_OF_RANGE);
    }
    assert!(world.log.is_empty());
}

#[test]
fn more_data_than_ranges_is_taken_as_linux_sends_it() {
    let mut world = World::new();
    let mut data = ranges(&[(8, 8)]);
    data.resize(4096, 0xff);
    assert!(world.run(&deallocate(1), &data).status().is_success());
    assert_eq!(world.log.len(), 1);
    assert_refused(
        &world.run_with_length(&deallocate(2), &[], 31),
        Status::DATA_SGL_LENGTH_INVALID,
    );
}

#[test]
fn hints_succeed_and_are_not_fetched() {
    let mut world = World::new();
    let entry = set_bit(set_bit(plain(io::DATASET_MANAGEMENT), 11, 0), 11, 1);
    let command = Command::begin(&world.namespaces, &entry, 4096);
    assert_eq!(command.transfer().length, 0);
    assert!(
        world
            .run(&entry, &ranges(&[(u64::MAX, 9)]))
            .status()
            .is_success()
    );
    assert!(world.log.is_empty());
}

#[test]
fn it_is_advice_where_the_volume_cannot_deallocate() {
    let mut world = World::new();
    world.fail(0, MediaError::Unsupported);
    let list = ranges(&[(8, 8), (16, 8)]);
    assert!(world.run(&deallocate(2), &list).status().is_success());
    assert_eq!(world.log.len(), 1);
    world.fail(1, MediaError::Io);
    assert_eq!(
        world.run(&deallocate(2), &list).status(),
        Status::WRITE_FAULT
    );
}
