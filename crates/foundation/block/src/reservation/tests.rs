//! Participants of two protocols at one volume, without the commands of either.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use ReservationClass::{Changes, Inspects, Reads};

#[derive(Debug)]
struct Member {
    identity: NexusIdentity,
    gate: AtomicU8,
    told: Mutex<Vec<NoticeEvent>>,
    cleared: AtomicUsize,
}

impl Participant for Member {
    fn identity(&self) -> &NexusIdentity {
        &self.identity
    }

    fn set_reservation_gate(&self, bits: u8) {
        self.gate.store(bits, Ordering::SeqCst);
    }

    fn notify(&self, event: NoticeEvent) {
        self.told.lock().unwrap().push(event);
    }

    fn tasks_cleared(&self) {
        self.cleared.fetch_add(1, Ordering::SeqCst);
    }
}

impl Member {
    fn join(reservations: &Reservations, identity: NexusIdentity) -> Arc<Self> {
        let member = Arc::new(Self {
            identity,
            gate: AtomicU8::new(0xff),
            told: Mutex::default(),
            cleared: AtomicUsize::new(0),
        });
        reservations.join(Arc::<Self>::clone(&member));
        member
    }

    fn as_participant(self: &Arc<Self>) -> Arc<dyn Participant> {
        Arc::<Self>::clone(self)
    }

    fn may(&self, class: ReservationClass) -> bool {
        self.gate.load(Ordering::SeqCst) & gate_bit(class) == 0
    }

