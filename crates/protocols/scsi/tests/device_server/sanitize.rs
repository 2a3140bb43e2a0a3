//! SANITIZE, and commands beside it.

use longshore_block::sanitize::{Method, SanitizeOrder};
use longshore_scsi::command::SanitizeRequest;
use longshore_scsi::sense::AdditionalSense as Code;
use longshore_scsi::unit::LogicalUnitConfig;

use crate::driver::*;

fn sanitize(action: u8, length: u16) -> [u8; 10] {
    let [high, low] = length.to_be_bytes();
    [0x48, action, 0, 0, 0, 0, 0, high, low, 0]
}

#[test]
fn an_overwrite_takes_pattern_passes_and_inversion_from_its_list() {
    let mut device = Device::new(1000);
    let list = [0x80 | 3, 0, 0, 2, 0xaa, 0x55];
    device.send(&sanitize(0xa1, 6), &list).good();
    let order = SanitizeOrder {
        method: Method::Overwrite {
            pattern: vec![0xaa, 0x55],
            passes: 3,
            invert: true,
            deallocate: false,
        },
        unrestricted_exit: true,
        nvme_dword_10: 0b11_0011_1011,
    };
    let begin = SanitizeRequest::Begin {
        order,
        immediate: true,
    };
    assert_eq!(device.sanitize_requests, [begin]);
}

#[test]
fn block_erase_needs_a_volume_whose_freed_blocks_read_as_zeros() {
    let without = |change: fn(&mut LogicalUnitConfig)| {
        let mut config = config(512, 1000);
        change(&mut config);
        Device::with(config)
    };
    let mut device = Device::new(1000);
    device.run(&sanitize(0x02, 0)).good();
    assert_eq!(
        device.run(&[0x12, 1, 0xb1, 0, 64, 0]).good().data_in[7] >> 6,
        1
    );
    for change in [
        (|config| config.unmap_granularity_blocks = None) as fn(&mut LogicalUnitConfig),
        |config| config.unmapped_reads_zeros = false,
    ] {
        let mut device = without(change);
        device
            .run(&sanitize(0x02, 0))
            .illegal(Code::INVALID_FIELD_IN_CDB);
        assert_eq!(device.run(&[0x12, 1, 0xb1, 0, 64, 0]).good().data_in[7], 0);
    }
    let mut forgetful = without(|config| config.persistent_reservations_store = false);
    forgetful
        .run(&sanitize(0x02, 0))
        .illegal(Code::INVALID_COMMAND_OPERATION_CODE);
}

#[test]
fn while_it_runs_commands_are_told_how_far_it_is() {
    let mut device = Device::new(1000);
    let order = SanitizeOrder {
        method: Method::BlockErase,
        unrestricted_exit: false,
        nvme_dword_10: 2,
    };
    let reservations = device.unit.reservations().clone();
    reservations.begin_sanitize(order).unwrap();
    reservations.sanitize().advance(1, 4);
    for cdb in [&[0; 6][..], &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]] {
        let refused = device.run(cdb);
        let sense = refused.sense_bytes;
        assert_eq!((sense[2], sense[12], sense[13]), (2, 0x04, 0x1b));
        assert_eq!(sense[15..18], [0x80, 0x40, 0], "a quarter");
    }
    device.run(&[0x12, 0, 0, 0, 96, 0]).good();
    device.run(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).good();
    let sense = device.run(&[0x03, 0, 0, 0, 252, 0]).good().data_in;
    assert_eq!((sense[2], sense[12], sense[13]), (2, 0x04, 0x1b));
    reservations.end_sanitize(true);
    device.run(&[0; 6]).good();
}
