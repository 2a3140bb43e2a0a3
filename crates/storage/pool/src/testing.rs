//! Drives in memory that lose power, for tests.
//!
//! Operations are carried out when they complete, in any order. A power cut keeps what was synced, and any part of
//! what was not, sector by sector.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use longshore_reactor::storage::{
    Delegated, FileCompletion, FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_volume::{Executor, Io};

use crate::format::{long, short};
use crate::side::Side;

const SECTOR: usize = 512;

/// A fault in the pool itself, for tests that have to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A checkpoint is written over segments that the one before still needs.
    EarlyReuse,
    /// Recovery takes records of earlier uses of a segment for new ones.
    NoGenerationCheck,
    /// Recovery ends at the first record that is missing.
    StopsAtGap,
    /// Writes that have to be durable are written as others are.
    NoDurableWrites,
    /// What is read is not compared with its checksum.
    NoChecksum,
    /// Zeros of a layer do not hide what older layers hold.
    ForgetsZeros,
    /// What only one side of a mirror has after a power cut is not copied to the other.
    MendsNothing,
    /// A side of a mirror is current before it has been filled.
    CopiesNothing,
    /// A rebuild takes records for all that there are, whichever are missing.
    ForgetsMissing,
    /// Segments are handed out before what replaced their data is on the medium.
    HandsOutEarly,
    /// Segments are handed out whose records recovery needs.
    HandsOutNeeded,
    /// Recovery does not look for segments that records handed out.
    ForgetsHandOuts,
    /// A drive that is added has its superblocks together with the others.
    ListsBeforeTheDrive,
}

thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault on this thread, or takes it away.
pub fn plant(fault: Option<Planted>) {
    PLANTED.set(fault);
}

/// Whether that fault is planted.
#[must_use]
pub fn has_planted(fault: Planted) -> bool {
    PLANTED.get() == Some(fault)
}

thread_local! {
    static ROOM: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

/// Has pools that are made or opened on this thread keep so few leaves of maps in memory.
pub fn set_cache_room(leaves: Option<usize>) {
    ROOM.set(leaves);
}

/// Leaves that pools keep in memory on this thread, if that was said.
#[must_use]
pub fn cache_room() -> Option<usize> {
    ROOM.get()
}

thread_local! {
    static HANDED_OUT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Takes note of segments that a record hands out.
pub fn note_hand_out(count: usize) {
    HANDED_OUT.set(HANDED_OUT.get() + long(count));
}

/// Segments that records have handed out on this thread.
#[must_use]
pub fn handed_out() -> u64 {
    HANDED_OUT.get()
}

/// A source of numbers that look random, and are the same each time.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number (xorshift64*).
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.roll() >> 16) % end.max(1)
    }

    /// True once in so many times.
    pub fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A drive: what its readers see, and what of it outlives a power cut.
#[derive(Clone, Debug)]
struct Disk {
    seen: Vec<u8>,
    medium: Vec<u8>,
    /// Sectors that were written and not synced.
    dirty: BTreeSet<usize>,
}

/// What is to go wrong with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It fails with EIO.
    Fails,
    /// A write fails with ENOSPC.
    IsFull,
    /// A write says that it was made, and was not.
    IsLost,
}

/// Drives, and the operations on them.
pub struct Disks {
    disks: Vec<Disk>,
    files: Vec<Arc<File>>,
    waiting: Vec<FileOperation>,
    dice: Dice,
    /// Operations that complete before the power goes.
    pub left: u64,
    /// Operations that have completed.
    pub done: u64,
    /// Number of the operation that something goes wrong with.
    pub trouble: Option<(u64, Trouble)>,
    /// Syncs do nothing: a fault that tests have to find.
    pub skips_syncs: bool,
    /// Every operation on this drive fails with EIO.
    pub dead: Option<usize>,
    /// No space can be reserved on any of them.
    pub is_full_below: bool,
}

impl Disks {
    /// Empty drives of so many bytes.
    #[must_use]
    pub fn new(bytes: &[usize], seed: u64) -> Self {
        let disk = |bytes: &usize| Disk {
            seen: vec![0; *bytes],
            medium: vec![0; *bytes],
            dirty: BTreeSet::new(),
        };
        Self::of(bytes.iter().map(disk).collect(), seed)
    }

    fn of(disks: Vec<Disk>, seed: u64) -> Self {
        let file = |_: &Disk| Arc::new(File::open("/dev/null").expect("it is always there"));
        Self {
            files: disks.iter().map(file).collect(),
            disks,
            waiting: Vec::new(),
            dice: Dice::new(seed),
            left: u64::MAX,
            done: 0,
            trouble: None,
            skips_syncs: false,
            dead: None,
            is_full_below: false,
        }
    }

    /// The drives as they are, for another pool.
    #[must_use]
    pub fn copy(&self, seed: u64) -> Self {
        Self::of(self.disks.clone(), seed)
    }

