//! Checkpoints: the maps on the drives, and the segments that may be written from then on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::drive::SideState;
use crate::error::PoolError;
use crate::format::checkpoint::{Item, PART_HEADER, PartHeader};
use crate::format::record::LayerId;
use crate::format::superblock::{LENGTH, Superblock, copies};
use crate::format::{long, short};
use crate::log::{Failure, LaneName};
use crate::members::{LISTED, Present};
use crate::place::Place;
use crate::pool::{Newest, Pool};
use crate::reserve::{PART, map_reserve};
use crate::segments::Use;
use crate::side::Side;

/// Bytes of records after which another checkpoint is made: what recovery reads at most, and twice that.
pub const INTERVAL: u64 = 1 << 30;

/// Bytes of records after which it is tried again to say which side of a mirror was left out.
const MARK_INTERVAL: u64 = 1 << 20;

/// Segments that are handed out at a time: twice what an interval needs, and some for the lanes.
fn hand_out_max(segment_bytes: u64) -> usize {
    short(2 * INTERVAL / segment_bytes) + 16
}

/// What a checkpoint begins with, taken at one moment.
struct Capture {
    head: Vec<u8>,
    /// The last record that is in the maps.
    record: u64,
    items: u64,
    layers: Vec<LayerId>,
    /// Sealed segments that nothing refers to any more.
    dead: Vec<u32>,
    /// Those that may be written from now on, with their generations.
    hand_out: Vec<(u32, u64)>,
    /// Free segments that the checkpoint itself may take.
    own: Vec<u32>,
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
        let mut capture = self.capture()?;
        let mut dump = Dump::new(self, io, number, std::mem::take(&mut capture.own));
        let result = self.dump(&mut dump, &capture).await;
        let segments = std::mem::take(&mut dump.segments);
        let first = dump.first;
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
                for segment in segments {
                    inner.state.segments.release(segment);
                }
            }
            return Err(error);
        }
        for segment in newest.segments.iter().chain(&capture.dead) {
            inner.state.segments.release(*segment);
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
        inner.features = features;
        inner.measure();
        drop(inner);
        self.members.mark(&listed);
        *self
            .newest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Newest {
            superblock: newest.superblock + 1,
            number,
            segments,
        };
        Ok(())
    }

    /// No superblock that is written gets the next number.
    pub(crate) fn skip_superblock(&self) {
        let newest = self.newest.lock();
        newest
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .superblock += 1;
    }

    pub(crate) fn newest(&self) -> Newest {
        let newest = self.newest.lock();
        newest
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    fn capture(&self) -> Result<Capture, PoolError> {
        let mut inner = self.lock();
        if let Some(failed) = inner.failed {
            return Err(self.error(failed));
        }
        let in_use = inner.segments_in_use();
        let keep = map_reserve(&inner.state);
        let segments = &inner.state.segments;
        let dead: Vec<u32> = segments.dead().collect();
        let mut free: Vec<u32> = segments.free().collect();
        // What is to be moved soon is written last.
        free.sort_by_key(|segment| segments.is_leaving(*segment));
        #[cfg(test)]
        if crate::testing::has_planted(crate::testing::Planted::EarlyReuse) {
            free.extend(&dead);
        }
        // What is dead now is needed until the checkpoint is made, so it takes from what is free.
        let own = free.split_off(free.len().saturating_sub(keep));
        free.extend(segments.reusable());
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
            items: 0,
            layers: inner.state.catalog.layers.keys().copied().collect(),
            dead,
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
                put(&Item::Segment {
                    number,
                    generation: found.generation,
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

    async fn dump(&self, dump: &mut Dump<'_>, capture: &Capture) -> Result<(), PoolError> {
        dump.put(&capture.head).await?;
        let mut items = capture.items;
        for layer in &capture.layers {
            let mut from = 0;
            loop {
                let (bytes, count, next) = self.encode_leaves(*layer, from);
                items += count;
                dump.put(&bytes).await?;
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
        let mut end = Vec::new();
        Item::End { items }.encode(&mut end);
        dump.put(&end).await?;
        dump.finish().await
    }

    /// Some leaves of a layer as items, how many, and where to go on.
    fn encode_leaves(&self, layer: LayerId, mut from: usize) -> (Vec<u8>, u64, Option<usize>) {
        let mut bytes = Vec::new();
        let mut count = 0;
        let inner = self.lock();
        let Some(found) = inner.state.catalog.layers.get(&layer) else {
            return (bytes, 0, None);
        };
        while bytes.len() < PART / 4 {
            let Some((number, leaf)) = found.map.leaf_from(from) else {
                return (bytes, count, None);
            };
            let leaf = Item::Leaf {
                layer,
                number: u32::try_from(number).expect("volumes are at most 256 TiB"),
                leaf: Box::new(leaf.clone()),
            };
            leaf.encode(&mut bytes);
            count += 1;
            from = number + 1;
        }
        (bytes, count, Some(from))
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
                && inner.since_attempt >= segments.bytes()
                && segments.can_gain(map_reserve(&inner.state))
        };
        inner.failed.is_none()
            && (inner.since_attempt >= INTERVAL
                || is_scarce()
                || (self.members.is_unmarked()
                    && (inner.since_attempt >= MARK_INTERVAL
                        || !self.is_mark_late.load(Ordering::Relaxed))))
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

/// A checkpoint on its way to the drives.
struct Dump<'a> {
    pool: &'a Pool,
    io: &'a Io,
    number: u64,
    /// Content that is not written yet.
    content: Vec<u8>,
    index: u32,
    first: Place,
    /// Where the next part goes.
    next: Option<Place>,
    segments: Vec<u32>,
    /// Segments that it may take.
    own: Vec<u32>,
}

impl<'a> Dump<'a> {
    const fn new(pool: &'a Pool, io: &'a Io, number: u64, own: Vec<u32>) -> Self {
        Self {
            pool,
            io,
            number,
            content: Vec::new(),
            index: 0,
            first: Place::from_bits(0),
            next: None,
            segments: Vec::new(),
            own,
        }
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<(), PoolError> {
        self.content.extend_from_slice(bytes);
        while self.content.len() > PART - PART_HEADER {
            self.write(PART - PART_HEADER, false).await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), PoolError> {
        self.write(self.content.len(), true).await
    }

    async fn write(&mut self, length: usize, is_last: bool) -> Result<(), PoolError> {
        let place = match self.next {
            Some(place) => place,
            None => {
                self.first = self.begin_segment().await?;
                self.first
            }
        };
        self.next = if is_last {
            None
        } else {
            let segment = self.pool.lock().state.segments.of(place);
            let next = place.plus(long(PART));
            let stays = self.pool.lock().state.segments.of(next) == segment;
            Some(if stays {
                next
            } else {
                self.begin_segment().await?
            })
        };
        let drive = self.pool.drive(place).expect("segments lie on drives");
        let padded = (PART_HEADER + length).next_multiple_of(self.pool.unit());
        let mut buffer = Buffer::try_allocate(padded).ok_or(PoolError::OutOfMemory)?;
        buffer[PART_HEADER..PART_HEADER + length].copy_from_slice(&self.content[..length]);
        self.content.drain(..length);
        let header = PartHeader {
            pool: self.pool.label.pool,
            checkpoint: self.number,
            index: self.index,
            length: u32::try_from(length).expect("at most 256 KiB"),
            next: self.next,
        };
        header.seal(&mut buffer);
        self.index += 1;
        let (result, _) = drive
            .write(self.io, place.offset(), buffer, 0..padded, false)
            .await;
        result.map_err(|error| drive.error("write", error))
    }

    async fn begin_segment(&mut self) -> Result<Place, PoolError> {
        let (segment, place) = {
            let mut inner = self.pool.lock();
            // One that may be written, and was not begun, does as well: recovery finds no records there.
            let found = self
                .own
                .pop()
                .or_else(|| inner.state.segments.ready.pop_back());
            let Some(segment) = found else {
                return Err(self.pool.error(Failure::NoSpace));
            };
            inner.state.segments.get_mut(segment).used = Use::Map;
            (segment, inner.state.segments.place(segment))
        };
        self.segments.push(segment);
        let drive = self.pool.drive(place).expect("segments lie on drives");
        let bytes = u64::from(self.pool.label.segment_bytes);
        let reserved = drive.reserve(self.io, place.offset(), bytes).await;
        reserved.map_err(|error| drive.error("fallocate", error))?;
        Ok(place)
    }
}
