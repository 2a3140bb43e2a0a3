//! Checkpoints: the maps on the drives, and the segments that may be written from then on.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, StreamExt};
use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::cache::Missing;
use crate::drive::SideState;
use crate::dump::{Leaves, Own, Stream};
use crate::error::PoolError;
use crate::format::checkpoint::{Item, LeafRecord};
use crate::format::record::LayerId;
use crate::format::short;
use crate::format::superblock::{LENGTH, Superblock, copies};
use crate::leaf::{Home, Leaf};
use crate::leaves::{LeafError, read_leaf, warn_lost};
use crate::log::LaneName;
use crate::map::{self, BRANCH_LEAVES, Slot};
use crate::members::{LISTED, Present};
use crate::place::Place;
use crate::pool::{Newest, Pool};
use crate::reserve::map_reserve;
use crate::segments::{Segments, Use};
use crate::side::Side;
use crate::tail::Tail;

/// Bytes of records after which another checkpoint is made: what recovery reads at most, and twice that.
pub const INTERVAL: u64 = 1 << 30;

/// Bytes of records after which it is tried again to say which side of a mirror was left out, or to do what is left
/// to do otherwise.
const MARK_INTERVAL: u64 = 1 << 20;

/// Segments that are handed out at a time: twice what an interval needs, and some for the lanes.
fn hand_out_max(segment_bytes: u64) -> usize {
    short(2 * INTERVAL / segment_bytes) + 16
}

/// Leaves that are taken note of while the pool is locked.
const SETTLED_AT_ONCE: usize = 256;

/// Segments with leaves that are emptied at a time: for the drive that is to be removed, and because they have few.
const LEAVING_MAX: usize = 4;
const EMPTIED_MAX: usize = 8;

/// Leaves that are read at once to be written elsewhere.
const READS_MAX: usize = 16;

/// What a pool holds at one moment.
struct Capture {
    /// What the checkpoint begins with.
    head: Vec<u8>,
    /// The last record that is in the maps.
    record: u64,
    /// Changes that no record tells of.
    moves: u64,
    items: u64,
    maps: Vec<(LayerId, map::Capture)>,
    /// Segments that nothing refers to any more.
    dead: Vec<u32>,
    /// Where the segments begin whose leaves are to be written elsewhere.
    emptied: Vec<Place>,
    /// Where leaves may go on.
    tail: Option<Tail>,
    /// Those that may be written from now on, with their generations.
    hand_out: Vec<(u32, u64)>,
    /// Free segments that the checkpoint itself may take.
    own: Own,
}

/// What a checkpoint has of leaves.
#[derive(Default)]
struct Written {
    moved: Vec<Moved>,
    /// Where the segments begin that it names.
    named: HashSet<Place>,
    /// Leaves that were to be written elsewhere, and are damaged where they lie.
    damaged: Vec<Missing>,
}

/// A leaf that was written.
struct Moved {
    layer: LayerId,
    number: u32,
    captured: Slot,
    home: Home,
}

impl Pool {
    /// Makes a checkpoint. The caller holds [`Self::maintenance`].
    pub(crate) async fn checkpoint(self: &Arc<Self>, io: &Io) -> Result<(), PoolError> {
        let _held = self.checkpoints.lock().await;
        let present = self.members.present();
        self.checkpoint_on(io, &present, News::Nothing).await
    }

    /// Makes a checkpoint whose superblocks list these drives. The caller holds [`Self::checkpoints`].
    pub(crate) async fn checkpoint_on(
        self: &Arc<Self>,
        io: &Io,
        present: &Present,
        news: News,
    ) -> Result<(), PoolError> {
        let made = self.try_checkpoint(io, present, news).await;
        let is_late = made.is_err() && self.members.is_unmarked();
        self.is_mark_late.store(is_late, Ordering::Relaxed);
        made
    }

