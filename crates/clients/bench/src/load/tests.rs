//! Whole loads, with their threads, over a volume in memory.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use longshore_initiator::options::Options;

use super::*;
use crate::fake::{FakeQueue, FakeVolume, Plant};
use crate::verify::FaultKind;
use crate::watch::{Interrupt, Phase, Progress, Watch};

const REGION: Region = Region {
    lba: 0,
    blocks: 256,
    block_size: 512,
};

/// The number of a run that only verifies.
const ONLY: u64 = 3;

/// Remembers the phases it has seen, and interrupts when there is progress.
#[derive(Default)]
struct Onlooker {
    phases: Vec<Phase>,
    interrupt: Option<Interrupt>,
}

impl Watch for Onlooker {
    fn progress(&mut self, progress: Progress) {
        if self.phases.last() != Some(&progress.phase) {
            self.phases.push(progress.phase);
        }
        if progress.operations > 0
            && let Some(interrupt) = &self.interrupt
        {
            interrupt.cell().store(2, Ordering::Relaxed);
        }
    }

    fn warn(&mut self, text: &str) {
        panic!("nothing to warn of: {text}");
    }
}

fn run(jobs: &[&str], queues: u16, operations: Option<u64>) -> Run {
    Run {
        jobs: jobs.iter().map(|job| job.parse().unwrap()).collect(),
        maps: QueueMaps::plain(queues),
        threads: Some(queues),
        length: Length {
            operations,
            ..Length::default()
        },
        warmup: Duration::ZERO,
        whole: false,
        seed: 1,
        verify: Verify::On,
        offset: 0,
        span: None,
        discard: false,
        spin: false,
        continue_on_error: false,
        options: Options::default(),
    }
}

fn measure(run: &Run, volume: &Arc<Mutex<FakeVolume>>, onlooker: &mut Onlooker) -> PointResult {
    let interrupt = onlooker.interrupt.clone().unwrap_or_default();
    // Runs differ by this number.
    let number = if run.verify == Verify::Only { ONLY } else { 2 };
    let load = Load {
        run,
        maps: run.maps,
        layout: Layout::new(&run.jobs, run.maps, run.threads, 8).unwrap(),
        region: REGION,
        max_transfer: 16,
        verifier: Some(Arc::new(Verifier::new(REGION, 1, number, number == ONLY))),
        content: None,
    };
    let queues = (0..run.maps.total()).map(|_| FakeQueue::new(volume, 16));
    let mut supervisor = Supervisor {
        control: None,
        server: None,
        interrupt: &interrupt,
        watch: onlooker,
        read_back: false,
    };
    load.measure(queues.collect(), &mut supervisor).1
}

#[test]
fn threads_write_together_and_all_is_read_back() {
    let volume = FakeVolume::new(256, 512).shared();
    let run = run(
        &[
            "w,rw=randwrite,bs=4k,iodepth=4,numjobs=2",
            "m,rw=randrw,bs=512,iodepth=8,numjobs=2",
        ],
        2,
        Some(1_000),
    );
    let result = measure(&run, &volume, &mut Onlooker::default());
    assert!(result.is_good(), "{result:?}");
    assert_eq!(result.threads, 2);
    assert_eq!(result.operations, 2_000);
    let jobs: Vec<u64> = result.jobs.iter().map(|job| job.total.operations).collect();
    assert_eq!(jobs, [1_000, 1_000]);
    let verify = result.verify.unwrap();
    assert_eq!(verify.faults, 0);
    assert!(verify.read_back_complete && verify.blocks_good > 256);
}

#[test]
fn a_write_that_vanished_is_found_when_all_is_read_back() {
    let volume = FakeVolume::new(256, 512).planted(Plant::Lost, 30).shared();
    // Each block three times; the fault hits a second write, and the third covers others only.
    let run = run(&["w,rw=write,bs=4k,iodepth=2"], 1, Some(63));
    let result = measure(&run, &volume, &mut Onlooker::default());
    let verify = result.verify.as_ref().unwrap();
    assert!(!result.is_good());
    assert_eq!(verify.first_faults[0].kind, FaultKind::Lost);
}

#[test]
fn an_interrupted_run_tells_what_was_done_until_then() {
    let volume = FakeVolume::new(256, 512).shared();
    let run = run(&["w,rw=randwrite,bs=512,iodepth=4"], 1, None);
    let mut onlooker = Onlooker {
        interrupt: Some(Interrupt::default()),
        ..Onlooker::default()
    };
    let result = measure(&run, &volume, &mut onlooker);
    assert!(result.interrupted && result.is_good());
    assert!(result.operations > 0 && result.iops > 0.0);
    assert!(!result.verify.unwrap().read_back_complete);
    assert_eq!(onlooker.phases, [Phase::Measure]);
}

#[test]
fn a_connection_that_is_lost_ends_all_threads() {
    let volume = FakeVolume::new(256, 512).planted(Plant::Lose, 100).shared();
    let run = run(&["r,rw=randread,bs=512,iodepth=4,numjobs=2"], 2, None);
    let result = measure(&run, &volume, &mut Onlooker::default());
    assert_eq!(
        result.lost.as_deref(),
        Some("the server closed the connection")
    );
    assert!(!result.is_good());
}

#[test]
fn verifying_alone_reads_the_region_once_and_writes_nothing() {
    let volume = FakeVolume::new(256, 512).shared();
    let write = run(&["w,rw=write,bs=4k,iodepth=2"], 1, Some(16));
    assert!(measure(&write, &volume, &mut Onlooker::default()).is_good());
    let only = Run {
        verify: Verify::Only,
        ..run(&["w,rw=write,bs=4k,iodepth=2,numjobs=2"], 2, Some(1))
    };
    let result = measure(&only, &volume, &mut Onlooker::default());
    let verify = result.verify.unwrap();
    assert_eq!((verify.blocks_good, verify.blocks_open), (128, 128));
    assert_eq!(result.operations, 32);
    assert!(verify.read_back_complete);
}
