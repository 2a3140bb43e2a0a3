//! Every operation, with its data.

use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Data, Operation, Reply};
use longshore_initiator::options::{Options, ReceivePath, SendPath};
use longshore_initiator::queue::Refusal;

use crate::{
    attach_with, buffer, extent, pattern, read, room, run, serve, serve_queue, volumes, write,
};

#[test]
fn unmapped_and_zeroed_blocks_read_as_zeros() {
    let server = serve();
    let mut attachment = attach_with(&server, &Options::default());
    let queue = &mut attachment.queues[0];
    let data = pattern(64 << 10, 1);
    for operation in [
        Operation::Unmap {
            extent: extent(8, 64),
        },
        Operation::WriteZeroes {
            extent: extent(8, 64),
            may_unmap: true,
            fua: true,
        },
        Operation::WriteZeroes {
            extent: extent(8, 64),
            may_unmap: false,
            fua: false,
        },
    ] {
        write(queue, 0, &data);
        assert_eq!(run(queue, operation, Data::None).0, Ok(Reply::Done));
        let found = read(queue, 0, 64 << 10);
        assert_eq!(found[..4096], data[..4096], "{operation:?}");
        assert!(
            found[4096..36_864].iter().all(|byte| *byte == 0),
            "{operation:?}"
        );
        assert_eq!(found[36_864..], data[36_864..], "{operation:?}");
    }
}

#[test]
fn compare_and_write_writes_only_over_what_is_expected() {
    let server = serve();
    let mut attachment = attach_with(&server, &Options::default());
    let queue = &mut attachment.queues[0];
    // In capsules, and by R2Ts.
    for blocks in [1, 16, 17, 128] {
        let length = usize::try_from(blocks * 512).unwrap();
        let (old, new) = (pattern(length, 1), pattern(length, 2));
        write(queue, 100, &old);
        let operation = Operation::CompareAndWrite {
            extent: extent(100, blocks),
            fua: true,
        };
        let both = [&old[..], &new[..]].concat();
        assert_eq!(run(queue, operation, buffer(&both)).0, Ok(Reply::Done));
        assert_eq!(read(queue, 100, length), new);
        let (result, _) = run(queue, operation, buffer(&both));
        assert_eq!(result, Err(Failure::Miscompare { offset: None }));
        assert_eq!(read(queue, 100, length), new);
    }
    let too_large = Operation::CompareAndWrite {
        extent: extent(0, 129),
        fua: false,
    };
    let (result, _) = run(queue, too_large, room(129 * 1024));
    assert_eq!(result, Err(Failure::TooLarge));
}

#[test]
fn many_pairs_and_other_operations_at_a_time_all_end() {
    let server = serve();
    let options = Options {
        depth: 64,
        ..Options::default()
    };
    let mut attachment = attach_with(&server, &options);
    let queue = &mut attachment.queues[0];
    let mut submitted = 0;
    for round in 0..64 {
        let (operation, data) = if round % 2 == 0 {
            let pair = Operation::CompareAndWrite {
                extent: extent(round * 32, 20),
                fua: false,
            };
            (pair, room(40 * 512))
        } else {
            let write = Operation::Write {
                extent: extent(round * 32, 1),
                fua: true,
            };
            (write, buffer(&[7; 512]))
        };
        match queue.submit(operation, data, round) {
            Ok(()) => submitted += 1,
            Err(rejected) => {
                assert_eq!(rejected.refusal, Refusal::Busy);
                break;
            }
        }
    }
    assert!(submitted > 20);
    let mut tags: Vec<_> = serve_queue(queue, submitted)
        .into_iter()
        .map(|completion| {
            assert_eq!(completion.result, Ok(Reply::Done));
            completion.tag
        })
        .collect();
    tags.sort_unstable();
    let expected: Vec<_> = (0..submitted as u64).collect();
    assert_eq!(tags, expected);
}

