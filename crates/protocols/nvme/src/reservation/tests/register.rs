//! Reservation Register.

use super::*;

#[test]
fn a_host_registers_once_whatever_controller_it_uses() {
    let mut world = World::new();
    let (one, again) = (world.controller(1), world.controller(1));
    assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
    assert_eq!(world.register(&again, REGISTER, 0, 11), SUCCESS);
    assert_eq!(world.keys(), [11]);
    assert_eq!(world.report().generation, 2, "each success counts");
}

#[test]
fn registering_with_another_key_is_a_conflict() {
    let mut world = World::new();
    let one = world.controller(1);
    assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
    assert_eq!(world.register(&one, REGISTER, 11, 12), CONFLICT);
    assert_eq!(world.register(&one, REGISTER | IEKEY, 11, 12), CONFLICT);
    assert_eq!(world.keys(), [11]);
    assert_eq!(world.report().generation, 1);
}

#[test]
fn several_hosts_may_have_the_same_key() {
    let mut world = World::new();
    let hosts = world.hosts::<3>();
    for host in &hosts {
        assert_eq!(world.register(host, REGISTER, 99, 11), SUCCESS);
    }
    assert_eq!(world.keys(), [11; 3]);
}

#[test]
fn zero_is_no_key() {
    let mut world = World::new();
    let one = world.controller(1);
    assert_eq!(world.register(&one, REGISTER, 0, 0), INVALID_FIELD);
    assert_eq!(world.register(&one, REPLACE | IEKEY, 0, 0), INVALID_FIELD);
    assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
    assert_eq!(world.register(&one, REPLACE, 11, 0), INVALID_FIELD);
    assert_eq!(world.keys(), [11]);
}

#[test]
fn unregister_asks_for_the_key_unless_it_is_ignored() {
    let mut world = World::new();
    let one = world.controller(1);
    assert_eq!(world.register(&one, UNREGISTER, 0, 0), CONFLICT);
    assert_eq!(world.register(&one, UNREGISTER | IEKEY, 0, 0), CONFLICT);
    for (flags, key) in [(0, 11), (IEKEY, 99)] {
        assert_eq!(world.register(&one, REGISTER, 0, 11), SUCCESS);
        assert_eq!(world.register(&one, UNREGISTER, 99, 0), CONFLICT);
        assert_eq!(world.register(&one, UNREGISTER | flags, key, 0), SUCCESS);
        assert!(world.keys().is_empty());
    }
}

#[test]
fn replace_asks_for_the_key_unless_it_is_ignored() {
    let mut world = World::new();
    let (one, two) = (world.controller(1), world.controller(2));
    assert_eq!(world.register(&one, REPLACE, 0, 11), CONFLICT);
    assert_eq!(world.register(&one, REPLACE | IEKEY, 0, 11), SUCCESS);
    assert_eq!(world.register(&one, REPLACE, 99, 12), CONFLICT);
    assert_eq!(world.register(&one, REPLACE, 11, 12), SUCCESS);
    assert_eq!(world.register(&one, REPLACE | IEKEY, 99, 13), SUCCESS);
    assert_eq!(world.keys(), [13]);
    assert_eq!(world.register(&two, REPLACE, 13, 14), CONFLICT);
}

#[test]
fn a_holder_that_replaces_its_key_stays_the_holder() {
    let (mut world, [one, two]) = World::reserved::<2>(EXCLUSIVE_ACCESS);
    assert_eq!(world.register(&one, REPLACE, 11, 12), SUCCESS);
    assert!(one.may_write() && !two.may_read());
    assert_eq!(world.release(&one, RELEASE, EXCLUSIVE_ACCESS, 11), CONFLICT);
    assert_eq!(world.release(&one, RELEASE, EXCLUSIVE_ACCESS, 12), SUCCESS);
    assert!(two.may_read());
}

#[test]
fn a_holder_that_unregisters_gives_its_reservation_up() {
    for kind in ALL_TYPES {
        let (mut world, [one, two]) = World::reserved::<2>(kind);
        let three = world.controller(3);
        assert_eq!(world.register(&one, UNREGISTER, 11, 0), SUCCESS);
        let shared = kind >= WRITE_EXCLUSIVE_ALL_REGISTRANTS;
        assert_eq!(world.report().kind, if shared { kind } else { 0 });
        assert!(two.may_write());
        assert_eq!(one.may_write(), !shared, "type {kind}");
        assert_eq!(three.may_write(), !shared);
        // The last of all registrants takes it along.
        assert_eq!(world.register(&two, UNREGISTER, 22, 0), SUCCESS);
        assert_eq!(world.report().kind, 0);
        assert!(one.may_write() && three.may_write());
    }
}

#[test]
fn reserved_actions_and_states_are_invalid_fields() {
    let mut world = World::new();
    let one = world.controller(1);
    for action in 3..8 {
        assert_eq!(world.register(&one, action, 0, 11), INVALID_FIELD);
    }
    assert_eq!(world.register(&one, 1 << 30, 0, 11), INVALID_FIELD);
    assert!(world.keys().is_empty());
}

#[test]
fn too_little_data_is_refused() {
    let mut world = World::new();
    let one = world.controller(1);
    for (opcode, length) in [
        (io::RESERVATION_REGISTER, 16),
        (io::RESERVATION_ACQUIRE, 16),
        (io::RESERVATION_RELEASE, 8),
    ] {
        let entry = entry(opcode, 0x100);
        let command = world.begin(&one, &entry).unwrap();
        assert_eq!(command.data_length(), length);
        let short = vec![0; usize::try_from(length).unwrap() - 1];
        let status = world.run(&one, &entry, &short);
        assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
    }
}

#[test]
fn the_table_has_an_end() {
    let mut world = World::new();
    for number in 0..=255 {
        let host = world.controller(number);
        assert_eq!(world.register(&host, REGISTER, 0, 1), SUCCESS);
    }
    let mut identifier = host_identifier(9);
    let known = world.controller_of(identifier);
    assert_eq!(world.register(&known, REGISTER, 0, 1), SUCCESS);
    identifier[0] = 1;
    let fresh = world.controller_of(identifier);
    let refused = world.register(&fresh, REGISTER, 0, 1);
    assert_eq!(refused, Status::INTERNAL_ERROR);
    assert_eq!(world.keys().len(), 256);
}
