//! A disk behind a page cache: operations end late and out of order, in part, or not well; what is
//! not synced is lost when the power goes.
//!
//! ```text
//!   submit ──► (delay) ──► effect: touches the cache ──► (delay) ──► completion
//!                                     │ sync, write-back
//!                                     ▼
//!                                   medium: what is left after a power cut, sector by sector
//! ```
//!
//! A sync covers the sectors that were dirty when it was submitted. When it fails, some of them count
//! as clean without being on the medium, as with the Linux page cache, and every file description
//! is told once (errseq_t): a later sync succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Weak;

use longshore_reactor::storage::{FileOperation, FileOperationKind, StorageTag};
use rustix::io::Errno;

use crate::random::{Random, to_usize};
use crate::stamp::SECTOR;

/// How an operation is going to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Good,
    /// After so many bytes.
    Short(usize),
    Error(Errno),
    SyncFails,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) shard: usize,
    pub(crate) tag: StorageTag,
    pub(crate) kind: FileOperationKind,
    /// The description it came on, by address.
    pub(crate) description: usize,
    pub(crate) ending: Ending,
    /// What a sync covers.
    pub(crate) covers: BTreeSet<u64>,
    pub(crate) result: io::Result<u64>,
    pub(crate) effective: bool,
}

/// What a file description has been told.
#[derive(Debug)]
struct Description {
    file: Weak<std::fs::File>,
    told: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Disk {
    cache: Vec<u8>,
    /// What a power cut leaves.
    medium: Vec<u8>,
    /// Sectors of the cache that are not on the medium yet.
    pub(crate) dirty: BTreeSet<u64>,
    /// Inode of the file that stands for it.
    pub inode: u64,
    pub(crate) operations: BTreeMap<u64, Operation>,
    pub(crate) submitted: u64,
    /// Times that data could not be written back.
    sync_errors: u64,
    descriptions: BTreeMap<usize, Description>,
    /// Errors that initiators may come to know of.
    pub errors: u64,
    /// A sync or a durable write has failed.
    suspect: bool,
}

impl Disk {
    /// A disk of zeros.
    #[must_use]
    pub fn new(bytes: usize, inode: u64) -> Self {
        Self {
            cache: vec![0; bytes],
            medium: vec![0; bytes],
            dirty: BTreeSet::new(),
            inode,
            operations: BTreeMap::new(),
            submitted: 0,
            sync_errors: 0,
            descriptions: BTreeMap::new(),
            errors: 0,
            suspect: false,
        }
    }

    #[must_use]
    pub fn cache(&self) -> &[u8] {
        &self.cache
    }

    /// Sectors that a power cut may lose.
    #[must_use]
    pub fn dirty_sectors(&self) -> usize {
        self.dirty.len()
    }

    /// Data that was accepted may not have come to the medium; only a restart helps.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.suspect || self.sync_errors > 0
    }

    /// A write that needs no sleep.
    pub fn write_cache(&mut self, offset: u64, bytes: &[u8]) {
        let start = to_usize(offset);
        self.cache[start..start + bytes.len()].copy_from_slice(bytes);
        self.soil(offset, bytes.len() as u64);
    }

    fn soil(&mut self, offset: u64, length: u64) {
        if length > 0 {
            let sector = SECTOR as u64;
            self.dirty
                .extend(offset / sector..(offset + length).div_ceil(sector));
        }
    }

    fn zero(&mut self, offset: u64, length: u64) {
        let start = to_usize(offset);
        self.cache[start..start + to_usize(length)].fill(0);
        self.soil(offset, length);
    }

    /// Brings a sector to the medium.
    fn write_back(&mut self, sector: u64) {
        if self.dirty.remove(&sector) {
            let start = to_usize(sector) * SECTOR;
            let place = start..start + SECTOR;
            self.medium[place.clone()].copy_from_slice(&self.cache[place]);
        }
    }

    /// The kernel writes back what it likes, when it likes.
    pub(crate) fn write_some_back(&mut self, random: &mut Random) {
        if self.dirty.is_empty() || !random.chance(1000) {
            return;
        }
        let some: Vec<u64> = self.dirty.iter().copied().collect();
        for sector in some {
            if random.chance(3000) {
                self.write_back(sector);
            }
        }
    }

    /// The process is gone, the operating system is not: what was under way is done, or is not.
    pub fn kill(&mut self, random: &mut Random) {
        let operations = std::mem::take(&mut self.operations);
        for (_, mut operation) in operations {
            if !operation.effective && random.chance(5000) {
                self.take_effect(&mut operation, random);
            }
        }
        self.descriptions.clear();
    }

