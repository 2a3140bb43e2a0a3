//! What the server says of itself: counts match what peers did, and the times of stages add up.

use std::time::{Duration, Instant};

use longshore_nvme::host::commands;
use longshore_reactor::PagePipe;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, signal};
use longshore_tests::skip::skip;
use serde_json::Value;

const ENGINES: [&str; 2] = ["io_uring", "epoll"];
const REPORT_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(20);

const STAGES: [&str; 6] = ["parse", "data", "gate", "storage", "answer", "send"];

/// A server on one core that follows every operation, and the file of its reports.
struct Watched {
    server: Server,
    scratch: Scratch,
}

impl Watched {
    fn start(volume: &str, engine: &str) -> Self {
        Self::start_with(volume, engine, &[])
    }

    fn start_with(volume: &str, engine: &str, arguments: &[&str]) -> Self {
        let scratch = Scratch::new("statistics");
        let volume = volume.replace("DIR", &scratch.path().display().to_string());
        let builder = ServerBuilder::new()
            .volume(&volume)
            .iscsi()
            .nvme()
            .argument("--engine")
            .argument(engine)
            .argument("--cores")
            .argument("0")
            .argument("--sample")
            .argument("1")
            .reports_to(&scratch);
        let builder = arguments
            .iter()
            .fold(builder, |it, argument| it.argument(argument));
        let server = builder.start().unwrap();
        Self { server, scratch }
    }

    fn report(&self) -> Value {
        report::of(&self.server, &self.scratch)
    }

    fn stop(self) -> Value {
        let path = report::path(&self.scratch);
        let _ = std::fs::remove_file(&path);
        assert!(self.server.stop(STOP_LIMIT).unwrap().success());
        report::read(&path).expect("a report at the end")
    }
}

