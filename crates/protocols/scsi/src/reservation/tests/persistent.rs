//! PERSISTENT RESERVE IN and OUT, service action by service action.

use super::*;
use crate::reservation::transport_id::encode_initiator_port;

const INVALID_PARAMETER: ReservationOutcome =
    ReservationOutcome::Check(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
const INVALID_CDB: ReservationOutcome =
    ReservationOutcome::Check(AdditionalSense::INVALID_FIELD_IN_CDB);
const WRONG_LENGTH: ReservationOutcome =
    ReservationOutcome::Check(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

fn transport_id(host: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let port = port(host, 1);
    encode_initiator_port(&port.initiator_name, port.isid, &mut bytes);
    bytes
}

/// TransportID format 00b: all ports of the host.
fn device_transport_id(host: u8) -> Vec<u8> {
    let mut name = port(host, 1).initiator_name.into_bytes();
    name.resize((name.len() + 1).next_multiple_of(4).max(20), 0);
    let mut bytes = vec![0x05, 0, 0, u8::try_from(name.len()).unwrap()];
    bytes.extend(name);
    bytes
}

fn with_transport_ids(mut list: Vec<u8>, ids: &[Vec<u8>]) -> Vec<u8> {
    let ids = ids.concat();
    list.extend_from_slice(&u32::try_from(ids.len()).unwrap().to_be_bytes());
    list.extend(ids);
    list
}

fn move_list(key: u64, new_key: u64, flags: u8, target_port: u16, id: &[u8]) -> Vec<u8> {
    let mut list = list(key, new_key, 0);
    list[17] = flags;
    list[18..20].copy_from_slice(&target_port.to_be_bytes());
    list[20..24].copy_from_slice(&u32::try_from(id.len()).unwrap().to_be_bytes());
    list.extend_from_slice(id);
    list
}

#[test]
fn register_follows_its_table() {
    let mut world = World::new();
    let one = world.host(1);
    assert_eq!(
        world.out(&one, REGISTER, 0, 7, 11),
        ReservationOutcome::Conflict,
        "not registered, has key"
    );
    assert_eq!(
        world.out(&one, REGISTER, 0, 0, 0),
        ReservationOutcome::Good,
        "nothing to do"
    );
    assert_eq!(world.generation(&one), 0);
    assert_eq!(
        world.out(&one, REGISTER, 0, 0, 11),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [11]);
    assert_eq!(
        world.out(&one, REGISTER, 0, 0, 12),
        ReservationOutcome::Conflict,
        "wrong key"
    );
    assert_eq!(
        world.out(&one, REGISTER, 0, 12, 12),
        ReservationOutcome::Conflict,
        "wrong key"
    );
    assert_eq!(
        world.out(&one, REGISTER, 0, 11, 12),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [12]);
    assert_eq!(
        world.out(&one, REGISTER, 0, 12, 0),
        ReservationOutcome::Good
    );
    assert!(world.keys(&one).is_empty());
    assert_eq!(world.generation(&one), 3);
}

#[test]
fn register_and_ignore_existing_key_needs_no_key() {
    let mut world = World::new();
    let one = world.host(1);
    assert_eq!(
        world.out(&one, REGISTER_AND_IGNORE, 0, 99, 0),
        ReservationOutcome::Good,
        "nothing to do"
    );
    assert_eq!(world.generation(&one), 0);
    assert_eq!(
        world.out(&one, REGISTER_AND_IGNORE, 0, 99, 11),
        ReservationOutcome::Good
    );
    assert_eq!(
        world.out(&one, REGISTER_AND_IGNORE, 0, 98, 12),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [12]);
    assert_eq!(
        world.out(&one, REGISTER_AND_IGNORE, 0, 97, 0),
        ReservationOutcome::Good
    );
    assert!(world.keys(&one).is_empty());
}

#[test]
fn registration_ignores_scope_and_type() {
    let mut world = World::new();
    let one = world.host(1);
    for action in [REGISTER, REGISTER_AND_IGNORE] {
        assert_eq!(
            world.out(&one, action, 0xff, 0, 11),
            ReservationOutcome::Good
        );
        assert_eq!(
            world.out(&one, action, 0xff, 11, 0),
            ReservationOutcome::Good
        );
    }
}

#[test]
fn reserve_takes_every_type_and_no_other() {
    let mut world = World::new();
    let one = world.host(1);
    assert_eq!(
        world.out(&one, RESERVE, 1, 0, 0),
        ReservationOutcome::Conflict,
        "not registered"
    );
    world.register(&one, 11);
    assert_eq!(
        world.out(&one, RESERVE, 1, 12, 0),
        ReservationOutcome::Conflict,
        "wrong key"
    );
    for code in 0..16 {
        if ALL_TYPES.contains(&code) {
            world.reserve(&one, 11, code);
            let key = if code < WRITE_EXCLUSIVE_ALL_REGISTRANTS {
                11
            } else {
                0
            };
            assert_eq!(world.reservation(&one), Some((key, code)));
            assert_eq!(
                world.out(&one, RELEASE, code, 11, 0),
                ReservationOutcome::Good
            );
            assert_eq!(world.reservation(&one), None);
        } else {
            assert_eq!(
                world.out(&one, RESERVE, code, 11, 0),
                INVALID_CDB,
                "type {code}"
            );
        }
    }
    assert_eq!(world.out(&one, RESERVE, 0x11, 11, 0), INVALID_CDB, "scope");
    assert_eq!(
        world.generation(&one),
        1,
        "RESERVE and RELEASE do not count"
    );
}

#[test]
fn reserve_again_is_for_the_holder_with_the_same_type() {
    for kind in ALL_TYPES {
        let mut world = World::new();
        let (one, two) = (world.host(1), world.host(2));
        world.register(&one, 11);
        world.register(&two, 22);
        world.reserve(&one, 11, kind);
        for again in ALL_TYPES {
            let expected = if again == kind {
                ReservationOutcome::Good
            } else {
                ReservationOutcome::Conflict
            };
            assert_eq!(world.out(&one, RESERVE, again, 11, 0), expected);
        }
        let all = kind >= WRITE_EXCLUSIVE_ALL_REGISTRANTS;
        let expected = if all {
            ReservationOutcome::Good
        } else {
            ReservationOutcome::Conflict
        };
        assert_eq!(
            world.out(&two, RESERVE, kind, 22, 0),
            expected,
            "type {kind}"
        );
    }
}

#[test]
fn release_is_for_holders_and_names_the_type() {
    let invalid =
        ReservationOutcome::Check(AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION);
    for kind in ALL_TYPES {
        let mut world = World::new();
        let (one, two) = (world.host(1), world.host(2));
        world.register(&one, 11);
        assert_eq!(
            world.out(&one, RELEASE, kind, 11, 0),
            ReservationOutcome::Good,
            "nothing is reserved"
        );
        world.register(&two, 22);
        world.reserve(&one, 11, kind);
        assert_eq!(
            world.out(&one, RELEASE, kind, 12, 0),
            ReservationOutcome::Conflict,
            "wrong key"
        );
        for other in ALL_TYPES.into_iter().filter(|other| *other != kind) {
            assert!(
                world.out(&one, RELEASE, other, 11, 0) == invalid,
                "type {other} not {kind}"
            );
        }
        assert!(
            world.out(&one, RELEASE, 0x10 | kind, 11, 0) == invalid,
            "scope"
        );
        assert_eq!(
            world.out(&two, RELEASE, kind, 22, 0),
            ReservationOutcome::Good
        );
        attentions(&one);
        let kept = kind < WRITE_EXCLUSIVE_ALL_REGISTRANTS;
        assert_eq!(
            world.reservation(&one).is_some(),
            kept,
            "by a registrant, type {kind}"
        );
    }
}

#[test]
fn unregistering_the_holder_releases_what_it_held_alone() {
    for kind in ALL_TYPES {
        let mut world = World::new();
        let (one, two) = (world.host(1), world.host(2));
        world.register(&one, 11);
        world.register(&two, 22);
        world.reserve(&one, 11, kind);
        assert_eq!(
            world.out(&one, REGISTER, 0, 11, 0),
            ReservationOutcome::Good
        );
        attentions(&two);
        let shared = kind >= WRITE_EXCLUSIVE_ALL_REGISTRANTS;
        assert_eq!(world.reservation(&two).is_some(), shared, "type {kind}");
        assert_eq!(
            world.out(&two, REGISTER, 0, 22, 0),
            ReservationOutcome::Good
        );
        assert_eq!(world.reservation(&two), None, "no registrant is left");
    }
}

#[test]
fn clear_removes_everything_and_counts_once() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    world.register(&one, 11);
    world.register(&two, 22);
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    let before = world.generation(&one);
    assert_eq!(
        world.out(&two, CLEAR, 0, 11, 0),
        ReservationOutcome::Conflict,
        "wrong key"
    );
    assert_eq!(
        world.out(&two, CLEAR, 0, 22, 0),
        ReservationOutcome::Good,
        "by any registrant"
    );
    attentions(&one);
    assert!(world.keys(&one).is_empty());
    assert_eq!(world.reservation(&one), None);
    assert_eq!(world.generation(&one), before + 1);
}

#[test]
fn preempt_of_registrations_leaves_the_reservation() {
    let mut world = World::new();
    let [one, two, three, four] = [1, 2, 3, 4].map(|number| world.host(number));
    world.register(&one, 11);
    world.register(&two, 22);
    world.register(&three, 22);
    assert_eq!(
        world.out(&four, PREEMPT, 1, 0, 22),
        ReservationOutcome::Conflict,
        "not registered"
    );
    assert_eq!(
        world.out(&one, PREEMPT, 1, 11, 33),
        ReservationOutcome::Conflict,
        "nobody has that key"
    );
    assert_eq!(
        world.out(&one, PREEMPT, 1, 11, 0),
        INVALID_PARAMETER,
        "no key"
    );
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    let before = world.generation(&one);
    // The type has no meaning here.
    assert_eq!(
        world.out(&one, PREEMPT, 0xff, 11, 22),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [11]);
    assert_eq!(world.reservation(&one), Some((11, EXCLUSIVE_ACCESS)));
    assert_eq!(world.generation(&one), before + 1);
}

#[test]
fn preempt_of_the_holder_takes_the_reservation_over() {
    let mut world = World::new();
    let [one, two, three] = [1, 2, 3].map(|number| world.host(number));
    world.register(&one, 11);
    world.register(&two, 22);
    world.register(&three, 33);
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    assert_eq!(world.out(&two, PREEMPT, 2, 22, 11), INVALID_CDB, "type");
    assert_eq!(
        world.out(&two, PREEMPT, WRITE_EXCLUSIVE, 22, 11),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&two), [22, 33]);
    assert_eq!(world.reservation(&two), Some((22, WRITE_EXCLUSIVE)));
    assert_eq!(world.write(&two), ReservationOutcome::Good);
    attentions(&one);
    assert_eq!(world.write(&one), ReservationOutcome::Conflict);
}

