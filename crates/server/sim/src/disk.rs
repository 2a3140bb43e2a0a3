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

use longshore_reactor::Buffer;
use longshore_reactor::storage::{FileCompletion, FileOperation, FileOperationKind, StorageTag};
use rustix::io::Errno;

use crate::environment::{Environment, MICROSECOND, SimulatedEvent};
use crate::random::{Random, to_usize};
use crate::stamp::{CELL, SECTOR};

/// How an operation is going to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Good,
    /// After so many bytes.
    Short(usize),
    Error(Errno),
    SyncFails,
}

/// An operation under way.
#[derive(Debug)]
struct Operation {
    shard: usize,
    tag: StorageTag,
    kind: FileOperationKind,
    /// The description it came on, by address.
    description: usize,
    ending: Ending,
    /// What a sync covers.
    covers: BTreeSet<u64>,
    result: io::Result<u64>,
    effective: bool,
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
    dirty: BTreeSet<u64>,
    /// Inode of the file that stands for it.
    pub inode: u64,
    operations: BTreeMap<u64, Operation>,
    submitted: u64,
    /// Times that data could not be written back.
    sync_errors: u64,
    descriptions: BTreeMap<usize, Description>,
    /// Errors that initiators may come to know of.
    pub errors: u64,
    /// A sync or a durable write has failed.
    suspect: bool,
}

impl Disk {
    /// An empty disk.
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

    /// Zeroes a range.
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
    fn write_some_back(&mut self, random: &mut Random) {
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

    fn take_effect(&mut self, operation: &mut Operation, random: &mut Random) {
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
    fn tell_of_sync_errors(&mut self, operation: &mut Operation) {
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
    fn note_description(&mut self, operation: &FileOperation) -> usize {
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

impl Environment {
    fn ending(&mut self, kind: &FileOperationKind) -> Ending {
        let Self {
            profile, random, ..
        } = self;
        let unsupported = match kind {
            FileOperationKind::PunchHole { .. } => profile.no_holes,
            FileOperationKind::ZeroRange { .. } => profile.no_zeroing,
            _ => false,
        };
        if unsupported {
            return Ending::Error(Errno::OPNOTSUPP);
        }
        if random.chance(profile.interrupted) {
            return Ending::Error(Errno::INTR);
        }
        let length = match kind {
            FileOperationKind::Read { start, end, .. }
            | FileOperationKind::Write { start, end, .. } => end - start,
            _ => 0,
        };
        let changes = !matches!(
            kind,
            FileOperationKind::Read { .. }
                | FileOperationKind::DataSync
                | FileOperationKind::SeekData { .. }
                | FileOperationKind::SeekHole { .. }
        );
        let syncs = matches!(
            kind,
            FileOperationKind::DataSync | FileOperationKind::Write { dsync: true, .. }
        );
        if syncs && random.chance(profile.sync_fails) {
            return Ending::SyncFails;
        }
        if changes && random.chance(profile.no_space) {
            return Ending::Error(Errno::NOSPC);
        }
        if !matches!(kind, FileOperationKind::DataSync) && random.chance(profile.io_error) {
            return Ending::Error(Errno::IO);
        }
        if length > CELL && random.chance(profile.short_transfer) {
            return Ending::Short(CELL * (1 + random.index(length / CELL)));
        }
        Ending::Good
    }

    /// Takes in an operation of a shard.
    pub fn submit(&mut self, shard: usize, disk: usize, operation: FileOperation) {
        let ending = self.ending(&operation.kind);
        let stalls = self.random.chance(self.profile.stall);
        let stall = if stalls { self.profile.stall_time } else { 0 };
        let until_effect = self.random.between(MICROSECOND, self.profile.disk_delay);
        let until_done = self.random.below(self.profile.disk_delay);
        // A stall comes before the effect or behind it.
        let (before, behind) = self.random.pick(&[(stall, 0), (0, stall)]);
        let Self { disks, random, .. } = self;
        let disk_ref = &mut disks[disk];
        disk_ref.write_some_back(random);
        let description = disk_ref.note_description(&operation);
        let shows = match ending {
            Ending::Error(errno) => !matches!(errno, Errno::INTR | Errno::OPNOTSUPP),
            Ending::SyncFails => true,
            Ending::Good | Ending::Short(_) => false,
        };
        disk_ref.errors += u64::from(shows);
        let covers = match operation.kind {
            FileOperationKind::DataSync => disk_ref.dirty.clone(),
            _ => BTreeSet::new(),
        };
        disk_ref.submitted += 1;
        let number = disk_ref.submitted;
        let entry = Operation {
            shard,
            tag: operation.tag,
            kind: operation.kind,
            description,
            ending,
            covers,
            result: Ok(0),
            effective: false,
        };
        let line = format!("disk {disk}: {number} {} {ending:?}", describe(&entry.kind));
        disk_ref.operations.insert(number, entry);
        self.trace(format_args!("{line}"));
        let operation = number;
        self.plan_in(
            until_effect + before,
            SimulatedEvent::StorageEffect { disk, operation },
        );
        self.plan_in(
            until_effect + before + until_done + behind + 1,
            SimulatedEvent::StorageDone { disk, operation },
        );
    }

    /// An operation does its work.
    pub fn storage_effect(&mut self, disk: usize, number: u64) {
        let Self { disks, random, .. } = self;
        let disk = &mut disks[disk];
        if let Some(mut operation) = disk.operations.remove(&number) {
            disk.take_effect(&mut operation, random);
            disk.operations.insert(number, operation);
        }
    }

    /// An operation is over: its shard is to be told.
    pub fn storage_done(&mut self, disk: usize, number: u64) -> Option<(usize, FileCompletion)> {
        let disk_ref = &mut self.disks[disk];
        let mut operation = disk_ref.operations.remove(&number)?;
        disk_ref.tell_of_sync_errors(&mut operation);
        let line = format!("disk {disk}: {number} done {:?}", operation.result);
        self.trace(format_args!("{line}"));
        let completion = FileCompletion {
            tag: operation.tag,
            result: operation.result,
            buffer: buffer_of(operation.kind),
        };
        Some((operation.shard, completion))
    }
}

fn buffer_of(kind: FileOperationKind) -> Option<Buffer> {
    match kind {
        FileOperationKind::Read { buffer, .. } | FileOperationKind::Write { buffer, .. } => {
            Some(buffer)
        }
        _ => None,
    }
}

fn describe(kind: &FileOperationKind) -> String {
    match kind {
        FileOperationKind::Read {
            offset, start, end, ..
        } => format!("read {offset}+{}", end - start),
        FileOperationKind::Write {
            offset,
            start,
            end,
            dsync,
            ..
        } => {
            let kind = if *dsync { "write dsync" } else { "write" };
            format!("{kind} {offset}+{}", end - start)
        }
        other => format!("{other:?}"),
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
