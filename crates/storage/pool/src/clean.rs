//! Keeps house: moves what lives in segments that are mostly dead, and makes checkpoints, so that there is space to
//! write.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::cache::Missing;
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::record::{LayerId, PartKind, RecordHeader};
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
use crate::tidy::{TIDY_IN_A_HURRY, TIDY_IN_A_ROUND, Tidied};
use crate::walk::{Unread, Walk};

/// Bytes that are read at once when segments are cleaned.
const STEP_BYTES: usize = 512 << 10;

/// Rounds of cleaning and a checkpoint, until those that wait for space are told that there is none.
const ROUNDS_MAX: u32 = 64;

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
    }
}

impl House {
    async fn keep(self, io: &Io) {
        let pool = &self.0;
        let mut rounds = 0;
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
            // What is about to be given back need not be moved away from.
            let moved = match has_more {
                true => 0,
                false => self.clean(io).await,
            };
            let made = pool.checkpoint(io).await;
            drop(held);
            if let Err(error) = &made {
                tracing::warn!(pool = pool.name(), %error, "no checkpoint was made");
            }
            let mut inner = pool.lock();
            // Those whose lane may begin a segment now go on.
            let starved = std::mem::take(&mut inner.starved);
            for (lane, waiter) in starved {
                if inner.may_begin(lane) {
                    let _ = waiter.send(true);
                } else {
                    inner.starved.push((lane, waiter));
                }
            }
            let ready = inner.state.segments.ready.len();
            let gains = moved > 0 || ready > before;
            if let Err(error) = &made {
                let failure = match error {
                    PoolError::NoSpace { .. } => Failure::NoSpace,
                    PoolError::OutOfMemory => Failure::OutOfMemory,
                    _ => Failure::Unreadable,
                };
                for waiter in std::mem::take(&mut inner.clogged) {
                    let _ = waiter.send(Err(failure));
                }
            }
            let is_enough = inner.starved.is_empty()
                && (ready > LaneName::Data.floor() + 2
                    || !inner.state.segments.can_gain(map_reserve(&inner.state)));
            // After a checkpoint, or when there is memory, it can be done.
            let waits = matches!(tidied, Ok(Tidied::Nothing) | Err(Failure::OutOfMemory));
            if made.is_err() || !has_more && !waits && (is_enough || !gains) {
                break;
            }
        }
        for (_, waiter) in std::mem::take(&mut pool.lock().starved) {
            let _ = waiter.send(false);
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
    async fn clean(&self, io: &Io) -> u64 {
        let pool = &self.0;
        let mut cleaned = Vec::new();
        let mut moved = 0;
        loop {
            let victim = {
                let inner = pool.lock();
                let segments = &inner.state.segments;
                if inner.failed.is_some() || segments.spare() >= spare_wanted(&inner.state) {
                    return moved;
                }
                // Moves change the maps; a checkpoint comes first.
                if inner.state.catalog.cache.is_clogged() {
                    return moved;
                }
                let Some(victim) = segments.victim(&cleaned) else {
                    return moved;
                };
                if segments.get(victim).live + long(STEP_BYTES) > inner.room_for_moves() {
                    return moved;
                }
                victim
            };
            cleaned.push(victim);
            match pool.clean_segment(io, victim).await {
                Ok(bytes) => moved += bytes,
                Err(Failure::NoSpace) => return moved,
                Err(failure) => {
                    let error = pool.error(failure);
                    tracing::warn!(pool = pool.name(), segment = victim, %error, "a segment could \
                        not be cleaned");
                    // Others may be, if only a part of the maps cannot be read.
                    if failure != Failure::Unreadable {
                        return moved;
                    }
                }
            }
        }
    }
}

impl Pool {
    /// Moves what lives in a segment. Returns its bytes.
    pub(crate) async fn clean_segment(
        self: &Arc<Self>,
        io: &Io,
        segment: u32,
    ) -> Result<u64, Failure> {
        let pool = self;
        let (place, _pin) = {
            let inner = pool.lock();
            let place = inner.state.segments.place(segment);
            (place, inner.state.segments.pin(place))
        };
        let Some(drive) = pool.drive(place) else {
            return Ok(0);
        };
        let mut living = self.living_by_records(io, &drive, segment, place).await?;
        let found: u64 = living.iter().map(share).sum();
        let lacks_some = {
            let inner = self.lock();
            // What nothing reads any more is not moved, and counts until it is given back.
            found < inner.state.segments.get(segment).live && !inner.state.catalog.has_dropped()
        };
        if lacks_some {
            // A damaged header hides what its record held; then the maps are asked for every entry there.
            let before = {
                let inner = self.lock();
                let found = *inner.state.segments.get(segment);
                (inner.state.catalog.moves, found)
            };
            let (found, is_all) = self.living_by_maps(io, segment).await?;
            living = found;
            if is_all {
                self.count_anew(segment, living.iter().map(share).sum(), before);
            }
        }
        living.sort_by_key(|chunk| chunk.stored.place);
        let mut moved = 0;
        let mut outcomes: Vec<Outcome> = Vec::new();
        let mut rest = &living[..];
        while !rest.is_empty() {
            let (step, more) = rest.split_at(step_length(rest));
            rest = more;
            let first = step[0].stored.place;
            // What cannot be read at once is read one by one.
            let read = pool.read_bytes(io, first, span(step)).await.ok();
            for chunk in step {
                let length = usize::from(chunk.stored.length);
                let bytes = read.as_ref().map(|(data, skip)| {
                    let start = skip + short(chunk.stored.place.offset() - first.offset());
                    &data[start..start + length]
                });
                let piece = if let Some(bytes) = bytes.filter(|it| crc(it) == chunk.stored.crc) {
                    moved_piece(chunk, bytes.into())
                } else {
                    // Before data counts as lost, it is read a second time, on both sides of a mirror.
                    let mended = pool
                        .mend(io, chunk.stored.place, length, chunk.stored.crc)
                        .await;
                    let again = match mended {
                        Mended::Intact(bytes) | Mended::Copied(bytes) => Again::Bytes(bytes),
                        Mended::Lost => Again::Lost,
                        Mended::NoMirror | Mended::Unreadable => {
                            let read = pool.read_bytes(io, chunk.stored.place, length).await;
                            Again::of(read, chunk, mended == Mended::NoMirror)
                        }
                    };
                    match again {
                        Again::Bytes(bytes) => moved_piece(chunk, bytes.into()),
                        Again::Lost => lost_piece(chunk),
                        // It may be read later; until then it stays.
                        Again::Unreadable(error) => {
                            tracing::warn!(
                                pool = pool.name(),
                                segment,
                                offset = chunk.stored.place.offset(),
                                %error,
                                "data cannot be read, and is not moved"
                            );
                            continue;
                        }
                    }
                };
                moved += share(chunk);
                let target = Target::Layer(chunk.layer);
                let put = pool.put(io, LaneName::Moved, target, vec![piece], false, false);
                outcomes.extend(put.await?);
            }
            // Some steps may be on their way while the next is read.
            if outcomes.len() > 4 {
                settle_all(std::mem::take(&mut outcomes)).await?;
            }
        }
        settle_all(outcomes).await?;
        Ok(moved)
    }

