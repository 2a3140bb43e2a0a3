//! Reads whose data goes from the page cache to the socket by reference.
//!
//! The pages are taken *before* the header is queued that promises their bytes, so all of them follow, whatever becomes
//! of the file meanwhile. Where they cannot be taken (not cached, too long, no pipe left), the read goes the ordinary
//! way, into a buffer.
//!
//! A page that waits to be sent is still the file's: a write that comes later changes it, and a peer that is slow to
//! receive gets, of each byte, what was there before or what came after. For operations that overlap in time both are
//! right, byte by byte; but a block may come in two halves, which NVMe (AWUN) and clustered software do not expect, and
//! an ORDERED write may be seen by an older read. So `auto` does this for volumes that nobody can write to, and
//! `always` for all of them. Whatever is covered by a data digest is never sent so.

use longshore_block::extent::Extent;
use longshore_reactor::PagePipe;
use longshore_wire::transmit::{Payload, PayloadId};

use crate::core::Core;
use crate::exports::Unit;

/// Reads from this length on go by reference. Below, reads that leave in one send with others cost less than system
/// calls of their own.
pub(crate) const LENGTH_MIN: usize = 32 << 10;

/// The pages of a read, if they may be sent by reference and are there.
#[inline]
pub(crate) fn take(
    core: &mut Core,
    unit: &Unit,
    extent: Extent,
    length: usize,
) -> Option<PagePipe> {
    if length < LENGTH_MIN || !unit.splices {
        return None;
    }
    let mut pipe = core.pipes.take(extent.lba.0 << unit.block_shift, length)?;
    let taken = unit.volume.take_pages(extent, &mut pipe);
    core.counters.page_calls += pipe.calls_made();
    if taken {
        core.counters.storage_pages += 1;
        return Some(pipe);
    }
    core.pipes.put(pipe);
    None
}

/// Payload number `number`, of which `length` bytes are sent, in a form that no protocol sees.
pub(crate) fn held_payload<'a>(number: usize, length: usize) -> Payload<'a> {
    Payload::Unseen {
        id: PayloadId(number as u64),
        length: u32::try_from(length).expect("a pipe holds less"),
    }
}
