//! How operations get to a real server: pieces, poll queues, queue maps, many threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::error::Failure;
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::options::{DigestWish, QueueMaps, SendPath};
use longshore_initiator::volume::{Completer, block_on};
use longshore_reactor::Buffer;

use super::load::Load;
use super::{PROTOCOLS, Restartable, open, options, until};

#[test]
fn queue_maps_digests_and_send_paths_work_together() {
    for protocol in PROTOCOLS {
        for (send, digest) in [
            (SendPath::Copy, DigestWish::Off),
            (SendPath::Gather, DigestWish::Require),
            (SendPath::ZeroCopy, DigestWish::Off),
        ] {
            let server = Restartable::start(protocol);
            let mut options = options();
            options.queues = QueueMaps {
                default: 2,
                read: 2,
                poll: 1,
            };
            options.paths.send = send;
            options.data_digest = digest;
            options.volume.drivers = 2;
            let volume = open(&server.url(), &options);
            Load::new(3).run(&volume, |load| load.wait_for(150));
            assert_eq!(volume.state().counters.losses, 0, "{protocol:?} {send:?}");
            volume.close();
        }
    }
}

#[test]
fn poll_queues_are_received_by_those_who_wait() {
    for protocol in PROTOCOLS {
        let mut server = Restartable::start(protocol);
        let mut options = options();
        options.queues.poll = 2;
        options.paths.busy_poll_us = Some(50);
        let volume = open(&server.url(), &options).polled();
        let load = Load::new(3);
        load.run(&volume, |load| {
            load.wait_for(100);
            server.kill();
            server.restart("disk0.img");
            load.wait_for(100);
        });
        volume.close();
    }
}

#[test]
fn an_operation_as_large_as_the_volume_is_done_in_pieces() {
    for protocol in PROTOCOLS {
        let server = Restartable::start(protocol);
        let volume = open(&server.url(), &options());
        let size = volume.info().size_bytes();
        let mut buffer = Buffer::allocate(size as usize);
        for (index, block) in buffer.chunks_exact_mut(512).enumerate() {
            block[..8].copy_from_slice(&(index as u64).to_le_bytes());
        }
        let (result, _) = block_on(volume.write(0, buffer, false));
        assert_eq!(result, Ok(()), "{protocol:?}");
        let (result, buffer) = block_on(volume.read(0, Buffer::allocate(size as usize)));
        assert_eq!(result, Ok(()));
        let right = |(index, block): (usize, &[u8])| block[..8] == (index as u64).to_le_bytes();
        assert!(buffer.chunks_exact(512).enumerate().all(right));
        assert!(volume.state().counters.splits >= 2);
        assert_eq!(block_on(volume.unmap(0, size)), Ok(()), "{protocol:?}");
        assert_eq!(
            block_on(volume.write_zeroes(0, size, true, false)),
            Ok(()),
            "{protocol:?}"
        );
        let (_, buffer) = block_on(volume.read(size - 4096, Buffer::allocate(4096)));
        assert!(buffer.iter().all(|byte| *byte == 0));
        let run = block_on(volume.extent_status(0, size));
        if volume.info().extent_status {
            let run = run.unwrap();
            assert!(run.bytes >= 512 && run.bytes <= size, "{run:?}");
        } else {
            assert_eq!(run, Err(Failure::Unsupported), "{protocol:?}");
        }
        volume.close();
    }
}

/// Counts what went well.
#[derive(Default)]
struct Counter(AtomicU64);

impl Completer for Counter {
    fn complete(&self, completion: Completion) {
        completion.result.unwrap();
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn many_threads_submit_at_once_without_waiting() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5000;
    for protocol in PROTOCOLS {
        let server = Restartable::start(protocol);
        let volume = open(&server.url(), &options());
        let counter = Arc::new(Counter::default());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (volume, counter) = (&volume, &counter);
                scope.spawn(move || {
                    for tag in 0..EACH {
                        let extent = Extent {
                            lba: Lba(thread * EACH + tag),
                            blocks: BlockCount(1),
                        };
                        let operation = Operation::Read { extent };
                        volume.submit(operation, Data::Discard, counter.clone(), tag);
                    }
                });
            }
        });
        until("all have completed", || {
            counter.0.load(Ordering::SeqCst) == THREADS * EACH
        });
        volume.close();
    }
}
