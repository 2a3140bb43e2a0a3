//! Random sequences of media commands against the simplest thing that could be right: a flat array.

use longshore_scsi::status::Status;
use proptest::prelude::*;

use crate::driver::{Device, cdb_16};

const BLOCKS: usize = 64;
const SIZE: usize = 512;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    WriteAndVerify,
    WriteAtomic,
    OrWrite,
    CompareAndWrite { right: bool },
    WriteSame { unmap: bool, ndob: bool },
    Unmap { anchor: bool },
    Verify { right: bool },
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Read),
        Just(Kind::Write),
        Just(Kind::WriteAndVerify),
        Just(Kind::WriteAtomic),
        Just(Kind::OrWrite),
        any::<bool>().prop_map(|right| Kind::CompareAndWrite { right }),
        any::<(bool, bool)>().prop_map(|(unmap, ndob)| Kind::WriteSame { unmap, ndob }),
        any::<bool>().prop_map(|anchor| Kind::Unmap { anchor }),
        any::<bool>().prop_map(|right| Kind::Verify { right }),
    ]
}

/// Runs one command on both; whether they agree on the status and on data read.
fn step(device: &mut Device, model: &mut [u8], kind: Kind, lba: usize, blocks: usize, fill: u8) {
    let range = lba * SIZE..(lba + blocks) * SIZE;
    let data = vec![fill; blocks * SIZE];
    let cdb = |opcode, flags| cdb_16(opcode, flags, lba as u64, blocks as u32);
    let now = model[range.clone()].to_vec();
    match kind {
        Kind::Read => assert_eq!(device.run(&cdb(0x88, 0)).good().data_in, now),
        Kind::Write | Kind::WriteAndVerify | Kind::WriteAtomic => {
            let command = match kind {
                Kind::Write => cdb(0x8a, 0),
                Kind::WriteAndVerify => cdb(0x8e, 0x02),
                _ => cdb(0x9c, 0),
            };
            device.send(&command, &data).good();
            model[range].copy_from_slice(&data);
        }
        Kind::OrWrite => {
            device.send(&cdb(0x8b, 0), &data).good();
            model[range].iter_mut().for_each(|byte| *byte |= fill);
        }
        Kind::CompareAndWrite { right } => {
            let mut expected = now;
            expected[blocks * SIZE - 1] ^= u8::from(!right);
            let outcome = device.send(&cdb(0x89, 0), &[expected, data.clone()].concat());
            assert_eq!(outcome.status == Status::GOOD, right);
            if right {
                model[range].copy_from_slice(&data);
            }
        }
        Kind::WriteSame { unmap, ndob } => {
            let flags = u8::from(unmap) << 3 | u8::from(ndob);
            device.send(&cdb(0x93, flags), &data[..SIZE]).good();
            model[range].fill(if ndob { 0 } else { fill });
        }
        Kind::Unmap { anchor } => {
            let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
            list.extend((lba as u64).to_be_bytes());
            list.extend((blocks as u32).to_be_bytes());
            list.extend([0; 4]);
            device
                .send(&[0x42, u8::from(anchor), 0, 0, 0, 0, 0, 0, 24, 0], &list)
                .good();
            model[range].fill(0);
        }
        Kind::Verify { right } => {
            let mut expected = now;
            expected[0] ^= u8::from(!right);
            let outcome = device.send(&cdb(0x8f, 0x02), &expected);
            assert_eq!(outcome.status == Status::GOOD, right);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sequences_of_commands_leave_what_the_model_says(
        steps in prop::collection::vec((kind(), 0..BLOCKS, 1..BLOCKS, any::<u8>()), 1..40),
    ) {
        let mut device = Device::new(BLOCKS as u64);
        let mut model = vec![0; BLOCKS * SIZE];
        for (kind, lba, blocks, fill) in steps {
            step(&mut device, &mut model, kind, lba, blocks.min(BLOCKS - lba), fill);
        }
        let whole = cdb_16(0x88, 0, 0, BLOCKS as u32);
        prop_assert_eq!(device.run(&whole).good().data_in, model);
    }
}
