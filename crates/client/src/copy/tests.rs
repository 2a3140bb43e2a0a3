//! Copies between files and memory volumes, whole and in pieces.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_volume::backend::mem::MemVolume;
use longshore_volume::layer::fault::{Fault, FaultRule, FaultTarget, FaultVolume};
use longshore_volume::{Attempt, BackendKind, VolumeSpec};
use proptest::prelude::*;

use super::*;

const K: u64 = 1024;

/// Files of a test; in memory where there is a tmpfs, since every copy flushes.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        Self(directory.unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A sparse file with these bytes at these offsets.
    fn sparse(&self, name: &str, size: u64, pieces: &[(u64, &[u8])]) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        for (offset, bytes) in pieces {
            file.write_all_at(bytes, *offset).unwrap();
        }
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn job(source: &Path, destination: &Path) -> Job {
    Job {
        source: Endpoint::Path(source.to_owned()),
        destination: Endpoint::Path(destination.to_owned()),
        source_options: Options::default(),
        destination_options: Options::default(),
        settings: Settings {
            chunk: 64 * K,
            parallel: 3,
            ..Settings::default()
        },
        journal: None,
        state_directory: None,
    }
}

fn with(mut job: Job, change: impl FnOnce(&mut Settings)) -> Job {
    change(&mut job.settings);
    job
}

#[derive(Default)]
struct Warnings(Vec<String>);

