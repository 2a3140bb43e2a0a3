//! Where data lies, and what a map keeps for a page.

use crate::format::RESERVED_BYTES;

/// A place on a drive of the pool, in steps of 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

/// Binary logarithm of the steps that places are counted in.
const STEP_SHIFT: u32 = 4;
/// Bits of the step; 256 TiB.
const STEP_BITS: u32 = 44;
const STEP_MASK: u64 = (1 << STEP_BITS) - 1;
/// Bits of a place: the step, and the drive.
const PLACE_BITS: u32 = STEP_BITS + 6;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// Bytes that stored data is aligned to.
pub(crate) const STEP: usize = 1 << STEP_SHIFT;

/// Bytes of a drive that can be addressed.
pub const DRIVE_BYTES_MAX: u64 = 1 << (STEP_BITS + STEP_SHIFT);

impl Place {
    /// # Panics
    /// For a drive or an offset that cannot be addressed.
    #[must_use]
    pub fn new(drive: u8, offset: u64) -> Self {
        assert!(drive < 64 && offset < DRIVE_BYTES_MAX && offset.is_multiple_of(1 << STEP_SHIFT));
        Self(offset >> STEP_SHIFT | u64::from(drive) << STEP_BITS)
    }

    #[must_use]
    pub fn drive(self) -> u8 {
        u8::try_from(self.0 >> STEP_BITS).expect("6 bits")
    }

    /// Bytes from the start of the drive.
    #[must_use]
    pub fn offset(self) -> u64 {
        (self.0 & STEP_MASK) << STEP_SHIFT
    }

    /// The place so many bytes further on.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self::new(self.drive(), self.offset() + bytes)
    }

    /// Where its segment begins, of those of so many bytes.
    #[must_use]
    pub fn segment(self, bytes: u64) -> Self {
        let behind = self.offset().saturating_sub(RESERVED_BYTES);
        Self::new(self.drive(), RESERVED_BYTES + behind / bytes * bytes)
    }

    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Bits beyond those of a place are dropped.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & PLACE_MASK)
    }
}

/// How stored bytes became so few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    #[default]
    Raw,
    Lz4,
    Zstd,
}

impl Codec {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    pub(crate) const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Raw),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// What a map keeps for a page: 16 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    bits: u64,
    crc: u32,
    stored: u16,
}

/// An entry, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The layer says nothing; an older one may.
    Absent,
    Data(Stored),
    /// The page reads as zeros, whatever older layers say.
    Zero,
    /// Its data was lost; it reads as a medium error.
    Lost,
}

/// Stored data of a page: a chunk of up to four pages, and the page's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where the chunk lies.
    pub place: Place,
    /// Bytes of the chunk on the drive.
    pub length: u16,
    /// CRC32C of those stored bytes.
    pub crc: u32,
    pub codec: Codec,
    /// The page's number in its chunk.
    pub page: u8,
    /// Pages of the chunk, 1 to 4.
    pub pages: u8,
}

/// What a compressed chunk takes beside its bytes: its descriptor in two records, what these are rounded up by, and what
/// it is aligned to. Raw pages are so large that the capacity accounts for it.
const CHUNK_COST: u64 = 120;

impl Stored {
    /// The part of what the chunk takes that is accounted to one of its pages.
    #[must_use]
    pub fn share(&self) -> u64 {
        let cost = match self.codec {
            Codec::Raw => 0,
            Codec::Lz4 | Codec::Zstd => CHUNK_COST,
        };
        (u64::from(self.length) + cost).div_ceil(u64::from(self.pages))
    }
}

const PAGE_SHIFT: u32 = PLACE_BITS;
const PAGES_SHIFT: u32 = PLACE_BITS + 2;
const CODEC_SHIFT: u32 = PLACE_BITS + 4;
const KIND_SHIFT: u32 = PLACE_BITS + 8;

const ABSENT: u64 = 0;
const DATA: u64 = 1;
const ZERO: u64 = 2;
const LOST: u64 = 3;

