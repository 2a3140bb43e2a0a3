//! Write data of many commands at a time, over both protocols: whose they are, in whatever order they come,
//! and the memory they take.

use std::collections::HashMap;
use std::io::Read;
use std::time::{Duration, Instant};

use longshore_nvme::host::commands::{self, Blocks};
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::pdu::{self as nvme_pdu, kind};
use longshore_tests::nvme::{self, Host, HostOptions};
use longshore_tests::pdu::{Pdu, opcode};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use serde_json::Value;

const MIB: usize = 1 << 20;
/// FirstBurstLength: so much comes unasked.
const FIRST: usize = 64 << 10;
/// What is sent of one command before the next one's turn.
const PIECE: usize = 64 << 10;
const LENGTH: usize = 256 << 10;
/// Together more than a connection has early data put to their place at once.
const WRITES: usize = 32;
/// How long is waited for what needs no time.
const LIMIT: Duration = Duration::from_secs(30);

fn serve(volume: &str) -> Server {
    ServerBuilder::new()
        .volume(volume)
        .iscsi()
        .nvme()
        .start()
        .unwrap()
}

fn session(server: &Server) -> Initiator {
    let login = Login {
        first_burst_length: u32::try_from(FIRST).unwrap(),
        ..Login::numbered(1)
    };
    Initiator::ready(server.portal(0), &login).unwrap()
}

/// Data that are told from those of other writes, and from themselves elsewhere.
fn data_of(write: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i / 512 * 7 + i % 512 + write * 31) % 251).unwrap())
        .collect()
}

fn word(value: usize) -> u32 {
    u32::try_from(value).unwrap()
}

fn blocks(bytes: usize) -> u32 {
    word(bytes / 512)
}

/// A write whose first part has gone out, and the R2T for the rest.
struct Write {
    tag: u32,
    number: usize,
    data: Vec<u8>,
    transfer_tag: u32,
}

/// Sends so many writes, and receives their R2Ts.
fn begin_writes(session: &mut Initiator, count: usize) -> Vec<Write> {
    let mut writes = Vec::new();
    for number in 0..count {
        let data = data_of(number, LENGTH);
        let lba = u64::from(blocks(number * LENGTH));
        let cdb = cdb::write_16(lba, blocks(LENGTH), false);
        let pdu = session.command_pdu(0, &cdb, Data::Out(&data));
        session.send(&pdu).unwrap();
        writes.push(Write {
            tag: pdu.initiator_task_tag(),
            number,
            data,
            transfer_tag: 0,
        });
    }
    for _ in 0..count {
        let r2t = session.receive().unwrap();
        session.adopt_numbers(&r2t);
        assert_eq!(r2t.opcode(), opcode::R2T);
        assert_eq!(
            (r2t.word(40), r2t.word(44)),
            (word(FIRST), word(LENGTH - FIRST))
        );
        let tag = r2t.initiator_task_tag();
        let write = writes.iter_mut().find(|write| write.tag == tag).unwrap();
        write.transfer_tag = r2t.target_transfer_tag();
    }
    writes
}

/// Sends the rest of all, a piece of one after a piece of the other, in another order each time.
fn finish_interleaved(session: &mut Initiator, writes: &mut [Write]) {
    let pieces = (LENGTH - FIRST) / PIECE;
    for piece in 0..pieces {
        writes.rotate_left(5);
        writes.reverse();
        for write in &*writes {
            let start = FIRST + piece * PIECE;
            let is_last = piece + 1 == pieces;
            let bytes = &write.data[start..start + PIECE];
            let data_out = data_out(session, write, piece, start, bytes, is_last);
            session.send(&data_out).unwrap();
        }
    }
    for _ in 0..writes.len() {
        let response = session.receive().unwrap();
        session.adopt_numbers(&response);
        assert_eq!(response.opcode(), opcode::SCSI_RESPONSE);
        assert_eq!((response.bhs[2], response.bhs[3]), (0, 0), "{response:?}");
    }
}

fn check_written(session: &mut Initiator, writes: &[Write]) {
    for write in writes {
        let cdb = cdb::read_16(u64::from(blocks(write.number * LENGTH)), blocks(LENGTH));
        let answer = session.command(0, &cdb, Data::In(word(LENGTH))).unwrap();
        assert!(answer.is_good());
        assert!(answer.data == write.data, "write {}", write.number);
    }
}

