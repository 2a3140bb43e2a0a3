//! How far a copy got, kept where a later run finds it.
//!
//! A journal is a small text file (docs/formats/copy-journal.md). It is replaced as a whole: written
//! beside the old one, flushed, renamed, and the directory flushed. What it says was flushed at the
//! destination before, so whatever is cut off when, a journal never claims more than is there.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use longshore_wire::crc32c;

/// First line of every journal of this version.
const MAGIC: &str = "longshore-copy 1";

/// A journal is far smaller; more is not one of ours.
const LENGTH_MAX: u64 = 64 * 1024;

/// What a journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What is copied, and what tells whether it is still the same.
    pub source: String,
    /// Where it goes.
    pub destination: String,
    /// Bytes to copy in all.
    pub size: u64,
    /// Bytes of a block: the larger one of both sides.
    pub block_size: u64,
    /// Everything before was copied and flushed.
    pub done: u64,
}

/// Why the text of a journal is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalDamage {
    /// Not a journal, or one of another version.
    #[error("it is no journal of this version")]
    Unknown,
    /// The checksum is missing or differs.
    #[error("it is damaged (checksum)")]
    Checksum,
    /// A field is missing or makes no sense.
    #[error("it is damaged (fields)")]
    Fields,
}

/// A journal could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {source}", path.display())]
pub struct JournalIoError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Record {
    /// The bytes of the file.
    pub(super) fn encode(&self) -> String {
        let mut text = format!(
            "{MAGIC}\nsource {}\ndestination {}\nsize {}\nblock-size {}\ndone {}\n",
            escape(&self.source),
            escape(&self.destination),
            self.size,
            self.block_size,
            self.done
        );
        let checksum = checksum(&text);
        writeln!(text, "crc32c {checksum:08x}").expect("a string takes everything");
        text
    }

    /// What the bytes of a file say.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, JournalDamage> {
        let text = std::str::from_utf8(bytes).map_err(|_| JournalDamage::Unknown)?;
        if text.lines().next() != Some(MAGIC) {
            return Err(JournalDamage::Unknown);
        }
        let body = text
            .strip_suffix('\n')
            .and_then(|text| text.rfind('\n'))
            .map(|at| text.split_at(at + 1))
            .filter(|(body, last)| *last == format!("crc32c {:08x}\n", checksum(body)))
            .map(|(body, _)| body)
            .ok_or(JournalDamage::Checksum)?;
        let mut lines = body.lines().skip(1);
        let mut field = |name: &str| {
            lines
                .next()
                .and_then(|line| line.split_once(' '))
                .filter(|(key, _)| *key == name)
                .map(|(_, value)| value)
                .ok_or(JournalDamage::Fields)
        };
        let text = |value: &str| unescape(value).ok_or(JournalDamage::Fields);
        let number = |value: &str| value.parse().map_err(|_| JournalDamage::Fields);
        let record = Self {
            source: text(field("source")?)?,
            destination: text(field("destination")?)?,
            size: number(field("size")?)?,
            block_size: number(field("block-size")?)?,
            done: number(field("done")?)?,
        };
        if lines.next().is_some() || record.done > record.size {
            return Err(JournalDamage::Fields);
        }
        Ok(record)
    }
}

fn checksum(text: &str) -> u32 {
    crc32c(text.as_bytes()).value()
}

/// Without line ends; `%` itself is escaped too.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '%' => escaped.push_str("%25"),
            '\n' => escaped.push_str("%0A"),
            '\r' => escaped.push_str("%0D"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        plain.push(match code {
            "25" => '%',
            "0A" => '\n',
            "0D" => '\r',
            _ => return None,
        });
        plain.push_str(rest);
    }
    Some(plain)
}

/// What stands in a journal's file.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// No file.
    Nothing,
    /// A copy that can go on.
    Record(Record),
    /// A file that says nothing that can be trusted.
    Damaged(JournalDamage),
}

