//! Who is told of what.

use super::*;
use crate::unit::Reset;
use crate::unit_attention::UnitAttention;
use AdditionalSense as Code;

const PREEMPTED: [Code; 1] = [Code::REGISTRATIONS_PREEMPTED];
const RELEASED: [Code; 1] = [Code::RESERVATIONS_RELEASED];

/// Three registrants, the first of which holds a reservation, and one that is not registered.
fn four(kind: u8) -> (World, [Arc<Nexus>; 4]) {
    let mut world = World::new();
    let hosts = [1, 2, 3, 4].map(|number| world.host(number));
    for (nexus, key) in hosts.iter().zip([11, 22, 33]) {
        world.register(nexus, key);
    }
    world.reserve(&hosts[0], 11, kind);
    (world, hosts)
}

fn all_attentions(hosts: &[Arc<Nexus>; 4]) -> [Vec<Code>; 4] {
    hosts.each_ref().map(|nexus| attentions(nexus))
}

#[test]
fn release_tells_the_other_registrants_of_a_shared_reservation() {
    for kind in ALL_TYPES {
        let (mut world, hosts) = four(kind);
        assert_eq!(
            world.out(&hosts[0], RELEASE, kind, 11, 0),
            ReservationOutcome::Good
        );
        let told = if kind > EXCLUSIVE_ACCESS {
            RELEASED.to_vec()
        } else {
            vec![]
        };
        assert_eq!(
            all_attentions(&hosts),
            [vec![], told.clone(), told, vec![]],
            "type {kind}"
        );
    }
}

#[test]
fn unregistering_the_holder_tells_the_other_registrants() {
    for kind in ALL_TYPES {
        let (mut world, hosts) = four(kind);
        assert_eq!(
            world.out(&hosts[0], REGISTER, 0, 11, 0),
            ReservationOutcome::Good
        );
        let registrants_only = [
            WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
            EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
        ]
        .contains(&kind);
        let told = if registrants_only {
            RELEASED.to_vec()
        } else {
            vec![]
        };
        assert_eq!(
            all_attentions(&hosts),
            [vec![], told.clone(), told, vec![]],
            "type {kind}"
        );
    }
}

#[test]
fn clear_tells_the_other_registrants() {
    let (mut world, hosts) = four(EXCLUSIVE_ACCESS);
    assert_eq!(
        world.out(&hosts[1], CLEAR, 0, 22, 0),
        ReservationOutcome::Good
    );
    let told = vec![Code::RESERVATIONS_PREEMPTED];
    assert_eq!(all_attentions(&hosts), [told.clone(), vec![], told, vec![]]);
}

#[test]
fn preempt_tells_those_removed_and_of_a_new_type_the_rest() {
    for action in [PREEMPT, PREEMPT_AND_ABORT] {
        let (mut world, hosts) = four(EXCLUSIVE_ACCESS);
        assert_eq!(
            world.out(&hosts[1], action, EXCLUSIVE_ACCESS, 22, 11),
            ReservationOutcome::Good
        );
        assert_eq!(
            all_attentions(&hosts),
            [PREEMPTED.to_vec(), vec![], vec![], vec![]]
        );

        let (mut world, hosts) = four(EXCLUSIVE_ACCESS);
        assert_eq!(
            world.out(&hosts[1], action, WRITE_EXCLUSIVE, 22, 11),
            ReservationOutcome::Good
        );
        assert_eq!(
            all_attentions(&hosts),
            [PREEMPTED.to_vec(), vec![], RELEASED.to_vec(), vec![]]
        );

        let (mut world, hosts) = four(EXCLUSIVE_ACCESS);
        assert_eq!(
            world.out(&hosts[1], action, 0, 22, 33),
            ReservationOutcome::Good
        );
        assert_eq!(
            all_attentions(&hosts),
            [vec![], vec![], PREEMPTED.to_vec(), vec![]]
        );
    }
}

#[test]
fn a_reset_is_told_to_all_and_the_sender() {
    for (reset, code) in [
        (Reset::LogicalUnit, Code::BUS_DEVICE_RESET_FUNCTION_OCCURRED),
        (
            Reset::TargetWarm,
            Code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED,
        ),
        (
            Reset::TargetCold,
            Code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED,
        ),
    ] {
        let (world, hosts) = four(WRITE_EXCLUSIVE);
        world.unit.reset(reset);
        assert_eq!(all_attentions(&hosts), [[code]; 4].map(Vec::from));
    }
}