#[test]
fn data_of_many_writes_that_come_in_turn_are_not_mixed_up() {
    let server = serve("disk0,backend=mem,size=64M");
    let mut session = session(&server);
    for _ in 0..3 {
        let mut writes = begin_writes(&mut session, WRITES);
        finish_interleaved(&mut session, &mut writes);
        check_written(&mut session, &writes);
    }
}

/// A server that can be asked what memory it has given out.
struct Reporting {
    server: Server,
    scratch: Scratch,
}

impl Reporting {
    fn start(config: &str) -> Self {
        let scratch = Scratch::new("write-data");
        let server = ServerBuilder::new()
            .volume("disk0,backend=mem,size=64M")
            .iscsi()
            .nvme()
            .config(config)
            .reports_to(&scratch)
            .start()
            .unwrap();
        Self { server, scratch }
    }

    fn report(&self) -> Value {
        report::of(&self.server, &self.scratch)
    }

    /// Waits until payload memory is as expected.
    fn wait_for(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let report = self.report();
            if is_so(&report) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {report:#}");
        }
    }

    /// Nothing is promised or in use, by the budget and by the connections that are left.
    fn wait_until_all_is_given_back(&self) {
        self.wait_for("memory was not given back", |report| {
            let memory = &report["memory"];
            let connections = report["connections"].as_array().unwrap();
            memory["used_bytes"] == memory["kept_bytes"]
                && connections.iter().all(|one| one["writing_bytes"] == 0)
        });
    }
}