/// Where the journal of one copy is.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// A journal in this file, which need not exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it.
    pub fn load(&self) -> Result<Found, JournalIoError> {
        let error = |operation, source| self.error(operation, source);
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(source) => return Err(error("open", source)),
        };
        let mut bytes = Vec::new();
        file.take(LENGTH_MAX)
            .read_to_end(&mut bytes)
            .map_err(|source| error("read", source))?;
        Ok(match Record::decode(&bytes) {
            Ok(record) => Found::Record(record),
            Err(damage) => Found::Damaged(damage),
        })
    }

    /// Replaces it. It is on the medium when this returns.
    pub fn store(&self, record: &Record) -> Result<(), JournalIoError> {
        let error = |operation, source| self.error(operation, source);
        let fresh = self.fresh_path();
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(|source| error("create", source))?;
        file.write_all(record.encode().as_bytes())
            .map_err(|source| error("write", source))?;
        file.sync_all().map_err(|source| error("fsync", source))?;
        fs::rename(&fresh, &self.path).map_err(|source| error("rename to", source))?;
        self.sync_directory()
    }

    /// Takes it away, if it is there.
    pub fn remove(&self) -> Result<(), JournalIoError> {
        // Left behind by a run that was killed between writing and renaming.
        let _ = fs::remove_file(self.fresh_path());
        match fs::remove_file(&self.path) {
            Ok(()) => self.sync_directory(),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(self.error("remove", source)),
        }
    }

    /// Whether a file can be made there. Better to learn it now than at the first interruption.
    pub fn probe(&self) -> Result<(), JournalIoError> {
        let fresh = self.fresh_path();
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|_| fs::remove_file(&fresh))
            .map_err(|source| self.error("create", source))
    }

    fn fresh_path(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".new");
        name.into()
    }

    fn sync_directory(&self) -> Result<(), JournalIoError> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| JournalIoError {
                operation: "fsync",
                path: directory.to_owned(),
                source,
            })
    }

    fn error(&self, operation: &'static str, source: io::Error) -> JournalIoError {
        JournalIoError {
            operation,
            path: self.path.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            source: "file /srv/100%\nnew.img 8:1:77 modified 5".into(),
            destination: "iscsi://host/iqn.2026-11.local:a/0 naa 60".into(),
            size: 1 << 30,
            block_size: 4096,
            done: 77 << 20,
        }
    }

    #[test]
    fn the_file_looks_as_documented() {
        let text = record().encode();
        let (body, last) = text.split_at(text.rfind("crc32c").unwrap());
        assert_eq!(
            body,
            "longshore-copy 1\n\
             source file /srv/100%25%0Anew.img 8:1:77 modified 5\n\
             destination iscsi://host/iqn.2026-11.local:a/0 naa 60\n\
             size 1073741824\nblock-size 4096\ndone 80740352\n"
        );
        assert_eq!(last, format!("crc32c {:08x}\n", checksum(body)));
        assert_eq!(Record::decode(text.as_bytes()), Ok(record()));
    }

    #[test]
    fn a_torn_journal_is_not_believed() {
        let text = record().encode();
        for length in 0..text.len() {
            assert!(
                Record::decode(&text.as_bytes()[..length]).is_err(),
                "{length}"
            );
        }
        let mut bytes = text.into_bytes();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(Record::decode(&bytes).is_err(), "{at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn fields_that_make_no_sense_are_damage_even_with_a_good_checksum() {
        for (from, to) in [
            ("done 80740352", "done 1073741825"),
            ("size 1073741824", "size -1"),
            ("block-size", "blocksize"),
            ("%0A", "%0B"),
            ("%0A", "%0"),
            ("done 80740352\n", "done 80740352\nmore 1\n"),
        ] {
            let text = record().encode().replace(from, to);
            let body = &text[..text.rfind("crc32c").unwrap()];
            let text = format!("{body}crc32c {:08x}\n", checksum(body));
            assert_eq!(
                Record::decode(text.as_bytes()),
                Err(JournalDamage::Fields),
                "{to}"
            );
        }
        assert_eq!(Record::decode(b"other\n"), Err(JournalDamage::Unknown));
    }

    #[test]
    fn a_journal_is_stored_replaced_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::new(directory.path().join("j"));
        assert_eq!(journal.load().unwrap(), Found::Nothing);
        journal.remove().unwrap();
        journal.probe().unwrap();
        for done in [0, 1 << 20] {
            let record = Record { done, ..record() };
            journal.store(&record).unwrap();
            assert_eq!(journal.load().unwrap(), Found::Record(record));
        }
        fs::write(journal.path(), "longshore-copy 1\n").unwrap();
        assert_eq!(
            journal.load().unwrap(),
            Found::Damaged(JournalDamage::Checksum)
        );
        // A crash in the middle of a replacement leaves a part of the next one beside it.
        fs::write(journal.fresh_path(), "longsh").unwrap();
        journal.store(&record()).unwrap();
        assert_eq!(journal.load().unwrap(), Found::Record(record()));
        fs::write(journal.fresh_path(), "longsh").unwrap();
        journal.remove().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_found_out_beforehand() {
        let journal = Journal::new("/proc/none/j".into());
        let text = journal.probe().unwrap_err().to_string();
        assert!(text.contains("create /proc/none/j"), "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_encoded_is_decoded(source in ".{0,40}", destination in "\\PC{0,40}|%|\n\r", size: u64) {
            let record = Record { source, destination, size, block_size: 512, done: size / 2 };
            prop_assert_eq!(Record::decode(record.encode().as_bytes()), Ok(record));
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(&bytes);
        }
    }
}
