//! The segments of a pool: what each is used for, and how much of it lives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::format::RESERVED_BYTES;
use crate::format::superblock::DriveEntry;
use crate::place::Place;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is used for nothing.
    Free,
    /// The newest checkpoint says that it may be written.
    Ready,
    /// Records are written to it.
    Open,
    /// Its lane writes to another one.
    Sealed,
    /// It holds a part of a checkpoint.
    Map,
    /// It holds leaves of maps.
    Leaves,
    /// Its drive was removed, or is about to be: nothing is written there.
    Gone,
}

/// What is known of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub generation: u64,
    /// Bytes that entries of maps refer to.
    pub live: u64,
    /// Records that are written and not yet in the maps.
    pub staged: u32,
    /// Number of the last record there, or a higher one.
    pub last: u64,
    pub used: Use,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Segments {
    drives: Vec<DriveEntry>,
    bytes: u64,
    list: Vec<Segment>,
    /// Those that may be written, in the order of their use.
    pub ready: VecDeque<u32>,
    /// Readers that look at a segment without the lock, by drives.
    pins: Vec<Arc<[AtomicU32]>>,
    /// The drive that is to be removed.
    leaving: Option<u8>,
    /// Nothing is written there any more.
    is_closed: bool,
    /// Bytes that live in all of them.
    pub live: u64,
}

/// What a segment has to gain to be cleaned: this part of what the emptiest one gains.
const GAIN_SHARE: u64 = 4;

/// What the worth of cleaning a segment is counted in, so that small ones differ.
const WORTH_UNIT: u128 = 1 << 20;

/// Keeps a segment from being used anew.
#[derive(Debug)]
pub struct Pin {
    pins: Arc<[AtomicU32]>,
    segment: usize,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins[self.segment].fetch_sub(1, Ordering::Release);
    }
}

fn index(segment: u32) -> usize {
    usize::try_from(segment).expect("32 bits fit")
}

impl Segments {
    #[must_use]
    pub fn new(drives: Vec<DriveEntry>, segment_bytes: u32) -> Self {
        let mut segments = Self {
            drives: Vec::new(),
            bytes: u64::from(segment_bytes),
            list: Vec::new(),
            ready: VecDeque::new(),
            pins: Vec::new(),
            leaving: None,
            is_closed: false,
            live: 0,
        };
        drives
            .into_iter()
            .for_each(|drive| segments.add_drive(drive));
        segments
    }

    /// A drive comes behind the others.
    pub fn add_drive(&mut self, drive: DriveEntry) {
        let segment = Segment {
            generation: 0,
            live: 0,
            staged: 0,
            last: 0,
            used: match drive.is_removed() {
                true => Use::Gone,
                false => Use::Free,
            },
        };
        let end = index(drive.first_segment + drive.segments);
        self.list.resize(end, segment);
        // Nobody reads where no drive is.
        let pins = if drive.is_removed() {
            0
        } else {
            drive.segments
        };
        self.pins
            .push((0..pins).map(|_| AtomicU32::new(0)).collect());
        self.drives.push(drive);
    }

    /// These are the drives now: one is gone, on which nothing was left.
    pub fn set_drives(&mut self, drives: Vec<DriveEntry>) {
        self.leaving = None;
        self.is_closed = false;
        self.pins.truncate(drives.len());
        let end = drives
            .last()
            .map_or(0, |drive| index(drive.first_segment + drive.segments));
        self.list.truncate(end);
        self.ready.retain(|segment| index(*segment) < end);
        self.drives = drives;
    }

    /// A drive is to be removed: it counts no more.
    pub fn begin_leaving(&mut self, drive: u8) {
        self.leaving = Some(drive);
        self.is_closed = false;
    }

    /// Nothing is written to the drive that is to be removed from now on.
    pub fn close_leaving(&mut self) {
        let Some(drive) = self.leaving else {
            return;
        };
        self.is_closed = true;
        for segment in self.of_drive(drive) {
            let found = self.get_mut(segment);
            if matches!(found.used, Use::Free | Use::Ready) {
                found.used = Use::Gone;
            }
        }
        let list = &self.list;
        self.ready
            .retain(|segment| list[index(*segment)].used == Use::Ready);
    }

