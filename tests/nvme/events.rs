//! What hosts are told without asking.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use longshore_nvme::host::CommandSlot;
use longshore_nvme::host::commands;
use longshore_nvme::status::Status;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

use crate::{blocks, connect, number};

fn serve(disk: &Path) -> Server {
    ServerBuilder::new()
        .volume(&format!(
            "disk0,backend=file,path={},size=16M",
            disk.display()
        ))
        .iscsi()
        .nvme()
        .start()
        .unwrap()
}

fn grow(disk: &Path, server: &Server, bytes: u64) {
    OpenOptions::new()
        .write(true)
        .open(disk)
        .unwrap()
        .set_len(bytes)
        .unwrap();
    server.reload().unwrap();
}

fn request(host: &mut Host) -> CommandSlot {
    host.admin
        .start(&commands::async_event_request(), &[])
        .unwrap()
}

/// Asks for events about attributes of namespaces.
fn ask(host: &mut Host) {
    let set = commands::set_features(0x0b, 1 << 8);
    host.admin(&set, &[]).unwrap().expect_success();
}

/// Notice, namespace attribute changed, log page 4.
const NAMESPACE_ATTRIBUTE_CHANGED: u64 = 0x04_0002;

#[test]
fn a_volume_that_grows_is_an_event_and_a_changed_namespace() {
    let scratch = Scratch::new("nvme-events");
    let disk = scratch.join("disk0.img");
    let server = serve(&disk);
    let mut host = connect(&server);
    assert_eq!(host.namespace_size(1).unwrap(), 16 << 11);
    ask(&mut host);
    let waiting = request(&mut host);
    grow(&disk, &server, 32 << 20);
    let event = host.admin.wait(waiting).unwrap().expect_success();
    assert_eq!(event.result & 0xff_ff07, NAMESPACE_ATTRIBUTE_CHANGED);
    let changed = host.log_page(0x04, 0, 4096).unwrap();
    assert_eq!((number(&changed, 0, 4), number(&changed, 4, 4)), (1, 0));
    // Reading it clears it.
    let changed = host.log_page(0x04, 0, 4096).unwrap();
    assert_eq!(number(&changed, 0, 4), 0);
    assert_eq!(host.namespace_size(1).unwrap(), 32 << 11);
    let last = blocks((32 << 11) - 1, 1);
    host.write(last, &[1; 512]).unwrap().expect_success();
}

#[test]
fn hosts_and_initiators_are_told_of_the_same_growth() {
    let scratch = Scratch::new("nvme-events");
    let disk = scratch.join("disk0.img");
    let server = serve(&disk);
    let mut host = connect(&server);
    ask(&mut host);
    let mut scsi = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let waiting = request(&mut host);
    grow(&disk, &server, 32 << 20);
    host.admin.wait(waiting).unwrap().expect_success();
    let told = scsi.command(0, &cdb::TEST_UNIT_READY, Data::None).unwrap();
    let capacity_changed = (6, 0x2a, 0x09);
    assert_eq!(told.sense_code(), Some(capacity_changed));
    let capacity = scsi.command(0, &cdb::read_capacity_16(), Data::In(32));
    let last = u64::from_be_bytes(capacity.unwrap().data[..8].try_into().unwrap());
    assert_eq!(host.namespace_size(1).unwrap(), last + 1);
}

#[test]
fn an_event_that_nobody_waits_for_is_kept_until_somebody_does() {
    let scratch = Scratch::new("nvme-events");
    let disk = scratch.join("disk0.img");
    let server = serve(&disk);
    let mut host = connect(&server);
    ask(&mut host);
    grow(&disk, &server, 32 << 20);
    let seen = (0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        host.namespace_size(1).unwrap() == 32 << 11
    });
    assert!(seen);
    let waiting = request(&mut host);
    let event = host.admin.wait(waiting).unwrap().expect_success();
    assert_eq!(event.result & 0xff_ff07, NAMESPACE_ATTRIBUTE_CHANGED);
    // Until its log page is read, the event does not come again.
    let waiting = request(&mut host);
    grow(&disk, &server, 48 << 20);
    let limit = Duration::from_millis(700);
    assert_eq!(host.admin.wait_for(waiting, limit).unwrap(), None);
}

#[test]
fn more_event_requests_than_allowed_are_refused() {
    let scratch = Scratch::new("nvme-events");
    let server = serve(&scratch.join("disk0.img"));
    let mut host = connect(&server);
    let limit = host.identify(0x01, 0).unwrap()[259];
    for _ in 0..=limit {
        request(&mut host);
    }
    let more = request(&mut host);
    let answer = host.admin.wait(more).unwrap();
    assert_eq!(answer.code(), Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED);
    host.admin(&commands::keep_alive(), &[])
        .unwrap()
        .expect_success();
}

#[test]
fn event_requests_end_with_their_controller_and_not_before() {
    let scratch = Scratch::new("nvme-events");
    let server = serve(&scratch.join("disk0.img"));
    let mut host = Host::connect(server.nvme(0), &HostOptions::default()).unwrap();
    let waiting = request(&mut host);
    let limit = Duration::from_millis(300);
    assert_eq!(host.admin.wait_for(waiting, limit).unwrap(), None);
    host.namespace_size(1).unwrap();
}
