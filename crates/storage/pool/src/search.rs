//! Records of the log, as they are found on the drives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::drive::Drive;
use crate::format::record::{HEADER_MAX, RecordHeader};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::{long, short};
use crate::place::Place;
use crate::segments::{Segments, Use};
use crate::side::Side;

/// Bytes that are read at once when a segment is searched for records.
const WINDOW: usize = 1 << 20;

/// Headers of segments that are read at once.
const READS_MAX: usize = 32;

/// Segments that are searched at once.
const SEGMENTS_MAX: usize = 8;

/// Records that were found.
#[derive(Debug, Default)]
pub struct Found {
    pub by_number: BTreeMap<u64, (RecordHeader, Place)>,
    /// Segments that have any, or a header.
    pub used: Vec<u32>,
}

pub struct Search<'a> {
    pub io: &'a Io,
    pub label: &'a Superblock,
    pub drives: &'a [Option<Arc<Drive>>],
    pub segments: &'a Segments,
}

impl Search<'_> {
    /// Looks for records in segments that were handed out, in this order. `looked`: what was found out about the first of
    /// them before.
    pub async fn records(
        &self,
        hand_out: &[(u32, u64)],
        looked: &mut Vec<Looked>,
        found: &mut Found,
    ) {
        let new = hand_out.iter().skip(looked.len());
        let heads = new.map(|(segment, generation)| self.head(*segment, *generation));
        let heads: Vec<Begun> = stream::iter(heads).buffered(READS_MAX).collect().await;
        looked.extend(heads.into_iter().map(|begun| Looked {
            begun,
            is_searched: false,
        }));
        // Segments are used in their order: those before one that was begun were, whatever their headers say now.
        let last = looked.iter().rposition(|it| it.begun == Begun::Yes);
        let mut wanted = Vec::new();
        for (place, (handed_out, look)) in hand_out.iter().zip(looked).enumerate() {
            let is_wanted = last.is_some_and(|last| place <= last) || look.begun == Begun::Perhaps;
            if is_wanted && !look.is_searched {
                look.is_searched = true;
                wanted.push((*handed_out, look.begun));
            }
        }
        let searches = wanted
            .iter()
            .map(|((segment, generation), _)| self.both_sides(*segment, *generation));
        let mut searches = stream::iter(searches).buffered(SEGMENTS_MAX);
        for ((segment, _), begun) in &wanted {
            let own = searches.next().await.expect("one for each");
            if *begun == Begun::Yes || !own.by_number.is_empty() {
                found.used.push(*segment);
            }
            found.by_number.extend(own.by_number);
        }
    }

    /// Whether a segment was begun, as either side of a mirror says.
    async fn head(&self, segment: u32, generation: u64) -> Begun {
        let mut begun = Begun::No;
        for (_, side) in self.drive(self.segments.place(segment)).current() {
            begun = begun.max(self.begun(side, segment, generation).await);
        }
        begun
    }

    /// The records in a segment. One may be whole on one side of a mirror alone.
    async fn both_sides(&self, segment: u32, generation: u64) -> Found {
        let mut found = Found::default();
        for (_, side) in self.drive(self.segments.place(segment)).current() {
            self.segment(side, segment, Some(generation), &mut found)
                .await;
        }
        found
    }

    /// Whether a segment of which nothing lives was begun with one of these generations.
    pub async fn is_any_begun(&self, generations: Range<u64>) -> bool {
        let dead = self.segments.iter();
        let dead = dead.filter(|(_, it)| it.used == Use::Sealed && it.live == 0);
        let generations = &generations;
        let heads = dead.map(|(segment, _)| async move {
            let place = self.segments.place(segment);
            for (_, side) in self.drive(place).current() {
                let read = side
                    .read_new(self.io, place.offset(), unit(self.label))
                    .await;
                let header = read.ok().and_then(|head| SegmentHeader::decode(&head).ok());
                let is_later = header.is_some_and(|header| {
                    header.pool == self.label.pool
                        && header.segment == segment
                        && generations.contains(&header.generation)
                });
                if is_later {
                    return true;
                }
            }
            false
        });
        let mut heads = stream::iter(heads).buffer_unordered(READS_MAX);
        while let Some(is_later) = heads.next().await {
            if is_later {
                return true;
            }
        }
        false
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

    /// Looks for records in a segment of a side. `generation`: `None`, records of all uses.
    pub async fn segment(
        &self,
        side: &Side,
        segment: u32,
        generation: Option<u64>,
        found: &mut Found,
    ) {
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
                        && generation.is_none_or(|it| is_of_this_use(&header, it)) =>
                {
                    let length = u64::from(header.header_length);
                    let whole = length + u64::from(header.payload_length);
                    let payload = place.plus(long(at) + length);
                    if long(at) + whole > self.segments.bytes() {
                        unit
                    } else {
                        found.by_number.insert(header.number, (header, payload));
                        short(whole).next_multiple_of(unit)
                    }
                }
                Ok(_) | Err(_) => unit,
            };
            at += step;
        }
    }
}

/// What was found out about a segment.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    begun: Begun,
    is_searched: bool,
}

/// Whether a segment was begun since the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Begun {
    No,
    /// Its header tells nothing.
    Perhaps,
    Yes,
}

/// Bytes that records are aligned to.
pub fn unit(label: &Superblock) -> usize {
    usize::try_from(label.unit).expect("512 or 4096")
}

/// Whether a record was written since the segment was handed out.
fn is_of_this_use(header: &RecordHeader, generation: u64) -> bool {
    #[cfg(test)]
    if crate::testing::has_planted(crate::testing::Planted::NoGenerationCheck) {
        return true;
    }
    header.generation == generation
}
