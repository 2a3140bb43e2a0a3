//! The memory of a server stays within what `docs/operating/memory.md` says, however many peers ask for
//! much and take nothing.

use std::time::{Duration, Instant};

use longshore_block::media::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{self, Blocks};
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::process::allow_many_files;
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const CONNECTIONS: u64 = 1000;
const OUTSTANDING: u64 = 64;
const LIMIT: Duration = Duration::from_secs(60);

/// `limits.memory`.
const MEMORY: u64 = 256 * MIB;
/// The volume's own memory, which is not bounded by that. Reads of what was never written take none.
const VOLUME: &str = "disk0,backend=mem,size=64M";

// The figures of `docs/operating/memory.md`.
const PROCESS: u64 = 16 * MIB;
const SHARD: u64 = 2 * MIB;
const SHARE_MIN: u64 = 32 << 10;
const CONNECTION: u64 = 64 << 10;
const COMMAND: u64 = 1 << 10;

/// What the page says that transmit queues may take when so many connections have something in them, and
/// nobody sends pings.
fn transmit_bound(connections: u64) -> u64 {
    MEMORY / 8 + connections * SHARE_MIN
}

/// What the page says that so many connections may take.
fn bound(connections: u64, shards: u64) -> u64 {
    let payload = MEMORY + MEMORY / 16;
    PROCESS
        + shards * SHARD
        + payload
        + transmit_bound(connections)
        + connections * (CONNECTION + OUTSTANDING * COMMAND)
}

struct Watched {
    server: Server,
    scratch: Scratch,
}

impl Watched {
    fn start(listen: impl Fn(ServerBuilder) -> ServerBuilder) -> Self {
        allow_many_files();
        let scratch = Scratch::new("memory");
        let server = listen(ServerBuilder::new().volume(VOLUME))
            .config(&format!(
                "[limits]\nmemory = {MEMORY}\nsessions = 2000\ncontrollers = 2000\n\
                 pending-logins = 2000\n"
            ))
            .reports_to(&scratch)
            .argument("--log-level")
            .argument("warn")
            .start()
            .unwrap();
        Self { server, scratch }
    }

    fn report(&self) -> Value {
        report::of(&self.server, &self.scratch)
    }

    /// Commands of a protocol that have arrived so far.
    fn operations(&self, name: &str) -> u64 {
        self.report()["total"][name].as_u64().unwrap()
    }

    /// Waits until so many commands of a protocol have arrived, and looks at the memory.
    fn check(&self, operations: &str, expected: u64) {
        let deadline = Instant::now() + LIMIT;
        let report = loop {
            let report = self.report();
            let arrived = report["total"][operations].as_u64().unwrap();
            // Some have no room to arrive: the server stops receiving from who takes nothing.
            if arrived >= expected {
                break report;
            }
            assert!(
                Instant::now() < deadline,
                "{arrived} of {expected} {operations}"
            );
            std::thread::sleep(Duration::from_millis(50));
        };
        let memory = &report["memory"];
        let field = |name: &str| memory[name].as_u64().unwrap();
        let shards = report["shards"].as_array().unwrap().len() as u64;
        let connections = field("connections");
        let process = self.server.process();
        let resident = process.resident_bytes_max().unwrap();
        let bound = bound(connections, shards);
        println!(
            "{connections} connections: {} MiB resident at most, {} MiB allowed; {memory}",
            resident / MIB,
            bound / MIB
        );
        assert!(resident <= bound, "{resident} of {bound}: {memory}");
        assert!(field("used_bytes") <= MEMORY + MEMORY / 16, "{memory}");
        let transmit = field("transmit_bytes");
        // Those that read by reference have headers in theirs, and all have a list.
        let filling = connections * 3 / 4;
        assert!(
            transmit <= transmit_bound(filling) + connections * 8192,
            "{memory}"
        );
        // It was worth a test.
        assert!(field("used_bytes") > MEMORY / 2 || transmit > MEMORY / 16);
    }
}

/// Most connections read 16 KiB at a time, which is put into transmit queues, the others 64 KiB.
fn blocks_of(connection: u64) -> u32 {
    if connection % 4 == 3 { 128 } else { 32 }
}

#[test]
fn a_thousand_sessions_that_take_nothing_stay_within_the_documented_memory() {
    let watched = Watched::start(ServerBuilder::iscsi);
    let portal = watched.server.portal(0);
    let mut sessions = Vec::new();
    let mut before = 0;
    // Each fills its share before the next comes, with which shares become smaller.
    for number in 0..CONNECTIONS {
        let login = Login::numbered(u16::try_from(number).unwrap());
        let mut session = Initiator::ready(portal, &login).unwrap();
        if number == 0 {
            before = watched.operations("operations_iscsi") * CONNECTIONS;
        }
        let blocks = blocks_of(number);
        let mut bytes = Vec::new();
        for _ in 0..OUTSTANDING {
            let cdb = cdb::read_16(0, blocks);
            let pdu = session.command_pdu(0, &cdb, Data::In(blocks * 512));
            bytes.extend(pdu.to_bytes(false, false));
        }
        session.send_bytes(&bytes).unwrap();
        sessions.push(session);
    }
    watched.check("operations_iscsi", before + CONNECTIONS * OUTSTANDING);
    // Whoever goes on to read is answered.
    for (number, session) in (0..).zip(&mut sessions).take(4) {
        let mut left = OUTSTANDING * u64::from(blocks_of(number)) * 512;
        while left > 0 {
            left -= session.receive().unwrap().data.len() as u64;
        }
    }
}

#[test]
fn a_thousand_queues_of_hosts_that_take_nothing_stay_within_the_documented_memory() {
    const QUEUES: u16 = 10;
    let watched = Watched::start(ServerBuilder::nvme);
    let options = HostOptions {
        entries: 128,
        ..HostOptions::default().queues(QUEUES)
    };
    let mut hosts = Vec::new();
    for _ in 0..CONNECTIONS / u64::from(QUEUES) {
        hosts.push(Host::connect(watched.server.nvme(0), &options).unwrap());
    }
    let before = watched.operations("operations_nvme");
    let queues = hosts.iter_mut().flat_map(|host| &mut host.queues);
    for (number, queue) in (0..).zip(queues) {
        let range = Blocks {
            namespace: NamespaceId(1),
            lba: Lba(0),
            count: blocks_of(number),
            block_bytes: 512,
        };
        let read = commands::read(range);
        for _ in 1..OUTSTANDING {
            queue.prepare(&read, &[]).unwrap();
        }
        queue.start(&read, &[]).unwrap();
    }
    watched.check("operations_nvme", before + CONNECTIONS * OUTSTANDING);
}
