//! Sessions that take the place of others, and limits on them (RFC 7143 §6.3).

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::pdu::opcode;

use crate::gate_volume::GateVolume;
use crate::scene::*;

/// Logs in with a TSIH and CID; returns the connection, the status and the TSIH answered.
fn log_in_as(scene: &Scene, login: &Login, tsih: u16, cid: u16) -> (Initiator, u16, u16) {
    let mut peer = Initiator::connect(scene.portals[0]).unwrap();
    let [tsih_high, tsih_low] = tsih.to_be_bytes();
    let [cid_high, cid_low] = cid.to_be_bytes();
    let request = login
        .request()
        .set_byte(14, tsih_high)
        .set_byte(15, tsih_low)
        .set_byte(20, cid_high)
        .set_byte(21, cid_low)
        .set_word(24, peer.cmd_sn);
    peer.send(&request).unwrap();
    let response = peer.receive().unwrap();
    assert_eq!(response.opcode(), opcode::LOGIN_RESPONSE);
    let half = |at: usize| u16::from_be_bytes([response.bhs[at], response.bhs[at + 1]]);
    (peer, half(36), half(14))
}

#[test]
fn session_with_the_same_isid_closes_the_old_connection_and_waits_for_its_writes() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        let mut old = scene.host(1);
        gate.close_writes();
        begin_write(&mut old, 5, 1);
        eventually("the old write", || gate.waiting() == 1);

        let mut new = Initiator::log_in(scene.portals[0], &login(1)).unwrap();
        assert!(old.is_closed_within(LIMIT).unwrap());
        let tag = begin_ready(&mut new);
        assert_silent(&mut new);
        gate.open();
        assert_eq!(
            new.finish(tag, &[]).unwrap().sense_code(),
            Some((6, 0x29, 0))
        );
        settle(&mut new);
        // The old write was on the medium before anything of the new session was.
        assert_eq!(read(&mut new, 5), [1; 512]);
        assert!(write(&mut new, 5, 2).is_good());
        assert_eq!(read(&mut new, 5), [2; 512]);
    }
}

#[test]
fn session_that_replaces_one_still_waiting_waits_for_the_first_ones_writes() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        let mut first = scene.host(1);
        gate.close_writes();
        begin_write(&mut first, 5, 1);
        eventually("the first write", || gate.waiting() == 1);
        let mut second = Initiator::log_in(scene.portals[0], &login(1)).unwrap();
        let mut third = Initiator::log_in(scene.portals[0], &login(1)).unwrap();
        assert!(second.is_closed_within(LIMIT).unwrap());
        let tag = begin_ready(&mut third);
        assert_silent(&mut third);
        gate.open();
        third.finish(tag, &[]).unwrap();
        settle(&mut third);
        assert_eq!(read(&mut third, 5), [1; 512]);
    }
}

fn begin_ready(peer: &mut Initiator) -> u32 {
    let command = peer.command_pdu(0, &cdb::TEST_UNIT_READY, Data::None);
    peer.send(&command).unwrap();
    command.initiator_task_tag()
}

#[test]
fn connection_is_reinstated_by_its_tsih_and_cid_only() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let (mut old, status, tsih) = log_in_as(&scene, &login(1), 0, 7);
        assert_eq!(status, 0);
        let unknown = tsih.wrapping_add(100);
        assert_eq!(log_in_as(&scene, &login(1), unknown, 7).1, 0x020a);
        assert_eq!(log_in_as(&scene, &login(2), tsih, 7).1, 0x020a);
        assert_eq!(log_in_as(&scene, &login(1), tsih, 8).1, 0x0206);
        settle(&mut old);
        let (mut new, status, same) = log_in_as(&scene, &login(1), tsih, 7);
        assert_eq!((status, same), (0, tsih));
        assert!(old.is_closed_within(LIMIT).unwrap());
        settle(&mut new);
    }
}

#[test]
fn discovery_at_two_portals_is_two_sessions_and_at_one_portal_one() {
    let mut config = config(
        vec![mem("disk", 512)],
        longshore_reactor::EngineChoice::Auto,
    );
    config.listeners.push(listener("127.0.0.1:0", 1));
    let scene = Scene::new(config);
    let discovery = Login {
        target: None,
        ..login(1)
    };
    let mut first = Initiator::log_in(scene.portals[0], &discovery).unwrap();
    let second = Initiator::log_in(scene.portals[1], &discovery).unwrap();
    assert_silent(&mut first);
    let third = Initiator::log_in(scene.portals[0], &discovery).unwrap();
    assert!(first.is_closed_within(LIMIT).unwrap());
    second.log_out().unwrap();
    third.log_out().unwrap();
}

#[test]
fn session_beyond_the_limit_is_refused_until_another_one_ends() {
    for engine in ENGINES {
        let mut config = config(vec![mem("disk", 512)], engine);
        config.limits.sessions = 2;
        let scene = Scene::new(config);
        let (one, two) = (scene.host(1), scene.host(2));
        let try_third = || {
            let mut third = Initiator::connect(scene.portals[0]).unwrap();
            third.try_login(&login(3)).unwrap()
        };
        assert_eq!(try_third(), 0x0302);
        drop(scene.host(2)); // the same session again
        drop(two);
        eventually("a place", || try_third() == 0);
        drop(one);
    }
}

#[test]
fn silent_connections_at_the_limit_of_pending_logins_make_room_for_newcomers() {
    for engine in ENGINES {
        let mut config = config(vec![mem("disk", 512)], engine);
        config.limits.pending_logins = 8;
        let scene = Scene::new(config);
        let established = scene.host(1);
        let mut silent: Vec<_> = (0..8)
            .map(|_| Initiator::connect(scene.portals[0]).unwrap())
            .collect();
        for number in 2..8 {
            drop(scene.host(number));
        }
        // A newcomer may have taken the place of one of them, unless its login was over before that was
        // looked at. One that is as silent as they are needs a place for certain.
        let late = Initiator::connect(scene.portals[0]).unwrap();
        let is_closed = |peer: &mut Initiator| peer.is_closed_within(WHILE).unwrap();
        let closed = silent.iter_mut().map(is_closed).filter(|closed| *closed);
        assert_eq!(closed.count(), 1);
        drop((established, late));
    }
}

#[test]
fn oldest_connections_without_a_login_are_closed_and_the_youngest_may_log_in() {
    for engine in ENGINES {
        let mut config = config(vec![mem("disk", 512)], engine);
        config.limits.pending_logins = 4;
        config.cores = vec![0];
        let scene = Scene::new(config);
        let mut session = scene.host(1);
        let mut silent: Vec<_> = (0..20)
            .map(|_| Initiator::connect(scene.portals[0]).unwrap())
            .collect();
        for peer in &mut silent[..16] {
            assert!(peer.is_closed_within(LIMIT).unwrap());
        }
        for (number, peer) in (2..).zip(&mut silent[16..]) {
            assert_eq!(peer.try_login(&login(number)).unwrap(), 0);
        }
        session.ping().unwrap();
        // The count is right: as many are let in again, and stay.
        let mut others: Vec<_> = (0..4)
            .map(|_| Initiator::connect(scene.portals[0]).unwrap())
            .collect();
        for (number, peer) in (6..).zip(&mut others) {
            assert_eq!(peer.try_login(&login(number)).unwrap(), 0);
        }
    }
}

#[test]
fn many_idle_sessions_all_answer() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut hosts: Vec<_> = (1..=120).map(|number| scene.host(number)).collect();
        for host in &mut hosts {
            host.ping().unwrap();
            assert!(test_unit_ready(host).is_good());
        }
    }
}
