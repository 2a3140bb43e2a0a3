//! Who is told of what, and the log page that says so.

use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_block::reservation::NoticeEvent;

use super::*;

const REGISTRATION_PREEMPTED: u8 = 1;
const RESERVATION_RELEASED: u8 = 2;
const RESERVATION_PREEMPTED: u8 = 3;

fn told<const N: usize>(hosts: &[Controller; N]) -> [Vec<u8>; N] {
    hosts.each_ref().map(Controller::told)
}

/// Three registrants, the first of which holds a reservation, and a host that is not registered.
fn four(kind: u8) -> (World, [Controller; 4]) {
    let (world, [one, two, three]) = World::reserved::<3>(kind);
    let four = world.controller(4);
    (world, [one, two, three, four])
}

#[test]
fn release_tells_the_other_registrants_of_a_shared_reservation() {
    for kind in ALL_TYPES {
        let (mut world, hosts) = four(kind);
        assert_eq!(world.release(&hosts[0], RELEASE, kind, 11), SUCCESS);
        let shared = kind >= WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
        let others = if shared {
            vec![RESERVATION_RELEASED]
        } else {
            vec![]
        };
        assert_eq!(
            told(&hosts),
            [vec![], others.clone(), others, vec![]],
            "type {kind}"
        );
    }
}

#[test]
fn unregistering_the_holder_tells_the_others_of_a_registrants_only_type() {
    for kind in ALL_TYPES {
        let (mut world, hosts) = four(kind);
        assert_eq!(world.register(&hosts[0], UNREGISTER, 11, 0), SUCCESS);
        let only = [
            WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
            EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
        ];
        let others = if only.contains(&kind) {
            vec![RESERVATION_RELEASED]
        } else {
            vec![]
        };
        assert_eq!(
            told(&hosts),
            [vec![], others.clone(), others, vec![]],
            "type {kind}"
        );
    }
}

#[test]
fn clear_tells_the_other_registrants() {
    let (mut world, hosts) = four(WRITE_EXCLUSIVE);
    assert_eq!(world.release(&hosts[1], CLEAR, 0, 22), SUCCESS);
    let others = vec![RESERVATION_PREEMPTED];
    assert_eq!(told(&hosts), [others.clone(), vec![], others, vec![]]);
}

#[test]
fn preempt_tells_those_removed_and_of_a_new_type_the_rest() {
    for action in [PREEMPT, PREEMPT_AND_ABORT] {
        for (kind, rest) in [
            (EXCLUSIVE_ACCESS, vec![]),
            (WRITE_EXCLUSIVE, vec![RESERVATION_RELEASED]),
        ] {
            let (mut world, hosts) = four(EXCLUSIVE_ACCESS);
            assert_eq!(world.acquire(&hosts[1], action, kind, 22, 11), SUCCESS);
            let removed = vec![REGISTRATION_PREEMPTED];
            assert_eq!(told(&hosts), [removed, vec![], rest, vec![]]);
        }
    }
}

#[test]
fn every_controller_of_a_host_is_told() {
    let (mut world, [one, two]) = World::reserved::<2>(EXCLUSIVE_ACCESS);
    let again = world.controller(1);
    let gone = world.controller(1);
    gone.host.leave(&world.reservations);
    assert_eq!(world.acquire(&two, PREEMPT, 1, 22, 11), SUCCESS);
    assert_eq!(one.told(), [REGISTRATION_PREEMPTED]);
    assert_eq!(again.told(), [REGISTRATION_PREEMPTED]);
    assert!(gone.told().is_empty());
}

#[test]
fn what_is_masked_is_not_told() {
    let (mut world, [one, two]) = World::reserved::<2>(WRITE_EXCLUSIVE_REGISTRANTS_ONLY);
    let mask = NotificationMask::from_dword(1 << RESERVATION_RELEASED).unwrap();
    two.host.set_notification_mask(mask);
    assert_eq!(two.host.notification_mask().dword(), 4);
    let kind = WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
    assert_eq!(world.release(&one, RELEASE, kind, 11), SUCCESS);
    assert!(two.told().is_empty() && !two.log.take_event());
    assert_eq!(world.release(&one, CLEAR, 0, 11), SUCCESS);
    assert_eq!(two.told(), [RESERVATION_PREEMPTED]);
    for reserved in [1, 1 << 4, 1 << 31, u32::MAX] {
        assert_eq!(NotificationMask::from_dword(reserved), None);
    }
}

#[test]
fn log_pages_come_one_by_one_and_are_byte_exact() {
    let log = NotificationLog::new();
    assert_eq!(log.read(false), [0; 64]);
    log.add(NoticeEvent::RegistrationsPreempted, NamespaceId(0x0102));
    log.add(NoticeEvent::ReservationsReleased, NamespaceId(3));
    let mut first = [0; 64];
    first[0] = 1;
    first[8] = REGISTRATION_PREEMPTED;
    first[9] = 1;
    first[12..14].copy_from_slice(&[2, 1]);
    assert_eq!(log.read(true), first);
    assert_eq!(log.read(false), first);
    let second = log.read(false);
    assert_eq!((second[0], second[8], second[9], second[12]), (2, 2, 0, 3));
    assert!(log.is_empty());
    assert_eq!(log.read(false), [0; 64]);
}

#[test]
fn a_full_log_loses_the_oldest_and_the_count_tells() {
    let log = NotificationLog::new();
    for number in 1..=100 {
        log.add(NoticeEvent::ReservationsReleased, NamespaceId(number));
    }
    for number in 37..=100_u8 {
        let page = log.read(false);
        assert_eq!((page[0], page[9], page[12]), (number, 100 - number, number));
    }
    assert!(log.is_empty());
}

#[test]
fn news_are_told_once_and_wake_the_controller() {
    let log = NotificationLog::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    log.set_waker(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    assert!(!log.take_event());
    log.add(NoticeEvent::ReservationsReleased, NamespaceId(1));
    log.add(NoticeEvent::ReservationsReleased, NamespaceId(1));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert!(log.take_event() && !log.take_event());
    log.add(NoticeEvent::ReservationsReleased, NamespaceId(1));
    log.reset();
    assert!(!log.take_event() && log.is_empty());
    log.add(NoticeEvent::ReservationsReleased, NamespaceId(1));
    assert_eq!(log.read(false)[0], 1, "counts anew");
}
