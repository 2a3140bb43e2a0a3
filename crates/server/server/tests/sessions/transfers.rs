//! Expected data transfer lengths that differ from what the command moves (RFC 7143 §11.4.5).

use longshore_tests::initiator::{Data, cdb};

use crate::gate_volume::GateVolume;
use crate::scene::*;

const UNDERFLOW: u8 = 0x02;
const OVERFLOW: u8 = 0x04;

#[test]
fn read_of_any_expected_length_gives_what_fits_and_the_residual() {
    for engine in ENGINES {
        for block_size in [512, 4096] {
            let slow = GateVolume::new(mem("slow", block_size));
            let volumes = vec![mem("disk", block_size), slow, null("null", block_size)];
            let scene = Scene::with(volumes, engine);
            let mut host = scene.host(1);
            for lun in 0..3 {
                for _ in 0..2 {
                    host.command(lun, &cdb::TEST_UNIT_READY, Data::None)
                        .unwrap();
                }
                for blocks in [1, 2, 8, 64] {
                    let length = blocks * block_size;
                    for expected in [
                        0,
                        1,
                        3,
                        511,
                        512,
                        length - 1,
                        length,
                        length + 1,
                        length + 70_000,
                    ] {
                        let read = cdb::read_16(0, blocks);
                        let answer = host.command(lun, &read, Data::In(expected)).unwrap();
                        let what = format!("LUN {lun}, {blocks} blocks, {expected} expected");
                        assert!(answer.is_good(), "{what}: {answer:?}");
                        assert_eq!(answer.data.len() as u64, u64::from(expected.min(length)));
                        let flags = match expected.cmp(&length) {
                            std::cmp::Ordering::Less => OVERFLOW,
                            std::cmp::Ordering::Equal => 0,
                            std::cmp::Ordering::Greater => UNDERFLOW,
                        };
                        assert_eq!(answer.flags, flags, "{what}");
                        if flags != 0 {
                            assert_eq!(answer.residual, expected.abs_diff(length), "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn write_with_too_little_data_changes_the_bytes_that_came_and_no_others() {
    for engine in ENGINES {
        for block_size in [512_u32, 4096] {
            let slow = GateVolume::new(mem("slow", block_size));
            let scene = Scene::with(vec![mem("disk", block_size), slow], engine);
            let mut host = scene.host(1);
            host.command(1, &cdb::TEST_UNIT_READY, Data::None).unwrap();
            let block = usize::try_from(block_size).unwrap();
            let (write, read) = (cdb::write_16(0, 2, false), cdb::read_16(0, 2));
            for lun in 0..2 {
                for length in [0, 100, block, block + 100, 2 * block] {
                    let old = vec![8; 2 * block];
                    let answer = host.command(lun, &write, Data::Out(&old)).unwrap();
                    assert!(answer.is_good(), "{answer:?}");
                    let new = vec![7; length];
                    let answer = host.command(lun, &write, Data::Out(&new)).unwrap();
                    assert!(answer.is_good(), "{answer:?}");
                    let missing = u32::try_from(2 * block - length).unwrap();
                    assert_eq!(answer.residual, missing);
                    let back = host.command(lun, &read, Data::In(2 * block_size)).unwrap();
                    let expected = [new, old[length..].to_vec()].concat();
                    assert!(back.data == expected, "LUN {lun}, {length} of {block_size}");
                }
            }
        }
    }
}

#[test]
fn bidirectional_command_is_refused_by_its_status_and_the_session_goes_on() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut host = scene.host(1);
        let block = [9; 512];
        for cdb in [cdb::write_16(5, 1, false), cdb::read_16(5, 1)] {
            let command = host.command_pdu(0, &cdb, Data::Out(&block));
            let flags = command.bhs[1] | 0x40;
            let command = command.set_byte(1, flags);
            host.send(&command).unwrap();
            let answer = host.finish(command.initiator_task_tag(), &block).unwrap();
            assert_eq!(answer.status, CHECK_CONDITION);
            assert_eq!(answer.sense_code(), Some((5, 0x0e, 3)));
        }
        // Their numbers are used up, and nothing was written.
        assert_eq!(read(&mut host, 5), [0; 512]);
    }
}

#[test]
fn write_whose_initiator_waits_for_data_is_no_success() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let mut host = scene.host(1);
        assert!(write(&mut host, 5, 7).is_good());
        let answer = host
            .command(0, &cdb::write_16(5, 1, false), Data::In(512))
            .unwrap();
        assert_eq!(answer.status, CHECK_CONDITION);
        assert_eq!(answer.sense_code(), Some((5, 0x0e, 3)));
        assert_eq!((answer.flags, answer.residual), (UNDERFLOW, 512));
        assert_eq!(read(&mut host, 5), [7; 512]);
    }
}
