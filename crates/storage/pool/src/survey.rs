//! What all segments say of themselves, whatever a checkpoint says of them.

use std::sync::Arc;

use longshore_volume::Io;
use uuid::Uuid;

use crate::drive::Drive;
use crate::format::checkpoint::PartHeader;
use crate::format::record::{HEADER_MAX, RecordHeader};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::{Superblock, tail_start};
use crate::format::{PAGE, PAGE_BYTES, RESERVED_BYTES};
use crate::place::Place;
use crate::reserve::PART;
use crate::search::unit;
use crate::segments::Segments;
use crate::side::Side;

/// What the beginning of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Head {
    /// Nothing: it was never used, or it is damaged.
    Unknown,
    /// A part of a checkpoint begins there.
    Map,
    /// Records of this generation follow.
    Records(u64),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Survey {
    /// By numbers of segments.
    pub heads: Vec<Head>,
    /// Checkpoints whose first part is whole, with the place of that: the newest first.
    pub checkpoints: Vec<(u64, Place)>,
}

impl Survey {
    /// Looks at the beginnings of all segments.
    pub async fn make(
        io: &Io,
        label: &Superblock,
        drives: &[Option<Arc<Drive>>],
        segments: &Segments,
    ) -> Self {
        let mut survey = Self::default();
        for segment in 0..segments.count() {
            let mut head = Head::Unknown;
            if segments.exists(segment) {
                let place = segments.place(segment);
                let drive = drives[usize::from(place.drive())].as_ref();
                for (_, side) in drive.iter().flat_map(|drive| drive.current()) {
                    let own = look(io, label, side, segment, place.offset()).await;
                    head = head.max(own);
                    if own == Head::Map {
                        let first = first_part(io, label, side, place).await;
                        survey.checkpoints.extend(first);
                    }
                }
            }
            survey.heads.push(head);
        }
        survey.checkpoints.sort_unstable();
        survey.checkpoints.dedup();
        survey.checkpoints.reverse();
        survey
    }

    pub fn head(&self, segment: u32) -> Head {
        let found = usize::try_from(segment)
            .ok()
            .and_then(|it| self.heads.get(it));
        found.copied().unwrap_or(Head::Unknown)
    }
}

async fn look(io: &Io, label: &Superblock, side: &Side, segment: u32, offset: u64) -> Head {
    let unit = unit(label);
    let Ok(bytes) = side.read_new(io, offset, unit + HEADER_MAX).await else {
        return Head::Unknown;
    };
    if PartHeader::pool_of(&bytes) == Some(label.pool) {
        return Head::Map;
    }
    let (header, record) = bytes.split_at(unit);
    match SegmentHeader::decode(header) {
        Ok(header) if header.pool == label.pool && header.segment == segment => {
            return Head::Records(header.generation);
        }
        Ok(_) | Err(_) => {}
    }
    // The first record tells as well.
    match RecordHeader::decode(record) {
        Ok(header) if header.pool == label.pool.as_u64_pair().1 && header.segment == segment => {
            Head::Records(header.generation)
        }
        Ok(_) | Err(_) => Head::Unknown,
    }
}

/// The number of the checkpoint whose first part lies there.
async fn first_part(
    io: &Io,
    label: &Superblock,
    side: &Side,
    place: Place,
) -> Option<(u64, Place)> {
    let length = PART.min(usize::try_from(label.segment_bytes).ok()?);
    let bytes = side.read_new(io, place.offset(), length).await.ok()?;
    let (header, _) = PartHeader::open(&bytes).ok()?;
    (header.pool == label.pool && header.index == 0).then_some((header.checkpoint, place))
}

/// What of a pool lies on a drive at all.
#[derive(Debug, Default)]
pub struct Traces {
    /// Headers of segments, with the bytes between the first place for a segment and each.
    pub headers: Vec<(SegmentHeader, u64)>,
    /// The pools of parts of checkpoints.
    pub checkpoints: Vec<Uuid>,
    /// The number of the drive, as a record says of the one before it.
    pub number: Option<u8>,
}

/// Looks for segments, whatever their size. `step`: how far they are apart at least.
pub async fn traces(io: &Io, side: &Side, step: u64) -> Traces {
    let end = tail_start(side.bytes);
    let mut found = Traces::default();
    let mut at = RESERVED_BYTES;
    while at + step <= end {
        if let Ok(bytes) = side.read_new(io, at, PAGE).await {
            match SegmentHeader::decode(&bytes) {
                Ok(header) => {
                    found.headers.push((header, at - RESERVED_BYTES));
                    if found.number.is_none() {
                        found.number = own_number(io, side, header.generation, at).await;
                    }
                }
                Err(_) => found.checkpoints.extend(PartHeader::pool_of(&bytes)),
            }
        }
        at += step;
    }
    found
}

/// Records of a segment that are looked at for the number of its drive.
const LOOKED_AT: usize = 16;

/// The number of the drive that a segment lies on, if two of its first records follow each other.
async fn own_number(io: &Io, side: &Side, generation: u64, segment: u64) -> Option<u8> {
    let mut at = segment + PAGE_BYTES;
    let mut before: Option<(u64, u64)> = None;
    for _ in 0..LOOKED_AT {
        let bytes = side.read_new(io, at, HEADER_MAX).await.ok()?;
        let header = RecordHeader::decode(&bytes).ok()?;
        if header.generation != generation {
            return None;
        }
        let echo = header.echo_place;
        let is_next = |(number, payload): (u64, u64)| {
            header.number.checked_sub(1) == Some(number) && echo.offset() == payload
        };
        if !header.echo.is_empty() && before.is_some_and(is_next) {
            return Some(echo.drive());
        }
        let payload = at + u64::from(header.header_length);
        before = Some((header.number, payload));
        at = payload + u64::from(header.payload_length);
    }
    None
}
