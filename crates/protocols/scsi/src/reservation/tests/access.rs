//! Who may read and write under which reservation.

use super::*;

/// Whether [read, write, TEST UNIT READY, MODE SENSE, INQUIRY, RELEASE (6)] succeed.
fn allowed(world: &mut World, nexus: &Arc<Nexus>) -> [bool; 6] {
    let commands: [&[u8]; 6] = [
        &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0; 6],
        &[0x1a, 0, 0x3f, 0, 255, 0],
        &[0x12, 0, 0, 0, 255, 0],
        &[0x16, 0, 0, 0, 0, 0],
    ];
    commands.map(|cdb| match world.run(nexus, cdb, &[0; 512]).0 {
        ReservationOutcome::Good => true,
        ReservationOutcome::Conflict => false,
        other => panic!("unexpected {other:?}"),
    })
}

#[test]
fn every_type_admits_whom_it_should() {
    const ALL: [bool; 6] = [true; 6];
    /// MODE SENSE goes with reading; RESERVE (6) is for those who may do anything.
    const READER: [bool; 6] = [true, false, true, true, true, false];
    const NOBODY: [bool; 6] = [false, false, true, false, true, false];
    for (kind, registrant, other) in [
        (WRITE_EXCLUSIVE, READER, READER),
        (EXCLUSIVE_ACCESS, NOBODY, NOBODY),
        (WRITE_EXCLUSIVE_REGISTRANTS_ONLY, ALL, READER),
        (EXCLUSIVE_ACCESS_REGISTRANTS_ONLY, ALL, NOBODY),
        (WRITE_EXCLUSIVE_ALL_REGISTRANTS, ALL, READER),
        (EXCLUSIVE_ACCESS_ALL_REGISTRANTS, ALL, NOBODY),
    ] {
        let mut world = World::new();
        let [one, two, three] = [1, 2, 3].map(|number| world.host(number));
        world.register(&one, 11);
        world.register(&two, 22);
        world.reserve(&one, 11, kind);
        assert_eq!(allowed(&mut world, &one), ALL, "holder, type {kind}");
        assert_eq!(
            allowed(&mut world, &two),
            registrant,
            "registrant, type {kind}"
        );
        assert_eq!(allowed(&mut world, &three), other, "other, type {kind}");
        // Who unregisters is shut out at once, who registers is let in at once.
        assert_eq!(
            world.out(&two, REGISTER, 0, 22, 0),
            ReservationOutcome::Good
        );
        assert_eq!(
            allowed(&mut world, &two),
            other,
            "no longer registered, type {kind}"
        );
        world.register(&three, 33);
        assert_eq!(
            allowed(&mut world, &three),
            registrant,
            "now registered, type {kind}"
        );
        assert_eq!(
            world.out(&one, RELEASE, kind, 11, 0),
            ReservationOutcome::Good
        );
        attentions(&three);
        for nexus in [&one, &two, &three] {
            assert_eq!(
                world.write(nexus),
                ReservationOutcome::Good,
                "released, type {kind}"
            );
        }
    }
}

#[test]
fn a_reservation_outlives_the_session_of_its_holder() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    world.register(&one, 11);
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    world.unit.detach(&one);
    assert_eq!(world.read(&two), ReservationOutcome::Conflict);
    let back = world.host(1);
    assert_eq!(world.write(&back), ReservationOutcome::Good);
    assert_eq!(
        world.out(&back, RELEASE, EXCLUSIVE_ACCESS, 11, 0),
        ReservationOutcome::Good
    );
}

#[test]
fn another_target_port_is_another_registrant() {
    let mut world = World::new();
    let (first, second) = (world.host_on(1, 1), world.host_on(1, 2));
    world.register(&first, 11);
    world.reserve(&first, 11, EXCLUSIVE_ACCESS);
    assert_eq!(world.read(&second), ReservationOutcome::Conflict);
    assert_eq!(
        world.out(&second, RELEASE, EXCLUSIVE_ACCESS, 11, 0),
        ReservationOutcome::Conflict
    );
}

#[test]
fn a_session_that_arrives_later_finds_the_reservation() {
    let mut world = World::new();
    let one = world.host(1);
    world.register(&one, 11);
    world.reserve(&one, 11, WRITE_EXCLUSIVE);
    let two = world.host(2);
    assert_eq!(world.write(&two), ReservationOutcome::Conflict);
    assert_eq!(world.read(&two), ReservationOutcome::Good);
}

#[test]
fn resets_leave_persistent_reservations() {
    use crate::unit::Reset;
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    world.register(&one, 11);
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    for reset in [Reset::LogicalUnit, Reset::TargetWarm, Reset::TargetCold] {
        world.unit.reset(reset);
        attentions(&two);
        assert_eq!(world.read(&two), ReservationOutcome::Conflict);
    }
}
