//! Keeps house: moves what lives in segments that are mostly dead, and makes checkpoints, so that there is space to
//! write.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join;
use futures_util::stream::{FuturesUnordered, StreamExt};
use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::cache::Missing;
use crate::checkpoint::INTERVAL;
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::record::{HEADER_MAX, LayerId, PartKind, RecordHeader};
use crate::format::{PAGE_BYTES, crc, long, short};
use crate::leaves::Purpose;
use crate::log::{Failure, LaneName, Outcome, Piece, Target, settle_all};
use crate::mend::Mended;
use crate::place::{Content, Place, Stored};
use crate::pool::Pool;
use crate::read::ReadError;
use crate::reserve::{map_reserve, spare_wanted};
use crate::segments::{Segment, Use};
use crate::state::State;
use crate::stretch::{STRETCH, Stock, Stretch};
use crate::tidy::{TIDY_IN_A_HURRY, TIDY_IN_A_ROUND, Tidied};
use crate::walk::{Unread, Walk};

/// Segments that are cleaned at the same time, in bytes, and how many they are at least and at most.
const CLEANED_AT_ONCE: u64 = 24 << 20;
const CLEANED_COUNT: RangeInclusive<usize> = 3..=8;

/// Chunks of a layer that are handed over at once.
const MOVED_AT_ONCE: usize = 32;

/// Runs of chunks on their way that a cleaning waits for, when there are more.
const OUTCOMES_MAX: usize = 32;

/// Rounds of cleaning that gain nothing, until those that wait for space are told that there is none.
const ROUNDS_MAX: u32 = 64;

/// Rounds in a row without gain after which cleaning ends, unless somebody waits for space.
const FUTILE_MAX: u32 = 3;

/// What cleaning a segment has done.
#[derive(Default)]
struct Moves {
    moved: u64,
    /// What could not be read, and stays.
    staying: u64,
    outcomes: Vec<Outcome>,
}

/// A chunk that lives.
#[derive(Clone, Copy, Debug)]
struct Living {
    layer: LayerId,
    /// Of the chunk's first page.
    page: u64,
    /// Those of its pages that are in use.
    mask: u8,
    stored: Stored,
}

impl Pool {
    /// Has house kept on this event loop, if nobody does already.
    pub(crate) fn keep_house(self: &Arc<Self>, io: &Io) {
        if !self.begin_house() {
            return;
        }
        let house = House(self.clone());
        let task_io = io.clone();
        crate::run::spawn(io, async move { house.keep(&task_io).await });
    }
}

impl Pool {
    /// Keeps house now, if nobody does already.
    pub(crate) async fn make_room(self: &Arc<Self>, io: &Io) {
        if self.begin_house() {
            House(self.clone()).keep(io).await;
        }
    }
}

/// Somebody keeps house, until this is dropped.
struct House(Arc<Pool>);

impl Drop for House {
    fn drop(&mut self) {
        self.0.keeps_house.store(false, Ordering::Release);
        // Those that wait look again, and keep house themselves.
        let mut inner = self.0.lock();
        inner.starved.clear();
        inner.clogged.clear();
        inner.moving = 0;
    }
}

