//! What is neither read nor write: zeros, deallocation, flush, compare and write, allocation.

use longshore_block::operation::ExtentState;
use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Data, Operation, Reply};
use longshore_reactor::Buffer;

use crate::Fact;
use crate::load::{Engine, Queues, Remote, extent, one, read, write};
use crate::pattern;
use crate::peer::Peer;

pub const FACTS: &[Fact] = &[
    Fact::of_all("flush_and_fua_are_acknowledged", flush),
    Fact::of_all("zeros_are_written_without_being_sent", write_zeroes),
    Fact::of_all("deallocated_blocks_read_as_zeros_where_promised", unmap),
    Fact::of(
        has_compare,
        "compare_and_write_writes_only_on_a_match",
        compare_and_write,
    ),
    Fact::of(
        has_compare,
        "of_racing_compare_and_writes_each_round_has_one_winner",
        racing_compares,
    ),
    Fact::of(
        has_no_compare,
        "compare_and_write_is_unsupported",
        no_compare_and_write,
    ),
    Fact::of_all("allocation_is_told_or_unsupported", extent_status),
    Fact::of_all("misaligned_and_empty_ranges_fail_here", misaligned),
];

fn has_compare(peer: &Peer) -> bool {
    peer.has_compare_and_write()
}

fn has_no_compare(peer: &Peer) -> bool {
    !has_compare(peer)
}

fn done(engine: &mut dyn Engine, operation: Operation) {
    let (result, _) = one(engine, operation, Data::None);
    result.unwrap_or_else(|failure| panic!("{operation:?}: {failure}"));
}

/// Blocks of a pattern.
fn patterned(lba: u64, blocks: u64, generation: u32) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(blocks * 512).expect("short")];
    pattern::fill(&mut bytes, lba, generation, 512);
    bytes
}

fn put(engine: &mut dyn Engine, lba: u64, bytes: &[u8]) {
    write(engine, lba, bytes, false).unwrap_or_else(|failure| panic!("write: {failure}"));
}

fn get(engine: &mut dyn Engine, lba: u64, blocks: u64) -> Buffer {
    read(engine, lba, blocks).unwrap_or_else(|failure| panic!("read: {failure}"))
}

fn flush(peer: &Peer) {
    let mut queues = Queues::attach(&peer.url(), &peer.options());
    let bytes = patterned(64, 32, 1);
    write(&mut queues, 64, &bytes, true).unwrap_or_else(|failure| panic!("FUA: {failure}"));
    put(&mut queues, 96, &bytes);
    done(&mut queues, Operation::Flush);
    assert!(get(&mut queues, 64, 32)[..] == bytes);
    queues.close();
}

fn write_zeroes(peer: &Peer) {
    let mut remote = Remote::open(&peer.url(), &peer.options());
    let bytes = patterned(1000, 512, 2);
    for (may_unmap, fua) in [(false, false), (true, false), (false, true)] {
        put(&mut remote, 1000, &bytes);
        let extent = extent(1008, 256);
        done(
            &mut remote,
            Operation::WriteZeroes {
                extent,
                may_unmap,
                fua,
            },
        );
        let found = get(&mut remote, 1000, 512);
        assert!(found[..8 * 512] == bytes[..8 * 512], "the blocks before");
        assert!(
            found[8 * 512..264 * 512].iter().all(|&byte| byte == 0),
            "zeros"
        );
        assert!(
            found[264 * 512..] == bytes[264 * 512..],
            "the blocks behind"
        );
    }
    // More than most take in one command.
    let all = extent(0, Peer::blocks(512) / 2);
    done(
        &mut remote,
        Operation::WriteZeroes {
            extent: all,
            may_unmap: true,
            fua: false,
        },
    );
    assert!(get(&mut remote, 1000, 512).iter().all(|&byte| byte == 0));
    remote.close();
}

fn unmap(peer: &Peer) {
    let mut remote = Remote::open(&peer.url(), &peer.options());
    let info = remote.volume.info();
    // Whole pages, whatever the granularity is.
    let bytes = patterned(4096, 2048, 3);
    put(&mut remote, 4096, &bytes);
    done(
        &mut remote,
        Operation::Unmap {
            extent: extent(4352, 1024),
        },
    );
    let found = get(&mut remote, 4096, 2048);
    assert!(
        found[..256 * 512] == bytes[..256 * 512],
        "the blocks before"
    );
    assert!(
        found[1280 * 512..] == bytes[1280 * 512..],
        "the blocks behind"
    );
    if info.unmapped_reads_zeros {
        assert!(
            found[256 * 512..1280 * 512].iter().all(|&byte| byte == 0),
            "zeros"
        );
    }
    done(
        &mut remote,
        Operation::Unmap {
            extent: extent(0, Peer::blocks(512)),
        },
    );
    remote.close();
}

