use longshore_block::reservation::{NoticeEvent, Participant};

use super::*;
use crate::host::commands::{abort, async_event_request, get_log_page, identify, set_features};

fn request(scene: &Scene, controller: &Controller, id: u16) -> AdminOutcome {
    let mut entry = entry_of(&async_event_request());
    entry.0[2..4].copy_from_slice(&id.to_le_bytes());
    scene.send_entry(controller, &entry, &[]).outcome
}

fn poll(controller: &Controller) -> Vec<AsyncCompletion> {
    let mut completions = Vec::new();
    controller.poll_events(&mut completions);
    completions
}

fn event(command: u16, result: u64) -> AsyncCompletion {
    AsyncCompletion {
        command: CommandId(command),
        status: Status::SUCCESS,
        result,
    }
}

fn read_log(scene: &Scene, controller: &Controller, page: u8, retain: bool) -> Vec<u8> {
    let command = get_log_page(page, NamespaceId::BROADCAST, 0, 4096);
    let dword = command.entry.dword(10) | u32::from(retain) << 15;
    scene.send(controller, &command.dword(10, dword)).data()
}

fn notified(scene: &Scene) -> Vec<QueueHandle> {
    std::mem::take(&mut scene.notified.lock().unwrap())
}

const NAMESPACE_CHANGED: u64 = 0x04_0002;
const DISCOVERY_CHANGED: u64 = 0x70_f002;
const DEGRADED: u64 = 0x02_0001;
const SPARE_LOW: u64 = 0x02_0201;
const RESERVATION: u64 = 0x80_0006;

#[test]
fn a_resize_is_told_once_until_the_list_was_read() {
    let scene = scene();
    let controller = scene.ready();
    for id in [10, 11, 12] {
        assert_eq!(request(&scene, &controller, id), AdminOutcome::AsyncEvent);
    }
    assert_eq!(poll(&controller), []);
    scene.subsystems.namespace_resized(1);
    assert_eq!(notified(&scene), [ADMIN_QUEUE]);
    assert_eq!(poll(&controller), [event(10, NAMESPACE_CHANGED)]);
    // Masked, but not lost.
    scene.subsystems.namespace_resized(0);
    assert_eq!(notified(&scene), []);
    assert_eq!(poll(&controller), []);
    assert_eq!(ids(&read_log(&scene, &controller, 4, true)), [1, 3]);
    scene.subsystems.namespace_resized(0);
    assert_eq!(poll(&controller), []);
    assert_eq!(ids(&read_log(&scene, &controller, 4, false)), [1, 3]);
    assert_eq!(ids(&read_log(&scene, &controller, 4, false)), [0; 0]);
    scene.subsystems.namespace_resized(0);
    assert_eq!(poll(&controller), [event(11, NAMESPACE_CHANGED)]);
}

#[test]
fn an_event_waits_for_a_request() {
    let scene = scene();
    let controller = scene.ready();
    scene.subsystems.namespace_resized(0);
    assert_eq!(notified(&scene), []);
    assert_eq!(poll(&controller), []);
    request(&scene, &controller, 1);
    assert_eq!(poll(&controller), [event(1, NAMESPACE_CHANGED)]);
}

#[test]
fn an_event_whose_page_was_read_before_it_was_told_is_not_told() {
    let scene = scene();
    let controller = scene.ready();
    scene.subsystems.namespace_resized(0);
    read_log(&scene, &controller, 4, false);
    request(&scene, &controller, 1);
    assert_eq!(poll(&controller), []);
}

#[test]
fn events_that_are_not_wanted_are_not_told() {
    let scene = scene();
    let controller = scene.ready();
    scene
        .send(&controller, &set_features(0x0b, 1 << 11))
        .result();
    request(&scene, &controller, 1);
    scene.subsystems.namespace_resized(0);
    scene.subsystems.health_changed(0);
    assert_eq!(poll(&controller), []);
    scene.send(&controller, &set_features(0x0b, 0xff)).result();
    scene.subsystems.health_changed(0);
    assert_eq!(poll(&controller), [event(1, DEGRADED)]);
}

