//! Peers that ask for too much: connections, queues, data that nobody takes.

use std::time::{Duration, Instant};

use longshore_nvme::host::commands::{self, ANY_CONTROLLER};
use longshore_nvme::status::Status;
use longshore_tests::nvme::pdu::{Pdu, RawConnection};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::server::ServerBuilder;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{MEBI, Scene, blocks, entry};

/// A thousand sockets at both ends need more files than the usual 1,024.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .unwrap();
}

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
fn a_thousand_idle_controllers_cost_little_and_nobody_notices() {
    allow_many_files();
    let mut scene = Scene::with(PATIENT);
    let hosts: Vec<Host> = (0..500)
        .map(|_| scene.host(&HostOptions::default()))
        .collect();
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(96 * MEBI);
    let grown = scene.server.process().resident_bytes().unwrap() - scene.resident_at_start;
    println!("{} KiB for a controller of two queues", grown / 500 / 1_024);
    drop(hosts);
}

#[test]
fn connections_beyond_the_pending_ones_are_closed_and_hosts_get_in() {
    let mut scene = Scene::new();
    let mut flood: Vec<RawConnection> = (0..300).map(|_| scene.raw()).collect();
    let mut closed = 0;
    for peer in &mut flood {
        if peer.drain(Duration::from_millis(2)).unwrap().1 {
            closed += 1;
        }
    }
    assert!(
        closed >= 300 - 64 - 8,
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
    std::thread::sleep(Duration::from_millis(200));
    Host::connect(at, &options).unwrap();
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
    std::thread::sleep(Duration::from_millis(500));
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
    std::thread::sleep(Duration::from_millis(500));
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
    std::thread::sleep(Duration::from_millis(500));
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
    std::thread::sleep(Duration::from_millis(200));
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
