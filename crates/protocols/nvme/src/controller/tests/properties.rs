use super::*;

const READY: u64 = 1;
const FAILED: u64 = 2;
const SHUTTING_DOWN: u64 = 1 << 2;
const SHUT_DOWN: u64 = 2 << 2;
const NORMAL: u32 = 1 << 14;
const ABRUPT: u32 = 2 << 14;

fn get(scene: &Scene, controller: &Controller, offset: u32, wide: bool) -> Answer {
    scene.send(controller, &property_get(Property { offset, wide }))
}

#[test]
fn capabilities_say_what_a_host_needs_to_enable_the_controller() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    let cap = get(&scene, &controller, 0, true).result();
    assert_eq!(cap & 0xffff, 127, "MQES");
    assert_eq!(cap >> 16 & 1, 1, "CQR");
    assert_ne!(cap >> 24 & 0xff, 0, "TO");
    assert_eq!(cap >> 37 & 0xff, 0b100_0001, "CSS");
    assert_eq!(cap >> 48 & 0xff, 0, "MPSMIN, MPSMAX");
    assert_eq!(cap >> 59, 1, "CRMS");
    assert_eq!(get(&scene, &controller, 8, false).result(), 0x0002_0000);
    assert_eq!(get(&scene, &controller, 0x20, false).result(), 0);
    let crto = get(&scene, &controller, 0x68, false).result();
    assert_eq!(crto & 0xffff, cap >> 24 & 0xff, "CRWMT");
}

#[test]
fn properties_have_their_length_and_no_other() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    for (offset, wide) in [(0, false), (8, true), (0x14, true), (0x1c, true)] {
        let answer = get(&scene, &controller, offset, wide);
        assert_eq!(answer.failure().0, Status::INVALID_FIELD);
    }
    for offset in [1, 4, 7, 0x09, 0x16, 0x1300, u32::MAX] {
        for wide in [false, true] {
            let answer = get(&scene, &controller, offset, wide);
            assert_eq!(answer.failure().0, Status::INVALID_FIELD);
        }
    }
    let mut reserved = property_get(Property::CC);
    reserved.entry.0[40] = 2;
    assert_eq!(
        scene.send(&controller, &reserved).failure().0,
        Status::INVALID_FIELD
    );
}

#[test]
fn properties_of_other_transports_are_zero() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    for offset in [0x0c, 0x10, 0x18, 0x24, 0x38, 0x3c, 0x40, 0xf00, 0x1000] {
        assert_eq!(get(&scene, &controller, offset, false).result(), 0);
    }
    for offset in [0x28, 0x30, 0x48, 0x50] {
        assert_eq!(get(&scene, &controller, offset, true).result(), 0);
    }
}

#[test]
fn only_cc_can_be_set() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    for (offset, wide) in [
        (0, true),
        (8, false),
        (0x1c, false),
        (0x20, false),
        (0x14, true),
    ] {
        let command = property_set(Property { offset, wide }, 0x4e56_4d65);
        assert_eq!(
            scene.send(&controller, &command).failure().0,
            Status::CONNECT_INVALID_PARAMETERS
        );
    }
}

#[test]
fn enabling_makes_it_ready() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    assert_eq!(scene.csts(&controller), 0);
    scene.set_cc(&controller, ENABLE).result();
    assert_eq!(scene.csts(&controller), READY);
    assert!(controller.is_enabled());
    assert_eq!(
        get(&scene, &controller, 0x14, false).result(),
        u64::from(ENABLE)
    );
}

#[test]
fn admin_commands_wait_for_that() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    let keep_alive = commands::keep_alive();
    assert_eq!(
        scene.send(&controller, &keep_alive).failure().0,
        Status::COMMAND_SEQUENCE_ERROR
    );
}

#[test]
fn settings_that_are_not_offered_fail_it_until_it_is_reset() {
    let unsupported = [
        (1, 4, "CSS"),
        (7, 4, "CSS"),
        (1, 7, "MPS"),
        (1, 11, "AMS"),
        (7, 16, "IOSQES"),
        (3, 20, "IOCQES"),
    ];
    for (value, shift, name) in unsupported {
        let scene = scene();
        let controller = scene.connected("host", &nqn("shared"));
        scene.set_cc(&controller, 1 | value << shift).result();
        assert_eq!(scene.csts(&controller), FAILED, "{name}");
        assert!(!controller.is_enabled());
        let reset = scene.set_cc(&controller, 0);
        assert_eq!(reset.outcome, AdminOutcome::CloseQueues { queues: vec![] });
        assert_eq!(scene.csts(&controller), 0);
        scene.set_cc(&controller, ENABLE).result();
        assert_eq!(scene.csts(&controller), READY);
    }
}

#[test]
fn all_supported_command_sets_can_be_chosen() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    scene.set_cc(&controller, ENABLE | 0b110 << 4).result();
    assert_eq!(scene.csts(&controller), READY);
}