#[test]
fn preempting_oneself_changes_the_type() {
    let mut world = World::new();
    let one = world.host(1);
    world.register(&one, 11);
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    assert_eq!(
        world.out(&one, PREEMPT, WRITE_EXCLUSIVE, 11, 11),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [11]);
    assert_eq!(world.reservation(&one), Some((11, WRITE_EXCLUSIVE)));
}

#[test]
fn preempt_of_all_registrants_is_by_key_zero() {
    let mut world = World::new();
    let [one, two, three] = [1, 2, 3].map(|number| world.host(number));
    world.register(&one, 11);
    world.register(&two, 22);
    world.register(&three, 33);
    world.reserve(&one, 11, WRITE_EXCLUSIVE_ALL_REGISTRANTS);
    assert_eq!(
        world.out(&two, PREEMPT, EXCLUSIVE_ACCESS, 22, 33),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&two), [11, 22], "one registration is gone");
    assert_eq!(
        world.reservation(&two),
        Some((0, WRITE_EXCLUSIVE_ALL_REGISTRANTS))
    );
    assert_eq!(
        world.out(&two, PREEMPT, EXCLUSIVE_ACCESS, 22, 0),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&two), [22]);
    assert_eq!(world.reservation(&two), Some((22, EXCLUSIVE_ACCESS)));
}

