//! Reservations: among NVMe hosts, and between them and SCSI initiators of the same volume.

use longshore_nvme::host::commands;
use longshore_nvme::status::Status;
use longshore_tests::initiator::{self, Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Answer, Host, HostOptions};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

use crate::{ONE, blocks, connect_by, number, volumes};

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 2;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 3;

/// PREEMPT of both protocols' services.
const PREEMPT: u32 = 1;

/// CPTPL: the state survives power loss.
const PERSIST: u32 = 3 << 30;

fn serve() -> Server {
    volumes().iscsi().nvme().start().unwrap()
}

fn host(server: &Server, number: u8) -> Host {
    connect_by(server, &HostOptions::numbered(number))
}

fn keys(one: u64, two: u64) -> [u8; 16] {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&one.to_le_bytes());
    data[8..].copy_from_slice(&two.to_le_bytes());
    data
}

#[track_caller]
fn register(host: &mut Host, key: u64) {
    let command = commands::reservation_register(ONE, 0);
    host.io(&command, &keys(0, key)).unwrap().expect_success();
}

fn acquire(host: &mut Host, action: u32, kind: u8, key: u64, preempted: u64) -> Answer {
    let command = commands::reservation_acquire(ONE, action, kind);
    host.io(&command, &keys(key, preempted)).unwrap()
}

fn release(host: &mut Host, kind: u8, key: u64) -> Answer {
    let command = commands::reservation_release(ONE, 0, kind);
    host.io(&command, &key.to_le_bytes()).unwrap()
}

/// RTYPE and the keys of all registrants, ascending.
fn report(host: &mut Host) -> (u8, Vec<u64>) {
    let command = commands::reservation_report(ONE, 4096);
    let data = host.io(&command, &[]).unwrap().expect_success().data;
    let registrants = data[64..].chunks_exact(64);
    let count = number(&data, 5, 2);
    let count = usize::try_from(count).unwrap();
    let mut keys: Vec<u64> = registrants
        .take(count)
        .map(|registrant| number(registrant, 8, 8))
        .collect();
    keys.sort_unstable();
    (data[4], keys)
}

fn write(host: &mut Host) -> Answer {
    host.write(blocks(0, 1), &[7; 512]).unwrap()
}

fn read(host: &mut Host) -> Answer {
    host.read(blocks(0, 1)).unwrap()
}

#[track_caller]
fn assert_conflict(answer: &Answer) {
    assert_eq!(answer.code(), Status::RESERVATION_CONFLICT);
}

/// An initiator past its first unit attention.
fn scsi(server: &Server, number: u16) -> Initiator {
    let login = Login {
        initiator: format!("iqn.2026-11.local.longshore:tests-{number}"),
        ..Login::numbered(number)
    };
    Initiator::ready(server.portal(0), &login).unwrap()
}

fn scsi_out(host: &mut Initiator, action: u8, kind: u8, keys: (u64, u64)) -> initiator::Answer {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&keys.0.to_be_bytes());
    list[8..16].copy_from_slice(&keys.1.to_be_bytes());
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    host.command(0, &cdb, Data::Out(&list)).unwrap()
}

fn scsi_write(host: &mut Initiator) -> initiator::Answer {
    let cdb = cdb::write_16(0, 1, false);
    host.command(0, &cdb, Data::Out(&[9; 512])).unwrap()
}

fn scsi_read(host: &mut Initiator) -> initiator::Answer {
    host.command(0, &cdb::read_16(0, 1), Data::In(512)).unwrap()
}

#[track_caller]
fn assert_scsi_conflict(answer: &initiator::Answer) {
    assert_eq!((answer.response, answer.status), (0, 0x18), "{answer:?}");
}

#[test]
fn a_reservation_keeps_other_hosts_out_until_it_is_released() {
    let server = serve();
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    register(&mut one, 11);
    acquire(&mut one, 0, EXCLUSIVE_ACCESS, 11, 0).expect_success();
    write(&mut one).expect_success();
    assert_conflict(&write(&mut two));
    assert_conflict(&read(&mut two));
    assert_eq!(report(&mut two), (EXCLUSIVE_ACCESS, vec![11]));
    release(&mut one, EXCLUSIVE_ACCESS, 11).expect_success();
    write(&mut two).expect_success();
    acquire(&mut one, 0, WRITE_EXCLUSIVE, 11, 0).expect_success();
    read(&mut two).expect_success();
    assert_conflict(&write(&mut two));
}

#[test]
fn every_queue_and_every_controller_of_a_host_hold_what_the_host_holds() {
    let server = serve();
    let mut one = connect_by(&server, &HostOptions::numbered(1).queues(2));
    let mut again = host(&server, 1);
    let mut two = host(&server, 2);
    register(&mut one, 11);
    acquire(&mut one, 0, EXCLUSIVE_ACCESS, 11, 0).expect_success();
    let second = one.queues[1].run(&commands::write(blocks(0, 1), 0), &[7; 512]);
    second.unwrap().expect_success();
    write(&mut again).expect_success();
    assert_conflict(&write(&mut two));
    drop((one, again));
    // It has seen that its peers are gone.
    server.process().wait_until_at_rest();
    assert_conflict(&write(&mut two));
    write(&mut host(&server, 1)).expect_success();
}

