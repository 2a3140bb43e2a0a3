//! A record of the log: descriptors of parts, and their payload behind them.
//!
//! Every record repeats the descriptors of the one before it. So damage to one header loses nothing: what the
//! record held is still known, and its payload is found or is a medium error.

use std::sync::Arc;

use super::{FormatError, Put, Take, crc};
use crate::place::{Codec, Place, STEP};

const MAGIC: u32 = u32::from_le_bytes(*b"LSRC");

/// Bytes before the descriptors.
const FIXED: usize = 64;

/// Most descriptors of a record.
pub const PARTS_MAX: usize = 128;
/// Most bytes of payload of a record.
pub const PAYLOAD_MAX: usize = 1 << 20;

const PAYLOAD_MAX_U32: u32 = 1 << 20;
const _: () = assert!(PAYLOAD_MAX_U32 as usize == PAYLOAD_MAX);

/// Most bytes of payload of a record that goes to segments of that size, so that little is left over at their ends: where
/// segments are small, eight records with their headers fill one.
#[must_use]
pub fn payload_max(segment_bytes: u32) -> usize {
    const HEADERS: usize = 8 << 10;
    let eighth = usize::try_from(segment_bytes / 8).expect("32 bits fit");
    match eighth {
        // What is left over is little, and a MiB stays together.
        PAYLOAD_MAX.. => PAYLOAD_MAX,
        // It is the largest chunk.
        ..65_536 => eighth,
        _ => eighth - HEADERS,
    }
}

/// Room for the largest header: descriptors and checksums of this record, and of the one before it.
pub const HEADER_MAX: usize = 16 << 10;

const _: () = assert!(
    FIXED + 2 * (PARTS_MAX * (PART_FIXED + 12) + PAYLOAD_MAX / super::PAGE * 4) <= HEADER_MAX
);

/// Bytes of a descriptor before what its kind adds.
const PART_FIXED: usize = 24;

/// A layer of a volume: the writes between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerId(pub u32);

/// A descriptor: what a part of a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub layer: LayerId,
    /// First page, counted from the start of the volume.
    pub page: u64,
    /// Where its bytes begin in the payload.
    pub offset: u32,
    /// How many they are.
    pub length: u32,
    pub kind: PartKind,
}

/// What a [`Part`] says of its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Pages as they are, and the CRC32C of each.
    Raw { crcs: Vec<u32> },
    /// Pages that were compressed together.
    Chunk { codec: Codec, pages: u8, crc: u32 },
    /// The chunk that lay at `from`, moved. Those of its pages that are in `mask` were in use.
    Moved {
        codec: Codec,
        pages: u8,
        mask: u8,
        crc: u32,
        from: Place,
    },
    /// So many pages read as zeros.
    Zero { pages: u32 },
    /// The chunk at `from` could not be read when it was to be moved: its pages in `mask` are lost.
    Lost { mask: u8, from: Place },
    /// A change of the catalogue ([`super::op`]).
    Op { crc: u32 },
}

const RAW: u8 = 1;
const CHUNK: u8 = 2;
const MOVED: u8 = 3;
const ZERO: u8 = 4;
const LOST: u8 = 5;
const OP: u8 = 6;

impl Part {
    fn encoded_length(&self) -> usize {
        let added = match &self.kind {
            PartKind::Raw { crcs } => 4 * crcs.len(),
            PartKind::Chunk { .. } | PartKind::Op { .. } | PartKind::Zero { .. } => 4,
            PartKind::Moved { .. } => 12,
            PartKind::Lost { .. } => 8,
        };
        PART_FIXED + added
    }