/// The memory of a compare and write.
fn pair(expected: &[u8], new: &[u8]) -> Data {
    let mut buffer = Buffer::allocate(expected.len() + new.len());
    buffer[..expected.len()].copy_from_slice(expected);
    buffer[expected.len()..].copy_from_slice(new);
    Data::buffer(buffer)
}

fn compare_and_write(peer: &Peer) {
    let mut queues = Queues::attach(&peer.url(), &peer.options());
    let most = queues
        .attachment
        .info
        .compare_and_write_max
        .expect("it has it");
    for blocks in [1, u64::from(most).min(8)] {
        let [old, new] = [4, 5].map(|generation| patterned(700, blocks, generation));
        let operation = Operation::CompareAndWrite {
            extent: extent(700, blocks),
            fua: false,
        };
        put(&mut queues, 700, &old);
        let (result, _) = one(&mut queues, operation, pair(&old, &new));
        result.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(get(&mut queues, 700, blocks)[..] == new);
        // The same again does not fit any more, and changes nothing.
        let (result, _) = one(
            &mut queues,
            operation,
            pair(&old, &patterned(700, blocks, 6)),
        );
        match result {
            Err(Failure::Miscompare { offset }) => {
                // Generations differ from the first byte on. LIO 6.1 says the offset, nvmet nothing.
                assert!(offset.is_none_or(|offset| offset < 8), "{offset:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(get(&mut queues, 700, blocks)[..] == new);
    }
    queues.close();
}

/// Several compare and writes expect the same and are under way together: exactly one may win.
fn racing_compares(peer: &Peer) {
    let mut options = peer.options();
    options.queues = longshore_initiator::options::QueueMaps::plain(4);
    let mut queues = Queues::attach(&peer.url(), &options);
    let mut held = patterned(900, 1, 0);
    put(&mut queues, 900, &held);
    for round in 0..10_u32 {
        for racer in 0..4 {
            let operation = Operation::CompareAndWrite {
                extent: extent(900, 1),
                fua: false,
            };
            let new = patterned(900, 1, round * 4 + racer + 1);
            queues.submit(operation, pair(&held, &new), u64::from(racer));
        }
        let mut winners = Vec::new();
        let mut ended = 0;
        while ended < 4 {
            for completion in queues.wait() {
                ended += 1;
                match completion.result {
                    Ok(_) => winners.push(completion.tag),
                    Err(Failure::Miscompare { .. }) => {}
                    Err(failure) => panic!("{failure}"),
                }
            }
        }
        let [winner] = winners[..] else {
            panic!("round {round}: {winners:?} have won");
        };
        let winner = u32::try_from(winner).expect("one of four");
        held = patterned(900, 1, round * 4 + winner + 1);
        assert!(get(&mut queues, 900, 1)[..] == held, "round {round}");
    }
    queues.close();
}

fn no_compare_and_write(peer: &Peer) {
    let mut remote = Remote::open(&peer.url(), &peer.options());
    let bytes = patterned(700, 1, 4);
    put(&mut remote, 700, &bytes);
    let operation = Operation::CompareAndWrite {
        extent: extent(700, 1),
        fua: false,
    };
    let (result, _) = one(&mut remote, operation, pair(&bytes, &patterned(700, 1, 5)));
    assert_eq!(result, Err(Failure::Unsupported));
    assert!(get(&mut remote, 700, 1)[..] == bytes);
    remote.close();
}

fn extent_status(peer: &Peer) {
    let mut remote = Remote::open(&peer.url(), &peer.options());
    let has_it = remote.volume.info().extent_status;
    put(&mut remote, 2048, &patterned(2048, 128, 7));
    let operation = Operation::ExtentStatus {
        extent: extent(2048, 128),
    };
    let (result, _) = one(&mut remote, operation, Data::None);
    match result {
        Ok(Reply::Extent { blocks, state }) => {
            assert!(has_it && blocks.0 > 0 && blocks.0 <= 128, "{blocks:?}");
            assert_eq!(state, ExtentState::Mapped);
        }
        Err(Failure::Unsupported) => assert!(!has_it),
        other => panic!("{other:?}"),
    }
    remote.close();
}

fn misaligned(peer: &Peer) {
    use longshore_initiator::volume::block_on;
    let remote = Remote::open(&peer.url(), &peer.options());
    let (result, buffer) = block_on(remote.volume.read(100, Buffer::allocate(512)));
    assert!(
        matches!(result, Err(Failure::Misaligned { .. })),
        "{result:?}"
    );
    assert_eq!(buffer.len(), 512);
    let (result, _) = block_on(remote.volume.write(512, Buffer::allocate(100), false));
    assert!(
        matches!(result, Err(Failure::Misaligned { .. })),
        "{result:?}"
    );
    remote.close();
}
