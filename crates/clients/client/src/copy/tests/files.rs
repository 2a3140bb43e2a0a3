//! Copies of whole files, and what is refused.

use std::os::unix::fs::MetadataExt;

use longshore_volume::{BackendName, VolumeSpec};

use super::*;

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
        ..VolumeSpec::new("v", BackendName::FILE)
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
