//! MODE SENSE and MODE SELECT.

use longshore_scsi::sense::{AdditionalSense as Code, SenseKey};
use longshore_scsi::unit::LogicalUnitConfig;

use crate::driver::{Device, cdb_10, cdb_16, config, port};

const CONTROL: u8 = 0x0a;
const CHANGEABLE: u8 = 0x40;
const DEFAULT: u8 = 0x80;
const SAVED: u8 = 0xc0;

fn sense_6(device: &mut Device, page: u8) -> Vec<u8> {
    device.run(&[0x1a, 0, page, 0, 255, 0]).good().data_in
}

/// The control mode page with D_SENSE and SWP as given.
fn control(d_sense: bool, swp: bool) -> Vec<u8> {
    let (d_sense, swp) = (u8::from(d_sense) << 2, u8::from(swp) << 3);
    vec![CONTROL, 10, d_sense, 0x10, swp, 0, 0, 0, 0, 0, 0, 0]
}

fn select_6(device: &mut Device, list: &[u8]) -> crate::driver::CommandOutcome {
    device.send(&[0x15, 0x10, 0, 0, list.len() as u8, 0], list)
}

fn with_header(page: &[u8]) -> Vec<u8> {
    [&[0; 4], page].concat()
}

#[test]
fn all_pages_come_in_order_behind_header_and_block_descriptor() {
    let mut device = Device::new(1000);
    let data = sense_6(&mut device, 0x3f);
    assert_eq!(usize::from(data[0]), data.len() - 1);
    assert_eq!(data[1..4], [0, 0x10, 8]);
    assert_eq!(data[4..12], [0, 0, 3, 232, 0, 0, 2, 0]);
    assert_eq!(data[12..24], [0x01, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data[24..27], [0x08, 0x12, 0x04]);
    assert_eq!(data[44..56], control(false, false));
    assert_eq!(data[56..59], [0x1c, 10, 0x08]);
    assert_eq!(data.len(), 68);
    let subpages = device.run(&[0x1a, 0, 0x3f, 0xff, 255, 0]).good().data_in;
    assert_eq!(subpages, data);
}

#[test]
fn wce_says_what_the_volume_is_like() {
    let mut durable = Device::with(LogicalUnitConfig {
        volatile_cache: false,
        ..config(512, 1000)
    });
    assert_eq!(sense_6(&mut durable, 0x08)[14], 0);
    assert_eq!(sense_6(&mut Device::new(1000), 0x08)[14], 0x04);
    assert_eq!(sense_6(&mut Device::new(1000), 0x08 | CHANGEABLE)[14], 0);
}

#[test]
fn ten_byte_form_has_long_descriptors() {
    let mut device = Device::with(config(4096, 1 << 40));
    let short = device
        .run(&[0x5a, 0, CONTROL, 0, 0, 0, 0, 0, 255, 0])
        .good()
        .data_in;
    assert_eq!(short[..8], [0, 26, 0, 0x10, 0, 0, 0, 8]);
    assert_eq!(short[8..16], [255, 255, 255, 255, 0, 0, 16, 0]);
    let long = device
        .run(&[0x5a, 0x10, CONTROL, 0, 0, 0, 0, 0, 255, 0])
        .good()
        .data_in;
    assert_eq!(long[..8], [0, 34, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(
        long[8..24],
        [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0]
    );
    let none = device
        .run(&[0x5a, 0x08, CONTROL, 0, 0, 0, 0, 0, 255, 0])
        .good()
        .data_in;
    assert_eq!(none.len(), 8 + 12);
}

#[test]
fn allocation_length_cuts_the_data() {
    assert_eq!(
        Device::new(1000)
            .run(&[0x1a, 0, 0x3f, 0, 4, 0])
            .good()
            .data_in
            .len(),
        4
    );
    assert!(
        Device::new(1000)
            .run(&[0x1a, 0, 0x3f, 0, 0, 0])
            .good()
            .data_in
            .is_empty()
    );
}

#[test]
fn saved_values_and_unknown_pages_are_refused() {
    let mut device = Device::new(1000);
    device
        .run(&[0x1a, 0, CONTROL | SAVED, 0, 255, 0])
        .illegal(Code::SAVING_PARAMETERS_NOT_SUPPORTED);
    device
        .run(&[0x1a, 0, 0x05, 0, 255, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    device
        .run(&[0x1a, 0, CONTROL, 1, 255, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn d_sense_changes_the_format_of_sense_data_for_all() {
    let mut device = Device::new(1000);
    let out_of_range = cdb_16(0x88, 0, u64::MAX, 1);
    assert_eq!(device.run(&out_of_range).sense_bytes[0], 0x70);
    select_6(&mut device, &with_header(&control(true, false))).good();
    assert_eq!(sense_6(&mut device, CONTROL)[12..], control(true, false));
    assert_eq!(
        sense_6(&mut device, CONTROL | DEFAULT)[12..],
        control(false, false)
    );
    let sense = device.run(&out_of_range).sense_bytes;
    assert_eq!(
        (sense[0], sense[1] & 0xf, sense[2], sense[3]),
        (0x72, 5, 0x21, 0)
    );
}

#[test]
fn swp_protects_against_writes_and_shows_as_wp() {
    let mut device = Device::new(1000);
    assert_eq!(sense_6(&mut device, CONTROL | CHANGEABLE)[16], 0x08);
    select_6(&mut device, &with_header(&control(false, true))).good();
    assert_eq!(sense_6(&mut device, CONTROL)[2], 0x90);
    device.run(&cdb_10(0x28, 0, 0, 1)).good();
    device.send(&cdb_10(0x2a, 0, 0, 1), &[0; 512]).failed(
        SenseKey::DataProtect,
        Code::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED,
    );
    select_6(&mut device, &with_header(&control(false, false))).good();
    device.send(&cdb_10(0x2a, 0, 0, 1), &[0; 512]).good();
}

#[test]
fn a_change_is_announced_to_other_nexuses_only() {
    let mut device = Device::new(1000);
    let other = device.unit.attach(port(2));
    other.take_unit_attention();
    select_6(&mut device, &with_header(&control(false, false))).good();
    device.send_as(&other, &[0; 6], &[]).good();
    select_6(&mut device, &with_header(&control(true, false))).good();
    device.run(&[0; 6]).good();
    device
        .send_as(&other, &[0; 6], &[])
        .failed(SenseKey::UnitAttention, Code::MODE_PARAMETERS_CHANGED);
}

#[test]
fn reset_brings_the_defaults_back() {
    let mut device = Device::new(1000);
    select_6(&mut device, &with_header(&control(true, true))).good();
    device.unit.reset(longshore_scsi::unit::Reset::LogicalUnit);
    assert_eq!(device.run(&[0; 6]).sense_bytes[0], 0x70);
    assert_eq!(sense_6(&mut device, CONTROL)[12..], control(false, false));
}

#[test]
fn what_mode_sense_gave_can_be_sent_back() {
    let mut device = Device::new(1000);
    let data = sense_6(&mut device, 0x3f);
    select_6(&mut device, &data).good();
    let data = device
        .run(&[0x5a, 0x10, 0x3f, 0, 0, 0, 0, 0, 255, 0])
        .good()
        .data_in;
    let cdb = [0x55, 0x10, 0, 0, 0, 0, 0, 0, data.len() as u8, 0];
    device.send(&cdb, &data).good();
}

#[test]
fn select_of_what_cannot_be_changed_changes_nothing() {
    let mut device = Device::new(1000);
    let mut page = control(true, false);
    page[3] = 0;
    let outcome = select_6(&mut device, &with_header(&page));
    let sense = outcome
        .illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST)
        .sense
        .unwrap();
    assert_eq!(sense.field.unwrap().byte, 7);
    // The first page alone would have been fine.
    let caching = [&[0x08, 0x12, 0x00][..], &[0; 17]].concat();
    let both = [&[0; 4], &control(true, false)[..], &caching].concat();
    select_6(&mut device, &both).illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(sense_6(&mut device, CONTROL)[12..], control(false, false));
}

#[test]
fn select_checks_lengths() {
    let mut device = Device::new(1000);
    device.run(&[0x15, 0x10, 0, 0, 0, 0]).good();
    let list = with_header(&control(true, false));
    for length in [1, 3, 5, 15] {
        select_6(&mut device, &list[..length]).illegal(Code::PARAMETER_LIST_LENGTH_ERROR);
    }
    // Less data than the CDB says.
    device
        .send(&[0x15, 0x10, 0, 0, 16, 0], &list[..10])
        .illegal(Code::PARAMETER_LIST_LENGTH_ERROR);
    let mut wrong = list.clone();
    wrong[5] = 11;
    select_6(&mut device, &wrong).illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    wrong[4] = 0x05;
    select_6(&mut device, &wrong).illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    device
        .send(&[0x15, 0x11, 0, 0, 16, 0], &list)
        .illegal(Code::INVALID_FIELD_IN_CDB);
    device
        .send(&[0x15, 0x00, 0, 0, 16, 0], &list)
        .illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn block_descriptor_must_say_what_is_so() {
    let mut device = Device::new(1000);
    let list =
        |descriptor: [u8; 8]| [&[0, 0, 0, 8], &descriptor[..], &control(true, false)].concat();
    for good in [
        [0, 0, 3, 232, 0, 0, 2, 0],
        [0, 0, 0, 0, 0, 0, 2, 0],
        [255, 255, 255, 255, 0, 0, 2, 0],
    ] {
        select_6(&mut device, &list(good)).good();
    }
    for bad in [[0, 0, 3, 231, 0, 0, 2, 0], [0, 0, 0, 0, 0, 0, 16, 0]] {
        select_6(&mut device, &list(bad)).illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    }
    let odd = [&[0, 0, 0, 4][..], &[0; 4]].concat();
    select_6(&mut device, &odd).illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
}
