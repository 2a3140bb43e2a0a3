//! The admin queue: properties, Identify, features, log pages, the controller's states.

use std::time::{Duration, Instant};

use longshore_nvme::host::Command;
use longshore_nvme::host::commands::{self, Property};
use longshore_nvme::opcode::Opcode;
use longshore_nvme::status::Status;
use longshore_tests::nvme::{HostOptions, SUBSYSTEM};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::ServerBuilder;

use crate::{ONE, blocks, connect, connect_by, number, serve};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn properties_tell_what_the_controller_can() {
    let server = serve();
    let mut host = connect(&server);
    let cap = host.property(Property::CAP).unwrap();
    assert!(cap & 0xffff >= 31, "MQES of at least 32 entries");
    assert_eq!(cap >> 16 & 1, 1, "CQR: queues are contiguous");
    assert_eq!(cap >> 37 & 1, 1, "the NVM command set");
    assert_eq!(cap >> 48 & 0xf, 0, "MPSMIN is 4 KiB");
    let version = host.property(Property::VS).unwrap();
    assert!(version >= 0x0001_0300, "{version:#x}");
    assert_eq!(host.property(Property::CC).unwrap() & 1, 1);
    assert_eq!(host.property(Property::CSTS).unwrap() & 1, 1);
    // No property begins in the middle of another.
    let nowhere = Property {
        offset: 0x15,
        wide: false,
    };
    let answer = host.admin(&commands::property_get(nowhere), &[]).unwrap();
    assert_eq!(answer.code(), Status::INVALID_FIELD);
}

#[test]
fn identify_controller_says_what_a_linux_host_looks_at() {
    let server = serve();
    let mut host = connect(&server);
    let identify = host.identify(0x01, 0).unwrap();
    let serial = String::from_utf8(identify[4..24].to_vec()).unwrap();
    let model = String::from_utf8(identify[24..64].to_vec()).unwrap();
    assert!(!serial.trim().is_empty());
    assert!(model.to_lowercase().contains("longshore"), "{model:?}");
    assert_eq!(number(&identify, 78, 2), u64::from(host.controller_id));
    assert_eq!((identify[512], identify[513]), (0x66, 0x44), "SQES, CQES");
    assert!(number(&identify, 516, 4) >= 2, "NN");
    assert!(number(&identify, 320, 2) > 0, "KAS");
    let sgls = number(&identify, 536, 4);
    assert_ne!(sgls & 3, 0, "SGLs are supported");
    assert_ne!(sgls >> 20 & 1, 0, "in-capsule data by offset");
    let subsystem = String::from_utf8_lossy(&identify[768..1024]).into_owned();
    assert_eq!(subsystem.trim_end_matches('\0'), SUBSYSTEM);
    assert!(number(&identify, 1792, 4) >= 4, "IOCCSZ");
    assert_eq!(number(&identify, 1796, 4), 1, "IORCSZ");
    assert_eq!(number(&identify, 1800, 2), 0, "ICDOFF");
    assert_eq!(identify[1803], 1, "MSDBD");
}

#[test]
fn namespaces_are_listed_and_described() {
    let server = serve();
    let mut host = connect(&server);
    assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    let shapes = [(1, 64 << 11, 9), (2, 1 << 28, 12)];
    let mut names = Vec::new();
    for (namespace, size, shift) in shapes {
        let identify = host.identify(0x00, namespace).unwrap();
        assert_eq!(number(&identify, 0, 8), size, "NSZE");
        assert_eq!(number(&identify, 8, 8), size, "NCAP");
        let format = usize::from(identify[26] & 0xf);
        assert_eq!(identify[128 + 4 * format + 2], shift, "LBADS");
        assert_eq!(identify[30] & 1, 1, "NMIC: it can be shared");
        let nguid = identify[104..120].to_vec();
        assert_ne!(nguid, [0; 16]);
        let descriptors = host.identify(0x03, namespace).unwrap();
        let found = identifiers(&descriptors);
        let uuid = found.iter().find(|(kind, _)| *kind == 3).unwrap();
        assert_eq!(uuid.1.len(), 16);
        let described = found.iter().find(|(kind, _)| *kind == 2);
        assert!(described.is_none_or(|(_, value)| *value == nguid));
        names.push(uuid.1.clone());
    }
    assert_ne!(names[0], names[1]);
    let again: Vec<_> = connect(&server)
        .identify(0x03, 1)
        .map(|descriptors| identifiers(&descriptors))
        .unwrap();
    assert!(again.iter().any(|(_, value)| *value == names[0]));
    // None there: zeros; none possible: refused.
    assert_eq!(host.identify(0x00, 3).unwrap(), vec![0; 4096]);
    let bad = commands::identify(0x00, longshore_nvme::command::NamespaceId(0));
    assert!(!host.admin(&bad, &[]).unwrap().is_success());
    let unknown = commands::identify(0xee, ONE);
    let answer = host.admin(&unknown, &[]).unwrap();
    assert_eq!(answer.code(), Status::INVALID_FIELD);
}

