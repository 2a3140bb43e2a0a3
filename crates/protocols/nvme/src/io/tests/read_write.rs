//! Read, Write, Write Zeroes, Verify.

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::{MediaError, Operation};

use super::*;

#[test]
fn what_was_written_is_read() {
    let mut world = World::new();
    let data = pattern(99, 8);
    assert!(
        world
            .run(&ranged(io::WRITE, 10, 8), &data)
            .status()
            .is_success()
    );
    let answer = world.read(&ranged(io::READ, 10, 8));
    assert_eq!(answer.outcome, IoOutcome::SUCCESS);
    assert_eq!(answer.data, data);
}

#[test]
fn a_read_is_one_operation_on_the_medium() {
    let mut world = World::new();
    world.namespaces[0].volatile_cache = true;
    world.read(&ranged(io::READ, 3, 256));
    let read = Operation::Read {
        extent: Extent {
            lba: Lba(3),
            blocks: BlockCount(256),
        },
    };
    assert_eq!(world.log, [(0, read)]);
}

#[test]
fn fua_of_a_write_reaches_the_medium() {
    let mut world = World::new();
    let entry = set_bit(ranged(io::WRITE, 1, 1), 12, FUA);
    assert!(world.run(&entry, &pattern(0, 1)).status().is_success());
    let write = Operation::Write {
        extent: Extent {
            lba: Lba(1),
            blocks: BlockCount(1),
        },
        fua: true,
    };
    assert_eq!(world.log, [(0, write)]);
}

#[test]
fn fua_of_a_read_flushes_a_volatile_cache_first() {
    for opcode in [io::READ, io::VERIFY, io::COMPARE] {
        let mut world = World::new();
        let entry = set_bit(ranged(opcode, 1, 1), 12, FUA);
        let data = world.read_back(1, 1).to_vec();
        let read = Operation::Read {
            extent: Extent {
                lba: Lba(1),
                blocks: BlockCount(1),
            },
        };
        assert!(world.run(&entry, &data).status().is_success());
        assert_eq!(world.log, [(0, read)], "nothing to flush");
        world.log.clear();
        world.namespaces[0].volatile_cache = true;
        assert!(world.run(&entry, &data).status().is_success());
        assert_eq!(world.log, [(0, Operation::Flush), (0, read)]);
        world.fail(0, MediaError::Poisoned);
        assert_refused(&world.run(&entry, &data), Status::WRITE_FAULT);
        // The flush failed, and that is a write error, before the read.
        world.fail(0, MediaError::Io);
        assert_eq!(world.run(&entry, &data).status(), Status::WRITE_FAULT);
    }
}

#[test]
fn a_range_beyond_the_last_block_is_out_of_range() {
    let mut world = World::new();
    for opcode in [
        io::READ,
        io::WRITE,
        io::COMPARE,
        io::VERIFY,
        io::WRITE_ZEROES,
    ] {
        for (lba, blocks) in [
            (BLOCKS, 1),
            (BLOCKS - 1, 2),
            (u64::MAX, 1),
            (u64::MAX - 1, 256),
        ] {
            let data = vec![0; blocks as usize * BLOCK];
            let answer = world.run(&ranged(opcode, lba, blocks), &data);
            assert_refused(&answer, Status::LBA_OUT_OF_RANGE);
        }
    }
    assert!(world.log.is_empty());
    assert!(
        world
            .read(&ranged(io::READ, BLOCKS - 1, 1))
            .status()
            .is_success()
    );
}

#[test]
fn the_sgl_describes_exactly_the_blocks() {
    let mut world = World::new();
    for opcode in [io::READ, io::WRITE, io::COMPARE] {
        for length in [0, 1, 511, 513, 1024] {
            let answer = world.run_with_length(&ranged(opcode, 0, 1), &[], length);
            assert_refused(&answer, Status::DATA_SGL_LENGTH_INVALID);
        }
    }
    assert!(world.log.is_empty());
}

#[test]
fn more_than_mdts_is_an_invalid_field() {
    let mut world = World::new();
    for opcode in [io::READ, io::WRITE, io::COMPARE] {
        let answer = world.run_with_length(&ranged(opcode, 0, 257), &[], 257 * BLOCK as u32);
        assert_refused(&answer, Status::INVALID_FIELD);
    }
}

