//! Task management across sessions on different shards (SAM-5 §7, RFC 7143 §11.5).

use longshore_reactor::EngineChoice;
use longshore_tests::initiator::{Data, Initiator, cdb};
use longshore_tests::pdu::opcode;

use crate::gate_volume::GateVolume;
use crate::scene::*;

struct Gated {
    scene: Scene,
    gate: std::sync::Arc<GateVolume>,
    one: Initiator,
    two: Initiator,
}

fn gated(engine: EngineChoice) -> Gated {
    let gate = GateVolume::new(mem("disk", 512));
    let scene = Scene::with(vec![gate.clone()], engine);
    let (one, two) = (scene.host(1), scene.host(2));
    Gated {
        scene,
        gate,
        one,
        two,
    }
}

#[test]
fn abort_task_is_answered_only_after_the_write_has_ended() {
    for engine in ENGINES {
        let mut g = gated(engine);
        g.gate.close_writes();
        let write = begin_write(&mut g.one, 3, 7);
        eventually("the write", || g.gate.waiting() == 1);
        let request = begin_management(&mut g.one, ABORT_TASK, 0, write);
        assert_silent(&mut g.one);
        g.gate.open();
        assert_eq!(management_response(&mut g.one, request), 0);
        assert_eq!(g.gate.waiting(), 0);
        // An aborted task has no response, and its initiator learns of nothing else.
        assert_eq!(settle(&mut g.one), []);
    }
}

/// A write that ends while the request to abort it is on its way has one outcome, not two.
#[test]
fn a_task_that_was_aborted_has_no_response() {
    for engine in ENGINES {
        let mut g = gated(engine);
        for round in 0..200 {
            g.gate.close_writes();
            let write = begin_write(&mut g.one, 3, round);
            let opener = std::thread::spawn({
                let gate = g.gate.clone();
                move || gate.open()
            });
            let request = begin_management(&mut g.one, ABORT_TASK, 0, write);
            let first = g.one.receive().unwrap();
            let result = if first.opcode() == opcode::TASK_MANAGEMENT_RESPONSE {
                first.bhs[2]
            } else {
                assert_eq!(first.initiator_task_tag(), write);
                let result = management_response(&mut g.one, request);
                assert_ne!(
                    result, 0,
                    "round {round}: the write was answered and aborted"
                );
                result
            };
            opener.join().unwrap();
            if result == 0 {
                assert_eq!(settle(&mut g.one), [], "round {round}");
            }
        }
    }
}

#[test]
fn abort_task_set_ends_the_tasks_of_its_own_session_only() {
    for engine in ENGINES {
        let mut g = gated(engine);
        g.gate.close_writes();
        begin_write(&mut g.one, 3, 7);
        let other = begin_write(&mut g.two, 4, 8);
        eventually("both writes", || g.gate.waiting() == 2);
        let request = begin_management(&mut g.one, ABORT_TASK_SET, 0, u32::MAX);
        assert_silent(&mut g.one);
        g.gate.open();
        assert_eq!(management_response(&mut g.one, request), 0);
        assert!(g.two.finish(other, &[8; 512]).unwrap().is_good());
        assert_eq!(settle(&mut g.one), []);
        assert_eq!(settle(&mut g.two), []);
    }
}

#[test]
fn clear_task_set_ends_tasks_of_all_sessions_and_tells_the_others() {
    for engine in ENGINES {
        let mut g = gated(engine);
        g.gate.close_writes();
        begin_write(&mut g.one, 3, 7);
        begin_write(&mut g.two, 4, 8);
        eventually("both writes", || g.gate.waiting() == 2);
        let request = begin_management(&mut g.one, CLEAR_TASK_SET, 0, u32::MAX);
        assert_silent(&mut g.one);
        g.gate.open();
        assert_eq!(management_response(&mut g.one, request), 0);
        assert_eq!(g.gate.waiting(), 0);
        assert_eq!(settle(&mut g.one), []);
        assert_eq!(settle(&mut g.two), [(6, 0x2f, 0)]);
    }
}

#[test]
fn logical_unit_reset_ends_tasks_of_all_sessions_and_everybody_learns() {
    for engine in ENGINES {
        let mut g = gated(engine);
        g.gate.close_writes();
        begin_write(&mut g.two, 4, 8);
        eventually("the write", || g.gate.waiting() == 1);
        let request = begin_management(&mut g.one, LOGICAL_UNIT_RESET, 0, u32::MAX);
        assert_silent(&mut g.one);
        g.gate.open();
        assert_eq!(management_response(&mut g.one, request), 0);
        for host in [&mut g.one, &mut g.two] {
            let told = settle(host);
            assert!(
                matches!(told[..], [(6, 0x29, _)]),
                "one reset, one condition: {told:?}"
            );
        }
        assert!(write(&mut g.two, 4, 9).is_good());
    }
}

