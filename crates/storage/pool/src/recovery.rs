//! What was in the log when the pool was last open.
//!
//! The newest checkpoint is loaded. Then the segments that it handed out are read, and the records in them replayed in
//! the order of their numbers. A torn record does not end that: later ones may have been flushed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use longshore_volume::Io;

use crate::cache::Missing;
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::FormatError;
use crate::format::long;
use crate::format::op::Op;
use crate::format::record::{Part, RecordHeader};
use crate::format::superblock::{HAND_OUTS, Superblock};
use crate::inspect::{Inspected, Inspection, has_ops};
use crate::leaves::LeafReader;
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
    let inspection = Inspection { io, label, drives };
    let mut log = Log {
        label,
        search,
        inspection,
        applied: loaded.state.applied,
        found: Found::default(),
        hand_out: std::mem::take(&mut loaded.hand_out),
        next_generation: loaded.next_generation,
        known: HashSet::new(),
        suspect: None,
    };
    log.read().await?;
    let Log {
        found,
        hand_out,
        next_generation,
        suspect,
        ..
    } = log;
    let used = found.used.clone();
    let replay = Replay {
        inspection,
        leaves: LeafReader { io, label, drives },
        found,
    };
    let (replayed, torn, last) = replay.run(&mut loaded.state).await?;
    if let Some(number) = suspect.filter(|_| label.incompatible & HAND_OUTS != 0) {
        // A record that was not found may have handed out segments. Nothing lived there, and by those that were found
        // nothing does.
        let search = Search {
            io,
            label,
            drives,
            segments: &loaded.state.segments,
        };
        let most = u64::from(loaded.state.segments.count()) * u64::from(2 * HAND_OUTS_MAX);
        let generations = next_generation..next_generation.saturating_add(most);
        if search.is_any_begun(generations).await {
            return Err(PoolError::RecordLost {
                pool: label.name.clone(),
                number,
            });
        }
    }
    for (segment, generation) in &hand_out {
        let is_used = used.contains(segment);
        let segment = loaded.state.segments.get_mut(*segment);
        if matches!(segment.used, Use::Map | Use::Leaves) {
            continue;
        }
        segment.generation = *generation;
        segment.last = last;
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
        next_generation,
        replayed,
        torn,
        used,
    })
}

/// The log behind a checkpoint, while it is read.
struct Log<'a> {
    label: &'a Superblock,
    search: Search<'a>,
    inspection: Inspection<'a>,
    /// The last record in the checkpoint.
    applied: u64,
    found: Found,
    /// Segments that may have been written, in the order of their use, with their generations.
    hand_out: Vec<(u32, u64)>,
    /// Generations from this one on were not handed out, as far as is known.
    next_generation: u64,
    /// Those that records handed out.
    known: HashSet<(u32, u64)>,
    /// A record that may have handed out segments, and cannot be read.
    suspect: Option<u64>,
}

impl Log<'_> {
    /// Finds the records, in segments that the checkpoint handed out, and in those that records did.
    async fn read(&mut self) -> Result<(), PoolError> {
        let mut looked = Vec::new();
        let mut read = BTreeSet::new();
        loop {
            self.search
                .records(&self.hand_out, &mut looked, &mut self.found)
                .await;
            let before = self.hand_out.len();
            self.take_hand_outs(&mut read).await?;
            #[cfg(test)]
            if crate::testing::has_planted(crate::testing::Planted::ForgetsHandOuts) {
                self.hand_out.truncate(before);
            }
            if self.hand_out.len() == before {
                break;
            }
        }
        self.check_numbers()
    }

    /// Takes note of the segments that records handed out. `read`: those that were looked at before.
    async fn take_hand_outs(&mut self, read: &mut BTreeSet<u64>) -> Result<(), PoolError> {
        let records = &self.found.by_number;
        self.suspect = None;
        let mut handed_out = Vec::new();
        let mut before = self.applied;
        for number in records.range(self.applied + 1..).map(|(number, _)| *number) {
            // Of several that are missing, the last one's parts are known.
            if number - before > 2 {
                self.suspect = self.suspect.or(Some(before + 1));
            }
            for number in (before + 1).max(number - 1)..=number {
                if read.contains(&number) {
                    continue;
                }
                let Some((parts, payload)) = parts_of(records, self.search.segments, number) else {
                    self.suspect = self.suspect.or(Some(number));
                    continue;
                };
                if has_ops(&parts) {
                    let inspected = self.inspection.inspect(&parts, payload).await?;
                    if inspected.lacks_ops(&parts) {
                        self.suspect = self.suspect.or(Some(number));
                        continue;
                    }
                    handed_out.extend(inspected.ops.into_iter().filter_map(|op| match op {
                        Op::HandOut { segments } => Some(segments),
                        _ => None,
                    }));
                }
                read.insert(number);
            }
            before = number;
        }
        handed_out
            .iter()
            .try_for_each(|segments| self.take(segments))
    }

    fn take(&mut self, segments: &[(u32, u64)]) -> Result<(), PoolError> {
        let most = self.search.segments.count().saturating_mul(HAND_OUTS_MAX);
        let is_odd = |(number, generation): &(u32, u64)| {
            !self.search.segments.exists(*number) || *generation >= GENERATIONS_END
        };
        if segments.iter().any(is_odd) || long(self.hand_out.len()) > u64::from(most) {
            let source = FormatError::Field("a segment that was handed out");
            return Err(damaged(self.label, "a change of the catalogue", source));
        }
        for (number, generation) in segments {
            // Each list is there twice.
            if self.known.insert((*number, *generation)) {
                self.hand_out.push((*number, *generation));
            }
            self.next_generation = self.next_generation.max(generation + 1);
        }
        Ok(())
    }

    /// No more records than there is room for.
    fn check_numbers(&self) -> Result<(), PoolError> {
        let room = long(self.hand_out.len()) * self.search.segments.bytes() / 4096;
        let last = self.found.by_number.last_key_value();
        if last.is_some_and(|(last, _)| *last > self.applied.saturating_add(room)) {
            let source = FormatError::Field("its number");
            return Err(damaged(self.label, "a record", source));
        }
        Ok(())
    }
}

