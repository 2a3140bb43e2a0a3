//! What was in the log when the pool was last open.
//!
//! The newest checkpoint is loaded. Then the segments that it handed out are read, and the records in them replayed in
//! the order of their numbers. A torn record does not end that: later ones may have been flushed.

use std::sync::Arc;

use longshore_volume::Io;

use crate::cache::Missing;
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::FormatError;
use crate::format::long;
use crate::format::op::Op;
use crate::format::record::RecordHeader;
use crate::format::superblock::Superblock;
use crate::inspect::{Inspection, has_ops};
use crate::leaves::LeafReader;
use crate::load::{Loader, damaged};
use crate::pool::Newest;
use crate::search::{Found, Search};
use crate::segments::{Segments, Use};
use crate::state::State;

/// A pool as it was.
#[derive(Debug)]
pub struct Recovered {
    pub state: State,
    pub newest: Newest,
    /// Number of the next record.
    pub next: u64,
    pub next_generation: u64,
    /// Records that were replayed.
    pub replayed: u64,
    /// Records, never flushed, of which a part is missing.
    pub torn: u64,
    /// Segments that have records since the checkpoint.
    pub used: Vec<u32>,
}

/// Reads a pool from its drives. Writes nothing.
pub async fn recover(
    io: &Io,
    label: &Superblock,
    drives: &[Option<Arc<Drive>>],
) -> Result<Recovered, PoolError> {
    let mut loaded = Loader::new(io, label, drives).load().await?;
    let search = Search {
        io,
        label,
        drives,
        segments: &loaded.state.segments,
    };
    let found = search.records(&loaded.hand_out).await?;
    let used = found.used.clone();
    // No more records than there is room for.
    let room = long(loaded.hand_out.len()) * loaded.state.segments.bytes() / 4096;
    let last = found
        .by_number
        .last_key_value()
        .map_or(0, |(number, _)| *number);
    if last > loaded.state.applied.saturating_add(room) {
        let source = FormatError::Field("its number");
        return Err(damaged(label, "a record", source));
    }
    let replay = Replay {
        inspection: Inspection { io, label, drives },
        leaves: LeafReader { io, label, drives },
        found,
    };
    let (replayed, torn, last) = replay.run(&mut loaded.state).await?;
    for (segment, generation) in &loaded.hand_out {
        let is_used = used.contains(segment);
        let segment = loaded.state.segments.get_mut(*segment);
        if matches!(segment.used, Use::Map | Use::Leaves) {
            continue;
        }
        segment.generation = *generation;
        segment.used = if is_used || segment.live > 0 {
            Use::Sealed
        } else {
            Use::Free
        };
    }
    // Numbers of records that were torn are not used again.
    let next = last.max(loaded.state.applied) + 1;
    loaded.state.applied = next - 1;
    Ok(Recovered {
        state: loaded.state,
        newest: loaded.newest,
        next,
        next_generation: loaded.next_generation,
        replayed,
        torn,
        used,
    })
}

/// Records whose leaves are read ahead.
const AHEAD: u64 = 64;
/// Leaves that are read ahead at most: fewer than stay in memory in any case.
const AHEAD_LEAVES: usize = 128;

struct Replay<'a> {
    inspection: Inspection<'a>,
    leaves: LeafReader<'a>,
    found: Found,
}

impl Replay<'_> {
    /// Records replayed, those of them that were torn, and the number of the last.
    async fn run(self, state: &mut State) -> Result<(u64, u64, u64), PoolError> {
        let records = &self.found.by_number;
        let label = self.inspection.label;
        let Some((last, _)) = records.last_key_value() else {
            return Ok((0, 0, state.applied));
        };
        let durable = records.values().map(|(header, _)| header.durable).max();
        let durable = durable.unwrap_or(0);
        let (mut replayed, mut torn) = (0, 0);
        let begin = state.applied + 1;
        for number in begin..=*last {
            if (number - begin).is_multiple_of(AHEAD) {
                self.read_ahead(state, number).await;
            }
            let (parts, payload) = match records.get(&number) {
                Some((header, payload)) => (header.parts.clone(), *payload),
                // The record after it repeats what it held.
                None => match records.get(&(number + 1)) {
                    Some((next, _)) if lies_in_a_segment(&state.segments, next) => {
                        (next.echo.clone(), next.echo_place)
                    }
                    Some(_) => {
                        let source = FormatError::Field("the place of a record");
                        return Err(damaged(label, format!("record {number}"), source));
                    }
                    #[cfg(test)]
                    None if crate::testing::has_planted(crate::testing::Planted::StopsAtGap) => {
                        return Ok((replayed, torn, *last));
                    }
                    None if number > durable => {
                        torn += 1;
                        continue;
                    }
                    None => {
                        return Err(PoolError::RecordLost {
                            pool: label.name.clone(),
                            number,
                        });
                    }
                },
            };
            let (kept, ops) = if number <= durable && !has_ops(&parts) {
                // What is damaged there reads as a medium error.
                (parts.to_vec(), Vec::new())
            } else {
                let inspected = self.inspection.inspect(&parts, payload).await?;
                if number <= durable && inspected.lacks_ops(&parts) {
                    return Err(PoolError::RecordLost {
                        pool: label.name.clone(),
                        number,
                    });
                }
                inspected.counting(&parts, number <= durable)
            };
            torn += u64::from(kept.len() < parts.len());
            let mut ops = ops.into_iter();
            // One by one: a change may take away what the next part needs.
            for part in &kept {
                let part = std::slice::from_ref(part);
                let op: Vec<Op> = match has_ops(part) {
                    true => ops.next().into_iter().collect(),
                    false => Vec::new(),
                };
                loop {
                    let missing = state.missing(part, &op);
                    if missing.is_empty() {
                        break;
                    }
                    self.leaves.load(state, &missing).await?;
                }
                state.apply(part, payload, op);
            }
            replayed += 1;
        }
        Ok((replayed, torn, *last))
    }

    /// Loads what the next records need, many leaves at once.
    async fn read_ahead(&self, state: &mut State, number: u64) {
        let records = self.found.by_number.range(number..number + AHEAD);
        let missing = records.flat_map(|(_, (header, _))| state.missing(&header.parts, &[]));
        let mut missing: Vec<Missing> = missing.collect();
        missing.sort_by_key(|it| (it.layer, it.number));
        missing.dedup();
        missing.truncate(AHEAD_LEAVES);
        self.leaves.read_ahead(state, &missing).await;
    }
}

/// Whether the record before this one lies where one can.
pub fn lies_in_a_segment(segments: &Segments, header: &RecordHeader) -> bool {
    let ends = header.echo.iter().map(|part| part.offset + part.length);
    let length = u64::from(ends.max().unwrap_or(0));
    segments.of(header.echo_place).is_some_and(|segment| {
        let end = segments.place(segment).offset() + segments.bytes();
        header.echo_place.offset() + length <= end
    })
}
