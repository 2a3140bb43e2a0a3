//! What was in the log when the pool was last open.
//!
//! The newest checkpoint is loaded. Then the segments that it handed out are read, and the records in them replayed in
//! the order of their numbers. A torn record does not end that: later ones may have been flushed.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::catalog::{Catalog, Layer};
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::checkpoint::{Item, PartHeader};
use crate::format::op::Op;
use crate::format::record::{HEADER_MAX, Part, PartKind, RecordHeader};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, long, short};
use crate::place::{Content, Place};
use crate::pool::Newest;
use crate::segments::{Segments, Use};
use crate::side::Side;
use crate::state::State;

/// Bytes that are read at once when a segment is searched for records.
const WINDOW: usize = 1 << 20;

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

fn damaged(label: &Superblock, what: impl Into<String>, source: FormatError) -> PoolError {
    PoolError::Damaged {
        pool: label.name.clone(),
        what: what.into(),
        source,
    }
}

/// A checkpoint that was read.
struct Loaded {
    state: State,
    newest: Newest,
    next_generation: u64,
    /// Segments that may have been written since, in the order of their use, with their generations.
    hand_out: Vec<(u32, u64)>,
}

struct Loader<'a> {
    io: &'a Io,
    label: &'a Superblock,
    drives: &'a [Option<Arc<Drive>>],
    loaded: Loaded,
    items: u64,
    has_ended: bool,
}

impl<'a> Loader<'a> {
    fn new(io: &'a Io, label: &'a Superblock, drives: &'a [Option<Arc<Drive>>]) -> Self {
        let segments = Segments::new(label.drives.clone(), label.segment_bytes);
        Self {
            io,
            label,
            drives,
            loaded: Loaded {
                state: State {
                    catalog: Catalog::default(),
                    segments,
                    applied: 0,
                },
                newest: Newest {
                    superblock: label.number,
                    number: label.checkpoint_number,
                    segments: Vec::new(),
                },
                next_generation: 0,
                hand_out: Vec::new(),
            },
            items: 0,
            has_ended: false,
        }
    }

    async fn load(mut self) -> Result<Loaded, PoolError> {
        let mut stream: Vec<u8> = Vec::new();
        let mut next = Some(self.label.checkpoint);
        let mut index = 0;
        while let Some(place) = next {
            let (header, content) = self.part(place, index).await?;
            stream.extend_from_slice(&content);
            let mut rest = &stream[..];
            loop {
                let item = Item::decode(&mut rest);
                let item =
                    item.map_err(|error| damaged(self.label, "an item of the checkpoint", error))?;
                let Some(item) = item else {
                    break;
                };
                self.take(item)?;
            }
            let left = rest.len();
            stream.drain(..stream.len() - left);
            next = header.next;
            index += 1;
        }
        if !self.loaded.state.catalog.is_sound() {
            let source = FormatError::Field("the tree of layers");
            return Err(damaged(self.label, "the checkpoint", source));
        }
        if !self.has_ended || !stream.is_empty() {
            let source = FormatError::Field("its end");
            return Err(damaged(self.label, "the checkpoint", source));
        }
        self.loaded.state.recount();
        Ok(self.loaded)
    }

    async fn part(&mut self, place: Place, index: u32) -> Result<(PartHeader, Vec<u8>), PoolError> {
        let what = || format!("part {index} of the checkpoint");
        let wrong = |field| damaged(self.label, what(), FormatError::Field(field));
        let segment = self.loaded.state.segments.of(place);
        let segment = segment.ok_or_else(|| wrong("its place"))?;
        let drive = self.drives.get(usize::from(place.drive()));
        let drive = drive.and_then(Option::as_ref);
        let drive = drive.ok_or_else(|| wrong("its drive"))?;
        let begin = self.loaded.state.segments.place(segment).offset();
        let left = begin + self.loaded.state.segments.bytes() - place.offset();
        let length = short(left).min(256 << 10);
        let mut found = Err(wrong("its drive"));
        // Of a mirror, the side counts that has it.
        for (_, side) in drive.current() {
            found = match side.read_new(self.io, place.offset(), length).await {
                Err(error) => Err(side.error("read", error)),
                Ok(bytes) => match PartHeader::open(&bytes) {
                    Err(error) => Err(damaged(self.label, what(), error)),
                    Ok((header, content)) => {
                        let fits = header.pool == self.label.pool
                            && header.checkpoint == self.label.checkpoint_number
                            && header.index == index;
                        fits.then(|| (header, content.to_vec()))
                            .ok_or_else(|| wrong("what it belongs to"))
                    }
                },
            };
            if found.is_ok() {
                break;
            }
        }
        let (header, content) = found?;
        self.loaded.state.segments.get_mut(segment).used = Use::Map;
        if !self.loaded.newest.segments.contains(&segment) {
            self.loaded.newest.segments.push(segment);
        }
        Ok((header, content))
    }

