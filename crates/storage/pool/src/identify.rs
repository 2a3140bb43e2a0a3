//! Drives without superblocks: what their segments tell.
//!
//! A segment begins with the pool's UUID and its own number, so its place on a drive tells the number of the drive's first
//! segment, and two of them tell how long segments are.

use std::collections::BTreeMap;

use longshore_volume::Io;
use uuid::Uuid;

use crate::error::PoolError;
use crate::format::segment::SegmentHeader;
use crate::format::superblock::{
    DRIVES_MAX, DriveEntry, LENGTH, REMOVED_DRIVES, SEGMENT_MAX, SEGMENTS_MAX, SETTINGS,
    Superblock, ZSTD, copies, tail_start,
};
use crate::format::{PAGE_BYTES, RESERVED_BYTES};
use crate::geometry::{segment_bytes_before, segment_bytes_of};
use crate::place::Place;
use crate::side::Side;
use crate::survey::{Traces, traces};

/// The least distance of two segments of a pool that was made by any version.
const STEP: u64 = 1 << 20;

/// What a pool is called that nothing names.
const NAME: &str = "recovered";

/// The number of a side's drive in a pool of which another drive has a superblock. Nothing tells which side of a mirror
/// has all data.
pub async fn one(io: &Io, side: &Side, label: &Superblock) -> Option<u8> {
    // One that was taken out of the pool has its superblocks overwritten.
    if is_blank(io, side).await {
        return None;
    }
    let bytes = u64::from(label.segment_bytes);
    let found = traces(io, side, bytes).await.headers;
    let own = found.iter().filter(|(header, _)| header.pool == label.pool);
    let firsts: Vec<u32> = own
        .filter_map(|found| first_segment(found, bytes))
        .collect();
    let number = label.drives.iter().position(|entry| {
        !entry.is_removed()
            && entry.mirror.is_none()
            && firsts.first() == Some(&entry.first_segment)
    })?;
    let is_one = firsts.iter().all(|first| Some(first) == firsts.first());
    is_one.then(|| u8::try_from(number).ok())?
}

/// Whether there are zeros where superblocks are.
async fn is_blank(io: &Io, side: &Side) -> bool {
    for place in copies(side.bytes).concat() {
        let read = side.read_new(io, place, LENGTH).await;
        if !read.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
            return false;
        }
    }
    true
}

/// The number of a drive's first segment, if a segment of that number begins there.
fn first_segment((header, at): &(SegmentHeader, u64), bytes: u64) -> Option<u32> {
    let before = u32::try_from(at / bytes).ok()?;
    let is_place = at.is_multiple_of(bytes);
    header.segment.checked_sub(before).filter(|_| is_place)
}

/// A side, and what its superblock says.
pub struct Labeled {
    pub own: Superblock,
    pub side: Side,
}

/// A drive, and what its segments say.
struct Traced {
    side: Side,
    traces: Traces,
    /// The number of its first segment; that of a drive on which no records were written is not known.
    first: Option<u32>,
}

