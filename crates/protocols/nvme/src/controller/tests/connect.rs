use super::*;

const IN_DATA: u64 = 1 << 16;

#[track_caller]
fn assert_invalid(refused: Result<Association, Refusal>, location: u64) {
    assert_eq!(
        refused.unwrap_err(),
        Refusal {
            status: Status::CONNECT_INVALID_PARAMETERS.do_not_retry(),
            result: location,
        }
    );
}

#[test]
fn an_admin_queue_gets_a_controller_of_its_own() {
    let scene = scene();
    let first = scene.connect(&connect_by("host", &nqn("shared")), ADMIN_QUEUE);
    let second = scene.connect(&connect_by("host", &nqn("shared")), ADMIN_QUEUE);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.queue_id, first.entries), (0, 32));
    assert!(first.flow_control);
    assert_eq!(first.result, u64::from(first.controller.id()));
    assert_ne!(first.controller.id(), second.controller.id());
    assert!(!first.controller.is_enabled());
}

#[test]
fn flow_control_is_as_the_host_wants() {
    let scene = scene();
    let connect = Connect {
        disable_flow_control: true,
        ..connect_by("host", &nqn("shared"))
    };
    assert!(!scene.connect(&connect, ADMIN_QUEUE).unwrap().flow_control);
}

#[test]
fn an_unknown_subsystem_is_an_invalid_subnqn() {
    let connect = connect_by("host", &nqn("nowhere"));
    assert_invalid(scene().connect(&connect, ADMIN_QUEUE), IN_DATA | 256);
}

#[test]
fn a_host_that_no_rule_names_is_refused() {
    let scene = scene();
    let refusal = scene
        .connect(&connect_by("stranger", &nqn("private")), ADMIN_QUEUE)
        .unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_INVALID_HOST.do_not_retry());
    assert_eq!(refusal.result, IN_DATA | 512);
    scene.connected("owner", &nqn("private"));
}

#[test]
fn listeners_of_discovery_reach_no_other_subsystem() {
    let mut scene = scene();
    scene.driver.discovery_only = true;
    let connect = connect_by("host", &nqn("shared"));
    assert_invalid(scene.connect(&connect, ADMIN_QUEUE), IN_DATA | 256);
    scene.connected("host", &discovery());
}

#[test]
fn only_dynamic_controllers_can_be_asked_for() {
    for controller_id in [0, 1, 0xfffe] {
        let connect = Connect {
            controller_id,
            ..connect_by("host", &nqn("shared"))
        };
        assert_invalid(scene().connect(&connect, ADMIN_QUEUE), IN_DATA | 16);
    }
}

#[test]
fn a_host_without_identifier_is_refused() {
    let connect = Connect {
        host_identifier: [0; 16],
        ..connect_by("host", &nqn("shared"))
    };
    assert_invalid(scene().connect(&connect, ADMIN_QUEUE), IN_DATA);
}

#[test]
fn names_must_be_there_and_end() {
    let scene = scene();
    let connect = connect_by("host", &nqn("shared"));
    let entry = entry_of(&connect.command());
    for (at, fill) in [(256, b'x'), (512, b'x'), (256, 0)] {
        let mut data = connect.data();
        data[at..at + 256].fill(fill);
        let refused = scene
            .subsystems
            .connect(&entry, &data, ADMIN_QUEUE, &scene.driver, 0);
        assert_invalid(refused, IN_DATA | at as u64);
    }
}

/// Connect of an admin queue by a host that gives `host` as its name.
fn connect_as(scene: &Scene, host: &str, subsystem: &Nqn) -> Result<Association, Refusal> {
    let connect = connect_by("host", subsystem);
    let mut data = connect.data();
    data[512..768].fill(0);
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    let entry = entry_of(&connect.command());
    let subsystems = &scene.subsystems;
    subsystems.connect(&entry, &data, ADMIN_QUEUE, &scene.driver, 0)
}

#[test]
fn a_host_has_a_name_of_the_standard_s_form() {
    let scene = scene();
    let long = format!("nqn.2026-11.test:{}", "x".repeat(223 - 17));
    for host in [
        "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        &long,
    ] {
        connect_as(&scene, host, &nqn("shared")).unwrap();
    }
    let too_long = format!("{long}x");
    for host in [
        "x",
        "iqn.2026-11.test:x",
        "nqn.2026-11",
        "nqn.2026-13.test:x",
        "nqn.2026-11.test: x",
        &too_long,
    ] {
        assert_invalid(connect_as(&scene, host, &nqn("shared")), IN_DATA | 512);
    }
}

#[test]
fn a_host_without_a_name_gets_what_every_host_may_have() {
    let scene = scene();
    let controller = connect_as(&scene, "", &nqn("shared")).unwrap().controller;
    assert_eq!(controller.namespaces().len(), 2);
    let refusal = connect_as(&scene, "", &nqn("private")).unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_INVALID_HOST.do_not_retry());
}