    /// The drive stays after all.
    pub fn stop_leaving(&mut self) {
        self.is_closed = false;
        if let Some(drive) = self.leaving.take() {
            for segment in self.of_drive(drive) {
                let found = self.get_mut(segment);
                if found.used == Use::Gone {
                    found.used = Use::Free;
                }
            }
        }
    }

    /// Numbers of the segments of a drive.
    pub fn of_drive(&self, drive: u8) -> std::ops::Range<u32> {
        self.drives.get(usize::from(drive)).map_or(0..0, |drive| {
            drive.first_segment..drive.first_segment + drive.segments
        })
    }

    /// Bytes that live on a drive.
    #[must_use]
    pub fn live_on(&self, drive: u8) -> u64 {
        let segments = self.of_drive(drive);
        segments.map(|segment| self.get(segment).live).sum()
    }

    /// Whether nothing is written to the drive that is to be removed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether a segment's drive is to be removed.
    #[must_use]
    pub fn is_leaving(&self, segment: u32) -> bool {
        self.leaving
            .is_some_and(|drive| self.of_drive(drive).contains(&segment))
    }

    /// Nothing needs what lies in a segment.
    pub fn release(&mut self, segment: u32) {
        let is_closed = self.is_closed && self.is_leaving(segment);
        self.get_mut(segment).used = match is_closed {
            true => Use::Gone,
            false => Use::Free,
        };
    }

    /// One that was to be begun, and was not, can be begun later.
    pub fn give_back(&mut self, segment: u32) {
        if self.is_closed && self.is_leaving(segment) {
            self.get_mut(segment).used = Use::Gone;
        } else {
            self.get_mut(segment).used = Use::Ready;
            self.ready.push_back(segment);
        }
    }

    /// How many can be used: those of drives that were not removed, and are not about to be.
    #[must_use]
    pub fn usable(&self) -> u32 {
        let staying = (0_u8..)
            .zip(&self.drives)
            .filter(|(number, drive)| Some(*number) != self.leaving && !drive.is_removed());
        staying.map(|(_, drive)| drive.segments).sum()
    }