/// How often a segment may be handed out between two checkpoints, on average.
const HAND_OUTS_MAX: u32 = 4;

/// Generations from this one on are none.
const GENERATIONS_END: u64 = 1 << 62;

/// What a record held, by its own header or by that of the next, and where its payload lies.
fn parts_of(
    records: &BTreeMap<u64, (RecordHeader, Place)>,
    segments: &Segments,
    number: u64,
) -> Option<(Arc<[Part]>, Place)> {
    if let Some((header, payload)) = records.get(&number) {
        return Some((header.parts.clone(), *payload));
    }
    let (next, _) = records.get(&(number + 1))?;
    lies_in_a_segment(segments, next).then(|| (next.echo.clone(), next.echo_place))
}

/// Records whose leaves are read ahead.
const AHEAD: usize = 64;
/// Leaves that are read ahead at most: fewer than stay in memory in any case.
const AHEAD_LEAVES: usize = 128;

/// Records whose payloads are read, or wait for that, while others are replayed. Threads that read are fewer, and find the
/// next ones without waiting for this one.
const READS_MAX: usize = 16;

/// A record to be replayed.
struct Step {
    number: u64,
    parts: Arc<[Part]>,
    payload: Place,
    /// It was on the medium when another record was written.
    is_durable: bool,
}

struct Replay<'a> {
    inspection: Inspection<'a>,
    leaves: LeafReader<'a>,
    found: Found,
}

impl Replay<'_> {
    /// Records replayed, those of them that were torn, and the number of the last.
    async fn run(self, state: &mut State) -> Result<(u64, u64, u64), PoolError> {
        let last = self.found.by_number.last_key_value();
        let Some(last) = last.map(|(last, _)| *last) else {
            return Ok((0, 0, state.applied));
        };
        let (steps, mut torn) = self.steps(&state.segments, state.applied + 1..=last)?;
        let reads = steps.iter().map(|step| self.inspect(step));
        let mut inspected = stream::iter(reads).buffered(READS_MAX);
        for (at, step) in steps.iter().enumerate() {
            if at.is_multiple_of(AHEAD) {
                let end = steps.len().min(at + AHEAD);
                self.read_ahead(state, &steps[at..end]).await;
            }
            let inspected = inspected.next().await.expect("one for each")?;
            let (kept, ops) = match inspected {
                // What is damaged there reads as a medium error.
                None => (step.parts.to_vec(), Vec::new()),
                Some(inspected) if step.is_durable && inspected.lacks_ops(&step.parts) => {
                    return Err(self.lost(step.number));
                }
                Some(inspected) => inspected.counting(&step.parts, step.is_durable),
            };
            torn += u64::from(kept.len() < step.parts.len());
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
                state.apply(part, step.payload, op);
            }
        }
        Ok((long(steps.len()), torn, last))
    }

    /// The records of these numbers, and how many of them nothing tells of.
    fn steps(
        &self,
        segments: &Segments,
        numbers: RangeInclusive<u64>,
    ) -> Result<(Vec<Step>, u64), PoolError> {
        let records = &self.found.by_number;
        let durable = records.values().map(|(header, _)| header.durable).max();
        let durable = durable.unwrap_or(0);
        let (mut steps, mut torn) = (Vec::new(), 0);
        for number in numbers {
            let (parts, payload) = match parts_of(records, segments, number) {
                Some(found) => found,
                None if records.contains_key(&(number + 1)) => {
                    let source = FormatError::Field("the place of a record");
                    let what = format!("record {number}");
                    return Err(damaged(self.inspection.label, what, source));
                }
                #[cfg(test)]
                None if crate::testing::has_planted(crate::testing::Planted::StopsAtGap) => {
                    return Ok((steps, torn));
                }
                None if number > durable => {
                    torn += 1;
                    continue;
                }
                None => return Err(self.lost(number)),
            };
            steps.push(Step {
                number,
                parts,
                payload,
                is_durable: number <= durable,
            });
        }
        Ok((steps, torn))
    }

    fn lost(&self, number: u64) -> PoolError {
        PoolError::RecordLost {
            pool: self.inspection.label.name.clone(),
            number,
        }
    }

    /// Looks at what lies on the drives, where all parts of a record do not count in any case.
    async fn inspect(&self, step: &Step) -> Result<Option<Inspected>, PoolError> {
        if step.is_durable && !has_ops(&step.parts) {
            return Ok(None);
        }
        let inspected = self.inspection.inspect(&step.parts, step.payload).await;
        inspected.map(Some)
    }

    /// Loads what the next records need, many leaves at once.
    async fn read_ahead(&self, state: &mut State, steps: &[Step]) {
        let missing = steps
            .iter()
            .flat_map(|step| state.missing(&step.parts, &[]));
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
