//! How the drives of a new pool are parted.

use crate::format::superblock::{SEGMENT_MAX, SEGMENT_MIN};

/// Segments that a pool has at least, where it is large enough for segments of their largest common size. The more there
/// are, the less space is spare or at the ends of segments, and the less is moved by cleaning.
const SEGMENTS_WANTED: u64 = 512;

/// Largest segments that a pool is made with, and smallest.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=32 << 20;

/// The same of pools that the first version made.
const SEGMENTS_BEFORE: u64 = 128;

/// Bytes of a segment of a pool that is made on such drives.
pub fn segment_bytes_of(drive_bytes: impl Iterator<Item = u64>) -> u64 {
    parted(drive_bytes, SEGMENTS_WANTED)
}

/// The same of a pool that the first version made.
pub fn segment_bytes_before(drive_bytes: impl Iterator<Item = u64>) -> u64 {
    parted(drive_bytes, SEGMENTS_BEFORE)
}

fn parted(drive_bytes: impl Iterator<Item = u64>, segments: u64) -> u64 {
    let smallest = drive_bytes.min().unwrap_or(0);
    let wanted = (smallest / segments).max(1);
    let bytes = 1 << wanted.ilog2();
    bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
}

const _: () = assert!(*SEGMENT_BYTES.start() >= SEGMENT_MIN as u64);
const _: () = assert!(*SEGMENT_BYTES.end() <= SEGMENT_MAX as u64);
