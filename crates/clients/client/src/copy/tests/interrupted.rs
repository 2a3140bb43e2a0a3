//! Copies that stop in the middle, and go on.

use proptest::prelude::*;

use super::*;

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

/// A copy of 1 MiB that was interrupted in the middle, to be resumed, and how far it got.
fn interrupted(files: &Files) -> (Job, u64) {
    let size = 1 << 20;
    let source = files.sparse("source", size, &[(0, &garbage(size, 1))]);
    let plain = job(&source, &files.path("destination"));
    let report = copy(&plain, &Interrupt::after(4), &mut Silent);
    let done = report.summary.done;
    assert!(done > 0 && report.journal.is_some());
    (with(plain, |it| it.resume = true), done)
}

#[test]
fn a_destination_that_was_emptied_is_copied_from_the_beginning() {
    let files = Files::new();
    let (resume, _) = interrupted(&files);
    files.set_length("destination", 0);
    let mut warnings = Warnings::default();
    let report = copy(&resume, &Interrupt::new(), &mut warnings);
    report.result.unwrap();
    assert_eq!(report.summary.resumed_from, 0);
    assert_eq!(warnings.0.len(), 1, "{:?}", warnings.0);
    assert!(warnings.0[0].contains("is empty"), "{:?}", warnings.0);
    assert!(files.are_alike());
    assert_eq!(files.names(), ["destination", "source"]);
}

#[test]
fn a_destination_that_was_removed_is_never_gone_on_with() {
    let files = Files::new();
    let (resume, _) = interrupted(&files);
    let destination = files.path("destination");
    fs::remove_file(&destination).unwrap();
    // The new file may have the inode number of the old one.
    let report = run(&resume);
    if let Err(error) = &report.result {
        let text = error.to_string();
        assert!(text.contains("the destination was"), "{text}");
        assert!(!destination.exists());
        run(&with(resume, |it| it.resume = false)).result.unwrap();
    }
    assert_eq!(report.summary.resumed_from, 0);
    assert!(files.are_alike());
    assert_eq!(files.names(), ["destination", "source"]);
}

/// The destination has its size once it is open: nothing tells the next run that it was empty.
#[test]
fn the_journal_of_a_destination_that_was_emptied_goes_before_anything_can_fail() {
    let files = Files::new();
    let (job, _) = interrupted(&files);
    files.set_length("destination", 0);
    let ends = Ends::open(&job).unwrap();
    assert_eq!(ends.destination.size_bytes(), 1 << 20);
    let journal = ends.journal(&job).unwrap();
    assert!(resume::discard_if_void(&journal, &ends.record(&job)).unwrap());
    drop(ends);
    let report = run(&job);
    report.result.unwrap();
    assert_eq!(report.summary.resumed_from, 0);
    assert!(files.are_alike());
}

#[test]
fn a_destination_that_was_cut_short_is_refused_without_advice_that_leaves_a_gap() {
    let files = Files::new();
    let (resume, _) = interrupted(&files);
    files.set_length("destination", 4 * K);
    let text = error(&run(&resume));
    assert!(text.contains("has 4096 bytes"), "{text}");
    assert!(text.contains("remove --resume"), "{text}");
    let destination = fs::metadata(files.path("destination")).unwrap();
    assert_eq!(destination.len(), 4 * K);
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
    assert!(text.contains("remove --resume"), "{text}");
    // Which helps, and then there is nothing to go on with.
    run(&plain).result.unwrap();
    let mut warnings = Warnings::default();
    copy(&resume, &Interrupt::new(), &mut warnings)
        .result
        .unwrap();
    assert!(warnings.0[0].contains("starting from the beginning"));
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
fn a_file_that_is_no_journal_is_left_alone() {
    let files = Files::new();
    let source = files.sparse("source", 64 * K, &[(0, b"x")]);
    let letter = files.sparse("letter", 100, &[(0, b"a letter")]);
    let mut job = job(&source, &files.path("destination"));
    job.journal = Some(letter);
    let text = error(&run(&job));
    assert!(text.contains("is not a journal of a copy"), "{text}");
    assert!(text.contains("--journal"), "{text}");
    // Files made for the copy are removed.
    assert_eq!(files.names(), ["letter", "source"]);
}

#[test]
fn a_journal_of_version_1_is_gone_on_with() {
    let files = Files::new();
    let (resume, done) = interrupted(&files);
    make_version_1(&files.path("destination.copy-journal"));
    let resumed = run(&resume);
    resumed.result.unwrap();
    assert_eq!(resumed.summary.resumed_from, done);
    assert_eq!(files.names(), ["destination", "source"]);
}

/// Has the journal be one of version 1, which has no slots to update.
fn make_version_1(journal: &Path) {
    let text = fs::read_to_string(journal).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let newest = [&lines[..8], &lines[9..17]].into_iter().max_by_key(|slot| {
        slot[1]
            .trim_start_matches("number ")
            .parse::<u64>()
            .unwrap()
    });
    let fields = newest.unwrap()[2..7].join("\n");
    let body = format!("longshore-copy 1\n{fields}\n");
    let sum = longshore_wire::crc32c(body.as_bytes()).value();
    fs::write(journal, format!("{body}crc32c {sum:08x}\n")).unwrap();
}

/// A new journal is written beside its place first, and where that is taken it cannot be.
fn occupy_the_place_of_new_journals(files: &Files) -> PathBuf {
    let place = files.path("destination.copy-journal.new");
    fs::create_dir(&place).unwrap();
    place
}

#[test]
fn a_journal_that_cannot_be_made_anew_is_updated() {
    let files = Files::new();
    let (resume, _) = interrupted(&files);
    let place = occupy_the_place_of_new_journals(&files);
    let mut warnings = Warnings::default();
    let again = copy(&resume, &Interrupt::after(4), &mut warnings);
    assert!(matches!(again.result, Err(CopyError::Interrupted { .. })));
    assert!(again.summary.done > again.summary.resumed_from);
    assert!(again.journal.is_some());
    let last = run(&resume);
    last.result.unwrap();
    assert_eq!(last.summary.resumed_from, again.summary.done);
    assert!(warnings.0.is_empty(), "{:?}", warnings.0);
    fs::remove_dir(place).unwrap();
    assert_eq!(files.names(), ["destination", "source"]);
}

#[test]
fn a_journal_that_cannot_be_written_stays_true_and_goes_when_the_copy_is_made() {
    let files = Files::new();
    let (resume, _) = interrupted(&files);
    make_version_1(&files.path("destination.copy-journal"));
    let place = occupy_the_place_of_new_journals(&files);
    let mut warnings = Warnings::default();
    let again = copy(&resume, &Interrupt::after(4), &mut warnings);
    let from = again.summary.resumed_from;
    assert!(matches!(again.result, Err(CopyError::Interrupted { .. })));
    assert!(again.journal.is_some());
    let expected = format!("it resumes from byte {from}");
    assert!(warnings.0[0].contains(&expected), "{:?}", warnings.0);
    let last = run(&resume);
    last.result.unwrap();
    assert_eq!((last.summary.resumed_from, last.journal), (from, None));
    fs::remove_dir(place).unwrap();
    // Left behind, it would have the next --resume begin in the middle.
    assert_eq!(files.names(), ["destination", "source"]);
    assert!(files.are_alike());
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