impl House {
    async fn keep(self, io: &Io) {
        let pool = &self.0;
        let stock = Stock::default();
        let (mut rounds, mut best) = (0, 0);
        let mut is_hopeless = true;
        // Rounds without gain since the last useful one.
        let mut futile = 0;
        while rounds < ROUNDS_MAX {
            let before = pool.lock().state.segments.ready.len();
            let is_hurried = !pool.lock().starved.is_empty();
            let most = match is_hurried {
                true => TIDY_IN_A_HURRY,
                false => TIDY_IN_A_ROUND,
            };
            let tidied = pool.tidy(io, most).await;
            if let Err(failure) = tidied {
                let error = pool.error(failure);
                tracing::warn!(pool = pool.name(), %error, "what was deleted takes space still");
            }
            // Each of these rounds gives something back, so there is an end to them.
            let has_more = tidied == Ok(Tidied::Some);
            rounds += u32::from(!has_more);
            let held = self.admission().await;
            let was_clogged = pool.lock().state.catalog.cache.is_clogged();
            // What is about to be given back need not be moved away from.
            let moved = match has_more {
                true => 0,
                false => self.clean(io, &stock).await,
            };
            let by_record = !has_more && !self.wants_checkpoint() && self.hand_out(io).await;
            let made = match by_record {
                true => Ok(()),
                false => pool.checkpoint(io).await,
            };
            drop(held);
            if let Err(error) = &made {
                tracing::warn!(pool = pool.name(), %error, "no checkpoint was made");
            }
            let has_served = self.serve_starved();
            let mut inner = pool.lock();
            inner.since_round = 0;
            let ready = inner.state.segments.ready.len();
            // A checkpoint may bring more than a record did, and something can be moved when the maps are clean.
            let gains = moved > 0 || ready > before || by_record || was_clogged && made.is_ok();
            let spare = inner.state.segments.spare();
            if has_served || spare > best {
                futile = 0;
                // Whoever waits does not wait in vain.
                if crate::run::is_at_work() {
                    rounds = 0;
                }
            } else {
                futile += 1;
            }
            best = best.max(spare);
            if let Err(error) = &made {
                let failure = match error {
                    error if error.is_full() => Failure::NoSpace,
                    PoolError::OutOfMemory => Failure::OutOfMemory,
                    _ => Failure::Unreadable,
                };
                for waiter in std::mem::take(&mut inner.clogged) {
                    let _ = waiter.send(Err(failure));
                }
            }
            let segments = &inner.state.segments;
            let has_some = ready > LaneName::Data.floor() + 2;
            let is_enough = inner.starved.is_empty()
                && (spare >= spare_wanted(&inner.state)
                    || futile >= FUTILE_MAX
                    || has_some && !crate::run::is_at_work()
                    || !segments.can_gain(map_reserve(&inner.state)));
            // After a checkpoint, or when there is memory, it can be done.
            let waits = matches!(tidied, Ok(Tidied::Nothing) | Err(Failure::OutOfMemory));
            is_hopeless = made.is_err() || !is_enough && (!gains || futile > 0);
            if made.is_err() || !has_more && !waits && (is_enough || !gains) {
                break;
            }
        }
        // Others look again.
        if is_hopeless {
            for (_, waiter) in std::mem::take(&mut pool.lock().starved) {
                let _ = waiter.send(false);
            }
        }
    }

    /// Those whose lane may begin a segment now go on. Whether there were any.
    fn serve_starved(&self) -> bool {
        let mut inner = self.0.lock();
        let starved = std::mem::take(&mut inner.starved);
        let waited = starved.len();
        for (lane, waiter) in starved {
            if inner.may_begin(lane) {
                let _ = waiter.send(true);
            } else {
                inner.starved.push((lane, waiter));
            }
        }
        inner.starved.len() < waited
    }

    /// Whether a record that hands out segments would not do in place of a checkpoint.
    fn wants_checkpoint(&self) -> bool {
        let pool = &self.0;
        let inner = pool.lock();
        inner.since_checkpoint >= INTERVAL
            || inner.state.catalog.cache.is_soiled()
            || !inner.state.catalog.fates.is_empty()
            || !inner.clogged.is_empty()
            || pool.members.is_unmarked()
    }

    /// Hands out segments by a record. Whether that was of use.
    async fn hand_out(&self, io: &Io) -> bool {
        let pool = &self.0;
        match pool.hand_out(io).await {
            Ok(count) => count > 0,
            Err(failure) => {
                let error = pool.error(failure);
                tracing::debug!(pool = pool.name(), %error, "segments are handed out by a checkpoint");
                false
            }
        }
    }