#[test]
fn a_resize_is_told_to_all_and_once() {
    let (world, hosts) = four(WRITE_EXCLUSIVE);
    world.unit.resize(20_000);
    world.unit.resize(30_000);
    assert_eq!(world.unit.capacity(), (512, 30_000));
    assert_eq!(
        all_attentions(&hosts),
        [[Code::CAPACITY_DATA_HAS_CHANGED]; 4].map(Vec::from)
    );
    world.unit.resize(30_000);
    assert_eq!(all_attentions(&hosts), [const { vec![] }; 4]);
}

#[test]
fn cleared_tasks_are_told_to_whose_they_were() {
    let (world, hosts) = four(WRITE_EXCLUSIVE);
    world.unit.tasks_cleared_by(&hosts[0], &hosts[..2]);
    let told = vec![Code::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR];
    assert_eq!(all_attentions(&hosts), [vec![], told, vec![], vec![]]);
}

#[test]
fn a_command_reports_one_condition_and_then_runs() {
    let mut world = World::new();
    let one = world.unit.attach(port(1, 1));
    one.establish(UnitAttention::CapacityChanged);
    let power_on = Code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED;
    assert_eq!(world.read(&one), ReservationOutcome::Check(power_on));
    assert_eq!(
        world.write(&one),
        ReservationOutcome::Check(Code::CAPACITY_DATA_HAS_CHANGED)
    );
    assert_eq!(world.test_unit_ready(&one), ReservationOutcome::Good);
}

#[test]
fn inquiry_and_report_luns_run_and_leave_conditions_pending() {
    let mut world = World::new();
    let one = world.unit.attach(port(1, 1));
    assert_eq!(
        world.send(&one, &[0x12, 0, 0, 0, 36, 0]),
        ReservationOutcome::Good
    );
    assert_eq!(
        world.send(&one, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]),
        ReservationOutcome::Good
    );
    assert_eq!(
        attentions(&one),
        [Code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED]
    );
}

#[test]
fn report_luns_clears_the_change_it_shows() {
    let mut world = World::new();
    let one = world.host(1);
    one.establish(UnitAttention::ReportedLunsChanged);
    one.establish(UnitAttention::CapacityChanged);
    assert_eq!(
        world.send(&one, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]),
        ReservationOutcome::Good
    );
    assert_eq!(attentions(&one), [Code::CAPACITY_DATA_HAS_CHANGED]);
}

#[test]
fn request_sense_returns_the_condition_as_data_and_clears_it() {
    let mut world = World::new();
    let one = world.unit.attach(port(1, 1));
    let (outcome, data) = world.run(&one, &[0x03, 0, 0, 0, 18, 0], &[]);
    assert_eq!(outcome, ReservationOutcome::Good);
    assert_eq!((data[2] & 0xf, data[12], data[13]), (6, 0x29, 0x00));
    let (_, data) = world.run(&one, &[0x03, 0, 0, 0, 18, 0], &[]);
    assert_eq!((data[2] & 0xf, data[12], data[13]), (0, 0, 0));
}

#[test]
fn a_reset_is_reported_before_a_conflict_and_a_conflict_before_the_rest() {
    let (mut world, hosts) = four(EXCLUSIVE_ACCESS);
    hosts[3].establish(UnitAttention::CapacityChanged);
    assert_eq!(world.read(&hosts[3]), ReservationOutcome::Conflict);
    world.unit.reset(Reset::LogicalUnit);
    let reset = ReservationOutcome::Check(Code::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
    assert_eq!(world.read(&hosts[3]), reset);
    assert_eq!(world.read(&hosts[3]), ReservationOutcome::Conflict);
    assert_eq!(attentions(&hosts[3]), [Code::CAPACITY_DATA_HAS_CHANGED]);
}

#[test]
fn many_threads_report_each_condition_exactly_once() {
    let world = World::new();
    let one = world.host(1);
    let taken = std::sync::atomic::AtomicUsize::new(0);
    let rounds = 2_000;
    std::thread::scope(|scope| {
        let (one, taken) = (&one, &taken);
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..rounds {
                    if one.take_unit_attention().is_some() {
                        taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        for kind in UnitAttention::ALL {
            one.establish(kind);
        }
    });
    let rest = attentions(&one).len();
    // POWER ON … was established first, so it cleared nothing.
    assert_eq!(taken.into_inner() + rest, UnitAttention::ALL.len());
}
