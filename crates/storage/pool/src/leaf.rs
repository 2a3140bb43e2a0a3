//! Leaves of maps: the entries of 512 pages, and where a checkpoint has them.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::place::{Content, Entry, Place};

/// Pages of a leaf: 2 MiB of a volume.
pub const LEAF_PAGES: usize = 512;

/// Bytes of a leaf on the drives, without its entries.
pub const LEAF_DUMP: u64 = 13;
/// Most bytes of an entry there.
pub const ENTRY_DUMP_MAX: u64 = 18;

/// The entries of 512 pages.
pub struct Leaf {
    entries: [Entry; LEAF_PAGES],
    present: u16,
    /// It was looked at since it was last considered for eviction.
    is_warm: AtomicBool,
}

impl Clone for Leaf {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries,
            present: self.present,
            is_warm: AtomicBool::new(true),
        }
    }
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Default for Leaf {
    fn default() -> Self {
        Self::new()
    }
}

impl Leaf {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: [Entry::ABSENT; LEAF_PAGES],
            present: 0,
            is_warm: AtomicBool::new(true),
        }
    }

    /// One whose pages all have the same entry.
    #[must_use]
    pub fn filled(entry: Entry) -> Self {
        Self {
            entries: [entry; LEAF_PAGES],
            present: if entry.is_absent() { 0 } else { 512 },
            is_warm: AtomicBool::new(true),
        }
    }

    #[must_use]
    pub const fn entries(&self) -> &[Entry; LEAF_PAGES] {
        &self.entries
    }

    /// Sets an entry that is one.
    #[inline]
    pub fn put(&mut self, place: usize, entry: Entry) {
        let before = &mut self.entries[place];
        self.present += u16::from(before.is_absent());
        *before = entry;
    }

    /// Sets an entry, and returns the one before.
    pub fn set(&mut self, place: usize, entry: Entry) -> Entry {
        let before = std::mem::replace(&mut self.entries[place], entry);
        match (before.is_absent(), entry.is_absent()) {
            (true, false) => self.present += 1,
            (false, true) => self.present -= 1,
            (true, true) | (false, false) => {}
        }
        before
    }

    /// Bytes of the pool that its entries take.
    #[must_use]
    pub fn owned(&self) -> u32 {
        self.entries.iter().map(|entry| share(*entry)).sum()
    }

    /// Pages that have entries.
    #[must_use]
    pub const fn present(&self) -> u16 {
        self.present
    }

    /// Whether it was looked at since this was asked last.
    pub(crate) fn cool(&self) -> bool {
        self.is_warm.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn warm(&self) {
        if !self.is_warm.load(Ordering::Relaxed) {
            self.is_warm.store(true, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf")
            .field("present", &self.present)
            .finish_non_exhaustive()
    }
}

/// Bytes of the pool that an entry takes.
pub(crate) fn share(entry: Entry) -> u32 {
    match entry.content() {
        Content::Data(stored) => u32::try_from(stored.share()).expect("at most a chunk"),
        Content::Absent | Content::Zero | Content::Lost => 0,
    }
}

/// Where a leaf lies on the drives, as the newest checkpoint has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    pub place: Place,
    /// Checksum of its bytes (CRC32C).
    pub crc: u32,
    /// Bytes that it takes.
    pub length: NonZeroU16,
}

impl Home {
    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.length.get())
    }
}