    /// Waits until no change of the catalogue is made meanwhile: nobody makes one, or who does waits for space, which
    /// there will be no sooner.
    async fn admission(&self) -> Option<futures_util::lock::MutexGuard<'_, ()>> {
        let pool = &self.0;
        let lock = pool.maintenance.lock();
        let bell = {
            let mut inner = pool.lock();
            if pool.maintenance.try_lock().is_none() && inner.is_spare_stuck() {
                return None;
            }
            let (sender, receiver) = futures_channel::oneshot::channel();
            inner.house_bell = Some(sender);
            receiver
        };
        let stuck = async {
            // A bell that was dropped rings no more.
            if bell.await.is_err() || !pool.lock().is_spare_stuck() {
                std::future::pending::<()>().await;
            }
        };
        futures_util::pin_mut!(stuck);
        match futures_util::future::select(lock, stuck).await {
            futures_util::future::Either::Left((guard, _)) => Some(guard),
            futures_util::future::Either::Right(((), _)) => None,
        }
    }

    /// Moves what lives in the emptiest segments until enough are spare. Returns the bytes moved.
    async fn clean(&self, io: &Io, stock: &Stock) -> u64 {
        let pool = &self.0;
        let segment_bytes = u64::from(pool.label.segment_bytes);
        let most = short(CLEANED_AT_ONCE / segment_bytes);
        let most = most.clamp(*CLEANED_COUNT.start(), *CLEANED_COUNT.end());
        let mut begun = Vec::new();
        let mut moved = 0;
        let mut is_over = false;
        let mut under_way = FuturesUnordered::new();
        loop {
            while !is_over && under_way.len() < most {
                let Some((victim, room)) = self.victim(&begun, under_way.len()) else {
                    // When those under way have come to their end, there may be one.
                    break;
                };
                begun.push(victim);
                under_way.push(async move {
                    let cleaned = pool.clean_segment(io, victim, stock).await;
                    (victim, room, cleaned)
                });
            }
            let Some((victim, room, cleaned)) = under_way.next().await else {
                return moved;
            };
            pool.lock().moving -= room;
            match cleaned {
                Ok(bytes) => moved += bytes,
                Err(Failure::NoSpace) => is_over = true,
                Err(failure) => {
                    let error = pool.error(failure);
                    tracing::warn!(pool = pool.name(), segment = victim, %error, "a segment could \
                        not be cleaned");
                    // Others may be, if only a part of the maps cannot be read.
                    is_over |= failure != Failure::Unreadable;
                }
            }
        }
    }

    /// The segment to be cleaned next, and the bytes that its moves may take, which count from now on. `under_way`: so
    /// many are being cleaned.
    fn victim(&self, begun: &[u32], under_way: usize) -> Option<(u32, u64)> {
        let mut inner = self.0.lock();
        let segments = &inner.state.segments;
        if inner.failed.is_some() || segments.spare() + under_way >= spare_wanted(&inner.state) {
            return None;
        }
        // Moves change the maps; a checkpoint comes first.
        if inner.state.catalog.cache.is_clogged() {
            return None;
        }
        let victim = segments.victim(begun, inner.next_generation, inner.room_for_moves())?;
        let room = segments.moves_of(segments.get(victim));
        inner.moving += room;
        Some((victim, room))
    }
}

impl Pool {
    /// Moves what lives in a segment. Returns its bytes.
    pub(crate) async fn clean_segment(
        self: &Arc<Self>,
        io: &Io,
        segment: u32,
        stock: &Stock,
    ) -> Result<u64, Failure> {
        let _pin = {
            let segments = &self.lock().state.segments;
            segments.pin(segments.place(segment))
        };
        let mut moves = Moves::default();
        let result = self.move_all(io, segment, stock, &mut moves).await;
        // What is on its way names places there.
        let settled = settle_all(moves.outcomes).await;
        result.and(settled).map(|()| moves.moved)
    }

