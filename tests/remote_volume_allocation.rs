//! A remote volume that is warm does not allocate for operations that are submitted with a completer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::operation::{Completion, Operation};
use longshore_initiator::options::Options;
use longshore_initiator::volume::{Completer, RemoteVolume};
use longshore_reactor::Buffer;
use longshore_tests::nvme::SUBSYSTEM;
use longshore_tests::server::{ServerBuilder, TARGET};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const DEPTH: u64 = 32;
const WARM: u64 = 5_000;
const MEASURED: u64 = 20_000;

/// Submits the next operation when one completes, over the same memory.
struct Endless {
    volume: RemoteVolume,
    me: Weak<Self>,
    done: AtomicU64,
}

impl Completer for Endless {
    fn complete(&self, completion: Completion) {
        completion.result.unwrap();
        let done = self.done.fetch_add(1, Ordering::SeqCst);
        if done < WARM + MEASURED {
            let extent = Extent {
                lba: Lba(done % 1000 * 8),
                blocks: BlockCount(8),
            };
            let operation = if done.is_multiple_of(2) {
                Operation::Read { extent }
            } else {
                Operation::Write { extent, fua: false }
            };
            let me = self.me.upgrade().unwrap();
            self.volume
                .submit(operation, completion.data, me, completion.tag);
        }
    }
}

impl Endless {
    fn wait_for(&self, done: u64) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.done.load(Ordering::SeqCst) < done {
            assert!(Instant::now() < end, "operations complete");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn warm_volumes_do_not_allocate() {
    let server = ServerBuilder::new()
        .volume("memory,backend=mem,size=64M")
        .iscsi()
        .nvme()
        .start()
        .unwrap();
    for url in [
        format!("iscsi://{}/{TARGET}/0", server.portal(0)),
        format!("nvme+tcp://{}/{SUBSYSTEM}/1", server.nvme(0)),
    ] {
        let volume = RemoteVolume::open(&url.parse().unwrap(), &Options::default()).unwrap();
        let endless = Arc::new_cyclic(|me| Endless {
            volume: volume.clone(),
            me: me.clone(),
            done: AtomicU64::new(0),
        });
        for tag in 0..DEPTH {
            let data = longshore_initiator::operation::Data::buffer(Buffer::allocate(4096));
            let extent = Extent {
                lba: Lba(tag * 8),
                blocks: BlockCount(8),
            };
            volume.submit(Operation::Read { extent }, data, endless.clone(), tag);
        }
        endless.wait_for(WARM);
        let region = Region::new(ALLOCATOR);
        endless.wait_for(WARM + MEASURED);
        let change = region.change();
        // Timers of connections may have something to say now and then.
        assert!(change.allocations < 20, "{url}: {change:?}");
        volume.close();
    }
}
