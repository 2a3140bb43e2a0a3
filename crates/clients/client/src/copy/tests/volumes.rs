//! Transfers between volumes that fail, forget, or have other blocks.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_volume::backend::mem::MemVolume;
use longshore_volume::layer::fault::{Fault, FaultRule, FaultTarget, FaultVolume};
use longshore_volume::{Attempt, BackendName, Execution, Io, Request, VolumeSpec};
use uuid::Uuid;

use super::*;

pub(super) fn memory(size: u64, block_size: u32, contents: &[u8]) -> Arc<dyn Volume> {
    let volume = MemVolume::open(&VolumeSpec {
        size: Some(size),
        block_size,
        ..VolumeSpec::new("m", BackendName::MEM)
    })
    .unwrap();
    if !contents.is_empty() {
        write(&volume, contents);
    }
    Arc::new(volume)
}

fn write(volume: &dyn Volume, contents: &[u8]) {
    let attempt = volume.try_write(longshore_volume::Lba(0), contents, false);
    assert!(matches!(attempt, Attempt::Done(Ok(()))));
}

fn contents(volume: &dyn Volume) -> Vec<u8> {
    let geometry = volume.geometry();
    let size = geometry.block_count * u64::from(geometry.block_size);
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    let attempt = volume.try_read(longshore_volume::Lba(0), &mut bytes);
    assert!(matches!(attempt, Attempt::Done(Ok(()))));
    bytes
}

pub(super) fn side(volume: &Arc<dyn Volume>, name: &str) -> Side {
    Side {
        volume: volume.clone(),
        name: name.to_owned(),
        link: None,
    }
}

fn transfer(
    source: &Arc<dyn Volume>,
    destination: &Arc<dyn Volume>,
    size: u64,
    zeros_known: bool,
    settings: &Settings,
) -> Transferred {
    let mut silent = Silent;
    Transfer::new(Assignment {
        source: &side(source, "source"),
        destination: &side(destination, "destination"),
        size,
        start: 0,
        zeros_known,
        changes: None,
        journal: None,
        settings,
    })
    .unwrap()
    .run(&mut Monitor::new(&mut silent, Interrupt::new()))
}

pub(super) fn settings() -> Settings {
    Settings {
        chunk: 16 * K,
        parallel: 4,
        ..Settings::default()
    }
}

/// Connections with a count of losses.
struct Lossy(Arc<AtomicU64>);