    /// The power is gone: of what was not on the medium, each sector is written or is not.
    pub fn cut_power(&mut self, random: &mut Random) -> &[u8] {
        self.kill(random);
        let dirty: Vec<u64> = self.dirty.iter().copied().collect();
        let written = random.pick(&[0, 1000, 5000, 9000, 10_000]);
        for sector in dirty {
            if random.chance(written) {
                self.write_back(sector);
            }
        }
        self.dirty.clear();
        self.cache.copy_from_slice(&self.medium);
        self.sync_errors = 0;
        self.suspect = false;
        &self.medium
    }

    pub(crate) fn take_effect(&mut self, operation: &mut Operation, random: &mut Random) {
        operation.effective = true;
        let most = match operation.ending {
            Ending::Good | Ending::SyncFails => usize::MAX,
            Ending::Short(bytes) => bytes,
            Ending::Error(errno) => {
                operation.result = Err(errno.into());
                return;
            }
        };
        operation.result = Ok(0);
        let size = self.cache.len() as u64;
        match &mut operation.kind {
            FileOperationKind::Read {
                offset,
                buffer,
                start,
                end,
            } => {
                let from = to_usize(*offset).min(self.cache.len());
                let count = (*end - *start).min(most).min(self.cache.len() - from);
                buffer[*start..*start + count].copy_from_slice(&self.cache[from..from + count]);
                operation.result = Ok(count as u64);
            }
            FileOperationKind::Write {
                offset,
                buffer,
                start,
                end,
                dsync,
            } => {
                let count = (*end - *start).min(most);
                let (offset, dsync) = (*offset, *dsync);
                self.write_cache(offset, &buffer[*start..*start + count]);
                operation.result = Ok(count as u64);
                if dsync {
                    let sector = SECTOR as u64;
                    let touched = offset / sector..(offset + count as u64).div_ceil(sector);
                    operation.covers = touched.collect();
                    self.sync(operation, random);
                }
            }
            FileOperationKind::DataSync => self.sync(operation, random),
            FileOperationKind::PunchHole { offset, length }
            | FileOperationKind::ZeroRange { offset, length }
            | FileOperationKind::BlockDiscard { offset, length }
            | FileOperationKind::BlockZeroOut { offset, length } => {
                let (offset, length) = (*offset, *length);
                self.zero(offset, length);
            }
            FileOperationKind::Allocate { .. } => {}
            FileOperationKind::SeekData { offset } => operation.result = Ok(*offset),
            FileOperationKind::SeekHole { .. } => operation.result = Ok(size),
        }
    }

    fn sync(&mut self, operation: &mut Operation, random: &mut Random) {
        let fails = operation.ending == Ending::SyncFails;
        let lost = random.pick(&[1000, 5000, 10_000]);
        for sector in std::mem::take(&mut operation.covers) {
            if fails && random.chance(lost) {
                // It counts as clean from now on.
                self.dirty.remove(&sector);
            } else {
                self.write_back(sector);
            }
        }
        if fails {
            self.sync_errors += 1;
        }
    }

    /// What the operation's description has to be told, now that it is over.
    pub(crate) fn tell_of_sync_errors(&mut self, operation: &mut Operation) {
        let syncs = matches!(
            operation.kind,
            FileOperationKind::DataSync | FileOperationKind::Write { dsync: true, .. }
        );
        let Some(description) = self.descriptions.get_mut(&operation.description) else {
            return;
        };
        if syncs && operation.result.is_ok() && description.told < self.sync_errors {
            description.told = self.sync_errors;
            operation.result = Err(Errno::IO.into());
        }
        let interrupted = matches!(operation.ending, Ending::Error(Errno::INTR));
        self.suspect |= syncs && operation.result.is_err() && !interrupted;
    }

    /// Knows a description again. One seen for the first time was open all along.
    pub(crate) fn note_description(&mut self, operation: &FileOperation) -> usize {
        let address = std::sync::Arc::as_ptr(&operation.file.0).addr();
        let same = self
            .descriptions
            .get(&address)
            .is_some_and(|known| known.file.strong_count() > 0);
        if !same {
            let description = Description {
                file: std::sync::Arc::downgrade(&operation.file.0),
                told: 0,
            };
            self.descriptions.insert(address, description);
        }
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_cut_leaves_what_was_written_back_and_perhaps_the_rest() {
        let mut random = Random::new(3);
        let mut disk = Disk::new(8 * SECTOR, 0);
        disk.write_cache(0, &[1; 8 * SECTOR]);
        disk.write_back(2);
        let medium = disk.cut_power(&mut random);
        assert!(medium[2 * SECTOR..3 * SECTOR].iter().all(|byte| *byte == 1));
        for sector in medium.chunks(SECTOR) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "never torn");
        }
        assert_eq!(disk.dirty_sectors(), 0);
        assert_eq!(disk.cache, disk.medium);
    }
}
