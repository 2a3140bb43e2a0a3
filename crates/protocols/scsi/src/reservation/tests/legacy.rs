//! RESERVE (6) and RELEASE (6).

use super::*;
use crate::unit::Reset;

const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE_6: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const MODE_SENSE_6: [u8; 6] = [0x1a, 0, 0x3f, 0, 255, 0];

#[test]
fn the_holder_may_go_on_and_others_may_only_identify() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    assert_eq!(world.send(&one, &RESERVE_6), ReservationOutcome::Good);
    assert_eq!(
        world.send(&one, &RESERVE_6),
        ReservationOutcome::Good,
        "again by the holder"
    );
    assert_eq!(world.send(&two, &RESERVE_6), ReservationOutcome::Conflict);
    assert_eq!(
        world.send(&two, &RELEASE_6),
        ReservationOutcome::Good,
        "has no effect"
    );
    assert_eq!(world.send(&one, &MODE_SENSE_6), ReservationOutcome::Good);
    assert_eq!(
        world.send(&two, &MODE_SENSE_6),
        ReservationOutcome::Conflict
    );
    assert_eq!(world.read(&two), ReservationOutcome::Conflict);
    assert_eq!(world.test_unit_ready(&two), ReservationOutcome::Conflict);
    assert_eq!(
        world.send(&two, &[0x12, 0, 0, 0, 36, 0]),
        ReservationOutcome::Good,
        "INQUIRY"
    );
    assert_eq!(
        world.send(&two, &[0x03, 0, 0, 0, 18, 0]),
        ReservationOutcome::Good,
        "REQUEST SENSE"
    );
    assert_eq!(world.send(&one, &RELEASE_6), ReservationOutcome::Good);
    assert_eq!(world.send(&two, &RESERVE_6), ReservationOutcome::Good);
}

#[test]
fn it_ends_with_the_session_and_with_every_reset() {
    type Ending = fn(&World, &Arc<Nexus>);
    let endings: [(&str, Ending); 5] = [
        ("session end", |world, one| world.unit.detach(one)),
        ("session reinstatement", |world, _| drop(world.host(1))),
        ("logical unit reset", |world, _| {
            world.unit.reset(Reset::LogicalUnit)
        }),
        ("warm reset", |world, _| world.unit.reset(Reset::TargetWarm)),
        ("cold reset", |world, _| world.unit.reset(Reset::TargetCold)),
    ];
    for (name, end) in endings {
        let mut world = World::new();
        let (one, two) = (world.host(1), world.host(2));
        assert_eq!(world.send(&one, &RESERVE_6), ReservationOutcome::Good);
        end(&world, &one);
        attentions(&two);
        assert_eq!(
            world.send(&two, &RESERVE_6),
            ReservationOutcome::Good,
            "{name}"
        );
    }
}

#[test]
fn a_session_that_is_gone_takes_no_reservation() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    world.unit.detach(&one);
    assert_eq!(world.send(&one, &RESERVE_6), ReservationOutcome::Good);
    assert_eq!(world.read(&two), ReservationOutcome::Good);
}

#[test]
fn persistent_reservations_conflict_while_it_holds() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    assert_eq!(world.send(&one, &RESERVE_6), ReservationOutcome::Good);
    for nexus in [&one, &two] {
        assert_eq!(
            world.out(nexus, REGISTER_AND_IGNORE, 0, 0, 1),
            ReservationOutcome::Conflict
        );
        assert_eq!(
            world.send(nexus, &in_cdb(READ_KEYS)),
            ReservationOutcome::Conflict
        );
    }
}

#[test]
fn it_conflicts_while_keys_are_registered() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    world.register(&one, 11);
    for nexus in [&one, &two] {
        assert_eq!(world.send(nexus, &RESERVE_6), ReservationOutcome::Conflict);
        assert_eq!(world.send(nexus, &RELEASE_6), ReservationOutcome::Conflict);
    }
    assert_eq!(
        world.write(&two),
        ReservationOutcome::Good,
        "nothing is reserved"
    );
}

#[test]
fn it_succeeds_and_does_nothing_for_whom_the_persistent_reservation_lets_in() {
    for (kind, registrant) in [
        (EXCLUSIVE_ACCESS, ReservationOutcome::Conflict),
        (WRITE_EXCLUSIVE, ReservationOutcome::Conflict),
        (EXCLUSIVE_ACCESS_REGISTRANTS_ONLY, ReservationOutcome::Good),
        (WRITE_EXCLUSIVE_ALL_REGISTRANTS, ReservationOutcome::Good),
    ] {
        let mut world = World::new();
        let [one, two, three] = [1, 2, 3].map(|number| world.host(number));
        world.register(&one, 11);
        world.register(&two, 22);
        world.reserve(&one, 11, kind);
        for command in [RESERVE_6, RELEASE_6] {
            assert_eq!(world.send(&one, &command), ReservationOutcome::Good);
            assert_eq!(world.send(&two, &command), registrant);
            assert_eq!(world.send(&three, &command), ReservationOutcome::Conflict);
        }
        let key = if kind < WRITE_EXCLUSIVE_ALL_REGISTRANTS {
            11
        } else {
            0
        };
        assert_eq!(world.reservation(&one), Some((key, kind)));
    }
}

#[test]
fn third_party_and_extent_reservations_are_refused() {
    let mut world = World::new();
    let one = world.host(1);
    for flags in [0x01, 0x10] {
        let refused = ReservationOutcome::Check(AdditionalSense::INVALID_FIELD_IN_CDB);
        assert_eq!(world.send(&one, &[0x16, flags, 0, 0, 0, 0]), refused);
        assert_eq!(world.send(&one, &[0x17, flags, 0, 0, 0, 0]), refused);
    }
}
