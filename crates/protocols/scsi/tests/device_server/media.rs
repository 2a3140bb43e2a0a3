//! Commands that touch the medium.

use longshore_block::extent::Extent;
use longshore_block::operation::{MediaError, Operation};
use longshore_scsi::command::Direction;
use longshore_scsi::sense::{AdditionalSense as Code, SenseKey};

use crate::driver::{Device, cdb_10, cdb_16, config};

const FUA: u8 = 0x08;
const DPO: u8 = 0x10;

fn pattern(blocks: usize, size: usize) -> Vec<u8> {
    (0..blocks * size)
        .map(|i| (i / 3 % 251) as u8 + 1)
        .collect()
}

fn with_data(blocks: usize) -> (Device, Vec<u8>) {
    let mut device = Device::new(1 << 16);
    let data = pattern(blocks, 512);
    device
        .send(&cdb_16(0x8a, 0, 0, blocks as u32), &data)
        .good();
    (device, data)
}

#[test]
fn what_was_written_is_read_by_cdbs_of_every_length() {
    let mut device = Device::new(1 << 16);
    let data = pattern(3, 512);
    for (write, read) in [
        (vec![0x0a, 0, 0, 7, 3, 0], vec![0x08, 0, 0, 7, 3, 0]),
        (
            cdb_10(0x2a, 0, 7, 3).to_vec(),
            cdb_10(0x28, 0, 7, 3).to_vec(),
        ),
        (
            vec![0xaa, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0],
            vec![0xa8, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0],
        ),
        (
            cdb_16(0x8a, 0, 7, 3).to_vec(),
            cdb_16(0x88, 0, 7, 3).to_vec(),
        ),
    ] {
        device.blocks.clear();
        let outcome = device.send(&write, &data).good();
        assert_eq!(outcome.transfer.direction, Direction::FromInitiator);
        assert_eq!(outcome.transfer.length, 1536);
        let outcome = device.run(&read).good();
        assert_eq!(outcome.transfer.direction, Direction::ToInitiator);
        assert_eq!(outcome.transfer.length, 1536);
        assert_eq!(outcome.data_in, data);
    }
}

