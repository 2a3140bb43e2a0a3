//! Checkpoints: a chain of parts, each in a segment of its own kind, which together are a stream of items.

use std::num::NonZeroU16;

use uuid::Uuid;

use super::op::VolumeRecord;
use super::record::LayerId;
use super::{FormatError, Put, Take, crc};
use crate::leaf::{Home, LEAF_PAGES, Leaf};
use crate::place::{Codec, Content, Entry, Place, Stored};

const MAGIC: &[u8; 8] = b"LS-CKPT1";

/// Bytes before the content of a part.
pub const PART_HEADER: usize = 64;

/// The header of a part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHeader {
    pub pool: Uuid,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Number of the part, from 0; [`LEAVES`](Self::LEAVES): leaves follow, and it has no content.
    pub index: u32,
    /// Bytes of its content.
    pub length: u32,
    /// The next part; none behind the last.
    pub next: Option<Place>,
}

impl PartHeader {
    /// What the number of the part is where leaves follow.
    pub const LEAVES: u32 = u32::MAX;

    /// Puts the header before the content, which lies behind [`PART_HEADER`] bytes.
    ///
    /// # Panics
    /// The bytes are fewer than header and content.
    pub fn seal(&self, bytes: &mut [u8]) {
        let mut header = Vec::with_capacity(PART_HEADER);
        header.extend_from_slice(MAGIC);
        header.u32(0);
        header.extend_from_slice(self.pool.as_bytes());
        header.u64(self.checkpoint);
        header.u32(self.index);
        header.u32(self.length);
        header.u8(u8::from(self.next.is_some()));
        header.u64(self.next.unwrap_or_default().to_bits());
        header.resize(PART_HEADER, 0);
        bytes[..PART_HEADER].copy_from_slice(&header);
        let end = PART_HEADER + usize::try_from(self.length).expect("32 bits fit");
        let sum = crc(&bytes[12..end]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }

    /// The pool of bytes that begin as a part of a checkpoint does, damaged or not.
    #[must_use]
    pub fn pool_of(bytes: &[u8]) -> Option<Uuid> {
        let pool = bytes.get(12..28).filter(|_| bytes.starts_with(MAGIC))?;
        Uuid::from_slice(pool).ok()
    }

    /// The header and the content of a part.
    ///
    /// # Errors
    /// The bytes are no part, or damaged.
    pub fn open(bytes: &[u8]) -> Result<(Self, &[u8]), FormatError> {
        let mut take = Take::new(bytes);
        if take.array::<8>()? != *MAGIC {
            return Err(FormatError::Magic);
        }
        let sum = take.u32()?;
        let pool = Uuid::from_bytes(take.array()?);
        let checkpoint = take.u64()?;
        let index = take.u32()?;
        let length = take.u32()?;
        let has_next = take.u8()? != 0;
        let next = Place::from_bits(take.u64()?);
        let size = usize::try_from(length).expect("32 bits fit");
        let end = PART_HEADER.checked_add(size);
        let Some(covered) = end.and_then(|end| bytes.get(12..end)) else {
            return Err(FormatError::Field("the length of a checkpoint's part"));
        };
        if crc(covered) != sum {
            return Err(FormatError::Checksum);
        }
        let header = Self {
            pool,
            checkpoint,
            index,
            length,
            next: has_next.then_some(next),
        };
        Ok((header, &bytes[PART_HEADER..PART_HEADER + size]))
    }
}

/// An item of the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// What the stream begins with.
    Head {
        /// Records after this one are not in the checkpoint.
        record: u64,
        /// Generations from this one on have not been used.
        next_generation: u64,
        next_layer: u32,
    },
    Volume(VolumeRecord),
    Snapshot(SnapshotRecord),
    Layer {
        id: LayerId,
        parent: Option<LayerId>,
    },
    /// What records of a removed layer belong to now.
    Alias {
        from: LayerId,
        to: LayerId,
    },
    /// A segment with data, and its generation.
    Segment {
        number: u32,
        generation: u64,
    },
    /// A segment that may be written after the checkpoint, in the order of their use.
    HandOut {
        number: u32,
        generation: u64,
    },
    Leaf {
        layer: LayerId,
        number: u32,
        leaf: Box<Leaf>,
    },
    /// A segment with data, its generation, and the bytes that maps refer to.
    Data {
        number: u32,
        generation: u64,
        live: u64,
    },
    /// Where leaves of a layer lie.
    Homes {
        layer: LayerId,
        leaves: Vec<LeafRecord>,
    },
    /// Space that is kept for a volume, which was named before.
    Reserve {
        volume: String,
        bytes: u64,
    },
    /// The last one, and the number of those before it.
    End {
        items: u64,
    },
}