#[test]
fn preempt_and_abort_aborts_the_tasks_of_those_removed() {
    let mut world = World::new();
    let [one, two, three] = [1, 2, 3].map(|number| world.host(number));
    world.register(&one, 11);
    world.register(&two, 22);
    world.register(&three, 11);
    world.reserve(&one, 11, EXCLUSIVE_ACCESS);
    assert_eq!(
        world.out(&two, PREEMPT_AND_ABORT, EXCLUSIVE_ACCESS, 22, 11),
        ReservationOutcome::Good
    );
    assert_eq!(world.aborted.len(), 2);
    let lost = |index: usize, nexus: &Nexus| is_same_participant(&*world.aborted[index], nexus);
    assert!(lost(0, &one) && lost(1, &three));
    assert_eq!(world.reservation(&two), Some((22, EXCLUSIVE_ACCESS)));
}

#[test]
fn register_and_move_hands_the_reservation_over() {
    for unregister in [false, true] {
        let mut world = World::new();
        let (one, two) = (world.host(1), world.host(2));
        world.register(&one, 11);
        world.reserve(&one, 11, WRITE_EXCLUSIVE);
        let list = move_list(11, 22, if unregister { 2 } else { 0 }, 1, &transport_id(2));
        assert_eq!(
            world.out_with(&one, REGISTER_AND_MOVE, 0, &list),
            ReservationOutcome::Good
        );
        assert_eq!(world.reservation(&two), Some((22, WRITE_EXCLUSIVE)));
        let keys = if unregister { vec![22] } else { vec![11, 22] };
        assert_eq!(world.keys(&two), keys);
        assert_eq!(world.write(&two), ReservationOutcome::Good);
        assert_eq!(world.write(&one), ReservationOutcome::Conflict);
        assert_eq!(world.generation(&one), 2);
    }
}