#[test]
fn read_6_of_zero_blocks_reads_256() {
    let mut device = Device::new(1000);
    assert_eq!(
        device.run(&[0x08, 0, 0, 0, 0, 0]).good().data_in.len(),
        256 * 512
    );
    device
        .run(&[0x08, 0, 0x03, 0x00, 0, 0])
        .illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

#[test]
fn read_6_ignores_the_scsi_2_lun_field() {
    assert_eq!(
        Device::new(10)
            .run(&[0x08, 0x20, 0, 3, 1, 0])
            .good()
            .data_in
            .len(),
        512
    );
}

#[test]
fn no_blocks_are_good_within_and_out_of_range_beyond() {
    let mut device = Device::new(100);
    for opcode in [0x88, 0x8a, 0x8b, 0x8e, 0x8f] {
        let outcome = device.run(&cdb_16(opcode, 0, 100, 0)).good();
        assert!(outcome.decided_early && outcome.operations.is_empty());
        device
            .run(&cdb_16(opcode, 0, 101, 0))
            .illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    }
}

#[test]
fn ranges_that_end_beyond_the_medium_are_refused_before_data_is_asked_for() {
    let mut device = Device::new(100);
    for opcode in [0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93] {
        for (lba, blocks) in [(100, 1), (99, 2), (u64::MAX, 1), (1 << 63, 5)] {
            let outcome = device.send(&cdb_16(opcode, 0, lba, blocks), &[0; 2048]);
            let outcome = outcome.illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
            assert!(outcome.decided_early);
            assert_eq!(outcome.transfer.length, 0);
            assert_eq!(outcome.sense.unwrap().information, Some(lba));
        }
    }
}

#[test]
fn more_than_the_maximum_transfer_length_is_an_invalid_field() {
    let mut device = Device::new(1 << 20);
    for opcode in [0x88, 0x8a, 0x8b, 0x8e] {
        let outcome = device.run(&cdb_16(opcode, 0, 0, 4097));
        let field = outcome
            .illegal(Code::INVALID_FIELD_IN_CDB)
            .sense
            .unwrap()
            .field
            .unwrap();
        assert_eq!(field.byte, 10);
    }
    assert_eq!(
        device.run(&cdb_16(0x88, 0, 0, 4096)).good().data_in.len(),
        4096 * 512
    );
}

#[test]
fn protection_fields_are_refused() {
    let mut device = Device::new(1000);
    for protect in 1..8_u8 {
        for opcode in [0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x89, 0x93, 0x9c] {
            device
                .send(&cdb_16(opcode, protect << 5, 0, 1), &[0; 1024])
                .illegal(Code::INVALID_FIELD_IN_CDB);
        }
        for opcode in [0x28, 0x2a, 0x2e, 0x2f, 0x41] {
            device
                .send(&cdb_10(opcode, protect << 5, 0, 1), &[0; 1024])
                .illegal(Code::INVALID_FIELD_IN_CDB);
        }
    }
}

#[test]
fn fua_reaches_the_medium_and_dpo_is_a_hint() {
    let mut device = Device::new(1000);
    let fua = |outcome: &crate::driver::CommandOutcome| match outcome.operations[..] {
        [Operation::Write { fua, .. }] => fua,
        _ => panic!("{outcome:?}"),
    };
    assert!(!fua(&device
        .send(&cdb_10(0x2a, DPO, 0, 1), &[0; 512])
        .good()));
    assert!(fua(&device
        .send(&cdb_10(0x2a, FUA, 0, 1), &[0; 512])
        .good()));
    assert!(fua(&device
        .send(&cdb_16(0x8a, DPO | FUA, 0, 1), &[0; 512])
        .good()));
}

#[test]
fn write_with_less_data_than_the_cdb_says_writes_the_whole_blocks_that_came() {
    let mut device = Device::new(1000);
    let outcome = device.send(&cdb_10(0x2a, 0, 5, 3), &[7; 1024]).good();
    assert_eq!(outcome.transfer.length, 1536);
    assert_eq!(device.blocks.keys().copied().collect::<Vec<_>>(), [5, 6]);
    device.send(&cdb_10(0x2a, 0, 9, 1), &[]).good();
    assert!(!device.blocks.contains_key(&9));
}

#[test]
fn write_of_part_of_a_block_leaves_the_rest_of_it() {
    let (mut device, before) = with_data(4);
    for (opcode, sent) in [(0x8a, 200), (0x8a, 512 + 200), (0x8a, 3 * 512 - 1)] {
        let cdb = cdb_16(opcode, FUA, 0, 3);
        device.send(&cdb, &vec![7; sent]).good();
        let now = device.run(&cdb_16(0x88, 0, 0, 4)).good().data_in;
        assert!(now[..sent].iter().all(|byte| *byte == 7));
        assert_eq!(now[sent..], before[sent..]);
    }
}

#[test]
fn torn_blocks_of_other_writes_are_refused_before_anything_is_written() {
    let mut device = Device::new(1000);
    for opcode in [0x8b, 0x8e, 0x93, 0x9c] {
        device
            .send(&cdb_16(opcode, 0, 5, 3), &[7; 200])
            .illegal(Code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    }
    assert!(device.blocks.is_empty());
}

#[test]
fn failures_of_the_medium_become_sense_data() {
    let mut device = Device::new(1000);
    let read = cdb_10(0x28, 0, 0, 1);
    let write = cdb_10(0x2a, 0, 0, 1);
    device.fault = |_| Some(MediaError::NoSpace);
    device.send(&write, &[1; 512]).failed(
        SenseKey::DataProtect,
        Code::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
    );
    device.fault = |_| Some(MediaError::ReadOnly);
    device
        .send(&write, &[1; 512])
        .failed(SenseKey::DataProtect, Code::WRITE_PROTECTED);
    device.fault = |_| Some(MediaError::Io);
    device
        .send(&write, &[1; 512])
        .failed(SenseKey::MediumError, Code::WRITE_ERROR);
    device
        .run(&read)
        .failed(SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR);
    device.fault = |_| Some(MediaError::ShortFile);
    device
        .run(&read)
        .failed(SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR);
    device.fault = |_| Some(MediaError::OutOfMemory);
    device
        .send(&write, &[1; 512])
        .failed(SenseKey::AbortedCommand, Code::INSUFFICIENT_RESOURCES);
    device.fault = |_| Some(MediaError::Poisoned);
    device
        .send(&write, &[1; 512])
        .failed(SenseKey::HardwareError, Code::INTERNAL_TARGET_FAILURE);
    device.fault = |_| Some(MediaError::Failed);
    device
        .run(&read)
        .failed(SenseKey::HardwareError, Code::LOGICAL_UNIT_FAILURE);
    device.fault = |_| Some(MediaError::OutOfRange);
    device
        .run(&read)
        .illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    device.fault = |_| None;
    device.send(&write, &[1; 512]).good();
}

#[test]
fn a_failure_in_the_middle_of_a_command_says_whether_it_was_reading_or_writing() {
    let mut device = Device::new(1000);
    device.fault = |operation| operation.writes().then_some(MediaError::Io);
    let or_write = cdb_16(0x8b, 0, 0, 1);
    device
        .send(&or_write, &[1; 512])
        .failed(SenseKey::MediumError, Code::WRITE_ERROR);
    device.fault = |operation| (!operation.writes()).then_some(MediaError::Io);
    device
        .send(&or_write, &[1; 512])
        .failed(SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR);
}

#[test]
fn read_only_volume_refuses_every_write_as_protected() {
    let mut device = Device::with(longshore_scsi::unit::LogicalUnitConfig {
        read_only: true,
        ..config(512, 99)
    });
    for opcode in [
        0x89, 0x8a, 0x8b, 0x8e, 0x93, 0x9c, 0x2a, 0x2e, 0x41, 0x0a, 0xaa, 0xae,
    ] {
        let mut cdb = cdb_16(opcode, 0, 0, 1);
        cdb[4] = 1;
        cdb[15] = 0;
        device
            .send(&cdb, &[0; 1024])
            .failed(SenseKey::DataProtect, Code::WRITE_PROTECTED);
    }
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    device
        .send(&unmap, &[0; 24])
        .failed(SenseKey::DataProtect, Code::WRITE_PROTECTED);
    device.run(&cdb_10(0x28, 0, 0, 1)).good();
}

#[test]
fn verify_without_byte_check_reads_in_chunks_and_takes_no_data() {
    let mut device = Device::new(1 << 16);
    let outcome = device.send(&cdb_16(0x8f, 0, 0, 2000), &[1; 512]).good();
    assert_eq!(outcome.transfer.direction, Direction::None);
    assert_eq!(outcome.operations.len(), 4);
    device.fault = |_| Some(MediaError::Io);
    device
        .run(&cdb_16(0x8f, 0, 0, 1))
        .failed(SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR);
}

#[test]
fn verify_finds_the_first_byte_that_differs() {
    let (mut device, data) = with_data(1100);
    device.send(&cdb_16(0x8f, 0x02, 0, 1100), &data).good();
    for at in [0, 511, 512, 262_143, 262_144, 1100 * 512 - 1] {
        let mut wrong = data.clone();
        wrong[at] ^= 0x58;
        let outcome = device.send(&cdb_16(0x8f, 0x02, 0, 1100), &wrong).failed(
            SenseKey::Miscompare,
            Code::MISCOMPARE_DURING_VERIFY_OPERATION,
        );
        assert_eq!(outcome.sense.unwrap().information, Some(at as u64));
    }
}

#[test]
fn verify_with_bytchk_3_compares_every_block_with_one() {
    let mut device = Device::new(1 << 16);
    let block = pattern(1, 512);
    device.send(&cdb_16(0x93, 0, 10, 700), &block).good();
    let outcome = device.send(&cdb_16(0x8f, 0x06, 10, 700), &block).good();
    assert_eq!(outcome.transfer.length, 512);
    device.blocks.get_mut(&650).unwrap()[3] ^= 1;
    let outcome = device.send(&cdb_16(0x8f, 0x06, 10, 700), &block).failed(
        SenseKey::Miscompare,
        Code::MISCOMPARE_DURING_VERIFY_OPERATION,
    );
    assert_eq!(outcome.sense.unwrap().information, Some(3));
    device
        .send(&cdb_16(0x8f, 0x06, 10, 700), &block[..100])
        .illegal(Code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    device
        .run(&cdb_16(0x8f, 0x04, 10, 700))
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn write_and_verify_is_durable_before_it_is_verified() {
    let mut device = Device::new(1 << 16);
    let data = pattern(4, 512);
    for cdb in [
        cdb_10(0x2e, 0x02, 8, 4).to_vec(),
        cdb_10(0x2e, 0, 8, 4).to_vec(),
        cdb_16(0x8e, 0x02, 8, 4).to_vec(),
        vec![0xae, 0x02, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0],
    ] {
        let outcome = device.send(&cdb, &data).good();
        assert!(matches!(
            outcome.operations[0],
            Operation::Write { fua: true, .. }
        ));
        assert!(matches!(outcome.operations[1], Operation::Read { .. }));
    }
    assert_eq!(device.run(&cdb_10(0x28, 0, 8, 4)).good().data_in, data);
    device
        .send(&cdb_10(0x2e, 0x06, 8, 4), &data)
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn write_and_verify_of_part_of_the_data_leaves_the_rest_alone() {
    let (mut device, data) = with_data(2);
    device.send(&cdb_10(0x2e, 0x02, 0, 2), &[9; 512]).good();
    let now = device.run(&cdb_10(0x28, 0, 0, 2)).good().data_in;
    assert_eq!((&now[..512], &now[512..]), (&[9; 512][..], &data[512..]));
    device.send(&cdb_10(0x2e, 0x02, 0, 1), &[]).good();
}

#[test]
fn compare_and_write_writes_only_what_matches() {
    for blocks in [1, 3, 255] {
        let (mut device, data) = with_data(blocks);
        let mut cdb = cdb_16(0x89, FUA, 0, 0);
        cdb[13] = blocks as u8;
        let new = vec![0x42; data.len()];
        let outcome = device.send(&cdb, &[&data[..], &new].concat()).good();
        assert!(outcome.locked.is_some());
        assert!(matches!(
            outcome.operations.last(),
            Some(Operation::Write { fua: true, .. })
        ));
        assert_eq!(outcome.transfer.length, data.len() as u64 * 2);

        let mut expected = new.clone();
        expected[data.len() - 27] = b'C';
        let outcome = device
            .send(&cdb, &[expected, data.clone()].concat())
            .failed(
                SenseKey::Miscompare,
                Code::MISCOMPARE_DURING_VERIFY_OPERATION,
            );
        assert_eq!(
            outcome.sense.unwrap().information,
            Some(data.len() as u64 - 27)
        );
        assert!(!outcome.operations.iter().any(Operation::writes));
        assert_eq!(
            device
                .run(&cdb_16(0x88, 0, 0, blocks as u32))
                .good()
                .data_in,
            new
        );
    }
}

#[test]
fn compare_and_write_of_incomplete_data_or_too_many_blocks_is_refused() {
    let (mut device, data) = with_data(2);
    let mut cdb = cdb_16(0x89, 0, 0, 0);
    device.run(&cdb).good();
    cdb[13] = 2;
    device
        .send(&cdb, &data)
        .illegal(Code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    let mut small = config(512, 1000);
    small.max_transfer_blocks = 4;
    cdb[13] = 3;
    Device::with(small)
        .send(&cdb, &[0; 3072])
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn or_write_sets_bits_and_clears_none() {
    let (mut device, data) = with_data(700);
    let outcome = device
        .send(&cdb_16(0x8b, FUA, 0, 700), &vec![0x81; 700 * 512])
        .good();
    assert!(outcome.locked.is_some());
    assert!(matches!(
        outcome.operations.last(),
        Some(Operation::Write { fua: true, .. })
    ));
    let now = device.run(&cdb_16(0x88, 0, 0, 700)).good().data_in;
    assert!(
        now.iter()
            .zip(&data)
            .all(|(now, before)| *now == before | 0x81)
    );
}

#[test]
fn write_atomic_is_all_or_nothing() {
    let mut device = Device::new(1000);
    let mut cdb = cdb_16(0x9c, FUA, 3, 256);
    let outcome = device.send(&cdb, &[5; 256 * 512]).good();
    assert!(matches!(
        outcome.operations[..],
        [Operation::Write { fua: true, .. }]
    ));
    assert_eq!(outcome.locked, Some(Extent::new(3, 256)));
    device
        .send(&cdb, &[5; 512])
        .illegal(Code::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT);
    device
        .run(&cdb_16(0x9c, 0, 3, 257))
        .illegal(Code::INVALID_FIELD_IN_CDB);
    // ATOMIC BOUNDARY.
    cdb[11] = 1;
    device
        .send(&cdb, &[5; 256 * 512])
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn write_same_repeats_the_block() {
    let mut device = Device::new(1 << 16);
    let block = pattern(1, 512);
    let outcome = device.send(&cdb_16(0x93, 0, 5, 1300), &block).good();
    assert_eq!(
        (outcome.transfer.length, outcome.operations.len()),
        (512, 3)
    );
    assert!((5..1305).all(|lba| device.blocks[&lba] == block));
    assert_eq!(device.blocks.len(), 1300);
}

#[test]
fn write_same_of_zeros_unmaps_only_if_allowed() {
    let (mut device, _) = with_data(64);
    device.send(&cdb_16(0x93, 0, 0, 8), &[0; 512]).good();
    assert_eq!(device.blocks[&0], [0; 512]);
    device.send(&cdb_16(0x93, 0x08, 8, 8), &[0; 512]).good();
    assert!(!device.blocks.contains_key(&8));
    device.send(&cdb_10(0x41, 0x08, 16, 8), &[0; 512]).good();
    assert!(!device.blocks.contains_key(&16));
    // Anchored: reads as zeros and has space.
    device.send(&cdb_16(0x93, 0x18, 24, 8), &[0; 512]).good();
    assert_eq!(device.blocks[&24], [0; 512]);
    // A block that is not zeros is written, whatever UNMAP says.
    device.send(&cdb_16(0x93, 0x08, 32, 8), &[3; 512]).good();
    assert_eq!(device.blocks[&32], [3; 512]);
}

#[test]
fn write_same_without_data_out_buffer_takes_no_data() {
    let (mut device, _) = with_data(64);
    let outcome = device.run(&cdb_16(0x93, 0x09, 0, 8)).good();
    assert_eq!(outcome.transfer.direction, Direction::None);
    assert!(!device.blocks.contains_key(&0));
    device
        .run(&cdb_10(0x41, 0x01, 0, 8))
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn write_same_of_no_blocks_or_too_many_is_refused() {
    let mut device = Device::new(40_000);
    for blocks in [0, 32_769] {
        device
            .send(&cdb_16(0x93, 0, 0, blocks), &[1; 512])
            .illegal(Code::INVALID_FIELD_IN_CDB);
    }
    device.send(&cdb_16(0x93, 0, 0, 32_768), &[1; 512]).good();
    assert_eq!(device.blocks.len(), 32_768);
}

#[test]
fn more_data_than_one_block_or_two_instances_contradicts_the_cdb() {
    let mut device = Device::new(1000);
    let refused = device.send(&cdb_16(0x93, 0, 0, 1), &[1; 1024]);
    assert!(refused.illegal(Code::INVALID_FIELD_IN_CDB).decided_early);
    for blocks in [0, 1] {
        let mut cdb = cdb_16(0x89, 0, 0, 0);
        cdb[13] = blocks;
        device
            .send(&cdb, &[0; 2048])
            .illegal(Code::INVALID_FIELD_IN_CDB);
    }
    device.send(&cdb_16(0x93, 1, 0, 1), &[1; 1024]).good();
    device.send(&cdb_16(0x8a, 0, 0, 1), &[1; 1024]).good();
}

#[test]
fn write_same_anchor_needs_unmap_and_unmap_needs_a_volume_that_can() {
    let mut device = Device::new(1000);
    device
        .send(&cdb_16(0x93, 0x10, 0, 1), &[0; 512])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    let mut thick = config(512, 1000);
    thick.unmap_granularity_blocks = None;
    let mut device = Device::with(thick);
    device
        .send(&cdb_16(0x93, 0x08, 0, 1), &[0; 512])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    device
        .send(&unmap, &[0; 24])
        .illegal(Code::INVALID_COMMAND_OPERATION_CODE);
}

fn unmap(
    device: &mut Device,
    anchor: bool,
    ranges: &[(u64, u32)],
) -> crate::driver::CommandOutcome {
    let mut list = vec![0; 8];
    let descriptors = (ranges.len() * 16) as u16;
    list[..2].copy_from_slice(&(descriptors + 6).to_be_bytes());
    list[2..4].copy_from_slice(&descriptors.to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let mut cdb = cdb_10(0x42, u8::from(anchor), 0, 0);
    cdb[7..9].copy_from_slice(&(list.len() as u16).to_be_bytes());
    device.send(&cdb, &list)
}

#[test]
fn unmap_deallocates_each_range() {
    let (mut device, _) = with_data(64);
    unmap(&mut device, false, &[(0, 8), (16, 0), (4, 8), (63, 1)]).good();
    assert_eq!(
        device.blocks.keys().copied().collect::<Vec<_>>(),
        (12..63).collect::<Vec<_>>()
    );
    unmap(&mut device, true, &[(12, 1)]).good();
    assert_eq!(device.blocks[&12], [0; 512]);
}

#[test]
fn unmap_checks_every_descriptor_before_the_first_is_carried_out() {
    let (mut device, _) = with_data(64);
    let end = 1 << 16;
    unmap(&mut device, false, &[(0, 8), (end, 1)])
        .illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    unmap(&mut device, false, &[(0, 8), (u64::MAX, 2)])
        .illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    assert_eq!(device.blocks.len(), 64);
    unmap(&mut device, false, &[(end, 0)]).good();
    unmap(&mut device, false, &[]).good();
    unmap(&mut device, false, &[(0, 1); 256]).good();
    unmap(&mut device, false, &[(0, 1); 257]).illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    let mut large = Device::new(1 << 30);
    unmap(&mut large, false, &[(0, 1 << 19), (1 << 20, (1 << 19) + 1)])
        .illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn unmap_with_a_list_that_is_too_short_changes_nothing() {
    let (mut device, _) = with_data(64);
    let cdb = |length: u8| [0x42, 0, 0, 0, 0, 0, 0, 0, length, 0];
    device.run(&cdb(0)).good();
    let list = [
        0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0,
    ];
    for length in [1, 7, 8, 23] {
        device
            .send(&cdb(length), &list)
            .illegal(Code::PARAMETER_LIST_LENGTH_ERROR);
    }
    device
        .send(&cdb(24), &list[..20])
        .illegal(Code::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(device.blocks.len(), 64);
    device.send(&cdb(24), &list).good();
    assert_eq!(device.blocks.len(), 56);
}

#[test]
fn lba_status_lists_runs_from_the_one_asked_for() {
    let (mut device, _) = with_data(64);
    unmap(&mut device, false, &[(8, 8)]).good();
    let mut cdb = cdb_16(0x9e, 0x12, 2, 8 + 3 * 16);
    let data = device.run(&cdb).good().data_in;
    let descriptor = |lba: u8, blocks: u8, state: u8| {
        [0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, state, 0, 0, 0]
    };
    assert_eq!(data[..8], [0, 0, 0, 4 + 3 * 16, 0, 0, 0, 0]);
    assert_eq!(data[8..24], descriptor(2, 6, 0));
    assert_eq!(data[24..40], descriptor(8, 8, 1));
    assert_eq!(data[40..56], descriptor(16, 48, 0));
    // A short allocation length cuts the data, not the answer.
    cdb[13] = 4;
    assert_eq!(device.run(&cdb).good().data_in, [0, 0, 0, 20]);
    device
        .run(&cdb_16(0x9e, 0x12, 1 << 16, 24))
        .illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

#[test]
fn volume_that_knows_no_extents_is_all_mapped() {
    let mut device = Device::new(1 << 40);
    device.fault = |_| Some(MediaError::Unsupported);
    let data = device.run(&cdb_16(0x9e, 0x12, 5, 24)).good().data_in;
    assert_eq!(data[16..21], [0xff, 0xff, 0xff, 0xff, 0]);
    device.fault = |_| Some(MediaError::Io);
    device
        .run(&cdb_16(0x9e, 0x12, 5, 24))
        .failed(SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR);
}

#[test]
fn synchronize_cache_flushes() {
    let mut device = Device::new(1000);
    for cdb in [
        cdb_10(0x35, 0, 0, 0).to_vec(),
        cdb_16(0x91, 0x02, 5, 10).to_vec(),
    ] {
        assert_eq!(device.run(&cdb).good().operations, [Operation::Flush]);
    }
    device.fault = |_| Some(MediaError::Io);
    device
        .run(&cdb_10(0x35, 0, 0, 0))
        .failed(SenseKey::MediumError, Code::WRITE_ERROR);
}

#[test]
fn pre_fetch_of_no_blocks_means_to_the_end() {
    let mut device = Device::new(1000);
    let outcome = device.run(&cdb_10(0x34, 0x02, 990, 0)).good();
    assert!(
        matches!(outcome.operations[..], [Operation::Prefetch { extent }]
        if extent == Extent::new(990, 10))
    );
    let mut cdb = cdb_16(0x90, 0, 0, 4);
    cdb[14] = 3;
    device.run(&cdb).good();
}

#[test]
fn start_stop_unit_flushes_when_it_stops() {
    let mut device = Device::new(1000);
    assert_eq!(
        device.run(&[0x1b, 0, 0, 0, 0, 0]).good().operations,
        [Operation::Flush]
    );
    assert!(
        device
            .run(&[0x1b, 0, 0, 0, 0x04, 0])
            .good()
            .operations
            .is_empty()
    );
    assert!(
        device
            .run(&[0x1b, 1, 0, 0, 1, 0])
            .good()
            .operations
            .is_empty()
    );
    device
        .run(&[0x1b, 0, 0, 0, 0x02, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    device
        .run(&[0x1b, 0, 0, 0, 0x30, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    device.run(&[0x00; 6]).good();
}

#[test]
fn default_self_test_reads_the_medium() {
    let mut device = Device::new(1000);
    let self_test = [0x1d, 0x04, 0, 0, 0, 0];
    assert_eq!(device.run(&self_test).good().operations.len(), 1);
    device.fault = |_| Some(MediaError::Io);
    device
        .run(&self_test)
        .failed(SenseKey::MediumError, Code::UNRECOVERED_READ_ERROR);
    device
        .run(&[0x1d, 0x20, 0, 0, 0, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn volumes_beyond_2_tib_work_at_their_end() {
    let count = (3 << 40) / 4096_u64;
    let mut device = Device::with(config(4096, count));
    let data = pattern(2, 4096);
    device.send(&cdb_16(0x8a, 0, count - 2, 2), &data).good();
    assert_eq!(
        device.run(&cdb_16(0x88, 0, count - 2, 2)).good().data_in,
        data
    );
    let mut big = Device::new(1 << 33);
    assert_eq!(
        big.run(&cdb_10(0x25, 0, 0, 0)).good().data_in,
        [255, 255, 255, 255, 0, 0, 2, 0]
    );
    let data = big.run(&cdb_16(0x9e, 0x10, 0, 32)).good().data_in;
    assert_eq!(data[..8], ((1_u64 << 33) - 1).to_be_bytes());
}

#[test]
fn a_volume_that_shrank_is_out_of_range_from_then_on() {
    let mut device = Device::new(1000);
    device.unit.resize(100);
    device
        .run(&[0; 6])
        .failed(SenseKey::UnitAttention, Code::CAPACITY_DATA_HAS_CHANGED);
    device
        .run(&cdb_10(0x28, 0, 100, 1))
        .illegal(Code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    assert_eq!(
        device.run(&cdb_10(0x25, 0, 0, 0)).good().data_in[..4],
        [0, 0, 0, 99]
    );
}

#[test]
fn sync_nv_is_a_full_flush() {
    let outcome = Device::new(1000).run(&cdb_10(0x35, 0x04, 0, 0)).good();
    assert_eq!(outcome.operations, [Operation::Flush]);
}
