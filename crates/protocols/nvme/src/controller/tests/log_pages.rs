use super::*;
use crate::host::commands::{get_features, get_log_page};

fn log(scene: &Scene, controller: &Controller, page: u8, length: u32) -> Vec<u8> {
    log_at(scene, controller, page, 0, length)
}

fn log_at(scene: &Scene, controller: &Controller, page: u8, offset: u64, length: u32) -> Vec<u8> {
    let command = get_log_page(page, NamespaceId::BROADCAST, offset, length);
    let data = scene.send(controller, &command).data();
    assert_eq!(data.len(), length as usize);
    data
}

#[test]
fn supported_pages_are_those_that_can_be_read() {
    let scene = scene();
    for controller in [scene.ready(), scene.enabled("host", &discovery())] {
        let supported = log(&scene, &controller, 0, 1024);
        for page in 0..=255 {
            let command = get_log_page(page, NamespaceId::NONE, 0, 64);
            let answer = scene.send(&controller, &command);
            match u32_at(&supported, usize::from(page) * 4) {
                0 => assert_eq!(answer.failure().0, Status::INVALID_LOG_PAGE),
                1 => assert_eq!(answer.data().len(), 64, "page {page:#x}"),
                other => panic!("page {page:#x}: {other:#x}"),
            }
        }
    }
}

#[test]
fn failed_commands_leave_an_entry_and_say_so() {
    let scene = scene();
    let controller = scene.ready();
    let mut command = get_features(0x7e);
    command.entry.0[2..4].copy_from_slice(&[0x34, 0x12]);
    let answer = scene.send(&controller, &command);
    let expected = Status::INVALID_FIELD.do_not_retry().more();
    assert_eq!(
        answer.outcome,
        AdminOutcome::Complete {
            status: expected,
            result: 0
        }
    );
    let status = controller.record_error(&ErrorRecord {
        queue_id: 5,
        command: CommandId(9),
        status: Status::UNRECOVERED_READ_ERROR,
        location: 0xffff,
        lba: 77,
        namespace: NamespaceId(3),
    });
    assert_eq!(status, Status::UNRECOVERED_READ_ERROR.more());
    let data = log(&scene, &controller, 1, 4096);
    // Newest first.
    assert_eq!(u64_at(&data, 0), 2, "error count");
    assert_eq!((u16_at(&data, 8), u16_at(&data, 10)), (5, 9));
    assert_eq!(u16_at(&data, 12), status.0 << 1);
    assert_eq!(u16_at(&data, 14), 0xffff);
    assert_eq!((u64_at(&data, 16), u32_at(&data, 24)), (77, 3));
    assert_eq!(data[29], 3, "TRTYPE");
    assert_eq!(u64_at(&data, 64), 1, "error count");
    assert_eq!((u16_at(&data, 72), u16_at(&data, 74)), (0, 0x1234));
    assert_eq!(u16_at(&data, 76), expected.0 << 1);
    assert_eq!(u16_at(&data, 78), 40, "FID");
    assert_eq!(data[128..], [0; 4096 - 128]);
}

#[test]
fn the_latest_sixty_four_errors_are_kept() {
    let scene = scene();
    let controller = scene.ready();
    for _ in 0..100 {
        scene.send(&controller, &get_features(0x7e)).failure();
    }
    let data = log(&scene, &controller, 1, 8192);
    let counts: Vec<_> = data.chunks(64).map(|entry| u64_at(entry, 0)).collect();
    let expected: Vec<_> = (37..=100).rev().chain(std::iter::repeat_n(0, 64)).collect();
    assert_eq!(counts, expected);
}

#[test]
fn health_adds_up_what_namespaces_have_done() {
    let mut scene = scene();
    scene.driver.statistics = Statistics {
        read_bytes: 1_024_000,
        written_bytes: 512_001,
        read_commands: 7,
        write_commands: 9,
        busy_ms: 120_000,
        media_errors: 1,
    };
    scene.driver.uptime_ms = 3 * 3_600_000 + 5;
    let controller = scene.ready();
    scene.send(&controller, &get_features(0x7e)).failure();
    let data = log(&scene, &controller, 2, 512);
    assert_eq!(data[0], 0, "critical warning");
    assert_eq!(data[3..6], [100, 6, 0]);
    assert_eq!(u64_at(&data, 32), 4, "two namespaces of 2 units");
    // 1024002 bytes are one unit more than 1024000.
    assert_eq!(u64_at(&data, 48), 3);
    assert_eq!((u64_at(&data, 64), u64_at(&data, 80)), (14, 18));
    assert_eq!(u64_at(&data, 96), 2, "minutes");
    assert_eq!(u64_at(&data, 112), 1, "power cycles");
    assert_eq!(u64_at(&data, 128), 3, "hours");
    assert_eq!(u64_at(&data, 160), 2);
    assert_eq!(u64_at(&data, 176), 1);
    let of_one = get_log_page(2, NamespaceId(3), 0, 512);
    assert_eq!(u64_at(&scene.send(&controller, &of_one).data(), 64), 7);
    let of_none = get_log_page(2, NamespaceId(2), 0, 512);
    assert_eq!(
        scene.send(&controller, &of_none).failure().0,
        Status::INVALID_FIELD
    );
}

