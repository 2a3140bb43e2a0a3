//! Volumes with O_DIRECT: write data lie where it can take them from, however they came, so that nothing is copied for the
//! sake of alignment; and their memory is registered with the ring.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use longshore_block::extent::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::Blocks;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use longshore_tests::skip::skip;
use serde_json::Value;

const ENGINES: [&str; 2] = ["io_uring", "epoll"];
const BLOCK: usize = 4096;

/// Blocks of writes: within a capsule, an immediate segment, a first burst, several R2Ts.
const WRITES: [usize; 6] = [1, 2, 3, 16, 65, 513];

struct Direct {
    server: Server,
    scratch: Scratch,
}

impl Direct {
    /// `None` where the file system has no O_DIRECT.
    fn start(engine: &str) -> Option<Self> {
        Self::start_with(&["--engine", engine], None)
    }

    fn start_with(arguments: &[&str], lockable_bytes: Option<u64>) -> Option<Self> {
        let scratch = Scratch::new("direct");
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
        let path = scratch.join("data").display().to_string();
        let volume = format!("d,backend=file,path={path},size=16M,block-size={BLOCK},direct=true");
        let mut server = ServerBuilder::new()
            .volume(&volume)
            .iscsi()
            .nvme()
            .reports_to(&scratch);
        for argument in arguments {
            server = server.argument(argument);
        }
        if let Some(bytes) = lockable_bytes {
            server = server.as_ordinary_user(bytes);
        }
        match server.start() {
            Ok(server) => Some(Self { server, scratch }),
            Err(error) if error.to_string().contains("direct") => {
                skip(error.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn report(&self) -> Value {
        report::of(&self.server, &self.scratch)
    }

    fn count(&self, name: &str) -> u64 {
        let report = self.report();
        report["total"][name].as_u64().expect("it is counted")
    }

    /// Writes and reads over both protocols, and sees that what is read is what was written.
    fn exercise(&self) {
        let mut initiator = Initiator::ready(self.server.portal(0), &Login::numbered(1)).unwrap();
        let mut host = Host::connect(self.server.nvme(0), &HostOptions::default()).unwrap();
        for round in 0..8 {
            for (seed, blocks) in WRITES.into_iter().enumerate() {
                let bytes = pattern(blocks * BLOCK, seed + round);
                let (lba, count) = (seed as u64 * 600, u32::try_from(blocks).unwrap());
                let write = cdb::write_16(lba, count, round == 2);
                let answer = initiator.command(0, &write, Data::Out(&bytes)).unwrap();
                assert!(answer.is_good(), "{answer:?}");
                let at = Blocks {
                    namespace: NamespaceId(1),
                    lba: Lba(lba),
                    count,
                    block_bytes: u32::try_from(BLOCK).unwrap(),
                };
                let read = host.read(at).unwrap().expect_success();
                assert!(read.data == bytes, "{blocks} blocks, round {round}");
                let bytes = pattern(blocks * BLOCK, seed + round + 100);
                host.write(at, &bytes).unwrap().expect_success();
                let length = u32::try_from(bytes.len()).unwrap();
                let read = cdb::read_16(lba, count);
                let answer = initiator.command(0, &read, Data::In(length)).unwrap();
                assert!(answer.data == bytes, "{blocks} blocks, round {round}");
            }
        }
    }

    /// Direct operations, those of them that were registered, bytes that are, and most that may be.
    fn registered(&self) -> [u64; 4] {
        let report = self.report();
        let sum = |name| {
            let shards = report["shards"].as_array().unwrap();
            shards
                .iter()
                .map(|it| it["engine"][name].as_u64().unwrap())
                .sum()
        };
        let memory = |name| report["memory"][name].as_u64().unwrap();
        [
            sum("direct_operations"),
            sum("registered_operations"),
            memory("registered_bytes"),
            memory("registered_budget_bytes"),
        ]
    }

    /// All of that went to the file, from where it was received to.
    fn assert_nothing_bounced(&self, operations: usize) {
        assert_eq!(self.count("storage_submitted"), operations as u64);
        assert_eq!(self.count("bounced_bytes"), 0);
    }
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + seed * 7 + i / 251) % 256).unwrap())
        .collect()
}

#[test]
fn data_of_scsi_writes_are_aligned_whichever_way_they_come() {
    for engine in ENGINES {
        let Some(direct) = Direct::start(engine) else {
            return;
        };
        let mut operations = 0;
        for (number, (immediate_data, initial_r2t)) in
            [(true, false), (true, true), (false, false), (false, true)]
                .into_iter()
                .enumerate()
        {
            for digests in [false, true] {
                let isid = u16::try_from(number * 2 + usize::from(digests) + 1).unwrap();
                let login = Login {
                    immediate_data,
                    initial_r2t,
                    header_digest: digests,
                    data_digest: digests,
                    first_burst_length: 65_536,
                    ..Login::numbered(isid)
                };
                let mut host = Initiator::ready(direct.server.portal(0), &login).unwrap();
                for (seed, blocks) in WRITES.into_iter().enumerate() {
                    let data = pattern(blocks * BLOCK, seed);
                    let (lba, count) = (seed as u64 * 7, u32::try_from(blocks).unwrap());
                    let write = cdb::write_16(lba, count, seed == 2);
                    let answer = host.command(0, &write, Data::Out(&data)).unwrap();
                    assert!(answer.is_good(), "{answer:?}");
                    let length = u32::try_from(data.len()).unwrap();
                    let read = cdb::read_16(lba, count);
                    let answer = host.command(0, &read, Data::In(length)).unwrap();
                    assert!(answer.data == data, "{blocks} blocks");
                    operations += 2;
                }
            }
        }
        direct.assert_nothing_bounced(operations);
    }
}

#[test]
fn data_of_nvme_writes_are_aligned_whichever_way_they_come() {
    for engine in ENGINES {
        let Some(direct) = Direct::start(engine) else {
            return;
        };
        let mut operations = 0;
        for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut options = HostOptions::default().digests(header, data);
            options.connection.hpda = if header { 31 } else { 0 };
            let mut host = Host::connect(direct.server.nvme(0), &options).unwrap();
            for (seed, blocks) in WRITES.into_iter().enumerate() {
                // In the capsule up to 8 KiB; the rest by R2T.
                let bytes = pattern(blocks * BLOCK, seed);
                let at = Blocks {
                    namespace: NamespaceId(1),
                    lba: Lba(seed as u64 * 7),
                    count: u32::try_from(blocks).unwrap(),
                    block_bytes: u32::try_from(BLOCK).unwrap(),
                };
                host.write(at, &bytes).unwrap().expect_success();
                let read = host.read(at).unwrap().expect_success();
                assert!(read.data == bytes, "{blocks} blocks");
                operations += 2;
            }
        }
        direct.assert_nothing_bounced(operations);
    }
}

