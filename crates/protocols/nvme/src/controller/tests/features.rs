use super::*;
use crate::host::commands::{get_features, set_features};

fn get(scene: &Scene, controller: &Controller, feature: u8) -> Answer {
    let length = match feature {
        0x0e => 8,
        0x16 => 512,
        0x81 => 16,
        _ => return scene.send(controller, &get_features(feature)),
    };
    scene.send(
        controller,
        &get_features(feature).with(Transfer::ToHost(length)),
    )
}

fn set(scene: &Scene, controller: &Controller, feature: u8, value: u32) -> Answer {
    scene.send(controller, &set_features(feature, value))
}

/// Get Features with another SEL.
fn select(scene: &Scene, controller: &Controller, feature: u8, select: u32) -> u64 {
    let command = get_features(feature).dword(10, u32::from(feature) | select << 8);
    scene.send(controller, &command).result()
}

#[test]
fn features_that_are_only_read_have_their_values() {
    let scene = scene();
    let controller = scene.ready();
    for (feature, value) in [(0x01, 0), (0x06, 1)] {
        assert_eq!(get(&scene, &controller, feature).result(), value);
        let refused = set(&scene, &controller, feature, 0x10).failure().0;
        assert_eq!(refused, Status::FEATURE_NOT_CHANGEABLE);
    }
}

#[test]
fn a_volatile_write_cache_stays_on_and_may_be_set_so() {
    let scene = scene();
    let controller = scene.ready();
    set(&scene, &controller, 6, 1).result();
    assert_eq!(
        set(&scene, &controller, 6, 0).failure().0,
        Status::FEATURE_NOT_CHANGEABLE
    );
    let without = scene.enabled("guest", &nqn("shared"));
    assert_eq!(get(&scene, &without, 6).failure().0, Status::INVALID_FIELD);
}

#[test]
fn the_number_of_queues_is_negotiated_down_to_the_limit() {
    let scene = scene();
    let controller = scene.ready();
    for (wanted, granted) in [
        (0x0003_0003, 0x0003_0003),
        (0x0003_0001, 0x0001_0001),
        (0x0000_0000, 0x0000_0000),
        (0x00ff_00ff, 0x003f_003f),
        (0xfffe_fffe, 0x003f_003f),
    ] {
        assert_eq!(set(&scene, &controller, 7, wanted).result(), granted);
        assert_eq!(get(&scene, &controller, 7).result(), granted);
    }
    for wanted in [0xffff_0001, 0x0001_ffff] {
        let refused = set(&scene, &controller, 7, wanted).failure().0;
        assert_eq!(refused, Status::INVALID_FIELD);
    }
    scene.io_queue(&controller, 1).unwrap();
    assert_eq!(
        set(&scene, &controller, 7, 0).failure().0,
        Status::COMMAND_SEQUENCE_ERROR
    );
}

#[test]
fn a_limit_of_recovery_is_remembered() {
    let scene = scene();
    let controller = scene.ready();
    assert_eq!(get(&scene, &controller, 5).result(), 0);
    set(&scene, &controller, 5, 30).result();
    assert_eq!(get(&scene, &controller, 5).result(), 30);
    // DULBE.
    assert_eq!(
        set(&scene, &controller, 5, 1 << 16).failure().0,
        Status::INVALID_FIELD
    );
}

#[test]
fn power_state_0_is_the_only_one() {
    let scene = scene();
    let controller = scene.ready();
    set(&scene, &controller, 2, 0x20).result();
    assert_eq!(
        set(&scene, &controller, 2, 1).failure().0,
        Status::INVALID_FIELD
    );
    assert_eq!(get(&scene, &controller, 2).result(), 0);
}

