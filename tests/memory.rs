//! The memory of a server stays within what `docs/operating/memory.md` says, however many peers ask for
//! much and take nothing, or promise much and do not finish it.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use longshore_nvme::command::CommandId;
use longshore_nvme::host::commands;
use longshore_nvme::sgl::SglDescriptor;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::pdu::{Pdu as NvmePdu, kind};
use longshore_tests::nvme::{Host, HostOptions, Queue, blocks};
use longshore_tests::pdu::{Pdu, opcode};
use longshore_tests::process::allow_many_files;
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const CONNECTIONS: u64 = 1000;
const OUTSTANDING: u64 = 64;
const LIMIT: Duration = Duration::from_secs(60);

/// `limits.memory` of the server, in bytes.
const MEMORY: u64 = 256 * MIB;
/// The volume's own memory, which is not bounded by that. Reads of what was never written take none, and writes that
/// are not finished neither.
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
                 pending-logins = 2000\nstall-timeout = \"1h\"\n"
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

    /// Waits until no write has memory or a promise of it.
    fn wait_until_writes_hold_nothing(&self) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let memory = &self.report()["memory"];
            if memory["used_bytes"] == memory["kept_bytes"] {
                return;
            }
            assert!(Instant::now() < deadline, "{memory}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Most connections read 16 KiB at a time, which is put into transmit queues, the others 64 KiB. Writers
/// write as much.
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

/// Hosts with a thousand I/O queues between them.
fn hosts_of(watched: &Watched) -> Vec<Host> {
    const QUEUES: u16 = 10;
    let options = HostOptions {
        entries: 128,
        ..HostOptions::default().queues(QUEUES)
    };
    (0..CONNECTIONS / u64::from(QUEUES))
        .map(|_| Host::connect(watched.server.nvme(0), &options).unwrap())
        .collect()
}

#[test]
fn a_thousand_queues_of_hosts_that_take_nothing_stay_within_the_documented_memory() {
    let watched = Watched::start(ServerBuilder::nvme);
    let mut hosts = hosts_of(&watched);
    let before = watched.operations("operations_nvme");
    let queues = hosts.iter_mut().flat_map(|host| &mut host.queues);
    for (number, queue) in (0..).zip(queues) {
        let read = commands::read(blocks(0, blocks_of(number)));
        for _ in 1..OUTSTANDING {
            queue.prepare(&read, &[]).unwrap();
        }
        queue.start(&read, &[]).unwrap();
    }
    watched.check("operations_nvme", before + CONNECTIONS * OUTSTANDING);
}

/// What each write keeps to itself.
const HELD_BACK: usize = 512;

/// A write that was asked for its data, and got them but for the end.
struct Unfinished {
    tag: u32,
    transfer_tag: u32,
    bytes: usize,
}

/// Sends 64 writes, and then, of those that are asked for their data and not refused, all data but the last block.
fn write_without_end(session: &mut Initiator, data: &[u8]) -> Vec<Unfinished> {
    const TASK_SET_FULL: u8 = 0x28;
    let blocks = u32::try_from(data.len() / 512).unwrap();
    let cdb = cdb::write_16(0, blocks, false);
    let mut bytes = Vec::new();
    for _ in 0..OUTSTANDING {
        let pdu = session.command_pdu(0, &cdb, Data::Out(data));
        bytes.extend(pdu.to_bytes(false, false));
    }
    session.send_bytes(&bytes).unwrap();
    let mut unfinished = Vec::new();
    for _ in 0..OUTSTANDING {
        let answer = session.receive().unwrap();
        session.adopt_numbers(&answer);
        if answer.opcode() == opcode::SCSI_RESPONSE {
            assert_eq!(answer.bhs[3], TASK_SET_FULL);
            continue;
        }
        assert_eq!(answer.opcode(), opcode::R2T);
        assert_eq!((answer.word(40), answer.word(44)), (0, blocks * 512));
        let write = Unfinished {
            tag: answer.initiator_task_tag(),
            transfer_tag: answer.target_transfer_tag(),
            bytes: data.len(),
        };
        let first = &data[..data.len() - HELD_BACK];
        session
            .send(&data_out(session, &write, 0, 0, first))
            .unwrap();
        unfinished.push(write);
    }
    unfinished
}

fn data_out(
    session: &Initiator,
    write: &Unfinished,
    number: u32,
    offset: usize,
    data: &[u8],
) -> Pdu {
    let is_last = offset + data.len() == write.bytes;
    Pdu::new(opcode::DATA_OUT)
        .set_byte(1, if is_last { 0x80 } else { 0 })
        .set_word(16, write.tag)
        .set_word(20, write.transfer_tag)
        .set_word(28, session.exp_stat_sn)
        .set_word(36, number)
        .set_word(40, u32::try_from(offset).unwrap())
        .with_data(data)
}

#[test]
fn a_thousand_sessions_that_do_not_finish_writes_stay_within_the_documented_memory() {
    let watched = Watched::start(ServerBuilder::iscsi);
    let portal = watched.server.portal(0);
    let data = vec![7; 64 << 10];
    let mut sessions = Vec::new();
    let mut before = 0;
    for number in 0..CONNECTIONS {
        let login = Login {
            initial_r2t: true,
            immediate_data: false,
            ..Login::numbered(u16::try_from(number).unwrap())
        };
        let mut session = Initiator::ready(portal, &login).unwrap();
        if number == 0 {
            before = watched.operations("operations_iscsi") * CONNECTIONS;
        }
        let bytes = blocks_of(number) as usize * 512;
        let unfinished = write_without_end(&mut session, &data[..bytes]);
        sessions.push((session, unfinished));
    }
    watched.check("operations_iscsi", before + CONNECTIONS * OUTSTANDING);
    // Whoever goes on to write is answered.
    for (session, unfinished) in &mut sessions[..4] {
        assert!(!unfinished.is_empty());
        for write in unfinished {
            let offset = write.bytes - HELD_BACK;
            let last = data_out(session, write, 1, offset, &data[..HELD_BACK]);
            session.send(&last).unwrap();
            let response = session.receive().unwrap();
            session.adopt_numbers(&response);
            assert_eq!(response.opcode(), opcode::SCSI_RESPONSE);
            assert_eq!((response.bhs[2], response.bhs[3]), (0, 0), "{response:?}");
        }
    }
    drop(sessions);
    watched.wait_until_writes_hold_nothing();
}

/// Sends 64 writes. Those that find no memory wait for it.
fn send_writes(queue: &mut Queue, count: u32) {
    let write = commands::write(blocks(0, count), 0);
    let mut bytes = Vec::new();
    for id in 0..u16::try_from(OUTSTANDING).unwrap() {
        let mut entry = write.entry;
        entry.set_id(CommandId(id));
        let length = write.transfer.length();
        entry.set_sgl(SglDescriptor::Transport { length });
        bytes.extend(NvmePdu::command(&entry.0).to_bytes());
    }
    queue.send_bytes(&bytes).unwrap();
}

/// Bytes of a Ready to Transfer PDU, and of a Response Capsule.
const PDU: usize = 24;

/// The Ready to Transfer PDUs that have arrived.
fn arrived(queue: &Queue) -> Vec<u8> {
    let mut pdus = Vec::new();
    queue.stream().set_nonblocking(true).unwrap();
    let error = queue.stream().read_to_end(&mut pdus).expect_err("open");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    queue.stream().set_nonblocking(false).unwrap();
    // Of the last one a part may be on its way.
    let arrived = pdus.len();
    pdus.resize(arrived.next_multiple_of(PDU), 0);
    queue.stream().read_exact(&mut pdus[arrived..]).unwrap();
    pdus
}

/// The next Response Capsule. Before it some writes may be asked for their data late.
fn receive_response(queue: &Queue) -> [u8; PDU] {
    for _ in 0..OUTSTANDING {
        let mut pdu = [0; PDU];
        queue.stream().read_exact(&mut pdu).unwrap();
        if pdu[0] != kind::R2T {
            return pdu;
        }
    }
    panic!("more R2Ts than writes");
}

#[test]
fn a_thousand_queues_of_hosts_that_do_not_finish_writes_stay_within_the_documented_memory() {
    let watched = Watched::start(ServerBuilder::nvme);
    let mut hosts = hosts_of(&watched);
    let before = watched.operations("operations_nvme");
    let data = vec![7; 64 << 10];
    let mut queues: Vec<_> = hosts.iter_mut().flat_map(|host| &mut host.queues).collect();
    for (number, queue) in (0..).zip(&mut queues) {
        send_writes(queue, blocks_of(number));
    }
    watched.check("operations_nvme", before + CONNECTIONS * OUTSTANDING);
    // No more R2Ts come before some of the data do.
    let mut unfinished = Vec::new();
    for (number, queue) in (0..).zip(&mut queues) {
        let bytes = blocks_of(number) as usize * 512;
        let mut writes = Vec::new();
        for r2t in arrived(queue).chunks_exact(PDU) {
            assert_eq!(r2t[0], kind::R2T);
            let command = u16::from_le_bytes([r2t[8], r2t[9]]);
            let tag = u16::from_le_bytes([r2t[10], r2t[11]]);
            let first = NvmePdu::h2c_data(command, tag, 0, &data[..bytes - HELD_BACK]);
            queue.send_bytes(&first.set_byte(1, 0).to_bytes()).unwrap();
            writes.push((command, tag, bytes));
        }
        unfinished.push(writes);
    }
    watched.check("operations_nvme", before + CONNECTIONS * OUTSTANDING);
    // Whoever goes on to write is answered.
    let (queue, writes) = queues
        .iter()
        .zip(&unfinished)
        .find(|(_, writes)| !writes.is_empty())
        .expect("somebody got memory");
    let (command, tag, bytes) = writes[0];
    let offset = u32::try_from(bytes - HELD_BACK).unwrap();
    let last = NvmePdu::h2c_data(command, tag, offset, &data[..HELD_BACK]);
    (&mut queue.stream()).write_all(&last.to_bytes()).unwrap();
    let answer = receive_response(queue);
    assert_eq!(
        (answer[0], &answer[20..22]),
        (kind::CAPSULE_RESP, &command.to_le_bytes()[..])
    );
    assert_eq!(&answer[22..24], &[0, 0], "success");
    drop(hosts);
    watched.wait_until_writes_hold_nothing();
}