#[test]
fn a_preempted_host_is_told_by_its_log() {
    let server = serve();
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    register(&mut one, 11);
    register(&mut two, 22);
    acquire(&mut one, 0, WRITE_EXCLUSIVE_REGISTRANTS, 11, 0).expect_success();
    write(&mut two).expect_success();
    let waiting = one
        .admin
        .start(&commands::async_event_request(), &[])
        .unwrap();
    acquire(&mut two, PREEMPT, EXCLUSIVE_ACCESS, 22, 11).expect_success();
    assert_eq!(report(&mut two), (EXCLUSIVE_ACCESS, vec![22]));
    assert_conflict(&write(&mut one));
    write(&mut two).expect_success();
    let event = one.admin.wait(waiting).unwrap().expect_success();
    // I/O command specific status, reservation log page available.
    assert_eq!((event.result & 7, event.result >> 16 & 0xff), (6, 0x80));
    let page = one.log_page(0x80, 0, 64).unwrap();
    assert_ne!(number(&page, 0, 8), 0, "a notification counts");
    // Registration preempted.
    assert_eq!(page[8], 1);
    assert_eq!(number(&page, 12, 4), 1, "NSID");
}

#[test]
fn an_nvme_reservation_keeps_scsi_initiators_out() {
    let server = serve();
    let mut nvme = host(&server, 1);
    let mut scsi = scsi(&server, 1);
    register(&mut nvme, 11);
    acquire(&mut nvme, 0, EXCLUSIVE_ACCESS, 11, 0).expect_success();
    assert_scsi_conflict(&scsi_write(&mut scsi));
    assert_scsi_conflict(&scsi_read(&mut scsi));
    release(&mut nvme, EXCLUSIVE_ACCESS, 11).expect_success();
    assert!(scsi_write(&mut scsi).is_good());
    acquire(&mut nvme, 0, WRITE_EXCLUSIVE, 11, 0).expect_success();
    assert!(scsi_read(&mut scsi).is_good());
    assert_scsi_conflict(&scsi_write(&mut scsi));
}

#[test]
fn a_scsi_reservation_keeps_nvme_hosts_out() {
    let server = serve();
    let mut nvme = host(&server, 1);
    let mut scsi = scsi(&server, 1);
    assert!(scsi_out(&mut scsi, 0, 0, (0, 33)).is_good());
    // EXCLUSIVE ACCESS.
    assert!(scsi_out(&mut scsi, 1, 3, (33, 0)).is_good());
    assert_conflict(&write(&mut nvme));
    assert_conflict(&read(&mut nvme));
    assert!(scsi_write(&mut scsi).is_good());
    assert_eq!(report(&mut nvme), (EXCLUSIVE_ACCESS, vec![33]));
    // RELEASE.
    assert!(scsi_out(&mut scsi, 2, 3, (33, 0)).is_good());
    write(&mut nvme).expect_success();
}

#[test]
fn registrants_of_both_protocols_share_and_preempt_each_other() {
    let server = serve();
    let mut nvme = host(&server, 1);
    let mut scsi = scsi(&server, 1);
    register(&mut nvme, 11);
    assert!(scsi_out(&mut scsi, 0, 0, (0, 33)).is_good());
    acquire(&mut nvme, 0, WRITE_EXCLUSIVE_REGISTRANTS, 11, 0).expect_success();
    assert!(scsi_write(&mut scsi).is_good());
    write(&mut nvme).expect_success();
    assert_eq!(
        report(&mut nvme),
        (WRITE_EXCLUSIVE_REGISTRANTS, vec![11, 33])
    );
    // PREEMPT by SCSI, for EXCLUSIVE ACCESS.
    assert!(scsi_out(&mut scsi, 4, 3, (33, 11)).is_good());
    assert_conflict(&write(&mut nvme));
    assert_eq!(report(&mut nvme), (EXCLUSIVE_ACCESS, vec![33]));
    // And back.
    register(&mut nvme, 12);
    acquire(&mut nvme, PREEMPT, EXCLUSIVE_ACCESS, 12, 33).expect_success();
    write(&mut nvme).expect_success();
    // The initiator is told of it first.
    let told = scsi_write(&mut scsi);
    assert!(!told.is_good(), "{told:?}");
    assert_scsi_conflict(&scsi_write(&mut scsi));
}

#[test]
fn a_reservation_that_asks_to_survive_is_there_after_the_server_was_killed() {
    let scratch = Scratch::new("nvme-reservations");
    let start = || {
        let disk = scratch.join("disk0.img");
        ServerBuilder::new()
            .volume(&format!(
                "disk0,backend=file,path={},size=64M",
                disk.display()
            ))
            .iscsi()
            .nvme()
            .argument("--state-dir")
            .argument(&scratch.join("state").display().to_string())
            .start()
            .unwrap()
    };
    let server = start();
    let mut one = host(&server, 1);
    let command = commands::reservation_register(ONE, PERSIST);
    one.io(&command, &keys(0, 11)).unwrap().expect_success();
    acquire(&mut one, 0, EXCLUSIVE_ACCESS, 11, 0).expect_success();
    server.kill().unwrap();

    let server = start();
    let (mut one, mut two) = (host(&server, 1), host(&server, 2));
    assert_eq!(report(&mut two), (EXCLUSIVE_ACCESS, vec![11]));
    assert_conflict(&write(&mut two));
    assert_scsi_conflict(&scsi_write(&mut scsi(&server, 1)));
    write(&mut one).expect_success();
}
