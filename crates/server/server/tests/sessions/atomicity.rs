//! COMPARE AND WRITE against itself and against writes, from several shards (SBC-4 §5.3).

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_tests::initiator::{Answer, Data, Initiator, cdb};

use crate::gate_volume::GateVolume;
use crate::scene::*;

const MISCOMPARE: (u8, u8, u8) = (0x0e, 0x1d, 0);

fn compare_and_write(host: &mut Initiator, lba: u64, expected: u8, new: u8) -> Answer {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = 1;
    let mut data = [expected; 1024];
    data[512..].fill(new);
    host.command(0, &cdb, Data::Out(&data)).unwrap()
}

#[test]
fn compare_and_write_from_many_sessions_has_one_winner_each_round() {
    const SESSIONS: u16 = 6;
    const ROUNDS: u8 = 40;
    let directory = tempfile::tempdir().unwrap();
    for engine in ENGINES {
        let mut spec =
            longshore_volume::VolumeSpec::new("file", longshore_volume::BackendName::FILE);
        spec.path = Some(directory.path().join(format!("{engine:?}")));
        spec.size = Some(1 << 20);
        let file = longshore_volume::open(&spec).unwrap();
        for volume in [mem("disk", 512), file, GateVolume::new(mem("slow", 512))] {
            let scene = Scene::with(vec![volume], engine);
            let barrier = Barrier::new(usize::from(SESSIONS));
            let winners: Vec<_> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
            std::thread::scope(|scope| {
                for number in 1..=SESSIONS {
                    let (scene, barrier, winners) = (&scene, &barrier, &winners);
                    scope.spawn(move || {
                        let mut host = scene.host(number);
                        for round in 0..ROUNDS {
                            barrier.wait();
                            // Others write beside it all the time.
                            assert!(write(&mut host, u64::from(number), round).is_good());
                            let answer = compare_and_write(&mut host, 0, round, round + 1);
                            if answer.is_good() {
                                winners[usize::from(round)].fetch_add(1, Ordering::SeqCst);
                            } else {
                                assert_eq!(answer.sense_code(), Some(MISCOMPARE));
                            }
                            barrier.wait();
                        }
                    });
                }
            });
            assert!(
                winners
                    .iter()
                    .all(|round| round.load(Ordering::SeqCst) == 1),
                "{winners:?}"
            );
        }
    }
}

#[test]
fn write_that_comes_during_compare_and_write_lands_after_it() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        let (mut one, mut two) = (scene.host(1), scene.host(2));
        gate.close_reads();
        let mut data = [0; 1024];
        data[512..].fill(5);
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x89, 1);
        let command = one.command_pdu(0, &cdb, Data::Out(&data));
        one.send(&command).unwrap();
        eventually("the comparison", || gate.waiting() == 1);
        let write = begin_write(&mut two, 0, 9);
        assert_silent(&mut two);
        gate.open();
        let tag = command.initiator_task_tag();
        assert!(one.finish(tag, &data).unwrap().is_good());
        assert!(two.finish(write, &[9; 512]).unwrap().is_good());
        assert_eq!(read(&mut two, 0), [9; 512]);
    }
}

#[test]
fn sessions_that_die_inside_compare_and_write_leave_the_gate_open() {
    for engine in ENGINES {
        let gate = GateVolume::new(mem("disk", 512));
        let scene = Scene::with(vec![gate.clone()], engine);
        let mut hosts: Vec<_> = (1..=4).map(|number| scene.host(number)).collect();
        gate.close_reads();
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x89, 1);
        for host in &mut hosts {
            let command = host.command_pdu(0, &cdb, Data::Out(&[0; 1024]));
            host.send(&command).unwrap();
        }
        eventually("one comparison", || gate.waiting() == 1);
        let mut writer = scene.host(9);
        let write = begin_write(&mut writer, 0, 9);
        assert_silent(&mut writer);
        drop(hosts);
        std::thread::sleep(WHILE);
        gate.open();
        assert!(writer.finish(write, &[9; 512]).unwrap().is_good());
        let answer = writer
            .command(0, &cdb::read_16(0, 1), Data::In(512))
            .unwrap();
        assert_eq!(answer.data, [9; 512]);
        assert!(compare_and_write(&mut writer, 0, 9, 3).is_good());
    }
}