    /// The drives, to make or open a pool on.
    #[must_use]
    pub(crate) fn drives(&self) -> Vec<Side> {
        let drive = |(number, file): (usize, &Arc<File>)| Side {
            file: FileHandle(file.clone()),
            path: PathBuf::from(format!("drive-{number}")),
            is_direct: true,
            align: 512,
            bytes: long(self.disks[number].seen.len()),
            reserves: true,
        };
        self.files.iter().enumerate().map(drive).collect()
    }

    /// What is left after the power went. Each unsynced sector, and each sector of a write under way, is on the medium
    /// or not.
    #[must_use]
    pub fn cut_power(mut self, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        // All, none, or any.
        let mood = dice.below(3);
        let mut keeps = || match mood {
            0 => true,
            1 => false,
            _ => dice.once_in(2),
        };
        for operation in std::mem::take(&mut self.waiting) {
            let number = self.number(&operation.file);
            if let FileOperationKind::Write {
                offset,
                buffer,
                start,
                end,
                ..
            } = operation.kind
            {
                let disk = &mut self.disks[number];
                let at = short(offset);
                for (sector, bytes) in buffer[start..end].chunks(SECTOR).enumerate() {
                    if keeps() {
                        let begin = at + sector * SECTOR;
                        disk.medium[begin..begin + bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
        }
        for disk in &mut self.disks {
            for sector in std::mem::take(&mut disk.dirty) {
                if keeps() {
                    let range = sector * SECTOR..(sector + 1) * SECTOR;
                    let (seen, medium) = (&disk.seen, &mut disk.medium);
                    medium[range.clone()].copy_from_slice(&seen[range]);
                }
            }
            disk.seen.clone_from(&disk.medium);
        }
        Self::of(self.disks, seed)
    }

    /// What is left after the process was killed: all that completed, and any of what was under way.
    #[must_use]
    pub fn kill(mut self, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        for operation in std::mem::take(&mut self.waiting) {
            if dice.once_in(2) {
                let mut operation = operation;
                let _ = self.carry_out(&mut operation);
            }
        }
        let skips_syncs = self.skips_syncs;
        let mut next = Self::of(self.disks, seed);
        next.skips_syncs = skips_syncs;
        next
    }

    /// Changes bytes of a drive behind everybody's back.
    pub fn damage(
        &mut self,
        drive: usize,
        range: std::ops::Range<usize>,
        change: impl Fn(&mut [u8]),
    ) {
        change(&mut self.disks[drive].seen[range.clone()]);
        change(&mut self.disks[drive].medium[range]);
    }

    /// A drive of so many bytes with these pages: places and contents.
    #[must_use]
    pub fn of_pages(bytes: usize, pages: &[u8], seed: u64) -> Self {
        let mut seen = vec![0; bytes];
        for page in pages.chunks_exact(8 + 4096) {
            let (place, contents) = page.split_at(8);
            let place = short(u64::from_le_bytes(place.try_into().expect("eight bytes")));
            seen[place..place + 4096].copy_from_slice(contents);
        }
        let disk = Disk {
            medium: seen.clone(),
            seen,
            dirty: BTreeSet::new(),
        };
        Self::of(vec![disk], seed)
    }

    /// The pages of the first drive that are not zero, as [`Self::of_pages`] takes them.
    #[must_use]
    pub fn to_pages(&self) -> Vec<u8> {
        let mut pages = Vec::new();
        for (number, page) in self.disks[0].seen.chunks_exact(4096).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                pages.extend_from_slice(&long(number * 4096).to_le_bytes());
                pages.extend_from_slice(page);
            }
        }
        pages
    }

    /// What a drive holds.
    #[must_use]
    pub fn contents(&self, drive: usize) -> &[u8] {
        &self.disks[drive].seen
    }

    fn number(&self, file: &FileHandle) -> usize {
        let is_it = |known: &Arc<File>| Arc::ptr_eq(known, &file.0);
        self.files.iter().position(is_it).expect("a drive of these")
    }

    /// The next completion; `None` when nothing is under way, or the power is gone.
    fn complete(&mut self) -> Option<FileCompletion> {
        if self.waiting.is_empty() || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let count = long(self.waiting.len());
        let chosen = short(self.dice.below(count));
        let mut operation = self.waiting.swap_remove(chosen);
        let trouble = self.trouble.filter(|(number, _)| *number == self.done);
        self.done += 1;
        let is_write = matches!(operation.kind, FileOperationKind::Write { .. });
        let is_dead = self.dead == Some(self.number(&operation.file));
        let result = match trouble {
            _ if is_dead => Err(rustix::io::Errno::IO.into()),
            _ if self.is_full_below
                && matches!(operation.kind, FileOperationKind::Allocate { .. }) =>
            {
                Err(rustix::io::Errno::NOSPC.into())
            }
            Some((_, Trouble::Fails)) => Err(rustix::io::Errno::IO.into()),
            Some((_, Trouble::IsFull))
                if is_write || matches!(operation.kind, FileOperationKind::Allocate { .. }) =>
            {
                Err(rustix::io::Errno::NOSPC.into())
            }
            Some((_, Trouble::IsLost)) if is_write => Ok(match &operation.kind {
                FileOperationKind::Write { start, end, .. } => long(end - start),
                _ => 0,
            }),
            _ => self.carry_out(&mut operation),
        };
        let buffer = match operation.kind {
            FileOperationKind::Read { buffer, .. } | FileOperationKind::Write { buffer, .. } => {
                Some(buffer)
            }
            _ => None,
        };
        Some(FileCompletion {
            tag: operation.tag,
            result,
            buffer,
        })
    }

    fn carry_out(&mut self, operation: &mut FileOperation) -> io::Result<u64> {
        let number = self.number(&operation.file);
        let skips_syncs = self.skips_syncs;
        let disk = &mut self.disks[number];
        match &mut operation.kind {
            FileOperationKind::Read {
                offset,
                buffer,
                start,
                end,
            } => {
                let at = short(*offset);
                assert!(at.is_multiple_of(SECTOR) && (*end - *start).is_multiple_of(SECTOR));
                let there = disk.seen.len().saturating_sub(at).min(*end - *start);
                buffer[*start..*start + there].copy_from_slice(&disk.seen[at..at + there]);
                Ok(long(there))
            }
            FileOperationKind::Write {
                offset,
                buffer,
                start,
                end,
                dsync,
            } => {
                let at = short(*offset);
                let length = *end - *start;
                assert!(at.is_multiple_of(SECTOR) && length.is_multiple_of(SECTOR));
                disk.seen[at..at + length].copy_from_slice(&buffer[*start..*end]);
                let sectors = at / SECTOR..(at + length) / SECTOR;
                if *dsync && !skips_syncs {
                    disk.medium[at..at + length].copy_from_slice(&buffer[*start..*end]);
                    sectors.for_each(|sector| {
                        disk.dirty.remove(&sector);
                    });
                } else {
                    disk.dirty.extend(sectors);
                }
                Ok(long(length))
            }
            FileOperationKind::DataSync => {
                if !skips_syncs {
                    for sector in std::mem::take(&mut disk.dirty) {
                        let range = sector * SECTOR..(sector + 1) * SECTOR;
                        disk.medium[range.clone()].copy_from_slice(&disk.seen[range]);
                    }
                }
                Ok(0)
            }
            FileOperationKind::Allocate { .. } => Ok(0),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Storage for Disks {
    fn submit(&mut self, operation: FileOperation) {
        self.waiting.push(operation);
    }

    fn delegate(&mut self, _tag: StorageTag) -> Delegated {
        unreachable!("pools delegate nothing")
    }
}

/// Runs futures on drives until they end, or the power goes.
pub struct Rig {
    pub disks: Disks,
    executor: Executor<()>,
}

impl Rig {
    #[must_use]
    pub fn new(disks: Disks) -> Self {
        Self {
            disks,
            executor: Executor::default(),
        }
    }

    /// Runs a future to its end. `None`: the power went before.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        work: impl FnOnce(Io) -> F,
    ) -> Option<T> {
        let result = Rc::new(std::cell::RefCell::new(None));
        let slot = result.clone();
        self.executor.spawn(
            |io| {
                let work = work(io);
                async move {
                    let value = work.await;
                    *slot.borrow_mut() = Some(value);
                }
            },
            &mut self.disks,
        );
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return Some(value);
            }
            let completion = self.disks.complete()?;
            self.executor.complete(completion, &mut self.disks);
        }
    }

    /// Begins a future, which goes on with what [`Self::run`] runs.
    pub fn begin<F: Future<Output = ()> + 'static>(&mut self, work: impl FnOnce(Io) -> F) {
        self.executor.spawn(work, &mut self.disks);
    }

    /// Operations that have not completed.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.disks.waiting.len()
    }

