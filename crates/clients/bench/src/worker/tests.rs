//! The engine over a volume in memory.

use std::sync::Mutex;

use super::*;
use crate::fake::{FakeQueue, FakeVolume, Plant};
use crate::pacing::{Pacer, RateLimits};
use crate::random::Random;
use crate::stream::{Quota, Source, Sweep};
use crate::verify::FaultKind;
use crate::workload::{Generator, Region};

const REGION: Region = Region {
    lba: 0,
    blocks: 256,
    block_size: 512,
};

struct Bench {
    volume: Arc<Mutex<FakeVolume>>,
    verifier: Option<Arc<Verifier>>,
    continue_on_error: bool,
    queues: usize,
    whole: bool,
}

impl Bench {
    fn new(volume: FakeVolume) -> Self {
        Self {
            volume: volume.shared(),
            verifier: None,
            continue_on_error: false,
            queues: 1,
            whole: false,
        }
    }

    fn verified(volume: FakeVolume) -> Self {
        Self {
            verifier: Some(Arc::new(Verifier::new(REGION, 1, 2, false))),
            ..Self::new(volume)
        }
    }

    fn stream(rw: &str, bs: &str, depth: u16, operations: u64) -> Stream {
        let sizes: crate::workload::BlockSizes = bs.parse().unwrap();
        let largest = sizes.largest();
        let random = Random::new(7, 0);
        let generator = Generator::new(rw.parse().unwrap(), 50, sizes, REGION, random, (0, 1));
        let mut stream = Stream::new(0, depth, Source::Workload(generator), largest);
        stream.quota = Quota {
            operations: Some(operations),
            bytes: None,
        };
        stream
    }

    fn run(&self, streams: Vec<Stream>) -> Report {
        self.run_for(streams, 0, u64::MAX)
    }

    fn run_for(&self, streams: Vec<Stream>, measure_from_ns: u64, end_ns: u64) -> Report {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            progress: vec![Progress::default()],
        });
        let settings = Settings {
            measure_from_ns,
            end_ns,
            whole: self.whole,
            spin: false,
            discard: false,
            continue_on_error: self.continue_on_error,
            silence_ns: u64::MAX,
            content: Arc::new(Buffer::allocate(65_536)),
            content_of: None,
            verifier: self.verifier.clone(),
            jobs: 1,
        };
        let queues = (0..self.queues).map(|_| FakeQueue::new(&self.volume, 8));
        Worker::new(0, shared, settings, queues.collect(), streams)
            .run(0)
            .0
    }

    /// Reads all that was written.
    fn read_back(&self) -> Report {
        let sweep = Sweep {
            region: REGION,
            unit: 8,
            next: Arc::default(),
            written_by: self.verifier.clone(),
        };
        self.run(vec![Stream::new(0, 4, Source::Sweep(sweep), 4096)])
    }

    /// Writes and reads with a fault, then reads all back; what was found.
    fn find(plant: Plant, rw: &str, bs: &str) -> FaultKind {
        // Old data must come back when newer ones have been read, so not at the first read.
        let after = if plant == Plant::Stale { 1 } else { 20 };
        let volume = FakeVolume::new(256, 512).planted(plant, after);
        let bench = Self::verified(volume);
        // Every block has been written before the fault comes.
        bench.run(vec![Self::stream("write", "4k", 4, 32)]);
        // A fault that later writes cover is none that anybody could find.
        let operations = if rw == "randrw" { 5_000 } else { 22 };
        let mut report = bench.run(vec![Self::stream(rw, bs, 4, operations)]);
        if report.faults.is_empty() {
            report = bench.read_back();
        }
        assert!(!report.faults.is_empty(), "{plant:?} is not found");
        report.faults[0].kind
    }
}

#[test]
fn a_number_of_operations_is_kept_exactly() {
    let bench = Bench::new(FakeVolume::new(256, 512));
    let report = bench.run(vec![
        Bench::stream("randread", "512", 8, 100),
        Bench::stream("randwrite", "4k", 4, 50),
    ]);
    let job = &report.jobs[0];
    assert_eq!((job.read.operations, job.read.bytes), (100, 51_200));
    assert_eq!((job.write.operations, job.write.bytes), (50, 50 * 4096));
    assert_eq!(job.read.latency.len(), 100);
    assert_eq!((report.unanswered, report.errors.total()), (0, 0));
}

