//! Peers that ask for too much: connections, queues, data that nobody takes.

use std::time::{Duration, Instant};

use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{self, ANY_CONTROLLER, Property};
use longshore_nvme::status::Status;
use longshore_tests::nvme::pdu::{Pdu, RawConnection, kind};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::process::allow_many_files;
use longshore_tests::server::ServerBuilder;
use rustix::net::sockopt::set_socket_linger;

use crate::{LIMITS, MEBI, Scene, blocks, entry};

/// Limits with which nothing times out during a test.
const PATIENT: &str = "\
[limits]
login-timeout = \"60s\"
pending-logins = 2000
controllers = 2000
memory = \"64M\"
";

#[test]
fn a_thousand_idle_connections_cost_little_and_nobody_notices() {
    allow_many_files();
    let mut scene = Scene::with(PATIENT);
    let silent: Vec<RawConnection> = (0..500).map(|_| scene.raw()).collect();
    let initialized: Vec<RawConnection> = (0..500).map(|_| scene.initialized()).collect();
    // Behind all of them in the queue of the listener.
    drop(scene.host(&HostOptions::default()));
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(32 * MEBI);
    drop((silent, initialized));
    drop(scene.host(&HostOptions::default()));
}

#[test]
fn five_hundred_idle_controllers_cost_little_and_nobody_notices() {
    allow_many_files();
    let mut scene = Scene::with(PATIENT);
    let hosts: Vec<Host> = (0..500)
        .map(|_| scene.host(&HostOptions::default()))
        .collect();
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(96 * MEBI);
    let grown = scene.server.process().own_bytes().unwrap() - scene.own_at_start;
    println!("{} KiB for a controller of two queues", grown / 500 / 1_024);
    drop(hosts);
}

#[test]
fn connections_beyond_the_pending_ones_are_closed_and_hosts_get_in() {
    // Only the limit closes any of them: connecting may take longer than the test.
    let mut scene = Scene::with(&LIMITS.replace("\"10s\"", "\"60s\""));
    let mut flood: Vec<RawConnection> = (0..300).map(|_| scene.raw()).collect();
    let end = Instant::now() + Duration::from_secs(20);
    let mut closed = 0;
    while closed < 300 - 64 - 32 && Instant::now() < end {
        flood.retain_mut(|peer| !peer.drain(Duration::from_millis(2)).unwrap().1);
        closed = 300 - flood.len();
    }
    // What the server accepts in one turn, up to 32, can be there beside the limit.
    assert!(
        closed >= 300 - 64 - 32,
        "{closed} of 300 connections were closed at a limit of 64"
    );
    scene.assert_others_do_not_notice();
    drop(scene.host(&HostOptions::default()));
    drop(flood);
    scene.assert_memory_grew_at_most(8 * MEBI);
}

#[test]
fn controllers_beyond_the_limit_are_refused_as_busy() {
    let server = ServerBuilder::new()
        .volume("memory,backend=mem,size=16M")
        .nvme()
        .config("[limits]\ncontrollers = 4\n")
        .start()
        .unwrap();
    let at = server.nvme(0);
    let options = HostOptions::default();
    let mut hosts: Vec<Host> = (0..4)
        .map(|_| Host::connect(at, &options))
        .collect::<Result<_, _>>()
        .unwrap();
    let (_, answer) = options.try_connect(at, 0, ANY_CONTROLLER).unwrap();
    assert_eq!(answer.code(), Status::CONNECT_CONTROLLER_BUSY);
    hosts.pop();
    // The server sees the end of its connections a moment later.
    let is_free = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Host::connect(at, &options).is_ok()
    });
    assert!(is_free, "its place is free again");
}

#[test]
fn queues_beyond_the_limit_are_refused() {
    let server = ServerBuilder::new()
        .volume("memory,backend=mem,size=16M")
        .nvme()
        .config("[limits]\nio-queues = 2\n")
        .start()
        .unwrap();
    let mut host = Host::connect(server.nvme(0), &HostOptions::default().queues(2)).unwrap();
    assert!(host.ask_for_queues(3).is_err());
    assert!(host.connect_queue(3).is_err());
    host.read(blocks(1, 0, 1)).unwrap().expect_success();
}

