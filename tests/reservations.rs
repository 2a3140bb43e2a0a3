//! Reservations as several initiators see them, across sessions, restarts and damage.

use std::path::Path;
use std::time::Duration;

use longshore_tests::initiator::{Answer, Data, Initiator, Login, cdb};
use longshore_tests::pdu::opcode;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const PREEMPT_AND_ABORT: u8 = 5;
const EXCLUSIVE_ACCESS: u8 = 3;
const APTPL: u8 = 1;
const RESERVATION_CONFLICT: u8 = 0x18;

fn start(scratch: &Scratch) -> Server {
    serve(scratch).start().unwrap()
}

fn serve(scratch: &Scratch) -> ServerBuilder {
    let disk = scratch.join("disk0.img");
    ServerBuilder::new()
        .volume(&format!(
            "disk0,backend=file,path={},size=64M",
            disk.display()
        ))
        .iscsi()
        .argument("--state-dir")
        .argument(&scratch.join("state").display().to_string())
}

/// A session of one of several hosts, past its first unit attention.
fn host(server: &Server, number: u16) -> Initiator {
    let initiator = format!("iqn.2026-11.local.longshore:tests-{number}");
    let login = Login {
        initiator,
        ..Login::numbered(number)
    };
    Initiator::ready(server.portal(0), &login).unwrap()
}

fn out(host: &mut Initiator, action: u8, kind: u8, keys: (u64, u64), flags: u8) -> Answer {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&keys.0.to_be_bytes());
    list[8..16].copy_from_slice(&keys.1.to_be_bytes());
    list[20] = flags;
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    host.command(0, &cdb, Data::Out(&list)).unwrap()
}