/// Type and value of each namespace identification descriptor.
fn identifiers(mut list: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let [kind, length, _, _, rest @ ..] = list
        && *kind != 0
    {
        let (value, later) = rest.split_at(usize::from(*length));
        found.push((*kind, value.to_vec()));
        list = later;
    }
    found
}

#[test]
fn the_volatile_write_cache_is_told_per_backend() {
    let scratch = Scratch::new("nvme-vwc");
    let disk = scratch.join("disk0.img");
    let server = ServerBuilder::new()
        .volume(&format!(
            "disk0,backend=file,path={},size=16M",
            disk.display()
        ))
        .nvme()
        .start()
        .unwrap();
    let mut host = connect(&server);
    let identify = host.identify(0x01, 0).unwrap();
    assert_eq!(identify[525] & 1, 1, "the page cache is volatile");
    let feature = host.admin(&commands::get_features(0x06), &[]).unwrap();
    assert_eq!(feature.expect_success().result & 1, 1);
}

#[test]
fn features_are_got_and_set() {
    let server = serve();
    let options = HostOptions {
        keep_alive_ms: 60_000,
        ..HostOptions::default()
    };
    let mut host = connect_by(&server, &options);
    let kato = host.admin(&commands::get_features(0x0f), &[]).unwrap();
    assert_eq!(kato.expect_success().result, 60_000);
    host.admin(&commands::set_features(0x0f, 30_000), &[])
        .unwrap()
        .expect_success();
    let kato = host.admin(&commands::get_features(0x0f), &[]).unwrap();
    assert_eq!(kato.expect_success().result, 30_000);
    let queues = host.admin(&commands::get_features(0x07), &[]).unwrap();
    let queues = queues.expect_success().result;
    assert_eq!(queues & 0xffff, queues >> 16, "as many each way");
    let nothing = host.admin(&commands::get_features(0xd0), &[]).unwrap();
    assert_eq!(nothing.code(), Status::INVALID_FIELD);
}

#[test]
fn log_pages_can_be_read_in_pieces() {
    let server = serve();
    let mut host = connect(&server);
    for (page, length) in [
        (0x00, 1024),
        (0x01, 64),
        (0x02, 512),
        (0x03, 512),
        (0x04, 4096),
        (0x05, 4096),
        (0x0c, 40),
    ] {
        let whole = host.log_page(page, 0, length).unwrap();
        assert_eq!(whole.len(), length as usize, "log page {page:#x}");
    }
    let effects = host.log_page(0x05, 0, 4096).unwrap();
    let part = host.log_page(0x05, 1024, 64).unwrap();
    assert_eq!(part, effects[1024..1088]);
    // Supported and, for Write, changing contents.
    let of = |opcode: usize| number(&effects, 1024 + opcode * 4, 4);
    assert_eq!(of(0x02) & 1, 1, "Read");
    assert_eq!(of(0x01) & 3, 3, "Write");
    assert_eq!(of(0xcc), 0);
    let unknown = commands::get_log_page(0xee, ONE, 0, 512);
    let answer = host.admin(&unknown, &[]).unwrap();
    assert_eq!(answer.code(), Status::INVALID_LOG_PAGE);
}