    async fn move_all(
        self: &Arc<Self>,
        io: &Io,
        segment: u32,
        stock: &Stock,
        moves: &mut Moves,
    ) -> Result<(), Failure> {
        let (place, generation) = {
            let segments = &self.lock().state.segments;
            (segments.place(segment), segments.get(segment).generation)
        };
        let Some(drive) = self.drive(place) else {
            return Ok(());
        };
        let bytes = u64::from(self.label.segment_bytes);
        let end = place.plus(bytes);
        let read = |at: Place| {
            let length = long(STRETCH).min(end.offset() - at.offset());
            Stretch::read(self, io, stock, at, short(length))
        };
        let mut stretch = Some(read(place.plus(long(self.unit()))).await);
        while let Some(present) = stretch {
            let looked = self.living_in(io, &drive, (segment, generation), &present, end);
            let (living, next) = looked.await?;
            // The next one is read meanwhile.
            let following = async {
                match next {
                    Some(next) => Some(read(next).await),
                    None => None,
                }
            };
            let moved = self.move_living(io, segment, living, Some(&present), moves);
            let (moved, following) = join(moved, following).await;
            moved?;
            stretch = following;
        }
        settle_all(std::mem::take(&mut moves.outcomes)).await?;
        let lacks_some = {
            let inner = self.lock();
            // What nothing reads any more is not moved, and counts until it is given back.
            moves.staying < inner.state.segments.get(segment).live
                && !inner.state.catalog.has_dropped()
        };
        if lacks_some {
            // A damaged header hides what its record held; then the maps are asked for every entry there.
            let before = {
                let inner = self.lock();
                let found = *inner.state.segments.get(segment);
                (inner.state.catalog.moves, found)
            };
            let (living, is_all) = self.living_by_maps(io, segment).await?;
            if is_all {
                self.count_anew(segment, living.iter().map(share).sum(), before);
            }
            let moved = self.move_living(io, segment, living, None, moves);
            moved.await?;
        }
        Ok(())
    }

    /// Moves chunks. `stretch`: their bytes, as far as they could be read.
    async fn move_living(
        self: &Arc<Self>,
        io: &Io,
        segment: u32,
        mut living: Vec<Living>,
        stretch: Option<&Stretch<'_>>,
        moves: &mut Moves,
    ) -> Result<(), Failure> {
        living.sort_by_key(|chunk| chunk.stored.place);
        for some in living.chunk_by(|one, other| one.layer == other.layer) {
            for some in some.chunks(MOVED_AT_ONCE) {
                let mut pieces = Vec::with_capacity(some.len());
                for chunk in some {
                    let length = usize::from(chunk.stored.length);
                    let bytes = stretch.and_then(|it| it.bytes(chunk.stored.place, length));
                    let intact = bytes.filter(|it| crc(it) == chunk.stored.crc);
                    let piece = match intact {
                        Some(bytes) => Some(moved_piece(chunk, bytes)),
                        None => self.read_again(io, segment, chunk).await,
                    };
                    match piece {
                        Some(_) => moves.moved += share(chunk),
                        None => moves.staying += share(chunk),
                    }
                    pieces.extend(piece);
                }
                let target = Target::Layer(some[0].layer);
                let put = self.put(io, LaneName::Moved, target, pieces, false, false);
                moves.outcomes.extend(put.await?);
            }
            // Some may be on their way while the next are read.
            if moves.outcomes.len() > OUTCOMES_MAX {
                let half = moves.outcomes.len() / 2;
                settle_all(moves.outcomes.drain(..half).collect()).await?;
            }
        }
        Ok(())
    }