#[test]
fn reads_and_writes_go_to_the_queues_they_are_mapped_to() {
    let bench = Bench {
        queues: 2,
        ..Bench::new(FakeVolume::new(256, 512))
    };
    let mut stream = Bench::stream("randrw", "512", 16, 200);
    stream.read_queue = 1;
    let report = bench.run(vec![stream]);
    assert_eq!(report.jobs[0].total().operations, 200);
}

#[test]
fn reads_keep_their_memory_when_a_queue_takes_a_write_back() {
    let bench = Bench::new(FakeVolume::new(256, 512));
    let report = bench.run(vec![Bench::stream("randrw", "512", 16, 2_000)]);
    assert_eq!(report.jobs[0].total().operations, 2_000);
    assert_eq!(bench.volume.lock().unwrap().without_memory, 0);
}

#[test]
fn a_warm_up_is_not_counted() {
    let bench = Bench::new(FakeVolume::new(256, 512));
    let stream = Bench::stream("randread", "512", 4, u64::MAX);
    let started = Instant::now();
    let report = bench.run_for(vec![stream], 20_000_000, 1_020_000_000);
    assert!(report.measured > Duration::ZERO, "{report:?}");
    assert!(report.measured < started.elapsed() - Duration::from_millis(19));
    assert!(report.cpu > Duration::ZERO);
    let read = &report.jobs[0].read;
    assert!(read.operations > 0);
    assert_eq!(read.operations, read.latency.len());
}

#[test]
fn a_rate_is_kept_and_latency_counts_from_when_operations_were_due() {
    let bench = Bench::new(FakeVolume::new(256, 512));
    let mut stream = Bench::stream("randread", "512", 1, 100);
    let limits = RateLimits {
        operations: Some(1_000),
        bytes: None,
    };
    stream.pacer = Pacer::new(limits, 0, 1, 512.0);
    let started = Instant::now();
    let report = bench.run(vec![stream]);
    assert!(started.elapsed() >= Duration::from_millis(98));
    let read = &report.jobs[0].read;
    assert_eq!((read.latency.len(), read.service.len()), (100, 100));
    assert!(read.latency.max() >= read.service.max());
}

#[test]
fn a_sound_volume_passes() {
    for (rw, bs) in [
        ("randrw", "512"),
        ("rw", "4k"),
        ("randwrite", "512/50:4k/50"),
    ] {
        let bench = Bench::verified(FakeVolume::new(256, 512));
        let report = bench.run(vec![Bench::stream(rw, bs, 8, 2_000)]);
        assert_eq!(report.faults, [], "{rw} {bs}");
        assert_eq!(report.jobs[0].total().operations, 2_000);
        let report = bench.read_back();
        assert_eq!(report.faults, []);
        assert!(report.checked.0 > 0);
    }
}

#[test]
fn each_planted_fault_is_found_and_named() {
    for (plant, rw, bs, kind) in [
        (Plant::Lost, "randwrite", "512", FaultKind::Lost),
        (Plant::Stale, "randrw", "512", FaultKind::Stale),
        (Plant::TornBlock, "randwrite", "512", FaultKind::Torn),
        (Plant::TornWrite, "randwrite", "2k", FaultKind::Torn),
        (Plant::Flipped, "randwrite", "512", FaultKind::Corrupt),
    ] {
        assert_eq!(Bench::find(plant, rw, bs), kind, "{plant:?}");
    }
    // A misplaced write is also missing where it belongs; whichever is read first is told.
    let found = Bench::find(Plant::Misplaced, "randwrite", "512");
    assert!(matches!(found, FaultKind::Misplaced | FaultKind::Lost));
}

#[test]
fn all_faults_are_counted_when_the_run_goes_on() {
    let bench = Bench {
        continue_on_error: true,
        ..Bench::verified(FakeVolume::new(256, 512).planted(Plant::Misplaced, 20))
    };
    bench.run(vec![Bench::stream("write", "512", 4, 256)]);
    bench.run(vec![Bench::stream("write", "512", 1, 100)]);
    let report = bench.read_back();
    let kinds: Vec<FaultKind> = report.faults.iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&FaultKind::Lost), "{:?}", report.faults);
}

