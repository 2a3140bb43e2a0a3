//! Writers and readers that know what they must find.
//!
//! Each worker has a part of the volume of its own, in cells of 4 KiB. It counts each cell up, over
//! runs of cells, and reads runs back: every block of a cell must hold the number that was acknowledged last. So
//! a lost, late, torn or misplaced write shows at the next read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longshore_initiator::volume::{RemoteVolume, block_on};
use longshore_reactor::Buffer;
use longshore_tests::stop::StopsAtEnd;

const CELL: usize = 4096;
const BLOCK: usize = 512;
const CELLS: u64 = 200;
/// More than fits in one command of some peers, in cells.
const RUN_MAX: u64 = 100;

/// Keeps workers busy until told to stop. Panics at the first fault.
pub struct Load {
    pub workers: u64,
    stop: AtomicBool,
    done: AtomicU64,
    /// The longest that any operation has taken, in milliseconds.
    slowest_ms: AtomicU64,
}

impl Load {
    pub fn new(workers: u64) -> Self {
        Self {
            workers,
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
            slowest_ms: AtomicU64::new(0),
        }
    }

    /// Runs `disturb` while the workers work, and lets them read all they have afterwards.
    pub fn run(&self, volume: &RemoteVolume, disturb: impl FnOnce(&Self)) {
        std::thread::scope(|scope| {
            for worker in 0..self.workers {
                let volume = volume.clone();
                scope.spawn(move || self.work(&volume, worker));
            }
            let stop = StopsAtEnd(&self.stop);
            disturb(self);
            drop(stop);
        });
    }

    /// Operations that have completed.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    pub fn slowest(&self) -> Duration {
        Duration::from_millis(self.slowest_ms.load(Ordering::SeqCst))
    }

    /// Waits until so many more operations have completed.
    pub fn wait_for(&self, operations: u64) {
        let goal = self.done() + operations;
        super::until("operations complete", || self.done() >= goal);
    }

    fn work(&self, volume: &RemoteVolume, worker: u64) {
        // Whoever fails ends the load for all.
        let _stop = StopsAtEnd(&self.stop);
        let first = worker * CELLS;
        let mut cells = vec![0u64; CELLS as usize];
        let mut random = worker + 1;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        while !self.stop.load(Ordering::SeqCst) {
            // Mostly short ones, now and then one that has to be split.
            let most = if next(16) == 0 { RUN_MAX } else { 4 };
            let start = next(CELLS);
            let run = 1 + next(most.min(CELLS - start));
            let begun = Instant::now();
            if next(2) == 0 {
                write(volume, first, &mut cells, start, run, next(8) == 0);
            } else {
                check(volume, first, &cells, start, run);
            }
            if next(64) == 0 {
                assert_eq!(block_on(volume.flush()), Ok(()));
            }
            let took = u64::try_from(begun.elapsed().as_millis()).unwrap();
            self.slowest_ms.fetch_max(took, Ordering::SeqCst);
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        for start in (0..CELLS).step_by(50) {
            check(volume, first, &cells, start, 50);
        }
    }
}

/// Counts a run of cells up.
fn write(volume: &RemoteVolume, first: u64, cells: &mut [u64], start: u64, run: u64, fua: bool) {
    let mut buffer = Buffer::allocate(run as usize * CELL);
    for index in 0..run {
        let value = cells[(start + index) as usize] + 1;
        let cell = first + start + index;
        let from = index as usize * CELL;
        for block in buffer[from..from + CELL].chunks_exact_mut(BLOCK) {
            fill(block, cell, value);
        }
    }
    let (result, _) = block_on(volume.write((first + start) * CELL as u64, buffer, fua));
    assert_eq!(result, Ok(()));
    for index in 0..run {
        cells[(start + index) as usize] += 1;
    }
}

/// Reads a run of cells and looks at each block.
fn check(volume: &RemoteVolume, first: u64, cells: &[u64], start: u64, run: u64) {
    let buffer = Buffer::allocate(run as usize * CELL);
    let (result, buffer) = block_on(volume.read((first + start) * CELL as u64, buffer));
    assert_eq!(result, Ok(()));
    let mut expected = [0; BLOCK];
    for (index, block) in buffer.chunks_exact(BLOCK).enumerate() {
        let cell = start + (index * BLOCK / CELL) as u64;
        let value = cells[cell as usize];
        expected.fill(0);
        if value > 0 {
            fill(&mut expected, first + cell, value);
        }
        assert!(
            block == expected,
            "cell {cell} has {:?}, not {value}",
            u64::from_le_bytes(block[8..16].try_into().unwrap())
        );
    }
}

fn fill(block: &mut [u8], cell: u64, value: u64) {
    for word in block.chunks_exact_mut(16) {
        word[..8].copy_from_slice(&cell.to_le_bytes());
        word[8..].copy_from_slice(&value.to_le_bytes());
    }
}