#[test]
fn short_data_and_other_formats_are_refused() {
    let scene = scene();
    let connect = connect_by("host", &nqn("shared"));
    let mut entry = entry_of(&connect.command());
    let refused = |entry: &SubmissionEntry, data: &[u8]| {
        let result = scene
            .subsystems
            .connect(entry, data, ADMIN_QUEUE, &scene.driver, 0);
        result.unwrap_err().status.code()
    };
    let short = &connect.data()[..1023];
    assert_eq!(refused(&entry, short), Status::DATA_SGL_LENGTH_INVALID);
    entry.0[40] = 1;
    assert_eq!(
        refused(&entry, &connect.data()),
        Status::CONNECT_INCOMPATIBLE_FORMAT
    );
}

#[test]
fn queues_have_two_entries_at_least_and_as_many_as_the_limit_at_most() {
    let scene = scene();
    let with = |entries| Connect {
        entries,
        ..connect_by("host", &nqn("shared"))
    };
    assert_eq!(scene.connect(&with(2), ADMIN_QUEUE).unwrap().entries, 2);
    assert_eq!(scene.connect(&with(128), ADMIN_QUEUE).unwrap().entries, 128);
    for entries in [1, 129, 0xffff, 0] {
        assert_invalid(scene.connect(&with(entries), ADMIN_QUEUE), 44);
    }
}

#[test]
fn a_keep_alive_timeout_beyond_the_limit_is_refused() {
    let scene = scene();
    let with = |keep_alive_ms| Connect {
        keep_alive_ms,
        ..connect_by("host", &nqn("shared"))
    };
    scene.connect(&with(600_000), ADMIN_QUEUE).unwrap();
    let refusal = scene.connect(&with(600_001), ADMIN_QUEUE).unwrap_err();
    assert_eq!(refusal.status.code(), Status::KEEP_ALIVE_TIMEOUT_INVALID);
}

#[test]
fn there_are_only_so_many_controllers_and_one_that_leaves_makes_room() {
    let scene = scene_with(ControllerLimits {
        controllers_max: 2,
        ..ControllerLimits::default()
    });
    let first = scene.connected("host", &nqn("shared"));
    let _second = scene.connected("host", &discovery());
    let connect = connect_by("host", &nqn("shared"));
    let refusal = scene.connect(&connect, ADMIN_QUEUE).unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_CONTROLLER_BUSY);
    first.queue_closed(0);
    let third = scene.connect(&connect, ADMIN_QUEUE).unwrap();
    assert_ne!(third.controller.id(), first.id());
    // What is dropped after it was closed is not counted twice.
    drop(first);
    assert!(scene.connect(&connect, ADMIN_QUEUE).is_err());
    drop(third);
    scene.connect(&connect, ADMIN_QUEUE).unwrap();
}

#[test]
fn a_closed_controller_that_is_dropped_late_takes_no_other_with_it() {
    let scene = scene_with(ControllerLimits {
        controllers_max: 2,
        ..ControllerLimits::default()
    });
    let connect = || scene.connect(&connect_by("host", &discovery()), ADMIN_QUEUE);
    let closed = connect().unwrap().controller;
    closed.queue_closed(0);
    // Identifiers come round again.
    let mut heir = connect().unwrap().controller;
    while heir.id() != closed.id() {
        drop(heir);
        heir = connect().unwrap().controller;
    }
    drop(closed);
    assert_eq!(scene.subsystems.controllers().len(), 1);
    let _second = connect().unwrap();
    assert_eq!(
        connect().unwrap_err().status,
        Status::CONNECT_CONTROLLER_BUSY
    );
}

#[test]
fn an_io_queue_belongs_to_the_controller_it_names() {
    let scene = scene();
    let controller = scene.ready();
    let queue = scene.io_queue(&controller, 1).unwrap();
    assert_eq!(queue.controller.id(), controller.id());
    assert_eq!((queue.queue_id, queue.entries), (1, 128));
    assert_eq!(queue.result, u64::from(controller.id()));
    assert_eq!(controller.io_queues(), [QueueHandle(1)]);
}