#[test]
fn health_warns_of_volumes_that_have_failed() {
    let mut scene = scene();
    let controller = scene.ready();
    for (degraded, read_only, warning) in [
        (true, false, 0b0100),
        (false, true, 0b1100),
        (true, true, 0b1100),
    ] {
        scene.driver.health = Health {
            degraded,
            read_only,
            ..Health::default()
        };
        assert_eq!(log(&scene, &controller, 2, 512)[0], warning);
    }
}

#[test]
fn health_tells_how_much_room_thin_volumes_have() {
    let mut scene = scene();
    let controller = scene.ready();
    // Percent in use; available spare, and whether that is less than its threshold.
    for (used_percent, spare, warning) in [(0, 100, 0), (94, 6, 0), (95, 5, 1), (100, 0, 1)] {
        scene.driver.health = Health {
            used_percent,
            ..Health::default()
        };
        let page = log(&scene, &controller, 2, 512);
        assert_eq!((page[3], page[4], page[0]), (spare, 6, warning));
    }
}

#[test]
fn there_is_one_firmware_slot() {
    let scene = scene();
    let data = log(&scene, &scene.ready(), 3, 512);
    assert_eq!(data[0], 1);
    assert_eq!(&data[8..16], b"0.1.0   ");
    assert_eq!(data[16..], [0; 496]);
}

#[test]
fn commands_that_are_supported_are_listed_with_their_effects() {
    let scene = scene();
    let controller = scene.ready();
    let data = log(&scene, &controller, 5, 4096);
    let listed = |at: usize| {
        let all = (0..256).filter(|n| u32_at(&data, at + n * 4) != 0);
        all.collect::<Vec<_>>()
    };
    assert_eq!(listed(0), [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x84]);
    assert_eq!(
        listed(1024),
        [0, 1, 2, 5, 8, 9, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x19]
    );
    for (opcode, effects) in [(1, 3), (2, 1), (8, 3), (9, 3), (0x19, 3)] {
        assert_eq!(u32_at(&data, 1024 + opcode * 4), effects);
    }
    assert_eq!(data[2048..], [0; 2048]);
    let other_set = get_log_page(5, NamespaceId::NONE, 0, 4096).dword(14, 2 << 24);
    assert_eq!(
        scene.send(&controller, &other_set).failure().0,
        Status::INVALID_FIELD
    );
}

#[test]
fn features_that_are_supported_are_listed() {
    let scene = scene();
    for controller in [scene.ready(), scene.enabled("host", &discovery())] {
        let data = log(&scene, &controller, 0x12, 1024);
        for feature in 0..=255 {
            let command = get_features(feature).dword(10, u32::from(feature) | 3 << 8);
            let supported = matches!(
                scene.send(&controller, &command).outcome,
                AdminOutcome::Complete { status, .. } if status.is_success()
            );
            let listed = u32_at(&data, usize::from(feature) * 4) & 1 != 0;
            assert_eq!(listed, supported, "feature {feature:#x}");
        }
    }
}

#[test]
fn all_namespaces_are_in_one_optimized_group() {
    let scene = scene();
    let controller = scene.ready();
    let data = log(&scene, &controller, 0x0c, 64);
    assert_eq!((u64_at(&data, 0), u16_at(&data, 8)), (0, 1));
    assert_eq!((u32_at(&data, 16), u32_at(&data, 20)), (1, 2));
    assert_eq!(data[32], 1, "state");
    assert_eq!(ids(&data[48..]), [1, 3]);
    let groups_only = get_log_page(0x0c, NamespaceId::NONE, 0, 64);
    let dword = groups_only.entry.dword(10) | 1 << 8;
    let data = scene
        .send(&controller, &groups_only.dword(10, dword))
        .data();
    assert_eq!(u32_at(&data, 20), 0);
    assert_eq!(data[48..], [0; 16]);
}