    /// Bytes of each of them.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.list.len()).expect("numbered with 32 bits")
    }

    #[must_use]
    pub fn get(&self, segment: u32) -> &Segment {
        &self.list[index(segment)]
    }

    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.list[index(segment)]
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.list)
    }

    /// Where a segment begins.
    #[must_use]
    pub fn place(&self, segment: u32) -> Place {
        let drive = self
            .drives
            .iter()
            .rposition(|drive| drive.first_segment <= segment)
            .expect("the first drive begins at 0");
        let number = segment - self.drives[drive].first_segment;
        let drive = u8::try_from(drive).expect("at most 32 drives");
        Place::new(drive, RESERVED_BYTES + u64::from(number) * self.bytes)
    }

    /// The segment that a place belongs to, if there is one.
    #[must_use]
    pub fn of(&self, place: Place) -> Option<u32> {
        let drive = self.drives.get(usize::from(place.drive()))?;
        if drive.is_removed() {
            return None;
        }
        let number = place.offset().checked_sub(RESERVED_BYTES)? / self.bytes;
        let number = u32::try_from(number).ok()?;
        (number < drive.segments).then(|| drive.first_segment + number)
    }

    /// Whether so many bytes lie in one segment.
    #[must_use]
    pub fn holds(&self, place: Place, length: u16) -> bool {
        let Some(segment) = self.of(place) else {
            return false;
        };
        let end = self.place(segment).offset() + self.bytes;
        place.offset() + u64::from(length) <= end
    }

    /// Whether so many bytes lie in segments of one drive.
    #[must_use]
    pub fn holds_run(&self, place: Place, bytes: u64) -> bool {
        let Some(drive) = self.drives.get(usize::from(place.drive())) else {
            return false;
        };
        let end = RESERVED_BYTES + u64::from(drive.segments) * self.bytes;
        let begin = place.offset();
        !drive.is_removed() && begin >= RESERVED_BYTES && bytes <= end && begin <= end - bytes
    }

    /// Takes note of an entry's bytes.
    pub fn add_live(&mut self, place: Place, bytes: u64) {
        if let Some(segment) = self.of(place) {
            self.get_mut(segment).live += bytes;
            self.live += bytes;
        }
    }

    /// An entry is gone.
    pub fn sub_live(&mut self, place: Place, bytes: u64) {
        if let Some(segment) = self.of(place) {
            let live = &mut self.get_mut(segment).live;
            debug_assert!(
                *live >= bytes,
                "segment {segment} lives by less than nothing"
            );
            *live = live.saturating_sub(bytes);
            self.live = self.live.saturating_sub(bytes);
        }
    }

    /// What lives in segments with data is not known any more.
    pub fn forget_live(&mut self) {
        for segment in &mut self.list {
            if segment.used != Use::Leaves {
                segment.live = 0;
            }
        }
        self.live = 0;
    }

    /// Takes note of a leaf of a map.
    pub fn add_leaf(&mut self, place: Place, bytes: u64) {
        if let Some(segment) = self.of(place) {
            self.get_mut(segment).live += bytes;
        }
    }

    /// A leaf of a map is gone.
    pub fn sub_leaf(&mut self, place: Place, bytes: u64) {
        if let Some(segment) = self.of(place) {
            let live = &mut self.get_mut(segment).live;
            debug_assert!(
                *live >= bytes,
                "segment {segment} lives by less than nothing"
            );
            *live = live.saturating_sub(bytes);
        }
    }

    /// Segments with leaves of maps, and the bytes that live there.
    pub fn of_leaves(&self) -> impl Iterator<Item = (u32, u64)> {
        let found = self.iter().filter(|(_, it)| it.used == Use::Leaves);
        found.map(|(number, it)| (number, it.live))
    }

    /// Segments with leaves none of which is needed once the present checkpoint is replaced.
    pub fn dead_leaves(&self) -> impl Iterator<Item = u32> {
        let dead = self
            .of_leaves()
            .filter(|(number, live)| *live == 0 && !self.is_pinned(*number));
        dead.map(|(number, _)| number)
    }

    /// Keeps a segment as it is while somebody reads there.
    pub fn pin(&self, place: Place) -> Option<Pin> {
        let (pins, segment) = self.pins_of(self.of(place)?)?;
        pins[segment].fetch_add(1, Ordering::Acquire);
        Some(Pin {
            pins: pins.clone(),
            segment,
        })
    }

    /// The counters of a segment's drive, and its place among them.
    fn pins_of(&self, segment: u32) -> Option<(&Arc<[AtomicU32]>, usize)> {
        let drive = self
            .drives
            .iter()
            .rposition(|drive| drive.first_segment <= segment)?;
        let number = segment - self.drives[drive].first_segment;
        Some((&self.pins[drive], index(number)))
    }

    fn is_pinned(&self, segment: u32) -> bool {
        self.pins_of(segment).is_some_and(|(pins, number)| {
            let pins = pins.get(number);
            pins.is_some_and(|pins| pins.load(Ordering::Acquire) > 0)
        })
    }

    /// Whether a number is that of a segment of a drive that was not removed.
    #[must_use]
    pub fn exists(&self, segment: u32) -> bool {
        self.list
            .get(index(segment))
            .is_some_and(|found| found.used != Use::Gone)
    }

    /// Segments that are nobody's, now.
    pub fn free(&self) -> impl Iterator<Item = u32> {
        self.iter()
            .filter(|(_, found)| found.used == Use::Free)
            .map(|(number, _)| number)
    }

    /// Sealed segments that nothing needs once the present checkpoint is replaced.
    pub fn dead(&self) -> impl Iterator<Item = u32> {
        self.iter()
            .filter(|(number, found)| {
                found.used == Use::Sealed
                    && found.live == 0
                    && found.staged == 0
                    && !self.is_pinned(*number)
            })
            .map(|(number, _)| number)
    }

    /// Those of the [dead](Self::dead) that can be written again.
    pub fn reusable(&self) -> impl Iterator<Item = u32> {
        self.dead()
            .filter(|segment| !self.is_closed || !self.is_leaving(*segment))
    }

    /// Those of them that have no records behind a checkpoint whose last record is this one.
    pub fn reusable_behind(&self, record: u64) -> impl Iterator<Item = u32> {
        #[cfg(test)]
        let record = match crate::testing::has_planted(crate::testing::Planted::HandsOutNeeded) {
            true => u64::MAX,
            false => record,
        };
        self.reusable()
            .filter(move |segment| self.get(*segment).last <= record)
    }

    /// Segments that can be written, now or with the next checkpoint.
    #[must_use]
    pub fn spare(&self) -> usize {
        self.free().count() + self.reusable().count() + self.ready.len()
    }

    /// Segments of the drives that stay which can be written, now or with the next checkpoint.
    #[must_use]
    pub fn spare_of_staying(&self) -> usize {
        let spare = self.iter().filter(|(number, found)| {
            matches!(found.used, Use::Free | Use::Ready) && !self.is_leaving(*number)
        });
        spare.count()
    }

    /// Whether a checkpoint or cleaning would bring segments that can be written. `kept`: free ones that a checkpoint
    /// does not hand out.
    #[must_use]
    pub fn can_gain(&self, kept: usize) -> bool {
        self.free().count() > kept
            || self.reusable().next().is_some()
            || self.victims().next().is_some()
    }

    /// Bytes that what moves of a segment may take: a part of its size beside what lives there.
    #[must_use]
    pub const fn moves_of(&self, segment: &Segment) -> u64 {
        segment.live + self.bytes / 16
    }

    /// Sealed segments whose cleaning gains anything.
    fn victims(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.iter().filter(|(number, found)| {
            found.used == Use::Sealed
                && found.staged == 0
                && found.live > 0
                && !self.is_leaving(*number)
                && found.live + self.bytes / 64 < self.bytes
        })
    }

    /// The segment to be cleaned next, if cleaning gains anything. `except`: those that are being cleaned.
    ///
    /// Old data that still lives is likely to stay, so space that is gained from an old segment lasts. A segment's gain is
    /// therefore weighed with its age, and with what moving it costs. But no segment is taken that gains far less than the
    /// emptiest of the others. `next_generation`: the one to be handed out next. `room`: bytes that moves may take.
    #[must_use]
    pub fn victim(&self, except: &[u32], next_generation: u64, room: u64) -> Option<u32> {
        let gain = |found: &Segment| self.bytes - found.live;
        let worth = |found: &Segment| {
            let age = next_generation.saturating_sub(found.generation);
            let cost = self.bytes + found.live;
            u128::from(gain(found)) * u128::from(age) * WORTH_UNIT / u128::from(cost)
        };
        let fitting = || {
            self.victims()
                .filter(|(number, it)| !except.contains(number) && self.moves_of(it) <= room)
        };
        let most = fitting().map(|(_, found)| gain(found)).max()?;
        fitting()
            .filter(|(_, found)| gain(found) >= most / GAIN_SHARE)
            .max_by_key(|(_, found)| worth(found))
            .map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn places_and_segments_belong_together() {
        let drive = |first_segment, segments| DriveEntry {
            id: Uuid::from_u128(1),
            first_segment,
            segments,
            mirror: None,
        };
        let segments = Segments::new(vec![drive(0, 3), drive(3, 2)], 1 << 20);
        for number in 0..5 {
            let place = segments.place(number);
            assert_eq!(place.drive(), u8::from(number >= 3));
            assert_eq!(segments.of(place), Some(number));
            assert_eq!(segments.of(place.plus((1 << 20) - 16)), Some(number));
        }
        assert_eq!(segments.of(Place::new(0, 4 << 20)), None);
        assert_eq!(segments.of(Place::new(0, 4096)), None);
        assert_eq!(segments.of(Place::new(2, 1 << 20)), None);
    }

    #[test]
    fn a_segment_that_is_read_is_not_used_anew() {
        let drive = DriveEntry {
            id: Uuid::from_u128(1),
            first_segment: 0,
            segments: 1,
            mirror: None,
        };
        let mut segments = Segments::new(vec![drive], 1 << 20);
        segments.get_mut(0).used = Use::Sealed;
        let dead = |segments: &Segments| segments.dead().collect::<Vec<_>>();
        let pin = segments.pin(segments.place(0));
        assert!(dead(&segments).is_empty());
        drop(pin);
        assert_eq!(dead(&segments), [0]);
        segments.add_live(segments.place(0), 16);
        assert!(dead(&segments).is_empty());
        assert_eq!(segments.victim(&[], 1, u64::MAX), Some(0));
        segments.sub_live(segments.place(0), 16);
        assert_eq!(segments.victim(&[], 1, u64::MAX), None);
    }
}