#[test]
fn others_learn_of_a_reset_whose_sender_dies_before_its_answer() {
    for engine in ENGINES {
        let Gated {
            scene,
            gate,
            mut one,
            mut two,
        } = gated(engine);
        gate.close_writes();
        begin_write(&mut two, 4, 8);
        eventually("the write", || gate.waiting() == 1);
        begin_management(&mut one, LOGICAL_UNIT_RESET, 0, u32::MAX);
        assert_silent(&mut one);
        drop(one);
        let mut told = Vec::new();
        eventually("the news of the reset", || {
            told = settle(&mut two);
            !told.is_empty()
        });
        assert!(matches!(told[..], [(6, 0x29, _)]), "{told:?}");
        gate.open();
        drop(scene);
    }
}

#[test]
fn target_warm_reset_tells_all_sessions_and_keeps_their_connections() {
    for engine in ENGINES {
        let mut g = gated(engine);
        assert_eq!(manage(&mut g.one, TARGET_WARM_RESET, 0), 0);
        for host in [&mut g.one, &mut g.two] {
            assert!(matches!(settle(host)[..], [(6, 0x29, _)]));
        }
    }
}

#[test]
fn target_cold_reset_is_answered_and_closes_all_connections() {
    for engine in ENGINES {
        let mut g = gated(engine);
        assert_eq!(manage(&mut g.one, TARGET_COLD_RESET, 0), 0);
        assert!(g.one.is_closed_within(LIMIT).unwrap());
        assert!(g.two.is_closed_within(LIMIT).unwrap());
        drop(g.scene.host(3));
    }
}

/// The first host sees one of two units; the second host sees both.
fn one_sees_less() -> (Scene, Initiator, Initiator, std::sync::Arc<GateVolume>) {
    let gate = GateVolume::new(mem("hidden", 512));
    let mut config = config(vec![mem("shown", 512), gate.clone()], EngineChoice::Auto);
    config.targets[0].access = vec![rule(&host_name(1), vec![lun(0, 0)])];
    let scene = Scene::new(config);
    let (one, mut two) = (scene.host(1), scene.host(2));
    two.command(1, &cdb::TEST_UNIT_READY, Data::None).unwrap();
    (scene, one, two, gate)
}

#[test]
fn target_warm_reset_leaves_units_alone_that_its_initiator_cannot_see() {
    let (_scene, mut one, mut two, gate) = one_sees_less();
    gate.close_writes();
    let write = two.command_pdu(1, &cdb::write_16(0, 1, false), Data::Out(&[6; 512]));
    two.send(&write).unwrap();
    eventually("the write", || gate.waiting() == 1);
    assert_eq!(manage(&mut one, TARGET_WARM_RESET, 0), 0);
    gate.open();
    let answer = two.finish(write.initiator_task_tag(), &[6; 512]).unwrap();
    assert!(answer.is_good(), "{answer:?}");
    let of_hidden = two.command(1, &cdb::TEST_UNIT_READY, Data::None).unwrap();
    assert_eq!(of_hidden.sense_code(), None);
    assert_eq!(settle(&mut two), [(6, 0x29, 0)]);
}

#[test]
fn target_cold_reset_is_not_for_initiators_that_see_a_part_of_the_target() {
    let (_scene, mut one, mut two, _gate) = one_sees_less();
    assert_eq!(manage(&mut one, TARGET_COLD_RESET, 0), 6);
    two.ping().unwrap();
    assert_eq!(settle(&mut two), []);
    assert_eq!(settle(&mut one), []);
    // The other one sees all of it.
    assert_eq!(manage(&mut two, TARGET_COLD_RESET, 0), 0);
    assert!(one.is_closed_within(LIMIT).unwrap());
}

#[test]
fn a_function_for_a_lun_that_is_not_there_is_answered_with_2() {
    let mut g = gated(EngineChoice::Auto);
    for function in [ABORT_TASK_SET, CLEAR_TASK_SET, LOGICAL_UNIT_RESET] {
        assert_eq!(manage(&mut g.one, function, 9), 2);
    }
    let request = begin_management(&mut g.one, ABORT_TASK, 0, 0x1234);
    assert_ne!(
        management_response(&mut g.one, request),
        0,
        "no such task was there"
    );
}

#[test]
fn preempt_and_abort_ends_the_write_of_another_session_before_its_own_end() {
    for engine in ENGINES {
        let mut g = gated(engine);
        for (host, key) in [(&mut g.one, 11), (&mut g.two, 22)] {
            assert!(reserve_out(host, 0, (0, key)).is_good());
        }
        g.gate.close_writes();
        begin_write(&mut g.one, 3, 7);
        eventually("the write", || g.gate.waiting() == 1);
        let list = parameter_list((22, 11));
        let cdb = [0x5f, 5, 3, 0, 0, 0, 0, 0, 24, 0];
        let command = g.two.command_pdu(0, &cdb, Data::Out(&list));
        g.two.send(&command).unwrap();
        assert_silent(&mut g.two);
        g.gate.open();
        let answer = g.two.finish(command.initiator_task_tag(), &list).unwrap();
        assert!(answer.is_good(), "{answer:?}");
        assert_eq!(g.gate.waiting(), 0);
        assert_eq!(settle(&mut g.one), [(6, 0x2f, 0), (6, 0x2a, 5)]);
    }
}