#[test]
fn register_and_move_is_for_the_sole_holder() {
    let mut world = World::new();
    let (one, two) = (world.host(1), world.host(2));
    let list = |key, new_key| move_list(key, new_key, 0, 1, &transport_id(2));
    let moves = |nexus: &Arc<Nexus>, world: &mut World, key, new_key| {
        world.out_with(nexus, REGISTER_AND_MOVE, 0, &list(key, new_key))
    };
    assert_eq!(
        moves(&one, &mut world, 11, 22),
        ReservationOutcome::Conflict,
        "not registered"
    );
    world.register(&one, 11);
    assert_eq!(
        moves(&one, &mut world, 11, 22),
        ReservationOutcome::Conflict,
        "nothing is reserved"
    );
    world.reserve(&one, 11, WRITE_EXCLUSIVE_ALL_REGISTRANTS);
    assert_eq!(
        moves(&one, &mut world, 11, 22),
        ReservationOutcome::Conflict,
        "all registrants hold it"
    );
    assert_eq!(
        world.out(&one, PREEMPT, WRITE_EXCLUSIVE, 11, 0),
        ReservationOutcome::Good
    );
    assert_eq!(
        moves(&one, &mut world, 12, 22),
        ReservationOutcome::Conflict,
        "wrong key"
    );
    assert_eq!(
        moves(&one, &mut world, 11, 0),
        INVALID_PARAMETER,
        "no new key"
    );
    world.register(&two, 22);
    assert_eq!(
        moves(&two, &mut world, 22, 33),
        ReservationOutcome::Conflict,
        "not the holder"
    );
}

#[test]
fn register_and_move_names_one_existing_port_that_is_not_its_own() {
    let mut world = World::new();
    let one = world.host(1);
    world.register(&one, 11);
    world.reserve(&one, 11, WRITE_EXCLUSIVE);
    let mut moves = |target_port, id: &[u8]| {
        let list = move_list(11, 22, 0, target_port, id);
        world.out_with(&one, REGISTER_AND_MOVE, 0, &list)
    };
    assert_eq!(
        moves(9, &transport_id(2)),
        INVALID_PARAMETER,
        "no such target port"
    );
    assert_eq!(moves(1, &transport_id(1)), INVALID_PARAMETER, "to itself");
    assert_eq!(
        moves(1, &device_transport_id(2)),
        INVALID_PARAMETER,
        "which of its ports?"
    );
    let mut two_ids = transport_id(2);
    two_ids.extend(transport_id(3));
    assert_eq!(moves(1, &two_ids), INVALID_PARAMETER, "two TransportIDs");
    assert_eq!(moves(1, &[]), INVALID_PARAMETER, "no TransportID");
    let mut short = move_list(11, 22, 0, 1, &transport_id(2));
    short.pop();
    assert_eq!(
        world.out_with(&one, REGISTER_AND_MOVE, 0, &short),
        WRONG_LENGTH
    );
    let _two = world.host(2);
    let list = move_list(11, 22, 0, 1, &device_transport_id(2));
    assert_eq!(
        world.out_with(&one, REGISTER_AND_MOVE, 0, &list),
        ReservationOutcome::Good,
        "now it is known"
    );
}