#[test]
fn lack_of_spare_is_told_apart_from_failures() {
    let scene = scene();
    let controller = scene.ready();
    // Of the critical warnings, the host wants bit 0 alone.
    scene.send(&controller, &set_features(0x0b, 1)).result();
    request(&scene, &controller, 1);
    scene.subsystems.health_changed(0);
    assert_eq!(poll(&controller), []);
    scene.subsystems.spare_low(0);
    assert_eq!(poll(&controller), [event(1, SPARE_LOW)]);
    request(&scene, &controller, 2);
    scene.subsystems.spare_low(0);
    assert_eq!(poll(&controller), [], "the log page has not been read");
}

#[test]
fn hosts_that_do_not_see_a_namespace_hear_nothing_of_it() {
    let scene = scene();
    let guest = scene.enabled("guest", &nqn("shared"));
    request(&scene, &guest, 1);
    scene.subsystems.namespace_resized(0);
    assert_eq!(notified(&scene), []);
    assert_eq!(poll(&guest), []);
    assert_eq!(ids(&read_log(&scene, &guest, 4, false)), [0; 0]);
    scene.subsystems.namespace_resized(1);
    assert_eq!(poll(&guest), [event(1, NAMESPACE_CHANGED)]);
}

#[test]
fn discovery_tells_of_changes() {
    let scene = scene();
    let controller = scene.enabled("host", &discovery());
    let other = scene.ready();
    request(&scene, &controller, 7);
    request(&scene, &other, 7);
    scene.subsystems.discovery_changed();
    assert_eq!(notified(&scene), [ADMIN_QUEUE]);
    assert_eq!(poll(&controller), [event(7, DISCOVERY_CHANGED)]);
    assert_eq!(poll(&other), []);
    request(&scene, &controller, 8);
    scene.subsystems.discovery_changed();
    assert_eq!(poll(&controller), []);
    read_log(&scene, &controller, 0x70, false);
    scene.subsystems.discovery_changed();
    assert_eq!(poll(&controller), [event(8, DISCOVERY_CHANGED)]);
}

#[test]
fn reservation_notifications_are_told_and_read_one_by_one() {
    let scene = scene();
    let controller = scene.ready();
    request(&scene, &controller, 1);
    let namespaces = controller.namespaces();
    namespaces[0].host.notify(NoticeEvent::ReservationsReleased);
    assert_eq!(notified(&scene), [ADMIN_QUEUE]);
    assert_eq!(poll(&controller), [event(1, RESERVATION)]);
    namespaces[1]
        .host
        .notify(NoticeEvent::RegistrationsPreempted);
    request(&scene, &controller, 2);
    assert_eq!(poll(&controller), []);
    let first = read_log(&scene, &controller, 0x80, false);
    assert_eq!((first[8], first[9], u32_at(&first, 12)), (2, 1, 1));
    let second = read_log(&scene, &controller, 0x80, false);
    assert_eq!((second[8], second[9], u32_at(&second, 12)), (1, 0, 3));
    assert_eq!(read_log(&scene, &controller, 0x80, false)[..64], [0; 64]);
}

