//! Any bytes as CDB and data: no panic, and an end within bounded steps (the driver counts them).

use longshore_scsi::status::Status;
use proptest::prelude::*;

use crate::driver::{Device, config};

/// CDBs that get past the operation code more often than random bytes do.
fn cdb() -> impl Strategy<Value = Vec<u8>> {
    let opcodes = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![
            0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1d, 0x1e, 0x25, 0x28,
            0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x37, 0x41, 0x42, 0x55, 0x5a, 0x5e, 0x5f, 0x83, 0x84,
            0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa8,
            0xaa, 0xae, 0xaf, 0xb7,
        ]),
    ];
    let byte = prop_oneof![3 => Just(0_u8), 1 => 0..16_u8, 1 => any::<u8>()];
    (opcodes, prop::collection::vec(byte, 0..20)).prop_map(|(opcode, rest)| {
        let mut cdb = vec![opcode];
        cdb.extend(rest);
        cdb
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_cdb_ends_and_keeps_its_bounds(
        cdb in cdb(),
        data in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        let mut device = Device::with(config(512, 5000));
        let outcome = device.send(&cdb, &data);
        prop_assert!(outcome.data_in.len() as u64 <= outcome.transfer.length);
        prop_assert_eq!(outcome.status == Status::CHECK_CONDITION, outcome.sense.is_some());
        prop_assert!(!outcome.decided_early || outcome.transfer.length == 0);
        device.without_unit(&cdb);
    }

    /// The driver compares what is plain with what the command does.
    #[test]
    fn any_read_or_write_is_plain_or_refused(
        opcode in prop::sample::select(vec![0x08_u8, 0x0a, 0x28, 0x2a, 0x88, 0x8a, 0xa8, 0xaa]),
        flags in prop_oneof![Just(0_u8), Just(0x08), any::<u8>()],
        rest in prop::collection::vec(prop_oneof![9 => Just(0_u8), 1 => 0..8_u8], 14),
        ending in prop_oneof![9 => Just(0_u8), 1 => any::<u8>()],
    ) {
        let mut device = Device::with(config(512, 5000));
        let mut cdb = vec![opcode, flags];
        cdb.extend(rest);
        cdb[match opcode >> 5 { 0 => 5, 1 | 2 => 9, 5 => 11, _ => 15 }] = ending;
        let plain = longshore_scsi::plain::plain(&device.unit, &device.nexus, &cdb);
        let data = vec![0x5a; plain.map_or(0, |plain| plain.length as usize)];
        let outcome = device.send(&cdb, &data);
        let reads = outcome.status == Status::GOOD && !outcome.data_in.is_empty();
        // In 6 bytes, no length means 256 blocks, which is not plain.
        let is_special = opcode == 0x08 && cdb[4] == 0;
        prop_assert!(plain.is_some() || !reads || is_special, "{cdb:02x?}");
    }

    #[test]
    fn any_mode_select_list_is_answered(list in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut device = Device::new(1000);
        device.send(&[0x15, 0x10, 0, 0, list.len() as u8, 0], &list);
        device.send(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], &list);
    }

    #[test]
    fn any_unmap_list_is_answered(mut list in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut device = Device::new(1000);
        let cdb = [0x42, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
        device.send(&cdb, &list);
        if let Some(length) = list.get_mut(2..4) {
            length.copy_from_slice(&[0, 32]);
        }
        device.send(&cdb, &list);
    }
}