#[test]
fn an_io_queue_before_the_controller_is_enabled_is_out_of_sequence() {
    let scene = scene();
    let controller = scene.connected("host", &nqn("shared"));
    let refusal = scene.io_queue(&controller, 1).unwrap_err();
    assert_eq!(refusal.status.code(), Status::COMMAND_SEQUENCE_ERROR);
    // Enabled, but without sizes of entries.
    scene.set_cc(&controller, 1).result();
    assert!(controller.is_enabled());
    let refusal = scene.io_queue(&controller, 1).unwrap_err();
    assert_eq!(refusal.status.code(), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn an_io_queue_of_another_host_or_controller_is_refused() {
    let scene = scene();
    let controller = scene.ready();
    let own = Connect {
        controller_id: controller.id(),
        queue_id: 1,
        ..connect_by("host", &nqn("shared"))
    };
    let other_host = Connect {
        host: nqn("other"),
        ..own.clone()
    };
    assert_invalid(scene.connect(&other_host, ADMIN_QUEUE), IN_DATA | 512);
    let other_identifier = Connect {
        host_identifier: [9; 16],
        ..own.clone()
    };
    assert_invalid(scene.connect(&other_identifier, ADMIN_QUEUE), IN_DATA);
    let other_controller = Connect {
        controller_id: controller.id() + 1,
        ..own.clone()
    };
    assert_invalid(scene.connect(&other_controller, ADMIN_QUEUE), IN_DATA | 16);
    let other_subsystem = Connect {
        subsystem: nqn("private"),
        ..own.clone()
    };
    assert_invalid(scene.connect(&other_subsystem, ADMIN_QUEUE), IN_DATA | 16);
    scene.connect(&own, ADMIN_QUEUE).unwrap();
}

#[test]
fn queue_identifiers_end_at_the_limit_and_at_what_was_negotiated() {
    let scene = scene();
    let controller = scene.ready();
    assert_invalid(scene.io_queue(&controller, 65), 42);
    assert_invalid(scene.io_queue(&controller, 0xffff), 42);
    let queues = commands::set_features(7, 0x0001_0001);
    assert_eq!(scene.send(&controller, &queues).result(), 0x0001_0001);
    assert_invalid(scene.io_queue(&controller, 3), 42);
    scene.io_queue(&controller, 2).unwrap();
}

#[test]
fn a_queue_identifier_in_use_can_be_asked_for_again_when_it_is_free() {
    let scene = scene();
    let controller = scene.ready();
    scene.io_queue(&controller, 1).unwrap();
    let refusal = scene.io_queue(&controller, 1).unwrap_err();
    assert_eq!(refusal.status, Status::INVALID_QUEUE_IDENTIFIER);
    assert_eq!(controller.queue_closed(1), []);
    scene.io_queue(&controller, 1).unwrap();
}

#[test]
fn discovery_has_no_io_queues() {
    let scene = scene();
    let controller = scene.enabled("host", &discovery());
    assert_invalid(scene.io_queue(&controller, 1), 42);
}

#[test]
fn the_end_of_the_admin_queue_ends_the_controller_and_its_queues() {
    let scene = scene();
    let controller = scene.ready();
    scene.io_queue(&controller, 1).unwrap();
    scene.io_queue(&controller, 2).unwrap();
    assert_eq!(controller.queue_closed(0), [QueueHandle(1), QueueHandle(2)]);
    assert!(!controller.is_enabled());
    assert_invalid(scene.io_queue(&controller, 3), IN_DATA | 16);
    assert!(scene.subsystems.controllers().is_empty());
}

#[test]
fn fabrics_commands_of_io_queues_are_disconnect_and_nothing_else() {
    use crate::host::commands::disconnect;
    let scene = scene();
    let controller = scene.ready();
    let send = |command: &Command| controller.fabrics_on_io_queue(1, &entry_of(command));
    assert_eq!(send(&disconnect()), AdminOutcome::Disconnect);
    let refused = |command: &Command| match send(command) {
        AdminOutcome::Complete { status, .. } => status.code(),
        other => panic!("{other:?}"),
    };
    let mut other_format = disconnect();
    other_format.entry.0[40] = 1;
    assert_eq!(refused(&other_format), Status::CONNECT_INCOMPATIBLE_FORMAT);
    assert_eq!(
        refused(&property_get(Property::CC)),
        Status::INVALID_COMMAND_OPCODE
    );
    let connect = connect_by("host", &nqn("shared")).command();
    assert_eq!(refused(&connect), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn an_admin_queue_is_not_disconnected_or_connected_again() {
    let scene = scene();
    let controller = scene.ready();
    let status = |command: &Command| scene.send(&controller, command).failure().0;
    let disconnect = commands::disconnect();
    assert_eq!(status(&disconnect), Status::INVALID_QUEUE_TYPE);
    let connect = connect_by("host", &nqn("shared")).command();
    assert_eq!(status(&connect), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn hosts_take_part_in_reservations_as_long_as_their_controller_lives() {
    let scene = scene();
    let members = || {
        let reservations = &scene.namespaces[0].parameters().reservations;
        reservations.lock().members().len()
    };
    let first = scene.ready();
    let second = scene.ready();
    assert_eq!(members(), 2);
    first.queue_closed(0);
    // Commands of its I/O queues may still be under way.
    assert_eq!(members(), 2);
    drop(first);
    assert_eq!(members(), 1);
    drop(second);
    assert_eq!(members(), 0);
}