    fn take(&mut self, item: Item) -> Result<(), PoolError> {
        let wrong = |field| damaged(self.label, "the checkpoint", FormatError::Field(field));
        let Loaded {
            state,
            hand_out,
            next_generation,
            ..
        } = &mut self.loaded;
        let catalog = &mut state.catalog;
        if self.has_ended {
            return Err(wrong("what follows its end"));
        }
        match item {
            Item::Head {
                record,
                next_generation: generation,
                next_layer,
            } => {
                state.applied = record;
                *next_generation = generation;
                catalog.next_layer = next_layer;
            }
            Item::Volume(volume) => drop(catalog.volumes.insert(volume.name.clone(), volume)),
            Item::Snapshot(snapshot) => {
                let key = (snapshot.volume.clone(), snapshot.shape.name.clone());
                catalog.snapshots.insert(key, snapshot);
            }
            Item::Layer { id, parent } => {
                let layer = Layer {
                    parent,
                    ..Layer::default()
                };
                catalog.layers.insert(id, layer);
            }
            Item::Alias { from, to } => drop(catalog.aliases.insert(from, to)),
            Item::Segment { number, generation } => {
                if !state.segments.exists(number) {
                    return Err(wrong("a segment"));
                }
                let segment = state.segments.get_mut(number);
                segment.used = Use::Sealed;
                segment.generation = generation;
            }
            Item::HandOut { number, generation } => {
                if !state.segments.exists(number) {
                    return Err(wrong("a segment that was handed out"));
                }
                hand_out.push((number, generation));
            }
            Item::Leaf {
                layer,
                number,
                leaf,
            } => {
                let places_fit = leaf.entries().iter().all(|entry| match entry.content() {
                    Content::Data(stored) => state.segments.holds(stored.place, stored.length),
                    Content::Absent | Content::Zero | Content::Lost => true,
                });
                if !places_fit || u64::from(number) > crate::SIZE_MAX >> 21 {
                    return Err(wrong("an entry of a map"));
                }
                let layer = catalog
                    .layers
                    .get_mut(&layer)
                    .ok_or_else(|| wrong("a layer"))?;
                layer.map.insert_leaf(number, leaf);
            }
            Item::Reserve { volume, bytes } => {
                let volume = catalog.volumes.get_mut(&volume);
                volume.ok_or_else(|| wrong("a volume"))?.reserve = bytes;
            }
            Item::End { items } => {
                if items != self.items {
                    return Err(wrong("the number of its items"));
                }
                self.has_ended = true;
            }
        }
        self.items += 1;
        Ok(())
    }
}

/// Records that were found.
struct Found {
    by_number: BTreeMap<u64, (RecordHeader, Place)>,
    /// Segments that have any, or a header.
    used: Vec<u32>,
}

struct Search<'a> {
    io: &'a Io,
    label: &'a Superblock,
    drives: &'a [Option<Arc<Drive>>],
    segments: &'a Segments,
}