    fn told(&self) -> Vec<NoticeEvent> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

fn session(number: u8) -> NexusIdentity {
    NexusIdentity::Iscsi {
        initiator_name: format!("iqn.2026-11.local.host:{number}"),
        isid: [0x80, 0, 0, 0, 0, number],
        relative_target_port: 1,
    }
}

fn host(number: u8) -> NexusIdentity {
    NexusIdentity::NvmeHost {
        host_identifier: [number; 16],
    }
}

fn change(reservations: &Arc<Reservations>, with: impl FnOnce(&mut Change)) -> Applied {
    let locked = reservations.lock_for_change().unwrap();
    let mut change = Change::none(locked.table());
    with(&mut change);
    locked.apply(change)
}

/// A change that is not stored; returns how many members lose commands.
fn change_now(reservations: &Arc<Reservations>, with: impl FnOnce(&mut Change)) -> usize {
    match change(reservations, with) {
        Applied::Done(abort) => abort.len(),
        Applied::Store(..) => panic!("nothing asks for it to be stored"),
    }
}

fn register(reservations: &Arc<Reservations>, identity: &NexusIdentity, key: u64) {
    change_now(reservations, |change| {
        change.table.register(identity, key).unwrap();
    });
}

fn reserve(reservations: &Arc<Reservations>, identity: &NexusIdentity, kind: ReservationType) {
    change_now(reservations, |change| change.table.reserve(identity, kind));
}

#[test]
fn a_reservation_of_one_protocol_keeps_the_other_out() {
    for (holder, other) in [(session(1), host(1)), (host(1), session(1))] {
        let all = Reservations::new();
        let (holds, waits) = (
            Member::join(&all, holder.clone()),
            Member::join(&all, other.clone()),
        );
        register(&all, &holder, 11);
        reserve(&all, &holder, ReservationType::WriteExclusive);
        assert!(holds.may(Changes) && waits.may(Reads) && !waits.may(Changes));
        change_now(&all, |change| {
            change.notices = change.table.release(&holder)
        });
        assert!(waits.may(Changes));
        reserve(
            &all,
            &holder,
            ReservationType::ExclusiveAccessAllRegistrants,
        );
        assert!(!waits.may(Reads));
        register(&all, &other, 22);
        assert!(waits.may(Reads) && waits.may(Changes), "registrants share");
    }
}

#[test]
fn who_joins_finds_the_reservation_there_is() {
    let all = Reservations::new();
    register(&all, &host(1), 11);
    reserve(&all, &host(1), ReservationType::ExclusiveAccess);
    assert!(!Member::join(&all, session(1)).may(Reads));
    assert!(!Member::join(&all, host(2)).may(Reads));
    assert!(Member::join(&all, host(1)).may(Changes), "it was away");
}

#[test]
fn all_members_of_an_identity_are_the_same_registrant() {
    let all = Reservations::new();
    let (one, again) = (Member::join(&all, host(1)), Member::join(&all, host(1)));
    let other = Member::join(&all, session(2));
    register(&all, &host(1), 11);
    register(&all, &session(2), 22);
    reserve(&all, &host(1), ReservationType::ExclusiveAccess);
    assert!(one.may(Changes) && again.may(Changes) && !other.may(Reads));
    let aborted = change_now(&all, |change| {
        let before = change.table.clone();
        change.notices = change
            .table
            .preempt_reservation(&session(2), ReservationType::ExclusiveAccess);
        change.abort_removed(&before, &session(2));
    });
    assert_eq!(aborted, 2);
    assert!(!one.may(Reads) && !again.may(Reads) && other.may(Changes));
    assert_eq!(one.told(), [NoticeEvent::RegistrationsPreempted]);
    assert_eq!(again.told(), [NoticeEvent::RegistrationsPreempted]);
    assert_eq!(other.told(), []);
}

#[test]
fn reserve_6_keeps_everybody_else_out_and_ends_with_its_session() {
    let all = Reservations::new();
    let (one, two) = (Member::join(&all, session(1)), Member::join(&all, host(2)));
    all.reserve_legacy(&one.as_participant()).unwrap();
    assert!(one.may(Changes) && one.may(Inspects));
    assert!(!two.may(Reads) && !two.may(Changes) && !two.may(Inspects));
    assert_eq!(
        all.lock_for_change().err(),
        Some(Unchangeable::LegacyReservation)
    );
    assert_eq!(
        all.reserve_legacy(&two.as_participant()),
        Err(LegacyRefusal::Conflict)
    );
    all.release_legacy(&*two).unwrap();
    assert!(!two.may(Reads), "only the holder releases");
    all.leave(&*one);
    assert!(two.may(Changes));
    all.reserve_legacy(&one.as_participant()).unwrap();
    assert!(two.may(Changes), "who is gone holds nothing");
    all.reserve_legacy(&two.as_participant()).unwrap();
    all.reset_legacy();
    assert!(all.lock_for_change().is_ok());
}

#[test]
fn reserve_6_gives_way_to_registrations() {
    let all = Reservations::new();
    let (one, two) = (Member::join(&all, session(1)), Member::join(&all, host(2)));
    register(&all, &host(2), 22);
    let reserve_legacy = || all.reserve_legacy(&one.as_participant());
    assert_eq!(reserve_legacy(), Err(LegacyRefusal::Conflict));
    register(&all, &session(1), 11);
    reserve(
        &all,
        &host(2),
        ReservationType::WriteExclusiveRegistrantsOnly,
    );
    assert_eq!(reserve_legacy(), Ok(()), "it may do everything anyway");
    assert!(two.may(Changes) && !all.lock().is_reserved_by_legacy());
}

fn store(all: &Arc<Reservations>, key: u64) -> (StoreOrder, PendingChange) {
    let stored = change(all, |change| {
        change.table.register(&host(1), key).unwrap();
        change.table.set_persists(true);
    });
    match stored {
        Applied::Store(order, pending) => (order, pending),
        Applied::Done(_) => panic!("it asks to be stored"),
    }
}

fn key_of_host(all: &Arc<Reservations>) -> Option<u64> {
    all.lock().table().key_of(&host(1))
}

#[test]
fn a_change_that_is_stored_takes_effect_after_that_and_others_wait() {
    let all = Reservations::new();
    let one = Member::join(&all, session(1));
    let (order, pending) = store(&all, 11);
    assert_eq!(key_of_host(&all), None, "not yet");
    assert_eq!(all.lock_for_change().err(), Some(Unchangeable::Storing));
    assert_eq!(
        all.reserve_legacy(&one.as_participant()),
        Err(LegacyRefusal::Storing)
    );
    let again = Reservations::new();
    again.restore(&order).unwrap();
    assert!(pending.stored(true).is_some());
    assert_eq!(key_of_host(&all), Some(11));
    assert_eq!(all.to_bytes(), again.to_bytes());
    assert!(all.lock_for_change().is_ok(), "though the order lives");
}

#[test]
fn a_change_that_was_not_stored_does_not_happen_and_the_next_one_stores() {
    let all = Reservations::new();
    let (order, pending) = store(&all, 11);
    assert!(pending.stored(false).is_none());
    drop(order);
    assert_eq!(key_of_host(&all), None);
    // What is stored is open now: even a change that asks for nothing must put it right.
    assert!(matches!(change(&all, |_| {}), Applied::Store(..)));
}

#[test]
fn an_abandoned_change_holds_up_others_as_long_as_its_order_lives() {
    let all = Reservations::new();
    let (order, pending) = store(&all, 11);
    drop(pending);
    assert_eq!(all.lock_for_change().err(), Some(Unchangeable::Storing));
    drop(order);
    let (_order, pending) = store(&all, 12);
    assert!(pending.stored(true).is_some());
    assert_eq!(key_of_host(&all), Some(12));
}

#[test]
fn who_waits_for_storing_is_woken_once_when_it_has_ended() {
    let all = Reservations::new();
    let woken = Arc::new(AtomicUsize::new(0));
    let wait = || {
        let woken = Arc::clone(&woken);
        all.wait_for_store().then(move || {
            woken.fetch_add(1, Ordering::SeqCst);
        });
    };
    let count = || woken.load(Ordering::SeqCst);
    wait();
    assert_eq!(count(), 1, "nothing is being stored");
    let (order, pending) = store(&all, 11);
    wait();
    wait();
    assert_eq!(count(), 1);
    assert!(pending.stored(true).is_some());
    assert_eq!(count(), 3);
    drop(order);
    let (order, pending) = store(&all, 12);
    wait();
    drop(pending);
    assert_eq!(count(), 3, "the order is still being carried out");
    drop(order);
    assert_eq!(count(), 4);
}

#[test]
fn cleared_tasks_are_told_to_all_but_who_did_it() {
    let all = Reservations::new();
    let (one, two) = (Member::join(&all, host(1)), Member::join(&all, host(1)));
    tasks_cleared_by(&*one, &[one.as_participant(), two.as_participant()]);
    let cleared = |member: &Member| member.cleared.load(Ordering::SeqCst);
    assert_eq!((cleared(&one), cleared(&two)), (0, 1));
}

#[test]
fn damaged_bytes_change_nothing() {
    let all = Reservations::new();
    register(&all, &host(1), 11);
    all.restore(b"LSRESERV is not all there is to it")
        .unwrap_err();
    assert_eq!(key_of_host(&all), Some(11));
}

#[test]
fn gates_are_right_whoever_comes_goes_and_reserves_at_once() {
    let all = Reservations::new();
    let stays: Vec<_> = (0..4)
        .map(|number| Member::join(&all, host(number)))
        .collect();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let all = &all;
            scope.spawn(move || {
                for round in 0..200_usize {
                    let guest = Member::join(all, session(number));
                    let kind = ReservationType::ALL[round % 6];
                    change_now(all, |change| {
                        change.table.register(&host(number), 1).unwrap();
                        change.table.preempt_reservation(&host(number), kind);
                    });
                    all.leave(&*guest);
                    std::thread::yield_now();
                }
            });
        }
    });
    let locked = all.lock();
    let held = locked.table().reservation().unwrap();
    for member in stays {
        let relation = locked.table().relation(member.identity());
        for class in [Inspects, Reads, Changes] {
            let conflicts = conflict::conflicts(held.kind, relation, class);
            assert_eq!(member.may(class), !conflicts, "{class:?}");
        }
    }
    assert_eq!(locked.members().len(), 4);
}
