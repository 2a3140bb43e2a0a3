//! Keeps operations of a remote volume under way, from completers, and says what that costs: `queue_load` with
//! all that a remote volume adds to queues.
//!
//! ```text
//! cargo run --release -p longshore-initiator --example volume_load -- URL [read|write] [BYTES] [DEPTH] [SECONDS] \
//!     [QUEUES] [DRIVERS] [callback|future|polled]
//! ```
//!
//! It writes, when told to, over the first GiB of the volume.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::options::{Options, QueueMaps};
use longshore_initiator::volume::{Completer, Cork, RemoteVolume, block_on};
use longshore_reactor::Buffer;

const SPAN_BYTES: u64 = 1 << 30;

struct Load {
    volume: RemoteVolume,
    is_write: bool,
    blocks: u64,
    span: u64,
    done: AtomicU64,
    stop: AtomicBool,
    random: AtomicU64,
    pattern: Arc<Buffer>,
    /// For the next operation.
    me: Weak<Self>,
}

impl Load {
    fn next(&self) -> (Operation, Data) {
        // Weyl sequence: no two threads wait for each other.
        let random = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let lba = (random ^ random >> 29) % (self.span / self.blocks) * self.blocks;
        let extent = Extent {
            lba: Lba(lba),
            blocks: BlockCount(self.blocks),
        };
        if self.is_write {
            let data = Data::shared(self.pattern.clone());
            (Operation::Write { extent, fua: false }, data)
        } else {
            (Operation::Read { extent }, Data::Discard)
        }
    }

    fn submit(&self) {
        if let Some(completer) = self.me.upgrade() {
            let (operation, data) = self.next();
            self.volume.submit(operation, data, completer, 0);
        }
    }
}

impl Completer for Load {
    fn complete(&self, completion: Completion) {
        completion
            .result
            .expect("the server does what it is asked to");
        self.done.fetch_add(1, Ordering::Relaxed);
        if !self.stop.load(Ordering::Relaxed) {
            self.submit();
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = |index: usize, default: &'static str| {
        arguments
            .get(index)
            .map_or(default, String::as_str)
            .to_owned()
    };
    let bytes: usize = word(2, "512").parse()?;
    let depth: u64 = word(3, "128").parse()?;
    let seconds: u64 = word(4, "5").parse()?;
    let mode = word(7, "callback");
    let mut options = Options {
        queues: QueueMaps::plain(word(5, "1").parse()?),
        ..Options::default()
    };
    options.volume.drivers = word(6, "1").parse()?;
    if mode == "polled" {
        options.queues.poll = 1;
    }
    let mut volume = RemoteVolume::open(&word(0, "").parse()?, &options)?;
    if mode == "polled" {
        volume = volume.polled();
    }
    let info = volume.info();
    let load = Arc::new_cyclic(|me| Load {
        is_write: word(1, "read") == "write",
        blocks: bytes as u64 / u64::from(info.block_size),
        span: info
            .block_count
            .min(SPAN_BYTES / u64::from(info.block_size)),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        random: AtomicU64::new(1),
        pattern: Arc::new(Buffer::allocate(bytes)),
        volume: volume.clone(),
        me: me.clone(),
    });
    let before = rusage();
    let begun = Instant::now();
    if mode == "callback" {
        let cork = Cork::new();
        for _ in 0..depth {
            load.submit();
        }
        drop(cork);
        thread::sleep(Duration::from_secs(seconds));
        load.stop.store(true, Ordering::Relaxed);
    } else {
        thread::scope(|scope| {
            for _ in 0..depth {
                scope.spawn(|| {
                    while begun.elapsed() < Duration::from_secs(seconds) {
                        let (operation, _) = load.next();
                        let lba = operation.extent().map_or(0, |extent| extent.lba.0);
                        let offset = lba * u64::from(info.block_size);
                        let (result, _) = block_on(volume.read(offset, Buffer::allocate(bytes)));
                        result.expect("the server does what it is asked to");
                        load.done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    }
    let took = begun.elapsed();
    let done = load.done.load(Ordering::Relaxed);
    let cpu = rusage() - before;
    println!(
        "{:.0} per second, {:.3} us of processor time each; {:?}",
        done as f64 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / done as f64,
        volume.state().counters
    );
    volume.close();
    Ok(())
}

/// Processor time of this process, in steps of 10 ms.
fn rusage() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time are the 12th and 13th words after the name, which may contain anything.
    let words = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = words
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}
