//! Journals: text, slots, crashes and full disks.

use proptest::prelude::*;

use super::record::checksum;
use super::*;

fn record() -> Record {
    Record {
        source: "file /srv/100%\nnew.img 8:1:77 modified 5".into(),
        destination: "iscsi://host/iqn.2026-11.local:a/0 naa 60".into(),
        size: 1 << 30,
        block_size: 4096,
        done: 77 << 20,
    }
}

const BODY: &str = "source file /srv/100%25%0Anew.img 8:1:77 modified 5\n\
                    destination iscsi://host/iqn.2026-11.local:a/0 naa 60\n\
                    size 1073741824\nblock-size 4096\ndone 80740352\n";

fn signed(body: &str) -> String {
    format!("{body}crc32c {:08x}\n", checksum(body))
}

#[test]
fn a_slot_looks_as_documented() {
    let text = record().encode(5);
    assert_eq!(text, signed(&format!("longshore-copy 2\nnumber 5\n{BODY}")));
    assert_eq!(Record::decode(text.as_bytes()), Ok((5, record())));
}

#[test]
fn a_journal_of_version_1_is_read() {
    let text = signed(&format!("longshore-copy 1\n{BODY}"));
    assert_eq!(latest(text.as_bytes()), Ok((0, record())));
}

#[test]
fn a_torn_slot_is_not_believed() {
    let text = record().encode(5);
    for length in 0..text.len() - 1 {
        assert!(
            Record::decode(&text.as_bytes()[..length]).is_err(),
            "{length}"
        );
    }
    let mut bytes = text.into_bytes();
    for position in 0..bytes.len() {
        bytes[position] ^= 1;
        assert!(Record::decode(&bytes).is_err(), "{position}");
        bytes[position] ^= 1;
    }
}

#[test]
fn fields_that_make_no_sense_are_damage_even_with_a_good_checksum() {
    for (from, to) in [
        ("number 5", "number five"),
        ("done 80740352", "done 1073741825"),
        ("done 80740352", "done 80740353"),
        ("size 1073741824", "size -1"),
        ("block-size", "blocksize"),
        ("%0A", "%0B"),
        ("%0A", "%0"),
        ("done 80740352\n", "done 80740352\nmore 1\n"),
    ] {
        let text = record().encode(5).replace(from, to);
        let text = signed(&text[..text.rfind("crc32c").unwrap()]);
        assert_eq!(
            Record::decode(text.as_bytes()),
            Err(JournalDamage::Fields),
            "{to}"
        );
    }
    assert_eq!(Record::decode(b"other\n"), Err(JournalDamage::Unknown));
}

/// All of one length.
fn at(block: u64) -> Record {
    Record {
        done: (1000 + block) * record().block_size,
        ..record()
    }
}

#[test]
fn a_journal_is_reserved_updated_in_place_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::new(directory.path().join("j"));
    assert_eq!(journal.load().unwrap(), Found::Nothing);
    journal.remove().unwrap();
    let reserved = journal.reserve(&at(0)).unwrap();
    assert_eq!(journal.load().unwrap(), Found::Record(at(0)));
    let length = || fs::metadata(journal.path()).unwrap().len();
    assert_eq!(length(), 8192);
    for done in 1..6 {
        reserved.store(&at(done)).unwrap();
        assert_eq!(journal.load().unwrap(), Found::Record(at(done)));
        assert_eq!(length(), 8192);
    }
    // Of a run that was killed while it made another.
    fs::write(journal.fresh_path(), "longsh").unwrap();
    journal.reserve(&at(7)).unwrap();
    assert_eq!(journal.load().unwrap(), Found::Record(at(7)));
    fs::write(journal.fresh_path(), "longsh").unwrap();
    journal.remove().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn an_update_that_a_crash_cuts_off_leaves_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::new(directory.path().join("j"));
    let reserved = journal.reserve(&at(0)).unwrap();
    for done in 1..4_u8 {
        let before = fs::read(journal.path()).unwrap();
        reserved.store(&at(done.into())).unwrap();
        let after = fs::read(journal.path()).unwrap();
        let changed = (0..before.len()).filter(|at| before[*at] != after[*at]);
        let (first, last) = (changed.clone().min().unwrap(), changed.max().unwrap());
        for torn in [first + 1, last] {
            let mut bytes = before.clone();
            bytes[..torn].copy_from_slice(&after[..torn]);
            let (_, found) = latest(&bytes).unwrap();
            assert_eq!(found, at(u64::from(done) - 1), "{first} {torn} {last}");
        }
    }
}