    async fn try_checkpoint(
        self: &Arc<Self>,
        io: &Io,
        present: &Present,
        news: News,
    ) -> Result<(), PoolError> {
        let newest = self.newest();
        let number = newest.number + 1;
        let mut capture = self.capture(newest.tail)?;
        let mut stream = Stream::new(self, io, number);
        let mut leaves = Leaves::new(self, io, number, capture.tail);
        let mut written = Written::default();
        let result = self
            .dump(io, &mut stream, &mut leaves, &mut capture, &mut written)
            .await;
        // What it shares with the maps is copied no more.
        capture.maps = Vec::new();
        let segments = std::mem::take(&mut stream.segments);
        let first = stream.first;
        let features = self.lock().features_wanted;
        let mut listed = Vec::new();
        // A side that fails to sync what the checkpoint needs is stale in the superblocks that name it.
        let result = match result {
            Ok(()) => self.sync_drives(io).await,
            Err(error) => Err(error),
        };
        let put = match result {
            Ok(()) => {
                let mut now = present.as_they_are();
                if let News::Filled { drive, side } = news {
                    now.list_current(drive, side);
                }
                let plain = self.label.superblock(&now, 0);
                listed.clone_from(&plain.drives);
                let named = Superblock {
                    incompatible: plain.incompatible | features & !LISTED,
                    number: newest.superblock + 1,
                    checkpoint: first,
                    checkpoint_number: number,
                    checkpoint_record: capture.record,
                    ..plain
                };
                self.publish(io, &named, present, news).await
            }
            Err(error) => Err(error),
        };
        let mut inner = self.lock();
        inner.since_attempt = 0;
        if let Err(error) = put {
            // What was written there is nobody's, unless a superblock may name it.
            if inner.failed.is_none() {
                for segment in segments.into_iter().chain(leaves.segments) {
                    inner.state.segments.release(segment);
                }
            }
            return Err(error);
        }
        drop(inner);
        self.settle_leaves(&written.moved);
        let mut inner = self.lock();
        for damaged in &written.damaged {
            if inner.state.take_leaf(damaged, None) {
                warn_lost(self.name(), damaged);
            }
        }
        for segment in newest.segments.iter().chain(&capture.dead) {
            inner.state.segments.release(*segment);
        }
        let is_needed = |segment: u32| {
            leaves.tail.is_some_and(|tail| tail.segment == segment)
                || written.named.contains(&inner.state.segments.place(segment))
        };
        let dead = inner.state.segments.dead_leaves();
        let dead: Vec<u32> = dead.filter(|it| !is_needed(*it)).collect();
        for segment in dead {
            inner.state.segments.release(segment);
        }
        for (segment, generation) in capture.hand_out {
            let found = inner.state.segments.get_mut(segment);
            if found.used == Use::Free {
                found.used = Use::Ready;
                found.generation = generation;
                inner.state.segments.ready.push_back(segment);
            }
        }
        inner.since_checkpoint = 0;
        inner.moves_before = capture.moves;
        inner.features = features;
        inner.measure();
        inner.state.catalog.cache.relax();
        inner.state.catalog.evict_all();
        inner.clogged.clear();
        drop(inner);
        self.members.mark(&listed);
        *self
            .newest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Newest {
            superblock: newest.superblock + 1,
            number,
            record: capture.record,
            segments,
            tail: leaves.tail,
        };
        Ok(())
    }

    /// Takes note of where leaves are now.
    fn settle_leaves(&self, moved: &[Moved]) {
        for some in moved.chunks(SETTLED_AT_ONCE) {
            let mut inner = self.lock();
            let state = &mut inner.state;
            let catalog = &mut state.catalog;
            for leaf in some {
                let layer = catalog.layers.get_mut(&leaf.layer);
                let freed = layer.map_or(Some(leaf.home), |layer| {
                    let cache = &mut catalog.cache;
                    layer
                        .map
                        .settle(leaf.number, &leaf.captured, leaf.home, cache)
                });
                if freed != Some(leaf.home) {
                    state.segments.add_leaf(leaf.home.place, leaf.home.bytes());
                    if let Some(freed) = freed {
                        state.segments.sub_leaf(freed.place, freed.bytes());
                    }
                }
            }
        }
    }

    /// The next leaf is not put behind those that are there.
    pub(crate) fn forget_tail(&self) {
        let newest = self.newest.lock();
        newest
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .tail = None;
    }

    /// No superblock that is written gets the next number.
    pub(crate) fn skip_superblock(&self) {
        let newest = self.newest.lock();
        newest
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .superblock += 1;
    }

    /// The last record that the newest checkpoint has.
    pub(crate) fn newest_record(&self) -> u64 {
        let newest = self.newest.lock();
        newest
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .record
    }

