//! Space that is kept for cleaning and checkpoints.

use crate::format::checkpoint::PART_HEADER;
use crate::format::{long, short};
use crate::leaf::{ENTRY_DUMP_MAX, LEAF_DUMP};
use crate::place::STEP;
use crate::state::State;

/// Bytes of a part of a checkpoint.
pub const PART: usize = 256 << 10;

/// Bytes of a checkpoint for a volume, snapshot, layer, alias or segment: more than any of them takes.
const ITEM: usize = 256;
const SEGMENT_ITEM: usize = 40;

/// Bytes that a leaf takes without its entries: those before them, what it is rounded up by, and where it lies.
pub const LEAF_COST: u64 = LEAF_DUMP + STEP as u64 + 24;

/// Segments that leaves take beside what half-empty ones waste: the one that is being filled.
const LEAF_SEGMENTS: usize = 1;

/// Most bytes of the leaves of all maps.
fn leaf_bytes(state: &State) -> u64 {
    let (leaves, entries) = state.catalog.map_size();
    long(leaves) * LEAF_COST + long(entries) * ENTRY_DUMP_MAX
}

/// Segments that leaves of the newest checkpoint may take.
fn leaf_segments(state: &State) -> usize {
    short((leaf_bytes(state) * 2).div_ceil(state.segments.bytes())) + LEAF_SEGMENTS
}

/// Segments that the next checkpoint may need, though the maps grow until then.
pub fn map_reserve(state: &State) -> usize {
    let catalog = &state.catalog;
    let items = catalog.volumes.len()
        + catalog.snapshots.len()
        + catalog.layers.len()
        + catalog.aliases.len();
    let segments = usize::try_from(state.segments.count()).expect("32 bits fit");
    let bytes = leaf_bytes(state) + long(items * ITEM + segments * SEGMENT_ITEM) + long(PART) * 2;
    let each = state.segments.bytes() / long(PART) * long(PART - PART_HEADER);
    short((bytes + bytes / 2).div_ceil(each)) + 1 + LEAF_SEGMENTS
}

/// Segments that should be spare, so that cleaning keeps ahead of what is written. The more there are, the fuller are the
/// others, and the more has to be moved; the fewer, the more checkpoints are made.
pub fn spare_wanted(state: &State) -> usize {
    map_reserve(state) + (usable(state) / 48).max(8)
}

/// Segments that data leaves to cleaning and checkpoints: more than are spare, so that something dies before it is moved.
fn kept(state: &State) -> usize {
    map_reserve(state) + (usable(state) / 16).max(8) + leaf_segments(state)
}

fn usable(state: &State) -> usize {
    usize::try_from(state.segments.usable()).expect("32 bits fit")
}

/// Room for data: what cleaning needs to work, and the next checkpoint, is left out.
pub fn capacity(state: &State) -> u64 {
    let count = usable(state);
    long(count - kept(state).min(count)) * state.segments.bytes() / 100 * 94
}