#[test]
fn specified_initiator_ports_are_registered_with_the_same_key() {
    let mut world = World::new();
    let one = world.host(1);
    let ids = [transport_id(2), transport_id(3)];
    let spec = |key, new_key| with_transport_ids(list(key, new_key, SPEC_I_PT), &ids);
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &spec(0, 0)),
        INVALID_PARAMETER,
        "no key"
    );
    assert_eq!(
        world.out_with(&one, REGISTER_AND_IGNORE, 0, &spec(0, 7)),
        INVALID_PARAMETER
    );
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &spec(0, 7)),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [7, 7, 7]);
    assert_eq!(world.generation(&one), 1);
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &spec(7, 8)),
        INVALID_PARAMETER,
        "is registered"
    );
    let two = world.host(2);
    world.reserve(&two, 7, EXCLUSIVE_ACCESS);
    let four = world.host(4);
    let again = with_transport_ids(list(0, 9, SPEC_I_PT), &[transport_id(3)]);
    assert_eq!(
        world.out_with(&four, REGISTER, 0, &again),
        INVALID_PARAMETER,
        "port is registered"
    );
    assert_eq!(world.keys(&one), [7, 7, 7], "and nothing was registered");
}

#[test]
fn a_specified_device_stands_for_its_known_ports() {
    let mut world = World::new();
    let one = world.host(1);
    let list = with_transport_ids(list(0, 7, SPEC_I_PT), &[device_transport_id(2)]);
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &list),
        INVALID_PARAMETER,
        "not known"
    );
    let two = world.host(2);
    let second_port = NexusPort {
        isid: [0x80, 0, 0, 0, 9, 9],
        ..port(2, 1)
    };
    let two_again = world.unit.attach(second_port);
    attentions(&two_again);
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &list),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [7, 7, 7]);
    for nexus in [&two, &two_again] {
        assert_eq!(
            world.out(nexus, REGISTER, 0, 7, 0),
            ReservationOutcome::Good
        );
    }
}

#[test]
fn all_target_ports_registers_on_each() {
    let mut world = World::new();
    world.unit.set_target_ports(&[1, 2, 3]);
    let (one, one_on_2) = (world.host_on(1, 1), world.host_on(1, 2));
    let all = |key, new_key| list(key, new_key, ALL_TG_PT);
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &all(0, 7)),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [7, 7, 7]);
    assert_eq!(
        world.out(&one_on_2, REGISTER, 0, 7, 8),
        ReservationOutcome::Good,
        "each has its own key"
    );
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &all(7, 9)),
        ReservationOutcome::Conflict,
        "8 is not 7"
    );
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &all(7, 0)),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [8], "only those with the key given");
    assert_eq!(
        world.out_with(&one, REGISTER_AND_IGNORE, 0, &all(0, 5)),
        ReservationOutcome::Good
    );
    assert_eq!(world.keys(&one), [5, 5, 5]);
    assert_eq!(
        world.out_with(&one, REGISTER_AND_IGNORE, 0, &all(0, 0)),
        ReservationOutcome::Good
    );
    assert!(world.keys(&one).is_empty());
}

#[test]
fn parameter_lists_of_wrong_length_are_refused() {
    let mut world = World::new();
    let one = world.host(1);
    for length in [0, 8, 23, 25, 28, 48] {
        let mut list = list(0, 7, 0);
        list.resize(length, 0);
        assert_eq!(
            world.out_with(&one, REGISTER, 0, &list),
            WRONG_LENGTH,
            "{length} bytes"
        );
    }
    let too_long = out_cdb(REGISTER, 0, 8193);
    assert_eq!(world.run(&one, &too_long, &[]).0, WRONG_LENGTH);
    // The initiator announced less than the CDB says.
    assert_eq!(
        world
            .run(&one, &out_cdb(REGISTER, 0, 24), &list(0, 7, 0)[..20])
            .0,
        WRONG_LENGTH
    );
    let mut ids = with_transport_ids(list(0, 7, SPEC_I_PT), &[transport_id(2)]);
    ids.pop();
    assert_eq!(world.out_with(&one, REGISTER, 0, &ids), WRONG_LENGTH);
    assert!(world.keys(&one).is_empty());
}