    /// Before data counts as lost, it is read anew, twice or on both sides of a mirror. `None`: it may be read later; until
    /// then it stays.
    async fn read_again(
        self: &Arc<Self>,
        io: &Io,
        segment: u32,
        chunk: &Living,
    ) -> Option<Piece<'static>> {
        let length = usize::from(chunk.stored.length);
        let place = chunk.stored.place;
        let mended = self.mend(io, place, length, chunk.stored.crc).await;
        let again = match mended {
            Mended::Intact(bytes) | Mended::Copied(bytes) => Again::Bytes(bytes),
            Mended::Lost => Again::Lost,
            Mended::NoMirror | Mended::Unreadable => {
                let first = self.read_bytes(io, place, length).await;
                match Again::of(first, chunk, true) {
                    Again::Lost => {
                        let second = self.read_bytes(io, place, length).await;
                        Again::of(second, chunk, mended == Mended::NoMirror)
                    }
                    again => again,
                }
            }
        };
        match again {
            Again::Bytes(bytes) => Some(moved_piece(chunk, bytes.into())),
            Again::Lost => Some(lost_piece(chunk)),
            Again::Unreadable(error) => {
                tracing::warn!(
                    pool = self.name(),
                    segment,
                    offset = place.offset(),
                    %error,
                    "data cannot be read, and is not moved"
                );
                None
            }
        }
    }

    /// What lives in the records of a stretch, by their descriptors, and where the next stretch begins.
    async fn living_in(
        self: &Arc<Self>,
        io: &Io,
        drive: &Drive,
        (segment, generation): (u32, u64),
        stretch: &Stretch<'_>,
        end: Place,
    ) -> Result<(Vec<Living>, Option<Place>), Failure> {
        let mut living = Vec::new();
        let mut at = stretch.first();
        while at.offset() < end.offset() {
            let length = (end.offset() - at.offset()).min(long(HEADER_MAX));
            if at != stretch.first() && at.offset() + length > stretch.end().offset() {
                return Ok((living, Some(at)));
            }
            let again;
            let head = match stretch.bytes(at, short(length)) {
                Some(head) => head,
                None => match drive.read_new(io, at.offset(), short(length)).await {
                    Ok(read) => {
                        again = read;
                        Cow::Borrowed(&again[..])
                    }
                    Err(_) => break,
                },
            };
            let header = match RecordHeader::decode(&head) {
                Ok(header)
                    if header.pool == self.label.pool.as_u64_pair().1
                        && header.segment == segment
                        && header.generation == generation =>
                {
                    header
                }
                Ok(_) | Err(_) => break,
            };
            let payload = at.plus(u64::from(header.header_length));
            let next = payload.plus(u64::from(header.payload_length));
            if at != stretch.first() && next.offset() > stretch.end().offset() {
                return Ok((living, Some(at)));
            }
            loop {
                let collected = collect_living(&self.lock().state, &header, payload);
                match collected {
                    Ok(found) => break living.extend(found),
                    Err(missing) => self.load_leaves(io, &missing, Purpose::Change).await?,
                }
            }
            at = next;
        }
        Ok((living, None))
    }

    /// No more lives in a segment than all maps say: what a damaged leaf had is not known any more. What the
    /// catalogue and the segment were before they were asked comes along.
    fn count_anew(&self, segment: u32, found: u64, (moves, before): (u64, Segment)) {
        let mut inner = self.lock();
        let state = &mut inner.state;
        let present = *state.segments.get(segment);
        // Otherwise some of it may have been on its way from one map to another.
        let is_settled = state.catalog.moves == moves
            && state.catalog.fates.is_empty()
            && [before, present]
                .iter()
                .all(|it| it.used == Use::Sealed && it.staged == 0)
            && before.generation == present.generation;
        if is_settled && found < present.live {
            let place = state.segments.place(segment);
            state.segments.sub_live(place, present.live - found);
            // No record tells of that.
            state.catalog.moves += 1;
        }
    }

    /// What lives in a segment, by all maps, and whether all of those could be read.
    async fn living_by_maps(
        self: &Arc<Self>,
        io: &Io,
        segment: u32,
    ) -> Result<(Vec<Living>, bool), Failure> {
        let mut is_all = true;
        let mut chunks: HashMap<(LayerId, Place), Living> = HashMap::new();
        let mut walk = Walk::new(self, Purpose::Change);
        loop {
            let found = match walk.next(self, io).await {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(Unread {
                    failure: Failure::Unreadable,
                    ..
                }) => {
                    is_all = false;
                    continue;
                }
                Err(unread) => return Err(unread.failure),
            };
            let inner = self.lock();
            for (page, stored) in found.stored() {
                if inner.state.segments.of(stored.place) == Some(segment) {
                    let chunk = chunks.entry((found.layer, stored.place)).or_insert(Living {
                        layer: found.layer,
                        page: page.saturating_sub(u64::from(stored.page)),
                        mask: 0,
                        stored,
                    });
                    chunk.mask |= 1 << stored.page;
                }
            }
        }
        Ok((chunks.into_values().collect(), is_all))
    }
}

