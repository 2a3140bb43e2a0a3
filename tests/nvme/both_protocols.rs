//! One volume over both protocols at the same time.

use std::sync::Barrier;

use longshore_nvme::command::Fuse;
use longshore_nvme::host::commands::{self, DEALLOCATE};
use longshore_nvme::status::Status;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

use crate::{blocks, connect_by, number, pattern, volumes};

const ROUNDS: usize = 300;

fn serve(engine: &str) -> Server {
    volumes()
        .iscsi()
        .nvme()
        .argument("--engine")
        .argument(engine)
        .start()
        .unwrap()
}

fn scsi(server: &Server, isid: u16) -> Initiator {
    Initiator::ready(server.portal(0), &Login::numbered(isid)).unwrap()
}

fn nvme(server: &Server, number: u8) -> Host {
    connect_by(server, &HostOptions::numbered(number))
}

#[test]
fn what_one_protocol_writes_the_other_reads() {
    let server = serve("auto");
    let (mut scsi, mut nvme) = (scsi(&server, 1), nvme(&server, 1));
    for (n, count) in [1_u32, 16, 100, 1024].into_iter().enumerate() {
        let data = pattern(count as usize * 512, n);
        let lba = n as u64 * 4096;
        nvme.write(blocks(lba, count), &data)
            .unwrap()
            .expect_success();
        let length = Data::In(count * 512);
        let read = scsi.command(0, &cdb::read_16(lba, count), length).unwrap();
        assert!(read.is_good());
        assert_eq!(read.data, data);
        let data = pattern(count as usize * 512, n + 50);
        let write = cdb::write_16(lba, count, false);
        assert!(scsi.command(0, &write, Data::Out(&data)).unwrap().is_good());
        let read = nvme.read(blocks(lba, count)).unwrap().expect_success();
        assert_eq!(read.data, data);
    }
    let zeroes = commands::write_zeroes(blocks(0, 1), DEALLOCATE);
    nvme.io(&zeroes, &[]).unwrap().expect_success();
    let read = scsi.command(0, &cdb::read_16(0, 1), Data::In(512)).unwrap();
    assert_eq!(read.data, [0; 512]);
}

#[test]
fn both_protocols_tell_the_same_size_and_identity() {
    let server = serve("auto");
    let (mut scsi, mut nvme) = (scsi(&server, 1), nvme(&server, 1));
    let capacity = scsi.command(0, &cdb::read_capacity_16(), Data::In(32));
    let capacity = capacity.unwrap().data;
    let last = u64::from_be_bytes(capacity[..8].try_into().unwrap());
    assert_eq!(nvme.namespace_size(1).unwrap(), last + 1);
    let identify = nvme.identify(0x00, 1).unwrap();
    let format = usize::from(identify[26] & 0xf);
    assert_eq!(number(&identify, 128 + 4 * format + 2, 1), 9);
}

/// An INQUIRY of a vital product data page, or of the standard data where there is no page.
fn inquiry(scsi: &mut Initiator, lun: u8, page: Option<u8>) -> Vec<u8> {
    let cdb = [0x12, u8::from(page.is_some()), page.unwrap_or(0), 0, 255, 0];
    let mut padded = [0; 16];
    padded[..6].copy_from_slice(&cdb);
    let answer = scsi.command(lun, &padded, Data::In(255)).unwrap();
    assert!(answer.is_good());
    answer.data
}

/// Bytes of a physical block, as each protocol tells them.
fn physical_blocks(scsi: &mut Initiator, nvme: &mut Host, lun: u8) -> [u64; 2] {
    scsi.become_ready(lun).unwrap();
    let capacity = scsi.command(lun, &cdb::read_capacity_16(), Data::In(32));
    let capacity = capacity.unwrap().data;
    let block = u64::from(u32::from_be_bytes(capacity[8..12].try_into().unwrap()));
    let identify = nvme.identify(0x00, u32::from(lun) + 1).unwrap();
    let preferred = number(&identify, 64, 2) + 1;
    assert_eq!(preferred, number(&identify, 72, 2) + 1, "NOWS as NPWG");
    [block << (capacity[13] & 0xf), block * preferred]
}

#[test]
fn both_protocols_tell_the_same_physical_block() {
    let server = ServerBuilder::new()
        .volume("usual,backend=mem,size=1M")
        .volume("small,backend=mem,size=1M,physical-block-size=512")
        .volume("large,backend=mem,size=1M,physical-block-size=16K")
        .volume("whole,backend=mem,size=1M,block-size=4096")
        .iscsi()
        .nvme()
        .start()
        .unwrap();
    let (mut scsi, mut nvme) = (scsi(&server, 1), nvme(&server, 1));
    for (lun, expected) in [4096, 512, 16_384, 4096].into_iter().enumerate() {
        let lun = u8::try_from(lun).unwrap();
        assert_eq!(
            physical_blocks(&mut scsi, &mut nvme, lun),
            [expected; 2],
            "{lun}"
        );
    }
}

