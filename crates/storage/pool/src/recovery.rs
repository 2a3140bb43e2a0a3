//! What was in the log when the pool was last open.
//!
//! The newest checkpoint is loaded. Then the segments that it handed out are read, and the records in them replayed in
//! the order of their numbers. A torn record does not end that: later ones may have been flushed.

use std::sync::Arc;

use longshore_volume::Io;

use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::FormatError;
use crate::format::long;
use crate::format::op::Op;
use crate::format::record::{Part, PartKind, RecordHeader};
use crate::format::superblock::Superblock;
use crate::load::{Loader, damaged};
use crate::place::Place;
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
        io,
        label,
        drives,
        found,
    };
    let (replayed, torn, last) = replay.run(&mut loaded.state).await?;
    for (segment, generation) in &loaded.hand_out {
        let is_used = used.contains(segment);
        let segment = loaded.state.segments.get_mut(*segment);
        if segment.used == Use::Map {
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

struct Replay<'a> {
    io: &'a Io,
    label: &'a Superblock,
    drives: &'a [Option<Arc<Drive>>],
    found: Found,
}

impl Replay<'_> {
    /// Records replayed, those of them that were torn, and the number of the last.
    async fn run(self, state: &mut State) -> Result<(u64, u64, u64), PoolError> {
        let records = &self.found.by_number;
        let Some((last, _)) = records.last_key_value() else {
            return Ok((0, 0, state.applied));
        };
        let durable = records.values().map(|(header, _)| header.durable).max();
        let durable = durable.unwrap_or(0);
        let (mut replayed, mut torn) = (0, 0);
        for number in state.applied + 1..=*last {
            let (parts, payload) = match records.get(&number) {
                Some((header, payload)) => (header.parts.clone(), *payload),
                // The record after it repeats what it held.
                None => match records.get(&(number + 1)) {
                    Some((next, _)) if lies_in_a_segment(&state.segments, next) => {
                        (next.echo.clone(), next.echo_place)
                    }
                    Some(_) => {
                        let source = FormatError::Field("the place of a record");
                        return Err(damaged(self.label, format!("record {number}"), source));
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
                            pool: self.label.name.clone(),
                            number,
                        });
                    }
                },
            };
            let (kept, ops) = self
                .check(number, &parts, payload, number <= durable)
                .await?;
            torn += u64::from(kept.len() < parts.len());
            state.apply(&kept, payload, ops);
            replayed += 1;
        }
        Ok((replayed, torn, *last))
    }

    /// The parts of a record that count, and the changes among them. Of one that was on the medium all do: what is
    /// damaged there reads as a medium error. Of others, those that came whole.
    async fn check(
        &self,
        number: u64,
        parts: &Arc<[Part]>,
        payload: Place,
        is_durable: bool,
    ) -> Result<(Vec<Part>, Vec<Op>), PoolError> {
        let has_ops = parts
            .iter()
            .any(|part| matches!(part.kind, PartKind::Op { .. }));
        if is_durable && !has_ops {
            return Ok((parts.to_vec(), Vec::new()));
        }
        let length = parts.iter().map(|part| part.offset + part.length).max();
        let length = usize::try_from(length.unwrap_or(0)).expect("32 bits fit");
        let drive = self.drives[usize::from(payload.drive())].as_ref();
        let drive = drive.expect("records lie on drives that are there");
        // Of a mirror, a part counts that is whole on either side.
        let mut sides: Vec<Vec<u8>> = Vec::new();
        for (_, side) in drive.current() {
            let whole = length.next_multiple_of(drive.align);
            let read = match length {
                0 => Ok(Vec::new()),
                _ => side
                    .read_new(self.io, payload.offset(), whole)
                    .await
                    .map(|data| data.to_vec()),
            };
            sides.push(read.unwrap_or_default());
        }
        let none = Vec::new();
        let mut kept = Vec::new();
        let mut ops = Vec::new();
        for part in &**parts {
            let is_op = matches!(part.kind, PartKind::Op { .. });
            let intact = sides.iter().find(|data| part.is_intact(data));
            let (is_intact, data) = (intact.is_some(), intact.unwrap_or(&none));
            if is_op && is_intact {
                let range =
                    start(part)..start(part) + usize::try_from(part.length).expect("32 bits fit");
                let op = Op::decode(&data[range]);
                ops.push(
                    op.map_err(|error| damaged(self.label, "a change of the catalogue", error))?,
                );
            } else if is_op && is_durable {
                return Err(PoolError::RecordLost {
                    pool: self.label.name.clone(),
                    number,
                });
            }
            if is_intact || (is_durable && !is_op) {
                kept.push(part.clone());
            }
        }
        Ok((kept, ops))
    }
}

/// Whether the record before this one lies where one can.
fn lies_in_a_segment(segments: &Segments, header: &RecordHeader) -> bool {
    let ends = header.echo.iter().map(|part| part.offset + part.length);
    let length = u64::from(ends.max().unwrap_or(0));
    segments.of(header.echo_place).is_some_and(|segment| {
        let end = segments.place(segment).offset() + segments.bytes();
        header.echo_place.offset() + length <= end
    })
}

fn start(part: &Part) -> usize {
    usize::try_from(part.offset).expect("32 bits fit")
}
