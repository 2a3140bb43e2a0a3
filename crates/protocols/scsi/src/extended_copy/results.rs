//! What became of copies, for RECEIVE COPY RESULTS.
//!
//! A copy is known by its nexus and its list identifier, from its start until the initiator starts
//! another with the same identifier, the session ends, the unit is reset, or newer copies need the
//! room.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::command::Completion;
use crate::nexus::Nexus;
use crate::sense::{Sense, SenseFormat};
use crate::unit::LogicalUnit;

use super::parameters::{MAX_CONCURRENT_COPIES, operating_parameters};

/// Which copy.
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
struct Copy {
    key: CopyKey,
    /// Kept when it is over.
    holds: bool,
    status: CopyManagerStatus,
    segments_processed: u16,
    bytes_transferred: u64,
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

    fn find(&self, key: &CopyKey) -> Option<&Copy> {
        self.copies.iter().find(|copy| copy.key.is(key))
    }

    fn find_mut(&mut self, key: &CopyKey) -> Option<&mut Copy> {
        self.copies.iter_mut().find(|copy| copy.key.is(key))
    }
}

/// Appends the whole parameter data of a RECEIVE COPY RESULTS; the caller cuts it at the allocation
/// length.
///
/// # Errors
/// INVALID FIELD IN CDB: there is no such service action, or no copy with that list identifier.
pub(crate) fn receive_copy_results(
    unit: &LogicalUnit,
    nexus: &Arc<Nexus>,
    service_action: u8,
    list_identifier: u8,
    data_in: &mut Vec<u8>,
) -> Result<(), Completion> {
    let shared = unit.lock();
    let copy = shared.copies.find(&CopyKey::new(nexus, list_identifier));
    let copy = copy.ok_or(Completion::from(Sense::invalid_field_in_cdb(2, 7)));
    match service_action {
        0x00 => data_in.extend_from_slice(&copy_status(copy?)),
        0x03 => data_in.extend_from_slice(&operating_parameters(unit.config().block_size)),
        0x04 => failed_segment_details(copy?, data_in),
        _ => return Err(Sense::invalid_field_in_cdb(1, 4).into()),
    }
    Ok(())
}

/// COPY STATUS (SPC-4 §6.20).
fn copy_status(copy: &Copy) -> [u8; 12] {
    let status = match copy.status {
        CopyManagerStatus::InProgress => 0,
        CopyManagerStatus::Completed => 1,
        CopyManagerStatus::Failed(_) => 2,
    };
    let [segments_high, segments_low] = copy.segments_processed.to_be_bytes();
    let (units, count) = transfer_count(copy.bytes_transferred);
    let [a, b, c, d] = count.to_be_bytes();
    [
        0,
        0,
        0,
        8,
        status,
        segments_high,
        segments_low,
        units,
        a,
        b,
        c,
        d,
    ]
}

/// TRANSFER COUNT UNITS and TRANSFER COUNT: bytes, or the smallest power of 1024 of them that fits.
fn transfer_count(bytes: u64) -> (u8, u32) {
    let mut count = bytes;
    let mut units = 0;
    loop {
        match u32::try_from(count) {
            Ok(count) => return (units, count),
            Err(_) => {
                count /= 1024;
                units += 1;
            }
        }
    }
}

/// FAILED SEGMENT DETAILS (SPC-4 §6.23): the status and sense data the copy ended with.
fn failed_segment_details(copy: &Copy, data_in: &mut Vec<u8>) {
    let CopyManagerStatus::Failed(sense) = copy.status else {
        // AVAILABLE DATA of zero: nothing failed.
        data_in.extend_from_slice(&[0; 4]);
        return;
    };
    let sense = sense.to_bytes(SenseFormat::Fixed);
    let sense_length = u16::try_from(sense.len()).expect("sense data is short");
    let available = 56 + u32::from(sense_length);
    data_in.extend_from_slice(&available.to_be_bytes());
    data_in.extend_from_slice(&[0; 52]);
    data_in.extend_from_slice(&[crate::status::Status::CHECK_CONDITION.0, 0]);
    data_in.extend_from_slice(&sense_length.to_be_bytes());
    data_in.extend_from_slice(&sense);
}