#[test]
fn service_actions_that_do_not_exist_are_refused() {
    let mut world = World::new();
    let one = world.host(1);
    for action in 8..0x20 {
        assert_eq!(world.out_with(&one, action, 0, &list(0, 7, 0)), INVALID_CDB);
    }
    for action in 4..0x20 {
        assert_eq!(world.send(&one, &in_cdb(action)), INVALID_CDB);
    }
}

#[test]
fn registrations_are_limited_in_number() {
    let mut world = World::new();
    let one = world.host(1);
    for isid in 0..=crate::reservation::table::MAX_REGISTRATIONS {
        let [.., high, low] = isid.to_be_bytes();
        let nexus = world.unit.attach(NexusPort {
            isid: [0, 0, 0, 0, high, low],
            ..port(9, 1)
        });
        attentions(&nexus);
        let outcome = world.out(&nexus, REGISTER, 0, 0, 7);
        if isid < crate::reservation::table::MAX_REGISTRATIONS {
            assert_eq!(outcome, ReservationOutcome::Good);
        } else {
            let full = AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES;
            assert_eq!(outcome, ReservationOutcome::Check(full));
        }
        world.unit.detach(&nexus);
    }
    assert_eq!(world.keys(&one).len(), 256);
    assert!(world.read_in(&one, READ_FULL_STATUS).len() > 256 * 24);
}

#[test]
fn capabilities_are_byte_exact() {
    let mut world = World::new();
    let one = world.host(1);
    assert_eq!(
        world.read_in(&one, REPORT_CAPABILITIES),
        [0, 8, 0x1d, 0x90, 0xea, 0x01, 0, 0]
    );
    assert_eq!(
        world.out_with(&one, REGISTER, 0, &list(0, 7, APTPL)),
        ReservationOutcome::Good
    );
    assert_eq!(
        world.read_in(&one, REPORT_CAPABILITIES),
        [0, 8, 0x1d, 0x91, 0xea, 0x01, 0, 0]
    );
    let no_store = LogicalUnitConfig {
        persistent_reservations_store: false,
        ..config()
    };
    let mut world = World::with_config(no_store);
    let one = world.host(1);
    assert_eq!(
        world.read_in(&one, REPORT_CAPABILITIES),
        [0, 8, 0x1c, 0x90, 0xea, 0x01, 0, 0]
    );
}

#[test]
fn full_status_names_registrants_and_holder() {
    let mut world = World::new();
    let (one, two) = (world.host_on(1, 1), world.host_on(2, 3));
    world.register(&one, 11);
    world.register(&two, 22);
    world.reserve(&two, 22, EXCLUSIVE_ACCESS);
    let data = world.read_in(&one, READ_FULL_STATUS);
    assert_eq!(be32(&data[4..8]) as usize, data.len() - 8);
    let id = transport_id(1);
    let (first, second) = data[8..].split_at(24 + id.len());
    assert_eq!(be64(&first[..8]), 11);
    assert_eq!((first[12], first[13]), (0, 0));
    assert_eq!(
        first[18..24],
        [0, 1, 0, 0, 0, u8::try_from(id.len()).unwrap()]
    );
    assert_eq!(first[24..], id);
    assert_eq!(be64(&second[..8]), 22);
    assert_eq!((second[12], second[13]), (1, EXCLUSIVE_ACCESS));
    assert_eq!(second[18..20], [0, 3]);
    assert_eq!(second[24..], transport_id(2));
}

#[test]
fn lists_say_their_whole_length_when_they_are_cut() {
    let mut world = World::new();
    let one = world.host(1);
    world.register(&one, 11);
    let mut cdb = in_cdb(READ_KEYS);
    cdb[7..9].copy_from_slice(&[0, 8]);
    let (outcome, data) = world.run(&one, &cdb, &[]);
    assert_eq!(outcome, ReservationOutcome::Good);
    assert_eq!(data, [0, 0, 0, 1, 0, 0, 0, 8]);
}
