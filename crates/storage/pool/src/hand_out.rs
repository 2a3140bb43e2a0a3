//! Segments that are written again before the next checkpoint: a record hands them out.
//!
//! The newest checkpoint may still name what lay there. That does no harm: what replaced it is in records behind the
//! checkpoint, which are on the medium before, and are put into the maps again after a crash. But those records
//! themselves have to stay, so only segments whose records are all in the checkpoint are handed out.
//!
//! ```text
//! dead ──► a sync: what they died of is on the medium ──► the record is on the medium ──► ready
//! ```

use std::sync::Arc;

use longshore_volume::Io;

use crate::format::long;
use crate::format::op::{HANDED_OUT_MAX, Op};
use crate::format::record::LayerId;
use crate::format::superblock::HAND_OUTS;
use crate::log::{Failure, LaneName, Piece, Target, settle_all};
use crate::pool::Pool;
use crate::segments::Use;

impl Pool {
    /// Hands out segments that the newest checkpoint does not need, unless that would bring less than half of what
    /// another checkpoint would. Returns how many.
    ///
    /// # Errors
    /// No record of it was written.
    pub(crate) async fn hand_out(self: &Arc<Self>, io: &Io) -> Result<usize, Failure> {
        // A checkpoint hands out segments, too.
        let _held = self.checkpoints.lock().await;
        let checkpoint = self.newest_record();
        let (found, is_durable) = {
            let inner = self.lock();
            let segments = &inner.state.segments;
            let all = segments.reusable().count();
            let found = segments.reusable_behind(checkpoint);
            let found: Vec<u32> = found.take(HANDED_OUT_MAX).collect();
            let is_known = inner.features & HAND_OUTS != 0;
            // What merges of layers did, and what counts as lost, is in no record.
            let is_told = inner.state.catalog.moves == inner.moves_before;
            if !is_known || !is_told || found.is_empty() || found.len() * 2 < all {
                return Ok(0);
            }
            (found, inner.durable >= inner.state.applied)
        };
        #[cfg(test)]
        let is_durable =
            is_durable || crate::testing::has_planted(crate::testing::Planted::HandsOutEarly);
        if !is_durable {
            self.sync_all(io).await?;
        }
        let list = {
            let mut inner = self.lock();
            let segments = &inner.state.segments;
            let still: Vec<u32> = segments.reusable_behind(checkpoint).collect();
            let found = found.into_iter().filter(|it| still.contains(it));
            let generations = inner.next_generation..;
            let list: Vec<(u32, u64)> = found.zip(generations).collect();
            inner.next_generation += long(list.len());
            list
        };
        if list.is_empty() {
            return Ok(0);
        }
        let op = Op::HandOut {
            segments: list.clone(),
        };
        // Written twice: one damaged record does not hide what these segments hold later.
        for _ in 0..2 {
            let pieces = vec![Piece::change(op.clone())];
            // The moved lane fails rather than wait for space, so the cleaner cannot block itself.
            let target = Target::Layer(LayerId(0));
            let put = self.put(io, LaneName::Moved, target, pieces, true, false);
            settle_all(put.await?).await?;
        }
        let mut inner = self.lock();
        let segments = &mut inner.state.segments;
        let mut count = 0;
        for (segment, generation) in list {
            // Meanwhile nothing may be written to its drive any more.
            if segments.is_closed() && segments.is_leaving(segment) {
                continue;
            }
            let found = segments.get_mut(segment);
            if found.used == Use::Sealed {
                found.used = Use::Ready;
                found.generation = generation;
                segments.ready.push_back(segment);
                count += 1;
            }
        }
        #[cfg(test)]
        crate::testing::note_hand_out(count);
        Ok(count)
    }
}