/// A pool none of whose drives has a superblock. It has no name, and its drives have other UUIDs.
pub async fn all(io: &Io, sides: Vec<Side>) -> Result<(Superblock, Vec<Labeled>), PoolError> {
    let mut drives = Vec::new();
    for side in sides {
        let traces = traces(io, &side, STEP).await;
        drives.push(Traced {
            side,
            traces,
            first: None,
        });
    }
    let pool = pool_of(&drives, true).or_else(|| pool_of(&drives, false));
    let pool = pool.unwrap_or_default();
    for drive in &mut drives {
        // A volume may hold the image of another pool.
        drive
            .traces
            .headers
            .retain(|(header, _)| header.pool == pool);
        drive.traces.checkpoints.retain(|of| *of == pool);
        if drive.traces.headers.is_empty() && drive.traces.checkpoints.is_empty() {
            let path = drive.side.path.clone();
            return Err(PoolError::NoTrace { path });
        }
    }
    let bytes = || drives.iter().map(|drive| drive.side.bytes);
    let made_with = [segment_bytes_of(bytes()), segment_bytes_before(bytes())];
    let headers: Vec<&[(SegmentHeader, u64)]> =
        drives.iter().map(|drive| &*drive.traces.headers).collect();
    let unknown = || PoolError::Nameless {
        path: drives
            .first()
            .map(|drive| drive.side.path.clone())
            .unwrap_or_default(),
    };
    let (segment_bytes, firsts) = geometry(&headers, &made_with).ok_or_else(unknown)?;
    for (drive, first) in drives.iter_mut().zip(firsts) {
        drive.first = first;
    }
    let Listed { entries, sides } = list(drives, segment_bytes)?;
    let has_removed = entries.iter().any(DriveEntry::is_removed);
    let label = Superblock {
        // Nothing tells which of them it had.
        incompatible: ZSTD | SETTINGS | if has_removed { REMOVED_DRIVES } else { 0 },
        read_only_compatible: 0,
        pool,
        name: NAME.to_owned(),
        drive: 0,
        side: 0,
        drives: entries,
        segment_bytes,
        unit: u32::try_from(PAGE_BYTES).expect("4096"),
        number: 0,
        checkpoint: Place::default(),
        checkpoint_number: 0,
        checkpoint_record: 0,
    };
    let labeled = sides.into_iter().map(|(number, side)| Labeled {
        own: Superblock {
            drive: u8::try_from(number).expect("at most 32 drives"),
            ..label.clone()
        },
        side,
    });
    let labeled = labeled.collect();
    Ok((label, labeled))
}

/// Drives in their order, and those of them that are there, with their places in it.
struct Listed {
    entries: Vec<DriveEntry>,
    sides: Vec<(usize, Side)>,
}

/// Puts drives in their order, with those between them that were removed. A drive on which no records were written goes
/// where it fits, or to the end.
fn list(drives: Vec<Traced>, segment_bytes: u32) -> Result<Listed, PoolError> {
    let (mut known, mut unknown): (Vec<Traced>, Vec<Traced>) =
        drives.into_iter().partition(|drive| drive.first.is_some());
    known.sort_by_key(|drive| drive.first);
    let path = known
        .iter()
        .chain(&unknown)
        .next()
        .map(|it| it.side.path.clone());
    let path = path.unwrap_or_default();
    let room = |side: &Side| {
        let bytes = tail_start(side.bytes).saturating_sub(RESERVED_BYTES);
        u32::try_from(bytes / u64::from(segment_bytes)).unwrap_or(u32::MAX)
    };
    let mut entries: Vec<DriveEntry> = Vec::new();
    let mut numbered = Vec::new();
    let mut next = 0;
    let mut put = |side: Side, first: u32, segments: u32, entries: &mut Vec<DriveEntry>| {
        numbered.push((entries.len(), side));
        entries.push(DriveEntry {
            id: Uuid::new_v4(),
            first_segment: first,
            segments,
            mirror: None,
        });
    };
    let ends: Vec<Option<u32>> = known
        .iter()
        .skip(1)
        .map(|it| it.first)
        .chain([None])
        .collect();
    for (drive, end) in known.into_iter().zip(ends) {
        let first = drive.first.expect("it is known");
        if first < next {
            let path = drive.side.path;
            return Err(PoolError::SameDrive { path });
        }
        if first > next {
            let fits = |it: &Traced| room(&it.side) == first - next;
            match unknown.iter().position(fits) {
                Some(place) => {
                    put(unknown.remove(place).side, next, first - next, &mut entries);
                }
                None => {
                    // As many drives as its number says.
                    let Some(number) = drive.traces.number.map(usize::from) else {
                        return Err(PoolError::Nameless { path });
                    };
                    let more = number.saturating_sub(entries.len() + 1).min(DRIVES_MAX);
                    let more = u32::try_from(more).expect("few").min(first - next - 1);
                    (0..more).for_each(|one| entries.push(removed(next + one, 1)));
                    entries.push(removed(next + more, first - next - more));
                }
            }
        }
        // Places name the drive by its number.
        if drive
            .traces
            .number
            .is_some_and(|number| usize::from(number) != entries.len())
        {
            return Err(PoolError::Nameless { path });
        }
        let segments = room(&drive.side);
        let segments = end.map_or(segments, |end| segments.min(end.saturating_sub(first)));
        put(drive.side, first, segments, &mut entries);
        next = first.saturating_add(segments);
    }
    for drive in unknown {
        let segments = room(&drive.side).min(SEGMENTS_MAX - next.min(SEGMENTS_MAX));
        put(drive.side, next, segments, &mut entries);
        next = next.saturating_add(segments);
    }
    let end = entries.last().map_or(0, |entry| {
        u64::from(entry.first_segment) + u64::from(entry.segments)
    });
    let is_possible = entries.len() <= DRIVES_MAX
        && end <= u64::from(SEGMENTS_MAX)
        && entries.iter().all(|entry| entry.segments > 0);
    if !is_possible {
        return Err(PoolError::Nameless { path });
    }
    Ok(Listed {
        entries,
        sides: numbered,
    })
}

