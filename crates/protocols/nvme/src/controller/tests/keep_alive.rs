use super::*;

/// Looks at each deadline until the controller gives its host up. Returns when.
fn expires_at(controller: &Controller) -> (u64, Vec<QueueHandle>) {
    loop {
        let at = controller.next_deadline_ms().expect("a timer");
        assert_eq!(controller.handle_deadline(at - 1), Deadline::Nothing);
        if let Deadline::KeepAliveExpired { queues } = controller.handle_deadline(at) {
            return (at, queues);
        }
    }
}

#[test]
fn silence_for_the_timeout_ends_the_controller() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    let (at, queues) = expires_at(&controller);
    assert_eq!(at, 5000 + 10_000);
    assert_eq!(queues, [ADMIN_QUEUE]);
    assert_eq!(scene.csts(&controller) & 2, 2, "CFS");
    assert_eq!(controller.next_deadline_ms(), None);
}

#[test]
fn all_queues_are_closed_and_the_reason_is_remembered() {
    let scene = scene();
    let controller = scene.ready();
    scene.io_queue(&controller, 1).unwrap();
    let (_, queues) = expires_at(&controller);
    assert_eq!(queues, [QueueHandle(1), ADMIN_QUEUE]);
    assert!(!controller.is_enabled());
    let page = controller.lock().errors.page();
    assert_eq!(u16_at(&page, 8), 0xffff, "SQID");
    let status = Status::KEEP_ALIVE_TIMER_EXPIRED.more();
    assert_eq!(u16_at(&page, 12), status.0 << 1);
}

#[test]
fn commands_of_any_queue_keep_it_alive() {
    for queue_id in [0, 1, 64] {
        let scene = scene();
        let controller = scene.connected("host", &nqn("shared"));
        for _ in 0..10 {
            let at = controller.next_deadline_ms().unwrap();
            controller.note_activity(queue_id);
            assert_eq!(controller.handle_deadline(at), Deadline::Nothing);
        }
        let last = controller.next_deadline_ms().unwrap() - 5000;
        // The last command came just before `last`.
        let (at, _) = expires_at(&controller);
        assert_eq!(at - last, 10_000);
    }
}

#[test]
fn a_host_is_never_given_up_before_its_timeout() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    let first = controller.next_deadline_ms().unwrap();
    assert_eq!(controller.handle_deadline(first), Deadline::Nothing);
    // Just after a look.
    controller.note_activity(0);
    let (at, _) = expires_at(&controller);
    assert_eq!(at - first, 15_000);
}

#[test]
fn keep_alive_is_a_command_like_any_other() {
    let scene = scene();
    let controller = scene.ready();
    let keep_alive = commands::keep_alive();
    for _ in 0..10 {
        scene.send(&controller, &keep_alive).result();
        let at = controller.next_deadline_ms().unwrap();
        assert_eq!(controller.handle_deadline(at), Deadline::Nothing);
    }
}

#[test]
fn a_late_look_does_not_end_the_controller() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    let silent = |late_ms| {
        let at = controller.next_deadline_ms().unwrap();
        controller.handle_deadline(at + late_ms)
    };
    assert_eq!(silent(0), Deadline::Nothing);
    // Looks are 5 s apart: the server was stalled, and what the host has sent is read next.
    assert_eq!(silent(2500), Deadline::Nothing);
    assert_eq!(silent(60_000), Deadline::Nothing);
    let queues = vec![ADMIN_QUEUE];
    assert_eq!(silent(2499), Deadline::KeepAliveExpired { queues });
}

#[test]
fn unknown_queues_leave_no_mark() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    controller.note_activity(65);
    controller.note_activity(0xffff);
    assert_eq!(expires_at(&controller).0, 15_000);
}

#[test]
fn without_a_timeout_there_is_no_timer_but_for_discovery() {
    let scene = scene();
    let without = |subsystem: &Nqn| {
        let connect = Connect {
            keep_alive_ms: 0,
            ..connect_by("host", subsystem)
        };
        scene.connect(&connect, ADMIN_QUEUE).unwrap().controller
    };
    assert_eq!(without(&nqn("shared")).next_deadline_ms(), None);
    let (at, _) = expires_at(&without(&discovery()));
    assert_eq!(at, 5000 + 120_000);
}
