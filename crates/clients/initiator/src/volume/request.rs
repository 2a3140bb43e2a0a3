//! One operation on its way: the rest of it, its memory, and its completer.

use std::sync::Arc;

use longshore_block::extent::{BlockCount, Extent, Lba};

use super::completer::Completer;
use crate::error::Failure;
use crate::info::VolumeInfo;
use crate::operation::{Completion, Data, Operation, Reply};

/// What a peer takes in one command, in blocks; `u64::MAX` where it names no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferLimits {
    pub(super) block_size: u32,
    transfer: u64,
    unmap: u64,
    zeroes: u64,
    granularity: u64,
}

impl From<&VolumeInfo> for TransferLimits {
    fn from(info: &VolumeInfo) -> Self {
        // A limit of 0 would let nothing through; peers that report it mean that they have none to name.
        let limit = |blocks: Option<u64>| blocks.filter(|blocks| *blocks > 0).unwrap_or(u64::MAX);
        Self {
            block_size: info.block_size,
            transfer: limit(info.max_transfer_blocks.map(u64::from)),
            unmap: limit(info.max_unmap_blocks),
            zeroes: limit(info.max_write_zeroes_blocks),
            granularity: info.unmap_granularity_blocks.map_or(1, u64::from).max(1),
        }
    }
}

/// One submitted operation. It moves from place to place as a value, and whoever has it last must
/// [`finish`](Self::finish) it.
pub(super) struct Request {
    operation: Operation,
    /// While a queue has it: [`Data::None`].
    data: Data,
    /// Where the caller's data begins in its memory; a piece begins further on.
    start: usize,
    /// Blocks of the pieces that are done.
    done_blocks: u64,
    /// Blocks of the piece that is under way.
    piece_blocks: u64,
    completer: Option<Arc<dyn Completer>>,
    tag: u64,
    /// To be received by whoever polls.
    pub(super) polled: bool,
    /// When the current piece went into a queue, in milliseconds of the volume's clock.
    pub(super) sent_ms: u64,
    /// When the peer first asked to repeat the current piece.
    pub(super) retried_since_ms: Option<u64>,
    /// Repetitions of the current piece in a row that were not delayed.
    pub(super) hasty_retries: u8,
    /// Connections lost with the current piece on them.
    pub(super) resubmissions: u16,
    /// Paths that cannot do it, one bit each.
    pub(super) avoid: u64,
}

impl Request {
    pub(super) fn new(
        operation: Operation,
        data: Data,
        completer: Arc<dyn Completer>,
        tag: u64,
        polled: bool,
    ) -> Self {
        let start = match &data {
            Data::Buffer { start, .. } | Data::Shared { start, .. } => *start,
            Data::None | Data::Discard => 0,
        };
        Self {
            operation,
            data,
            start,
            done_blocks: 0,
            piece_blocks: 0,
            completer: Some(completer),
            tag,
            polled,
            sent_ms: 0,
            retried_since_ms: None,
            hasty_retries: 0,
            resubmissions: 0,
            avoid: 0,
        }
    }

    pub(super) fn operation(&self) -> &Operation {
        &self.operation
    }

    /// How it ends without being submitted, if it does: memory of the wrong size or kind, a range that no
    /// volume has, or nothing to do.
    pub(super) fn result_at_once(&self, block_size: u32) -> Option<Result<Reply, Failure>> {
        if let Some(extent) = self.operation.extent() {
            if extent.lba.0.checked_add(extent.blocks.0).is_none() {
                return Some(Err(Failure::OutOfRange));
            }
            // Zero-based counts of commands cannot even say so.
            if extent.blocks.0 == 0 {
                return Some(match self.operation {
                    Operation::ExtentStatus { .. } => Err(Failure::OutOfRange),
                    Operation::Read { .. }
                    | Operation::Write { .. }
                    | Operation::CompareAndWrite { .. }
                    | Operation::WriteZeroes { .. }
                    | Operation::Unmap { .. }
                    | Operation::Flush
                    | Operation::Anchor { .. }
                    | Operation::Prefetch { .. } => Ok(Reply::Done),
                });
            }
        }
        let needed = self.operation.data_length(block_size);
        let given = match (&self.operation, &self.data) {
            (Operation::Read { .. }, Data::Discard) => return None,
            (Operation::Read { .. }, Data::Shared { .. }) => 0,
            (_, data) => u64::try_from(data.bytes().len()).unwrap_or(u64::MAX),
        };
        (given < needed).then_some(Err(Failure::WrongDataLength { needed, given }))
    }