impl Observer for Warnings {
    fn progress(&mut self, progress: &Progress) {
        assert!(progress.start <= progress.done && progress.done <= progress.total);
    }
    fn warn(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

fn run(job: &Job) -> Report {
    copy(job, &Interrupt::new(), &mut Silent)
}

fn error(report: &Report) -> String {
    report.result.as_ref().unwrap_err().to_string()
}

fn garbage(length: u64, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| seed ^ u8::try_from(at % 251).unwrap() | 1)
        .collect()
}

// ---- files

#[test]
fn a_new_file_has_the_size_of_the_source_and_its_holes() {
    let files = Files::new();
    let data = garbage(100 * K, 1);
    let size = 64 << 20;
    let source = files.sparse("source", size, &[(0, &data), (size - 4 * K, &data[..4096])]);
    let destination = files.path("destination");
    let report = run(&with(job(&source, &destination), |it| it.verify = true));
    report.result.unwrap();
    let summary = report.summary;
    assert_eq!(fs::read(&source).unwrap(), fs::read(&destination).unwrap());
    assert_eq!(
        (summary.size, summary.done, summary.bytes),
        (size, size, size)
    );
    assert_eq!(summary.bytes, summary.data_bytes + summary.zero_bytes);
    assert!(summary.data_bytes <= 256 * K, "{summary:?}");
    assert_eq!((summary.verified, report.journal), (Some(true), None));
    let allocated = fs::metadata(&destination).unwrap().blocks() * 512;
    assert!(allocated <= 512 * K, "{allocated}");
    assert_eq!(files.names(), ["destination", "source"]);
}

#[test]
fn zeros_that_are_data_at_the_source_are_holes_at_the_destination() {
    let files = Files::new();
    let mut data = vec![0; 1 << 20];
    data[700_000] = 1;
    let source = files.sparse("source", 1 << 20, &[(0, &data)]);
    let destination = files.path("destination");
    let report = run(&job(&source, &destination));
    report.result.unwrap();
    assert_eq!(fs::read(&destination).unwrap(), data);
    assert!(report.summary.data_bytes <= 64 * K);
    let blocks = fs::metadata(&destination).unwrap().blocks();
    assert!(blocks <= 128, "{blocks}");
}

#[test]
fn a_thick_copy_is_allocated() {
    let files = Files::new();
    let source = files.sparse("source", 1 << 20, &[]);
    let destination = files.path("destination");
    let report = run(&with(job(&source, &destination), |it| it.thick = true));
    report.result.unwrap();
    assert_eq!(report.summary.data_bytes, 1 << 20);
    assert!(fs::metadata(&destination).unwrap().blocks() >= 2048);
}

#[test]
fn what_an_existing_destination_holds_is_overwritten_and_the_rest_left_alone() {
    let files = Files::new();
    let data = garbage(10 * K, 1);
    let source = files.sparse("source", 256 * K, &[(100 * K, &data)]);
    let old = garbage(300 * K, 7);
    let destination = files.sparse("destination", 300 * K, &[(0, &old)]);
    let report = run(&with(job(&source, &destination), |it| it.verify = true));
    report.result.unwrap();
    assert_eq!(report.summary.left_alone_bytes, 44 * K);
    let mut expected = fs::read(&source).unwrap();
    expected.extend_from_slice(&old[256 * 1024..]);
    assert_eq!(fs::read(&destination).unwrap(), expected);
}

#[test]
fn a_smaller_destination_is_refused_before_anything_is_written() {
    let files = Files::new();
    let source = files.sparse("source", 256 * K, &[(0, &garbage(256 * K, 1))]);
    let old = garbage(128 * K, 7);
    let destination = files.sparse("destination", 128 * K, &[(0, &old)]);
    let report = run(&job(&source, &destination));
    let text = error(&report);
    assert!(
        text.contains("has 131072 bytes, and the source 262144"),
        "{text}"
    );
    assert!(text.contains("truncate --size=262144"), "{text}");
    assert_eq!(fs::read(&destination).unwrap(), old);
}

#[test]
fn an_empty_file_is_as_good_as_a_new_one() {
    let files = Files::new();
    let source = files.sparse("source", 64 * K, &[(0, b"x")]);
    let destination = files.sparse("destination", 0, &[]);
    run(&job(&source, &destination)).result.unwrap();
    assert_eq!(fs::read(&source).unwrap(), fs::read(&destination).unwrap());
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let files = Files::new();
    let source = files.sparse("source", 64 * K, &[(0, b"x")]);
    let link = files.path("link");
    fs::hard_link(&source, &link).unwrap();
    for destination in [&source, &link] {
        let text = error(&run(&job(&source, destination)));
        assert!(text.contains("are the same file"), "{text}");
    }
    assert_eq!(fs::metadata(&source).unwrap().len(), 64 * K);
}

#[test]
fn what_cannot_be_copied_says_why() {
    let files = Files::new();
    let good = files.sparse("good", 64 * K, &[]);
    let empty = files.sparse("empty", 0, &[]);
    let uneven = files.sparse("uneven", 1000, &[]);
    for (source, destination, expected) in [
        (
            files.path("none"),
            files.path("new"),
            "no such file or device",
        ),
        (empty, files.path("new"), "is empty"),
        (uneven.clone(), files.path("new"), "truncate --size=1024"),
        (
            files.0.path().to_owned(),
            files.path("new"),
            "is a directory",
        ),
        ("/dev/zero".into(), files.path("new"), "has no size"),
        (good.clone(), files.path("none/new"), "create it first"),
        (good.clone(), files.0.path().to_owned(), "is a directory"),
        (good.clone(), "/dev/null".into(), "is a character device"),
    ] {
        let text = error(&run(&job(&source, &destination)));
        assert!(text.contains(expected), "{text}");
        assert!(!files.path("new").exists(), "{text}");
    }
}

#[test]
fn a_file_that_somebody_serves_is_refused() {
    let files = Files::new();
    let source = files.sparse("source", 64 * K, &[]);
    let served = files.sparse("served", 64 * K, &[]);
    let held = longshore_volume::open(&VolumeSpec {
        path: Some(served.clone()),
        ..VolumeSpec::new("v", BackendKind::File)
    })
    .unwrap();
    for job in [job(&source, &served), job(&served, &files.path("new"))] {
        let text = error(&run(&job));
        assert!(text.contains("in use by"), "{text}");
    }
    drop(held);
    run(&job(&source, &served)).result.unwrap();
}

#[test]
fn a_difference_is_found_at_its_first_byte() {
    let files = Files::new();
    let size = 1 << 20;
    let source = files.sparse("source", size, &[(0, &garbage(size / 2, 1))]);
    for offset in [0, 1, 300_001, 700_000, size - 1] {
        let destination = files.path("destination");
        fs::copy(&source, &destination).unwrap();
        let file = File::options().write(true).open(&destination).unwrap();
        file.write_all_at(&[0xfe], offset).unwrap();
        // A second difference behind it.
        file.write_all_at(&[0xfe], size - 1).unwrap();
        let text = compare(&source, &destination).unwrap_err().to_string();
        assert!(
            text.contains(&format!("differs from its source at byte {offset};")),
            "{offset}: {text}"
        );
        fs::copy(&source, &destination).unwrap();
        compare(&source, &destination).unwrap();
    }
}

/// Changes a file when the verification begins.
struct Saboteur(PathBuf);

impl Observer for Saboteur {
    fn progress(&mut self, progress: &Progress) {
        if progress.phase == Phase::Verifying && progress.done == 0 {
            let file = File::options().write(true).open(&self.0).unwrap();
            file.write_all_at(&[0xfe], 70_000).unwrap();
        }
    }
    fn warn(&mut self, text: &str) {
        panic!("{text}");
    }
}

#[test]
fn a_copy_that_differs_is_a_failure_and_not_gone_on_with() {
    let files = Files::new();
    let source = files.sparse("source", 256 * K, &[(0, &garbage(256 * K, 1))]);
    let destination = files.path("destination");
    let job = with(job(&source, &destination), |it| it.verify = true);
    let report = copy(&job, &Interrupt::new(), &mut Saboteur(destination));
    assert!(matches!(
        report.result,
        Err(CopyError::Differs { offset: 70_000 })
    ));
    assert_eq!(
        (report.summary.verified, report.journal),
        (Some(false), None)
    );
    assert_eq!(files.names(), ["destination", "source"]);
}

/// Compares two files as `--verify` does.
fn compare(source: &Path, destination: &Path) -> Result<(), CopyError> {
    let job = job(source, destination);
    let options = Options::default();
    let source = Opened::source(&job.source, &options, false)?;
    let size = source.size_bytes();
    let destination = Opened::destination(&job.destination, &options, size, false)?;
    let destination = destination.reopen_uncached()?;
    let mut silent = Silent;
    Verification::new(Comparison {
        source: &source.side,
        destination: &destination.side,
        size,
        trust_destination: destination.tells_holes_truly(),
        settings: &job.settings,
    })?
    .run(&mut Monitor::new(&mut silent, Interrupt::new()))
}

// ---- going on

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    let files = Files::new();
    let size = 1 << 20;
    let source = files.sparse("source", size, &[(0, &garbage(size, 1))]);
    let destination = files.path("destination");
    let plain = job(&source, &destination);
    let report = copy(&plain, &Interrupt::after(4), &mut Silent);
    assert!(matches!(
        report.result,
        Err(CopyError::Interrupted { signal: 2 })
    ));
    let done = report.summary.done;
    assert!(done > 0 && done < size, "{done}");
    let journal = files.path("destination.copy-journal");
    assert_eq!(report.journal.as_deref(), Some(journal.as_path()));