/// Where a leaf lies, and what is known of it without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRecord {
    /// Its first page is 512 times this.
    pub number: u32,
    pub home: Home,
    /// Pages that have entries.
    pub present: u16,
    /// Bytes of the pool that they take.
    pub owned: u32,
}

impl LeafRecord {
    fn encode(&self, into: &mut Vec<u8>) {
        into.u32(self.number);
        into.u64(self.home.place.to_bits());
        into.u32(self.home.crc);
        into.u16(self.home.length.get());
        into.u16(self.present);
        into.u32(self.owned);
    }

    fn decode(take: &mut Take<'_>) -> Result<Self, FormatError> {
        const WRONG: FormatError = FormatError::Field("the place of a leaf");
        let number = take.u32()?;
        let home = Home {
            place: Place::from_bits(take.u64()?),
            crc: take.u32()?,
            length: NonZeroU16::new(take.u16()?).ok_or(WRONG)?,
        };
        let (present, owned) = (take.u16()?, take.u32()?);
        let is_possible = (1..=LEAF_PAGES).contains(&usize::from(present))
            && u64::from(owned) <= super::long(LEAF_PAGES) * OWNED_MAX;
        is_possible
            .then_some(Self {
                number,
                home,
                present,
                owned,
            })
            .ok_or(WRONG)
    }
}

/// More than a page takes of the pool, in bytes.
const OWNED_MAX: u64 = 1 << 14;

/// A snapshot, as the catalogue keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Name, identifier and shape. Its head is the layer that was frozen.
    pub shape: VolumeRecord,
    /// The volume that it was made of.
    pub volume: String,
}

const HEAD: u8 = 1;
const VOLUME: u8 = 2;
const SNAPSHOT: u8 = 3;
const LAYER: u8 = 4;
const ALIAS: u8 = 5;
const SEGMENT: u8 = 6;
const HAND_OUT: u8 = 7;
const LEAF: u8 = 8;
const END: u8 = 9;
const RESERVE: u8 = 10;
const DATA: u8 = 11;
const HOMES: u8 = 12;

/// Most bytes of an item: a leaf of single entries.
const ITEM_MAX: usize = 64 << 10;

impl Item {
    /// Whether it belongs to what comes before segments and leaves.
    #[must_use]
    pub const fn is_of_catalog(&self) -> bool {
        matches!(
            self,
            Self::Head { .. }
                | Self::Volume(_)
                | Self::Snapshot(_)
                | Self::Layer { .. }
                | Self::Alias { .. }
                | Self::Reserve { .. }
        )
    }

    /// Appends a leaf to a stream.
    pub fn encode_leaf(into: &mut Vec<u8>, layer: LayerId, number: u32, leaf: &Leaf) {
        let start = into.len();
        into.u32(0);
        encode_leaf(into, layer, number, leaf);
        put_length(into, start);
    }

    /// The leaf of an item that is one, and nothing else. `is_possible`: whether so many bytes can lie at a place.
    ///
    /// # Errors
    /// It is none.
    pub fn decode_leaf(
        bytes: &[u8],
        is_possible: impl Fn(Place, u64) -> bool,
    ) -> Result<Box<Leaf>, FormatError> {
        const WRONG: FormatError = FormatError::Field("the length of an item");
        let (length, item) = bytes.split_first_chunk::<4>().ok_or(WRONG)?;
        if super::long(item.len()) != u64::from(u32::from_le_bytes(*length)) {
            return Err(WRONG);
        }
        let mut take = Take::new(item);
        if take.u8()? != LEAF {
            return Err(FormatError::Field("the kind of an item"));
        }
        decode_leaf(&mut take, is_possible).map(|(_, _, leaf)| leaf)
    }