    /// What is to be done next: all that is left, or as much of it as the peer takes.
    pub(super) fn piece(&self, limits: &TransferLimits) -> Operation {
        let left = |extent: Extent, most: u64| Extent {
            lba: Lba(extent.lba.0 + self.done_blocks),
            blocks: BlockCount((extent.blocks.0 - self.done_blocks).min(most)),
        };
        match self.operation {
            Operation::Read { extent } => Operation::Read {
                extent: left(extent, limits.transfer),
            },
            Operation::Write { extent, fua } => Operation::Write {
                extent: left(extent, limits.transfer),
                fua,
            },
            Operation::WriteZeroes {
                extent,
                may_unmap,
                fua,
            } => Operation::WriteZeroes {
                extent: left(extent, limits.zeroes),
                may_unmap,
                fua,
            },
            Operation::Unmap { extent } => Operation::Unmap {
                extent: whole_units(left(extent, limits.unmap), extent, limits.granularity),
            },
            // One step, or none. An answer about the beginning of a range is an answer about the range.
            whole @ (Operation::CompareAndWrite { .. }
            | Operation::Flush
            | Operation::Anchor { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. }) => whole,
        }
    }

    /// The next piece, and its memory for a queue, set to where the piece begins.
    pub(super) fn begin_piece(&mut self, limits: &TransferLimits) -> (Operation, Data) {
        let piece = self.piece(limits);
        self.piece_blocks = piece.extent().map_or(0, |extent| extent.blocks.0);
        let done_bytes = match self.operation {
            Operation::Read { .. } | Operation::Write { .. } => self
                .done_blocks
                .saturating_mul(u64::from(limits.block_size)),
            Operation::CompareAndWrite { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Unmap { .. }
            | Operation::Flush
            | Operation::Anchor { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => 0,
        };
        let place = self
            .start
            .saturating_add(usize::try_from(done_bytes).unwrap_or(usize::MAX));
        let mut data = std::mem::replace(&mut self.data, Data::None);
        set_start(&mut data, place);
        (piece, data)
    }

    /// Takes back the memory that [`Self::begin_piece`] gave.
    pub(super) fn return_data(&mut self, mut data: Data) {
        set_start(&mut data, self.start);
        self.data = data;
    }

    /// The current piece is done. Whether there is another.
    pub(super) fn advance(&mut self) -> bool {
        let Some(whole) = self.operation.extent() else {
            return false;
        };
        self.done_blocks += self.piece_blocks;
        self.retried_since_ms = None;
        self.hasty_retries = 0;
        self.resubmissions = 0;
        self.avoid = 0;
        self.done_blocks < whole.blocks.0
    }

    /// Whether it goes in more than one piece.
    pub(super) fn is_split(&self, limits: &TransferLimits) -> bool {
        self.done_blocks == 0 && self.piece(limits) != self.operation
    }

    pub(super) fn finish(mut self, result: Result<Reply, Failure>) {
        self.tell(result);
    }

    fn tell(&mut self, result: Result<Reply, Failure>) {
        if let Some(completer) = self.completer.take() {
            completer.complete(Completion {
                tag: self.tag,
                result,
                data: std::mem::replace(&mut self.data, Data::None),
            });
        }
    }
}

impl Drop for Request {
    /// Nothing that was submitted may stay without an answer. Happens when a driver thread panics.
    fn drop(&mut self) {
        self.tell(Err(Failure::Closed));
    }
}

fn set_start(data: &mut Data, place: usize) {
    if let Data::Buffer { start, .. } | Data::Shared { start, .. } = data {
        *start = place;
    }
}

/// Ends a piece at a boundary of units, so that no unit is cut in two and so kept; unless it is the last or
/// smaller than a unit.
fn whole_units(piece: Extent, whole: Extent, unit: u64) -> Extent {
    let end = piece.lba.0 + piece.blocks.0;
    if end == whole.lba.0 + whole.blocks.0 {
        return piece;
    }
    let cut = end - end % unit;
    if cut <= piece.lba.0 {
        return piece;
    }
    Extent {
        lba: piece.lba,
        blocks: BlockCount(cut - piece.lba.0),
    }
}

/// An operation that the peer wants to have repeated later. The earliest is the greatest.
pub(super) struct Delayed {
    pub(super) due_ms: u64,
    pub(super) request: Request,
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.due_ms == other.due_ms
    }
}
impl Eq for Delayed {}
impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.due_ms.cmp(&self.due_ms)
    }
}
