//! INQUIRY, REPORT LUNS, REQUEST SENSE, READ CAPACITY and other small data.

use longshore_block::names::WorldwideNames;
use longshore_scsi::sense::{AdditionalSense as Code, SenseKey};
use longshore_scsi::unit::LogicalUnitConfig;
use longshore_scsi::unit_attention::UnitAttention;

use crate::driver::{Device, cdb_10, cdb_16, config};

fn vpd(device: &mut Device, page: u8) -> Vec<u8> {
    let data = device.run(&[0x12, 1, page, 0x01, 0x00, 0]).good().data_in;
    assert_eq!(data[1], page);
    assert_eq!(
        usize::from(data[2]) << 8 | usize::from(data[3]),
        data.len() - 4
    );
    data
}

fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().unwrap())
}

#[test]
fn standard_inquiry_data_is_spc_4_and_names_us() {
    let mut device = Device::new(1000);
    let data = device.run(&[0x12, 0, 0, 0x02, 0x00, 0]).good().data_in;
    assert_eq!(data.len(), 96);
    assert_eq!(data[..8], [0, 0, 6, 0x12, 91, 0x18, 0x10, 0x02]);
    assert_eq!(&data[8..36], b"LONGSHORVIRTUAL-DISK    0.1 ");
    assert_eq!(
        data[58..66],
        [0x00, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0]
    );
    for length in 5..=96_u8 {
        let cut = device.run(&[0x12, 0, 0, 0, length, 0]).good().data_in;
        assert_eq!(cut, data[..usize::from(length)]);
    }
}

#[test]
fn inquiry_does_not_clear_a_unit_attention() {
    let mut device = Device::new(1000);
    device.unit.resize(2000);
    device.run(&[0x12, 0, 0, 0, 96, 0]).good();
    device.run(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).good();
    device
        .run(&[0; 6])
        .failed(SenseKey::UnitAttention, Code::CAPACITY_DATA_HAS_CHANGED);
    device.run(&[0; 6]).good();
}

#[test]
fn a_soft_threshold_is_told_after_what_is_more_urgent() {
    let mut device = Device::new(1000);
    device
        .unit
        .establish_for_all(UnitAttention::SoftThresholdReached);
    device.unit.resize(2000);
    device
        .run(&[0; 6])
        .failed(SenseKey::UnitAttention, Code::CAPACITY_DATA_HAS_CHANGED);
    device.run(&[0; 6]).failed(
        SenseKey::UnitAttention,
        Code::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
    );
    device.run(&[0; 6]).good();
}