    pub(crate) fn newest(&self) -> Newest {
        let newest = self.newest.lock();
        newest
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    fn capture(&self, tail: Option<Tail>) -> Result<Capture, PoolError> {
        let mut inner = self.lock();
        if let Some(failed) = inner.failed {
            return Err(self.error(failed));
        }
        let in_use = inner.segments_in_use();
        let keep = map_reserve(&inner.state);
        let segments = &inner.state.segments;
        let tail = tail.filter(|tail| {
            segments.get(tail.segment).used == Use::Leaves && !segments.is_leaving(tail.segment)
        });
        let is_tail = |segment: u32| tail.is_some_and(|tail| tail.segment == segment);
        let emptied = emptied(segments, is_tail);
        let emptied = emptied.into_iter().map(|it| segments.place(it)).collect();
        let dead: Vec<u32> = segments.dead().collect();
        let mut free: Vec<u32> = segments.free().collect();
        // What is to be moved soon is written last.
        free.sort_by_key(|segment| segments.is_leaving(*segment));
        #[cfg(test)]
        if crate::testing::has_planted(crate::testing::Planted::EarlyReuse) {
            free.extend(&dead);
        }
        // What is dead now is needed until the checkpoint is made, so it takes from what is free.
        let mut own = free.split_off(free.len().saturating_sub(keep));
        // It takes the last first.
        own.reverse();
        let mut dead_now: Vec<u32> = segments.reusable().collect();
        // Enough for the lanes comes first, then what the next checkpoint needs, then more for the lanes.
        let for_lanes = LaneName::Data
            .floor()
            .saturating_sub(segments.ready.len() + free.len());
        let for_maps = keep.saturating_sub(own.len());
        let first = for_lanes.min(dead_now.len());
        let kept = for_maps.min(dead_now.len() - first);
        dead_now.drain(first..first + kept);
        free.extend(dead_now);
        let most = hand_out_max(segments.bytes()).saturating_sub(segments.ready.len());
        free.truncate(most);
        let ready: Vec<u32> = segments.ready.iter().copied().collect();
        let mut generation = inner.next_generation;
        let mut hand_out = Vec::new();
        for segment in in_use.into_iter().chain(ready) {
            hand_out.push((segment, inner.state.segments.get(segment).generation));
        }
        for segment in free {
            hand_out.push((segment, generation));
            generation += 1;
        }
        inner.next_generation = generation;
        let record = inner.state.applied;
        let mut capture = Capture {
            head: Vec::new(),
            record,
            moves: inner.state.catalog.moves,
            items: 0,
            maps: {
                let layers = inner.state.catalog.layers.iter();
                layers.map(|(id, it)| (*id, it.map.capture())).collect()
            },
            dead,
            emptied,
            tail,
            hand_out,
            own,
        };
        let mut put = |item: &Item| {
            item.encode(&mut capture.head);
            capture.items += 1;
        };
        put(&Item::Head {
            record,
            next_generation: generation,
            next_layer: inner.state.catalog.next_layer,
        });
        inner.state.catalog.for_each_item(&mut put);
        for (number, found) in inner.state.segments.iter() {
            if matches!(found.used, Use::Sealed | Use::Open) {
                put(&Item::Data {
                    number,
                    generation: found.generation,
                    live: found.live,
                });
            }
        }
        for (number, generation) in &capture.hand_out {
            put(&Item::HandOut {
                number: *number,
                generation: *generation,
            });
        }
        Ok(capture)
    }

    async fn dump(
        &self,
        io: &Io,
        stream: &mut Stream<'_>,
        leaves: &mut Leaves<'_>,
        capture: &mut Capture,
        written: &mut Written,
    ) -> Result<(), PoolError> {
        let mut own = std::mem::take(&mut capture.own);
        stream.put(&capture.head, &mut own).await?;
        let mut items = capture.items;
        for (layer, branches) in &capture.maps {
            for (branch, found) in branches.iter().enumerate() {
                let Some(found) = found else {
                    continue;
                };
                let mut records = Vec::with_capacity(BRANCH_LEAVES);
                let (all, emptied) = (found.slots(), &capture.emptied);
                let bytes = all.map(|(place, slot)| {
                    let number = u32::try_from(branch * BRANCH_LEAVES + place);
                    let number = number.expect("volumes are at most 256 TiB");
                    async move {
                        let bytes = self.leaf_bytes(io, emptied, *layer, number, slot).await;
                        (number, slot, bytes)
                    }
                });
                let mut bytes = stream::iter(bytes).buffered(READS_MAX);
                while let Some((number, slot, bytes)) = bytes.next().await {
                    let bytes = bytes.unwrap_or_else(|damaged| {
                        written.damaged.push(damaged);
                        None
                    });
                    let home = match (bytes, slot.home()) {
                        (Some(bytes), _) => {
                            let home = leaves.put(&bytes, &mut own).await?;
                            written.moved.push(Moved {
                                layer: *layer,
                                number,
                                captured: slot.clone(),
                                home,
                            });
                            home
                        }
                        (None, Some(home)) => home,
                        (None, None) => continue,
                    };
                    written
                        .named
                        .insert(home.place.segment(u64::from(self.label.segment_bytes)));
                    records.push(LeafRecord {
                        number,
                        home,
                        present: slot.present(),
                        owned: slot.owned(),
                    });
                }
                let mut bytes = Vec::new();
                let homes = Item::Homes {
                    layer: *layer,
                    leaves: records,
                };
                homes.encode(&mut bytes);
                items += 1;
                stream.put(&bytes, &mut own).await?;
            }
        }
        leaves.flush().await?;
        let mut end = Vec::new();
        Item::End { items }.encode(&mut end);
        stream.put(&end, &mut own).await?;
        stream.finish(&mut own).await
    }

    /// The bytes of a leaf, if it has to be written.
    async fn leaf_bytes(
        &self,
        io: &Io,
        emptied: &[Place],
        layer: LayerId,
        number: u32,
        slot: &Slot,
    ) -> Result<Option<Vec<u8>>, Missing> {
        if let Some(leaf) = slot.leaf().filter(|_| slot.is_dirty()) {
            return Ok(Some(encoded(layer, number, leaf)));
        }
        let Some(home) = slot.home().filter(|_| !emptied.is_empty()) else {
            return Ok(None);
        };
        let segment = home.place.segment(u64::from(self.label.segment_bytes));
        let drive = self.drive(home.place);
        let Some(drive) = drive.filter(|_| emptied.contains(&segment)) else {
            return Ok(None);
        };
        if let Some(leaf) = slot.leaf() {
            return Ok(Some(encoded(layer, number, leaf)));
        }
        match read_leaf(io, &drive, home).await {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(LeafError::Damaged) => Err(Missing {
                layer,
                number,
                home,
            }),
            Err(LeafError::Io(error)) => {
                // It stays where it is, and is seen to when somebody needs it.
                tracing::warn!(
                    pool = self.name(),
                    path = %drive.path.display(),
                    offset = home.place.offset(),
                    %error,
                    "a part of a map cannot be moved"
                );
                Ok(None)
            }
        }
    }

    /// Has the superblocks name a checkpoint that was written. A fresh drive has its own before the others list it: a
    /// pool that is listed on any drive opens.
    async fn publish(
        self: &Arc<Self>,
        io: &Io,
        named: &Superblock,
        present: &Present,
        news: News,
    ) -> Result<(), PoolError> {
        let is_fresh = |number, side| news.has_none_yet(number, side);
        for (number, drive) in present.each() {
            for (side, file) in drive.written().filter(|(side, _)| is_fresh(number, *side)) {
                for place in copies(file.bytes).concat() {
                    write_superblock(io, file, place, &of_side(named, number, side)).await?;
                }
                self.sync_drives(io).await?;
            }
            // One that failed before it got its superblocks is not listed.
            for (side, file) in drive.sides().filter(|(side, _)| is_fresh(number, *side)) {
                if drive.is_mirror && drive.state(side) == SideState::Stale {
                    return Err(PoolError::SideFailed {
                        pool: self.name().to_owned(),
                        path: file.path.clone(),
                    });
                }
            }
        }
        for pair in 0..2 {
            for (number, drive) in present.each() {
                for (side, file) in drive.written().filter(|(side, _)| !is_fresh(number, *side)) {
                    for place in copies(file.bytes)[pair] {
                        match write_superblock(io, file, place, &of_side(named, number, side)).await
                        {
                            Ok(()) => {}
                            Err(error @ PoolError::Io { .. })
                                if drive.fail(side, "write", &as_io(&error)) =>
                            {
                                break;
                            }
                            Err(error) => {
                                self.poison("write of a superblock", &as_io(&error));
                                return Err(error);
                            }
                        }
                    }
                }
            }
            self.sync_drives(io).await?;
        }
        Ok(())
    }

    async fn sync_drives(self: &Arc<Self>, io: &Io) -> Result<(), PoolError> {
        let synced = self.sync_all(io).await;
        synced.map_err(|failure| self.error(failure))
    }

    /// Whether a checkpoint or cleaning is due.
    pub(crate) fn wants_house(&self) -> bool {
        if self.keeps_house.load(std::sync::atomic::Ordering::Acquire) {
            return false;
        }
        let inner = self.lock();
        let segments = &inner.state.segments;
        let is_scarce = || {
            segments.ready.len() <= LaneName::Data.floor() + 2
                && inner.since_round >= segments.bytes()
                && segments.can_gain(map_reserve(&inner.state))
        };
        inner.failed.is_none()
            && (inner.since_attempt >= INTERVAL
                || is_scarce()
                || (self.members.is_unmarked()
                    && (inner.since_attempt >= MARK_INTERVAL
                        || !self.is_mark_late.load(Ordering::Relaxed)))
                || (inner.since_attempt >= MARK_INTERVAL
                    && (inner.state.catalog.cache.is_soiled()
                        || !inner.state.catalog.fates.is_empty())))
    }
}

/// What superblocks say of a drive that they did not say before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    /// It is part of the pool. It has no superblocks yet, and gets its own before others list it.
    NewDrive(u8),
    /// The same of a side.
    NewSide {
        drive: u8,
        side: u8,
    },
    /// A side is current that was being filled until now. While this is not on the medium, the other side is not left
    /// out.
    Filled {
        drive: u8,
        side: u8,
    },
}