impl Search<'_> {
    async fn records(&self, hand_out: &[(u32, u64)]) -> Result<Found, PoolError> {
        let mut found = Found {
            by_number: BTreeMap::new(),
            used: Vec::new(),
        };
        let mut begun = Vec::new();
        for (segment, generation) in hand_out {
            let mut best = Begun::No;
            for (_, side) in self.drive(self.segments.place(*segment)).current() {
                best = best.max(self.begun(side, *segment, *generation).await);
            }
            begun.push(best);
        }
        // Segments are used in their order: those before one that was begun were, whatever their headers say now.
        let last = begun.iter().rposition(|begun| *begun == Begun::Yes);
        for (place, (segment, generation)) in hand_out.iter().enumerate() {
            let is_searched =
                last.is_some_and(|last| place <= last) || begun[place] == Begun::Perhaps;
            if !is_searched {
                continue;
            }
            let before = found.by_number.len();
            // A record may be whole on one side of a mirror alone.
            for (_, side) in self.drive(self.segments.place(*segment)).current() {
                self.segment(side, *segment, *generation, &mut found).await;
            }
            if begun[place] == Begun::Yes || found.by_number.len() > before {
                found.used.push(*segment);
            }
        }
        Ok(found)
    }

    fn drive(&self, place: Place) -> &Drive {
        let drive = self.drives[usize::from(place.drive())].as_ref();
        drive.expect("segments lie on drives that are there")
    }

    async fn begun(&self, side: &Side, segment: u32, generation: u64) -> Begun {
        let place = self.segments.place(segment);
        let unit = unit(self.label);
        let length = unit + HEADER_MAX;
        let read = side.read_new(self.io, place.offset(), length).await;
        // What cannot be read may have been written.
        let Ok(head) = read else {
            return Begun::Perhaps;
        };
        let (header, record) = head.split_at(unit);
        let has_record = RecordHeader::decode(record).is_ok_and(|header| {
            header.pool == self.label.pool.as_u64_pair().1
                && header.segment == segment
                && is_of_this_use(&header, generation)
        });
        if has_record {
            return Begun::Yes;
        }
        match SegmentHeader::decode(header) {
            Ok(header) if header.pool == self.label.pool && header.segment == segment => {
                if header.generation == generation {
                    Begun::Yes
                } else {
                    Begun::No
                }
            }
            Ok(_) => Begun::Perhaps,
            Err(_) if header.iter().all(|byte| *byte == 0) => Begun::No,
            Err(_) => Begun::Perhaps,
        }
    }

    async fn segment(&self, side: &Side, segment: u32, generation: u64, found: &mut Found) {
        let place = self.segments.place(segment);
        let bytes = short(self.segments.bytes());
        let unit = unit(self.label);
        let mut at = unit;
        let mut window: Option<(usize, Buffer)> = None;
        while at < bytes {
            let needed = HEADER_MAX.min(bytes - at);
            let is_there = window
                .as_ref()
                .is_some_and(|(begin, data)| *begin <= at && at + needed <= begin + data.len());
            if !is_there {
                let length = WINDOW.min(bytes - at);
                let read = side
                    .read_new(self.io, place.offset() + long(at), length)
                    .await;
                match read {
                    Ok(data) => window = Some((at, data)),
                    Err(_) => {
                        // The part that can be read is looked at in small steps.
                        let length = needed;
                        match side
                            .read_new(self.io, place.offset() + long(at), length)
                            .await
                        {
                            Ok(data) => window = Some((at, data)),
                            Err(_) => {
                                at += unit;
                                continue;
                            }
                        }
                    }
                }
            }
            let Some((begin, data)) = &window else {
                break;
            };
            let header = RecordHeader::decode(&data[at - begin..]);
            let step = match header {
                Ok(header)
                    if header.pool == self.label.pool.as_u64_pair().1
                        && header.segment == segment
                        && is_of_this_use(&header, generation) =>
                {
                    let length = u64::from(header.header_length);
                    let whole = length + u64::from(header.payload_length);
                    let payload = place.plus(long(at) + length);
                    if long(at) + whole > self.segments.bytes() {
                        unit
                    } else {
                        found.by_number.insert(header.number, (header, payload));
                        short(whole).max(unit)
                    }
                }
                Ok(_) | Err(_) => unit,
            };
            at += step;
        }
    }
}

/// Whether a segment was begun since the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    No,
    /// Its header tells nothing.
    Perhaps,
    Yes,
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

/// Bytes that records are aligned to.
fn unit(label: &Superblock) -> usize {
    usize::try_from(label.unit).expect("512 or 4096")
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

/// Whether a record was written since the segment was handed out.
fn is_of_this_use(header: &RecordHeader, generation: u64) -> bool {
    #[cfg(test)]
    if crate::testing::has_planted(crate::testing::Planted::NoGenerationCheck) {
        return true;
    }
    header.generation == generation
}

fn start(part: &Part) -> usize {
    usize::try_from(part.offset).expect("32 bits fit")
}
