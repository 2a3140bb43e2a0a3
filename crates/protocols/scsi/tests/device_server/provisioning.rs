//! Logical block provisioning: its log page, its mode page, and what the two say together.

use longshore_scsi::sense::{AdditionalSense as Code, SenseKey};
use longshore_scsi::status::Status;
use longshore_scsi::unit::{LogicalUnitConfig, SharedSpace};

use crate::driver::{Device, config, port};

const MIB: u64 = 1 << 20;

fn space(capacity: u64, used: u64) -> SharedSpace {
    SharedSpace {
        size: capacity,
        capacity,
        used,
    }
}

/// A unit that shares so much space with others.
fn thin(block_size: u32, capacity: u64, used: u64) -> Device {
    let device = Device::with(LogicalUnitConfig {
        soft_thresholds: &[80, 95],
        ..config(block_size, 1000)
    });
    device.unit.set_shared_space(space(capacity, used));
    device
}

fn log(device: &mut Device, page: u8, subpage: u8, first: u8) -> crate::driver::CommandOutcome {
    device.run(&[0x4d, 0, page, subpage, 0, 0, first, 1, 0, 0])
}

fn exponent(device: &mut Device) -> u8 {
    device.run(&[0x12, 1, 0xb2, 0, 255, 0]).good().data_in[4]
}

#[test]
fn what_is_used_and_left_is_counted_in_threshold_sets() {
    let mut device = thin(512, 1000 * MIB, 300 * MIB + 1);
    assert_eq!(exponent(&mut device), 11, "2,048 blocks are 1 MiB");
    assert_eq!(exponent(&mut thin(4096, MIB, 0)), 8);
    let available = [0, 1, 0x23, 8, 0, 0, 2, 0xbb, 2, 0, 0, 0];
    let used = [0, 2, 0x23, 8, 0, 0, 1, 0x2d, 2, 0, 0, 0];
    for control in [0, 0x40, 0x80, 0xc0] {
        let data = log(&mut device, control | 0x0c, 0, 0).good().data_in;
        assert_eq!(data[..4], [0x8c, 0, 0, 24]);
        assert_eq!(data[4..], [available, used].concat());
    }
    let data = log(&mut device, 0x0c, 0, 2).good().data_in;
    assert_eq!(data, [&[0x8c, 0, 0, 12], &used[..]].concat());
    device.unit.set_shared_space(SharedSpace {
        used: 1001 * MIB,
        ..space(1000 * MIB, 0)
    });
    let data = log(&mut device, 0x0c, 0, 0).good().data_in;
    assert_eq!(data[8..12], [0; 4], "nothing is left");
}

#[test]
fn log_pages_that_are_listed_are_there_and_no_others() {
    let mut device = thin(512, MIB, 0);
    assert_eq!(
        log(&mut device, 0, 0, 0).good().data_in,
        [0, 0, 0, 2, 0, 0x0c]
    );
    assert_eq!(
        log(&mut device, 0, 0xff, 0).good().data_in,
        [0x40, 0xff, 0, 6, 0, 0, 0, 0xff, 0x0c, 0]
    );
    let mut plain = Device::new(1000);
    assert_eq!(log(&mut plain, 0, 0, 0).good().data_in, [0, 0, 0, 1, 0]);
    assert_eq!(exponent(&mut plain), 0);
    log(&mut plain, 0x0c, 0, 0).illegal(Code::INVALID_FIELD_IN_CDB);
    for (page, subpage, first) in [
        (0x0d, 0, 0),
        (0x0c, 1, 0),
        (0x0c, 0, 3),
        (0, 1, 0),
        (0, 0, 1),
    ] {
        log(&mut device, page, subpage, first).illegal(Code::INVALID_FIELD_IN_CDB);
    }
    for reserved in [1, 2] {
        device
            .run(&[0x4d, reserved, 0x0c, 0, 0, 0, 0, 1, 0, 0])
            .illegal(Code::INVALID_FIELD_IN_CDB);
    }
    let none = device.run(&[0x4d, 0, 0x0c, 0, 0, 0, 0, 0, 0, 0]).good();
    assert!(none.data_in.is_empty());
    let cut = device.run(&[0x4d, 0, 0x0c, 0, 0, 0, 0, 0, 7, 0]).good();
    assert_eq!(cut.data_in.len(), 7);
}

