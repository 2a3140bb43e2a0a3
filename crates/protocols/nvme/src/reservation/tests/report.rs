//! Reservation Report.

use super::*;

#[test]
fn an_empty_report_is_all_zeros() {
    let report = World::new().report();
    assert_eq!(
        report,
        Reported {
            generation: 0,
            kind: 0,
            persists: false,
            registrants: vec![],
        }
    );
}

#[test]
fn a_report_is_byte_exact() {
    let (mut world, [one, two]) = World::reserved::<2>(EXCLUSIVE_ACCESS_REGISTRANTS_ONLY);
    assert_eq!(
        world.register(&one, REPLACE, 11, 0x0102_0304_0506_0708),
        SUCCESS
    );
    assert_eq!(
        world.register(&two, REPLACE | CPTPL_PERSIST, 22, 23),
        SUCCESS
    );
    let mut entry = entry(io::RESERVATION_REPORT, 192 / 4 - 1);
    entry.set_dword(11, 1);
    let report = Report::begin(&entry).unwrap();
    assert_eq!(report.data_length(), 192);
    let mut data = vec![0xaa];
    report.execute(&world.reservations, usize::MAX, &mut data);
    let mut expected = vec![0; 192];
    expected[..10].copy_from_slice(&[4, 0, 0, 0, 4, 2, 0, 0, 0, 1]);
    expected[64..67].copy_from_slice(&[0xff, 0xff, 1]);
    expected[72..80].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    expected[80..96].fill(1);
    expected[128..131].copy_from_slice(&[0xff, 0xff, 0]);
    expected[136] = 23;
    expected[144..160].fill(2);
    assert_eq!(data[0], 0xaa, "appended");
    assert_eq!(data[1..], expected);
}

#[test]
fn a_report_is_as_long_as_the_host_asks_for() {
    let (world, _hosts) = World::reserved::<2>(WRITE_EXCLUSIVE);
    let whole = {
        let mut data = Vec::new();
        super::super::report::encode(world.reservations.lock().table(), &mut data);
        data
    };
    for dwords in [1, 2, 16, 17, 48, 49, 2000] {
        let mut entry = entry(io::RESERVATION_REPORT, dwords - 1);
        entry.set_dword(11, 1);
        let mut data = Vec::new();
        let report = Report::begin(&entry).unwrap();
        report.execute(&world.reservations, 4096, &mut data);
        let length = (dwords as usize * 4).min(4096);
        assert_eq!(data.len(), length);
        let common = length.min(whole.len());
        assert_eq!(data[..common], whole[..common]);
        assert!(data[common..].iter().all(|byte| *byte == 0));
    }
    let mut entry = entry(io::RESERVATION_REPORT, u32::MAX);
    entry.set_dword(11, 1);
    assert_eq!(Report::begin(&entry).unwrap().data_length(), 1 << 34);
}

#[test]
fn the_short_structure_cannot_name_our_hosts() {
    let refused = Report::begin(&entry(io::RESERVATION_REPORT, 15));
    let status = Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT.do_not_retry();
    assert_eq!(refused, Err(status));
}

#[test]
fn all_registrants_are_reported_as_holders_where_they_are() {
    for kind in ALL_TYPES {
        let (world, _hosts) = World::reserved::<3>(kind);
        let holds: Vec<bool> = world
            .report()
            .registrants
            .iter()
            .map(|one| one.holds)
            .collect();
        let all_hold = kind >= WRITE_EXCLUSIVE_ALL_REGISTRANTS;
        assert_eq!(holds, [true, all_hold, all_hold], "type {kind}");
    }
}

#[test]
fn iscsi_registrants_get_a_host_identifier_of_their_own() {
    let nexus = |host: &str, last, port| NexusIdentity::Iscsi {
        initiator_name: format!("iqn.2026-11.local.host:{host}"),
        isid: [0x80, 0, 0, 0, 0, last],
        relative_target_port: port,
    };
    let identifier = reported_host_identifier(&nexus("1", 1, 1));
    // Hosts keep what they have seen: it must not change between versions.
    assert_eq!(
        uuid::Uuid::from_bytes(identifier).to_string(),
        "3b631c1d-51f5-57ce-8abf-94c00dfe34f2"
    );
    for other in [nexus("2", 1, 1), nexus("1", 2, 1), nexus("1", 1, 2)] {
        assert_ne!(reported_host_identifier(&other), identifier);
    }
    let host_identifier = [7; 16];
    let host = NexusIdentity::NvmeHost { host_identifier };
    assert_eq!(reported_host_identifier(&host), host_identifier);
}

#[test]
fn types_have_the_numbers_of_nvme() {
    for code in 0..=255 {
        let kind = type_from_code(code);
        assert_eq!(kind.is_some(), ALL_TYPES.contains(&code));
        assert_eq!(kind.map(type_code), kind.is_some().then_some(code));
    }
}