#[test]
fn protection_information_directives_and_hints_are_ignored() {
    let mut world = World::new();
    let mut entry = ranged(io::WRITE, 4, 1);
    // LR, PRINFO, STC, DTYPE; DSPEC and DSM; the tags.
    entry.set_dword(12, 0x8000_0000 | 0x3c00_0000 | 1 << 24 | 0x0010_0000);
    entry.set_dword(13, u32::MAX);
    entry.set_dword(14, u32::MAX);
    entry.set_dword(15, u32::MAX);
    entry.set_qword(2, u64::MAX);
    let data = pattern(5, 1);
    assert!(world.run(&entry, &data).status().is_success());
    assert_eq!(world.read_back(4, 1), data);
}

#[test]
fn a_medium_error_is_a_write_fault_or_an_unrecovered_read_error() {
    let mut world = World::new();
    world.fail(0, MediaError::Io);
    let answer = world.read(&ranged(io::READ, 0, 1));
    assert_eq!(answer.status(), Status::UNRECOVERED_READ_ERROR);
    assert!(answer.data.is_empty());
    world.fail(0, MediaError::Io);
    let answer = world.run(&ranged(io::WRITE, 0, 1), &pattern(0, 1));
    assert_eq!(answer.status(), Status::WRITE_FAULT);
    world.fail(0, MediaError::NoSpace);
    let answer = world.run(&ranged(io::WRITE, 0, 1), &pattern(0, 1));
    assert_refused(&answer, Status::CAPACITY_EXCEEDED);
    world.fail(0, MediaError::Io);
    assert_eq!(
        world.run(&plain(io::FLUSH), &[]).status(),
        Status::WRITE_FAULT
    );
}

#[test]
fn write_zeroes_zeroes_and_deallocates_if_asked() {
    for (bit, may_unmap, fua) in [
        (None, false, false),
        (Some(25), true, false),
        (Some(FUA), false, true),
    ] {
        let mut world = World::new();
        let mut entry = ranged(io::WRITE_ZEROES, 7, 300);
        if let Some(bit) = bit {
            entry = set_bit(entry, 12, bit);
        }
        assert!(world.run(&entry, &[]).status().is_success());
        assert_eq!(world.read_back(7, 300), vec![0; 300 * BLOCK]);
        let zeroes = Operation::WriteZeroes {
            extent: Extent {
                lba: Lba(7),
                blocks: BlockCount(300),
            },
            may_unmap,
            fua,
        };
        assert_eq!(world.log, [(0, zeroes)]);
    }
}

#[test]
fn zeroing_the_whole_namespace_is_not_taken_for_zeroing_a_range() {
    let mut world = World::new();
    let entry = set_bit(ranged(io::WRITE_ZEROES, 0, 1), 12, 23);
    assert_refused(&world.run(&entry, &[]), Status::INVALID_FIELD);
    assert!(world.log.is_empty());
}

#[test]
fn verify_reads_every_block_in_pieces() {
    let mut world = World::new();
    assert!(
        world
            .run(&ranged(io::VERIFY, 100, 1500), &[])
            .status()
            .is_success()
    );
    let mut next = 100;
    for (_, operation) in &world.log {
        let Operation::Read {
            extent: Extent { lba, blocks },
        } = operation
        else {
            panic!("{operation:?}");
        };
        assert_eq!(lba.0, next);
        assert!(blocks.0 * BLOCK as u64 <= longshore_block::chunks::SCRATCH_BYTES as u64);
        next += blocks.0;
    }
    assert_eq!(next, 1600);
    world.fail(1, MediaError::Io);
    let answer = world.run(&ranged(io::VERIFY, 100, 1500), &[]);
    assert_eq!(answer.status(), Status::UNRECOVERED_READ_ERROR);
}

#[test]
fn verify_with_pract_is_an_invalid_field() {
    let mut world = World::new();
    let entry = set_bit(ranged(io::VERIFY, 0, 1), 12, 29);
    assert_refused(&world.run(&entry, &[]), Status::INVALID_FIELD);
}