#[test]
fn fixed_settings_do_not_change_while_it_is_enabled() {
    let scene = scene();
    let controller = scene.ready();
    for change in [0b110 << 4, 1 << 7, 1 << 11] {
        let answer = scene.set_cc(&controller, ENABLE ^ change);
        assert_eq!(answer.failure().0, Status::CONNECT_INVALID_PARAMETERS);
    }
    assert_eq!(scene.csts(&controller), READY);
    assert_eq!(
        get(&scene, &controller, 0x14, false).result(),
        u64::from(ENABLE)
    );
}

#[test]
fn a_reset_is_over_when_its_queues_have_ended() {
    let scene = scene();
    let controller = scene.ready();
    scene.io_queue(&controller, 1).unwrap();
    scene.io_queue(&controller, 2).unwrap();
    let queues = vec![QueueHandle(1), QueueHandle(2)];
    let reset = scene.set_cc(&controller, ENABLE & !1);
    assert_eq!(reset.outcome, AdminOutcome::CloseQueues { queues });
    assert!(!controller.is_enabled());
    assert_eq!(scene.csts(&controller), READY);
    // A host that does not wait is told to.
    let early = scene.set_cc(&controller, ENABLE);
    assert_eq!(early.failure().0, Status::COMMAND_SEQUENCE_ERROR);
    controller.queue_closed(1);
    assert_eq!(scene.csts(&controller), READY);
    controller.queue_closed(2);
    assert_eq!(scene.csts(&controller), 0);
    scene.set_cc(&controller, ENABLE).result();
    scene.io_queue(&controller, 1).unwrap();
}

#[test]
fn a_reset_forgets_what_the_host_has_set() {
    use crate::host::commands::{get_features, set_features};
    let scene = scene();
    let controller = scene.ready();
    scene.send(&controller, &set_features(7, 0)).result();
    scene.send(&controller, &set_features(0x0b, 0)).result();
    scene.set_cc(&controller, 0);
    scene.set_cc(&controller, ENABLE).result();
    let value = |feature| scene.send(&controller, &get_features(feature)).result();
    assert_eq!(value(7), 0x003f_003f);
    assert_eq!(value(0x0b), 0x900);
    // The Keep Alive Timeout is of the association.
    assert_eq!(value(0x0f), 10_000);
}

#[test]
fn a_shutdown_waits_for_volatile_caches_and_queues() {
    for kind in [NORMAL, ABRUPT] {
        let scene = scene();
        let controller = scene.ready();
        scene.io_queue(&controller, 1).unwrap();
        let queues = vec![QueueHandle(1)];
        let shutdown = scene.set_cc(&controller, ENABLE | kind);
        assert_eq!(shutdown.outcome, AdminOutcome::ShutDown { queues });
        assert!(!controller.is_enabled());
        assert_eq!(scene.csts(&controller), READY | SHUTTING_DOWN);
        controller.shutdown_finished();
        assert_eq!(scene.csts(&controller), READY | SHUTTING_DOWN);
        controller.queue_closed(1);
        assert_eq!(scene.csts(&controller), READY | SHUT_DOWN);
        // Only a reset brings it back.
        scene.set_cc(&controller, ENABLE).result();
        assert!(!controller.is_enabled());
        scene.set_cc(&controller, 0);
        assert_eq!(scene.csts(&controller), 0);
        scene.set_cc(&controller, ENABLE).result();
        assert!(controller.is_enabled());
    }
}

#[test]
fn a_shutdown_without_volatile_caches_is_over_at_once() {
    let scene = scene();
    let controller = scene.enabled("guest", &nqn("shared"));
    let shutdown = scene.set_cc(&controller, ENABLE | NORMAL);
    assert_eq!(
        shutdown.outcome,
        AdminOutcome::CloseQueues { queues: vec![] }
    );
    assert_eq!(scene.csts(&controller), READY | SHUT_DOWN);
}

#[test]
fn a_shutdown_does_not_end_with_the_flush_of_an_earlier_one() {
    let scene = scene();
    let controller = scene.ready();
    for _ in 0..2 {
        scene.set_cc(&controller, 0);
        scene.set_cc(&controller, ENABLE).result();
        scene.set_cc(&controller, ENABLE | NORMAL);
    }
    controller.shutdown_finished();
    assert_eq!(scene.csts(&controller), READY | SHUTTING_DOWN);
    controller.shutdown_finished();
    assert_eq!(scene.csts(&controller), READY | SHUT_DOWN);
}

#[test]
fn a_shutdown_asked_for_twice_happens_once() {
    let scene = scene();
    let controller = scene.ready();
    scene.set_cc(&controller, ENABLE | NORMAL);
    scene.set_cc(&controller, ENABLE | ABRUPT).result();
    assert_eq!(scene.csts(&controller), READY | SHUTTING_DOWN);
    // A flush that ends after a reset changes nothing.
    scene.set_cc(&controller, 0);
    controller.shutdown_finished();
    assert_eq!(scene.csts(&controller), 0);
}