#[test]
fn the_first_error_ends_the_run_unless_it_is_to_go_on() {
    let volume = || FakeVolume::new(256, 512).planted(Plant::Fails, 20);
    let bench = Bench::new(volume());
    let report = bench.run(vec![Bench::stream("randwrite", "512", 4, 1_000)]);
    let errors: Vec<(&str, u64)> = report.errors.iter().collect();
    assert_eq!(
        errors,
        [("write: the storage of the volume has no space left", 1)]
    );
    assert!(report.jobs[0].write.operations < 1_000);
    assert_eq!(report.unanswered, 0);
    let bench = Bench {
        continue_on_error: true,
        ..Bench::new(volume())
    };
    let report = bench.run(vec![Bench::stream("randwrite", "512", 4, 1_000)]);
    assert_eq!(report.jobs[0].write.operations, 999);
}

#[test]
fn an_operation_that_a_unit_attention_ended_is_submitted_again() {
    for rw in ["randread", "randwrite", "randrw"] {
        // Each of the operations under way may get one of them.
        for attentions in [1, u32::from(REPEATS_MAX)] {
            let plant = Plant::Attentions(attentions);
            for bench in [Bench::new, Bench::verified] {
                let bench = bench(FakeVolume::new(256, 512).planted(plant, 20));
                let report = bench.run(vec![Bench::stream(rw, "512", 4, 1_000)]);
                assert_eq!(report.errors.total(), 0, "{rw}: {:?}", report.errors);
                assert_eq!(report.jobs[0].total().operations, 1_000, "{rw}");
                assert_eq!((report.unanswered, report.fault_count), (0, 0), "{rw}");
                assert_eq!(bench.read_back().faults, []);
            }
        }
    }
}

#[test]
fn unit_attentions_without_an_end_are_an_error() {
    let plant = Plant::Attentions(u32::MAX);
    let bench = Bench::new(FakeVolume::new(256, 512).planted(plant, 20));
    let report = bench.run(vec![Bench::stream("randread", "512", 4, 1_000)]);
    assert!(report.errors.total() > 0);
    let (error, _) = report.errors.iter().next().unwrap();
    assert!(error.contains("UNIT ATTENTION"), "{error}");
    assert_eq!(report.unanswered, 0);
}

#[test]
fn a_failed_write_leaves_both_generations_open() {
    let bench = Bench {
        continue_on_error: true,
        ..Bench::verified(FakeVolume::new(256, 512).planted(Plant::Fails, 300))
    };
    let report = bench.run(vec![Bench::stream("randrw", "512", 4, 2_000)]);
    assert_eq!(report.errors.total(), 1);
    assert_eq!(report.faults, []);
    assert_eq!(bench.read_back().faults, []);
}

#[test]
fn a_lost_connection_is_told_with_what_was_under_way() {
    let bench = Bench::new(FakeVolume::new(256, 512).planted(Plant::Lose, 50));
    let report = bench.run(vec![Bench::stream("randread", "512", 8, 1_000)]);
    assert_eq!(report.lost, Some(Lost::HungUp));
    assert!(report.unanswered > 0);
    assert!(report.jobs[0].read.operations >= 48);
}

#[test]
fn whole_generations_are_measured_however_slow_the_operations_are() {
    // The time is over before the first answer.
    let of = |depth, whole| {
        let bench = Bench {
            whole,
            ..Bench::new(FakeVolume::new(256, 512))
        };
        let report = bench.run_for(vec![Bench::stream("randread", "512", depth, 1000)], 0, 0);
        report.jobs[0].read.operations
    };
    assert_eq!(of(1, false), 0);
    assert_eq!(of(1, true), 4);
    for depth in [2, 3, 8] {
        // A turn takes in what has come, which may be more than the rest of a generation.
        let (operations, generation) = (of(depth, true), u64::from(depth));
        let most = generation.next_multiple_of(4) + generation;
        assert!(
            (generation.max(4)..most).contains(&operations),
            "{operations} at depth {depth}"
        );
    }
}
