//! Commands of the NVM command set.

use longshore_block::extent::Lba;
use longshore_nvme::command::{Fuse, NamespaceId};
use longshore_nvme::host::commands::{
    self, Blocks, DEALLOCATE, FORCE_UNIT_ACCESS, ranges, sources,
};
use longshore_nvme::host::{Command, Transfer};
use longshore_nvme::opcode::{Opcode, io};
use longshore_nvme::status::Status;
use longshore_tests::nvme::{Answer, Host};

use crate::{ONE, TWO, blocks, connect, number, pattern, serve};

#[test]
fn what_was_written_is_read_back_in_capsules_and_by_r2ts() {
    let server = serve();
    let mut host = connect(&server);
    for (n, count) in [1, 8, 16, 17, 256, 2048].into_iter().enumerate() {
        let at = blocks(n as u64 * 4096, count);
        let data = pattern(count as usize * 512, n);
        let before = host.queues[0].r2ts_seen;
        host.write(at, &data).unwrap().expect_success();
        let asked = host.queues[0].r2ts_seen > before;
        assert_eq!(asked, count > 16, "8 KiB go in the capsule");
        let read = host.read(at).unwrap().expect_success();
        assert_eq!(read.data, data, "{count} blocks");
    }
}

#[test]
fn ranges_beyond_the_end_are_refused_for_good() {
    let server = serve();
    let mut host = connect(&server);
    let end = 64 << 11;
    for at in [blocks(end, 1), blocks(end - 1, 2), blocks(u64::MAX, 1)] {
        for command in [
            commands::read(at),
            commands::write(at, 0),
            commands::compare(at),
            commands::write_zeroes(at, 0),
            commands::verify(at),
        ] {
            let data = vec![0; at.bytes() as usize];
            let answer = host.io(&command, &data).unwrap();
            assert_eq!(answer.code(), Status::LBA_OUT_OF_RANGE, "{command:?}");
            assert!(answer.status.is_final(), "{command:?}");
        }
    }
    host.read(blocks(end - 1, 1)).unwrap().expect_success();
}

#[test]
fn namespaces_that_are_not_there_are_invalid() {
    let server = serve();
    let mut host = connect(&server);
    let identify = host.identify(0x01, 0).unwrap();
    let largest = u32::try_from(number(&identify, 516, 4)).unwrap();
    let invalid = Status::INVALID_NAMESPACE_OR_FORMAT;
    let mut wrong = vec![(0, invalid), (largest + 1, invalid), (u32::MAX, invalid)];
    if largest > 2 {
        // Inactive ones.
        wrong.extend([(3, Status::INVALID_FIELD), (largest, Status::INVALID_FIELD)]);
    }
    for (namespace, status) in wrong {
        let at = Blocks {
            namespace: NamespaceId(namespace),
            ..blocks(0, 1)
        };
        let answer = host.read(at).unwrap();
        assert_eq!(answer.code(), status, "namespace {namespace}");
    }
}

#[test]
fn an_unknown_opcode_is_invalid() {
    let server = serve();
    let mut host = connect(&server);
    for opcode in [0x03, 0x7c, 0xc0] {
        let answer = host.io(&Command::new(Opcode(opcode), ONE), &[]).unwrap();
        assert_eq!(answer.code(), Status::INVALID_COMMAND_OPCODE, "{opcode:#x}");
    }
}

#[test]
fn a_transfer_that_differs_from_the_blocks_is_refused() {
    let server = serve();
    let mut host = connect(&server);
    let write = commands::write(blocks(0, 4), 0).with(Transfer::ToController(512));
    let answer = host.io(&write, &[1; 512]).unwrap();
    assert!(
        !answer.is_success(),
        "a write of four blocks with data of one"
    );
    let read = host.read(blocks(0, 4)).unwrap().expect_success();
    assert_eq!(read.data, [0; 2048]);
}

#[test]
fn compare_tells_equal_from_different() {
    let server = serve();
    let mut host = connect(&server);
    for count in [1, 64] {
        let at = blocks(100, count);
        let mut data = pattern(count as usize * 512, 3);
        host.write(at, &data).unwrap().expect_success();
        let compare = commands::compare(at);
        host.io(&compare, &data).unwrap().expect_success();
        *data.last_mut().unwrap() ^= 1;
        let answer = host.io(&compare, &data).unwrap();
        assert_eq!(answer.code(), Status::COMPARE_FAILURE);
    }
}

/// Compare and Write, fused, of one block.
fn compare_and_write(host: &mut Host, lba: u64, old: &[u8], new: &[u8]) -> (Answer, Answer) {
    let at = blocks(lba, 1);
    let mut compare = commands::compare(at);
    compare.entry.set_fuse(Fuse::First);
    let mut write = commands::write(at, 0);
    write.entry.set_fuse(Fuse::Second);
    let queue = &mut host.queues[0];
    let compare = queue.prepare(&compare, old).unwrap();
    let write = queue.prepare(&write, new).unwrap();
    (queue.wait(compare).unwrap(), queue.wait(write).unwrap())
}

#[test]
fn a_fused_pair_writes_only_over_what_it_expects() {
    let server = serve();
    let mut host = connect(&server);
    let (compare, write) = compare_and_write(&mut host, 5, &[0; 512], &[1; 512]);
    compare.expect_success();
    write.expect_success();
    let (compare, write) = compare_and_write(&mut host, 5, &[0; 512], &[2; 512]);
    assert_eq!(compare.code(), Status::COMPARE_FAILURE);
    assert_eq!(write.code(), Status::ABORTED_FAILED_FUSED);
    let read = host.read(blocks(5, 1)).unwrap().expect_success();
    assert_eq!(read.data, [1; 512]);
}