/// Reads and writes of `exercise`, and those of them that move 16 KiB or more.
const EXERCISED: u64 = 8 * 6 * 4;
const LARGE: u64 = 8 * 3 * 4;

#[test]
fn memory_of_direct_volumes_is_registered_with_the_ring() {
    let Some(direct) = Direct::start("io_uring") else {
        return;
    };
    direct.exercise();
    let [operations, registered, bytes, budget] = direct.registered();
    assert_eq!(operations, EXERCISED);
    // All but the first ones with each buffer.
    assert!((LARGE / 2..LARGE).contains(&registered), "{registered}");
    assert!(bytes > 0 && bytes <= budget, "{bytes} of {budget}");
    assert!(!direct.server.log().contains("RLIMIT_MEMLOCK"));
}

#[test]
fn nothing_is_registered_where_it_is_off_or_cannot_be() {
    for arguments in [
        &["--engine", "io_uring", "--registered", "off"][..],
        &["--engine", "epoll"],
    ] {
        let Some(direct) = Direct::start_with(arguments, None) else {
            return;
        };
        direct.exercise();
        let [_, registered, bytes, budget] = direct.registered();
        assert_eq!((registered, bytes, budget), (0, 0, 0), "{arguments:?}");
    }
}

#[test]
fn a_user_who_may_lock_little_memory_is_served_from_what_is_not_registered() {
    const LIMIT: u64 = 2 << 20;
    // A quarter of it for one ring: the smaller buffers, and none for 2 MiB.
    let arguments = ["--engine", "io_uring", "--cores", "0"];
    let Some(direct) = Direct::start_with(&arguments, Some(LIMIT)) else {
        return;
    };
    direct.exercise();
    let [operations, registered, bytes, budget] = direct.registered();
    assert_eq!(budget, LIMIT / 4);
    assert!(bytes <= budget, "{bytes}");
    assert!(
        registered > 0 && registered < LARGE * 2 / 3,
        "{registered} of {operations}"
    );
    direct.server.wait_for_log("RLIMIT_MEMLOCK");
    let log = direct.server.log();
    let about: Vec<_> = log
        .lines()
        .filter(|line| line.contains("RLIMIT_MEMLOCK"))
        .collect();
    assert_eq!(about.len(), 1, "{log}");
    assert!(
        about[0].contains("no more memory of direct volumes can be registered"),
        "{log}"
    );
}