#[test]
fn both_temperature_thresholds_are_remembered() {
    let scene = scene();
    let controller = scene.ready();
    assert_eq!(get(&scene, &controller, 4).result(), 0xffff);
    set(&scene, &controller, 4, 350).result();
    set(&scene, &controller, 4, 1 << 20 | 0xf << 16 | 250).result();
    assert_eq!(get(&scene, &controller, 4).result(), 350);
    let under = get_features(4).dword(11, 1 << 20);
    assert_eq!(scene.send(&controller, &under).result(), 250);
    for other in [3 << 16, 2 << 20] {
        assert_eq!(
            set(&scene, &controller, 4, other).failure().0,
            Status::INVALID_FIELD
        );
    }
    assert_eq!(select(&scene, &controller, 4, 1), 0xffff);
}

#[test]
fn a_timestamp_goes_on_from_where_it_was_set() {
    let mut scene = scene();
    let controller = scene.ready();
    scene.now_ms += 250;
    let data = get(&scene, &controller, 0x0e).data();
    assert_eq!(data, [250, 0, 0, 0, 0, 0, 0, 0], "since the reset");
    let command = set_features(0x0e, 0).with(Transfer::ToController(8));
    let value = 0x0000_0198_1234_5678_u64.to_le_bytes();
    scene.send_data(&controller, &command, &value).result();
    scene.now_ms += 2;
    let data = get(&scene, &controller, 0x0e).data();
    assert_eq!(data, [0x7a, 0x56, 0x34, 0x12, 0x98, 0x01, 0b10, 0]);
    let short = scene.send_data(&controller, &command, &value[..7]);
    assert_eq!(short.failure().0, Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn a_keep_alive_timeout_is_rounded_up_to_the_granularity() {
    let scene = scene();
    let controller = scene.ready();
    assert_eq!(get(&scene, &controller, 0x0f).result(), 10_000);
    set(&scene, &controller, 0x0f, 4_901).result();
    assert_eq!(get(&scene, &controller, 0x0f).result(), 5_000);
    for timeout in [0, 600_001] {
        assert_eq!(
            set(&scene, &controller, 0x0f, timeout).failure().0,
            Status::KEEP_ALIVE_TIMEOUT_INVALID
        );
    }
    assert_eq!(controller.next_deadline_ms(), Some(5_000 + 2_500));
}

#[test]
fn hosts_that_take_retry_delays_are_known() {
    let scene = scene();
    let controller = scene.ready();
    let command = set_features(0x16, 0).with(Transfer::ToController(512));
    let mut behavior = [0; 512];
    behavior[0] = 1;
    scene.send_data(&controller, &command, &behavior).result();
    assert!(controller.has_advanced_retry());
    assert_eq!(get(&scene, &controller, 0x16).data(), behavior);
    // Extended LBA formats, and a value that is none.
    for (at, value) in [(2, 1), (0, 2)] {
        let mut behavior = [0; 512];
        behavior[at] = value;
        let answer = scene.send_data(&controller, &command, &behavior);
        assert_eq!(answer.failure().0, Status::INVALID_FIELD);
    }
    scene.set_cc(&controller, 0);
    assert!(!controller.has_advanced_retry());
}

#[test]
fn a_host_identifier_has_128_bits_and_is_that_of_connect() {
    let scene = scene();
    let controller = scene.ready();
    assert_eq!(
        get(&scene, &controller, 0x81).failure().0,
        Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT
    );
    let extended = get_features(0x81).dword(11, 1).with(Transfer::ToHost(16));
    let data = scene.send(&controller, &extended).data();
    assert_eq!(data, controller.host_identifier());
    assert_eq!(
        set(&scene, &controller, 0x81, 1).failure().0,
        Status::COMMAND_SEQUENCE_ERROR
    );
}

#[test]
fn reservation_notifications_are_masked_for_each_namespace() {
    let scene = scene();
    let controller = scene.ready();
    let at = |command: Command, id: u32| {
        let mut command = command;
        command.entry.0[4..8].copy_from_slice(&id.to_le_bytes());
        scene.send(&controller, &command)
    };
    at(set_features(0x82, 0b1010), 3).result();
    assert_eq!(at(get_features(0x82), 3).result(), 0b1010);
    assert_eq!(at(get_features(0x82), 1).result(), 0);
    at(set_features(0x82, 0b0100), u32::MAX).result();
    assert_eq!(at(get_features(0x82), 1).result(), 0b0100);
    assert_eq!(at(get_features(0x82), 3).result(), 0b0100);
    for (id, status) in [
        (0, Status::INVALID_NAMESPACE_OR_FORMAT),
        (2, Status::INVALID_FIELD),
        (16_385, Status::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        assert_eq!(at(set_features(0x82, 0), id).failure().0, status);
        assert_eq!(at(get_features(0x82), id).failure().0, status);
    }
    assert_eq!(
        at(set_features(0x82, 1), 1).failure().0,
        Status::INVALID_FIELD
    );
    assert_eq!(at(get_features(0x83), 1).result(), 0);
    assert_eq!(
        at(set_features(0x83, 1), 1).failure().0,
        Status::FEATURE_NOT_CHANGEABLE
    );
}

#[test]
fn nothing_is_saved() {
    let scene = scene();
    let controller = scene.ready();
    let save = set_features(0x0b, 0).dword(10, 0x0b | 1 << 31);
    assert_eq!(
        scene.send(&controller, &save).failure().0,
        Status::FEATURE_NOT_SAVEABLE
    );
}

#[test]
fn features_of_a_controller_are_not_set_for_a_namespace() {
    let scene = scene();
    let controller = scene.ready();
    let mut command = set_features(0x0b, 0);
    command.entry.0[4] = 1;
    assert_eq!(
        scene.send(&controller, &command).failure().0,
        Status::FEATURE_NOT_NAMESPACE_SPECIFIC
    );
}

#[test]
fn defaults_and_abilities_can_be_asked_for() {
    let scene = scene();
    let controller = scene.ready();
    set(&scene, &controller, 0x0b, 0).result();
    set(&scene, &controller, 7, 0).result();
    for default in [1, 2] {
        assert_eq!(select(&scene, &controller, 0x0b, default), 0x900);
        assert_eq!(select(&scene, &controller, 7, default), 0x003f_003f);
        assert_eq!(select(&scene, &controller, 0x0f, default), 0);
    }
    const CHANGEABLE: u64 = 4;
    const OF_NAMESPACE: u64 = 2;
    for (feature, abilities) in [
        (0x01, 0),
        (0x07, CHANGEABLE),
        (0x0e, CHANGEABLE),
        (0x81, 0),
        (0x82, CHANGEABLE | OF_NAMESPACE),
        (0x83, OF_NAMESPACE),
    ] {
        assert_eq!(select(&scene, &controller, feature, 3), abilities);
    }
    let reserved = get_features(7).dword(10, 7 | 4 << 8);
    assert_eq!(
        scene.send(&controller, &reserved).failure().0,
        Status::INVALID_FIELD
    );
}

#[test]
fn one_combination_of_command_sets_can_be_chosen() {
    let scene = scene();
    let controller = scene.ready();
    set(&scene, &controller, 0x19, 0).result();
    assert_eq!(
        set(&scene, &controller, 0x19, 1).failure().0,
        Status::COMMAND_SET_COMBINATION_REJECTED
    );
}

#[test]
fn unknown_features_are_an_invalid_field() {
    let scene = scene();
    let controller = scene.ready();
    let discovery = scene.enabled("host", &discovery());
    for (controller, feature) in [
        (&controller, 0x00),
        (&controller, 0x03),
        (&controller, 0x08),
        (&controller, 0xff),
        (&discovery, 0x07),
        (&discovery, 0x81),
    ] {
        for answer in [
            get(&scene, controller, feature),
            set(&scene, controller, feature, 0),
        ] {
            assert_eq!(answer.failure().0, Status::INVALID_FIELD);
        }
    }
}