#[test]
fn half_a_fused_pair_is_aborted() {
    let server = serve();
    let mut host = connect(&server);
    let mut compare = commands::compare(blocks(0, 1));
    compare.entry.set_fuse(Fuse::First);
    let queue = &mut host.queues[0];
    let half = queue.prepare(&compare, &[0; 512]).unwrap();
    let read = queue.start(&commands::read(blocks(0, 1)), &[]).unwrap();
    let half = queue.wait(half).unwrap();
    assert_eq!(half.code(), Status::ABORTED_MISSING_FUSED);
    queue.wait(read).unwrap().expect_success();
    let mut write = commands::write(blocks(0, 1), 0);
    write.entry.set_fuse(Fuse::Second);
    let answer = queue.run(&write, &[9; 512]).unwrap();
    assert_eq!(answer.code(), Status::ABORTED_MISSING_FUSED);
    let read = host.read(blocks(0, 1)).unwrap().expect_success();
    assert_eq!(read.data, [0; 512]);
}

#[test]
fn zeroes_and_deallocated_blocks_read_as_zeros() {
    let server = serve();
    let mut host = connect(&server);
    let whole = blocks(0, 64);
    host.write(whole, &[7; 32_768]).unwrap().expect_success();
    let zeroes = commands::write_zeroes(blocks(8, 8), 0);
    host.io(&zeroes, &[]).unwrap().expect_success();
    let zeroes = commands::write_zeroes(blocks(24, 8), DEALLOCATE | FORCE_UNIT_ACCESS);
    host.io(&zeroes, &[]).unwrap().expect_success();
    let list = [(Lba(40), 8), (Lba(56), 8)];
    let deallocate = commands::deallocate(ONE, list.len());
    host.io(&deallocate, &ranges(&list))
        .unwrap()
        .expect_success();
    let read = host.read(whole).unwrap().expect_success();
    for (n, chunk) in read.data.chunks(8 * 512).enumerate() {
        let expected = if n % 2 == 0 { 7 } else { 0 };
        assert!(chunk.iter().all(|byte| *byte == expected), "chunk {n}");
    }
}

#[test]
fn copy_gathers_its_sources() {
    let server = serve();
    let mut host = connect(&server);
    let data = pattern(32 * 512, 5);
    host.write(blocks(0, 32), &data).unwrap().expect_success();
    let list = [(Lba(16), 8), (Lba(0), 4)];
    let copy = commands::copy(ONE, Lba(1000), list.len());
    host.io(&copy, &sources(&list)).unwrap().expect_success();
    let read = host.read(blocks(1000, 12)).unwrap().expect_success();
    assert_eq!(read.data[..8 * 512], data[16 * 512..24 * 512]);
    assert_eq!(read.data[8 * 512..], data[..4 * 512]);
}

#[test]
fn flush_verify_and_forced_unit_access_succeed() {
    let server = serve();
    let mut host = connect(&server);
    let write = commands::write(blocks(3, 1), FORCE_UNIT_ACCESS);
    host.io(&write, &[3; 512]).unwrap().expect_success();
    for command in [
        commands::flush(ONE),
        commands::flush(TWO),
        commands::verify(blocks(0, 128)),
    ] {
        host.io(&command, &[]).unwrap().expect_success();
    }
}

#[test]
fn blocks_of_4_kib_are_counted_as_such() {
    let server = serve();
    let mut host = connect(&server);
    let at = Blocks {
        namespace: TWO,
        lba: Lba((1 << 28) - 2),
        count: 2,
        block_bytes: 4096,
    };
    host.write(at, &[1; 8192]).unwrap().expect_success();
    let read = host.read(at).unwrap().expect_success();
    assert_eq!(read.data, [0; 8192], "a null volume reads as zeros");
    let beyond = Blocks { count: 3, ..at };
    let answer = host.read(beyond).unwrap();
    assert_eq!(answer.code(), Status::LBA_OUT_OF_RANGE);
}

#[test]
fn the_longest_transfer_is_served_and_a_longer_one_refused() {
    let server = serve();
    let mut host = connect(&server);
    let identify = host.identify(0x01, 0).unwrap();
    let mdts = identify[77];
    if mdts == 0 {
        let answer = host.read(blocks(0, 65_536)).unwrap().expect_success();
        assert_eq!(answer.data.len(), 32 << 20);
        return;
    }
    let most = (4096_u32 << mdts) / 512;
    let data = pattern(most as usize * 512, 11);
    host.write(blocks(0, most), &data).unwrap().expect_success();
    let read = host.read(blocks(0, most)).unwrap().expect_success();
    assert_eq!(read.data, data);
    if most < 65_536 {
        let answer = host.read(blocks(0, most + 1)).unwrap();
        assert_eq!(answer.code(), Status::INVALID_FIELD);
    }
}

#[test]
fn write_uncorrectable_is_not_supported() {
    let server = serve();
    let mut host = connect(&server);
    let command = Command::new(io::WRITE_UNCORRECTABLE, ONE);
    let answer = host.io(&command, &[]).unwrap();
    assert_eq!(answer.code(), Status::INVALID_COMMAND_OPCODE);
}
