//! Reads whose data the server sends by reference, over both protocols: the bytes, the digests, and peers that are slow.

use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::thread;
use std::time::Duration;

use longshore_nvme::host::commands::Blocks;
use longshore_reactor::PagePipe;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{self, Host, HostOptions};
use longshore_tests::pdu::opcode;
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use longshore_tests::skip::skip;
use serde_json::Value;

const LENGTH: usize = 8 << 20;
const ENGINES: [&str; 2] = ["io_uring", "epoll"];

/// No two blocks alike.
fn pattern() -> Vec<u8> {
    (0..LENGTH)
        .map(|i| u8::try_from((i * 11 + (i >> 9) * 17) % 251).unwrap())
        .collect()
}

fn builder(scratch: &Scratch, engine: &str) -> ServerBuilder {
    let path = scratch.join("data");
    std::fs::write(&path, pattern()).unwrap();
    let everybody = Permissions::from_mode;
    std::fs::set_permissions(&path, everybody(0o666)).unwrap();
    std::fs::set_permissions(scratch.path(), everybody(0o777)).unwrap();
    let builder = ServerBuilder::new()
        .volume(&format!("d,backend=file,path={}", path.display()))
        .iscsi()
        .nvme()
        .reports_to(scratch);
    let options = ["--engine", engine, "--splice", "always"];
    options.into_iter().fold(builder, ServerBuilder::argument)
}

fn serve(scratch: &Scratch, engine: &str) -> Server {
    builder(scratch, engine).start().unwrap()
}

/// Counters of the server.
fn total(server: &Server, scratch: &Scratch) -> Value {
    report::of(server, scratch)["total"].take()
}

/// Pages were sent by reference, unless the kernel cannot: cachestat(2) came with Linux 6.5, and sandboxes may
/// refuse it. A kernel that is short of memory may have dropped the pages of the file when the test read them;
/// then a read right after they were brought back has to do.
fn assert_spliced(server: &Server, scratch: &Scratch) {
    let file = File::open(scratch.join("data")).unwrap();
    file.read_exact_at(&mut [0; 4096], 0).unwrap();
    let taken = PagePipe::new(16).and_then(|mut pipe| pipe.take(&file, 0, 4096));
    if !matches!(taken, Ok(true)) {
        skip(format!(
            "no pages can be taken out of the page cache here: {taken:?}"
        ));
        return;
    }
    let mut host = scsi(server, false);
    for _ in 0..100 {
        if total(server, scratch)["spliced_bytes"].as_u64() > Some(0) {
            return;
        }
        file.read_exact_at(&mut [0; 64 << 10], 0).unwrap();
        read_scsi(&mut host, 0, 64 << 10);
    }
    panic!("{}", total(server, scratch));
}

fn blocks(bytes: usize) -> u32 {
    u32::try_from(bytes / 512).unwrap()
}

fn nvme_blocks(offset: usize, length: usize) -> Blocks {
    nvme::blocks(blocks(offset).into(), blocks(length))
}

fn scsi(server: &Server, data_digest: bool) -> Initiator {
    let login = Login {
        data_digest,
        ..Login::numbered(1)
    };
    Initiator::ready(server.portal(0), &login).unwrap()
}

fn read_scsi(host: &mut Initiator, offset: usize, length: usize) -> Vec<u8> {
    let cdb = cdb::read_16(u64::from(blocks(offset)), blocks(length));
    let length = Data::In(u32::try_from(length).unwrap());
    let answer = host.command(0, &cdb, length).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    answer.data
}

/// The data of so many reads by their tags, in whatever order they are answered.
fn receive_all(host: &mut Initiator, reads: usize, pause: Duration) -> HashMap<u32, Vec<u8>> {
    let mut answers: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut ended = 0;
    while ended < reads {
        thread::sleep(pause);
        let pdu = host.receive().unwrap();
        host.adopt_numbers(&pdu);
        assert_eq!(pdu.opcode(), opcode::DATA_IN);
        let data = answers.entry(pdu.initiator_task_tag()).or_default();
        data.extend_from_slice(&pdu.data);
        let (has_status, status) = (pdu.bhs[1] & 1 != 0, pdu.bhs[3]);
        assert!(!has_status || status == 0);
        ended += usize::from(has_status);
    }
    answers
}

