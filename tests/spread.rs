//! Large reads and writes of one connection that are made on other cores than that of its event loop.

use std::thread;
use std::time::{Duration, Instant};

use longshore_nvme::host::commands;
use longshore_reactor::affinity;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::Value;

const ENGINES: [&str; 2] = ["io_uring", "epoll"];
const LIMIT: Duration = Duration::from_secs(30);
const LENGTH: usize = 256 << 10;
const BLOCKS: u32 = 512;

/// A server with a file, which the page cache holds, and two event loops if there are two cores.
fn start(scratch: &Scratch, engine: &str, spread: &str) -> Server {
    let path = scratch.join("disk");
    std::fs::write(&path, vec![1; 4 << 20]).unwrap();
    let cores = affinity::allowed_cores().unwrap();
    let cores: Vec<String> = cores.iter().take(2).map(usize::to_string).collect();
    let arguments = [
        ["--engine", engine],
        ["--cores", &cores.join(",")],
        ["--spread", spread],
    ];
    let builder = ServerBuilder::new()
        .volume(&format!("d,backend=file,path={}", path.display()))
        .iscsi()
        .nvme()
        .reports_to(scratch);
    let arguments = arguments.into_iter().flatten();
    arguments
        .fold(builder, ServerBuilder::argument)
        .start()
        .unwrap()
}

fn pattern(round: usize) -> Vec<u8> {
    let byte = |at: usize| (round * 31 + at * 7 + (at >> 9) * 13) % 251;
    (0..LENGTH)
        .map(|at| u8::try_from(byte(at)).unwrap())
        .collect()
}

/// Operations that other cores made, all event loops together.
fn handed_over(server: &Server, scratch: &Scratch) -> u64 {
    let report = report::of(server, scratch);
    let shards = report["shards"].as_array().unwrap();
    let counts = shards.iter().map(|shard| &shard["engine"]["handed_over"]);
    counts.map(|count| count.as_u64().unwrap()).sum()
}

/// Writes and reads back, until other cores have made as many operations as that.
fn rounds(server: &Server, scratch: &Scratch, wanted: u64, mut round: impl FnMut(&[u8])) {
    let deadline = Instant::now() + LIMIT;
    for number in 0.. {
        round(&pattern(number));
        if number % 16 == 15 {
            let handed_over = handed_over(server, scratch);
            if handed_over >= wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{handed_over} of {wanted}");
        }
    }
}

fn scsi_round(host: &mut Initiator, data: &[u8]) {
    let write = cdb::write_16(8, BLOCKS, false);
    let answer = host.command(0, &write, Data::Out(data)).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    let wanted = Data::In(u32::try_from(LENGTH).unwrap());
    let answer = host.command(0, &cdb::read_16(8, BLOCKS), wanted).unwrap();
    assert!(answer.is_good() && answer.data == data);
}

#[test]
fn sessions_get_what_they_wrote_whoever_copies_it() {
    for engine in ENGINES {
        let scratch = Scratch::new("spread");
        let server = start(&scratch, engine, "always");
        for data_digest in [false, true] {
            let login = Login {
                data_digest,
                ..Login::numbered(1)
            };
            let mut host = Initiator::ready(server.portal(0), &login).unwrap();
            let wanted = handed_over(&server, &scratch) + 32;
            rounds(&server, &scratch, wanted, |data| {
                scsi_round(&mut host, data);
            });
        }
        assert!(server.stop(LIMIT).unwrap().success());
    }
}

#[test]
fn queues_of_hosts_get_what_they_wrote_whoever_copies_it() {
    for engine in ENGINES {
        let scratch = Scratch::new("spread");
        let server = start(&scratch, engine, "always");
        let options = HostOptions::numbered(1).queues(1);
        let mut host = Host::connect(server.nvme(0), &options).unwrap();
        let blocks = blocks(8, BLOCKS);
        rounds(&server, &scratch, 32, |data| {
            host.io(&commands::write(blocks, 0), data)
                .unwrap()
                .expect_success();
            let answer = host.io(&commands::read(blocks), &[]).unwrap();
            assert!(answer.expect_success().data == data);
        });
        assert!(server.stop(LIMIT).unwrap().success());
    }
}

#[test]
fn memory_comes_back_from_other_cores_when_sessions_end_meanwhile() {
    for engine in ENGINES {
        let scratch = Scratch::new("spread");
        let server = start(&scratch, engine, "always");
        let mut host = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
        rounds(&server, &scratch, 1, |data| scsi_round(&mut host, data));
        for number in 2..12 {
            let mut leaving = Initiator::ready(server.portal(0), &Login::numbered(number)).unwrap();
            let wanted = Data::In(u32::try_from(LENGTH).unwrap());
            for _ in 0..16 {
                let read = leaving.command_pdu(0, &cdb::read_16(8, BLOCKS), wanted);
                leaving.send(&read).unwrap();
            }
        }
        let deadline = Instant::now() + LIMIT;
        loop {
            let memory: Value = report::of(&server, &scratch)["memory"].take();
            let idle = memory["requests"] == 0 && memory["used_bytes"] == memory["kept_bytes"];
            if idle && memory["connections"] == 1 {
                break;
            }
            assert!(Instant::now() < deadline, "{memory}");
            thread::sleep(Duration::from_millis(10));
        }
        scsi_round(&mut host, &pattern(77));
        assert!(server.stop(LIMIT).unwrap().success());
    }
}

#[test]
fn operations_stay_where_that_was_asked_for() {
    let scratch = Scratch::new("spread");
    let server = start(&scratch, "auto", "off");
    let mut host = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let until = Instant::now() + Duration::from_millis(500);
    for number in 0.. {
        scsi_round(&mut host, &pattern(number));
        if Instant::now() >= until {
            break;
        }
    }
    assert_eq!(handed_over(&server, &scratch), 0);
    assert!(server.stop(LIMIT).unwrap().success());
}
