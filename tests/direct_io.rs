//! Write data lie where O_DIRECT can take them from, however they came: nothing is copied for the sake of alignment.
#![allow(missing_docs)] // The names of the tests say what they prove.

use longshore_block::media::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::Blocks;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

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
        let scratch = Scratch::new("direct");
        let path = scratch.join("data").display().to_string();
        let volume = format!("d,backend=file,path={path},size=16M,block-size={BLOCK},direct=true");
        let server = ServerBuilder::new()
            .volume(&volume)
            .iscsi()
            .nvme()
            .argument("--engine")
            .argument(engine)
            .reports_to(&scratch)
            .start();
        match server {
            Ok(server) => Some(Self { server, scratch }),
            Err(error) if error.to_string().contains("direct") => {
                eprintln!("SKIPPED: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn count(&self, name: &str) -> u64 {
        let report = report::of(&self.server, &self.scratch);
        report["total"][name].as_u64().expect("it is counted")
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
