//! The copies of a logical unit, under way and over.
//!
//! A copy is known by its nexus and its list identifier, from its start until the initiator starts
//! another with the same identifier, the session ends, the unit is reset, or newer copies need the
//! room.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::nexus::Nexus;
use crate::sense::Sense;

/// Copies a unit takes at a time.
pub(crate) const MAX_CONCURRENT_COPIES: u8 = 64;

#[derive(Clone, Debug)]
pub(crate) struct CopyKey {
    nexus: Arc<Nexus>,
    list_identifier: u8,
}

impl CopyKey {
    pub(super) fn new(nexus: &Arc<Nexus>, list_identifier: u8) -> Self {
        Self {
            nexus: Arc::clone(nexus),
            list_identifier,
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.list_identifier == other.list_identifier && Arc::ptr_eq(&self.nexus, &other.nexus)
    }
}

/// COPY MANAGER STATUS (SPC-4 Table 249).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyManagerStatus {
    InProgress,
    Completed,
    /// And what the command ended with.
    Failed(Sense),
}

#[derive(Debug)]
pub(super) struct Copy {
    key: CopyKey,
    /// Kept when it is over.
    holds: bool,
    pub(super) status: CopyManagerStatus,
    pub(super) segments_processed: u16,
    pub(super) bytes_transferred: u64,
}

/// As many copies are under way as a unit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyCopies;

/// Copies of a logical unit, oldest first.
#[derive(Debug, Default)]
pub(crate) struct CopyResults {
    copies: VecDeque<Copy>,
}

impl CopyResults {
    const CAPACITY: usize = MAX_CONCURRENT_COPIES as usize;

    /// A copy begins. `Ok(false)`: one with the same key is under way.
    pub(super) fn begin(&mut self, key: CopyKey, holds: bool) -> Result<bool, TooManyCopies> {
        if let Some(known) = self.find(&key) {
            if known.status == CopyManagerStatus::InProgress {
                return Ok(false);
            }
            self.forget(&key);
        }
        if self.copies.len() >= Self::CAPACITY {
            let oldest = self
                .copies
                .iter()
                .position(|copy| copy.status != CopyManagerStatus::InProgress);
            self.copies.remove(oldest.ok_or(TooManyCopies)?);
        }
        self.copies.push_back(Copy {
            key,
            holds,
            status: CopyManagerStatus::InProgress,
            segments_processed: 0,
            bytes_transferred: 0,
        });
        Ok(true)
    }

    pub(super) fn progress(&mut self, key: &CopyKey, bytes: u64, segments: u16) {
        if let Some(copy) = self.find_mut(key) {
            copy.bytes_transferred = copy.bytes_transferred.saturating_add(bytes);
            copy.segments_processed = copy.segments_processed.saturating_add(segments);
        }
    }

    pub(super) fn finish(&mut self, key: &CopyKey, status: CopyManagerStatus) {
        if let Some(copy) = self.find_mut(key) {
            copy.status = status;
            if !copy.holds {
                self.forget(key);
            }
        }
    }

    pub(super) fn forget(&mut self, key: &CopyKey) {
        self.copies.retain(|copy| !copy.key.is(key));
    }

    pub(crate) fn clear(&mut self) {
        self.copies.clear();
    }

    pub(crate) fn nexus_lost(&mut self, nexus: &Arc<Nexus>) {
        self.copies
            .retain(|copy| !Arc::ptr_eq(&copy.key.nexus, nexus));
    }

    pub(super) fn find(&self, key: &CopyKey) -> Option<&Copy> {
        self.copies.iter().find(|copy| copy.key.is(key))
    }

    fn find_mut(&mut self, key: &CopyKey) -> Option<&mut Copy> {
        self.copies.iter_mut().find(|copy| copy.key.is(key))
    }
}
