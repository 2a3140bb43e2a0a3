//! Counting by compare and write over connections that break: nothing is counted twice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_initiator::error::Failure;
use longshore_initiator::volume::{RemoteVolume, block_on};
use longshore_reactor::Buffer;
use longshore_tests::stop::StopsAtEnd;

use super::{PROTOCOLS, Restartable, open, options, until};

const BLOCK: usize = 512;

/// What became of one attempt to count.
enum Attempt {
    Counted,
    /// Somebody else was faster.
    Lost,
    Unknown,
}

fn attempt(volume: &RemoteVolume) -> Attempt {
    let (result, buffer) = block_on(volume.read(0, Buffer::allocate(BLOCK)));
    assert_eq!(result, Ok(()));
    let count = u64::from_le_bytes(buffer[..8].try_into().unwrap());
    let mut both = Buffer::allocate(2 * BLOCK);
    both[..BLOCK].copy_from_slice(&buffer);
    both[BLOCK..BLOCK + 8].copy_from_slice(&(count + 1).to_le_bytes());
    match block_on(volume.compare_and_write(0, both, false)).0 {
        Ok(()) => Attempt::Counted,
        Err(Failure::Miscompare { .. }) => Attempt::Lost,
        Err(Failure::OutcomeUnknown(_)) => Attempt::Unknown,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn compare_and_write_counts_once_or_says_that_it_does_not_know() {
    for protocol in PROTOCOLS {
        let mut server = Restartable::start(protocol);
        let volume = open(&server.url(), &options());
        if volume.info().compare_and_write_max.is_none() {
            panic!("{protocol:?}: our server has it");
        }
        let stop = AtomicBool::new(false);
        let progress = AtomicU64::new(0);
        let goes_on = || {
            let before = progress.load(Ordering::SeqCst);
            until("it is counted on", || {
                progress.load(Ordering::SeqCst) >= before + 20
            });
        };
        let (mut counted, mut unknown) = (0, 0);
        std::thread::scope(|scope| {
            let _stops = StopsAtEnd(&stop);
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut counted, mut unknown) = (0, 0);
                        while !stop.load(Ordering::SeqCst) {
                            match attempt(&volume) {
                                Attempt::Counted => {
                                    counted += 1;
                                    progress.fetch_add(1, Ordering::SeqCst);
                                }
                                Attempt::Unknown => unknown += 1,
                                Attempt::Lost => {}
                            }
                        }
                        (counted, unknown)
                    })
                })
                .collect();
            for _ in 0..5 {
                goes_on();
                server.kill();
                server.restart("disk0.img");
            }
            goes_on();
            stop.store(true, Ordering::SeqCst);
            for worker in workers {
                let (c, u) = worker.join().unwrap();
                counted += c;
                unknown += u;
            }
        });
        let (_, buffer) = block_on(volume.read(0, Buffer::allocate(BLOCK)));
        let count = u64::from_le_bytes(buffer[..8].try_into().unwrap());
        assert!(counted > 0);
        assert!(
            (counted..=counted + unknown).contains(&count),
            "{protocol:?}: {counted} counted, {unknown} unknown, the volume says {count}"
        );
        volume.close();
    }
}
