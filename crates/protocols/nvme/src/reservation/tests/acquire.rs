//! Reservation Acquire.

use super::*;

#[test]
fn every_type_keeps_out_whom_it_should() {
    for kind in ALL_TYPES {
        let (world, [holder, registrant]) = World::reserved::<2>(kind);
        let other = world.controller(3);
        let shared = kind >= WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
        let others_read = [
            WRITE_EXCLUSIVE,
            WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
            WRITE_EXCLUSIVE_ALL_REGISTRANTS,
        ]
        .contains(&kind);
        assert!(holder.may_read() && holder.may_write());
        assert_eq!(registrant.may_write(), shared, "type {kind}");
        assert_eq!(registrant.may_read(), shared || others_read);
        assert!(!other.may_write());
        assert_eq!(other.may_read(), others_read);
        assert_eq!(world.report().kind, kind);
    }
}

#[test]
fn a_host_must_be_registered_and_know_its_key() {
    let mut world = World::new();
    let (one, two) = (world.controller(1), world.controller(2));
    assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
    for action in [ACQUIRE, PREEMPT, PREEMPT_AND_ABORT] {
        assert_eq!(
            world.acquire(&one, action, WRITE_EXCLUSIVE, 12, 11),
            CONFLICT
        );
        assert_eq!(
            world.acquire(&two, action, WRITE_EXCLUSIVE, 11, 11),
            CONFLICT
        );
        assert_eq!(
            world.acquire(&two, action, WRITE_EXCLUSIVE, 0, 11),
            CONFLICT
        );
    }
    assert_eq!(world.report().kind, 0);
}

#[test]
fn the_holder_may_acquire_the_same_again_and_nothing_else() {
    for kind in ALL_TYPES {
        let (mut world, [one, two]) = World::reserved::<2>(kind);
        let generation = world.report().generation;
        assert_eq!(world.acquire(&one, ACQUIRE, kind, 11, 0), SUCCESS);
        let all_hold = kind >= WRITE_EXCLUSIVE_ALL_REGISTRANTS;
        let expected = if all_hold { SUCCESS } else { CONFLICT };
        assert_eq!(world.acquire(&two, ACQUIRE, kind, 22, 0), expected);
        let other_kind = kind % 6 + 1;
        assert_eq!(world.acquire(&one, ACQUIRE, other_kind, 11, 0), CONFLICT);
        assert_eq!(world.report().kind, kind);
        assert_eq!(
            world.report().generation,
            generation,
            "acquiring does not count"
        );
    }
}

#[test]
fn reserved_types_and_actions_and_iekey_are_invalid_fields() {
    let mut world = World::new();
    let one = world.controller(1);
    assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
    for kind in [0, 7, 8, 255] {
        assert_eq!(world.acquire(&one, ACQUIRE, kind, 11, 0), INVALID_FIELD);
    }
    for action in 3..8 {
        assert_eq!(world.acquire(&one, action, 1, 11, 0), INVALID_FIELD);
    }
    assert_eq!(
        world.acquire(&one, ACQUIRE | IEKEY, 1, 11, 0),
        INVALID_FIELD
    );
    assert_eq!(world.report().kind, 0);
}

#[test]
fn preempt_takes_the_reservation_and_removes_all_with_the_holder_s_key() {
    let (mut world, [one, two, three]) = World::reserved::<3>(EXCLUSIVE_ACCESS);
    assert_eq!(world.register(&three, REPLACE, 33, 11), SUCCESS);
    let generation = world.report().generation;
    assert_eq!(
        world.acquire(&two, PREEMPT, WRITE_EXCLUSIVE, 22, 11),
        SUCCESS
    );
    let report = world.report();
    assert_eq!((report.kind, world.keys()), (WRITE_EXCLUSIVE, vec![22]));
    assert_eq!(report.generation, generation + 1);
    assert!(two.may_write() && !one.may_write() && one.may_read() && !three.may_write());
    assert!(world.aborted.is_empty());
}

