//! How far a copy got, kept where a later run finds it.
//!
//! A journal is a small text file of two slots (docs/formats/copy-journal.md). All of its space is written
//! before the copy begins, and an update overwrites the older slot in place: so a file system that the
//! copy has filled takes it, too. A crash in the middle of an update leaves the other slot. Data is
//! flushed at the destination before the journal says so: it never claims too much.

mod record;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::IFlags;

use record::PADDING;

pub use record::{JournalDamage, Record};

/// A journal is not longer; more is not one of ours.
const LENGTH_MAX: u64 = 64 * 1024;

/// Slots are multiples of this, so that an update touches no block of the other slot.
const SLOT_UNIT: usize = 4096;

/// A journal could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {source}", path.display())]
pub struct JournalIoError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What stands in a journal's file.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// No file, or an empty one.
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

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

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
        if bytes.is_empty() {
            return Ok(Found::Nothing);
        }
        Ok(match latest(&bytes) {
            Ok((_, record)) => Found::Record(record),
            Err(damage) => Found::Damaged(damage),
        })
    }

    /// Replaces the file by a complete one with `record` in both slots. From then on
    /// [`Reserved::store`] needs no space.
    pub fn reserve(&self, record: &Record) -> Result<Reserved, JournalIoError> {
        let slot = slot_length(record).ok_or_else(|| {
            let long = io::Error::new(io::ErrorKind::InvalidInput, "the names are too long");
            self.error("write", long)
        })?;
        let fresh = self.fresh_path();
        let made = self.make(&fresh, slot, record);
        let file = made.inspect_err(|_| {
            let _ = fs::remove_file(&fresh);
        })?;
        self.sync_directory()?;
        Ok(Reserved {
            journal: self.clone(),
            file,
            slot,
            number: AtomicU64::new(1),
        })
    }

    /// Opens the journal of an earlier run of the same copy, where [`Journal::reserve`] finds no space
    /// for another one. Its own space is written already.
    pub fn reopen(&self, record: &Record) -> Result<Reserved, JournalIoError> {
        let error = |operation, source| self.error(operation, source);
        let unlike = || {
            let kind = io::ErrorKind::InvalidData;
            error(
                "update",
                io::Error::new(kind, "it has no slots of this copy"),
            )
        };
        let slot = slot_length(record).ok_or_else(unlike)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .map_err(|source| error("open", source))?;
        let mut bytes = Vec::new();
        Read::take(&mut file, LENGTH_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| error("read", source))?;
        let number = match latest(&bytes) {
            Ok((number, found)) if bytes.len() == 2 * slot && found == *record => number,
            _ => return Err(unlike()),
        };
        Ok(Reserved {
            journal: self.clone(),
            file,
            slot,
            number: AtomicU64::new(number),
        })
    }

    /// The file, complete and in its place.
    fn make(&self, fresh: &Path, slot: usize, record: &Record) -> Result<File, JournalIoError> {
        let error = |operation, source| self.error(operation, source);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(fresh)
            .map_err(|source| error("create", source))?;
        // File systems that never write in place can be asked to (btrfs). Others refuse or do it anyway.
        let _ = rustix::fs::ioctl_setflags(&file, IFlags::NOCOW);
        let slots = [0, 1].map(|number| padded(record, number, slot)).concat();
        file.write_all_at(&slots, 0)
            .map_err(|source| error("write", source))?;
        file.sync_all().map_err(|source| error("fsync", source))?;
        fs::rename(fresh, &self.path).map_err(|source| error("rename to", source))?;
        Ok(file)
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

/// A journal whose space is written.
#[derive(Debug)]
pub struct Reserved {
    journal: Journal,
    file: File,
    /// Bytes of a slot.
    slot: usize,
    /// Of the newest slot.
    number: AtomicU64,
}

impl Reserved {
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Overwrites the older slot. It is on the medium when this returns.
    pub fn store(&self, record: &Record) -> Result<(), JournalIoError> {
        let error = |operation, source| self.journal.error(operation, source);
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let offset = if number.is_multiple_of(2) {
            0
        } else {
            u64::try_from(self.slot).expect("a slot is small")
        };
        self.file
            .write_all_at(&padded(record, number, self.slot), offset)
            .map_err(|source| error("write", source))?;
        self.file
            .sync_data()
            .map_err(|source| error("fdatasync", source))
    }
}

/// Bytes of a slot that takes this record whatever its numbers become; `None`: more than there may be.
fn slot_length(record: &Record) -> Option<usize> {
    let longest = Record {
        size: u64::MAX,
        block_size: u64::MAX,
        done: u64::MAX,
        ..record.clone()
    };
    // One more for the line feed at the end.
    let slot = (longest.encode(u64::MAX).len() + 1).next_multiple_of(SLOT_UNIT);
    let length = u64::try_from(2 * slot).ok()?;
    (length <= LENGTH_MAX).then_some(slot)
}

fn padded(record: &Record, number: u64, slot: usize) -> Vec<u8> {
    let mut bytes = record.encode(number).into_bytes();
    assert!(bytes.len() < slot, "a slot takes every record of its copy");
    bytes.resize(slot - 1, u8::try_from(PADDING).expect("ASCII"));
    bytes.push(b'\n');
    bytes
}

/// The newer of two slots that is whole, or the one text of version 1.
fn latest(bytes: &[u8]) -> Result<(u64, Record), JournalDamage> {
    let damage = match Record::decode(bytes) {
        Ok(only) => return Ok(only),
        Err(damage) => damage,
    };
    let (first, second) = bytes.split_at(bytes.len() / 2);
    match (Record::decode(first), Record::decode(second)) {
        (Ok(first), Ok(second)) if second.0 > first.0 => Ok(second),
        (Ok(slot), _) | (_, Ok(slot)) => Ok(slot),
        (Err(_), Err(other)) if damage == JournalDamage::Unknown => Err(other),
        (Err(_), Err(_)) => Err(damage),
    }
}

#[cfg(test)]
mod tests;