#[test]
fn a_disk_that_moves_here_keeps_its_identity() {
    let server = ServerBuilder::new()
        .iscsi()
        .nvme()
        .config(
            "[[volume]]\nname = \"a\"\nbackend = \"mem\"\nsize = \"1M\"\n\
             vendor = \"LIO-ORG\"\nproduct = \"block1\"\n\
             serial = \"7f0b5e0a-9a0b-4a1e-8a51-5e3c1a2b3c4d\"\n\
             naa = \"naa.60014057f0b5e0a9a0b4a1e8a515e3c1\"\n",
        )
        .volume("b,backend=mem,size=1M,naa=0x5001405AAAABBBBB")
        .volume("c,backend=mem,size=1M,nguid=none,eui64=eui.0011223344556677")
        .start()
        .unwrap();
    let (mut scsi, mut nvme) = (scsi(&server, 1), nvme(&server, 1));
    assert_eq!(
        inquiry(&mut scsi, 0, None)[8..32],
        *b"LIO-ORG block1          "
    );
    let serial = inquiry(&mut scsi, 0, Some(0x80));
    assert_eq!(serial[4..], *b"7f0b5e0a-9a0b-4a1e-8a51-5e3c1a2b3c4d");
    let names = inquiry(&mut scsi, 0, Some(0x83));
    let naa = 0x6001_4057_f0b5_e0a9_a0b4_a1e8_a515_e3c1_u128.to_be_bytes();
    assert_eq!(names[4..8], [0x01, 0x03, 0, 16]);
    assert_eq!(names[8..24], naa);
    let nguid = 0xa0b4_a1e8_a515_e3c1_0014_0507_f0b5_e0a9_u128.to_be_bytes();
    assert_eq!(nvme.identify(0x00, 1).unwrap()[104..120], nguid);

    let names = inquiry(&mut scsi, 1, Some(0x83));
    assert_eq!(names[8..16], 0x5001_405a_aaab_bbbb_u64.to_be_bytes());
    let identify = nvme.identify(0x00, 2).unwrap();
    assert_eq!(identify[120..128], 0x0014_050a_aaab_bbbb_u64.to_be_bytes());

    let eui64 = 0x0011_2233_4455_6677_u64.to_be_bytes();
    let identify = nvme.identify(0x00, 3).unwrap();
    assert_eq!(identify[104..120], [0; 16], "NGUID");
    assert_eq!(identify[120..128], eui64);
    let descriptors = nvme.identify(0x03, 3).unwrap();
    assert_eq!(descriptors[..4], [1, 8, 0, 0]);
    assert_eq!(descriptors[4..12], eui64);
    assert_eq!(
        descriptors[12..16],
        [3, 16, 0, 0],
        "no NGUID, then the UUID"
    );
    let names = inquiry(&mut scsi, 2, Some(0x83));
    assert!(names.windows(8).any(|window| window == eui64));
}

#[test]
fn a_write_through_volume_has_no_write_cache_over_either_protocol() {
    let scratch = Scratch::new("write-through");
    let path = scratch.path().join("disk");
    let caching = |server: &Server| {
        let mut scsi = scsi(server, 1);
        let sense = [0x1a, 0x08, 0x08, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let page = scsi.command(0, &sense, Data::In(255)).unwrap().data;
        assert_eq!(page[4] & 0x3f, 0x08, "the caching mode page");
        let wce = page[6] & 0x04 != 0;
        let vwc = nvme(server, 1).identify(0x01, 0).unwrap()[525] & 1 != 0;
        let write = cdb::write_16(8, 8, false);
        let data = pattern(8 * 512, 3);
        assert!(scsi.command(0, &write, Data::Out(&data)).unwrap().is_good());
        let read = scsi.command(0, &cdb::read_16(8, 8), Data::In(8 * 512));
        assert_eq!(read.unwrap().data, data);
        (wce, vwc)
    };
    for (option, cached) in [
        ("", true),
        (",write-through", false),
        (",write-through=no", true),
    ] {
        let volume = format!("a,backend=file,path={},size=1M{option}", path.display());
        let server = ServerBuilder::new().volume(&volume).iscsi().nvme();
        assert_eq!(
            caching(&server.start().unwrap()),
            (cached, cached),
            "{option}"
        );
    }
}

/// A block whose first bytes say which value it is.
fn block(value: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..8].copy_from_slice(&value.to_le_bytes());
    block[504..].copy_from_slice(&value.to_le_bytes());
    block
}

/// COMPARE AND WRITE of one block. Whether it was written.
fn scsi_compare_and_write(scsi: &mut Initiator, lba: u64, old: u64, new: u64) -> bool {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = 1;
    let data = [block(old), block(new)].concat();
    let answer = scsi.command(0, &cdb, Data::Out(&data)).unwrap();
    if answer.is_good() {
        return true;
    }
    let miscompare = (0xe, 0x1d, 0);
    assert_eq!(answer.sense_code(), Some(miscompare), "{answer:?}");
    false
}

