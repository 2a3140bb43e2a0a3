//! Persistence through power loss, and what happens while it is being written.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The namespace after a restart that finds what was stored.
fn restarted(world: &World) -> World {
    let again = World::new();
    if let Some(bytes) = &world.stored {
        again.reservations.restore(bytes).unwrap();
    }
    again
}

#[test]
fn nothing_is_stored_unless_asked_for() {
    let (mut world, [one, _two]) = World::reserved::<2>(EXCLUSIVE_ACCESS);
    assert_eq!(world.register(&one, REPLACE | CPTPL_CLEAR, 11, 12), SUCCESS);
    assert_eq!(world.stored, None);
    assert!(!world.report().persists);
}

#[test]
fn registrations_and_reservation_survive_a_restart() {
    let (mut world, [one, _two]) = World::reserved::<2>(EXCLUSIVE_ACCESS);
    let persist = REPLACE | IEKEY | CPTPL_PERSIST;
    assert_eq!(world.register(&one, persist, 0, 12), SUCCESS);
    let world = restarted(&world);
    let [one, two] = world.hosts();
    let report = world.report();
    assert_eq!((report.kind, report.generation), (EXCLUSIVE_ACCESS, 0));
    assert!(report.persists && one.may_write() && !two.may_read());
    assert_eq!(world.keys(), [12, 22]);
}

#[test]
fn persistence_stays_until_it_is_cleared() {
    let mut world = World::new();
    let [one, two] = world.hosts::<2>();
    assert_eq!(world.register(&one, CPTPL_PERSIST, 0, 11), SUCCESS);
    assert_eq!(world.register(&two, REGISTER, 0, 22), SUCCESS);
    assert_eq!(restarted(&world).keys(), [11, 22]);
    assert_eq!(world.register(&two, REGISTER | CPTPL_CLEAR, 0, 22), SUCCESS);
    assert!(restarted(&world).keys().is_empty());
    assert_eq!(world.keys(), [11, 22]);
}

#[test]
fn persistence_is_refused_where_nothing_can_be_stored() {
    let mut world = World::new();
    world.can_store = false;
    let one = world.controller(1);
    assert_eq!(world.register(&one, CPTPL_PERSIST, 0, 11), INVALID_FIELD);
    assert!(world.keys().is_empty());
    assert_eq!(world.register(&one, CPTPL_CLEAR, 0, 11), SUCCESS);
}

#[test]
fn what_cannot_be_stored_does_not_happen() {
    let mut world = World::new();
    let [one, two] = world.hosts::<2>();
    assert_eq!(world.register(&one, CPTPL_PERSIST, 0, 11), SUCCESS);
    world.stores = false;
    let status = world.acquire(&one, ACQUIRE, EXCLUSIVE_ACCESS, 11, 0);
    assert_eq!(status, Status::INTERNAL_ERROR);
    assert!(two.may_write() && world.report().kind == 0);
    world.stores = true;
    assert_eq!(
        world.acquire(&one, ACQUIRE, EXCLUSIVE_ACCESS, 11, 0),
        SUCCESS
    );
    assert!(!two.may_read());
}

#[test]
fn while_a_change_is_stored_others_wait_and_then_start_again() {
    let world = World::new();
    let [one, two] = world.hosts::<2>();
    let persist = entry(io::RESERVATION_REGISTER, REGISTER | CPTPL_PERSIST);
    let mut first = world.begin(&one, &persist).unwrap();
    let step = first.step(ReservationEvent::Start, &keys(0, 11));
    assert!(matches!(step, ReservationStep::Persist(_)));
    assert!(world.keys().is_empty(), "not yet");

    let mut second = world.begin(&two, &persist).unwrap();
    let woken = wait(second.step(ReservationEvent::Start, &keys(0, 22)));
    assert!(!woken.load(Ordering::SeqCst));
    let done = first.step(ReservationEvent::Persisted(true), &[]);
    assert!(matches!(done, ReservationStep::Complete(SUCCESS)));
    assert_eq!(world.keys(), [11]);
    assert!(woken.load(Ordering::SeqCst));
    let step = second.step(ReservationEvent::Start, &keys(0, 22));
    assert!(matches!(step, ReservationStep::Persist(_)));
    let done = second.step(ReservationEvent::Persisted(true), &[]);
    assert!(matches!(done, ReservationStep::Complete(SUCCESS)));
    assert_eq!(world.keys(), [11, 22]);
}

/// Whether the wait is over.
fn wait(step: ReservationStep) -> Arc<AtomicBool> {
    let ReservationStep::Wait(wait) = step else {
        panic!("{step:?}")
    };
    let woken = Arc::new(AtomicBool::new(false));
    let waker = Arc::clone(&woken);
    wait.then(move || waker.store(true, Ordering::SeqCst));
    woken
}

#[test]
fn a_command_aborted_while_it_is_stored_changes_nothing() {
    let mut world = World::new();
    let [one, two] = world.hosts::<2>();
    let persist = entry(io::RESERVATION_REGISTER, REGISTER | CPTPL_PERSIST);
    let mut command = world.begin(&one, &persist).unwrap();
    let step = command.step(ReservationEvent::Start, &keys(0, 11));
    let order: StoreOrder = match step {
        ReservationStep::Persist(order) => order,
        other => panic!("{other:?}"),
    };
    drop(command);
    let register = entry(io::RESERVATION_REGISTER, REGISTER);
    let mut other = world.begin(&two, &register).unwrap();
    let woken = wait(other.step(ReservationEvent::Start, &keys(0, 22)));
    assert!(
        !woken.load(Ordering::SeqCst),
        "the driver stores it all the same"
    );
    world.stored = Some(order.to_vec());
    drop(order);
    assert!(woken.load(Ordering::SeqCst));
    assert_eq!(world.register(&two, REGISTER, 0, 22), SUCCESS);
    // What was stored of the aborted command is gone.
    assert!(restarted(&world).keys().is_empty());
    assert_eq!(world.keys(), [22]);
}
