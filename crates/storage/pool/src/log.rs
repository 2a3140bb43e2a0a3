//! The log: what is staged, becomes records, is written, and then put into the maps in the order of its numbers.
//!
//! ```text
//! stage ──► batch ──► record 17 ──► written ──► applied, once 1 to 16 are
//!           (grows while others      (any order)   └─► whoever waits is told
//!            are being written)
//! ```
//!
//! There are three lanes, each with a segment of its own, so that no kind of work takes the space that another needs to
//! make room.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use futures_channel::oneshot;
use longshore_reactor::buffer::Buffer;

use crate::cache::Missing;
use crate::format::op::Op;
use crate::format::record::{
    HEADER_MAX, LayerId, PARTS_MAX, Part, PartKind, RecordHeader, payload_max,
};
use crate::format::{crc, long, short};
use crate::place::{Codec, Place, STEP};
use crate::reserve::map_reserve;
use crate::room::Room;
use crate::segments::Use;
use crate::shared::Shared;
use crate::state::State;

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneName {
    /// Takes what hosts write.
    Data,
    /// Zeros and changes of the catalogue: what frees space.
    Spare,
    /// Takes what cleaning moves.
    Moved,
}

impl LaneName {
    pub const ALL: [Self; 3] = [Self::Data, Self::Spare, Self::Moved];

    /// Its place in lists of all lanes.
    pub const fn index(self) -> usize {
        match self {
            Self::Data => 0,
            Self::Spare => 1,
            Self::Moved => 2,
        }
    }

    /// Segments that the lane leaves to others.
    pub const fn floor(self) -> usize {
        match self {
            Self::Data => 4,
            Self::Moved => 1,
            Self::Spare => 0,
        }
    }
}

/// Records of a lane that are written at once while batches can grow.
const WRITERS: u32 = 2;

/// The same, while full batches wait.
const WRITERS_MAX: u32 = 6;

/// A batch of fewer parts than these waits for company while another record is written, if the newest one has more parts:
/// headers take time and space, too.
const COLLECTED_PARTS: usize = 64;

/// Least bytes of payload that a batch is parted for, to fill the end of a segment.
const PARTED_MIN: usize = 16 << 10;

/// Batches of a lane that wait; whoever has more to write waits itself.
const QUEUE_MAX: usize = 8;

/// Most pages that the zeros of a record are: all of their leaves have to be in memory at once.
pub const ZERO_PAGES_MAX: u64 = 1 << 16;

/// Bytes of buffers that are kept for the next records.
const BUFFERS_KEPT: usize = 8 << 20;

/// What raw pages are aligned to in a record, so that they can be read straight to where they belong.
const RAW_ALIGNMENT: usize = 512;
const RAW_ALIGNMENT_U32: u32 = 512;

/// Why what was staged did not become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    NoSpace,
    Poisoned,
    /// The event loop that wrote has ended, as at the end of the server, and what became of it is not known.
    Ended,
    OutOfMemory,
    ReadOnly,
    Destroyed,
    /// A part of the maps cannot be read.
    Unreadable,
}

type Waiter = oneshot::Sender<Result<(), Failure>>;

/// Resolves when what was staged is in the maps, or is known not to get there.
pub type Outcome = oneshot::Receiver<Result<(), Failure>>;

/// Something to be staged: a part, whose layer and offset are filled in, and its bytes.
#[derive(Debug)]
pub struct Piece<'a> {
    pub page: u64,
    pub kind: PartKind,
    pub bytes: Cow<'a, [u8]>,
    /// The change that the bytes are of.
    pub op: Option<Op>,
}

impl Piece<'static> {
    /// A change, as a piece of no page.
    pub fn change(op: Op) -> Self {
        let bytes = op.encode();
        Self {
            page: 0,
            kind: PartKind::Op { crc: crc(&bytes) },
            bytes: bytes.into(),
            op: Some(op),
        }
    }
}

impl Piece<'_> {
    /// Pages that it changes.
    fn pages(&self) -> u64 {
        match &self.kind {
            PartKind::Raw { crcs } => long(crcs.len()),
            PartKind::Chunk { pages, .. } | PartKind::Moved { pages, .. } => u64::from(*pages),
            PartKind::Zero { pages } => u64::from(*pages),
            PartKind::Lost { .. } => 4,
            PartKind::Op { .. } => 0,
        }
    }

    fn span(&self) -> Range<u64> {
        self.page..self.page + self.pages()
    }
}

