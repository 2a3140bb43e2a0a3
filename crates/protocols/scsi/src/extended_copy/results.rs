//! What became of copies, for RECEIVE COPY RESULTS.

use std::sync::Arc;

use crate::completion::Completion;
use crate::nexus::Nexus;
use crate::sense::{Sense, SenseFormat};
use crate::unit::LogicalUnit;

use super::parameters::operating_parameters;
use crate::copies::{Copy, CopyKey, CopyManagerStatus};

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