    /// The drives, without anybody who uses them.
    #[must_use]
    pub fn into_disks(self) -> Disks {
        let Self { disks, executor } = self;
        drop(executor);
        disks
    }
}

/// Contents of a volume in a test: for each block, the values that it may have.
#[derive(Clone, Debug, Default)]
pub struct Blocks(BTreeMap<u64, Vec<u32>>);

impl Blocks {
    /// A block was written, and a power cut may take that back.
    pub fn write(&mut self, block: u64, value: u32) {
        self.0.entry(block).or_insert_with(|| vec![0]).push(value);
    }

    /// A block was written, and nothing takes that back.
    pub fn write_durable(&mut self, block: u64, value: u32) {
        self.0.insert(block, vec![value]);
    }

    /// What was written before is durable.
    pub fn flush(&mut self) {
        for values in self.0.values_mut() {
            values.drain(..values.len() - 1);
        }
    }

    /// Whether it may read as that after a power cut.
    #[must_use]
    pub fn allows(&self, block: u64, value: u32) -> bool {
        self.0
            .get(&block)
            .map_or(value == 0, |values| values.contains(&value))
    }

    /// It has been read, and is that.
    pub fn settle(&mut self, block: u64, value: u32) {
        self.0.insert(block, vec![value]);
    }
}