/// Where pieces are to go.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The present layer of an open volume.
    Volume(usize),
    Layer(LayerId),
}

/// Why nothing was staged.
#[derive(Debug)]
pub enum Refusal {
    /// To be tried again when this resolves, however it does.
    Later(Outcome),
    /// The same, after somebody has been asked to keep house.
    Clogged(Outcome),
    /// These leaves have to be in memory first.
    Away(Vec<Missing>),
    Failed(Failure),
}

/// Parts that will be a record.
#[derive(Debug)]
struct Batch {
    parts: Vec<Part>,
    ops: Vec<Op>,
    room: Buffer,
    filled: usize,
    /// Pages that its parts set to zero.
    zero_pages: u64,
    durable: bool,
    waiters: Vec<Waiter>,
    /// Bytes that hosts wrote.
    charged: u64,
}

#[derive(Debug, Default)]
struct Lane {
    open: Option<Batch>,
    queue: VecDeque<Batch>,
    /// For those that find the queue full.
    crowd: Vec<Waiter>,
    writers: u32,
    segment: Option<OpenSegment>,
    /// Parts of the newest record.
    last_parts: usize,
}

impl Lane {
    /// Whether the open batch may wait for another writer to finish, and grow meanwhile. One of `large` bytes does not.
    fn collects(&self, large: usize) -> bool {
        let enough = self.last_parts.min(COLLECTED_PARTS);
        let grows =
            |open: &Batch| !open.durable && open.parts.len() < enough && open.filled < large;
        self.queue.is_empty() && self.open.as_ref().is_some_and(grows)
    }
}

/// The segment that a lane writes to.
#[derive(Clone, Copy, Debug)]
struct OpenSegment {
    number: u32,
    /// Bytes that are used.
    filled: u64,
    /// Its header was brought to the medium.
    is_marked: bool,
}

/// A record on its way to a drive.
#[derive(Debug)]
pub struct Record {
    pub number: u64,
    pub place: Place,
    pub buffer: Option<Buffer>,
    pub range: Range<usize>,
    pub durable: bool,
    /// The segment, if its header has to be brought to the medium before.
    pub unmarked: Option<Opening>,
    pending: Pending,
}

/// What is left of a record while it is written, until it is in the maps.
#[derive(Debug)]
struct Pending {
    parts: Arc<[Part]>,
    payload: Place,
    ops: Vec<Op>,
    segment: u32,
    waiters: Vec<Waiter>,
    charged: u64,
}

/// A segment that a lane begins.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub segment: u32,
    pub generation: u64,
    pub place: Place,
}

/// What a writer does next.
#[derive(Debug)]
pub enum Next {
    /// There is nothing: it ends.
    Nothing,
    Write(Box<Record>),
    Begin(Opening),
    /// No segment may be begun before this resolves.
    Space(oneshot::Receiver<bool>),
}

/// A volume that somebody has open.
#[derive(Debug)]
pub struct OpenVolume {
    pub name: String,
    /// The layer that it reads first.
    pub read: LayerId,
    /// Where what is staged now will be written: another layer, while the record of a snapshot is on its way.
    pub write: LayerId,
    pub settings: Arc<Shared>,
}

