//! Each operation does what it says, and its failures say what they are.

use longshore_block::extent::BlockCount;
use longshore_block::operation::ExtentState;
use longshore_initiator::error::Failure;
use longshore_initiator::info::Notice;
use longshore_initiator::iscsi::{Session, Transfer};
use longshore_initiator::operation::{Data, Operation, Reply};
use longshore_initiator::options::Options;
use longshore_initiator::queue::Refusal;
use longshore_iscsi::pdu::Lun;
use longshore_tests::server::ServerBuilder;

use crate::rig::{Rig, data, extent, iscsi_url, pattern, server, url};

#[test]
fn a_volume_is_identified() {
    let server = ServerBuilder::new()
        .volume("disk0,backend=mem,size=64M,block-size=4096,serial=abc123")
        .volume("disk1,backend=mem,size=1M,read-only")
        .iscsi()
        .start()
        .unwrap();
    let mut rig = Rig::of(&server);
    let info = rig.attachment.info.clone();
    assert_eq!((info.block_size, info.block_count), (4096, 16_384));
    assert_eq!(
        (info.vendor.as_str(), info.serial.as_str()),
        ("LONGSHOR", "abc123")
    );
    assert!(info.fua && info.unmap && info.unmapped_reads_zeros && info.write_zeroes);
    assert!(info.compare_and_write_max.is_some() && info.extent_status);
    assert!(
        info.identifiers.iter().any(|it| it.kind == "naa"),
        "{info:?}"
    );
    let description = rig.attachment.control.describe().unwrap();
    assert_eq!(description.info, info);
    let reservation = description
        .reservation
        .expect("there is PERSISTENT RESERVE IN");
    assert_eq!(
        (reservation.kind, reservation.registrations.len()),
        (None, 0)
    );
    let other = Rig::attach(&url(server.portal(0), 1), &Options::default()).unwrap();
    assert!(other.attachment.info.read_only);
    assert!(!other.attachment.info.is_same_volume(&info));
    let again = Rig::of(&server);
    assert!(again.attachment.info.is_same_volume(&info));
}

#[test]
fn zeros_are_written_and_ranges_deallocated() {
    let server = server();
    let mut rig = Rig::of(&server);
    let bytes = pattern(64 << 10, 1);
    for (number, operation) in [
        Operation::WriteZeroes {
            extent: extent(16, 32),
            may_unmap: false,
            fua: false,
        },
        Operation::WriteZeroes {
            extent: extent(16, 32),
            may_unmap: true,
            fua: false,
        },
        Operation::Unmap {
            extent: extent(16, 32),
        },
    ]
    .into_iter()
    .enumerate()
    {
        rig.write(0, &bytes).unwrap();
        assert_eq!(rig.order(operation), Ok(Reply::Done), "{number}");
        let mut expected = bytes.clone();
        expected[16 * 512..48 * 512].fill(0);
        assert!(rig.read(0, bytes.len()).unwrap() == expected, "{number}");
    }
    assert_eq!(rig.order(Operation::Flush), Ok(Reply::Done));
}

#[test]
fn zeros_with_force_unit_access_are_followed_by_a_flush() {
    let scratch = longshore_tests::scratch::Scratch::new("zeroes");
    let path = scratch.join("disk.img");
    let server = ServerBuilder::new()
        .volume(&format!(
            "disk0,backend=file,size=16M,path={}",
            path.display()
        ))
        .iscsi()
        .start()
        .unwrap();
    let mut rig = Rig::of(&server);
    assert!(rig.attachment.info.write_cache);
    let zeroes = |number: u64| Operation::WriteZeroes {
        extent: extent(number * 32, 16),
        may_unmap: number.is_multiple_of(2),
        fua: true,
    };
    // More than there are slots.
    let operations = (0..500)
        .map(|number| (zeroes(number), Data::None))
        .collect();
    let completions = rig.run_all(0, operations).unwrap();
    assert_eq!(completions.len(), 500);
    for completion in completions {
        assert_eq!(completion.result, Ok(Reply::Done));
    }
    rig.verify(&[4096]);
}

#[test]
fn extents_are_told_apart() {
    let server = server();
    let mut rig = Rig::of(&server);
    rig.write(1 << 16, &pattern(1 << 20, 3)).unwrap();
    let status = |rig: &mut Rig, lba, blocks| {
        let extent = extent(lba, blocks);
        match rig.order(Operation::ExtentStatus { extent }).unwrap() {
            Reply::Extent { blocks, state } => (blocks, state),
            Reply::Done => panic!("no state"),
        }
    };
    let (blocks, state) = status(&mut rig, 0, 8);
    assert_eq!((blocks, state), (BlockCount(8), ExtentState::Deallocated));
    let (blocks, state) = status(&mut rig, 1 << 16, 100_000);
    assert_eq!(state, ExtentState::Mapped);
    assert!(blocks.0 >= 2048 && blocks.0 < 100_000, "{blocks:?}");
    let beyond = Operation::ExtentStatus {
        extent: extent(1 << 30, 1),
    };
    assert_eq!(rig.order(beyond), Err(Failure::OutOfRange));
}