impl Entry {
    pub const ABSENT: Self = Self {
        bits: 0,
        crc: 0,
        stored: 0,
    };
    pub const ZERO: Self = Self {
        bits: ZERO << KIND_SHIFT,
        crc: 0,
        stored: 0,
    };
    pub const LOST: Self = Self {
        bits: LOST << KIND_SHIFT,
        crc: 0,
        stored: 0,
    };

    /// The entry for stored data.
    #[must_use]
    pub fn data(stored: &Stored) -> Self {
        debug_assert!(stored.pages >= 1 && stored.pages <= 4 && stored.page < stored.pages);
        Self {
            bits: stored.place.0
                | u64::from(stored.page) << PAGE_SHIFT
                | u64::from(stored.pages - 1) << PAGES_SHIFT
                | u64::from(stored.codec.code()) << CODEC_SHIFT
                | DATA << KIND_SHIFT,
            crc: stored.crc,
            stored: stored.length,
        }
    }

    #[must_use]
    pub const fn is_absent(self) -> bool {
        self.bits >> KIND_SHIFT == ABSENT
    }

    /// What the entry says, taken apart.
    #[must_use]
    pub fn content(self) -> Content {
        let field =
            |shift: u32, mask: u64| u8::try_from(self.bits >> shift & mask).expect("a few bits");
        match self.bits >> KIND_SHIFT {
            DATA => Content::Data(Stored {
                place: Place(self.bits & PLACE_MASK),
                length: self.stored,
                crc: self.crc,
                codec: Codec::of(field(CODEC_SHIFT, 0xf)).unwrap_or_default(),
                page: field(PAGE_SHIFT, 3),
                pages: field(PAGES_SHIFT, 3) + 1,
            }),
            ZERO => Content::Zero,
            LOST => Content::Lost,
            _ => Content::Absent,
        }
    }

    /// Its three fields, as checkpoints have them.
    #[must_use]
    pub const fn to_parts(self) -> (u64, u32, u16) {
        (self.bits, self.crc, self.stored)
    }

    /// # Errors
    /// None for bits that are no entry.
    #[must_use]
    pub fn from_parts(bits: u64, crc: u32, stored: u16) -> Option<Self> {
        let entry = Self { bits, crc, stored };
        let known = match bits >> KIND_SHIFT {
            DATA => {
                let codec = Codec::of(u8::try_from(bits >> CODEC_SHIFT & 0xf).ok()?)?;
                let (page, pages) = (bits >> PAGE_SHIFT & 3, (bits >> PAGES_SHIFT & 3) + 1);
                page < pages
                    && stored > 0
                    && match codec {
                        Codec::Raw => pages == 1 && stored == 4096,
                        Codec::Lz4 | Codec::Zstd => u64::from(stored) < pages * 4096,
                    }
            }
            ZERO | LOST => bits & !(3 << KIND_SHIFT) == 0,
            _ => false,
        };
        known.then_some(entry)
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.content().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_16_bytes_and_comes_back() {
        assert_eq!(size_of::<Entry>(), 16);
        let stored = Stored {
            place: Place::new(63, DRIVE_BYTES_MAX - 16),
            length: 9000,
            crc: 0xdead_beef,
            codec: Codec::Lz4,
            page: 2,
            pages: 3,
        };
        let entry = Entry::data(&stored);
        assert_eq!(entry.content(), Content::Data(stored));
        let (bits, crc, length) = entry.to_parts();
        assert_eq!(Entry::from_parts(bits, crc, length), Some(entry));
        assert_eq!(
            Entry::from_parts(bits | 7 << CODEC_SHIFT, crc, length),
            None
        );
        assert_eq!(Entry::from_parts(0, 0, 0), None);
        assert_eq!(Entry::ZERO.content(), Content::Zero);
        assert_eq!(Entry::LOST.content(), Content::Lost);
        assert!(Entry::ABSENT.is_absent() && !Entry::ZERO.is_absent());
    }
}