    // Whatever stands in front of the mark is not copied again.
    let file = File::options().write(true).open(&destination).unwrap();
    file.write_all_at(b"marked", 0).unwrap();
    let resume = with(plain, |it| it.resume = true);
    let report = run(&resume);
    report.result.unwrap();
    assert_eq!(report.summary.resumed_from, done);
    assert_eq!(report.summary.bytes, size - done);
    let copied = fs::read(&destination).unwrap();
    assert_eq!(&copied[..6], b"marked");
    assert_eq!(copied[6..], fs::read(&source).unwrap()[6..]);
    assert_eq!(files.names(), ["destination", "source"]);
}

#[test]
fn a_changed_source_is_not_gone_on_with() {
    let files = Files::new();
    let size = 1 << 20;
    let source = files.sparse("source", size, &[(0, &garbage(size, 1))]);
    let destination = files.path("destination");
    let plain = job(&source, &destination);
    let _ = copy(&plain, &Interrupt::after(4), &mut Silent);
    let file = File::options().write(true).open(&source).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let resume = with(plain.clone(), |it| it.resume = true);
    let text = error(&run(&resume));
    assert!(text.contains("the source was file"), "{text}");
    assert!(text.contains("leave --resume out"), "{text}");
    // Which helps, and then there is nothing to go on with.
    run(&plain).result.unwrap();
    let mut warnings = Warnings::default();
    copy(&resume, &Interrupt::new(), &mut warnings)
        .result
        .unwrap();
    assert!(warnings.0[0].contains("starting at the beginning"));
}

#[test]
fn a_damaged_journal_is_told_of_and_not_used() {
    let files = Files::new();
    let size = 256 * K;
    let source = files.sparse("source", size, &[(0, &garbage(size, 1))]);
    let destination = files.path("destination");
    fs::write(
        files.path("destination.copy-journal"),
        "longshore-copy 1\nsou",
    )
    .unwrap();
    let mut warnings = Warnings::default();
    let resume = with(job(&source, &destination), |it| it.resume = true);
    let report = copy(&resume, &Interrupt::new(), &mut warnings);
    report.result.unwrap();
    assert!(warnings.0[0].contains("is damaged"), "{:?}", warnings.0);
    assert_eq!(report.summary.resumed_from, 0);
    assert_eq!(files.names(), ["destination", "source"]);
}