#[test]
fn there_are_only_so_many_requests() {
    let scene = scene();
    let controller = scene.ready();
    for id in 0..4 {
        assert_eq!(request(&scene, &controller, id), AdminOutcome::AsyncEvent);
    }
    match request(&scene, &controller, 4) {
        AdminOutcome::Complete { status, .. } => {
            assert_eq!(status.code(), Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reset_or_shutdown_ends_requests_without_completions() {
    for cc in [ENABLE & !1, ENABLE | 1 << 14] {
        let scene = scene();
        let controller = scene.ready();
        request(&scene, &controller, 3);
        request(&scene, &controller, 4);
        scene.set_cc(&controller, cc);
        assert_eq!(poll(&controller), []);
        let dropped = controller.take_dropped_event_requests();
        assert_eq!(dropped, [CommandId(3), CommandId(4)]);
        assert_eq!(controller.take_dropped_event_requests(), []);
    }
}

#[test]
fn a_request_whose_identifier_is_used_again_is_told_nothing() {
    let scene = scene();
    let controller = scene.ready();
    request(&scene, &controller, 3);
    request(&scene, &controller, 4);
    controller.forget_event_request(CommandId(3));
    // Abort means the command that has the identifier now.
    assert_eq!(
        scene.send(&controller, &abort(0, CommandId(3))).outcome,
        AdminOutcome::Abort {
            queue: ADMIN_QUEUE,
            queue_id: 0,
            command: CommandId(3),
        }
    );
    scene.subsystems.namespace_resized(0);
    assert_eq!(poll(&controller), [event(4, NAMESPACE_CHANGED)]);
}

#[test]
fn a_request_can_be_aborted() {
    let scene = scene();
    let controller = scene.ready();
    request(&scene, &controller, 3);
    request(&scene, &controller, 4);
    assert_eq!(scene.send(&controller, &abort(0, CommandId(3))).result(), 0);
    assert_eq!(
        poll(&controller),
        [AsyncCompletion {
            command: CommandId(3),
            status: Status::ABORT_REQUESTED,
            result: 0,
        }]
    );
    scene.subsystems.namespace_resized(0);
    assert_eq!(poll(&controller), [event(4, NAMESPACE_CHANGED)]);
}

#[test]
fn other_commands_are_left_to_the_driver_to_abort() {
    let scene = scene();
    let controller = scene.ready();
    scene.io_queue(&controller, 2).unwrap();
    let outcome = |queue_id| {
        let command = abort(queue_id, CommandId(9));
        scene.send(&controller, &command).outcome
    };
    let aborts = |queue, queue_id| AdminOutcome::Abort {
        queue,
        queue_id,
        command: CommandId(9),
    };
    assert_eq!(outcome(0), aborts(ADMIN_QUEUE, 0));
    assert_eq!(outcome(2), aborts(QueueHandle(2), 2));
    // Nobody there.
    for queue_id in [1, 3, 65, 0xffff] {
        assert_eq!(
            scene
                .send(&controller, &abort(queue_id, CommandId(9)))
                .result(),
            1
        );
    }
}

#[test]
fn more_changes_than_the_list_holds_are_told_as_all() {
    let scene = scene();
    let controller = scene.ready();
    {
        let mut state = controller.lock();
        state.changed_namespaces = (1..=1025).map(NamespaceId).collect();
    }
    let data = read_log(&scene, &controller, 4, false);
    assert_eq!(ids(&data), [u32::MAX]);
}

#[test]
fn fused_and_unknown_commands_are_refused() {
    use crate::command::Fuse;
    use crate::opcode::Opcode;
    let scene = scene();
    let controller = scene.ready();
    let mut fused = identify(1, NamespaceId(0));
    fused.entry.set_fuse(Fuse::First);
    assert_eq!(
        scene.send(&controller, &fused).failure().0,
        Status::INVALID_FIELD
    );
    for opcode in [
        0x00, 0x01, 0x04, 0x05, 0x0d, 0x10, 0x11, 0x14, 0x80, 0xc0, 0xff,
    ] {
        let command = Command::new(Opcode(opcode), NamespaceId::NONE);
        assert_eq!(
            scene.send(&controller, &command).failure().0,
            Status::INVALID_COMMAND_OPCODE
        );
    }
    let discovery = scene.enabled("host", &discovery());
    assert_eq!(
        scene.send(&discovery, &abort(0, CommandId(1))).failure().0,
        Status::INVALID_COMMAND_OPCODE
    );
}