fn entry(subsystem: &Nqn, kind: SubsystemType, address: &str) -> DiscoveryEntry {
    DiscoveryEntry {
        subsystem: subsystem.clone(),
        kind,
        address: address.parse().unwrap(),
        port_id: 7,
        tls: TlsUse::Permitted,
    }
}

#[test]
fn discovery_tells_a_host_where_it_may_go() {
    let mut scene = scene();
    scene.driver.generation = 42;
    scene.driver.entries = vec![
        entry(
            &discovery(),
            SubsystemType::CurrentDiscovery,
            "192.0.2.1:8009",
        ),
        entry(&nqn("shared"), SubsystemType::Nvm, "192.0.2.1:4420"),
        entry(&nqn("private"), SubsystemType::Nvm, "192.0.2.1:4420"),
        entry(&nqn("shared"), SubsystemType::Nvm, "[2001:db8::1]:4420"),
    ];
    let controller = scene.enabled("host", &discovery());
    let data = log(&scene, &controller, 0x70, 4096);
    assert_eq!((u64_at(&data, 0), u64_at(&data, 8)), (42, 3));
    assert_eq!(u16_at(&data, 16), 0, "RECFMT");
    let own = &data[1024..2048];
    assert_eq!(own[..4], [3, 1, 3, 4]);
    assert_eq!(u16_at(own, 10), 2, "EFLAGS");
    assert_eq!(&own[32..36], b"8009");
    let first = &data[2048..3072];
    assert_eq!(first[..4], [3, 1, 2, 4], "TRTYPE, ADRFAM, SUBTYPE, TREQ");
    assert_eq!((u16_at(first, 4), u16_at(first, 6)), (7, 0xffff));
    assert_eq!((u16_at(first, 8), u16_at(first, 10)), (128, 0));
    assert_eq!(&first[32..64], format!("{:32}", "4420").as_bytes());
    assert_eq!(first[256..512], nqn("shared").to_field());
    assert_eq!(&first[512..768], format!("{:256}", "192.0.2.1").as_bytes());
    assert_eq!(first[768..], [0; 256]);
    let second = &data[3072..4096];
    assert_eq!(second[1], 2, "ADRFAM");
    assert_eq!(&second[512..523], b"2001:db8::1");
    // The owner is told of the other one too.
    let owner = scene.enabled("owner", &discovery());
    assert_eq!(u64_at(&log(&scene, &owner, 0x70, 1024), 8), 4);
}

#[test]
fn a_page_read_in_pieces_is_the_page() {
    let mut scene = scene();
    scene.driver.entries = vec![entry(&nqn("shared"), SubsystemType::Nvm, "192.0.2.1:4420"); 3];
    let controller = scene.enabled("host", &discovery());
    let whole = log(&scene, &controller, 0x70, 4096);
    let pieces: Vec<_> = (0..4096 / 256)
        .flat_map(|n| log_at(&scene, &controller, 0x70, n * 256, 256))
        .collect();
    assert_eq!(whole, pieces);
}

#[test]
fn beyond_the_end_there_are_zeros_and_behind_it_nothing() {
    let scene = scene();
    let controller = scene.ready();
    let data = log_at(&scene, &controller, 3, 8, 1024);
    assert_eq!(&data[..8], b"0.1.0   ");
    assert_eq!(data[8..], [0; 1016]);
    assert_eq!(log_at(&scene, &controller, 3, 512, 64), [0; 64]);
    let beyond = get_log_page(3, NamespaceId::NONE, 516, 64);
    let status = |command| scene.send(&controller, &command).failure().0;
    assert_eq!(status(beyond), Status::INVALID_FIELD);
    let uneven = get_log_page(3, NamespaceId::NONE, 2, 64);
    assert_eq!(status(uneven), Status::INVALID_FIELD);
    let far = get_log_page(3, NamespaceId::NONE, u64::MAX - 3, 64);
    assert_eq!(status(far), Status::INVALID_FIELD);
    let by_index = get_log_page(3, NamespaceId::NONE, 0, 64).dword(14, 1 << 23);
    assert_eq!(status(by_index), Status::INVALID_FIELD);
}

#[test]
fn no_more_is_read_at_once_than_a_transfer_takes() {
    let scene = scene();
    let controller = scene.ready();
    assert_eq!(log(&scene, &controller, 3, 1 << 20).len(), 1 << 20);
    let too_long = get_log_page(3, NamespaceId::NONE, 0, (1 << 20) + 4);
    assert_eq!(
        scene.send(&controller, &too_long).failure().0,
        Status::INVALID_FIELD
    );
}
