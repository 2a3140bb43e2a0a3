//! One path to a server that dies, stalls, or comes back with something else.

use std::time::{Duration, Instant};

use longshore_initiator::error::Failure;
use longshore_initiator::volume::{PathCondition, block_on};
use longshore_reactor::Buffer;
use longshore_tests::process::assert_takes_less;

use super::load::Load;
use super::{PROTOCOLS, Protocol, Restartable, open, options, until};

#[test]
fn a_server_that_is_killed_and_started_again_under_load_loses_nothing() {
    for protocol in PROTOCOLS {
        let mut server = Restartable::start(protocol);
        let mut options = options();
        options.queues.default = 2;
        let volume = open(&server.url(), &options);
        let load = Load::new(6);
        load.run(&volume, |load| {
            for _ in 0..4 {
                load.wait_for(100);
                server.kill();
                // For a while there is no server; how long does not matter.
                std::thread::sleep(Duration::from_millis(50));
                server.restart("disk0.img");
            }
            load.wait_for(100);
        });
        let counters = volume.state().counters;
        assert_eq!(counters.reconnects, 4, "{protocol:?} {counters:?}");
        assert_eq!(counters.unknown_outcomes, 0);
        volume.close();
    }
}

#[test]
fn a_server_that_stalls_is_given_up_and_found_again() {
    for protocol in PROTOCOLS {
        let server = Restartable::start(protocol);
        let mut options = options();
        options.timeouts.request = Duration::from_millis(400);
        options.timeouts.connect = Duration::from_millis(400);
        options.timeouts.login = Duration::from_millis(400);
        let volume = open(&server.url(), &options);
        let load = Load::new(4);
        load.run(&volume, |load| {
            load.wait_for(50);
            server.server().stall(Duration::from_millis(1500)).unwrap();
            load.wait_for(50);
        });
        let state = volume.state();
        assert!(state.counters.timeouts >= 1, "{protocol:?} {state:?}");
        volume.close();
    }
}

#[test]
fn an_idle_connection_is_asked_whether_the_server_is_there() {
    for protocol in PROTOCOLS {
        let server = Restartable::start(protocol);
        let mut options = options();
        options.timeouts.keep_alive = Duration::from_millis(200);
        options.nvme.keep_alive = Duration::from_millis(1000);
        options.timeouts.login = Duration::from_secs(2);
        let volume = open(&server.url(), &options);
        let losses = || volume.state().counters.losses;
        // A machine that stands still for a moment is silent too.
        let quiet = (0..5).any(|_| {
            let before = losses();
            // Time is the subject: several of its questions fall due.
            std::thread::sleep(Duration::from_millis(1500));
            losses() == before
        });
        assert!(quiet, "{protocol:?}: it answers");
        let before = losses();
        server.server().stall(Duration::from_millis(3000)).unwrap();
        until("the silence was found", || losses() > before);
        until("the server was found again", || {
            volume.state().paths[0].in_use
        });
        let (result, _) = block_on(volume.read(0, Buffer::allocate(4096)));
        assert_eq!(result, Ok(()));
        volume.close();
    }
}

#[test]
fn a_server_that_comes_back_with_another_volume_is_not_written_to() {
    for protocol in PROTOCOLS {
        let mut server = Restartable::start(protocol);
        let volume = open(&server.url(), &options());
        server.kill();
        let waits = volume.write(0, full(1), false);
        server.restart("other.img");
        let (result, _) = block_on(waits);
        let failure = result.unwrap_err();
        assert!(
            failure.to_string().contains("another volume is there"),
            "{failure}"
        );
        assert_eq!(volume.state().paths[0].condition, PathCondition::Refused);
        let other = std::fs::read(server.scratch.join("other.img")).unwrap();
        assert!(other.iter().all(|byte| *byte == 0));
        server.kill();
        server.restart("disk0.img");
        until("the right one is found", || {
            block_on(volume.write(0, full(2), false)).0.is_ok()
        });
        volume.close();
    }
}

fn full(byte: u8) -> Buffer {
    let mut buffer = Buffer::allocate(4096);
    buffer.fill(byte);
    buffer
}

#[test]
fn without_a_server_operations_fail_after_a_while() {
    for protocol in PROTOCOLS {
        let mut server = Restartable::start(protocol);
        let mut options = options();
        options.timeouts.give_up = Duration::from_millis(300);
        let volume = open(&server.url(), &options);
        server.kill();
        assert_takes_less(Duration::from_secs(5), || {
            let begun = Instant::now();
            let (result, _) = block_on(volume.write(0, full(1), false));
            assert!(
                matches!(result, Err(Failure::ConnectionLost(_))),
                "{result:?}"
            );
            begun.elapsed()
        });
        volume.close();
    }
}

#[test]
fn closing_without_a_server_is_quick() {
    for protocol in PROTOCOLS {
        assert_takes_less(Duration::from_secs(2), || {
            let mut server = Restartable::start(protocol);
            let mut options = options();
            options.timeouts.give_up = Duration::from_millis(300);
            let volume = open(&server.url(), &options);
            server.kill();
            let (result, _) = block_on(volume.write(0, full(1), false));
            assert!(result.is_err());
            let begun = Instant::now();
            volume.close();
            begun.elapsed()
        });
    }
}

#[test]
fn closing_logs_out() {
    for protocol in PROTOCOLS {
        assert_takes_less(Duration::from_secs(2), || {
            let server = Restartable::start(protocol);
            let volume = open(&server.url(), &options());
            let pending = volume.write(0, full(7), true);
            volume.close();
            assert_eq!(block_on(pending).0, Ok(()), "{protocol:?}: finished before");
            let begun = Instant::now();
            if protocol == Protocol::Iscsi {
                // All sessions are gone: the server has nothing to wait for when it ends.
                let server = server.server.unwrap();
                assert!(server.stop(Duration::from_secs(30)).unwrap().success());
            }
            begun.elapsed()
        });
    }
}

#[test]
fn a_volume_that_grows_is_seen() {
    for protocol in PROTOCOLS {
        let server = Restartable::start(protocol);
        let volume = open(&server.url(), &options());
        let before = volume.info().size_bytes();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(server.scratch.join("disk0.img"))
            .unwrap();
        file.set_len(before * 2).unwrap();
        server.server().reload().unwrap();
        until("it has grown", || {
            // iSCSI tells by a unit attention, which comes with the next command.
            let (result, _) = block_on(volume.read(0, Buffer::allocate(512)));
            assert_eq!(result, Ok(()));
            volume.info().size_bytes() == before * 2
        });
        volume.close();
    }
}
