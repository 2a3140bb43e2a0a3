//! REPORT TARGET PORT GROUPS, and what INQUIRY says of ports and their group.

use longshore_block::reservation::Reservations;
use longshore_scsi::nexus::NexusPort;
use longshore_scsi::sense::AdditionalSense as Code;
use longshore_scsi::unit::LogicalUnit;

use crate::driver::{CommandOutcome, Device, config, port};

const LENGTH_ONLY: u8 = 0x00;
const EXTENDED: u8 = 0x20;

fn report(device: &mut Device, format: u8, allocation_length: u32) -> CommandOutcome {
    let [a, b, c, d] = allocation_length.to_be_bytes();
    device.run(&[0xa3, format | 0x0a, 0, 0, 0, 0, a, b, c, d, 0, 0])
}

/// Relative identifiers in a report with a header of that length.
fn ports(data: &[u8], header: usize) -> Vec<u16> {
    let ports = data[header + 8..].chunks_exact(4);
    ports
        .map(|port| u16::from_be_bytes([port[2], port[3]]))
        .collect()
}

/// Designators of the port in VPD page 83h: type and value.
fn designators_of_port(device: &mut Device) -> Vec<(u8, u16)> {
    let page = device.run(&[0x12, 1, 0x83, 1, 0, 0]).good().data_in;
    let mut rest = &page[4..];
    let mut found = Vec::new();
    while let [_, kind, _, length, after @ ..] = rest {
        let (value, next) = after.split_at(usize::from(*length));
        if kind & 0xb0 == 0x90 && value.len() == 4 {
            found.push((kind & 0x0f, u16::from_be_bytes([value[2], value[3]])));
        }
        rest = next;
    }
    found
}

/// A unit behind those ports, with a session through `own`.
fn device_behind(configured: &[u16], own: u16) -> Device {
    let mut device = Device::new(1000);
    device.unit = LogicalUnit::new(config(512, 1000), Reservations::new());
    device.unit.set_target_ports(configured);
    device.nexus = device.unit.attach(NexusPort {
        relative_target_port: own,
        ..port(1)
    });
    device.nexus.take_unit_attention();
    device
}

#[test]
fn the_one_group_is_optimized_and_has_every_port_of_the_unit() {
    let mut device = device_behind(&[300, 2], 2);
    let data = report(&mut device, LENGTH_ONLY, 1024).good().data_in;
    let expected = [
        0, 0, 0, 16, // RETURN DATA LENGTH
        0x00, 0x01, 0, 1, 0, 0, 0, 2, // active/optimized alone, group 1, two ports
        0, 0, 0, 2, 0, 0, 1, 0x2c,
    ];
    assert_eq!(data, expected);
}

#[test]
fn the_extended_header_stands_before_the_same_descriptor() {
    let mut device = device_behind(&[1, 2], 1);
    let short = report(&mut device, LENGTH_ONLY, 1024).good().data_in;
    let long = report(&mut device, EXTENDED, 1024).good().data_in;
    assert_eq!(long[..8], [0, 0, 0, 20, 0x10, 0, 0, 0]);
    assert_eq!(long[8..], short[4..]);
}

#[test]
fn other_parameter_data_formats_are_refused_at_their_field() {
    let mut device = Device::new(1000);
    for format in 2..8 {
        let outcome = report(&mut device, format << 5, 1024).illegal(Code::INVALID_FIELD_IN_CDB);
        let field = outcome.sense.unwrap().field.unwrap();
        assert_eq!((field.byte, field.bit), (1, Some(7)));
    }
}

#[test]
fn the_allocation_length_cuts_the_data_and_not_the_length_that_they_tell() {
    let mut device = device_behind(&[1, 2, 3], 1);
    for format in [LENGTH_ONLY, EXTENDED] {
        let whole = report(&mut device, format, 1024).good().data_in;
        let told = u32::from_be_bytes(whole[..4].try_into().unwrap());
        assert_eq!(told as usize, whole.len() - 4);
        for length in 0..=whole.len() {
            let cut = report(&mut device, format, length as u32).good().data_in;
            assert_eq!(cut, whole[..length]);
        }
    }
}

#[test]
fn inquiry_names_a_port_and_a_group_that_the_report_has() {
    for own in [1, 7, 65_535] {
        let mut device = device_behind(&[1, 7, 65_535], own);
        let standard = device.run(&[0x12, 0, 0, 0, 96, 0]).good().data_in;
        assert_eq!(standard[5] >> 4 & 3, 0b01, "implicit access alone");
        let data = report(&mut device, LENGTH_ONLY, 1024).good().data_in;
        let group = u16::from_be_bytes([data[6], data[7]]);
        assert_eq!(designators_of_port(&mut device), [(4, own), (5, group)]);
        assert!(ports(&data, 4).contains(&own));
    }
}

#[test]
fn a_set_of_ports_replaces_the_one_before() {
    let mut device = device_behind(&[1, 2, 3], 2);
    device.unit.set_target_ports(&[2, 9]);
    let data = report(&mut device, EXTENDED, 1024).good().data_in;
    assert_eq!(ports(&data, 8), [2, 9]);
}

#[test]
fn the_port_of_the_command_is_listed_however_many_others_there_are() {
    let many: Vec<u16> = (1..=400).collect();
    let mut device = device_behind(&many, 1000);
    let data = report(&mut device, EXTENDED, 8192).good().data_in;
    let listed = ports(&data, 8);
    assert_eq!((listed.len(), data[15]), (64, 64));
    assert_eq!(listed.last(), Some(&1000));
}

#[test]
fn the_state_is_reported_and_never_set() {
    let mut device = Device::new(1000);
    let usage = device
        .run(&[0xa3, 0x0c, 2, 0xa3, 0, 0x0a, 0, 0, 1, 0, 0, 0])
        .good()
        .data_in;
    let expected = [
        0, 3, 0, 12, 0xa3, 0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0,
    ];
    assert_eq!(usage, expected);
    device
        .run(&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0])
        .illegal(Code::INVALID_COMMAND_OPERATION_CODE);
}