    /// Whether its bytes are those of the checksums. `payload`: that of the record.
    #[must_use]
    pub fn is_intact(&self, payload: &[u8]) -> bool {
        let range = || {
            let start = usize::try_from(self.offset).ok()?;
            let end = start.checked_add(usize::try_from(self.length).ok()?)?;
            payload.get(start..end)
        };
        match &self.kind {
            PartKind::Raw { crcs } => range().is_some_and(|bytes| {
                let mut pages = bytes.chunks_exact(super::PAGE);
                crcs.iter()
                    .all(|sum| pages.next().is_some_and(|page| crc(page) == *sum))
            }),
            PartKind::Chunk { crc: sum, .. }
            | PartKind::Moved { crc: sum, .. }
            | PartKind::Op { crc: sum } => range().is_some_and(|bytes| crc(bytes) == *sum),
            PartKind::Zero { .. } | PartKind::Lost { .. } => true,
        }
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let (kind, codec, pages, mask) = match &self.kind {
            PartKind::Raw { crcs } => {
                let pages = u8::try_from(crcs.len()).expect("at most 128 pages");
                (RAW, Codec::Raw, pages, 0)
            }
            PartKind::Chunk { codec, pages, .. } => (CHUNK, *codec, *pages, 0),
            PartKind::Moved {
                codec, pages, mask, ..
            } => (MOVED, *codec, *pages, *mask),
            PartKind::Zero { .. } => (ZERO, Codec::Raw, 0, 0),
            PartKind::Lost { mask, .. } => (LOST, Codec::Raw, 0, *mask),
            PartKind::Op { .. } => (OP, Codec::Raw, 0, 0),
        };
        into.u8(kind);
        into.u8(codec.code());
        into.u8(pages);
        into.u8(mask);
        into.u32(self.layer.0);
        into.u64(self.page);
        into.u32(self.offset);
        into.u32(self.length);
        match &self.kind {
            PartKind::Raw { crcs } => crcs.iter().for_each(|crc| into.u32(*crc)),
            PartKind::Chunk { crc, .. } | PartKind::Op { crc } => into.u32(*crc),
            PartKind::Moved { crc, from, .. } => {
                into.u32(*crc);
                into.u64(from.to_bits());
            }
            PartKind::Zero { pages } => into.u32(*pages),
            PartKind::Lost { from, .. } => into.u64(from.to_bits()),
        }
    }

    fn decode(take: &mut Take<'_>, payload: u32) -> Result<Self, FormatError> {
        let [kind, codec, pages, mask] = take.array()?;
        let layer = LayerId(take.u32()?);
        let page = take.u64()?;
        let offset = take.u32()?;
        let length = take.u32()?;
        let codec = Codec::of(codec).ok_or(FormatError::Field("a codec"))?;
        let lies_within = offset.checked_add(length).is_some_and(|end| end <= payload);
        if !lies_within || !offset.is_multiple_of(STEP_U32) || page > PAGES_MAX {
            return Err(FormatError::Field("the range of a part"));
        }
        let chunk_fits = (1..=4).contains(&pages)
            && length > 0
            && match codec {
                Codec::Raw => pages == 1 && length == 4096,
                Codec::Lz4 | Codec::Zstd => length < u32::from(pages) * 4096,
            };
        let kind = match kind {
            RAW if pages > 0 && length == u32::from(pages) * 4096 => PartKind::Raw {
                crcs: (0..pages).map(|_| take.u32()).collect::<Result<_, _>>()?,
            },
            CHUNK if chunk_fits => PartKind::Chunk {
                codec,
                pages,
                crc: take.u32()?,
            },
            MOVED if chunk_fits && mask < 1 << pages => PartKind::Moved {
                codec,
                pages,
                mask,
                crc: take.u32()?,
                from: Place::from_bits(take.u64()?),
            },
            ZERO => PartKind::Zero { pages: take.u32()? },
            LOST if mask < 16 => PartKind::Lost {
                mask,
                from: Place::from_bits(take.u64()?),
            },
            OP => PartKind::Op { crc: take.u32()? },
            _ => return Err(FormatError::Field("the kind of a part")),
        };
        let count = match &kind {
            PartKind::Zero { pages } => u64::from(*pages),
            PartKind::Raw { .. } | PartKind::Chunk { .. } | PartKind::Moved { .. } => {
                u64::from(pages)
            }
            PartKind::Lost { .. } | PartKind::Op { .. } => 0,
        };
        if page + count > PAGES_MAX {
            return Err(FormatError::Field("the range of a part"));
        }
        Ok(Self {
            layer,
            page,
            offset,
            length,
            kind,
        })
    }
}