#[test]
fn preempt_with_another_key_removes_registrations_alone() {
    let (mut world, [one, _two, three]) = World::reserved::<3>(EXCLUSIVE_ACCESS_REGISTRANTS_ONLY);
    // The type is not looked at: there is no new reservation.
    assert_eq!(world.acquire(&three, PREEMPT, 0, 33, 22), SUCCESS);
    assert_eq!(world.keys(), [11, 33]);
    assert_eq!(world.report().kind, EXCLUSIVE_ACCESS_REGISTRANTS_ONLY);
    assert_eq!(
        world.acquire(&one, PREEMPT, 0, 11, 22),
        CONFLICT,
        "nobody has it"
    );
}

#[test]
fn preempt_without_a_reservation_removes_registrations_its_own_too() {
    let mut world = World::new();
    let [one, two] = world.hosts::<2>();
    assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
    assert_eq!(world.register(&two, REGISTER, 0, 22), SUCCESS);
    assert_eq!(world.acquire(&one, PREEMPT, 1, 11, 22), SUCCESS);
    assert_eq!(world.keys(), [11]);
    assert_eq!(
        world.report().kind,
        0,
        "preempting registrations reserves nothing"
    );
    assert_eq!(world.acquire(&one, PREEMPT, 1, 11, 11), SUCCESS);
    assert!(world.keys().is_empty());
    assert!(one.told().is_empty(), "it knows");
}

#[test]
fn the_holder_changes_the_type_by_preempting_itself() {
    let (mut world, [one, two]) = World::reserved::<2>(WRITE_EXCLUSIVE);
    assert_eq!(
        world.acquire(&one, PREEMPT, EXCLUSIVE_ACCESS, 11, 11),
        SUCCESS
    );
    assert_eq!(world.keys(), [11, 22]);
    assert_eq!(world.report().kind, EXCLUSIVE_ACCESS);
    assert!(!two.may_read());
}

#[test]
fn zero_preempts_all_when_all_registrants_hold_and_is_invalid_otherwise() {
    for kind in ALL_TYPES {
        let (mut world, [_one, two, _three]) = World::reserved::<3>(kind);
        let status = world.acquire(&two, PREEMPT, WRITE_EXCLUSIVE, 22, 0);
        if kind >= WRITE_EXCLUSIVE_ALL_REGISTRANTS {
            assert_eq!((status, world.keys()), (SUCCESS, vec![22]));
            assert_eq!(world.report().kind, WRITE_EXCLUSIVE);
        } else {
            assert_eq!((status, world.keys()), (INVALID_FIELD, vec![11, 22, 33]));
        }
    }
    let mut world = World::new();
    let one = world.controller(1);
    assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
    assert_eq!(world.acquire(&one, PREEMPT, 1, 11, 0), INVALID_FIELD);
}

#[test]
fn taking_over_needs_a_type() {
    let (mut world, [_one, two]) = World::reserved::<2>(WRITE_EXCLUSIVE);
    assert_eq!(world.acquire(&two, PREEMPT, 0, 22, 11), INVALID_FIELD);
    assert_eq!(world.keys(), [11, 22]);
}

#[test]
fn preempt_and_abort_names_every_controller_of_those_removed() {
    let (mut world, [one, two]) = World::reserved::<2>(EXCLUSIVE_ACCESS);
    let again = world.controller(1);
    let gone = world.controller(1);
    gone.host.leave(&world.reservations);
    assert_eq!(
        world.acquire(&two, PREEMPT_AND_ABORT, EXCLUSIVE_ACCESS, 22, 11),
        SUCCESS
    );
    assert_eq!(world.aborted.len(), 2);
    for controller in [one, again] {
        let lost =
            |member: &Arc<dyn Participant>| is_same_participant(&**member, &*controller.host);
        assert!(world.aborted.iter().any(lost));
        assert!(!controller.may_read());
    }
}