#[test]
fn a_journal_of_an_earlier_copy_is_gone_before_another_one_writes() {
    let files = Files::new();
    let size = 1 << 20;
    let source = files.sparse("source", size, &[(0, &garbage(size, 1))]);
    let other = files.sparse("other", size, &[(0, &garbage(size, 2))]);
    let destination = files.path("destination");
    let _ = copy(
        &job(&source, &destination),
        &Interrupt::after(4),
        &mut Silent,
    );
    let report = copy(
        &job(&other, &destination),
        &Interrupt::after(1),
        &mut Silent,
    );
    assert_eq!(report.summary.done, 0);
    assert_eq!(files.names(), ["destination", "other", "source"]);
    assert!(report.journal.is_none(), "there is nothing to go on with");
}

#[test]
fn an_interrupted_verification_is_gone_on_with_without_copying() {
    let files = Files::new();
    let size = 256 * K;
    let source = files.sparse("source", size, &[(0, &garbage(size, 1))]);
    let destination = files.path("destination");
    let verify = with(job(&source, &destination), |it| it.verify = true);
    // Find a moment within the verification.
    let interrupted = (1..1000).find_map(|turns| {
        let _ = fs::remove_file(&destination);
        let report = copy(&verify, &Interrupt::after(turns), &mut Silent);
        (report.summary.done == size && report.result.is_err()).then_some(report)
    });
    let report = interrupted.unwrap();
    assert_eq!(report.summary.verified, None);
    assert!(report.journal.is_some());
    let report = run(&with(verify, |it| it.resume = true));
    report.result.unwrap();
    assert_eq!(
        (report.summary.bytes, report.summary.verified),
        (0, Some(true))
    );
    assert_eq!(files.names(), ["destination", "source"]);
}

#[test]
fn without_a_place_for_a_journal_a_copy_is_made_but_not_if_it_was_named() {
    let files = Files::new();
    let source = files.sparse("source", 64 * K, &[(0, b"x")]);
    let mut job = job(&source, &files.path("destination"));
    job.journal = Some("/proc/none/journal".into());
    let text = error(&run(&job));
    assert!(text.contains("/proc/none/journal"), "{text}");
}

fn pieces() -> impl Strategy<Value = Vec<(u64, u8)>> {
    proptest::collection::vec((1..100_u64, 0..4_u8), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However often a copy is interrupted, in the end both are the same, and nothing behind was
    /// written.
    #[test]
    fn an_interrupted_copy_is_the_same_in_the_end(
        pieces in pieces(),
        old in proptest::option::of(0..5_u64),
        interrupts in proptest::collection::vec(0..12_u64, 0..6),
        parallel in 1..6_usize,
        checkpoints in any::<bool>(),
        epoll in any::<bool>(),
    ) {
        let files = Files::new();
        let size = pieces.iter().map(|(blocks, _)| blocks * 4 * K).sum();
        let source = files.sparse("source", size, &[]);
        let file = File::options().write(true).open(&source).unwrap();
        let mut at = 0;
        for (blocks, kind) in &pieces {
            let length = blocks * 4 * K;
            match kind {
                0 => {}
                1 => file.write_all_at(&vec![0; usize::try_from(length).unwrap()], at).unwrap(),
                kind => file.write_all_at(&garbage(length, *kind), at).unwrap(),
            }
            at += length;
        }
        drop(file);
        let expected = fs::read(&source).unwrap();

        let destination = files.path("destination");
        let old = old.map(|extra| garbage(size + extra * 512, 9));
        if let Some(old) = &old {
            fs::write(&destination, old).unwrap();
        }
        let mut job = with(job(&source, &destination), |it| {
            it.parallel = parallel;
            it.checkpoint = if checkpoints { Duration::ZERO } else { CHECKPOINT_DEFAULT };
            it.engine = if epoll { EngineChoice::Epoll } else { EngineChoice::Auto };
        });
        for turns in interrupts {
            let report = copy(&job, &Interrupt::after(turns), &mut Silent);
            if report.result.is_ok() {
                break;
            }
            job.settings.resume = true;
            let interrupted = matches!(report.result, Err(CopyError::Interrupted { .. }));
            prop_assert!(interrupted, "{:?}", report.result);
            let so_far = fs::read(&destination).unwrap();
            let done = usize::try_from(report.summary.done).unwrap();
            prop_assert!(so_far[..done] == expected[..done]);
        }
        job.settings.verify = true;
        let report = run(&job);
        prop_assert!(report.result.is_ok(), "{:?}", report.result);
        let copied = fs::read(&destination).unwrap();
        let (copy, rest) = copied.split_at(expected.len());
        prop_assert!(copy == expected);
        let old_rest = old.as_deref().map_or(&[][..], |old| &old[expected.len()..]);
        prop_assert!(rest == old_rest);
        prop_assert_eq!(files.names(), ["destination", "source"]);
    }
}

// ---- volumes

fn memory(size: u64, block_size: u32, contents: &[u8]) -> Arc<dyn Volume> {
    let volume = MemVolume::open(&VolumeSpec {
        size: Some(size),
        block_size,
        ..VolumeSpec::new("m", BackendKind::Mem)
    })
    .unwrap();
    if !contents.is_empty() {
        write(&volume, contents);
    }
    Arc::new(volume)
}

fn write(volume: &dyn Volume, contents: &[u8]) {
    let durability = longshore_volume::Durability::Cached;
    let attempt = volume.try_write(longshore_volume::ByteOffset(0), contents, durability);
    assert!(matches!(attempt, Attempt::Done(Ok(()))));
}

fn contents(volume: &dyn Volume) -> Vec<u8> {
    let geometry = volume.geometry();
    let size = geometry.block_count * u64::from(geometry.block_size);
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    let attempt = volume.try_read(longshore_volume::ByteOffset(0), &mut bytes);
    assert!(matches!(attempt, Attempt::Done(Ok(()))));
    bytes
}

fn side(volume: &Arc<dyn Volume>, name: &str) -> Side {
    Side {
        volume: volume.clone(),
        name: name.to_owned(),
        losses: None,
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
        journal: None,
        settings,
    })
    .unwrap()
    .run(&mut Monitor::new(&mut silent, Interrupt::new()))
}