/// State, and the way there. Behind the lock of the pool.
#[derive(Debug)]
pub struct Inner {
    pub state: State,
    /// Bytes that records are aligned to.
    unit: usize,
    /// Bytes of payload of a record.
    payload_max: usize,
    pool: u64,
    lanes: [Lane; 3],
    /// Number of the next record.
    next: u64,
    /// Written, and waiting for those before them.
    written: BTreeMap<u64, Pending>,
    echo: (Place, Arc<[Part]>),
    /// Records up to this one are on the medium.
    pub durable: u64,
    pub room: Room,
    /// Incompatible features that all superblocks name, and that they are to name.
    pub features: u64,
    pub features_wanted: u64,
    /// Pages that somebody reads, changes and writes.
    held: HashMap<(usize, u64), Vec<Waiter>>,
    /// For those that wait until a record is in the maps.
    applied: Vec<(u64, Waiter)>,
    /// For those that wait for a checkpoint, as the maps have changed too much since the last one.
    pub clogged: Vec<Waiter>,
    buffers: Vec<Buffer>,
    pub open: slab::Slab<OpenVolume>,
    /// Names that nobody may open at present: what they mean is about to change.
    pub claimed: Vec<String>,
    /// For lanes that need a segment.
    pub starved: Vec<(LaneName, oneshot::Sender<bool>)>,
    /// Records with changes of the catalogue that are being written.
    pub ops_under_way: u32,
    /// Tells who keeps house that the spare lane is starved.
    pub house_bell: Option<oneshot::Sender<()>>,
    pub next_generation: u64,
    /// Bytes of records since the last checkpoint.
    pub since_checkpoint: u64,
    /// The same since one was begun, whether it was made or not.
    pub since_attempt: u64,
    /// The same since a round of cleaning.
    pub since_round: u64,
    pub failed: Option<Failure>,
    /// Bytes that hosts have written, and those of all records.
    pub host_bytes: u64,
    pub record_bytes: u64,
    /// What the segments that are being cleaned may take elsewhere.
    pub moving: u64,
    /// Changes that no record tells of, by [the catalogue's count](crate::catalog::Catalog::moves), in the last checkpoint.
    pub moves_before: u64,
}

impl Inner {
    pub fn new(state: State, unit: usize, pool: u64, next: u64, next_generation: u64) -> Self {
        let segment_bytes = u32::try_from(state.segments.bytes()).expect("at most 64 MiB");
        let mut room = Room::default();
        room.take_over(&state.catalog);
        Self {
            unit,
            payload_max: payload_max(segment_bytes),
            pool,
            lanes: Default::default(),
            next,
            written: BTreeMap::new(),
            echo: (Place::default(), Arc::default()),
            durable: 0,
            room,
            features: 0,
            features_wanted: 0,
            held: HashMap::new(),
            applied: Vec::new(),
            clogged: Vec::new(),
            buffers: Vec::new(),
            open: slab::Slab::new(),
            claimed: Vec::new(),
            ops_under_way: 0,
            house_bell: None,
            since_attempt: 0,
            since_round: 0,
            starved: Vec::new(),
            next_generation,
            since_checkpoint: 0,
            failed: None,
            host_bytes: 0,
            record_bytes: 0,
            moving: 0,
            moves_before: 0,
            state,
        }
    }