#[test]
fn a_full_queue_keeps_data_apart_on_every_path() {
    let server = serve();
    for (send, receive) in [
        (SendPath::Copy, ReceivePath::Buffered),
        (SendPath::Gather, ReceivePath::Direct),
        (SendPath::ZeroCopy, ReceivePath::Direct),
    ] {
        let mut options = Options::default();
        options.paths.send = send;
        options.paths.receive = receive;
        options.paths.zerocopy_threshold = 4096;
        let mut attachment = attach_with(&server, &options);
        let queue = &mut attachment.queues[0];
        // Some fit into a capsule, some do not.
        let lengths = [512, 4096, 8192, 12_288, 65_536, 262_144];
        let (mut count, mut places, mut lba) = (0, Vec::new(), 0);
        while queue.room() > 0 && count < 100 {
            let length = lengths[count % lengths.len()];
            let data = pattern(length, count);
            let operation = Operation::Write {
                extent: extent(lba, length as u64 / 512),
                fua: false,
            };
            queue
                .submit(operation, buffer(&data), count as u64)
                .unwrap();
            places.push((lba, length));
            lba += length as u64 / 512;
            count += 1;
        }
        for completion in serve_queue(queue, count) {
            assert_eq!(completion.result, Ok(Reply::Done));
        }
        for (tag, (lba, length)) in places.iter().enumerate() {
            let operation = Operation::Read {
                extent: extent(*lba, *length as u64 / 512),
            };
            queue.submit(operation, room(*length), tag as u64).unwrap();
        }
        for completion in serve_queue(queue, count) {
            assert_eq!(completion.result, Ok(Reply::Done));
            let seed = usize::try_from(completion.tag).unwrap();
            let length = places[seed].1;
            let found = &completion.data.bytes()[..length];
            assert!(found == pattern(length, seed), "{send:?}: operation {seed}");
        }
    }
}

#[test]
fn beyond_the_end_is_out_of_range() {
    let server = serve();
    let mut attachment = attach_with(&server, &Options::default());
    let end = attachment.info.block_count;
    let queue = &mut attachment.queues[0];
    let read = Operation::Read {
        extent: extent(end - 1, 2),
    };
    assert_eq!(run(queue, read, room(1024)).0, Err(Failure::OutOfRange));
    let write = Operation::Write {
        extent: extent(end, 1),
        fua: false,
    };
    assert_eq!(run(queue, write, room(512)).0, Err(Failure::OutOfRange));
    // The queue goes on.
    assert_eq!(run(queue, Operation::Flush, Data::None).0, Ok(Reply::Done));
}

#[test]
fn a_read_only_volume_says_so_and_takes_no_writes() {
    let server = volumes().nvme();
    let server = server
        .volume("fixed,backend=mem,size=1M,read-only")
        .start()
        .unwrap();
    let url = crate::url_of(&server, 3);
    let mut attachment = longshore_initiator::attach::attach(&url, &Options::default()).unwrap();
    assert!(attachment.info.read_only);
    let write = Operation::Write {
        extent: extent(0, 1),
        fua: false,
    };
    let (result, _) = run(&mut attachment.queues[0], write, room(512));
    assert_eq!(result, Err(Failure::ReadOnly));
}

#[test]
fn what_nvme_cannot_do_is_refused_here() {
    let server = serve();
    let mut attachment = attach_with(&server, &Options::default());
    let queue = &mut attachment.queues[0];
    let ask = Operation::ExtentStatus {
        extent: extent(0, 8),
    };
    assert_eq!(run(queue, ask, Data::None).0, Err(Failure::Unsupported));
    let most = u64::from(attachment.info.max_transfer_blocks.unwrap());
    let large = Operation::Read {
        extent: extent(0, most + 1),
    };
    let queue = &mut attachment.queues[0];
    assert_eq!(run(queue, large, Data::Discard).0, Err(Failure::TooLarge));
}
