//! REPORT SUPPORTED OPERATION CODES against what really happens.

use longshore_scsi::sense::AdditionalSense as Code;
use longshore_scsi::unit::LogicalUnitConfig;

use crate::driver::{Device, config};

const RCTD: u8 = 0x80;

fn report(
    device: &mut Device,
    options: u8,
    opcode: u8,
    action: u8,
) -> crate::driver::CommandOutcome {
    device.run(&[
        0xa3, 0x0c, options, opcode, 0, action, 0, 0, 0xff, 0xff, 0, 0,
    ])
}

/// Operation code, service action, SERVACTV and CDB length of every command.
fn all(device: &mut Device) -> Vec<(u8, u8, bool, u8)> {
    let data = report(device, 0, 0, 0).good().data_in;
    assert_eq!(data.len() % 8, 4);
    data[4..]
        .chunks_exact(8)
        .map(|d| (d[0], d[3], d[5] & 1 != 0, d[7]))
        .collect()
}

#[test]
fn every_command_listed_can_be_asked_for_alone() {
    let mut device = Device::new(1000);
    for (opcode, action, has_action, length) in all(&mut device) {
        let (right, wrong) = if has_action { (2, 1) } else { (1, 2) };
        report(&mut device, wrong, opcode, action).illegal(Code::INVALID_FIELD_IN_CDB);
        for options in [right, 3] {
            let data = report(&mut device, options, opcode, action).good().data_in;
            assert_eq!(data[..4], [0, 3, 0, length]);
            assert_eq!((data[4], data.len()), (opcode, 4 + usize::from(length)));
        }
    }
}

#[test]
fn every_command_listed_is_known_and_no_other() {
    let mut device = Device::new(1000);
    let listed = all(&mut device);
    for opcode in 0..=255 {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        let known = listed.iter().any(|(listed, ..)| *listed == opcode);
        let outcome = device.run(&cdb);
        let unknown = outcome
            .sense
            .is_some_and(|sense| sense.additional == Code::INVALID_COMMAND_OPERATION_CODE);
        assert_eq!(known, !unknown, "{opcode:#04x}");
    }
}

#[test]
fn bits_outside_the_usage_map_are_refused() {
    let mut device = Device::new(1 << 20);
    for (opcode, action, has_action, length) in all(&mut device) {
        let options = if has_action { 2 } else { 1 };
        let usage = report(&mut device, options, opcode, action).good().data_in[4..].to_vec();
        for bit in 8..usize::from(length) * 8 {
            let (byte, mask) = (bit / 8, 0x80_u8 >> (bit % 8));
            let action_field = has_action && byte == 1 && mask < 0x20;
            let old_lun = length == 6 && byte == 1 && mask >= 0x20;
            let vendor = byte + 1 == usize::from(length) && mask >= 0x40;
            let ignored = matches!(opcode, 0x5f | 0x84) && byte == 2;
            if usage[byte] & mask != 0 || action_field || old_lun || vendor || ignored {
                continue;
            }
            let mut cdb = [0; 16];
            cdb[0] = opcode;
            cdb[1] = action;
            cdb[byte] |= mask;
            let outcome = device
                .send(&cdb, &[0; 4096])
                .illegal(Code::INVALID_FIELD_IN_CDB);
            let field = outcome.sense.unwrap().field.unwrap();
            assert_eq!(
                (usize::from(field.byte), 1 << field.bit.unwrap()),
                (byte, mask)
            );
        }
    }
}

#[test]
fn timeouts_come_when_asked_for() {
    let mut device = Device::new(1000);
    let data = report(&mut device, RCTD, 0, 0).good().data_in;
    assert_eq!(data[4..].len() % 20, 0);
    for descriptor in data[4..].chunks_exact(20) {
        assert_eq!(descriptor[5] & 2, 2);
        assert_eq!(descriptor[8..10], [0, 10]);
        assert_ne!(descriptor[16..20], [0; 4]);
    }
    let one = report(&mut device, RCTD | 1, 0x28, 0).good().data_in;
    assert_eq!((one[1], one.len()), (0x83, 4 + 10 + 12));
}

#[test]
fn commands_that_do_not_exist_are_reported_as_such() {
    let mut device = Device::new(1000);
    for (options, opcode, action) in [(1, 0x4c, 0), (2, 0x9e, 0x01), (3, 0x28, 1), (3, 0xff, 0)] {
        let data = report(&mut device, options, opcode, action).good().data_in;
        assert_eq!(data, [0, 1, 0, 0]);
    }
    report(&mut device, 4, 0x28, 0).illegal(Code::INVALID_FIELD_IN_CDB);
}

#[test]
fn unmap_is_listed_only_where_it_works() {
    let thick = LogicalUnitConfig {
        unmap_granularity_blocks: None,
        ..config(512, 1000)
    };
    let mut thick = Device::with(thick);
    assert!(!all(&mut thick).iter().any(|(opcode, ..)| *opcode == 0x42));
    assert_eq!(report(&mut thick, 1, 0x42, 0).good().data_in, [0, 1, 0, 0]);
    assert!(
        all(&mut Device::new(1000))
            .iter()
            .any(|(opcode, ..)| *opcode == 0x42)
    );
}

#[test]
fn task_management_functions_are_those_of_iscsi() {
    let mut device = Device::new(1000);
    let cdb = |repd| [0xa3, 0x0d, repd, 0, 0, 0, 0, 0, 0, 64, 0, 0];
    assert_eq!(device.run(&cdb(0)).good().data_in, [0xda, 0, 0, 0]);
    assert_eq!(device.run(&cdb(0x80)).good().data_in.len(), 16);
}