    /// Stages pieces, all or none: they are taken out of the list, or stay there. Returns what to wait for, and whether a
    /// writer is to be started. `holds`: they belong to who [holds](Self::hold) their page.
    pub fn stage(
        &mut self,
        lane: LaneName,
        target: Target,
        pieces: &mut Vec<Piece<'_>>,
        durable: bool,
        holds: bool,
    ) -> Result<(Vec<Outcome>, bool), Refusal> {
        if let Some(failed) = self.failed {
            return Err(Refusal::Failed(failed));
        }
        let layer = match target {
            Target::Layer(layer) => layer,
            Target::Volume(volume) => {
                if !holds && let Some(wait) = self.wait_for_holders(volume, pieces) {
                    return Err(Refusal::Later(wait));
                }
                if self.state.catalog.cache.is_clogged() {
                    let (sender, receiver) = oneshot::channel();
                    self.clogged.push(sender);
                    return Err(Refusal::Clogged(receiver));
                }
                self.open[volume].write
            }
        };
        let mut missing = Vec::new();
        for piece in &*pieces {
            self.state
                .missing_for(layer, piece.page, &piece.kind, &mut missing);
        }
        if !missing.is_empty() {
            return Err(Refusal::Away(missing));
        }
        let charged = if lane == LaneName::Data {
            pieces.iter().map(|piece| long(piece.bytes.len())).sum()
        } else {
            0
        };
        if charged > 0 {
            let spans = pieces.iter().map(Piece::span);
            match self.room.admits(&self.state, layer, charged, spans) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return Err(Refusal::Failed(Failure::NoSpace)),
                Ok(None) => return Err(Refusal::Later(self.next_change(lane))),
                Err(missing) => return Err(Refusal::Away(vec![missing])),
            }
        }
        if self.lanes[lane.index()].queue.len() >= QUEUE_MAX {
            let (sender, receiver) = oneshot::channel();
            self.lanes[lane.index()].crowd.push(sender);
            return Err(Refusal::Later(receiver));
        }
        // All rooms are there before the first piece is placed.
        let rooms = 1
            + pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>() / (self.payload_max / 2)
            + pieces.len() / (PARTS_MAX / 2);
        while self.buffers.len() < rooms {
            let Some(room) = Buffer::try_allocate(HEADER_MAX + self.payload_max) else {
                return Err(Refusal::Failed(Failure::OutOfMemory));
            };
            self.buffers.push(room);
        }
        if charged > 0 {
            let spans = pieces.iter().map(Piece::span);
            self.room.charge(layer, charged, spans);
        }
        let mut outcomes = Vec::with_capacity(1);
        for piece in pieces.drain(..) {
            self.place(lane, layer, piece, durable, &mut outcomes);
        }
        let large = self.large();
        let lane = &mut self.lanes[lane.index()];
        let is_large = |batch: &Batch| batch.filled >= large;
        let most = if lane.collects(large) {
            1
        } else if lane.queue.is_empty() && !lane.open.as_ref().is_some_and(is_large) {
            WRITERS
        } else {
            WRITERS_MAX
        };
        let start = lane.writers < most && (lane.open.is_some() || !lane.queue.is_empty());
        lane.writers += u32::from(start);
        Ok((outcomes, start))
    }

    /// Bytes of a batch that is written as soon as it can be.
    const fn large(&self) -> usize {
        self.payload_max / 2
    }

    /// Counts the room for data anew.
    pub fn measure(&mut self) {
        self.room.measure(&self.state);
    }

    /// Resolves when something of a lane has come further: a record was begun, or all that were begun are in the maps.
    fn next_change(&mut self, lane: LaneName) -> Outcome {
        let (sender, receiver) = oneshot::channel();
        let next = self.next - 1;
        let lane = &mut self.lanes[lane.index()];
        if lane.open.is_some() || !lane.queue.is_empty() {
            lane.crowd.push(sender);
        } else if next > self.state.applied {
            self.applied.push((next, sender));
        }
        receiver
    }

    fn place(
        &mut self,
        lane: LaneName,
        layer: LayerId,
        piece: Piece<'_>,
        durable: bool,
        outcomes: &mut Vec<Outcome>,
    ) {
        let is_data = lane == LaneName::Data;
        let alignment = match &piece.kind {
            PartKind::Raw { .. }
            | PartKind::Chunk {
                codec: Codec::Raw, ..
            }
            | PartKind::Moved {
                codec: Codec::Raw, ..
            } => RAW_ALIGNMENT,
            _ => STEP,
        };
        let length = piece.bytes.len();
        let zeros = match piece.kind {
            PartKind::Zero { pages } => u64::from(pages),
            _ => 0,
        };
        let payload_max = self.payload_max;
        debug_assert!(length <= payload_max, "callers cut their pieces");
        let lane = &mut self.lanes[lane.index()];
        let fits = |batch: &Batch| {
            batch.parts.len() < PARTS_MAX
                && batch.zero_pages + zeros <= ZERO_PAGES_MAX
                && batch.filled.next_multiple_of(alignment) + length <= payload_max
        };
        let joins = lane.open.as_ref().is_some_and(fits);
        if !joins {
            lane.queue.extend(lane.open.take());
        }
        let is_new_to_it = !joins || outcomes.is_empty();
        let batch = lane.open.get_or_insert_with(|| Batch {
            parts: Vec::with_capacity(16),
            ops: Vec::new(),
            room: self.buffers.pop().expect("rooms were made before"),
            filled: 0,
            zero_pages: 0,
            durable: false,
            waiters: Vec::new(),
            charged: 0,
        });
        let start = batch.filled.next_multiple_of(alignment);
        batch.room[HEADER_MAX + batch.filled..HEADER_MAX + start].fill(0);
        batch.room[HEADER_MAX + start..HEADER_MAX + start + length].copy_from_slice(&piece.bytes);
        batch.filled = start + length;
        batch.zero_pages += zeros;
        #[cfg(test)]
        let durable =
            durable && !crate::testing::has_planted(crate::testing::Planted::NoDurableWrites);
        batch.durable |= durable;
        batch.charged += if is_data { long(length) } else { 0 };
        batch.ops.extend(piece.op);
        batch.parts.push(Part {
            layer,
            page: piece.page,
            offset: u32::try_from(start).expect("at most 1 MiB"),
            length: u32::try_from(length).expect("at most 1 MiB"),
            kind: piece.kind,
        });
        if is_new_to_it {
            let (sender, receiver) = oneshot::channel();
            batch.waiters.push(sender);
            outcomes.push(receiver);
        }
    }

    fn wait_for_holders(&mut self, volume: usize, pieces: &[Piece<'_>]) -> Option<Outcome> {
        if self.held.is_empty() {
            return None;
        }
        let is_touched = |(of, page): &(usize, u64)| {
            *of == volume && pieces.iter().any(|piece| piece.span().contains(page))
        };
        let (_, waiters) = self.held.iter_mut().find(|(page, _)| is_touched(page))?;
        let (sender, receiver) = oneshot::channel();
        waiters.push(sender);
        Some(receiver)
    }

    /// Takes a page for who reads it, changes it and writes it back. Others wait.
    pub fn hold(&mut self, volume: usize, page: u64) -> Result<(), Outcome> {
        use std::collections::hash_map::Entry;
        match self.held.entry((volume, page)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Vec::new());
                Ok(())
            }
            Entry::Occupied(mut occupied) => {
                let (sender, receiver) = oneshot::channel();
                occupied.get_mut().push(sender);
                Err(receiver)
            }
        }
    }

    /// Gives a page back.
    pub fn let_go(&mut self, volume: usize, page: u64) {
        // Dropped waiters wake those that wait.
        self.held.remove(&(volume, page));
    }

    /// What to wait for until all that is staged now is in the maps. What fails meanwhile does not count.
    pub fn barrier(&mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let open = self
            .lanes
            .iter_mut()
            .flat_map(|lane| lane.queue.iter_mut().chain(&mut lane.open));
        for batch in open {
            let (sender, receiver) = oneshot::channel();
            batch.waiters.push(sender);
            outcomes.push(receiver);
        }
        if self.state.applied + 1 < self.next {
            let (sender, receiver) = oneshot::channel();
            self.applied.push((self.next - 1, sender));
            outcomes.push(receiver);
        }
        outcomes
    }

    /// Whether a lane may begin another segment. Data leaves enough for the next checkpoint, however the maps have grown.
    pub fn may_begin(&self, lane: LaneName) -> bool {
        let ready = self.state.segments.ready.len();
        let missing = match lane {
            LaneName::Data => {
                map_reserve(&self.state).saturating_sub(self.state.segments.free().count())
            }
            LaneName::Spare | LaneName::Moved => 0,
        };
        ready > lane.floor() + missing
    }

    /// Whether the spare lane waits for space while no change of the catalogue is being written: then none is made until
    /// somebody has kept house.
    pub fn is_spare_stuck(&self) -> bool {
        let waits = |(lane, _): &(LaneName, oneshot::Sender<bool>)| *lane == LaneName::Spare;
        self.ops_under_way == 0 && self.starved.iter().any(waits)
    }

    /// What the writer of a lane does next.
    pub fn next(&mut self, name: LaneName) -> Next {
        if let Some(failed) = self.failed {
            self.fail_lane(name, failed);
        }
        let large = self.large();
        let lane = &mut self.lanes[name.index()];
        if lane.writers > 1 && lane.collects(large) {
            lane.writers -= 1;
            return Next::Nothing;
        }
        let Some(batch) = lane.queue.front().or(lane.open.as_ref()) else {
            self.lanes[name.index()].writers -= 1;
            return Next::Nothing;
        };
        let header = RecordHeader::length_with(&batch.parts, &self.echo.1, self.unit);
        let payload = batch.filled.next_multiple_of(self.unit);
        let length = long(header + payload);
        let bytes = self.state.segments.bytes();
        if let Some(segment) = lane.segment {
            if segment.filled + length <= bytes {
                return Next::Write(Box::new(self.take_record(name, segment, header, payload)));
            }
            if self.part_batch(name, bytes - segment.filled) {
                return self.next(name);
            }
        }
        if let Some(full) = self.lanes[name.index()].segment.take() {
            self.state.segments.get_mut(full.number).used = Use::Sealed;
        }
        if self.may_begin(name) {
            let segment = self
                .state
                .segments
                .ready
                .pop_front()
                .expect("there are some");
            let found = self.state.segments.get_mut(segment);
            found.used = Use::Open;
            return Next::Begin(Opening {
                segment,
                generation: found.generation,
                place: self.state.segments.place(segment),
            });
        }
        if name == LaneName::Moved {
            self.fail_lane(name, Failure::NoSpace);
            return self.next(name);
        }
        let (sender, receiver) = oneshot::channel();
        self.starved.push((name, sender));
        if name == LaneName::Spare
            && let Some(bell) = self.house_bell.take()
        {
            let _ = bell.send(());
        }
        Next::Space(receiver)
    }

    /// Splits the next batch, if the first part of it would fill the `room` well. Whether it did.
    fn part_batch(&mut self, name: LaneName, room: u64) -> bool {
        let lane = &mut self.lanes[name.index()];
        let is_open = lane.queue.is_empty();
        let batch = lane.queue.front_mut().or(lane.open.as_mut());
        // Changes are made as a whole, or not at all.
        let Some(batch) = batch.filter(|batch| batch.ops.is_empty()) else {
            return false;
        };
        let end = |part: &Part| short(u64::from(part.offset) + u64::from(part.length));
        let fits = |count: usize| {
            let (first, _) = batch.parts.split_at(count);
            let payload = first.iter().map(end).max().unwrap_or(0);
            let header = RecordHeader::length_with(first, &self.echo.1, self.unit);
            long(header + payload.next_multiple_of(self.unit)) <= room
        };
        let counts = (1..batch.parts.len()).take_while(|count| fits(*count));
        let count = counts.last().unwrap_or(0);
        let filled = batch.parts[..count].iter().map(end).max().unwrap_or(0);
        if filled < PARTED_MIN {
            return false;
        }
        let Some(mut room) = self
            .buffers
            .pop()
            .or_else(|| Buffer::try_allocate(HEADER_MAX + self.payload_max))
        else {
            return false;
        };
        let mut parts = batch.parts.split_off(count);
        let begin = parts.first().map_or(0, |part| part.offset);
        let begin = begin / RAW_ALIGNMENT_U32 * RAW_ALIGNMENT_U32;
        for part in &mut parts {
            part.offset -= begin;
        }
        let from = short(u64::from(begin));
        let left = batch.filled - from;
        room[HEADER_MAX..HEADER_MAX + left]
            .copy_from_slice(&batch.room[HEADER_MAX + from..HEADER_MAX + batch.filled]);
        let zeros = |parts: &[Part]| parts.iter().map(zero_pages).sum();
        let charged: u64 = parts.iter().map(|part| u64::from(part.length)).sum();
        let charged = charged.min(batch.charged);
        let rest = Batch {
            ops: Vec::new(),
            room,
            filled: left,
            zero_pages: zeros(&parts),
            durable: batch.durable,
            // The second comes into the maps after the first.
            waiters: std::mem::take(&mut batch.waiters),
            charged,
            parts,
        };
        batch.filled = filled;
        batch.zero_pages = zeros(&batch.parts);
        batch.charged -= charged;
        if is_open {
            lane.queue.extend(lane.open.replace(rest));
        } else {
            lane.queue.insert(1, rest);
        }
        true
    }

    fn take_record(
        &mut self,
        name: LaneName,
        segment: OpenSegment,
        header_length: usize,
        payload: usize,
    ) -> Record {
        let lane = &mut self.lanes[name.index()];
        let batch = lane.queue.pop_front().or_else(|| lane.open.take());
        let batch = batch.expect("it was looked at");
        lane.last_parts = batch.parts.len();
        // Those that found the queue full try again.
        lane.crowd.clear();
        let place = self
            .state
            .segments
            .place(segment.number)
            .plus(segment.filled);
        let parts: Arc<[Part]> = batch.parts.into();
        let (echo_place, echo) = std::mem::take(&mut self.echo);
        let mut header = RecordHeader {
            pool: self.pool,
            segment: segment.number,
            generation: self.state.segments.get(segment.number).generation,
            number: self.next,
            durable: self.durable,
            header_length: 0,
            payload_length: u32::try_from(payload).expect("at most 1 MiB"),
            parts: parts.clone(),
            echo_place,
            echo,
        };
        let mut buffer = batch.room;
        buffer[HEADER_MAX + batch.filled..HEADER_MAX + payload].fill(0);
        let start = header.encode_into(&mut buffer[..HEADER_MAX], self.unit);
        debug_assert_eq!(HEADER_MAX - start, header_length, "as was computed");
        let payload_place = place.plus(long(header_length));
        self.echo = (payload_place, parts.clone());
        let length = long(header_length + payload);
        lane.segment = Some(OpenSegment {
            filled: segment.filled + length,
            ..segment
        });
        self.next += 1;
        // Whatever is staged from now on has a higher number than these changes.
        batch.ops.iter().for_each(|op| redirect(&mut self.open, op));
        self.ops_under_way += u32::from(!batch.ops.is_empty());
        self.since_checkpoint += length;
        self.since_attempt += length;
        self.since_round += length;
        self.record_bytes += length;
        self.host_bytes += batch.charged;
        let opening = Opening {
            segment: segment.number,
            generation: header.generation,
            place: self.state.segments.place(segment.number),
        };
        let found = self.state.segments.get_mut(segment.number);
        found.staged += 1;
        found.last = header.number;
        Record {
            number: header.number,
            place,
            buffer: Some(buffer),
            range: start..HEADER_MAX + payload,
            durable: batch.durable,
            unmarked: (batch.durable && !segment.is_marked).then_some(opening),
            pending: Pending {
                parts,
                payload: payload_place,
                ops: batch.ops,
                segment: segment.number,
                waiters: batch.waiters,
                charged: batch.charged,
            },
        }
    }

    /// A segment's header is on the medium.
    pub fn begun(&mut self, lane: LaneName, opening: Opening) {
        self.lanes[lane.index()].segment = Some(OpenSegment {
            number: opening.segment,
            filled: long(self.unit),
            is_marked: false,
        });
    }

    /// Closes the segments of a drive that lanes write to.
    pub fn leave(&mut self, drive: u8) {
        let segments = self.state.segments.of_drive(drive);
        for lane in &mut self.lanes {
            let left = lane.segment.take_if(|open| segments.contains(&open.number));
            if let Some(left) = left {
                self.state.segments.get_mut(left.number).used = Use::Sealed;
            }
        }
    }

    /// A segment could not be begun: there is no space for it, or no memory. Nothing was written there.
    pub fn not_begun(&mut self, lane: LaneName, opening: Opening, failure: Failure) {
        // Others may have their space already.
        self.state.segments.give_back(opening.segment);
        self.fail_lane(lane, failure);
    }

    /// A record was written. It comes into the maps with all those whose turn it is then. If leaves have to be in memory
    /// before, they are returned; [`Self::advance`] follows.
    pub fn finish(&mut self, record: Record) -> Vec<Missing> {
        if self.buffers.len() < BUFFERS_KEPT / (HEADER_MAX + self.payload_max) {
            self.buffers.extend(record.buffer);
        }
        if self.failed.is_some() {
            return Vec::new();
        }
        if let Some(marked) = record.unmarked {
            let mut open = self
                .lanes
                .iter_mut()
                .filter_map(|lane| lane.segment.as_mut());
            if let Some(segment) = open.find(|open| open.number == marked.segment) {
                segment.is_marked = true;
            }
        }
        self.written.insert(record.number, record.pending);
        self.advance()
    }

    /// Puts written records into the maps whose turn it is. If leaves have to be in memory before, they are returned.
    pub fn advance(&mut self) -> Vec<Missing> {
        let mut missing = Vec::new();
        while let Some(entry) = self.written.first_entry()
            && *entry.key() == self.state.applied + 1
            && self.failed.is_none()
        {
            let number = *entry.key();
            missing = self.state.missing(&entry.get().parts, &entry.get().ops);
            if !missing.is_empty() {
                break;
            }
            let pending = entry.remove();
            self.ops_under_way -= u32::from(!pending.ops.is_empty());
            let of_segments = |op: &Op| matches!(op, Op::HandOut { .. });
            let has_ops = !pending.ops.iter().all(of_segments);
            self.state
                .apply(&pending.parts, pending.payload, pending.ops);
            self.state.applied = number;
            self.state.segments.get_mut(pending.segment).staged -= 1;
            self.room.discharge(&pending.parts, pending.charged);
            if has_ops {
                self.reread_heads();
            }
            for waiter in pending.waiters {
                let _ = waiter.send(Ok(()));
            }
        }
        let applied = self.state.applied;
        for (_, waiter) in self
            .applied
            .extract_if(.., |(number, _)| *number <= applied)
        {
            let _ = waiter.send(Ok(()));
        }
        missing
    }

    fn reread_heads(&mut self) {
        self.room.take_over(&self.state.catalog);
        for (_, volume) in &mut self.open {
            if let Some(found) = self.state.catalog.volumes.get(&volume.name) {
                volume.read = found.head;
                // Of one that was opened while the change was on its way, too.
                volume.write = found.head;
                volume.settings.take_over(found, &self.room);
            }
        }
    }

    /// Nothing is written any more.
    pub fn fail(&mut self, failure: Failure) {
        self.failed = Some(failure);
        for name in LaneName::ALL {
            self.fail_lane(name, failure);
        }
        // Dropped waiters count as failed.
        self.written.clear();
        self.applied.clear();
        self.starved.clear();
        self.clogged.clear();
    }

    pub fn fail_lane(&mut self, name: LaneName, failure: Failure) {
        let lane = &mut self.lanes[name.index()];
        lane.crowd.clear();
        for batch in lane.queue.drain(..).chain(lane.open.take()) {
            self.room.discharge(&batch.parts, batch.charged);
            for waiter in batch.waiters {
                let _ = waiter.send(Err(failure));
            }
        }
    }

    /// A writer of a lane is gone, without having looked whether there is something left.
    pub fn writer_gone(&mut self, name: LaneName) {
        self.lanes[name.index()].writers -= 1;
    }

    /// Segments that records are being written to, or that records not yet in the maps were written to.
    pub fn segments_in_use(&self) -> Vec<u32> {
        let segments = self.state.segments.iter();
        let in_use = |(number, found): (u32, &crate::segments::Segment)| {
            let is_meant = match found.used {
                Use::Open => true,
                Use::Sealed => found.staged > 0,
                Use::Free | Use::Ready | Use::Map | Use::Leaves | Use::Gone => false,
            };
            is_meant.then_some(number)
        };
        segments.filter_map(in_use).collect()
    }

    /// Bytes of the moved lane's segment that are left, and of those that it may begin, beside what is being moved.
    pub fn room_for_moves(&self) -> u64 {
        let bytes = self.state.segments.bytes();
        let open = self.lanes[LaneName::Moved.index()].segment;
        let left = open.map_or(0, |segment| bytes - segment.filled);
        let segments = &self.state.segments;
        // What a checkpoint would gain is not to be lost because it has no room.
        let for_maps = match segments.reusable().next() {
            Some(_) => map_reserve(&self.state).saturating_sub(segments.free().count()),
            None => 0,
        };
        let ready = segments.ready.len();
        let ready = ready.saturating_sub(LaneName::Moved.floor() + for_maps);
        let all = left + long(ready) * bytes;
        all.saturating_sub(self.moving)
    }
}

/// Pages that a part sets to zero.
const fn zero_pages(part: &Part) -> u64 {
    match part.kind {
        PartKind::Zero { pages } => pages as u64,
        PartKind::Raw { .. }
        | PartKind::Chunk { .. }
        | PartKind::Moved { .. }
        | PartKind::Lost { .. }
        | PartKind::Op { .. } => 0,
    }
}

/// Has what is staged from now on written to the layers that a change brings.
fn redirect(open: &mut slab::Slab<OpenVolume>, op: &Op) {
    let Op::Snapshot { members, .. } = op else {
        return;
    };
    for (_, volume) in open {
        if let Some(member) = members.iter().find(|member| member.volume == volume.name) {
            volume.write = member.head;
        }
    }
}

/// The failure in words of whoever waits. Nobody is left to tell when the pool fails as a whole.
pub async fn settle(outcome: Outcome) -> Result<(), Failure> {
    outcome.await.unwrap_or(Err(Failure::Poisoned))
}

/// Waits until all have resolved.
pub async fn settle_all(outcomes: Vec<Outcome>) -> Result<(), Failure> {
    let mut result = Ok(());
    for outcome in outcomes {
        result = result.and(settle(outcome).await);
    }
    result
}