fn parameter_list(keys: (u64, u64)) -> [u8; 24] {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&keys.0.to_be_bytes());
    list[8..16].copy_from_slice(&keys.1.to_be_bytes());
    list
}

fn reserve_out(
    host: &mut Initiator,
    action: u8,
    keys: (u64, u64),
) -> longshore_tests::initiator::Answer {
    let cdb = [0x5f, action, 0, 0, 0, 0, 0, 0, 24, 0];
    host.command(0, &cdb, Data::Out(&parameter_list(keys)))
        .unwrap()
}

/// Task attributes (RFC 7143 §11.3.1).
const SIMPLE: u8 = 1;
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;

fn begin_with(host: &mut Initiator, attribute: u8, cdb: &[u8], data: Data<'_>) -> u32 {
    let command = host.command_pdu(0, cdb, data);
    let flags = command.bhs[1] & !7 | attribute;
    let command = command.set_byte(1, flags);
    host.send(&command).unwrap();
    command.initiator_task_tag()
}

#[test]
fn ordered_task_waits_for_older_ones_and_younger_ones_wait_for_it() {
    for engine in ENGINES {
        let mut g = gated(engine);
        g.gate.close_writes();
        let block = [1; 512];
        let write = cdb::write_16(0, 1, false);
        let older = begin_with(&mut g.one, SIMPLE, &write, Data::Out(&block));
        let ordered = begin_with(&mut g.one, ORDERED, &write, Data::Out(&[2; 512]));
        let younger = begin_with(&mut g.one, SIMPLE, &cdb::read_16(0, 1), Data::In(512));
        eventually("the oldest write", || g.gate.waiting() == 1);
        assert_silent(&mut g.one);
        assert_eq!(g.gate.waiting(), 1);
        g.gate.open();
        for tag in [older, ordered] {
            let response = g.one.receive().unwrap();
            assert_eq!(response.opcode(), opcode::SCSI_RESPONSE);
            assert_eq!((response.initiator_task_tag(), response.bhs[3]), (tag, 0));
        }
        assert_eq!(g.one.finish(younger, &[]).unwrap().data, [2; 512]);
    }
}

#[test]
fn head_of_queue_task_does_not_wait_for_an_ordered_one() {
    for engine in ENGINES {
        let mut g = gated(engine);
        g.gate.close_writes();
        let (block, there) = (cdb::write_16(0, 1, false), cdb::write_16(9, 1, false));
        begin_with(&mut g.one, ORDERED, &block, Data::Out(&[2; 512]));
        begin_with(&mut g.one, SIMPLE, &there, Data::Out(&[3; 512]));
        let first = begin_with(
            &mut g.one,
            HEAD_OF_QUEUE,
            &cdb::read_16(9, 1),
            Data::In(512),
        );
        assert_eq!(g.one.finish(first, &[]).unwrap().data, [0; 512]);
        // At a place of its own: the simple write may begin before this one has ended.
        let elsewhere = cdb::write_16(12, 1, false);
        begin_with(&mut g.one, HEAD_OF_QUEUE, &elsewhere, Data::Out(&[4; 512]));
        eventually("both writes", || g.gate.waiting() == 2);
        g.gate.open();
        for _ in 0..3 {
            assert_eq!(g.one.receive().unwrap().bhs[3], 0);
        }
        assert_eq!(read(&mut g.one, 9), [3; 512]);
        assert_eq!(read(&mut g.one, 12), [4; 512]);
    }
}

#[test]
fn tasks_behind_an_aborted_ordered_task_go_on() {
    for engine in ENGINES {
        let mut g = gated(engine);
        g.gate.close_writes();
        let write = cdb::write_16(0, 1, false);
        let ordered = begin_with(&mut g.one, ORDERED, &write, Data::Out(&[2; 512]));
        let younger = begin_with(&mut g.one, SIMPLE, &cdb::read_16(9, 1), Data::In(512));
        eventually("the write", || g.gate.waiting() == 1);
        let request = begin_management(&mut g.one, ABORT_TASK, 0, ordered);
        // The younger one may be answered before or after the request.
        std::thread::sleep(WHILE);
        g.gate.open();
        let mut seen = [g.one.receive().unwrap(), g.one.receive().unwrap()];
        seen.sort_by_key(longshore_tests::pdu::Pdu::opcode);
        assert_eq!(seen[0].opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
        assert_eq!(seen[0].initiator_task_tag(), request);
        assert_eq!(seen[1].initiator_task_tag(), younger);
    }
}