/// The pool that most of the segments belong to. `is_first`: of those where the first one of a drive is, which is no data
/// of hosts.
fn pool_of(drives: &[Traced], is_first: bool) -> Option<Uuid> {
    let mut counts: BTreeMap<Uuid, usize> = BTreeMap::new();
    for drive in drives {
        let headers = drive.traces.headers.iter();
        let headers = headers.filter(|(_, at)| !is_first || *at == 0);
        let headers = headers.map(|(header, _)| header.pool);
        let checkpoints = drive.traces.checkpoints.iter().filter(|_| !is_first);
        for pool in headers.chain(checkpoints.copied()) {
            *counts.entry(pool).or_default() += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(pool, _)| pool)
}

fn removed(first_segment: u32, segments: u32) -> DriveEntry {
    DriveEntry {
        id: Uuid::nil(),
        first_segment,
        segments,
        mirror: None,
    }
}

/// How long segments are, and the number of each drive's first one: the length that fits the numbers of all. Of several
/// such, the first of those that a pool on such drives may have been made with.
fn geometry(
    drives: &[&[(SegmentHeader, u64)]],
    made_with: &[u64],
) -> Option<(u32, Vec<Option<u32>>)> {
    let made_with = made_with
        .iter()
        .filter_map(|bytes| u32::try_from(*bytes).ok());
    let lengths = (20..=SEGMENT_MAX.ilog2()).map(|bits| 1_u32 << bits);
    let lengths = made_with.chain(lengths);
    let mut fitting = lengths.filter_map(|bytes| {
        let firsts = drives.iter().map(|found| {
            // A header elsewhere is data of a host.
            let begins = found
                .iter()
                .filter(|(_, at)| at.is_multiple_of(u64::from(bytes)));
            let count = begins.clone().count();
            let mut firsts = begins.map(|it| first_segment(it, u64::from(bytes)));
            let Some(first) = firsts.next() else {
                return Some(None);
            };
            let is_one = first.is_some() && firsts.all(|other| other == first);
            let is_one = is_one && count * 2 >= found.len();
            is_one.then_some(first)
        });
        Some((bytes, firsts.collect::<Option<Vec<Option<u32>>>>()?))
    });
    fitting.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(numbers: &[(u32, u64)]) -> Vec<(SegmentHeader, u64)> {
        let header = |(segment, mib): &(u32, u64)| {
            let header = SegmentHeader {
                pool: Uuid::from_u128(7),
                segment: *segment,
                generation: 1,
            };
            (header, mib << 20)
        };
        numbers.iter().map(header).collect()
    }

    #[test]
    fn places_of_segments_tell_how_long_they_are_and_which_is_the_first() {
        let one = headers(&[(0, 0), (3, 12), (7, 28)]);
        let other = headers(&[(12, 8)]);
        let found = geometry(&[&one, &other, &[]], &[1 << 20]);
        assert_eq!(found, Some((4 << 20, vec![Some(0), Some(10), None])));
        // Numbers that no length explains.
        let odd = headers(&[(0, 0), (3, 12), (4, 28)]);
        assert_eq!(geometry(&[&odd], &[1 << 20]), None);
        // All lengths explain a first one.
        let alone = headers(&[(0, 0)]);
        assert_eq!(
            geometry(&[&alone], &[8 << 20]),
            Some((8 << 20, vec![Some(0)]))
        );
    }
}
