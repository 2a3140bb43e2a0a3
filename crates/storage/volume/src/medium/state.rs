//! What is known of an object behind a file descriptor, and how it is used.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Mutex};

use longshore_reactor::storage::FileHandle;

use super::backing::Backing;
use super::sync_handles::SyncHandles;
use super::zeroing::Zeroing;
use crate::condition::{Condition, ConditionCell};
use crate::description::{Characteristics, WriteCache};
use crate::outline::Outline;

/// When a buffered write is made on the reactor itself instead of by a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum InlineWrites {
    /// Where it cannot sleep: on tmpfs and ramfs, and on file systems that honour RWF_NOWAIT for
    /// buffered writes (xfs and btrfs do, ext4 does not).
    #[default]
    Auto,
    /// Always. A write into the page cache takes microseconds, but when the kernel throttles writers
    /// because too much of the cache is dirty, the whole reactor is held up for up to 200 ms.
    Always,
    Never,
}

/// What the object behind the file descriptor can do, found out when it was opened.
#[derive(Debug)]
pub(crate) struct Abilities {
    pub(crate) read_only: bool,
    /// fdatasync means something there. False for /dev/zero.
    pub(crate) syncs: bool,
    /// O_DIRECT, with the alignment that it asks of memory addresses.
    pub(crate) direct_memory_alignment: Option<usize>,
    /// How ranges are unmapped and zeroed.
    pub(crate) zeroing: Zeroing,
    /// Granularity of unmap; `None` when it is not supported.
    pub(crate) unmap_granularity: Option<u32>,
    /// SEEK_DATA and SEEK_HOLE tell where data is.
    pub(crate) extents: bool,
    /// fallocate(2) reserves space here.
    pub(crate) reserves: bool,
    pub(crate) rotational: bool,
    pub(crate) physical_block_size: u32,
    /// Reads and writes that cannot sleep by the nature of the file system (tmpfs).
    pub(crate) in_memory: bool,
    /// Every change is on the medium when it completes.
    pub(crate) write_through: bool,
    pub(crate) inline_writes: InlineWrites,
}

/// How `try_read` and `try_write` call the kernel.
pub(super) mod inline {
    /// No calls in the event loop.
    pub(crate) const OFF: u8 = 0;
    /// With RWF_NOWAIT, so that a call that would sleep fails.
    pub(crate) const NOWAIT: u8 = 1;
    /// With plain calls, which cannot sleep here.
    pub(crate) const PLAIN: u8 = 2;
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) outline: Outline,
    pub(super) file: FileHandle,
    pub(super) sync_handles: SyncHandles,
    pub(super) abilities: Abilities,
    pub(super) backing: Backing,
    pub(super) condition: ConditionCell,
    pub(super) inline_reads: AtomicU8,
    /// Its pages are in the page cache, and can be taken as long as that has not failed.
    pub(super) has_pages: AtomicBool,
    pub(super) inline_writes: AtomicU8,
    /// Held while the size of the object is looked at or changed; control threads only.
    pub(crate) resizing: Mutex<()>,
}

impl Medium {
    pub(crate) fn new(
        outline: Outline,
        file: File,
        backing: Backing,
        abilities: Abilities,
    ) -> Medium {
        let sync_handles = if abilities.syncs && !abilities.read_only {
            SyncHandles::open(&file, outline.name())
        } else {
            SyncHandles::none()
        };
        let buffered = abilities.direct_memory_alignment.is_none();
        let inline_reads = match buffered {
            true if abilities.in_memory => inline::PLAIN,
            true => inline::NOWAIT,
            // A direct read always waits for the device.
            false => inline::OFF,
        };
        let inline_writes = match abilities.inline_writes {
            InlineWrites::Never => inline::OFF,
            _ if !buffered => inline::OFF,
            // A durable write always sleeps.
            _ if abilities.syncs && abilities.write_through => inline::OFF,
            InlineWrites::Always => inline::PLAIN,
            InlineWrites::Auto if abilities.in_memory => inline::PLAIN,
            InlineWrites::Auto => inline::NOWAIT,
        };
        Medium {
            outline,
            file: FileHandle(Arc::new(file)),
            sync_handles,
            abilities,
            backing,
            condition: ConditionCell::default(),
            inline_reads: AtomicU8::new(inline_reads),
            has_pages: AtomicBool::new(buffered),
            inline_writes: AtomicU8::new(inline_writes),
            resizing: Mutex::new(()),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file.0
    }

    pub(crate) fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    pub(crate) fn characteristics(&self) -> Characteristics {
        Characteristics {
            read_only: self.abilities.read_only,
            write_cache: if self.abilities.syncs && !self.abilities.write_through {
                WriteCache::Volatile
            } else {
                WriteCache::None
            },
            unmap_granularity: self.abilities.unmap_granularity,
            unmapped_reads_zeros: self.abilities.zeroing.unmapped_reads_zeros(),
            rotational: self.abilities.rotational,
            physical_block_size: self.abilities.physical_block_size,
        }
    }

    /// Whether a change must be on the medium when it completes.
    pub(super) fn is_durable(&self, fua: bool) -> bool {
        (fua || self.abilities.write_through) && self.abilities.syncs
    }

    /// What is known to be wrong with it.
    pub(crate) fn condition(&self) -> Condition {
        self.condition.get()
    }

    pub(super) fn poison(&self, operation: &'static str, error: &io::Error) {
        if self.condition.worsen(Condition::Poisoned) {
            tracing::error!(
                volume = self.outline.name(),
                operation,
                %error,
                "data may be lost: the volume refuses writes until it is reopened and checked"
            );
        }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.abilities.direct_memory_alignment.is_some()
    }

    /// Bytes of a short transfer that count. O_DIRECT goes on at whole blocks only.
    pub(super) fn whole_units(&self, moved: u64, wanted: u64) -> u64 {
        if moved == wanted || !self.is_direct() {
            return moved;
        }
        moved - moved % u64::from(self.outline.block_size())
    }
}

/// A count of bytes that a buffer holds.
pub(super) fn in_memory(count: u64) -> usize {
    usize::try_from(count).expect("part of a buffer, which is in memory")
}
