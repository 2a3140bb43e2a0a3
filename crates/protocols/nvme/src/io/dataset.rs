//! Dataset Management with the Deallocate attribute (NVM command set 1.0 §3.2.3).
//!
//! ```text
//!  a range, 16 bytes:  0 context attributes (4)   4 length in blocks, counted from 1 (4)   8 SLBA (8)
//! ```
//!
//! The command is advice: a volume that cannot deallocate does nothing. All ranges are checked before
//! the first is carried out.

use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::{MediaError, Operation};
use longshore_wire::field::{le32, le64};

use crate::io::limits::{DATASET_RANGE_BYTES, DEALLOCATE_BLOCKS};
use crate::io::status::media_failure;
use crate::io::step::{CommandEvent, IoOutcome, Procedure, Step, StepContext};
use crate::status::Status;

const RANGE_LENGTH: usize = 16;
const _: () = assert!(RANGE_LENGTH as u64 == DATASET_RANGE_BYTES as u64);

/// (Deallocate a piece of a range)…
#[derive(Debug)]
pub(crate) struct Deallocate {
    /// Bytes of all ranges.
    length: usize,
    /// The range at hand.
    range: usize,
    /// Blocks of it behind us.
    done: u64,
}

impl Deallocate {
    /// `length` bytes of ranges.
    pub(crate) fn new(length: usize) -> Self {
        Self {
            length,
            range: 0,
            done: 0,
        }
    }

    /// The next piece: at most up to the next multiple of [`DEALLOCATE_BLOCKS`].
    fn next_piece(&mut self, list: &[u8]) -> Option<Extent> {
        for extent in ranges(list).skip(self.range) {
            let left = extent.blocks.0 - self.done;
            if left > 0 {
                let lba = extent.lba.0 + self.done;
                let blocks = left.min(DEALLOCATE_BLOCKS - lba % DEALLOCATE_BLOCKS);
                self.done += blocks;
                return Some(Extent {
                    lba: Lba(lba),
                    blocks: BlockCount(blocks),
                });
            }
            self.range += 1;
            self.done = 0;
        }
        None
    }
}

fn ranges(list: &[u8]) -> impl Iterator<Item = Extent> {
    let (ranges, _) = list.as_chunks::<RANGE_LENGTH>();
    ranges.iter().map(|range| Extent {
        lba: Lba(le64(range, 8)),
        blocks: BlockCount(u64::from(le32(range, 4))),
    })
}

/// A range without blocks names none, wherever it begins.
fn is_in_range(extent: Extent, block_count: u64) -> bool {
    extent.blocks.0 == 0 || extent.fits(block_count)
}

impl Procedure for Deallocate {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let list = &context.buffers.data_out[..self.length];
        match event {
            CommandEvent::Start => {
                let block_count = context.block_count;
                if !ranges(list).all(|extent| is_in_range(extent, block_count)) {
                    return Step::Complete(Status::LBA_OUT_OF_RANGE.do_not_retry().into());
                }
            }
            CommandEvent::Media(Err(MediaError::Unsupported)) => {
                return Step::Complete(IoOutcome::SUCCESS);
            }
            CommandEvent::Media(Err(error)) => {
                return Step::Complete(media_failure(error, true).into());
            }
            CommandEvent::Media(Ok(_))
            | CommandEvent::Locked
            | CommandEvent::Persisted(_)
            | CommandEvent::TasksAborted => {}
        }
        match self.next_piece(list) {
            Some(extent) => context.media(Operation::Unmap { extent }, DataLocation::None),
            None => Step::Complete(IoOutcome::SUCCESS),
        }
    }

    fn handles_failure(&self) -> bool {
        true
    }
}