impl News {
    fn has_none_yet(self, number: u8, of: u8) -> bool {
        #[cfg(test)]
        if crate::testing::has_planted(crate::testing::Planted::ListsBeforeTheDrive) {
            return false;
        }
        match self {
            Self::NewDrive(drive) => drive == number,
            Self::NewSide { drive, side } => (drive, side) == (number, of),
            Self::Nothing | Self::Filled { .. } => false,
        }
    }
}

/// Segments with so few leaves that they are written elsewhere, and those of the drive that is to be removed.
fn emptied(segments: &Segments, is_tail: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut all: Vec<(u64, u32)> = segments
        .of_leaves()
        .filter(|(number, live)| *live > 0 && !is_tail(*number))
        .map(|(number, live)| (live, number))
        .collect();
    all.sort_unstable();
    let leaving = all.iter().map(|(_, number)| *number);
    let leaving = leaving.filter(|it| segments.is_leaving(*it));
    let mut emptied: Vec<u32> = leaving.take(LEAVING_MAX).collect();
    let live: u64 = all.iter().map(|(live, _)| live).sum();
    // At least half of what they take lives.
    let most = short(live * 2 / segments.bytes()) + 1;
    let spare = all.len().saturating_sub(most);
    let few = all.iter().filter(|(live, _)| *live < segments.bytes() / 2);
    let few = few.take(spare.min(EMPTIED_MAX)).map(|(_, number)| *number);
    emptied.extend(few);
    emptied
}

fn encoded(layer: LayerId, number: u32, leaf: &Leaf) -> Vec<u8> {
    let mut bytes = Vec::new();
    Item::encode_leaf(&mut bytes, layer, number, leaf);
    bytes
}

fn as_io(error: &PoolError) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

fn of_side(named: &Superblock, drive: u8, side: u8) -> Superblock {
    Superblock {
        drive,
        side,
        ..named.clone()
    }
}

/// Writes a copy of a superblock.
pub(crate) async fn write_superblock(
    io: &Io,
    side: &Side,
    place: u64,
    superblock: &Superblock,
) -> Result<(), PoolError> {
    let mut buffer = Buffer::try_allocate(LENGTH).ok_or(PoolError::OutOfMemory)?;
    buffer.copy_from_slice(&superblock.encode());
    let (result, _) = side.write(io, place, buffer, 0..LENGTH, false).await;
    result.map_err(|error| side.error("write", error))
}