/// Compare and Write, fused, of one block. Whether it was written.
fn nvme_compare_and_write(nvme: &mut Host, lba: u64, old: u64, new: u64) -> bool {
    let at = blocks(lba, 1);
    let mut compare = commands::compare(at);
    compare.entry.set_fuse(Fuse::First);
    let mut write = commands::write(at, 0);
    write.entry.set_fuse(Fuse::Second);
    let queue = &mut nvme.queues[0];
    let compare = queue.prepare(&compare, &block(old)).unwrap();
    let write = queue.prepare(&write, &block(new)).unwrap();
    let compare = queue.wait(compare).unwrap();
    let write = queue.wait(write).unwrap();
    if compare.is_success() {
        write.expect_success();
        return true;
    }
    assert_eq!(compare.code(), Status::COMPARE_FAILURE);
    assert_eq!(write.code(), Status::ABORTED_FAILED_FUSED);
    false
}

/// One who takes part in a race.
enum Racer {
    Scsi(Initiator),
    Nvme(Box<Host>),
}

impl Racer {
    fn compare_and_write(&mut self, lba: u64, old: u64, new: u64) -> bool {
        match self {
            Self::Scsi(scsi) => scsi_compare_and_write(scsi, lba, old, new),
            Self::Nvme(nvme) => nvme_compare_and_write(nvme, lba, old, new),
        }
    }
}

#[test]
fn of_those_who_compare_and_write_at_once_exactly_one_wins() {
    for engine in ["io_uring", "epoll"] {
        let server = serve(engine);
        let racers = [
            Racer::Scsi(scsi(&server, 1)),
            Racer::Nvme(Box::new(nvme(&server, 1))),
            Racer::Scsi(scsi(&server, 2)),
            Racer::Nvme(Box::new(nvme(&server, 2))),
        ];
        let barrier = Barrier::new(racers.len());
        // For each racer, the rounds it won: each sees what the last round left.
        let won: Vec<Vec<bool>> = std::thread::scope(|scope| {
            let threads: Vec<_> = racers
                .into_iter()
                .enumerate()
                .map(|(number, racer)| {
                    let (barrier, server) = (&barrier, &server);
                    scope.spawn(move || race(racer, number, barrier, server))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for round in 0..ROUNDS {
            let winners = won.iter().filter(|rounds| rounds[round]).count();
            assert_eq!(winners, 1, "{engine}, round {round}");
        }
        let by: Vec<usize> = won
            .iter()
            .map(|rounds| rounds.iter().filter(|won| **won).count())
            .collect();
        println!("{engine}: rounds won by each {by:?}");
    }
}

/// Runs all rounds of one racer: in each, all want to replace the same value by one of their own.
fn race(mut racer: Racer, number: usize, barrier: &Barrier, server: &Server) -> Vec<bool> {
    let mut eye = nvme(server, 100 + u8::try_from(number).unwrap());
    let mut won = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let lba = round as u64 % 3;
        let now = eye.read(blocks(lba, 1)).unwrap().expect_success().data;
        let old = u64::from_le_bytes(now[..8].try_into().unwrap());
        assert_eq!(now, block(old), "half of a write");
        let new = (round as u64 + 1) * 16 + number as u64;
        barrier.wait();
        won.push(racer.compare_and_write(lba, old, new));
        barrier.wait();
        let now = eye.read(blocks(lba, 1)).unwrap().expect_success().data;
        let left = u64::from_le_bytes(now[..8].try_into().unwrap());
        assert_eq!(left == new, won[round], "round {round}");
        barrier.wait();
    }
    won
}

#[test]
fn of_two_writes_to_the_same_blocks_each_block_is_wholly_one() {
    let scratch = Scratch::new("both-protocols");
    let server = ServerBuilder::new()
        .volume(&format!(
            "disk0,backend=file,path={},size=16M",
            scratch.join("disk0.img").display()
        ))
        .iscsi()
        .nvme()
        .start()
        .unwrap();
    let (mut scsi, mut nvme) = (scsi(&server, 1), nvme(&server, 1));
    for round in 0..200_u64 {
        let (even, odd) = (round * 2, round * 2 + 1);
        let data = |value| (0..64).flat_map(|_| block(value)).collect::<Vec<u8>>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let write = cdb::write_16(0, 64, false);
                let answer = scsi.command(0, &write, Data::Out(&data(even))).unwrap();
                assert!(answer.is_good());
            });
            let answer = nvme.write(blocks(0, 64), &data(odd)).unwrap();
            answer.expect_success();
        });
        let read = nvme.read(blocks(0, 64)).unwrap().expect_success();
        for chunk in read.data.chunks(512) {
            let value = u64::from_le_bytes(chunk[..8].try_into().unwrap());
            assert!(value == even || value == odd, "a write got lost");
            assert!(chunk == block(value), "a block of both");
        }
    }
}
