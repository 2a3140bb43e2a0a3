//! Peers that close one direction, and windows that open without a word.

use std::io::Read;
use std::net::Shutdown;
use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::pdu::opcode;

use crate::scene::*;

#[test]
fn peer_that_has_said_all_it_has_to_say_gets_the_answers_that_are_ready() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        for _ in 0..20 {
            let mut host = scene.host(1);
            let command = host.command_pdu(0, &cdb::TEST_UNIT_READY, Data::None);
            host.send(&command).unwrap();
            host.stream().shutdown(Shutdown::Write).unwrap();
            let answer = host.receive().unwrap();
            assert_eq!(
                (answer.opcode(), answer.initiator_task_tag()),
                (opcode::SCSI_RESPONSE, command.initiator_task_tag())
            );
            assert!(host.is_closed_within(LIMIT).unwrap());
        }
    }
}

#[test]
fn refused_initiator_that_goes_on_sending_can_read_why() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let refused = Login {
            target: Some("iqn.2026-11.local.longshore:missing".to_owned()),
            ..login(1)
        };
        let mut bytes = refused.request().to_bytes(false, false);
        bytes.resize(bytes.len() + (1 << 20), 0);
        for _ in 0..5 {
            let mut host = Initiator::connect(scene.portals[0]).unwrap();
            host.send_bytes(&bytes).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let answer = host.receive().unwrap();
            assert_eq!(answer.opcode(), opcode::LOGIN_RESPONSE);
            assert_eq!(answer.bhs[36..38], [2, 3]);
            // An orderly end: no reset, which would have thrown the answer away.
            assert_eq!(host.stream().read(&mut [0; 16]).unwrap(), 0);
        }
    }
}

#[test]
fn window_that_a_reset_by_somebody_else_opens_is_announced_at_once() {
    for engine in ENGINES {
        let mut config = config(vec![mem("disk", 512)], engine);
        config.limits.queue_depth = 1;
        config.limits.nop_interval = Duration::ZERO;
        let scene = Scene::new(config);
        let (mut one, mut two) = (scene.host(1), scene.host(2));
        let data = vec![1; 1 << 20];
        let write = one.command_pdu(0, &cdb::write_16(0, 2048, false), Data::Out(&data));
        one.send(&write).unwrap();
        let r2t = one.receive().unwrap();
        assert_eq!(r2t.opcode(), opcode::R2T);
        assert_eq!(r2t.word(32).wrapping_add(1), r2t.word(28), "closed");
        assert_eq!(manage(&mut two, LOGICAL_UNIT_RESET, 0), 0);
        let announcement = one.receive().unwrap();
        assert_eq!(announcement.opcode(), opcode::NOP_IN);
        assert_eq!(announcement.word(32), announcement.word(28), "open");
    }
}

#[test]
fn kernel_looks_for_peers_that_are_gone_where_there_are_no_pings() {
    let mut config = config(vec![mem("disk", 512)], ENGINES[0]);
    config.limits.nop_interval = Duration::ZERO;
    let scene = Scene::new(config);
    let host = scene.host(1);
    let peer = host.stream().local_addr().unwrap();
    // `ss -o` has it from here too: local address, remote address, state, queues, timer (2 is the
    // keepalive timer).
    let (local, remote) = (
        format!(":{:04X}", scene.portals[0].port()),
        format!(":{:04X}", peer.port()),
    );
    eventually("a keepalive timer", || {
        let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
        connections.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1].ends_with(&local)
                && fields[2].ends_with(&remote)
                && fields[5].starts_with("02:")
        })
    });
}