const READS: [(usize, usize); 6] = [
    (0, 1 << 20),
    (512, 64 << 10),
    (1536, 1 << 20),
    (4096, 32 << 10),
    (LENGTH - (100 << 10), 100 << 10),
    (1 << 20, 256 << 10),
];

#[test]
fn both_protocols_read_what_the_file_holds() {
    let scratch = Scratch::new("copies");
    let expected = pattern();
    for engine in ENGINES {
        let server = serve(&scratch, engine);
        for data_digest in [false, true] {
            let mut scsi = scsi(&server, data_digest);
            let options = HostOptions::numbered(1).digests(data_digest, data_digest);
            let mut nvme = Host::connect(server.nvme(0), &options).unwrap();
            for (offset, length) in READS {
                let wanted = &expected[offset..offset + length];
                assert!(read_scsi(&mut scsi, offset, length) == wanted, "{offset}");
                let answer = nvme.read(nvme_blocks(offset, length)).unwrap();
                assert!(answer.expect_success().data == wanted, "{offset}");
            }
        }
        // What a digest covers goes out of buffers, the rest as pages.
        assert_spliced(&server, &scratch);
    }
}

#[test]
fn what_one_connection_writes_the_other_reads_at_once() {
    let scratch = Scratch::new("copies");
    let server = serve(&scratch, "auto");
    let mut scsi = scsi(&server, false);
    let mut nvme = Host::connect(server.nvme(0), &HostOptions::numbered(1)).unwrap();
    for round in 1..=50 {
        let data = vec![round; 256 << 10];
        let write = cdb::write_16(0, 512, false);
        assert!(scsi.command(0, &write, Data::Out(&data)).unwrap().is_good());
        let answer = nvme.read(nvme_blocks(0, 256 << 10)).unwrap();
        assert!(answer.expect_success().data == data, "{round}");
    }
    assert_spliced(&server, &scratch);
}

#[test]
fn a_slow_peer_gets_all_of_it_in_small_pieces() {
    let scratch = Scratch::new("copies");
    let expected = pattern();
    for engine in ENGINES {
        let server = serve(&scratch, engine);
        let mut host = scsi(&server, false);
        rustix::net::sockopt::set_socket_recv_buffer_size(host.stream(), 64 << 10).unwrap();
        let lengths = [256 << 10, 64 << 10, 512, 128 << 10, 32 << 10, 4096];
        let mut offset = 0;
        let mut reads = Vec::new();
        for length in lengths {
            let cdb = cdb::read_16(u64::from(blocks(offset)), blocks(length));
            let pdu = host.command_pdu(0, &cdb, Data::In(u32::try_from(length).unwrap()));
            host.send(&pdu).unwrap();
            reads.push((pdu.initiator_task_tag(), offset, length));
            offset += length;
        }
        let pause = Duration::from_millis(2);
        let mut answers = receive_all(&mut host, reads.len(), pause);
        for (tag, offset, length) in reads {
            let data = answers.remove(&tag).unwrap();
            assert!(data == expected[offset..offset + length], "{offset}");
        }
        assert_spliced(&server, &scratch);
    }
}

#[test]
fn an_ordinary_user_reads_by_reference_too() {
    let scratch = Scratch::new("copies");
    let expected = pattern();
    let server = builder(&scratch, "auto").as_ordinary_user(64 << 10).start();
    let server = server.unwrap();
    let mut host = scsi(&server, false);
    // More at a time than there are pipes.
    let reads: Vec<u32> = (0..64)
        .map(|n| {
            let cdb = cdb::read_16(n % 8 * 2048, 2048);
            let pdu = host.command_pdu(0, &cdb, Data::In(1 << 20));
            host.send(&pdu).unwrap();
            pdu.initiator_task_tag()
        })
        .collect();
    let mut answers = receive_all(&mut host, reads.len(), Duration::ZERO);
    for (n, tag) in reads.into_iter().enumerate() {
        let start = (n % 8) << 20;
        assert!(
            answers.remove(&tag).unwrap() == expected[start..start + (1 << 20)],
            "{n}"
        );
    }
    assert_spliced(&server, &scratch);
}