const STEP_U32: u32 = 16;
const _: () = assert!(STEP_U32 as usize == STEP);

/// Pages of the largest volume.
const PAGES_MAX: u64 = crate::SIZE_MAX / super::PAGE_BYTES;

/// The header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Low half of the pool's identifier.
    pub pool: u64,
    pub segment: u32,
    /// Which use of the segment it is.
    pub generation: u64,
    /// Of the record: one more than of the one before it.
    pub number: u64,
    /// All records up to this one were on the medium when this one was written.
    pub durable: u64,
    /// Bytes of this header.
    pub header_length: u32,
    /// Bytes of payload behind it.
    pub payload_length: u32,
    pub parts: Arc<[Part]>,
    /// Where the payload of the record before this one lies.
    pub echo_place: Place,
    /// The descriptors of that record.
    pub echo: Arc<[Part]>,
}

impl RecordHeader {
    /// Bytes of a header with these descriptors.
    #[must_use]
    pub fn length_with(parts: &[Part], echo: &[Part], unit: usize) -> usize {
        let descriptors: usize = parts.iter().chain(echo).map(Part::encoded_length).sum();
        (FIXED + descriptors).next_multiple_of(unit)
    }

    /// Puts the header, rounded up to `unit`, at the end of `room`; returns where it begins there. Sets
    /// `header_length`.
    ///
    /// # Panics
    /// The room is too small.
    pub fn encode_into(&mut self, room: &mut [u8], unit: usize) -> usize {
        let mut body = Vec::with_capacity(1024);
        body.u64(self.pool);
        body.u32(self.segment);
        body.u32(self.payload_length);
        body.u64(self.generation);
        body.u64(self.number);
        body.u64(self.durable);
        body.u64(self.echo_place.to_bits());
        body.u16(u16::try_from(self.parts.len()).expect("at most 128"));
        body.u16(u16::try_from(self.echo.len()).expect("at most 128"));
        for part in self.parts.iter().chain(self.echo.iter()) {
            part.encode(&mut body);
        }
        let length = (12 + body.len()).next_multiple_of(unit);
        self.header_length = u32::try_from(length).expect("at most 16 KiB");
        let start = room.len() - length;
        let place = &mut room[start..];
        place[..4].copy_from_slice(&MAGIC.to_le_bytes());
        place[8..12].copy_from_slice(&self.header_length.to_le_bytes());
        place[12..12 + body.len()].copy_from_slice(&body);
        place[12 + body.len()..].fill(0);
        let sum = crc(&place[8..]);
        place[4..8].copy_from_slice(&sum.to_le_bytes());
        start
    }

    /// Bytes of the header that begins with these at least 12, if it is one.
    #[must_use]
    pub fn length_of(bytes: &[u8]) -> Option<usize> {
        let mut take = Take::new(bytes);
        let magic = take.u32().ok()?;
        take.u32().ok()?;
        let length = usize::try_from(take.u32().ok()?).ok()?;
        let fits = (FIXED..=HEADER_MAX).contains(&length) && length.is_multiple_of(STEP);
        (magic == MAGIC && fits).then_some(length)
    }

