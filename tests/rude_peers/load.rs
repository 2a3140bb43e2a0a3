//! Peers that ask for too much: connections, sessions, data that nobody takes.

use std::time::{Duration, Instant};

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::process::allow_many_files;
use longshore_tests::server::ServerBuilder;
use rustix::net::sockopt::set_socket_linger;

use crate::Scene;

const MEBI: u64 = 1 << 20;

/// Limits with which nothing times out during a test.
const PATIENT: &str = "\
[limits]
login-timeout = \"60s\"
pending-logins = 2000
nop-interval = 0
memory = \"64M\"
";

#[test]
fn a_thousand_idle_connections_cost_little_and_nobody_notices() {
    allow_many_files();
    let mut scene = Scene::with(PATIENT);
    let peers: Vec<Initiator> = (0..1_000).map(|_| scene.connection()).collect();
    scene.session(1).log_out().unwrap(); // behind all of them in the queue of the listener
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(32 * MEBI);
    drop(peers);
    scene.session(2).log_out().unwrap();
}

#[test]
fn a_thousand_idle_sessions_cost_little_and_nobody_notices() {
    allow_many_files();
    let mut scene = Scene::with(PATIENT);
    let peers: Vec<Initiator> = (0..1_000)
        .map(|isid| Initiator::log_in(scene.server.portal(0), &Login::numbered(isid + 1_000)))
        .collect::<Result<_, _>>()
        .unwrap();
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(64 * MEBI);
    let grown = scene.server.process().own_bytes().unwrap() - scene.own_at_start;
    println!("{} KiB a session", grown / 1_000 / 1_024);
    drop(peers);
}

#[test]
fn a_reader_that_never_reads_holds_bounded_memory() {
    let mut scene = Scene::with(PATIENT);
    let mut peer = scene.session(1);
    peer.stream()
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    for _ in 0..500 {
        let read = peer.command_pdu(1, &cdb::read_16(0, 2_048), Data::In(1 << 20));
        if peer.send(&read).is_err() {
            break; // the server has stopped to take commands, which is its right
        }
    }
    scene.wait_until_server_rests();
    scene.assert_memory_grew_at_most(96 * MEBI);
    scene.assert_others_do_not_notice();
}

#[test]
fn a_writer_that_never_sends_its_data_holds_bounded_memory() {
    let mut scene = Scene::with(PATIENT);
    let mut peers: Vec<Initiator> = (1..=8).map(|isid| scene.session(isid)).collect();
    for peer in &mut peers {
        for _ in 0..64 {
            // Without immediate data every byte must be asked for by R2T.
            let write = peer
                .command_pdu(0, &cdb::write_16(0, 8_192, false), Data::None)
                .set_byte(1, 0xa1)
                .set_word(20, 4 << 20);
            peer.send(&write).unwrap();
        }
    }
    scene.wait_until_server_rests();
    scene.assert_memory_grew_at_most(96 * MEBI);
    scene.assert_others_do_not_notice();
    drop(peers);
    // The memory of the vanished peers serves others, once the server has seen that they are gone.
    let mut writer = scene.session(20);
    let is_served = (0..1_000).any(|_| {
        let write = cdb::write_16(64, 2_048, false);
        let answer = writer.command(0, &write, Data::Out(&[1; 1 << 20]));
        let is_good = answer.unwrap().is_good();
        if !is_good {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_good
    });
    assert!(is_served);
}

#[test]
fn resets_in_the_middle_of_a_pdu_leave_nothing_behind() {
    let mut scene = Scene::with(PATIENT);
    for round in 0..60 {
        let mut peer = scene.session(1 + round % 7);
        let write = peer.command_pdu(0, &cdb::write_16(0, 256, false), Data::Out(&[1; 131_072]));
        let bytes = write.to_bytes(false, false);
        let length = 1 + usize::from(round) * 2_011 % (bytes.len() - 1);
        peer.send_bytes(&bytes[..length]).unwrap();
        // Closing with linger 0 sends RST instead of FIN.
        set_socket_linger(peer.stream(), Some(Duration::ZERO)).unwrap();
    }
    scene.wait_until_server_rests();
    let block = scene
        .healthy
        .command(0, &cdb::read_16(0, 1), Data::In(512))
        .unwrap();
    assert_eq!(
        block.data, [7; 512],
        "a write that never came in whole was carried out"
    );
    scene.assert_memory_grew_at_most(24 * MEBI);
}

#[test]
fn a_flood_of_pings_from_one_session_does_not_starve_another() {
    let mut scene = Scene::with(PATIENT);
    let mut peer = scene.session(1);
    let ping = longshore_tests::pdu::Pdu::new(0)
        .immediate()
        .set_byte(1, 0x80)
        .set_word(16, 5)
        .set_word(20, u32::MAX)
        .with_data(&[0; 4_096]);
    let many: Vec<u8> = std::iter::repeat_n(ping.to_bytes(false, false), 64)
        .flatten()
        .collect();
    peer.stream()
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end && peer.send_bytes(&many).is_ok() {
        scene.assert_others_do_not_notice();
    }
    scene.assert_others_do_not_notice();
    scene.assert_memory_grew_at_most(32 * MEBI);
}

#[test]
fn sessions_beyond_the_limit_are_refused_with_out_of_resources() {
    let server = ServerBuilder::new()
        .volume("memory,backend=mem,size=16M")
        .iscsi()
        .config("[limits]\nsessions = 4\n")
        .start()
        .unwrap();
    let portal = server.portal(0);
    let mut sessions: Vec<Initiator> = (1..=4)
        .map(|isid| Initiator::ready(portal, &Login::numbered(isid)))
        .collect::<Result<_, _>>()
        .unwrap();
    let mut fifth = Initiator::connect(portal).unwrap();
    assert_eq!(fifth.try_login(&Login::numbered(5)).unwrap(), 0x0302);
    sessions.pop().unwrap().log_out().unwrap();
    // The server sees the end of the session a moment later.
    let is_free = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Initiator::ready(portal, &Login::numbered(6)).is_ok()
    });
    assert!(is_free, "its place is free again");
}
