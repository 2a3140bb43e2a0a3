//! Growing volumes, restarts and the end.

use longshore_reactor::EngineChoice;
use longshore_server::Server;
use longshore_tests::initiator::{Data, Initiator, cdb};
use longshore_tests::pdu::opcode;
use longshore_volume::{BackendName, VolumeSpec};

use crate::gate_volume::GateVolume;
use crate::scene::*;

#[test]
fn every_session_learns_that_a_volume_has_grown() {
    let directory = tempfile::tempdir().unwrap();
    for engine in ENGINES {
        let path = directory.path().join(format!("{engine:?}"));
        let mut spec = VolumeSpec::new("disk", BackendName::FILE);
        spec.path = Some(path.clone());
        spec.size = Some(1 << 20);
        let scene = Scene::with(vec![longshore_volume::open(&spec).unwrap()], engine);
        let mut hosts = [scene.host(1), scene.host(2), scene.host(3)];
        assert_eq!(last_lba(&mut hosts[0]), 2047);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(2 << 20).unwrap();
        let outcome = scene.control().refresh_volumes();
        assert!(matches!(outcome[..], [(_, Ok(Some(_)))]), "{outcome:?}");
        for host in &mut hosts {
            assert_eq!(settle(host), [(6, 0x2a, 9)]);
            assert_eq!(last_lba(host), 4095);
        }
        assert!(write(&mut hosts[2], 4095, 1).is_good());
    }
}

fn last_lba(host: &mut Initiator) -> u64 {
    let answer = host
        .command(0, &cdb::read_capacity_16(), Data::In(32))
        .unwrap();
    assert!(answer.is_good(), "{answer:?}");
    u64::from_be_bytes(answer.data[..8].try_into().unwrap())
}

#[test]
fn shutdown_asks_for_logout_finishes_commands_and_flushes() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        let (mut one, mut two) = (scene.host(1), scene.host(2));
        gate.close_writes();
        let tag = begin_write(&mut two, 0, 4);
        eventually("the write", || gate.waiting() == 1);
        scene.control().shut_down();
        for host in [&mut one, &mut two] {
            let message = host.receive().unwrap();
            assert_eq!(message.opcode(), opcode::ASYNCHRONOUS_MESSAGE);
            assert_eq!(message.bhs[36], 1, "target requests logout");
        }
        one.log_out().unwrap();
        gate.open();
        assert!(two.finish(tag, &[4; 512]).unwrap().is_good());
        two.log_out().unwrap();
        scene.wait();
        assert_eq!(gate.flushed(), 1);
    }
}

#[test]
fn volumes_end_their_background_work_before_the_last_flush() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        eventually("all event loops", || gate.at_work() == 3);
        scene.control().shut_down();
        scene.wait();
        assert_eq!(gate.flushed(), 1);
        assert_eq!(gate.at_work_then(), 0);
    }
}

#[test]
fn a_volume_that_does_not_rest_is_flushed_all_the_same_and_counts_as_failed() {
    let gate = GateVolume::new(mem("disk", 512));
    gate.never_rest();
    let scene = Scene::with(vec![gate.clone()], EngineChoice::Epoll);
    let control = scene.control().clone();
    control.shut_down();
    scene.wait();
    assert_eq!(gate.flushed(), 1);
    let [(volume, reason)] = &control.failed_volumes()[..] else {
        panic!("one volume");
    };
    assert_eq!(volume, "disk");
    assert!(reason.contains("background work did not end"), "{reason}");
}

#[test]
fn a_panic_of_any_reactor_ends_the_server() {
    for engine in ENGINES {
        for broken in 0..3 {
            let gate = GateVolume::new(mem("disk", 512));
            let scene = Scene::with(vec![gate.clone()], engine);
            // One on each reactor.
            let mut hosts = [scene.host(1), scene.host(2), scene.host(3)];
            gate.break_down();
            begin_write(&mut hosts[broken], 0, 1);
            let error = scene.outcome().unwrap_err();
            assert!(error.to_string().contains("panicked"), "{error}");
        }
    }
}

#[test]
fn sessions_that_do_not_log_out_are_told_of_the_drop_and_keep_nobody_waiting() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut host = scene.host(1);
        scene.control().shut_down();
        scene.wait();
        for event in [1, 2] {
            let message = host.receive().unwrap();
            assert_eq!(message.opcode(), opcode::ASYNCHRONOUS_MESSAGE);
            assert_eq!(
                message.bhs[36], event,
                "logout requested, then connection dropped"
            );
        }
        assert!(host.is_closed_within(LIMIT).unwrap());
    }
}

#[test]
fn second_request_to_end_drops_sessions_at_once() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let mut config = config(vec![gate.clone()], engine);
        config.limits.drain_timeout = std::time::Duration::from_secs(3600);
        let scene = Scene::new(config);
        let mut host = scene.host(1);
        // A write whose end nobody sees; it keeps the session from being quiet.
        gate.close_writes();
        begin_write(&mut host, 0, 4);
        eventually("the write", || gate.waiting() == 1);
        scene.control().shut_down();
        scene.control().shut_down_now();
        host.receive().ok();
        assert!(host.is_closed_within(LIMIT).unwrap());
        gate.open();
        scene.wait();
        assert_eq!(gate.flushed(), 1, "after the last write");
    }
}

#[test]
fn reservations_that_ask_for_it_survive_a_restart_and_damage_refuses_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let configured = || {
        let mut config = config(vec![mem("disk", 512)], EngineChoice::Auto);
        config.state_directory = Some(directory.path().to_path_buf());
        config
    };
    let scene = Scene::new(configured());
    let mut one = scene.host(1);
    let mut list = [0; 24];
    (list[15], list[20]) = (11, 1);
    let register = [0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    assert!(
        one.command(0, &register, Data::Out(&list))
            .unwrap()
            .is_good()
    );
    let mut list = [0; 24];
    list[7] = 11;
    let reserve = [0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0];
    assert!(
        one.command(0, &reserve, Data::Out(&list))
            .unwrap()
            .is_good()
    );
    let mut two = scene.host(2);
    assert_eq!(write(&mut two, 0, 1).status, 0x18);
    drop(scene);

    let scene = Scene::new(configured());
    let (mut one, mut two) = (scene.host(1), scene.host(2));
    assert_eq!(write(&mut two, 0, 1).status, 0x18);
    assert!(write(&mut one, 0, 1).is_good());
    drop(scene);

    let below = directory.path().join("reservations");
    let stored = std::fs::read_dir(below)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = std::fs::read(&stored).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&stored, bytes).unwrap();
    let error = Server::start(configured()).unwrap_err().to_string();
    assert!(error.contains(&stored.display().to_string()), "{error}");
}