/// Keys that PERSISTENT RESERVE IN, READ KEYS lists.
fn keys(host: &mut Initiator) -> Vec<u64> {
    let cdb = [0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let answer = host.command(0, &cdb, Data::In(256)).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    let keys = answer.data[8..].chunks_exact(8);
    keys.map(|key| u64::from_be_bytes(key.try_into().unwrap()))
        .collect()
}

fn write(host: &mut Initiator) -> Answer {
    host.command(0, &cdb::write_16(0, 1, false), Data::Out(&[7; 512]))
        .unwrap()
}

fn assert_conflict(answer: &Answer) {
    assert_eq!(
        (answer.response, answer.status),
        (0, RESERVATION_CONFLICT),
        "{answer:?}"
    );
}

#[test]
fn a_reservation_that_asks_to_survive_is_there_after_the_server_was_killed() {
    let scratch = Scratch::new("reservations");
    let server = start(&scratch);
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    assert!(out(&mut one, REGISTER, 0, (0, 11), APTPL).is_good());
    assert!(out(&mut two, REGISTER, 0, (0, 22), APTPL).is_good());
    assert!(out(&mut one, RESERVE, EXCLUSIVE_ACCESS, (11, 0), 0).is_good());
    server.kill().unwrap();

    let server = start(&scratch);
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    assert_eq!(keys(&mut two), [11, 22]);
    assert_conflict(&write(&mut two));
    assert!(write(&mut one).is_good());
    // The survivor fences the host that hangs.
    let preempted = out(&mut two, PREEMPT_AND_ABORT, EXCLUSIVE_ACCESS, (22, 11), 0);
    assert!(preempted.is_good(), "{preempted:?}");
    assert!(write(&mut two).is_good());
    assert_eq!(
        write(&mut one).sense_code(),
        None,
        "the conflict comes first"
    );
    server.kill().unwrap();

    let server = start(&scratch);
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    assert_eq!(keys(&mut one), [22]);
    assert_conflict(&write(&mut one));
    assert!(write(&mut two).is_good());
}

#[test]
fn preempt_and_abort_ends_a_write_that_is_under_way() {
    let scratch = Scratch::new("reservations");
    let server = start(&scratch);
    let (mut one, mut two) = (slow_writer(&server, 1), host(&server, 2));
    assert!(out(&mut one, REGISTER, 0, (0, 11), 0).is_good());
    assert!(out(&mut two, REGISTER, 0, (0, 22), 0).is_good());
    // A write whose data the target asks for and does not get.
    let command = one.command_pdu(0, &cdb::write_16(0, 1, false), Data::Out(&[7; 512]));
    one.send(&command).unwrap();
    assert_eq!(one.receive().unwrap().opcode(), opcode::R2T);
    let preempted = out(&mut two, PREEMPT_AND_ABORT, 0, (22, 11), 0);
    assert!(preempted.is_good(), "{preempted:?}");
    let told: Vec<_> = (0..3)
        .map(|_| test_unit_ready(&mut one).sense_code())
        .collect();
    let (cleared, registration) = ((6, 0x2f, 0x00), (6, 0x2a, 0x05));
    assert_eq!(told, [Some(cleared), Some(registration), None]);
    // Nothing of it was written.
    let read = two.command(0, &cdb::read_16(0, 1), Data::In(512)).unwrap();
    assert_eq!(read.data, [0; 512]);
}

/// A host that sends data only when asked.
fn slow_writer(server: &Server, number: u16) -> Initiator {
    let login = Login {
        initiator: format!("iqn.2026-11.local.longshore:tests-{number}"),
        initial_r2t: true,
        immediate_data: false,
        ..Login::numbered(number)
    };
    Initiator::ready(server.portal(0), &login).unwrap()
}

fn test_unit_ready(host: &mut Initiator) -> Answer {
    host.command(0, &[0; 6], Data::None).unwrap()
}

#[test]
fn a_reservation_that_does_not_ask_to_survive_is_gone_after_a_restart() {
    let scratch = Scratch::new("reservations");
    let server = start(&scratch);
    let mut one = host(&server, 1);
    assert!(out(&mut one, REGISTER, 0, (0, 11), 0).is_good());
    assert!(out(&mut one, RESERVE, EXCLUSIVE_ACCESS, (11, 0), 0).is_good());
    drop(one);
    server.stop(Duration::from_secs(15)).unwrap();
    let server = start(&scratch);
    let mut two = host(&server, 2);
    assert!(keys(&mut two).is_empty());
    assert!(write(&mut two).is_good());
}

#[test]
fn a_session_cut_off_keeps_its_persistent_reservation_and_loses_reserve_6() {
    let scratch = Scratch::new("reservations");
    let server = start(&scratch);
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    assert!(
        one.command(0, &[0x16, 0, 0, 0, 0, 0], Data::None)
            .unwrap()
            .is_good()
    );
    assert_conflict(&write(&mut two));
    drop(one);
    let released = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        write(&mut two).is_good()
    });
    assert!(released);

    let mut one = host(&server, 1);
    assert!(out(&mut one, REGISTER, 0, (0, 11), 0).is_good());
    assert!(out(&mut one, RESERVE, EXCLUSIVE_ACCESS, (11, 0), 0).is_good());
    drop(one);
    // It has seen that its peer is gone.
    server.process().wait_until_at_rest();
    assert_conflict(&write(&mut two));
    let mut one = host(&server, 1);
    assert!(write(&mut one).is_good());
}

#[test]
fn a_server_with_damaged_reservations_does_not_start_and_says_which_file() {
    let scratch = Scratch::new("reservations");
    let server = start(&scratch);
    let mut one = host(&server, 1);
    assert!(out(&mut one, REGISTER, 0, (0, 11), APTPL).is_good());
    server.kill().unwrap();
    let stored = only_file_below(&scratch.join("state/reservations"));
    let mut bytes = std::fs::read(&stored).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&stored, bytes).unwrap();

    let (status, log) = serve(&scratch).start_and_fail().unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(&stored) && log.contains("checksum"), "{log}");
    std::fs::remove_file(&stored).unwrap();
    let server = start(&scratch);
    assert!(keys(&mut host(&server, 1)).is_empty());
}

fn only_file_below(directory: &Path) -> String {
    let mut entries = std::fs::read_dir(directory).unwrap();
    let path = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "one volume, one file");
    path.display().to_string()
}
