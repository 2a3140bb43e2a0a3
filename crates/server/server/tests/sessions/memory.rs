//! Limits on memory, and peers that do not read.

use std::time::Duration;

use longshore_tests::initiator::{Data, Initiator, cdb};

use crate::gate_volume::GateVolume;
use crate::scene::*;

const MEMORY: u64 = 16 << 20;
/// Blocks of 512 bytes in 1 MiB.
const BLOCKS: u32 = 2048;

fn ask_for_much(host: &mut Initiator, commands: u32) {
    for _ in 0..commands {
        let command = host.command_pdu(0, &cdb::read_16(0, BLOCKS), Data::In(BLOCKS * 512));
        host.send(&command).unwrap();
    }
}

#[test]
fn reader_that_does_not_read_loses_its_connection() {
    for engine in ENGINES {
        let mut config = config(vec![GateVolume::new(mem("disk", 512))], engine);
        config.limits.memory = MEMORY;
        config.limits.sessions = 1;
        config.limits.nop_interval = Duration::from_millis(300);
        config.limits.nop_timeout = Duration::from_millis(300);
        let scene = Scene::new(config);
        let mut greedy = Initiator::log_in(scene.portals[0], &login(1)).unwrap();
        settle(&mut greedy);
        ask_for_much(&mut greedy, 40);
        // What it does not take cannot tell it of the end; its session is free for others.
        eventually("the end of its session", || can_log_in(&scene));
        drop(greedy);
    }
}

#[test]
fn reader_that_vanishes_with_much_unread_gives_back_its_session() {
    for engine in ENGINES {
        let mut config = config(vec![GateVolume::new(mem("disk", 512))], engine);
        config.limits.sessions = 1;
        let scene = Scene::new(config);
        let mut greedy = scene.host(1);
        ask_for_much(&mut greedy, 40);
        assert!(!can_log_in(&scene));
        drop(greedy);
        eventually("the end of its session", || can_log_in(&scene));
    }
}

fn can_log_in(scene: &Scene) -> bool {
    let mut peer = Initiator::connect(scene.portals[0]).unwrap();
    peer.try_login(&login(2)).unwrap() == 0
}

#[test]
fn reads_that_need_more_than_all_memory_are_all_answered() {
    for engine in ENGINES {
        let mut config = config(vec![GateVolume::new(mem("disk", 512))], engine);
        config.limits.memory = MEMORY;
        let scene = Scene::new(config);
        std::thread::scope(|scope| {
            for number in 1..=12 {
                let scene = &scene;
                scope.spawn(move || {
                    let mut host = scene.host(number);
                    let length = 4 * BLOCKS * 512;
                    for _ in 0..5 {
                        let read = cdb::read_16(0, 4 * BLOCKS);
                        let answer = host.command(0, &read, Data::In(length)).unwrap();
                        assert!(answer.is_good() && answer.data.len() == 4 << 20);
                    }
                });
            }
        });
    }
}

#[test]
fn sessions_that_do_not_take_what_they_read_leave_memory_for_others() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let mut config = config(vec![gate.clone()], engine);
        config.limits.memory = MEMORY;
        let scene = Scene::new(config);
        let mut hosts: Vec<_> = (1..=6).map(|number| scene.host(number)).collect();
        gate.close_reads();
        for host in &mut hosts {
            ask_for_much(host, 8);
        }
        std::thread::sleep(WHILE);
        assert!(gate.waiting() <= 16);
        gate.open();
        for host in &mut hosts {
            let mut ended = 0;
            let mut bytes = 0;
            while ended < 8 {
                let pdu = host.receive().unwrap();
                bytes += pdu.data.len();
                ended += u32::from(pdu.bhs[1] & 1);
            }
            assert_eq!(bytes, 8 << 20);
        }
    }
}

#[test]
fn writes_beyond_all_memory_are_told_task_set_full_and_work_later() {
    for engine in ENGINES {
        let mut config = config(vec![mem("disk", 512)], engine);
        config.limits.memory = MEMORY;
        let scene = Scene::new(config);
        let mut hosts: Vec<_> = (1..=3).map(|number| scene.host(number)).collect();
        // Three times 8 MiB are announced and do not come.
        let write = cdb::write_16(0, BLOCKS, false);
        let data = vec![3; 1 << 20];
        for host in &mut hosts {
            for _ in 0..8 {
                let command = host.command_pdu(0, &write, Data::Out(&data));
                host.send(&command).unwrap();
            }
            for _ in 0..8 {
                // An R2T or TASK SET FULL: the command has been dealt with.
                host.receive().unwrap();
            }
        }
        let mut late = scene.host(4);
        let answer = late.command(0, &write, Data::Out(&data)).unwrap();
        assert_eq!(answer.status, TASK_SET_FULL);
        drop(hosts);
        eventually("a write", || {
            late.command(0, &write, Data::Out(&data)).unwrap().is_good()
        });
    }
}

#[test]
fn largest_transfer_fits_into_a_small_memory() {
    for engine in ENGINES {
        let mut config = config(vec![GateVolume::new(mem("disk", 512))], engine);
        config.limits.memory = 8 << 20;
        let scene = Scene::new(config);
        let mut host = scene.host(1);
        let limits = [0x12, 1, 0xb0, 0, 64, 0];
        let answer = host.command(0, &limits, Data::In(64)).unwrap();
        let blocks = u32::from_be_bytes(answer.data[8..12].try_into().unwrap());
        let length = blocks * 512;
        let answer = host
            .command(0, &cdb::read_16(0, blocks), Data::In(length))
            .unwrap();
        assert!(answer.is_good());
        let data = vec![1; usize::try_from(length).unwrap()];
        let answer = host
            .command(0, &cdb::write_16(0, blocks, false), Data::Out(&data))
            .unwrap();
        assert!(answer.is_good(), "{answer:?}");
    }
}

#[test]
fn writes_whose_data_never_comes_leave_memory_for_others() {
    for engine in ENGINES {
        let mut config = config(vec![mem("disk", 512)], engine);
        config.limits.memory = MEMORY;
        let scene = Scene::new(config);
        let (mut rude, mut other) = (scene.host(1), scene.host(2));
        let write = cdb::write_16(0, BLOCKS, false);
        let data = vec![3; 1 << 20];
        for _ in 0..40 {
            let command = rude.command_pdu(0, &write, Data::Out(&data));
            rude.send(&command).unwrap();
        }
        for _ in 0..8 {
            assert!(
                other
                    .command(0, &write, Data::Out(&data))
                    .unwrap()
                    .is_good()
            );
        }
    }
}