    /// # Errors
    /// The bytes are no header, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let length = Self::length_of(bytes).ok_or(FormatError::Magic)?;
        let mut take = Take::new(bytes);
        let covered = take.bytes(length)?;
        let mut take = Take::new(covered);
        take.u32()?;
        if take.u32()? != crc(&covered[8..]) {
            return Err(FormatError::Checksum);
        }
        let header_length = take.u32()?;
        let pool = take.u64()?;
        let segment = take.u32()?;
        let payload_length = take.u32()?;
        let generation = take.u64()?;
        let number = take.u64()?;
        let durable = take.u64()?;
        let echo_place = Place::from_bits(take.u64()?);
        let (parts, echo) = (usize::from(take.u16()?), usize::from(take.u16()?));
        if payload_length > PAYLOAD_MAX_U32 || !payload_length.is_multiple_of(STEP_U32) {
            return Err(FormatError::Field("the length of a payload"));
        }
        if parts > PARTS_MAX || echo > PARTS_MAX {
            return Err(FormatError::Field("the number of parts"));
        }
        let mut list = |count: usize, payload: u32| {
            (0..count)
                .map(|_| Part::decode(&mut take, payload))
                .collect::<Result<Arc<[_]>, _>>()
        };
        Ok(Self {
            pool,
            segment,
            generation,
            number,
            durable,
            header_length,
            payload_length,
            parts: list(parts, payload_length)?,
            echo_place,
            echo: list(echo, PAYLOAD_MAX_U32)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        let part = |page, offset, length, kind| Part {
            layer: LayerId(3),
            page,
            offset,
            length,
            kind,
        };
        RecordHeader {
            pool: 77,
            segment: 5,
            generation: 9,
            number: 1000,
            durable: 990,
            header_length: 0,
            payload_length: 20_000,
            parts: [
                part(1, 0, 8192, PartKind::Raw { crcs: vec![1, 2] }),
                part(
                    8,
                    8192,
                    5000,
                    PartKind::Chunk {
                        codec: Codec::Lz4,
                        pages: 4,
                        crc: 3,
                    },
                ),
                part(12, 0, 0, PartKind::Zero { pages: 1 << 30 }),
                part(0, 13_200, 40, PartKind::Op { crc: 5 }),
            ]
            .into(),
            echo_place: Place::new(2, 1 << 20),
            echo: [
                part(
                    4,
                    0,
                    4096,
                    PartKind::Moved {
                        codec: Codec::Raw,
                        pages: 1,
                        mask: 1,
                        crc: 6,
                        from: Place::new(1, 4096),
                    },
                ),
                part(
                    5,
                    0,
                    0,
                    PartKind::Lost {
                        mask: 1,
                        from: Place::new(1, 8192),
                    },
                ),
            ]
            .into(),
        }
    }

    #[test]
    fn a_header_comes_back_and_no_damage_passes() {
        for unit in [512, 4096] {
            let mut room = vec![0xee; HEADER_MAX];
            let mut header = header();
            let start = header.encode_into(&mut room, unit);
            let bytes = &room[start..];
            assert_eq!(bytes.len() % unit, 0);
            assert_eq!(RecordHeader::length_of(bytes), Some(bytes.len()));
            assert_eq!(RecordHeader::decode(bytes).expect("a header"), header);
            for place in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[place] ^= 4;
                assert!(RecordHeader::decode(&damaged).is_err(), "byte {place}");
            }
            for length in 0..bytes.len() {
                assert!(RecordHeader::decode(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn the_largest_header_has_room() {
        let mut header = header();
        let zero = Part {
            kind: PartKind::Moved {
                codec: Codec::Raw,
                pages: 1,
                mask: 1,
                crc: 6,
                from: Place::new(1, 4096),
            },
            length: 4096,
            ..header.parts[0].clone()
        };
        header.payload_length = 512 << 10;
        header.parts = vec![zero; PARTS_MAX].into();
        header.echo = header.parts.clone();
        let mut room = vec![0; HEADER_MAX];
        let start = header.encode_into(&mut room, 4096);
        assert_eq!(RecordHeader::decode(&room[start..]).expect("one"), header);
    }
}