#[test]
fn compare_and_write_writes_or_tells_where_the_difference_is() {
    let server = server();
    let mut rig = Rig::of(&server);
    let (old, new) = (pattern(1024, 1), pattern(1024, 2));
    rig.write(8, &old).unwrap();
    let operation = Operation::CompareAndWrite {
        extent: extent(8, 2),
        fua: true,
    };
    let both = [&old[..], &new].concat();
    assert_eq!(rig.run(operation, data(&both)).0, Ok(Reply::Done));
    assert_eq!(rig.read(8, 1024).unwrap(), new);
    let mut almost = [&new[..], &old].concat();
    almost[700] ^= 1;
    let miscompare = Failure::Miscompare { offset: Some(700) };
    assert_eq!(rig.run(operation, data(&almost)).0, Err(miscompare));
    assert_eq!(rig.read(8, 1024).unwrap(), new);
    let too_large = Operation::CompareAndWrite {
        extent: extent(0, 256),
        fua: false,
    };
    let rejected = rig.attachment.queues[0]
        .submit(too_large, data(&vec![0; 512 * 512]), 0)
        .unwrap_err();
    assert_eq!(rejected.refusal, Refusal::Failed(Failure::TooLarge));
}

#[test]
fn ranges_beyond_the_end_and_writes_to_read_only_volumes_fail_by_name() {
    let server = ServerBuilder::new()
        .volume("disk0,backend=mem,size=1M,read-only")
        .iscsi()
        .start()
        .unwrap();
    let mut rig = Rig::of(&server);
    assert_eq!(rig.read(2047, 1024), Err(Failure::OutOfRange));
    assert_eq!(rig.read(1 << 40, 512), Err(Failure::OutOfRange));
    assert_eq!(rig.write(0, &[0; 512]), Err(Failure::ReadOnly));
    assert_eq!(rig.write(0, &vec![0; 512 << 10]), Err(Failure::ReadOnly));
    assert_eq!(rig.read(0, 1 << 20).unwrap(), vec![0; 1 << 20]);
}

#[test]
fn a_volume_that_grows_is_told_of_once_and_goes_on() {
    let scratch = longshore_tests::scratch::Scratch::new("grow");
    let path = scratch.join("disk.img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let server = ServerBuilder::new()
        .volume(&format!("disk0,backend=file,path={}", path.display()))
        .iscsi()
        .start()
        .unwrap();
    let mut rig = Rig::of(&server);
    rig.read(0, 512).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(2 << 20).unwrap();
    server.reload().unwrap();
    let mut told = false;
    for _ in 0..2_000 {
        if rig.read(0, 512).is_err() {
            told = true;
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(told, "a unit attention");
    rig.read(4000, 512).unwrap();
    assert_eq!(rig.notices, [Notice::CapacityChanged]);
}

#[test]
fn reservations_of_others_are_conflicts_and_are_reported() {
    let server = server();
    let mut rig = Rig::of(&server);
    let (lun, options) = (Lun::ZERO, Options::default());
    let url = iscsi_url(server.portal(0), 0);
    let mut other = Session::open(&url, 0, &options).unwrap();
    // Each session begins with a unit attention.
    let _ = other.command(lun, &[0; 6], Transfer::None).unwrap();
    let mut list = [0; 24];
    list[8..16].copy_from_slice(&0x1234_u64.to_be_bytes());
    let register = [0x5f, 0x00, 0, 0, 0, 0, 0, 0, 24, 0];
    let answer = other
        .command(lun, &register, Transfer::Write(&list))
        .unwrap();
    answer.data().unwrap();
    list.copy_within(8..16, 0);
    list[8..16].fill(0);
    let reserve = [0x5f, 0x01, 0x03, 0, 0, 0, 0, 0, 24, 0];
    let answer = other
        .command(lun, &reserve, Transfer::Write(&list))
        .unwrap();
    answer.data().unwrap();
    assert_eq!(rig.write(0, &[1; 512]), Err(Failure::ReservationConflict));
    let described = rig.attachment.control.describe().unwrap();
    let reservation = described.reservation.unwrap();
    assert_eq!(reservation.kind.as_deref(), Some("Exclusive Access"));
    let holder = reservation.holder.unwrap();
    assert!(holder.contains("0x0000000000001234"), "{holder}");
    assert!(holder.contains("iqn.2026-11.local.longshore:"), "{holder}");
    other.close();
}

#[test]
fn many_operations_of_all_kinds_share_a_queue() {
    let server = server();
    let mut rig = Rig::of(&server);
    let mut operations = Vec::new();
    for number in 0..600_u64 {
        let extent = extent(number * 64, 1 + number % 40);
        let length = usize::try_from(extent.blocks.0).unwrap() * 512;
        operations.push(match number % 5 {
            0 => (Operation::Read { extent }, Data::Discard),
            1 => (Operation::Flush, Data::None),
            2 => (Operation::ExtentStatus { extent }, Data::None),
            3 => (Operation::Unmap { extent }, Data::None),
            _ => {
                let write = Operation::Write {
                    extent,
                    fua: number % 2 == 0,
                };
                (write, data(&pattern(length, 7)))
            }
        });
    }
    let completions = rig.run_all(0, operations).unwrap();
    let mut tags: Vec<u64> = completions.iter().map(|it| it.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..600).collect::<Vec<u64>>());
    for completion in completions {
        completion.result.unwrap();
    }
}