fn share(chunk: &Living) -> u64 {
    chunk.stored.share() * u64::from(chunk.mask.count_ones())
}

/// What a second look at a chunk found.
enum Again {
    Bytes(Vec<u8>),
    Lost,
    Unreadable(std::io::Error),
}

impl Again {
    /// `is_final`: what does not match is lost for good.
    fn of(read: Result<(Buffer, usize), ReadError>, chunk: &Living, is_final: bool) -> Self {
        let length = usize::from(chunk.stored.length);
        match read {
            Ok((data, skip)) if crc(&data[skip..skip + length]) == chunk.stored.crc => {
                Self::Bytes(data[skip..skip + length].to_vec())
            }
            Ok(_) if is_final => Self::Lost,
            Ok(_) => Self::Unreadable(ReadError::Checksum.into()),
            Err(error) => Self::Unreadable(error.into()),
        }
    }
}

/// A chunk is moved as it is.
fn moved_piece<'a>(chunk: &Living, bytes: Cow<'a, [u8]>) -> Piece<'a> {
    let stored = &chunk.stored;
    Piece {
        page: chunk.page,
        kind: PartKind::Moved {
            codec: stored.codec,
            pages: stored.pages,
            mask: chunk.mask,
            crc: stored.crc,
            from: stored.place,
        },
        bytes,
        op: None,
    }
}

/// A chunk that is damaged is known to be lost from then on.
fn lost_piece(chunk: &Living) -> Piece<'static> {
    Piece {
        page: chunk.page,
        kind: PartKind::Lost {
            mask: chunk.mask,
            from: chunk.stored.place,
        },
        bytes: Cow::default(),
        op: None,
    }
}

/// Those chunks of a record that the maps refer to.
///
/// # Errors
/// Leaves are needed that are not in memory.
fn collect_living(
    state: &State,
    header: &RecordHeader,
    payload: Place,
) -> Result<Vec<Living>, Vec<Missing>> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for part in &*header.parts {
        let begin = payload.plus(u64::from(part.offset));
        let mut look = |page, pages, place| match living(state, part.layer, page, pages, place) {
            Ok(living) => found.extend(living),
            // Many parts need the same one.
            Err(it) if missing.contains(&it) => {}
            Err(it) => missing.push(it),
        };
        match &part.kind {
            PartKind::Raw { crcs } => {
                for page in 0..long(crcs.len()) {
                    look(part.page + page, 1, begin.plus(page * PAGE_BYTES));
                }
            }
            PartKind::Chunk { pages, .. } | PartKind::Moved { pages, .. } => {
                look(part.page, *pages, begin);
            }
            PartKind::Zero { .. } | PartKind::Lost { .. } | PartKind::Op { .. } => {}
        }
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(missing)
    }
}

/// A chunk, if any of its pages is in use: for each layer that has some of them, which are those of one that is being
/// merged and of that which it is merged into.
fn living(
    state: &State,
    layer: LayerId,
    page: u64,
    pages: u8,
    place: Place,
) -> Result<Vec<Living>, Missing> {
    let mut found: Vec<Living> = Vec::new();
    for number in 0..pages {
        let at = page + u64::from(number);
        let Some(layer) = state.holder(layer, at, place)? else {
            continue;
        };
        if state.catalog.is_dropped(layer) {
            continue;
        }
        let Content::Data(stored) = state.catalog.own(layer, at)?.content() else {
            continue;
        };
        if stored.page != number {
            continue;
        }
        match found.iter_mut().find(|living| living.layer == layer) {
            Some(living) => living.mask |= 1 << number,
            None => found.push(Living {
                layer,
                page,
                mask: 1 << number,
                stored,
            }),
        }
    }
    Ok(found)
}

/// Makes a checkpoint while nothing else is done to the catalogue.
pub(crate) async fn checkpoint_now(pool: &Arc<Pool>, io: &Io) -> Result<(), PoolError> {
    let _held = pool.maintenance.lock().await;
    pool.checkpoint(io).await
}