#[test]
fn thresholds_are_a_mode_page_and_follow_the_capacity() {
    let mut device = thin(512, 1000 * MIB, 0);
    let sense = |device: &mut Device, page, subpage| {
        let cdb = [0x1a, 8, page, subpage, 255, 0];
        device.run(&cdb).good().data_in[4..].to_vec()
    };
    let page = sense(&mut device, 0x1c, 2);
    assert_eq!(page[..5], [0x5c, 2, 0, 28, 0]);
    assert_eq!(page[16..24], [0x80, 1, 0, 0, 0, 0, 0, 200]);
    assert_eq!(page[24..], [0x80, 1, 0, 0, 0, 0, 0, 50]);
    let changeable = sense(&mut device, 0x5c, 2);
    assert_eq!(changeable, [&[0x5c, 2, 0, 28], &[0; 28][..]].concat());
    assert_eq!(sense(&mut device, 0x01, 0)[7], 0x80, "LBPERE");
    // Pages alone do not have it, and subpages do.
    assert_eq!(sense(&mut device, 0x1c, 0).len(), 12);
    assert_eq!(sense(&mut device, 0x1c, 0xff).len(), 12 + 32);
    assert_eq!(sense(&mut device, 0x3f, 0).len(), 56);
    let all = sense(&mut device, 0x3f, 0xff);
    assert_eq!(all[56..], page);
    // What was read may be sent back, and nothing else.
    let list = [&[0; 4], &all[..]].concat();
    device.send(&[0x15, 0x10, 0, 0, 92, 0], &list).good();
    // In the longer form, and with PS, which MODE SENSE may have set.
    let ten = [0x5a, 8, 0x1c, 2, 0, 0, 0, 1, 0, 0];
    let mut read = device.run(&ten).good().data_in;
    assert_eq!(read[..2], [0, 38]);
    assert_eq!(read[8..], page);
    read[8] |= 0x80;
    device
        .send(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 40, 0], &read)
        .good();
    device
        .run(&[0x1a, 8, 0xdc, 2, 255, 0])
        .illegal(Code::SAVING_PARAMETERS_NOT_SUPPORTED);
    for byte in [56 + 4, 56 + 5, 56 + 7, 56 + 8, 56 + 20, 56 + 27] {
        let mut wrong = list.clone();
        wrong[byte] ^= 1;
        device
            .send(&[0x15, 0x10, 0, 0, 92, 0], &wrong)
            .illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    }
    device
        .send(&[0x15, 0x10, 0, 0, 62, 0], &list[..62])
        .illegal(Code::PARAMETER_LIST_LENGTH_ERROR);

    let other = device.unit.attach(port(2));
    other.take_unit_attention();
    // As maps grow, there is room for less data; that moves no threshold.
    let smaller = SharedSpace {
        size: 1000 * MIB,
        ..space(900 * MIB, MIB)
    };
    device.unit.set_shared_space(smaller);
    device.run(&[0; 6]).good();
    assert_eq!(sense(&mut device, 0x1c, 2), page);
    let data = log(&mut device, 0x0c, 0, 1).good().data_in;
    assert_eq!(data[8..12], [0, 0, 3, 0x83]);
    // Another size does.
    device.unit.set_shared_space(space(2000 * MIB, 0));
    device
        .run(&[0; 6])
        .failed(SenseKey::UnitAttention, Code::MODE_PARAMETERS_CHANGED);
    device
        .send_as(&other, &[0; 6], &[])
        .failed(SenseKey::UnitAttention, Code::MODE_PARAMETERS_CHANGED);
    device
        .send(&[0x15, 0x10, 0, 0, 92, 0], &list)
        .illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(sense(&mut device, 0x1c, 2)[20..24], [0, 0, 1, 0x90]);
}

#[test]
fn a_unit_that_shares_no_space_has_no_such_page() {
    let mut device = Device::new(1000);
    device
        .run(&[0x1a, 8, 0x1c, 2, 255, 0])
        .illegal(Code::INVALID_FIELD_IN_CDB);
    let list = [&[0; 4], &[0x5c, 2, 0, 12][..], &[0; 12]].concat();
    device
        .send(&[0x15, 0x10, 0, 0, 20, 0], &list)
        .illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
    // Nor is the subpage format right for a page without subpages.
    let list = [&[0; 4], &[0x4a, 0, 0, 8][..], &[0; 8]].concat();
    device
        .send(&[0x15, 0x10, 0, 0, 16, 0], &list)
        .illegal(Code::INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn the_log_is_read_under_reservations_of_others() {
    let mut device = thin(512, MIB, 0);
    let other = device.unit.attach(port(2));
    other.take_unit_attention();
    device.send_as(&other, &[0x16, 0, 0, 0, 0, 0], &[]).good();
    assert_eq!(device.run(&[0; 6]).status, Status::RESERVATION_CONFLICT);
    log(&mut device, 0x0c, 0, 0).good();
}
