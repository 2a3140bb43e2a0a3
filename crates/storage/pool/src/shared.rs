//! Settings of an open volume, for those who write to it while others change them.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::format::op::VolumeRecord;
use crate::place::Codec;
use crate::room::Room;

/// Settings as those who write to an open volume see them.
#[derive(Debug)]
pub struct Shared {
    codec: AtomicU8,
    quota: AtomicU64,
    /// Space of the pool is reserved.
    is_reserved: AtomicBool,
}

/// Pages that are compressed together.
const CHUNK_PAGES: usize = 4;

impl Shared {
    pub fn new(volume: &VolumeRecord, room: &Room) -> Self {
        Self {
            codec: AtomicU8::new(volume.codec.code()),
            quota: AtomicU64::new(volume.quota),
            is_reserved: AtomicBool::new(room.is_reserved()),
        }
    }

    pub fn take_over(&self, volume: &VolumeRecord, room: &Room) {
        self.codec.store(volume.codec.code(), Ordering::Relaxed);
        self.quota.store(volume.quota, Ordering::Relaxed);
        let is_reserved = room.is_reserved();
        self.is_reserved.store(is_reserved, Ordering::Relaxed);
    }

    /// Pages that are compressed together. Where space is reserved, no page may keep the bytes of others, which were
    /// overwritten since: each is a chunk of its own.
    pub fn chunk_pages(&self) -> usize {
        if self.is_reserved.load(Ordering::Relaxed) {
            1
        } else {
            CHUNK_PAGES
        }
    }

    pub fn codec(&self) -> Codec {
        Codec::of(self.codec.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Bytes that it and its snapshots may take; 0: no limit.
    pub fn quota(&self) -> u64 {
        self.quota.load(Ordering::Relaxed)
    }
}
