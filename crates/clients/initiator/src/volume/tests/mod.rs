//! A remote volume against a fake server: what it does when connections are cut, slow, refused or wrong.

#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers, in tests only"
)]

mod fake;
mod losses;
mod paths;
mod queues;
mod schedules;

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_reactor::Buffer;

use super::shared::Settings;
use super::{Completer, RemoteVolume, VolumeOptions};
use crate::error::Failure;
use crate::operation::{Completion, Data, Operation};
use crate::options::{QueueMaps, Timeouts};
use fake::{BLOCK, Fake, words};

pub(super) use fake::info;

thread_local! {
    /// What this thread does when a queue it takes down is empty, and still held.
    static BEFORE_LETTING_GO: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

pub(super) fn before_letting_go() {
    if let Some(act) = BEFORE_LETTING_GO.take() {
        act();
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Settings that make time pass quickly.
fn settings() -> Settings {
    Settings {
        volume: VolumeOptions {
            settle: Duration::from_millis(30),
            close_wait: Duration::from_secs(2),
            ..VolumeOptions::default()
        },
        timeouts: Timeouts {
            request: Duration::from_secs(10),
            keep_alive: Duration::from_secs(10),
            reconnect_min: Duration::from_millis(2),
            reconnect_max: Duration::from_millis(20),
            give_up: Duration::from_secs(10),
            ..Timeouts::default()
        },
        queues: QueueMaps::plain(1),
    }
}

fn open(fake: &Fake) -> RemoteVolume {
    open_with(fake, settings())
}

fn open_with(fake: &Fake, settings: Settings) -> RemoteVolume {
    RemoteVolume::over(fake.dialer(), settings).expect("a portal is up")
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(blocks),
    }
}

fn read(lba: u64, blocks: u64) -> Operation {
    Operation::Read {
        extent: extent(lba, blocks),
    }
}

fn write(lba: u64, blocks: u64) -> Operation {
    Operation::Write {
        extent: extent(lba, blocks),
        fua: false,
    }
}

fn compare_and_write(lba: u64, blocks: u64) -> Operation {
    Operation::CompareAndWrite {
        extent: extent(lba, blocks),
        fua: false,
    }
}

/// A buffer whose blocks begin with these words.
fn buffer(words: &[u64]) -> Buffer {
    let mut buffer = Buffer::allocate(words.len() * BLOCK as usize);
    for (block, word) in buffer.chunks_exact_mut(BLOCK as usize).zip(words) {
        block[..8].copy_from_slice(&word.to_le_bytes());
    }
    buffer
}

fn data_for(operation: &Operation, word: u64) -> Data {
    let blocks = operation.data_length(BLOCK) / u64::from(BLOCK);
    if blocks == 0 {
        return Data::None;
    }
    Data::buffer(buffer(&vec![word; blocks as usize]))
}

/// Collects completions, and insists that each tag completes once.
#[derive(Default)]
struct Collector {
    completions: Mutex<Vec<Completion>>,
    changed: Condvar,
}

impl Completer for Collector {
    fn complete(&self, completion: Completion) {
        let mut completions = self.completions.lock().unwrap();
        assert!(
            completions.iter().all(|other| other.tag != completion.tag),
            "tag {} completed twice",
            completion.tag
        );
        completions.push(completion);
        self.changed.notify_all();
    }
}

impl Collector {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn count(&self) -> usize {
        self.completions.lock().unwrap().len()
    }

    /// Waits for so many, and returns their results by tag.
    fn results(&self, count: usize) -> Vec<(u64, Result<(), Failure>)> {
        let completions = self.completions.lock().unwrap();
        let (completions, timeout) = self
            .changed
            .wait_timeout_while(completions, PATIENCE, |completions| {
                completions.len() < count
            })
            .unwrap();
        assert!(
            !timeout.timed_out(),
            "{} of {count} completed",
            completions.len()
        );
        let mut results: Vec<_> = completions
            .iter()
            .map(|completion| (completion.tag, completion.result.clone().map(|_| ())))
            .collect();
        results.sort_by_key(|(tag, _)| *tag);
        results
    }

    /// The one result there is to be.
    fn result(&self) -> Result<(), Failure> {
        self.results(1).remove(0).1
    }

    /// The words of the data of the only completion.
    fn words(&self) -> Vec<u64> {
        words(self.completions.lock().unwrap()[0].data.bytes())
    }
}

/// Submits one operation with data of this word.
fn submit(volume: &RemoteVolume, operation: Operation, word: u64) -> Arc<Collector> {
    let collector = Collector::new();
    volume.submit(
        operation,
        data_for(&operation, word),
        collector.clone(),
        word,
    );
    collector
}

/// Submits one operation and waits for its end.
fn run(volume: &RemoteVolume, operation: Operation, word: u64) -> Result<(), Failure> {
    submit(volume, operation, word).result()
}

/// Threads of this process that belong to volumes.
fn volume_threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| {
            ["volume-", "dial-", "control-"]
                .iter()
                .any(|start| name.starts_with(start))
        })
        .count()
}