#[test]
fn a_reader_that_never_reads_holds_bounded_memory() {
    let mut scene = Scene::with(PATIENT);
    let mut queue = scene.queue();
    let stream = queue.peer.stream();
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    // 31 reads fill the queue; each is a MiB.
    let read = commands::read(blocks(2, 0, 2048));
    for id in 0..31 {
        let capsule = Pdu::command(&entry(&read, id, false));
        if queue.peer.send(&capsule).is_err() {
            break;
        }
    }
    scene.wait_until_server_rests();
    scene.assert_memory_grew_at_most(96 * MEBI);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_hundred_readers_that_never_read_hold_bounded_memory() {
    let mut scene = Scene::with(PATIENT);
    let mut queues: Vec<_> = (0..100).map(|_| scene.queue()).collect();
    let read = commands::read(blocks(1, 0, 256));
    for queue in &mut queues {
        for id in 0..31 {
            let capsule = Pdu::command(&entry(&read, id, false));
            if queue.peer.send(&capsule).is_err() {
                break;
            }
        }
    }
    scene.wait_until_server_rests();
    scene.assert_memory_grew_at_most(128 * MEBI);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_writer_that_never_sends_its_data_holds_bounded_memory() {
    let mut scene = Scene::with(PATIENT);
    let mut queues: Vec<_> = (0..8).map(|_| scene.queue()).collect();
    let write = commands::write(blocks(1, 0, 2048), 0);
    for queue in &mut queues {
        for id in 0..31 {
            queue.start(&write, id);
        }
    }
    scene.wait_until_server_rests();
    scene.assert_memory_grew_at_most(96 * MEBI);
    scene.assert_others_do_not_notice();
    drop(queues);
    // The memory of the vanished peers serves others.
    let mut writer = scene.host(&HostOptions::default());
    writer
        .write(blocks(1, 64, 2048), &vec![1; 1 << 20])
        .unwrap()
        .expect_success();
}

#[test]
fn data_that_came_along_find_memory_while_announced_writes_take_it_all() {
    let mut scene = Scene::with(PATIENT);
    let mut greedy: Vec<_> = (0..20).map(|_| scene.queue()).collect();
    // Each size takes most of what the one before has left, down to the smallest buffers there are.
    for (queues, count) in greedy.chunks_mut(4).zip([16_384, 2048, 128, 16, 8]) {
        let write = commands::write(blocks(1, 0, count), 0);
        for queue in queues {
            for id in 0..31 {
                queue.start(&write, id);
            }
        }
        scene.wait_until_server_rests();
    }
    let mut modest = scene.queue();
    for round in 0..8 {
        for command in [
            commands::write(blocks(1, 4096, 8), 0),
            commands::compare(blocks(1, 4096, 8)),
        ] {
            let capsule = Pdu::command(&entry(&command, round, true));
            modest.peer.send(&capsule.with_data(&[9; 4096])).unwrap();
            assert_eq!(Status(modest.status(round)), Status::SUCCESS);
        }
    }
    scene.host(&HostOptions::default());
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(96 * MEBI);
}

#[test]
fn log_pages_that_nobody_takes_hold_bounded_memory() {
    let mut scene = Scene::new();
    let options = HostOptions {
        entries: 128,
        ..HostOptions::default()
    };
    let options = options.discovery();
    let mut peer = scene.initialized();
    let connect = options.connect(0, ANY_CONTROLLER);
    let capsule = Pdu::command(&entry(&connect.command(), 1, true)).with_data(&connect.data());
    let enable = commands::property_set(Property::CC, 0x0046_0001);
    let enable = Pdu::command(&entry(&enable, 2, false));
    for pdu in [capsule, enable] {
        peer.send(&pdu).unwrap();
        let response = peer.receive().unwrap();
        assert_eq!(
            (response.kind(), response.half(22) >> 1),
            (kind::CAPSULE_RESP, 0)
        );
    }
    let page = commands::get_log_page(0x70, NamespaceId(0), 0, 16 << 20);
    let all = (10..70).map(|id| Pdu::command(&entry(&page, id, false)).to_bytes());
    peer.send_bytes(&all.collect::<Vec<_>>().concat()).unwrap();
    scene.wait_until_server_rests();
    scene.assert_memory_grew_at_most(LOG_PAGES_MOST);
    scene.assert_others_do_not_notice();
    // Whoever takes them gets them all.
    let mut ended = 0;
    while ended < 60 {
        let pdu = peer.receive().unwrap();
        if pdu.kind() == kind::CAPSULE_RESP || pdu.header[1] & 0x08 != 0 {
            ended += 1;
        }
    }
    scene.assert_memory_grew_at_most(LOG_PAGES_MOST);
}

/// Three pages of 16 MiB: one in the making, one being sent, one that has just gone. Not sixty.
const LOG_PAGES_MOST: u64 = 64 * MEBI;

#[test]
fn resets_in_the_middle_of_a_pdu_leave_nothing_behind() {
    let mut scene = Scene::with(PATIENT);
    let write = entry(&commands::write(blocks(1, 0, 16), 0), 5, true);
    let capsule = Pdu::command(&write).with_data(&[1; 8192]).to_bytes();
    for round in 0..60 {
        let mut queue = scene.queue();
        let length = 1 + round * 2_011 % (capsule.len() - 1);
        queue.peer.send_bytes(&capsule[..length]).unwrap();
        // Closing with linger 0 sends RST instead of FIN.
        set_socket_linger(queue.peer.stream(), Some(Duration::ZERO)).unwrap();
    }
    scene.wait_until_server_rests();
    assert_eq!(scene.stored(0, 8), [7; 4096]);
    scene.assert_memory_grew_at_most(24 * MEBI);
}

#[test]
fn a_flood_of_commands_from_one_queue_does_not_starve_another() {
    let mut scene = Scene::with(PATIENT);
    let mut host = scene.host(&HostOptions {
        entries: 128,
        ..HostOptions::default()
    });
    let end = Instant::now() + Duration::from_secs(1);
    let queue = &mut host.queues[0];
    while Instant::now() < end {
        let slots: Vec<_> = (0..127)
            .map(|n| {
                let read = commands::read(blocks(2, n, 8));
                queue.prepare(&read, &[]).unwrap()
            })
            .collect();
        for slot in slots {
            queue.wait(slot).unwrap().expect_success();
        }
        scene.assert_others_do_not_notice();
    }
    scene.assert_memory_grew_at_most(32 * MEBI);
}