fn settings() -> Settings {
    Settings {
        chunk: 16 * K,
        parallel: 4,
        ..Settings::default()
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
    fn try_read(&self, offset: longshore_volume::ByteOffset, into: &mut [u8]) -> Attempt {
        self.0.try_read(offset, into)
    }
    fn try_write(
        &self,
        offset: longshore_volume::ByteOffset,
        from: &[u8],
        durability: longshore_volume::Durability,
    ) -> Attempt {
        self.0.try_write(offset, from, durability)
    }
    fn start(
        &self,
        request: &mut longshore_volume::Request,
        storage: &mut dyn longshore_reactor::storage::Storage,
    ) -> longshore_volume::Progress {
        if matches!(
            request.operation,
            longshore_volume::Operation::WriteZeroes { .. }
        ) {
            return longshore_volume::Progress::Done(Err(VolumeError::Unsupported));
        }
        self.0.start(request, storage)
    }
    fn resume(
        &self,
        request: &mut longshore_volume::Request,
        completion: longshore_reactor::storage::FileCompletion,
        storage: &mut dyn longshore_reactor::storage::Storage,
    ) -> longshore_volume::Progress {
        self.0.resume(request, completion, storage)
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
    let attempt = volume.try_read(longshore_volume::ByteOffset(0), &mut bytes);
    assert!(matches!(attempt, Attempt::Done(Ok(()))));
    bytes
}

#[test]
fn a_failed_flush_is_no_copy() {
    let source = memory(64 * K, 512, &garbage(64 * K, 3));
    let destination = faulty(memory(64 * K, 512, &[]), FaultTarget::Flush, 0);
    let done = transfer(&source, &destination, 64 * K, true, &settings());
    assert!(matches!(done.result, Err(CopyError::Flush { .. })));
    assert_eq!((done.done, done.recorded), (0, false));
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
    fn try_read(&self, offset: longshore_volume::ByteOffset, into: &mut [u8]) -> Attempt {
        self.volume.try_read(offset, into)
    }
    fn try_write(
        &self,
        offset: longshore_volume::ByteOffset,
        from: &[u8],
        durability: longshore_volume::Durability,
    ) -> Attempt {
        self.volume.try_write(offset, from, durability)
    }
    fn start(
        &self,
        request: &mut longshore_volume::Request,
        storage: &mut dyn longshore_reactor::storage::Storage,
    ) -> longshore_volume::Progress {
        if request.operation == longshore_volume::Operation::Flush {
            self.flush();
        }
        self.volume.start(request, storage)
    }
    fn resume(
        &self,
        request: &mut longshore_volume::Request,
        completion: longshore_reactor::storage::FileCompletion,
        storage: &mut dyn longshore_reactor::storage::Storage,
    ) -> longshore_volume::Progress {
        self.volume.resume(request, completion, storage)
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
            losses: Some(Box::new(move || losses.load(Ordering::Relaxed))),
            ..side(&forgetful, "destination")
        },
        size: 512 * K,
        start: 0,
        zeros_known: false,
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
