//! Operations on the disks: faults, delays and completions, drawn from the seed.

use std::collections::BTreeSet;

use longshore_reactor::Buffer;
use longshore_reactor::storage::{FileCompletion, FileOperation, FileOperationKind};
use rustix::io::Errno;

use crate::disk::{Ending, Operation};
use crate::environment::{Environment, SimulatedEvent};
use crate::stamp::CELL;
use crate::time::MICROSECOND;

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