    /// Appends the item to a stream.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.u32(0);
        match self {
            Self::Head {
                record,
                next_generation,
                next_layer,
            } => {
                into.u8(HEAD);
                into.u64(*record);
                into.u64(*next_generation);
                into.u32(*next_layer);
            }
            Self::Volume(volume) => {
                into.u8(VOLUME);
                volume.encode(into);
            }
            Self::Snapshot(snapshot) => {
                into.u8(SNAPSHOT);
                snapshot.shape.encode(into);
                into.text(&snapshot.volume);
            }
            Self::Layer { id, parent } => {
                into.u8(LAYER);
                into.u32(id.0);
                into.u8(u8::from(parent.is_some()));
                into.u32(parent.map_or(0, |parent| parent.0));
            }
            Self::Alias { from, to } => {
                into.u8(ALIAS);
                into.u32(from.0);
                into.u32(to.0);
            }
            Self::Segment { number, generation } => {
                into.u8(SEGMENT);
                into.u32(*number);
                into.u64(*generation);
            }
            Self::HandOut { number, generation } => {
                into.u8(HAND_OUT);
                into.u32(*number);
                into.u64(*generation);
            }
            Self::Leaf {
                layer,
                number,
                leaf,
            } => encode_leaf(into, *layer, *number, leaf),
            Self::Data {
                number,
                generation,
                live,
            } => {
                into.u8(DATA);
                into.u32(*number);
                into.u64(*generation);
                into.u64(*live);
            }
            Self::Homes { layer, leaves } => {
                into.u8(HOMES);
                into.u32(layer.0);
                leaves.iter().for_each(|leaf| leaf.encode(into));
            }
            Self::Reserve { volume, bytes } => {
                into.u8(RESERVE);
                into.text(volume);
                into.u64(*bytes);
            }
            Self::End { items } => {
                into.u8(END);
                into.u64(*items);
            }
        }
        put_length(into, start);
    }

    /// Takes the next item off a stream; `None` when it is not all there.
    ///
    /// # Errors
    /// The bytes are no item.
    pub fn decode(stream: &mut &[u8]) -> Result<Option<Self>, FormatError> {
        let Some((length, rest)) = stream.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).expect("32 bits fit");
        if length > ITEM_MAX {
            return Err(FormatError::Field("the length of an item"));
        }
        let Some((item, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        *stream = rest;
        let mut take = Take::new(item);
        let item = Self::decode_whole(&mut take)?;
        if !take.is_empty() {
            return Err(FormatError::Field("the length of an item"));
        }
        Ok(Some(item))
    }

    fn decode_whole(take: &mut Take<'_>) -> Result<Self, FormatError> {
        Ok(match take.u8()? {
            HEAD => Self::Head {
                record: take.u64()?,
                next_generation: take.u64()?,
                next_layer: take.u32()?,
            },
            VOLUME => Self::Volume(VolumeRecord::decode(take)?),
            SNAPSHOT => Self::Snapshot(SnapshotRecord {
                shape: VolumeRecord::decode(take)?,
                volume: take.text()?,
            }),
            LAYER => {
                let id = LayerId(take.u32()?);
                let has_parent = take.u8()? != 0;
                let parent = LayerId(take.u32()?);
                Self::Layer {
                    id,
                    parent: has_parent.then_some(parent),
                }
            }
            ALIAS => Self::Alias {
                from: LayerId(take.u32()?),
                to: LayerId(take.u32()?),
            },
            SEGMENT => Self::Segment {
                number: take.u32()?,
                generation: take.u64()?,
            },
            HAND_OUT => Self::HandOut {
                number: take.u32()?,
                generation: take.u64()?,
            },
            LEAF => {
                let (layer, number, leaf) = decode_leaf(take, |_, _| true)?;
                Self::Leaf {
                    layer,
                    number,
                    leaf,
                }
            }
            DATA => Self::Data {
                number: take.u32()?,
                generation: take.u64()?,
                live: take.u64()?,
            },
            HOMES => {
                let layer = LayerId(take.u32()?);
                let mut leaves = Vec::new();
                while !take.is_empty() {
                    leaves.push(LeafRecord::decode(take)?);
                }
                Self::Homes { layer, leaves }
            }
            END => Self::End { items: take.u64()? },
            RESERVE => Self::Reserve {
                volume: take.text()?,
                bytes: take.u64()?,
            },
            _ => return Err(FormatError::Field("the kind of an item")),
        })
    }
}