    /// What lives in a segment, by the descriptors of its records.
    async fn living_by_records(
        self: &Arc<Self>,
        io: &Io,
        drive: &Drive,
        segment: u32,
        place: Place,
    ) -> Result<Vec<Living>, Failure> {
        let pool = self;
        let bytes = u64::from(pool.label.segment_bytes);
        let generation = pool.lock().state.segments.get(segment).generation;
        let mut living = Vec::new();
        let mut at = long(pool.unit());
        while at < bytes {
            let length = (bytes - at).min(long(crate::format::record::HEADER_MAX));
            let read = drive.read_new(io, place.offset() + at, short(length)).await;
            let Ok(head) = read else {
                return Ok(living);
            };
            match RecordHeader::decode(&head) {
                Ok(header)
                    if header.pool == pool.label.pool.as_u64_pair().1
                        && header.segment == segment
                        && header.generation == generation =>
                {
                    let payload = place.plus(at + u64::from(header.header_length));
                    loop {
                        let collected = collect_living(&pool.lock().state, &header, payload);
                        match collected {
                            Ok(found) => break living.extend(found),
                            Err(missing) => pool.load_leaves(io, &missing, Purpose::Change).await?,
                        }
                    }
                    at += u64::from(header.header_length) + u64::from(header.payload_length);
                }
                Ok(_) | Err(_) => return Ok(living),
            }
        }
        Ok(living)
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

/// From the start of the first chunk to the end of the last; they are sorted, and lie in one segment.
fn span(living: &[Living]) -> usize {
    let end = |chunk: &Living| chunk.stored.place.offset() + u64::from(chunk.stored.length);
    // The last one may end before others where the drive says nonsense.
    let end = living.iter().map(end).max();
    match living.first().zip(end) {
        Some((first, end)) => short(end - first.stored.place.offset()),
        None => 0,
    }
}

/// Chunks that are read at once.
fn step_length(living: &[Living]) -> usize {
    let fits = (1..=living.len()).take_while(|count| span(&living[..*count]) <= STEP_BYTES);
    fits.last().unwrap_or(1)
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
