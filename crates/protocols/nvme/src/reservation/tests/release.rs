//! Reservation Release.

use super::*;

#[test]
fn the_holder_releases_and_everybody_may_again() {
    for kind in ALL_TYPES {
        let (mut world, [one, _two]) = World::reserved::<2>(kind);
        let other = world.controller(3);
        let generation = world.report().generation;
        assert_eq!(world.release(&one, RELEASE, kind, 11), SUCCESS);
        assert!(other.may_write());
        assert_eq!(world.keys(), [11, 22], "registrations stay");
        assert_eq!(world.report().generation, generation);
        assert_eq!(
            world.release(&one, RELEASE, kind, 11),
            SUCCESS,
            "nothing is held"
        );
    }
}

#[test]
fn a_registrant_that_holds_nothing_releases_nothing() {
    let (mut world, [_one, two]) = World::reserved::<2>(WRITE_EXCLUSIVE_REGISTRANTS_ONLY);
    let kind = WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
    assert_eq!(world.release(&two, RELEASE, kind, 22), SUCCESS);
    assert_eq!(world.report().kind, kind);
    let (mut world, [_one, two]) = World::reserved::<2>(WRITE_EXCLUSIVE_ALL_REGISTRANTS);
    let kind = WRITE_EXCLUSIVE_ALL_REGISTRANTS;
    assert_eq!(world.release(&two, RELEASE, kind, 22), SUCCESS);
    assert_eq!(world.report().kind, 0, "here it is a holder");
}

#[test]
fn the_holder_must_name_the_type() {
    let (mut world, [one, _two]) = World::reserved::<2>(WRITE_EXCLUSIVE);
    for kind in [0, EXCLUSIVE_ACCESS, 7] {
        assert_eq!(world.release(&one, RELEASE, kind, 11), INVALID_FIELD);
    }
    assert_eq!(world.report().kind, WRITE_EXCLUSIVE);
}

#[test]
fn a_host_must_be_registered_and_know_its_key() {
    let (mut world, [one, two]) = World::reserved::<2>(WRITE_EXCLUSIVE);
    let other = world.controller(3);
    for action in [RELEASE, CLEAR] {
        assert_eq!(world.release(&one, action, WRITE_EXCLUSIVE, 22), CONFLICT);
        assert_eq!(world.release(&two, action, WRITE_EXCLUSIVE, 11), CONFLICT);
        assert_eq!(world.release(&other, action, WRITE_EXCLUSIVE, 0), CONFLICT);
    }
    assert_eq!(world.keys(), [11, 22]);
}

#[test]
fn any_registrant_clears_everything() {
    let (mut world, [one, two]) = World::reserved::<2>(EXCLUSIVE_ACCESS);
    let generation = world.report().generation;
    assert_eq!(world.release(&two, CLEAR, 0, 22), SUCCESS);
    let report = world.report();
    assert_eq!((report.kind, report.registrants.len()), (0, 0));
    assert_eq!(report.generation, generation + 1);
    assert!(one.may_write() && two.may_write());
}

#[test]
fn reserved_actions_and_iekey_are_invalid_fields() {
    let (mut world, [one]) = World::reserved::<1>(WRITE_EXCLUSIVE);
    for action in 2..8 {
        assert_eq!(world.release(&one, action, 1, 11), INVALID_FIELD);
    }
    for action in [RELEASE, CLEAR] {
        assert_eq!(world.release(&one, action | IEKEY, 1, 11), INVALID_FIELD);
    }
    assert_eq!(world.keys(), [11]);
}