impl Link for Lossy {
    fn losses(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn outage(&self) -> Option<Outage> {
        None
    }
}

#[test]
fn the_last_block_of_a_destination_with_larger_blocks_keeps_its_end() {
    let data = garbage(37 * 512, 3);
    let source = memory(37 * 512, 512, &data);
    let old = garbage(24 * K, 9);
    let destination = memory(24 * K, 4096, &old);
    let done = transfer(&source, &destination, 37 * 512, false, &settings());
    done.result.unwrap();
    let copied = contents(&*destination);
    assert_eq!(copied[..37 * 512], data);
    assert_eq!(copied[37 * 512..], old[37 * 512..]);
}

#[test]
fn changes_alone_are_copied() {
    const SIZE: u64 = 512 * K;
    let old = garbage(SIZE, 1);
    let mut new = old.clone();
    // Within chunks of 16 KiB and across them, zeros, and the end.
    for (start, end, seed) in [(4, 8, 2), (28, 36, 3), (100, 101, 4), (511, 512, 5)] {
        let bytes = garbage((end - start) * K, seed);
        let at = usize::try_from(start * K).unwrap();
        new[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    new[300 * 1024..340 * 1024].fill(0);
    let source = memory(SIZE, 512, &new);
    let destination = memory(SIZE + 64 * K, 4096, &old);
    let ranges = [4..8, 28..36, 100..101, 300..340, 511..512];
    let ranges: Vec<_> = ranges
        .iter()
        .map(|it: &Range<u64>| it.start * K..it.end * K)
        .collect();
    let changes = Changes {
        source: Uuid::nil(),
        since: Uuid::nil(),
        size: SIZE,
        ranges: ranges.into(),
    };
    let mut silent = Silent;
    let mut monitor = Monitor::new(&mut silent, Interrupt::new());
    let done = Transfer::new(Assignment {
        source: &side(&source, "source"),
        destination: &side(&destination, "destination"),
        size: SIZE,
        start: 0,
        zeros_known: false,
        changes: Some(&changes),
        journal: None,
        settings: &settings(),
    })
    .unwrap()
    .run(&mut monitor);
    done.result.unwrap();
    assert_eq!(contents(&*destination)[..new.len()], new);
    let progress = monitor.progress();
    // To whole blocks of the destination.
    assert_eq!((progress.data, progress.zeros), (20 * K, 40 * K));
    assert_eq!(progress.unchanged, SIZE - 60 * K);
    assert_eq!(progress.done, SIZE);
}

#[test]
fn a_source_with_larger_blocks_is_copied_to_smaller_ones() {
    let data = garbage(20 * K, 3);
    let source = memory(20 * K, 4096, &data);
    let destination = memory(21 * K, 512, &[]);
    let done = transfer(&source, &destination, 20 * K, true, &settings());
    done.result.unwrap();
    assert_eq!(contents(&*destination)[..20 * 1024], data);
}

#[test]
fn a_destination_that_cannot_zero_is_sent_zeros() {
    let mut data = vec![0; 300 * 1024];
    data[250_000..].fill(5);
    let source = memory(300 * K, 512, &data);
    let destination = memory(300 * K, 512, &garbage(300 * K, 9));
    let refusing: Arc<dyn Volume> = Arc::new(NoZeroing(destination.clone()));
    let settings = Settings {
        chunk: 128 * K,
        ..settings()
    };
    transfer(&source, &refusing, 300 * K, false, &settings)
        .result
        .unwrap();
    assert!(contents(&*destination) == data);
}

/// A volume without WriteZeroes.
struct NoZeroing(Arc<dyn Volume>);

impl Volume for NoZeroing {
    fn identity(&self) -> &longshore_volume::Identity {
        self.0.identity()
    }
    fn geometry(&self) -> longshore_volume::Geometry {
        self.0.geometry()
    }
    fn characteristics(&self) -> longshore_volume::Characteristics {
        self.0.characteristics()
    }
    fn try_read(&self, lba: longshore_volume::Lba, into: &mut [u8]) -> Attempt {
        self.0.try_read(lba, into)
    }
    fn try_write(&self, lba: longshore_volume::Lba, from: &[u8], fua: bool) -> Attempt {
        self.0.try_write(lba, from, fua)
    }
    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        if matches!(
            request.operation,
            longshore_volume::Operation::WriteZeroes { .. }
        ) {
            return Execution::ended(Err(VolumeError::Unsupported), request.buffer);
        }
        self.0.clone().execute(request, io)
    }
    fn refresh_geometry(&self) -> Result<longshore_volume::Geometry, VolumeError> {
        self.0.refresh_geometry()
    }
}

fn faulty(volume: Arc<dyn Volume>, target: FaultTarget, at: u64) -> Arc<dyn Volume> {
    let rule = FaultRule {
        target,
        range: at..at + 1,
        failures_per_million: 1_000_000,
        fault: Fault::Medium,
    };
    Arc::new(FaultVolume::new(volume, vec![rule], 1))
}

#[test]
fn a_failed_read_or_write_ends_the_copy_and_says_where() {
    let data = garbage(256 * K, 3);
    for target in [FaultTarget::Read, FaultTarget::Write] {
        let (mut source, mut destination) =
            (memory(256 * K, 512, &data), memory(256 * K, 512, &[]));
        match target {
            FaultTarget::Read => source = faulty(source, target, 100 * K),
            _ => destination = faulty(destination, target, 100 * K),
        }
        let done = transfer(&source, &destination, 256 * K, true, &settings());
        let text = done.result.unwrap_err().to_string();
        assert!(text.contains("bytes 98304 to 114688 of"), "{text}");
        assert_eq!(done.done, 98304, "what was before is there");
        assert_eq!(contents_until(&destination, 98304), data[..98304]);
    }
}

fn contents_until(volume: &Arc<dyn Volume>, end: usize) -> Vec<u8> {
    let mut bytes = vec![0; end];
    let attempt = volume.try_read(longshore_volume::Lba(0), &mut bytes);
    assert!(matches!(attempt, Attempt::Done(Ok(()))));
    bytes
}

#[test]
fn a_failed_flush_is_no_copy() {
    let source = memory(64 * K, 512, &garbage(64 * K, 3));
    let destination = faulty(memory(64 * K, 512, &[]), FaultTarget::Flush, 0);
    let done = transfer(&source, &destination, 64 * K, true, &settings());
    assert!(matches!(done.result, Err(CopyError::Flush { .. })));
    assert_eq!((done.done, done.recorded), (0, None));
}

/// A volume of another machine that is switched off, and on again, when its flushes have these numbers: what
/// was written since the flush before is gone then, and nobody is told.
struct Forgetful {
    volume: Arc<dyn Volume>,
    state: Mutex<ForgetfulState>,
    losses: Arc<AtomicU64>,
}

struct ForgetfulState {
    flushes: u64,
    off_at: Vec<u64>,
    kept: Vec<u8>,
}

impl Forgetful {
    fn new(volume: Arc<dyn Volume>, off_at: &[u64]) -> Self {
        let state = ForgetfulState {
            flushes: 0,
            off_at: off_at.to_vec(),
            kept: contents(&*volume),
        };
        Self {
            volume,
            state: Mutex::new(state),
            losses: Arc::default(),
        }
    }

    fn flush(&self) {
        let mut state = self.state.lock().unwrap();
        state.flushes += 1;
        if state.off_at.contains(&state.flushes) {
            write(&*self.volume, &state.kept);
            self.losses.fetch_add(1, Ordering::Relaxed);
        } else {
            state.kept = contents(&*self.volume);
        }
    }
}

impl Volume for Forgetful {
    fn identity(&self) -> &longshore_volume::Identity {
        self.volume.identity()
    }
    fn geometry(&self) -> longshore_volume::Geometry {
        self.volume.geometry()
    }
    fn characteristics(&self) -> longshore_volume::Characteristics {
        longshore_volume::Characteristics {
            write_cache: WriteCache::Volatile,
            ..self.volume.characteristics()
        }
    }
    fn try_read(&self, lba: longshore_volume::Lba, into: &mut [u8]) -> Attempt {
        self.volume.try_read(lba, into)
    }
    fn try_write(&self, lba: longshore_volume::Lba, from: &[u8], fua: bool) -> Attempt {
        self.volume.try_write(lba, from, fua)
    }
    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        if request.operation == longshore_volume::Operation::Flush {
            self.flush();
        }
        self.volume.clone().execute(request, io)
    }
    fn refresh_geometry(&self) -> Result<longshore_volume::Geometry, VolumeError> {
        self.volume.refresh_geometry()
    }
}

fn copy_to_forgetful(off_at: &[u64], checkpoint: Duration) -> (Transferred, Vec<u8>, Vec<u8>) {
    let data = garbage(512 * K, 3);
    let source = memory(512 * K, 512, &data);
    let destination = memory(512 * K, 512, &garbage(512 * K, 9));
    let forgetful = Forgetful::new(destination.clone(), off_at);
    let losses = forgetful.losses.clone();
    let forgetful: Arc<dyn Volume> = Arc::new(forgetful);
    let mut silent = Silent;
    let settings = Settings {
        checkpoint,
        ..settings()
    };
    let done = Transfer::new(Assignment {
        source: &side(&source, "source"),
        destination: &Side {
            link: Some(Box::new(Lossy(losses))),
            ..side(&forgetful, "destination")
        },
        size: 512 * K,
        start: 0,
        zeros_known: false,
        changes: None,
        journal: None,
        settings: &settings,
    })
    .unwrap()
    .run(&mut Monitor::new(&mut silent, Interrupt::new()));
    (done, data, contents(&*destination))
}

#[test]
fn what_a_server_has_forgotten_is_copied_again() {
    for (off_at, checkpoint) in [
        (&[1][..], Duration::from_secs(60)),
        (&[1, 2, 3], Duration::from_secs(60)),
        (&[1], Duration::ZERO),
        (&[2, 5, 6], Duration::ZERO),
    ] {
        let (done, data, copied) = copy_to_forgetful(off_at, checkpoint);
        done.result.unwrap();
        assert_eq!(done.done, 512 * K);
        assert!(copied == data, "{off_at:?}");
    }
}

#[test]
fn a_server_that_forgets_all_the_time_is_given_up() {
    let always: Vec<u64> = (1..1000).collect();
    let (done, ..) = copy_to_forgetful(&always, Duration::from_secs(60));
    let text = done.result.unwrap_err().to_string();
    assert!(text.contains("again and again"), "{text}");
    assert_eq!(done.done, 0);
}

#[test]
fn chunks_are_whole_stripes_of_the_destination() {
    for (optimal, expected) in [
        (None, 1 << 20),
        (Some(0), 1 << 20),
        (Some(256 * K), 1 << 20),
        (Some(768 * K), 1536 * K),
        (Some(3 << 20), 3 << 20),
        (Some(1000), 1 << 20),
        (Some(u64::MAX - 511), 1 << 20),
    ] {
        assert_eq!(chunk_for(1 << 20, 512, optimal), expected, "{optimal:?}");
    }
}

#[test]
fn a_rate_is_kept() {
    let source = memory(512 * K, 512, &garbage(512 * K, 3));
    let destination = memory(512 * K, 512, &[]);
    let began = Instant::now();
    let settings = Settings {
        rate: Some(1 << 20),
        ..settings()
    };
    transfer(&source, &destination, 512 * K, true, &settings)
        .result
        .unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!((0.4..5.0).contains(&took), "{took}");
}