fn number(report: &Value, path: &str) -> u64 {
    report
        .pointer(path)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no {path} in {report:#}"))
}

/// How much a number has grown.
fn growth(before: &Value, after: &Value, path: &str) -> u64 {
    number(after, path) - number(before, path)
}

#[test]
fn counts_are_those_of_what_peers_did() {
    for engine in ENGINES {
        let watched = Watched::start("disk0,backend=mem,size=16M", engine);
        let mut initiator = Initiator::ready(watched.server.portal(0), &Login::default()).unwrap();
        let mut host = Host::connect(watched.server.nvme(0), &HostOptions::default()).unwrap();
        let before = watched.report();
        for number in 0..10 {
            let read = cdb::read_16(number * 8, 8);
            let answer = initiator.command(0, &read, Data::In(4096)).unwrap();
            assert!(answer.is_good());
            let write = cdb::write_16(number * 16, 16, false);
            let answer = initiator.command(0, &write, Data::Out(&[7; 8192])).unwrap();
            assert!(answer.is_good());
        }
        for number in 0..7 {
            host.read(blocks(number, 1)).unwrap().expect_success();
        }
        let after = watched.report();
        assert_eq!(growth(&before, &after, "/total/operations_iscsi"), 20);
        assert_eq!(growth(&before, &after, "/total/operations_nvme"), 7);
        assert_eq!(growth(&before, &after, "/volumes/0/reads"), 17);
        assert_eq!(
            growth(&before, &after, "/volumes/0/read_bytes"),
            10 * 4096 + 7 * 512
        );
        assert_eq!(growth(&before, &after, "/volumes/0/writes"), 10);
        assert_eq!(growth(&before, &after, "/volumes/0/written_bytes"), 81_920);
        let sent = growth(&before, &after, "/total/sent_bytes");
        // Data, and a header for each of 20 iSCSI and 7 NVMe responses.
        assert_eq!(sent, 10 * 4096 + 20 * 48 + 7 * (512 + 24));
        let received = growth(&before, &after, "/total/received_bytes");
        assert_eq!(received, 81_920 + 20 * 48 + 7 * 72);
        assert_eq!(number(&after, "/memory/connections"), 3);
        let connections = after["connections"].as_array().unwrap();
        let of_iscsi = connections.iter().find(|it| it["protocol"] == "iscsi");
        let operations = of_iscsi.expect("the session")["operations"].as_u64();
        assert_eq!(operations, Some(number(&after, "/total/operations_iscsi")));
        drop((initiator, host));
        let last = watched.stop();
        assert_eq!(number(&last, "/memory/connections"), 0);
        assert_eq!(number(&last, "/memory/requests"), 0);
        assert_eq!(growth(&after, &last, "/total/operations_iscsi"), 0);
        assert!(last["shards"][0]["answered"] == true);
    }
}

#[test]
fn stages_follow_each_other_and_add_up() {
    for engine in ENGINES {
        let watched = Watched::start("disk0,backend=file,path=DIR/disk0,size=16M", engine);
        let mut initiator = Initiator::ready(watched.server.portal(0), &Login::default()).unwrap();
        let mut host = Host::connect(watched.server.nvme(0), &HostOptions::default()).unwrap();
        for number in 0..20 {
            let write = cdb::write_16(number * 8, 8, true);
            let answer = initiator.command(0, &write, Data::Out(&[7; 4096])).unwrap();
            assert!(answer.is_good());
            host.read(blocks(number * 8, 8)).unwrap().expect_success();
        }
        let report = watched.report();
        for (protocol, direction) in [("iscsi", "write"), ("nvme-tcp", "read")] {
            let stages = report["stages"].as_array().unwrap();
            let stages = stages
                .iter()
                .find(|it| it["protocol"] == protocol && it["direction"] == direction)
                .unwrap_or_else(|| panic!("{protocol} {direction} in {report:#}"));
            assert_eq!(stages["volume"], "disk0");
            assert_eq!(number(stages, "/bytes_up_to"), 4096);
            assert_eq!(number(stages, "/operations"), 20);
            let mut sum = 0;
            for stage in STAGES {
                let of = |which: &str| number(stages, &format!("/{stage}/{which}"));
                let order = [of("p50_ns"), of("p90_ns"), of("p99_ns"), of("max_ns")];
                assert!(order.is_sorted(), "{stage}: {order:?}");
                sum += of("mean_ns");
            }
            // Each mean is rounded down.
            let total = number(stages, "/total/mean_ns");
            assert!(total >= sum && total - sum <= 6, "{sum} of {total}");
            // A durable write takes the medium longer than anything else that is done for it.
            if direction == "write" {
                assert!(number(stages, "/storage/mean_ns") > number(stages, "/gate/mean_ns"));
            }
        }
        assert_eq!(number(&report, "/sampling/one_in"), 1);
    }
}

#[test]
fn processor_time_has_a_part_in_the_kernel_and_a_part_of_our_own() {
    for engine in ENGINES {
        let watched = Watched::start("disk0,backend=null,size=1G", engine);
        let mut initiator = Initiator::ready(watched.server.portal(0), &Login::default()).unwrap();
        let time = |report: &Value, name: &str| number(report, &format!("/shards/0/times/{name}"));
        let begun = watched.report();
        let deadline = Instant::now() + REPORT_LIMIT;
        // Until both have grown: the kernel tells them apart by what its timer meets.
        loop {
            for number in 0..1000 {
                let read = cdb::read_16(number, 8);
                let answer = initiator.command(0, &read, Data::In(4096)).unwrap();
                assert!(answer.is_good());
            }
            let report = watched.report();
            let ran = time(&report, "working_ns") + time(&report, "polling_ns");
            let parts = time(&report, "user_ns") + time(&report, "system_ns");
            // Both are read one after the other, and getrusage(2) has the grain of the timer where nothing is exact.
            assert!(parts.abs_diff(ran) <= 20_000_000, "{engine}: {parts} {ran}");
            let grew = |name: &str| time(&report, name) > time(&begun, name);
            if grew("user_ns") && grew("system_ns") {
                break;
            }
            assert!(Instant::now() < deadline, "{report:#}");
        }
    }
}

#[test]
fn what_arrives_together_is_received_and_answered_together() {
    for engine in ENGINES {
        let watched = Watched::start("disk0,backend=null,size=1G", engine);
        let mut initiator = Initiator::ready(watched.server.portal(0), &Login::default()).unwrap();
        let before = watched.report();
        let mut bytes = Vec::new();
        for number in 0..32 {
            let read = cdb::read_16(number, 1);
            bytes.extend(
                initiator
                    .command_pdu(0, &read, Data::In(512))
                    .to_bytes(false, false),
            );
        }
        initiator.send_bytes(&bytes).unwrap();
        for _ in 0..32 {
            assert_eq!(initiator.receive().unwrap().data.len(), 512);
        }
        let after = watched.report();
        assert_eq!(growth(&before, &after, "/total/operations_iscsi"), 32);
        assert_eq!(growth(&before, &after, "/total/receives"), 1);
        assert_eq!(growth(&before, &after, "/total/sends"), 1);
    }
}

#[test]
fn without_a_file_the_log_has_a_summary() {
    let server = ServerBuilder::new()
        .volume("disk0,backend=mem,size=16M")
        .iscsi()
        .argument("--sample")
        .argument("1")
        .start()
        .unwrap();
    let mut initiator = Initiator::ready(server.portal(0), &Login::default()).unwrap();
    let read = cdb::read_16(0, 8);
    let answer = initiator.command(0, &read, Data::In(4096)).unwrap();
    assert!(answer.is_good());
    signal(server.pid(), "USR1").unwrap();
    server.wait_for_log("disk0 iscsi read up to 4096 bytes, 1 followed; median/p99 in µs: parse ");
}

/// What one operation costs at queue depth 1: a row of the table in `ARCHITECTURE.md`.
struct Row {
    volume: &'static str,
    protocol: &'static str,
    bytes: u32,
    write: bool,
    data_digest: bool,
    /// Waits of the engine; more where data come in several pieces.
    waits: u64,
    /// Receives, where everything comes with one.
    one_receive: bool,
    /// Sends, where the socket is sure to have room.
    sends: Option<u64>,
    /// System calls of attempts at the volume.
    attempts: u64,
    /// Requests to storage, which helper threads carry out with epoll.
    submitted: u64,
    /// Bytes copied by the server, but for those out of the receive buffer.
    copied: u64,
    /// Bytes of write data copied out of the receive buffer. Where it is not said, these are some, and the others were
    /// received to where they belong.
    from_receive_buffer: Option<u64>,
}

const READ: Row = Row {
    volume: "disk0,backend=null,size=64M",
    protocol: "iscsi",
    bytes: 4096,
    write: false,
    data_digest: false,
    waits: 1,
    one_receive: true,
    sends: Some(1),
    attempts: 0,
    submitted: 0,
    copied: 0,
    from_receive_buffer: Some(0),
};
/// All data in one receive.
const WRITE: Row = Row {
    write: true,
    ..READ
};
/// Data in several pieces.
const LARGE_WRITE: Row = Row {
    bytes: 65_536,
    one_receive: false,
    from_receive_buffer: None,
    ..WRITE
};
const FILE: &str = "disk0,backend=file,path=DIR/disk0,size=64M";
const INLINE_FILE: &str = "disk0,backend=file,path=DIR/disk0,size=64M,inline-writes=always";
const MEM: &str = "disk0,backend=mem,size=64M";

/// Reads that do not depend on what the page cache happens to hold.
const READS: [Row; 14] = [
    Row { bytes: 512, ..READ },
    READ,
    // A large answer may find less room than it needs.
    Row {
        bytes: 262_144,
        sends: None,
        ..READ
    },
    Row {
        bytes: 65_536,
        data_digest: true,
        ..READ
    },
    Row {
        protocol: "nvme",
        ..READ
    },
    Row {
        volume: FILE,
        attempts: 1,
        ..READ
    },
    Row {
        volume: FILE,
        bytes: 65_536,
        attempts: 1,
        ..READ
    },
    Row {
        volume: FILE,
        bytes: 65_536,
        attempts: 1,
        data_digest: true,
        ..READ
    },
    Row {
        volume: FILE,
        protocol: "nvme",
        attempts: 1,
        ..READ
    },
    Row {
        volume: FILE,
        protocol: "nvme",
        bytes: 65_536,
        attempts: 1,
        ..READ
    },
    Row {
        volume: MEM,
        copied: 4096,
        ..READ
    },
    Row {
        volume: MEM,
        bytes: 65_536,
        copied: 65_536,
        ..READ
    },
    Row {
        volume: MEM,
        bytes: 262_144,
        copied: 262_144,
        sends: None,
        ..READ
    },
    Row {
        volume: MEM,
        protocol: "nvme",
        bytes: 65_536,
        copied: 65_536,
        ..READ
    },
];

const WRITES: [Row; 17] = [
    WRITE,
    Row {
        volume: MEM,
        copied: 4096,
        ..WRITE
    },
    Row {
        volume: MEM,
        protocol: "nvme",
        copied: 4096,
        ..WRITE
    },
    Row {
        volume: MEM,
        data_digest: true,
        copied: 4096,
        ..WRITE
    },
    Row {
        volume: INLINE_FILE,
        attempts: 1,
        from_receive_buffer: Some(4096),
        ..WRITE
    },
    Row {
        volume: FILE,
        waits: 2,
        submitted: 1,
        from_receive_buffer: Some(4096),
        ..WRITE
    },
    Row {
        volume: FILE,
        data_digest: true,
        waits: 2,
        submitted: 1,
        from_receive_buffer: Some(4096),
        ..WRITE
    },
    Row {
        volume: FILE,
        protocol: "nvme",
        waits: 2,
        submitted: 1,
        from_receive_buffer: Some(4096),
        ..WRITE
    },
    Row {
        volume: FILE,
        protocol: "nvme",
        bytes: 8192,
        waits: 2,
        submitted: 1,
        from_receive_buffer: Some(8192),
        ..WRITE
    },
    Row {
        volume: FILE,
        waits: 2,
        submitted: 1,
        ..LARGE_WRITE
    },
    Row {
        volume: FILE,
        bytes: 262_144,
        waits: 2,
        submitted: 1,
        ..LARGE_WRITE
    },
    Row {
        volume: FILE,
        data_digest: true,
        waits: 2,
        submitted: 1,
        ..LARGE_WRITE
    },
    Row {
        volume: FILE,
        bytes: 262_144,
        data_digest: true,
        waits: 2,
        submitted: 1,
        ..LARGE_WRITE
    },
    // With R2Ts: one of iSCSI for what is beyond the first burst, and one of NVMe.
    Row {
        volume: FILE,
        bytes: 1 << 20,
        waits: 3,
        sends: Some(2),
        submitted: 1,
        ..LARGE_WRITE
    },
    Row {
        volume: FILE,
        protocol: "nvme",
        waits: 3,
        sends: Some(2),
        submitted: 1,
        ..LARGE_WRITE
    },
    Row {
        volume: FILE,
        protocol: "nvme",
        bytes: 262_144,
        waits: 3,
        sends: Some(2),
        submitted: 1,
        ..LARGE_WRITE
    },
    Row {
        volume: FILE,
        protocol: "nvme",
        data_digest: true,
        waits: 3,
        sends: Some(2),
        submitted: 1,
        ..LARGE_WRITE
    },
];

/// Whoever asks a server at queue depth 1.
enum Peer {
    Iscsi(Initiator),
    Nvme(Box<Host>),
}

impl Peer {
    fn of(row: &Row, watched: &Watched) -> Self {
        if row.protocol == "iscsi" {
            let login = Login {
                data_digest: row.data_digest,
                ..Login::default()
            };
            return Self::Iscsi(Initiator::ready(watched.server.portal(0), &login).unwrap());
        }
        let mut options = HostOptions::default();
        options.connection.digests.data = row.data_digest;
        Self::Nvme(Box::new(
            Host::connect(watched.server.nvme(0), &options).unwrap(),
        ))
    }

    fn write(&mut self, data: &[u8]) {
        let count = u32::try_from(data.len() / 512).unwrap();
        match self {
            Self::Iscsi(initiator) => {
                let cdb = cdb::write_16(0, count, false);
                let answer = initiator.command(0, &cdb, Data::Out(data)).unwrap();
                assert!(answer.is_good());
            }
            Self::Nvme(host) => {
                host.write(blocks(0, count), data).unwrap().expect_success();
            }
        }
    }

    fn read(&mut self, data: &[u8]) {
        let count = u32::try_from(data.len() / 512).unwrap();
        let read = match self {
            Self::Iscsi(initiator) => {
                let cdb = cdb::read_16(0, count);
                initiator
                    .command(0, &cdb, Data::In(count * 512))
                    .unwrap()
                    .data
            }
            Self::Nvme(host) => {
                let answer = host.queues[0]
                    .run(&commands::read(blocks(0, count)), &[])
                    .unwrap();
                answer.expect_success().data
            }
        };
        assert_eq!(read.len(), data.len());
    }
}

#[test]
fn reads_cost_what_the_table_of_copies_and_system_calls_says() {
    for engine in ENGINES {
        for row in &READS {
            hold(row, engine);
        }
    }
}

#[test]
fn writes_cost_what_the_table_of_copies_and_system_calls_says() {
    for engine in ENGINES {
        for row in &WRITES {
            hold(row, engine);
        }
    }
}

fn hold(row: &Row, engine: &str) {
    const OPERATIONS: u64 = 40;
    /// Waits that end for the sake of the reports.
    const OF_REPORTS: u64 = 4;
    // Looks for events that do not sleep are waits, too.
    let watched = Watched::start_with(row.volume, engine, &["--spin", "off"]);
    let mut peer = Peer::of(row, &watched);
    let data = vec![7; row.bytes as usize];
    // What is read must be in the page cache.
    peer.write(&data);
    let before = watched.report();
    for _ in 0..OPERATIONS {
        if row.write {
            peer.write(&data);
        } else {
            peer.read(&data);
        }
    }
    let after = watched.report();
    let name = format!(
        "{engine}, {}, {} {} of {} bytes, data digest {}",
        row.volume,
        row.protocol,
        if row.write { "write" } else { "read" },
        row.bytes,
        row.data_digest
    );
    let all = |path: &str| growth(&before, &after, path);
    let each = |path: &str| {
        let growth = all(path);
        assert_eq!(growth % OPERATIONS, 0, "{name}: {path} {growth}");
        growth / OPERATIONS
    };
    let operations = each("/total/operations_iscsi") + each("/total/operations_nvme");
    assert_eq!(operations, 1, "{name}");
    let waits = all("/shards/0/engine/waits");
    assert!(waits >= row.waits * OPERATIONS, "{name}: {waits} waits");
    if row.one_receive {
        assert_eq!(each("/total/receives"), 1, "{name}");
    }
    if row.one_receive && row.sends.is_some() {
        assert!(
            waits <= row.waits * OPERATIONS + OF_REPORTS,
            "{name}: {waits} waits"
        );
    }
    match row.sends {
        Some(sends) => assert_eq!(each("/total/sends"), sends, "{name}"),
        None => assert!(all("/total/sends") >= OPERATIONS, "{name}"),
    }
    assert_eq!(each("/total/attempt_calls"), row.attempts, "{name}");
    assert_eq!(each("/total/page_calls"), 0, "{name}");
    assert_eq!(each("/total/storage_submitted"), row.submitted, "{name}");
    let helpers = each("/shards/0/engine/helper_operations");
    let expected = if engine == "epoll" { row.submitted } else { 0 };
    assert_eq!(helpers, expected, "{name}");
    let copied = each("/total/copied_volume_bytes") + each("/total/copied_transmit_bytes");
    assert_eq!(copied, row.copied, "{name}");
    let data_out = all("/total/copied_data_out_bytes");
    let placed = all("/total/placed_bytes");
    match row.from_receive_buffer {
        Some(bytes) => assert_eq!(data_out, OPERATIONS * bytes, "{name}"),
        None => assert_eq!(
            data_out + placed,
            OPERATIONS * u64::from(row.bytes),
            "{name}"
        ),
    }
}

#[test]
fn reads_by_reference_cost_what_the_table_says() {
    const OPERATIONS: u64 = 20;
    for engine in ENGINES {
        for bytes in [32 << 10, 64 << 10, 1 << 20] {
            let watched = Watched::start_with(FILE, engine, &["--splice", "always"]);
            if !takes_pages(&watched.scratch) {
                return;
            }
            let mut initiator =
                Initiator::ready(watched.server.portal(0), &Login::default()).unwrap();
            let data = vec![7; bytes as usize];
            let write = cdb::write_16(0, bytes / 512, false);
            let answer = initiator.command(0, &write, Data::Out(&data)).unwrap();
            assert!(answer.is_good());
            let read = cdb::read_16(0, bytes / 512);
            // The first one makes the pipe.
            initiator.command(0, &read, Data::In(bytes)).unwrap();
            let before = watched.report();
            for _ in 0..OPERATIONS {
                let answer = initiator.command(0, &read, Data::In(bytes)).unwrap();
                assert!(answer.data == data);
            }
            let after = watched.report();
            let count = |path: &str| growth(&before, &after, &format!("/total/{path}"));
            let name = format!("{engine}, {bytes} bytes");
            assert_eq!(count("storage_pages"), OPERATIONS, "{name}");
            assert_eq!(count("page_calls"), 3 * OPERATIONS, "{name}");
            assert_eq!(count("receives"), OPERATIONS, "{name}");
            assert_eq!(
                count("spliced_bytes"),
                OPERATIONS * u64::from(bytes),
                "{name}"
            );
            // A large answer may find less room than it needs.
            let sends = count("sends");
            assert!(
                sends == 2 * OPERATIONS || sends > 2 * OPERATIONS && bytes > 65_536,
                "{name}: {sends}"
            );
            for path in [
                "attempt_calls",
                "storage_inline",
                "storage_submitted",
                "copied_volume_bytes",
                "copied_transmit_bytes",
            ] {
                assert_eq!(count(path), 0, "{name}: {path}");
            }
        }
    }
}

/// Whether pages can be taken out of the page cache: cachestat(2) came with Linux 6.5, and sandboxes may refuse it.
fn takes_pages(scratch: &Scratch) -> bool {
    let path = scratch.join("pages");
    std::fs::write(&path, [1; 4096]).unwrap();
    let file = std::fs::File::open(path).unwrap();
    let taken = PagePipe::new(16).and_then(|mut pipe| pipe.take(&file, 0, 4096));
    let takes = matches!(taken, Ok(true));
    if !takes {
        skip(format!(
            "no pages can be taken out of the page cache here: {taken:?}"
        ));
    }
    takes
}

#[test]
fn calls_that_set_options_are_counted() {
    const ROUNDS: u64 = 10;
    for engine in ENGINES {
        let policy = [
            "--transmit",
            "adaptive-nagle",
            "--nagle-threshold",
            "4",
            "--nagle-margin",
            "0",
        ];
        let watched = Watched::start_with("disk0,backend=null,size=1G", engine, &policy);
        let mut initiator = Initiator::ready(watched.server.portal(0), &Login::default()).unwrap();
        let before = watched.report();
        for _ in 0..ROUNDS {
            let mut bytes = Vec::new();
            for number in 0..8 {
                let read = initiator.command_pdu(0, &cdb::read_16(number, 1), Data::In(512));
                bytes.extend(read.to_bytes(false, false));
            }
            initiator.send_bytes(&bytes).unwrap();
            for _ in 0..8 {
                assert_eq!(initiator.receive().unwrap().data.len(), 512);
            }
        }
        let after = watched.report();
        let count = |path: &str| growth(&before, &after, &format!("/total/{path}"));
        // Nagle's algorithm goes on within a burst, and off behind it.
        let calls = count("option_calls");
        assert!(calls >= ROUNDS, "{engine}: {calls}");
        // It is a part of the mean.
        let of = |report: &Value| {
            let total = |path: &str| number(report, &format!("/total/{path}"));
            let calls = ["receives", "receives_empty", "sends", "sends_blocked"].map(total);
            let others = ["attempt_calls", "option_calls", "page_calls"];
            let engine = ["system_calls", "helper_operations"]
                .map(|path| number(report, &format!("/shards/0/engine/{path}")));
            let sum = calls.iter().sum::<u64>()
                + others.map(total).iter().sum::<u64>()
                + engine.iter().sum::<u64>();
            sum as f64 / (total("operations_iscsi") + total("operations_nvme")) as f64
        };
        let mean = after["derived"]["system_calls_per_operation"].as_f64();
        assert!((mean.unwrap() - of(&after)).abs() < 1e-9, "{mean:?}");
    }
}