/// Puts the length of an item before it.
fn put_length(into: &mut [u8], start: usize) {
    let length = u32::try_from(into.len() - start - 4).expect("items are short");
    into[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Bits of a run's count that say what follows it.
const RUN_RAW: u16 = 1 << 15;

/// A leaf as runs: pages that lie one behind the other on a drive share their place.
fn encode_leaf(into: &mut Vec<u8>, layer: LayerId, number: u32, leaf: &Leaf) {
    into.u8(LEAF);
    into.u32(layer.0);
    into.u32(number);
    let entries = leaf.entries();
    let mut at = 0;
    while at < LEAF_PAGES {
        if entries[at].is_absent() {
            at += 1;
            continue;
        }
        let start = u16::try_from(at).expect("512 pages");
        let run = raw_run(&entries[at..]);
        if run > 1 {
            into.u16(start);
            into.u16(RUN_RAW | u16::try_from(run).expect("512 pages"));
            into.u64(entries[at].to_parts().0);
            for entry in &entries[at..at + run] {
                into.u32(entry.to_parts().1);
            }
            at += run;
        } else {
            let same = entries[at..]
                .iter()
                .take_while(|entry| **entry == entries[at])
                .count();
            // Data is never the same twice.
            let (bits, crc, stored) = entries[at].to_parts();
            into.u16(start);
            into.u16(u16::try_from(same).expect("512 pages"));
            into.u64(bits);
            into.u32(crc);
            into.u16(stored);
            at += same;
        }
    }
}

fn raw_of(entry: Entry) -> Option<Stored> {
    match entry.content() {
        Content::Data(stored) if stored.codec == Codec::Raw => Some(stored),
        Content::Data(_) | Content::Absent | Content::Zero | Content::Lost => None,
    }
}

/// How many entries from the first on are raw pages, one behind the other.
fn raw_run(entries: &[Entry]) -> usize {
    let Some(first) = raw_of(entries[0]) else {
        return 0;
    };
    let places = (0_u64..).map(|number| first.place.plus(number * super::PAGE_BYTES));
    let is_next =
        |(entry, place): &(&Entry, Place)| raw_of(**entry).is_some_and(|raw| raw.place == *place);
    entries.iter().zip(places).take_while(is_next).count()
}

fn decode_leaf(
    take: &mut Take<'_>,
    is_possible: impl Fn(Place, u64) -> bool,
) -> Result<(LayerId, u32, Box<Leaf>), FormatError> {
    const WRONG: FormatError = FormatError::Field("an entry of a map");
    let layer = LayerId(take.u32()?);
    let number = take.u32()?;
    let mut leaf = Box::new(Leaf::new());
    while !take.is_empty() {
        let start = usize::from(take.u16()?);
        let count = take.u16()?;
        let run = usize::from(count & !RUN_RAW);
        if run == 0 || start + run > LEAF_PAGES {
            return Err(WRONG);
        }
        let bits = take.u64()?;
        if count & RUN_RAW != 0 {
            let first = Entry::from_parts(bits, 0, 4096).ok_or(WRONG)?;
            let first = raw_of(first).ok_or(WRONG)?;
            let end = first.place.offset() + super::long(run) * super::PAGE_BYTES;
            let bytes = super::long(run) * super::PAGE_BYTES;
            if end >= crate::place::DRIVE_BYTES_MAX || !is_possible(first.place, bytes) {
                return Err(WRONG);
            }
            for page in 0..run {
                let stored = Stored {
                    place: first.place.plus(super::long(page) * super::PAGE_BYTES),
                    crc: take.u32()?,
                    ..first
                };
                leaf.put(start + page, Entry::data(&stored));
            }
        } else {
            let (crc, stored) = (take.u32()?, take.u16()?);
            let entry = Entry::from_parts(bits, crc, stored).ok_or(WRONG)?;
            if let Content::Data(stored) = entry.content()
                && !is_possible(stored.place, u64::from(stored.length))
            {
                return Err(WRONG);
            }
            for page in start..start + run {
                leaf.put(page, entry);
            }
        }
    }
    Ok((layer, number, leaf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf() -> Box<Leaf> {
        let mut leaf = Box::new(Leaf::new());
        let raw = |page: u64, crc| {
            Entry::data(&Stored {
                place: Place::new(1, 8192 + page * 4096),
                length: 4096,
                crc,
                codec: Codec::Raw,
                page: 0,
                pages: 1,
            })
        };
        for page in 0_u32..20 {
            leaf.set(
                usize::try_from(page).unwrap() + 3,
                raw(u64::from(page), page),
            );
        }
        leaf.set(30, raw(100, 7));
        for page in 40..50 {
            leaf.set(page, Entry::ZERO);
        }
        leaf.set(511, Entry::LOST);
        for page in 0..3 {
            let chunk = Stored {
                place: Place::new(0, 160),
                length: 700,
                crc: 3,
                codec: Codec::Lz4,
                page,
                pages: 3,
            };
            leaf.set(100 + usize::from(page), Entry::data(&chunk));
        }
        leaf
    }

    #[test]
    fn a_stream_of_items_comes_back_whatever_its_pieces() {
        let items = [
            Item::Head {
                record: 1,
                next_generation: 2,
                next_layer: 3,
            },
            Item::Layer {
                id: LayerId(1),
                parent: Some(LayerId(0)),
            },
            Item::Alias {
                from: LayerId(8),
                to: LayerId(9),
            },
            Item::Segment {
                number: 3,
                generation: 4,
            },
            Item::HandOut {
                number: 5,
                generation: 6,
            },
            Item::Leaf {
                layer: LayerId(1),
                number: 7,
                leaf: leaf(),
            },
            Item::Reserve {
                volume: "disk0".into(),
                bytes: 7,
            },
            Item::Data {
                number: 3,
                generation: 4,
                live: 5,
            },
            Item::Homes {
                layer: LayerId(1),
                leaves: vec![LeafRecord {
                    number: 7,
                    home: Home {
                        place: Place::new(1, 1 << 20),
                        crc: 9,
                        length: NonZeroU16::MAX,
                    },
                    present: 512,
                    owned: 512 * 4096,
                }],
            },
            Item::End { items: 9 },
        ];
        let mut bytes = Vec::new();
        items.iter().for_each(|item| item.encode(&mut bytes));
        let mut stream = &bytes[..];
        for item in &items {
            assert_eq!(Item::decode(&mut stream).expect("one").as_ref(), Some(item));
        }
        assert_eq!(Item::decode(&mut stream), Ok(None));
        let mut cut = &bytes[..bytes.len() - 1];
        while let Some(item) = Item::decode(&mut cut).expect("whole ones") {
            assert!(!matches!(item, Item::End { .. }));
        }
        let mut small = Vec::new();
        items[5].encode(&mut small);
        assert!(small.len() < 300, "{} bytes", small.len());
    }

    #[test]
    fn a_part_comes_back_and_no_damage_passes() {
        let header = PartHeader {
            pool: Uuid::from_u128(3),
            checkpoint: 4,
            index: 1,
            length: 100,
            next: Some(Place::new(2, 4096)),
        };
        let mut bytes = vec![7; 512];
        header.seal(&mut bytes);
        let (found, content) = PartHeader::open(&bytes).expect("a part");
        assert_eq!((found, content), (header, &[7; 100][..]));
        for place in 0..PART_HEADER + 100 {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert!(PartHeader::open(&damaged).is_err(), "byte {place}");
        }
    }
}
