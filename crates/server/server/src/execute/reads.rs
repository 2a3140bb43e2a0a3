//! Reads without a buffer.

use longshore_block::extent::Extent;
use longshore_reactor::PagePipe;
use longshore_volume::{Attempt, VolumeError};
use longshore_wire::transmit::Transmit;

use super::inline_reads::InlineReads;
use super::pages;
use crate::core::Core;
use crate::exports::Unit;
use crate::transport::channel::Channel;

/// Data for the peer up to this length is copied behind its header rather than sent by reference.
pub(crate) const COPY_BYTES_MAX: usize = 1024;

/// How far a read that needs no buffer came.
pub(super) enum InlineRead {
    /// The data are in the transmit queue, behind room for their header.
    Inline,
    /// They are so many zeros.
    Zeros(u32),
    /// The volume could not.
    Failed(VolumeError),
    /// The volume would have to sleep.
    WouldSleep,
    /// It needs memory of its own.
    NeedsBuffer,
}

/// The pages of a read that may be sent by reference.
#[inline]
pub(super) fn take_pages(
    core: &mut Core,
    channel: &Channel,
    machine: &impl InlineReads,
    unit: &Unit,
    extent: Extent,
    length: usize,
) -> Option<PagePipe> {
    if !unit.splices || !channel.socket.link.takes_pages() || machine.has_data_digest() {
        return None;
    }
    pages::take(core, unit, extent, length)
}

/// Reads to behind the header of the answer of command `slot`, if the volume can at once. `ANSWERS`: that sends the
/// answer as well. Otherwise it is to follow.
#[inline]
pub(super) fn inline_read<const ANSWERS: bool>(
    core: &mut Core,
    channel: &mut Channel,
    machine: &mut impl InlineReads,
    slot: u32,
    unit: &Unit,
    (extent, length): (Extent, usize),
) -> InlineRead {
    let Ok(wire_length) = u32::try_from(length) else {
        return InlineRead::NeedsBuffer;
    };
    let zeros = unit.volume.known_zeros(extent);
    if zeros && length > COPY_BYTES_MAX {
        core.counters.storage_zeros += 1;
        return InlineRead::Zeros(wire_length);
    }
    let mut refused = None;
    let fill = |place: &mut [u8]| {
        if place.len() != length {
            // The peer expects less than whole blocks.
            return false;
        }
        if zeros {
            place.fill(0);
            return true;
        }
        match unit.volume.try_read(extent.lba, place) {
            Attempt::Done(Ok(())) => true,
            attempt @ (Attempt::Done(Err(_)) | Attempt::WouldSleep) => {
                refused = Some(attempt);
                false
            }
        }
    };
    let transmit = &mut channel.transmit;
    let filled = if ANSWERS {
        machine.read_inline(slot, wire_length, transmit, fill)
    } else {
        fill_inline(machine, slot, wire_length, transmit, fill)
    };
    if filled == Some(true) {
        core.counters.attempt_done(unit.attempt_cost, length);
        return InlineRead::Inline;
    }
    match refused {
        Some(Attempt::Done(Err(error))) => InlineRead::Failed(error),
        Some(Attempt::WouldSleep) => {
            core.counters.attempt_declined(unit.attempt_cost);
            InlineRead::WouldSleep
        }
        Some(Attempt::Done(Ok(()))) | None => InlineRead::NeedsBuffer,
    }
}

/// Fills the place behind the header of an answer that is to follow.
fn fill_inline(
    machine: &mut impl InlineReads,
    slot: u32,
    length: u32,
    transmit: &mut Transmit,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<bool> {
    let place = machine.begin_inline_read(slot, length, transmit)?;
    let filled = fill(place);
    if !filled {
        machine.rollback_inline_read(slot, transmit);
    }
    Some(filled)
}
