//! APTPL: what survives a restart, and what happens while it is being stored.

use super::*;

fn aptpl(key: u64, new_key: u64) -> Vec<u8> {
    list(key, new_key, APTPL)
}

/// The unit after a restart that finds what was stored.
fn restarted(world: &World) -> World {
    let again = World::new();
    if let Some(bytes) = &world.stored {
        again.unit.reservations().restore(bytes).unwrap();
    }
    again
}

#[test]
fn nothing_is_stored_unless_asked_for() {
    let mut world = World::new();
    let one = world.host(1);
    world.register(&one, 11);
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    assert_eq!(world.stored, None);
}

#[test]
fn registrations_and_reservation_survive_a_restart() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &aptpl(0, 11)),
        ReservationOutcome::Good
    );
    assert_eq!(
        world.out_with(&two, REGISTER, 0, &aptpl(0, 22)),
        ReservationOutcome::Good
    );
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    assert_eq!(
        world.stored.as_ref(),
        Some(&world.unit.reservations().to_bytes())
    );

    let mut world = restarted(&world);
    let (one, two) = (world.host(1), world.host(2));
    assert_eq!(world.keys(&two), [11, 22]);
    assert_eq!(world.generation(&two), 0, "counts from power on");
    assert_eq!(world.read(&two), ReservationOutcome::Conflict);
    assert_eq!(world.write(&one), ReservationOutcome::Good);
    assert_eq!(
        world.out(&one, RELEASE, EXCLUSIVE_ACCESS, 11, 0),
        ReservationOutcome::Good
    );

    let mut world = restarted(&world);
    let two = world.host(2);
    assert_eq!(world.reservation(&two), None);
    assert_eq!(world.keys(&two), [11, 22]);
}

#[test]
fn the_last_registration_decides_whether_anything_survives() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &aptpl(0, 11)),
        ReservationOutcome::Good
    );
    assert_eq!(
        world.out(&two, REGISTER, 0, 0, 22),
        ReservationOutcome::Good
    );
    let mut world = restarted(&world);
    let one = world.host(1);
    assert!(world.keys(&one).is_empty());
}

#[test]
fn aptpl_is_refused_where_nothing_can_be_stored() {
    let no_store = LogicalUnitConfig {
        persistent_reservations_store: false,
        ..config()
    };
    let mut world = World::with_config(no_store);
    let one = world.host(1);
    let refused = ReservationOutcome::Check(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(world.out_with(&one, REGISTER, 0, &aptpl(0, 11)), refused);
    assert!(world.keys(&one).is_empty());
}

#[test]
fn what_cannot_be_stored_does_not_happen() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &aptpl(0, 11)),
        ReservationOutcome::Good
    );
    world.stores = false;
    let failed = ReservationOutcome::Check(AdditionalSense::INTERNAL_TARGET_FAILURE);
    assert_eq!(world.out(&one, RESERVE, EXCLUSIVE_ACCESS, 11, 0), failed);
    assert_eq!(world.reservation(&one), None);
    assert_eq!(world.write(&two), ReservationOutcome::Good);
    world.stores = true;
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    assert_eq!(world.write(&two), ReservationOutcome::Conflict);
}

#[test]
fn a_change_takes_effect_once_it_is_stored_and_others_wait() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    let list = aptpl(0, 11);
    let mut command = world.begin(&one, &out_cdb(REGISTER, 0, list.len()));
    let (step, _) = world.step(&mut command, CommandEvent::Start, &list);
    assert!(matches!(step, Step::Persist(_)));
    assert!(world.keys(&two).is_empty(), "not yet");
    assert_eq!(
        world.out(&two, REGISTER_AND_IGNORE, 0, 0, 22),
        ReservationOutcome::Busy
    );
    let (step, _) = world.step(&mut command, CommandEvent::Persisted(true), &list);
    assert!(matches!(step, Step::Complete(Completion::GOOD)));
    assert_eq!(world.keys(&two), [11]);
    assert_eq!(
        world.out(&two, REGISTER, 0, 0, 22),
        ReservationOutcome::Good
    );
}

#[test]
fn a_command_aborted_while_it_is_stored_changes_nothing_and_the_next_one_stores() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    let list = aptpl(0, 11);
    let mut command = world.begin(&one, &out_cdb(REGISTER, 0, list.len()));
    let (step, _) = world.step(&mut command, CommandEvent::Start, &list);
    let Step::Persist(order) = step else {
        panic!("{step:?}")
    };
    drop(command);
    assert!(world.keys(&two).is_empty());
    // The driver stores it all the same, and nothing else meanwhile.
    let register = |world: &mut World| world.out(&two, REGISTER_AND_IGNORE, 0, 0, 22);
    assert_eq!(register(&mut world), ReservationOutcome::Busy);
    assert_eq!(
        world.send(&two, &[0x16, 0, 0, 0, 0, 0]),
        ReservationOutcome::Busy,
        "RESERVE (6)"
    );
    world.stored = Some(order.to_vec());
    drop(order);
    world.register(&two, 22);
    assert_eq!(world.keys(&two), [22]);
    // What was stored of the aborted command is gone.
    let mut world = restarted(&world);
    let one = world.host(1);
    assert!(world.keys(&one).is_empty());
}

#[test]
fn damaged_bytes_leave_the_table_as_it_was() {
    let mut world = World::new();
    let one = world.host(1);
    world.register(&one, 11);
    assert!(
        world
            .unit
            .reservations()
            .restore(b"LSRESERV is not all there is to it")
            .is_err()
    );
    assert_eq!(world.keys(&one), [11]);
}