fn task_management(session: &mut Initiator, function: u8, tag: u32) {
    let request = Pdu::new(opcode::TASK_MANAGEMENT_REQUEST)
        .immediate()
        .set_byte(1, 0x80 | function)
        .set_word(16, session.new_tag())
        .set_word(20, tag)
        .set_word(24, session.cmd_sn)
        .set_word(28, session.exp_stat_sn);
    session.send(&request).unwrap();
    let response = session.receive().unwrap();
    assert_eq!(response.opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
    assert_eq!(response.bhs[2], 0, "function complete");
}

#[test]
fn memory_of_writes_whose_data_do_not_come_is_given_back_whatever_ends_them() {
    const ABORT_TASK: u8 = 1;
    const LOGICAL_UNIT_RESET: u8 = 5;
    let reporting = Reporting::start("");
    let server = &reporting.server;

    let mut aborting = session(server);
    let mut writes = begin_writes(&mut aborting, WRITES);
    for write in writes.drain(..WRITES / 2) {
        task_management(&mut aborting, ABORT_TASK, write.tag);
    }
    finish_interleaved(&mut aborting, &mut writes);
    check_written(&mut aborting, &writes);
    reporting.wait_until_all_is_given_back();

    // In the middle of a burst, too.
    let writes = begin_writes(&mut aborting, WRITES);
    for write in &writes {
        let half = &write.data[FIRST..FIRST + PIECE];
        let data_out = data_out(&aborting, write, 0, FIRST, half, false);
        aborting.send(&data_out).unwrap();
    }
    task_management(&mut aborting, LOGICAL_UNIT_RESET, 0);
    reporting.wait_until_all_is_given_back();
    aborting.become_ready(0).unwrap();

    // The same ISID: the session takes the place of the one before.
    begin_writes(&mut aborting, WRITES);
    let mut reinstated = session(server);
    reporting.wait_until_all_is_given_back();

    begin_writes(&mut reinstated, WRITES);
    drop(reinstated);
    reporting.wait_until_all_is_given_back();
    drop(aborting);
}

fn data_out(
    session: &Initiator,
    write: &Write,
    data_sn: usize,
    offset: usize,
    data: &[u8],
    is_last: bool,
) -> Pdu {
    Pdu::new(opcode::DATA_OUT)
        .set_byte(1, if is_last { 0x80 } else { 0 })
        .set_word(16, write.tag)
        .set_word(20, write.transfer_tag)
        .set_word(28, session.exp_stat_sn)
        .set_word(36, word(data_sn))
        .set_word(40, word(offset))
        .with_data(data)
}

/// Receives the answer to a write, behind what rejects its data.
fn failure(session: &mut Initiator, tag: u32) -> u8 {
    loop {
        let pdu = session.receive().unwrap();
        if pdu.opcode() == opcode::SCSI_RESPONSE {
            assert_eq!(pdu.initiator_task_tag(), tag);
            return pdu.bhs[3];
        }
        assert_eq!(pdu.opcode(), opcode::REJECT);
    }
}

#[test]
fn memory_of_writes_whose_data_are_wrong_is_given_back() {
    const CHECK_CONDITION: u8 = 2;
    let reporting = Reporting::start("");
    let login = Login {
        first_burst_length: word(FIRST),
        data_digest: true,
        ..Login::numbered(1)
    };
    let mut session = Initiator::ready(reporting.server.portal(0), &login).unwrap();
    let writes = begin_writes(&mut session, WRITES);
    for write in &writes {
        let mut piece = PIECE;
        let mut offset = FIRST;
        // Half of them are damaged in the middle of the burst, the others are not where they should be.
        let is_damaged = write.number % 2 == 0;
        if !is_damaged {
            offset += 512;
            piece -= 512;
        }
        let wrong = data_out(
            &session,
            write,
            0,
            offset,
            &write.data[offset..offset + piece],
            false,
        );
        let mut bytes = wrong.to_bytes(false, true);
        if is_damaged {
            bytes[48 + PIECE / 2] ^= 1;
        }
        session.send_bytes(&bytes).unwrap();
        let rest = &write.data[FIRST + PIECE..];
        let last = data_out(&session, write, 1, FIRST + PIECE, rest, true);
        session.send(&last).unwrap();
        assert_eq!(failure(&mut session, write.tag), CHECK_CONDITION);
    }
    reporting.wait_until_all_is_given_back();
    let answer = session
        .command(
            0,
            &cdb::read_16(0, blocks(WRITES * LENGTH)),
            Data::In(word(WRITES * LENGTH)),
        )
        .unwrap();
    assert!(answer.is_good());
    assert!(
        answer.data.iter().all(|byte| *byte == 0),
        "nothing was written"
    );
}

fn host(server: &Server, number: u8) -> Host {
    let options = HostOptions {
        entries: 32,
        ..HostOptions::numbered(number).queues(1)
    };
    Host::connect(server.nvme(0), &options).unwrap()
}

fn range(offset: usize, length: usize) -> Blocks {
    nvme::blocks(blocks(offset).into(), blocks(length))
}

#[test]
fn memory_of_writes_of_hosts_that_go_wrong_or_leave_is_given_back() {
    let reporting = Reporting::start("");
    let data = data_of(0, MIB);
    let write = commands::write(range(0, MIB), 0);
    for goes_wrong in [true, false] {
        let mut host = host(&reporting.server, 1);
        let queue = &mut host.queues[0];
        for _ in 0..16 {
            queue.start(&write, &data).unwrap();
        }
        let mut r2t = [0; 24];
        queue.stream().read_exact(&mut r2t).unwrap();
        assert_eq!(r2t[0], kind::R2T);
        let command = u16::from_le_bytes([r2t[8], r2t[9]]);
        let tag = u16::from_le_bytes([r2t[10], r2t[11]]);
        let first = nvme_pdu::Pdu::h2c_data(command, tag, 0, &data[..PIECE]);
        queue.send_bytes(&first.to_bytes()).unwrap();
        if goes_wrong {
            let again = nvme_pdu::Pdu::h2c_data(command, tag, 0, &data[..PIECE]);
            queue.send_bytes(&again.to_bytes()).unwrap();
            assert!(queue.stream().read_to_end(&mut Vec::new()).is_ok());
        }
        drop(host);
        reporting.wait_until_all_is_given_back();
    }
}

#[test]
fn a_write_that_finds_all_memory_promised_goes_on_when_another_connection_ends() {
    // Half is for one connection. What is left then is too little for another write, whatever event loops keep.
    const PROMISED: usize = 16 * MIB;
    const MEMORY: usize = PROMISED + MIB / 2;
    let reporting = Reporting::start(&format!("[limits]\nmemory = {MEMORY}\n"));
    let server = &reporting.server;
    let data = data_of(0, MIB);
    let write = commands::write(range(0, MIB), 0);
    let (mut patient, mut leaving) = (host(server, 1), host(server, 2));
    let mut slots = Vec::new();
    for _ in 0..MEMORY / MIB {
        slots.push(patient.queues[0].start(&write, &data).unwrap());
        leaving.queues[0].start(&write, &data).unwrap();
    }
    reporting.wait_for("all memory is promised", |report| {
        report["memory"]["used_bytes"].as_u64().unwrap() >= PROMISED as u64
    });
    let mut late = host(server, 3);
    let slot = late.queues[0].start(&write, &data).unwrap();
    let nothing = late.queues[0].wait_for(slot, Duration::from_millis(50));
    assert!(nothing.unwrap().is_none(), "there was no memory");
    drop(leaving);
    late.queues[0].wait(slot).unwrap().expect_success();
    for slot in slots {
        patient.queues[0].wait(slot).unwrap().expect_success();
    }
    reporting.wait_until_all_is_given_back();
}

#[test]
fn writes_of_many_connections_that_need_more_memory_than_there_is_all_end_well() {
    const HOSTS: u8 = 4;
    const ROUNDS: usize = 4;
    let reporting = Reporting::start(&format!("[limits]\nmemory = {}\n", 12 * MIB));
    let server = &reporting.server;
    std::thread::scope(|scope| {
        for number in 0..HOSTS {
            scope.spawn(move || {
                let mut host = host(server, number + 1);
                let place = range(usize::from(number) * MIB, MIB);
                let mut data = Vec::new();
                for round in 0..ROUNDS {
                    let queue = &mut host.queues[0];
                    data = data_of(usize::from(number) * ROUNDS + round, MIB);
                    let write = commands::write(place, 0);
                    let slots: Vec<_> = (1..32)
                        .map(|_| queue.start(&write, &data).unwrap())
                        .collect();
                    for slot in slots {
                        queue.wait(slot).unwrap().expect_success();
                    }
                }
                assert!(host.read(place).unwrap().expect_success().data == data);
            });
        }
    });
    reporting.wait_until_all_is_given_back();
}

#[test]
fn writes_at_depth_take_the_memory_of_those_whose_data_come() {
    const DEPTH: usize = 128;
    let server = serve("disk0,backend=null,size=1G");
    let process = server.process();
    // The start of the server may have taken more. A peak that stays counts in full.
    let before = match process.forget_peak() {
        Ok(()) => process.resident_bytes_max().unwrap(),
        Err(error) => {
            eprintln!("{error}");
            process.resident_bytes().unwrap()
        }
    };
    let mut host = Host::connect(
        server.nvme(0),
        &HostOptions {
            entries: 128,
            ..HostOptions::default().queues(1)
        },
    )
    .unwrap();
    let write = commands::write(range(0, MIB), 0);
    let queue = &mut host.queues[0];
    let data = data_of(0, MIB);
    let slots: Vec<_> = (1..DEPTH)
        .map(|_| queue.prepare(&write, &data).unwrap())
        .collect();
    for slot in slots {
        queue.wait(slot).unwrap().expect_success();
    }
    let taken = process.resident_bytes_max().unwrap() - before;
    assert!(taken < 16 * MIB as u64, "{taken} bytes");
}

#[test]
fn hosts_write_many_commands_at_a_time_and_read_them_back() {
    let server = serve("disk0,backend=mem,size=64M");
    let mut host = Host::connect(
        server.nvme(0),
        &HostOptions {
            entries: 128,
            ..HostOptions::default().queues(1).digests(true, true)
        },
    )
    .unwrap();
    let range = |number, length| range(number * LENGTH, length);
    // On both sides of the length from which on memory is promised first.
    let lengths = [LENGTH, 16 << 10, 32 << 10, 4096, 100 << 10];
    let queue = &mut host.queues[0];
    let mut written = HashMap::new();
    for number in 0..100 {
        let data = data_of(number, lengths[number % lengths.len()]);
        let write = commands::write(range(number, data.len()), 0);
        written.insert(number, (queue.prepare(&write, &data).unwrap(), data));
    }
    for (slot, _) in written.values() {
        queue.wait(*slot).unwrap().expect_success();
    }
    for (number, (_, data)) in written {
        let answer = host.read(range(number, data.len())).unwrap();
        assert!(answer.expect_success().data == data, "write {number}");
    }
}