#[test]
fn what_is_no_journal_is_told_apart_from_a_damaged_one() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::new(directory.path().join("j"));
    fs::write(journal.path(), "").unwrap();
    assert_eq!(journal.load().unwrap(), Found::Nothing);
    fs::write(journal.path(), "a letter\n").unwrap();
    let unknown = Found::Damaged(JournalDamage::Unknown);
    assert_eq!(journal.load().unwrap(), unknown);
    journal.reserve(&record()).unwrap();
    let bytes = fs::read(journal.path()).unwrap();
    fs::write(journal.path(), &bytes[..100]).unwrap();
    let damaged = Found::Damaged(JournalDamage::Checksum);
    assert_eq!(journal.load().unwrap(), damaged);
}

#[test]
fn a_place_that_cannot_be_written_is_found_out_beforehand() {
    let journal = Journal::new("/proc/none/j".into());
    let text = journal.reserve(&record()).unwrap_err().to_string();
    assert!(text.contains("create /proc/none/j"), "{text}");
}

#[test]
fn names_that_no_slot_takes_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::new(directory.path().join("j"));
    let long = Record {
        source: "x".repeat(40_000),
        ..record()
    };
    let text = journal.reserve(&long).unwrap_err().to_string();
    assert!(text.contains("too long"), "{text}");
    let fits = Record {
        source: "x".repeat(30_000),
        ..record()
    };
    let reserved = journal.reserve(&fits).unwrap();
    reserved.store(&fits).unwrap();
    assert_eq!(journal.load().unwrap(), Found::Record(fits));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_encoded_is_decoded(
        source in ".{0,40}",
        destination in "\\PC{0,40}|%|\n\r",
        size: u64,
        number: u64,
    ) {
        let record = Record { source, destination, size, block_size: 512, done: size / 1024 * 512 };
        let slot = slot_length(&record).unwrap();
        let decoded = Record::decode(&padded(&record, number, slot));
        prop_assert_eq!(decoded, Ok((number, record)));
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = latest(&bytes);
    }
}

#[test]
fn a_journal_of_the_same_copy_is_reopened_and_its_older_slot_written_first() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::new(directory.path().join("journal"));
    for updates in 1..4 {
        let reserved = journal.reserve(&at(0)).unwrap();
        for done in 1..=updates {
            reserved.store(&at(done)).unwrap();
        }
        drop(reserved);
        let reopened = journal.reopen(&at(updates)).unwrap();
        let before = fs::read(journal.path()).unwrap();
        reopened.store(&at(100)).unwrap();
        let after = fs::read(journal.path()).unwrap();
        assert_eq!(latest(&after).unwrap().1, at(100));
        // Had the update been cut off, the newest slot from before would be there.
        let (first, second) = after.split_at(after.len() / 2);
        let kept = [first, second].map(|slot| Record::decode(slot).unwrap().1);
        assert!(kept.contains(&latest(&before).unwrap().1), "{kept:?}");
    }
    let error = journal.reopen(&at(5)).unwrap_err().to_string();
    assert!(error.contains("no slots of this copy"), "{error}");
    fs::write(journal.path(), signed(&format!("longshore-copy 1\n{BODY}"))).unwrap();
    assert!(journal.reopen(&record()).is_err(), "version 1 has one slot");
}