#[test]
fn page_code_without_evpd_and_unknown_pages_are_refused() {
    let mut device = Device::new(1000);
    device
        .run(&[0x12, 0, 1, 1, 0, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    device
        .run(&[0x12, 1, 0xb5, 1, 0, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    device
        .run(&[0x12, 2, 0, 1, 0, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn every_page_listed_can_be_read() {
    let mut device = Device::new(1000);
    let pages = vpd(&mut device, 0)[4..].to_vec();
    assert_eq!(pages, [0x00, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2]);
    for page in pages {
        vpd(&mut device, page);
    }
    assert_eq!(&vpd(&mut device, 0x80)[4..], b"LS0001");
}

#[test]
fn designators_come_from_the_uuid_and_find_the_unit_again() {
    let mut device = Device::new(1000);
    let data = vpd(&mut device, 0x83);
    let mut rest = &data[4..];
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(rest[3]);
        seen.push((rest[0], rest[1], rest[4..4 + length].to_vec()));
        rest = &rest[4 + length..];
    }
    let kinds: Vec<_> = seen
        .iter()
        .map(|(code, flags, _)| (*code, *flags))
        .collect();
    let expected = [
        (0x01, 0x03),
        (0x02, 0x01),
        (0x01, 0x02),
        (0x51, 0x94),
        (0x51, 0x95),
        (0x53, 0x98),
        (0x53, 0xa8),
    ];
    assert_eq!(kinds, expected);
    let naa = &seen[0].2;
    assert_eq!(
        naa[..],
        [
            0x62, 0x24, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
            0x77, 0x88
        ]
    );
    assert_eq!(seen[2].2, [0x12, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    assert_eq!(seen[3].2, [0, 0, 0, 1]);
    assert_eq!(seen[4].2, [0, 0, 0, 1]);
    assert!(
        seen[5]
            .2
            .starts_with(b"iqn.2026-11.local.longshore:default,t,0x0001\0")
    );
    for (_, _, designator) in &seen[..3] {
        assert!(device.unit.is_designated_by(designator));
    }
    assert!(!device.unit.is_designated_by(&seen[3].2));
}

#[test]
fn block_limits_are_those_that_are_enforced() {
    let data = vpd(&mut Device::new(1000), 0xb0);
    assert_eq!(data.len(), 64);
    assert_eq!(data[4..8], [1, 255, 0, 8]);
    assert_eq!(be32(&data, 8), 4096);
    assert_eq!(be32(&data, 12), 512);
    assert_eq!((be32(&data, 20), be32(&data, 24)), (1 << 20, 256));
    assert_eq!((be32(&data, 28), be32(&data, 32)), (8, 0x8000_0000));
    assert_eq!((be32(&data, 36), be32(&data, 40)), (0, 32_768));
    assert_eq!(be32(&data, 44), 256);
    let thick = LogicalUnitConfig {
        unmap_granularity_blocks: None,
        ..config(4096, 1000)
    };
    let data = vpd(&mut Device::with(thick), 0xb0);
    assert_eq!(data[20..36], [0; 16]);
    assert_eq!(data[6..8], [0, 1]);
}

#[test]
fn an_unmap_granularity_of_one_block_is_not_reported() {
    let single = LogicalUnitConfig {
        unmap_granularity_blocks: Some(1),
        ..config(4096, 1000)
    };
    let data = vpd(&mut Device::with(single), 0xb0);
    assert_eq!((be32(&data, 20), be32(&data, 24)), (1 << 20, 256));
    assert_eq!((be32(&data, 28), be32(&data, 32)), (0, 0));
}

#[test]
fn provisioning_shows_in_capacity_and_vpd_alike() {
    let mut thin = Device::new(1000);
    assert_eq!(vpd(&mut thin, 0xb2)[4..], [0, 0xe6, 2, 0]);
    let capacity = thin.run(&cdb_16(0x9e, 0x10, 0, 32)).good().data_in;
    assert_eq!(capacity[7..16], [0xe7, 0, 0, 2, 0, 0, 3, 0xc0, 0]);
    let thick = LogicalUnitConfig {
        unmap_granularity_blocks: None,
        ..config(512, 1000)
    };
    let mut thick = Device::with(thick);
    assert_eq!(vpd(&mut thick, 0xb2)[4..], [0, 0, 0, 0]);
    assert_eq!(thick.run(&cdb_16(0x9e, 0x10, 0, 32)).good().data_in[14], 0);
}

#[test]
fn the_physical_block_shows_in_capacity_and_block_limits_alike() {
    for (block, physical, exponent) in [(512, 512, 0), (512, 4096, 3), (4096, 65_536, 4)] {
        let mut device = Device::with(LogicalUnitConfig {
            physical_block_size: physical,
            ..config(block, 1000)
        });
        let capacity = device.run(&cdb_16(0x9e, 0x10, 0, 32)).good().data_in;
        assert_eq!(capacity[13], exponent);
        let granularity = u16::try_from(physical / block).unwrap();
        let limits = vpd(&mut device, 0xb0);
        assert_eq!(limits[6..8], granularity.to_be_bytes());
        assert_eq!(be32(&limits, 12) % u32::from(granularity), 0);
    }
}

#[test]
fn a_disk_that_came_from_elsewhere_keeps_vendor_product_and_names() {
    let moved = LogicalUnitConfig {
        vendor: Some("LIO-ORG".into()),
        product: Some("disk0".into()),
        names: WorldwideNames {
            naa: Some("naa.5001405aaaabbbbb".parse().unwrap()),
            ..WorldwideNames::default()
        },
        ..config(512, 1000)
    };
    let mut device = Device::with(moved);
    let data = device.run(&[0x12, 0, 0, 0, 96, 0]).good().data_in;
    assert_eq!(data[8..32], *b"LIO-ORG disk0           ");
    let page = vpd(&mut device, 0x83);
    let naa = [0x50, 0x01, 0x40, 0x5a, 0xaa, 0xab, 0xbb, 0xbb];
    assert_eq!(
        page[4..8],
        [0x01, 0x03, 0, 8],
        "the first designator is the NAA"
    );
    assert_eq!(page[8..16], naa);
    assert_eq!(page[20..28], *b"LIO-ORG ", "of the T10 vendor ID");
    let eui64 = [0x00, 0x14, 0x05, 0x0a, 0xaa, 0xab, 0xbb, 0xbb];
    assert!(device.unit.is_designated_by(&naa) && device.unit.is_designated_by(&eui64));
}

#[test]
fn a_disk_whose_eui_64_is_none_has_no_such_designator() {
    let designators = |eui64: Option<&str>| {
        let names = WorldwideNames {
            eui64: eui64.map(|text| text.parse().unwrap()),
            ..WorldwideNames::default()
        };
        let mut device = Device::with(LogicalUnitConfig {
            names,
            ..config(512, 1000)
        });
        let page = vpd(&mut device, 0x83);
        let (mut at, mut types) = (4, Vec::new());
        while at < page.len() {
            types.push(page[at + 1] & 0x0f);
            at += 4 + usize::from(page[at + 3]);
        }
        types
    };
    assert!(designators(None).contains(&2));
    assert!(designators(Some("0011223344556677")).contains(&2));
    assert!(!designators(Some("none")).contains(&2));
}

#[test]
fn medium_kind_is_reported() {
    let disk = LogicalUnitConfig {
        rotational: true,
        ..config(512, 1000)
    };
    assert_eq!(vpd(&mut Device::with(disk), 0xb1)[4..6], [0, 0]);
    assert_eq!(vpd(&mut Device::new(1000), 0xb1)[4..6], [0, 1]);
}

#[test]
fn read_capacity_wants_no_lba_without_pmi() {
    let mut device = Device::new(1000);
    assert_eq!(
        device.run(&cdb_10(0x25, 0, 0, 0)).good().data_in,
        [0, 0, 3, 231, 0, 0, 2, 0]
    );
    device
        .run(&cdb_10(0x25, 0, 1, 0))
        .illegal(Code::INVALID_FIELD_IN_CDB);
    device.run(&cdb_10(0x25, 0, 1, 1)).good();
    device
        .run(&cdb_16(0x9e, 0x10, 1, 32))
        .illegal(Code::INVALID_FIELD_IN_CDB);
    for length in 0..16 {
        let outcome = device.run(&cdb_16(0x9e, 0x10, 0, length)).good();
        assert_eq!(outcome.data_in.len() as u32, length);
    }
}

#[test]
fn report_luns_lists_units_and_no_well_known_ones() {
    let mut device = Device::new(1000);
    for select in [0, 2] {
        let data = device
            .run(&[0xa0, 0, select, 0, 0, 0, 0, 0, 1, 0, 0, 0])
            .good()
            .data_in;
        assert_eq!(data[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
        assert_eq!(data[16..24], [0x41, 0x2c, 0, 0, 0, 0, 0, 0]);
    }
    let none = device
        .run(&[0xa0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0])
        .good()
        .data_in;
    assert_eq!(none, [0; 8]);
    device
        .run(&[0xa0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn request_sense_gives_the_unit_attention_once_in_either_format() {
    let mut device = Device::new(1000);
    device.unit.resize(2000);
    let data = device.run(&[0x03, 1, 0, 0, 252, 0]).good().data_in;
    assert_eq!(data[..4], [0x72, 6, 0x2a, 0x09]);
    let data = device.run(&[0x03, 0, 0, 0, 252, 0]).good().data_in;
    assert_eq!((data.len(), data[0], data[2], data[12]), (18, 0x70, 0, 0));
}

#[test]
fn lun_without_unit_answers_what_discovery_needs() {
    let mut device = Device::new(1000);
    let inquiry = device.without_unit(&[0x12, 0, 0, 0, 36, 0]).good().data_in;
    assert_eq!((inquiry.len(), inquiry[0]), (36, 0x7f));
    assert_eq!(
        inquiry[5] & 0x30,
        0,
        "there is no port group without a unit"
    );
    device
        .without_unit(&[0x12, 1, 0x83, 0, 36, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    let luns = device
        .without_unit(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
        .good()
        .data_in;
    assert_eq!(luns[3], 16);
    let sense = device.without_unit(&[0x03, 0, 0, 0, 252, 0]).good().data_in;
    assert_eq!((sense[2], sense[12]), (5, 0x25));
    for opcode in [0x00, 0x28, 0xff] {
        device
            .without_unit(&cdb_16(opcode, 0, 0, 1))
            .illegal(Code::LOGICAL_UNIT_NOT_SUPPORTED);
    }
}

#[test]
fn defect_lists_are_present_and_empty() {
    let mut device = Device::new(1000);
    assert_eq!(
        device
            .run(&[0x37, 0, 0x18, 0, 0, 0, 0, 0, 32, 0])
            .good()
            .data_in,
        [0, 0x18, 0, 0]
    );
    let data = device
        .run(&[0xb7, 0x0d, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0])
        .good()
        .data_in;
    assert_eq!(data, [0, 0x0d, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn unknown_commands_and_naca_are_refused() {
    let mut device = Device::new(1000);
    let outcome = device
        .run(&[0xff; 6])
        .illegal(Code::INVALID_COMMAND_OPERATION_CODE);
    assert!(outcome.decided_early);
    device
        .run(&[0x4c, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .illegal(Code::INVALID_COMMAND_OPERATION_CODE);
    device
        .run(&cdb_16(0x9e, 0x1f, 0, 32))
        .illegal(Code::INVALID_FIELD_IN_CDB);
    let outcome = device
        .run(&[0, 0, 0, 0, 0, 0x04])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    assert_eq!(
        (outcome.sense_bytes[15], outcome.sense_bytes[17]),
        (0xca, 5)
    );
    device.run(&[]).illegal(Code::INVALID_FIELD_IN_CDB);
    device
        .run(&[0x28, 0, 0, 0, 0, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn prevent_allow_holds_trivially() {
    let mut device = Device::new(1000);
    device.run(&[0x1e, 0, 0, 0, 1, 0]).good();
    device.run(&[0x1e, 0, 0, 0, 0, 0]).good();
}