#[test]
fn an_unknown_admin_command_is_invalid() {
    let server = serve();
    let mut host = connect(&server);
    for opcode in [0x00, 0x04, 0xc1] {
        let answer = host.admin(&Command::new(Opcode(opcode), ONE), &[]).unwrap();
        assert_eq!(answer.code(), Status::INVALID_COMMAND_OPCODE, "{opcode:#x}");
    }
}

#[test]
fn abort_ends_an_event_request_and_says_when_there_is_nothing_to_end() {
    let server = serve();
    let mut host = connect(&server);
    let waiting = host
        .admin
        .start(&commands::async_event_request(), &[])
        .unwrap();
    let id = host.admin.command_id(waiting);
    let abort = host.admin(&commands::abort(0, id), &[]).unwrap();
    assert_eq!(abort.expect_success().result & 1, 0, "aborted");
    let answer = host.admin.wait(waiting).unwrap();
    assert_eq!(answer.code(), Status::ABORT_REQUESTED);
    let abort = host.admin(&commands::abort(0, id), &[]).unwrap();
    assert_eq!(abort.expect_success().result & 1, 1, "not aborted");
}

#[test]
fn a_reset_ends_the_io_queues_and_the_controller_can_be_enabled_again() {
    let server = serve();
    let mut host = connect_by(&server, &HostOptions::default().queues(2));
    host.set_property(Property::CC, 0x0046_0000).unwrap();
    host.wait_for_status(1, 0).unwrap();
    for queue in &mut host.queues {
        assert!(queue.is_closed_within(SOON).unwrap());
    }
    host.queues.clear();
    host.enable().unwrap();
    let queue = host.connect_queue(1).unwrap();
    host.queues.push(queue);
    host.read(blocks(0, 1)).unwrap().expect_success();
}

#[test]
fn a_shutdown_is_reported_complete() {
    let server = serve();
    let mut host = connect(&server);
    host.set_property(Property::CC, 0x0046_4001).unwrap();
    host.wait_for_status(0xc, 0x8).unwrap();
}

#[test]
fn a_host_that_goes_silent_loses_its_controller() {
    let server = serve();
    let options = HostOptions {
        keep_alive_ms: 1_000,
        ..HostOptions::default()
    };
    let mut silent = connect_by(&server, &options);
    let started = Instant::now();
    assert!(
        silent
            .admin
            .is_closed_within(Duration::from_secs(10))
            .unwrap()
    );
    assert!(started.elapsed() > Duration::from_millis(900));
    assert!(silent.queues[0].is_closed_within(SOON).unwrap());
}

#[test]
fn keep_alive_commands_or_traffic_keep_a_controller() {
    let server = serve();
    // Time is the subject: a host stays for longer than its keep-alive timeout. One that stands still for as long is
    // cut rightly, so the timeout leaves room for that.
    let options = HostOptions {
        keep_alive_ms: 8_000,
        ..HostOptions::default()
    };
    let mut host = connect_by(&server, &options);
    let identify = host.identify(0x01, 0).unwrap();
    let by_traffic = number(&identify, 96, 4) >> 6 & 1 == 1;
    for n in 0..8 {
        std::thread::sleep(Duration::from_millis(1_800));
        if n < 4 || !by_traffic {
            host.admin(&commands::keep_alive(), &[])
                .unwrap()
                .expect_success();
        }
        host.read(blocks(0, 1)).unwrap().expect_success();
    }
}

#[test]
fn disconnect_ends_one_queue_and_the_controller_goes_on() {
    let server = serve();
    let mut host = connect_by(&server, &HostOptions::default().queues(2));
    let mut first = host.queues.remove(0);
    first
        .run(&commands::disconnect(), &[])
        .unwrap()
        .expect_success();
    assert!(first.is_closed_within(SOON).unwrap());
    drop(first);
    host.read(blocks(0, 1)).unwrap().expect_success();
    // The server sees the end of the connection a moment later.
    let again = (0..1_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        host.connect_queue(1).ok()
    });
    assert!(again.is_some(), "its identifier is free again");
}

#[test]
fn io_queues_end_with_their_admin_queue() {
    let server = serve();
    let mut host = connect(&server);
    let mut queue = host.queues.remove(0);
    drop(host);
    assert!(queue.is_closed_within(SOON).unwrap());
}
