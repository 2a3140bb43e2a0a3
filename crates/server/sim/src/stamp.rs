//! What the workloads write: every 16 bytes say which write they come from and where they belong.
//!
//! So a checker can tell of any piece of a sector whose data it is, whether it is in its place, and
//! whether it is whole. Unwritten blocks of a medium are zeros.
//!
//! ```text
//! |0             8            16|
//! | write number | place        |   big-endian, repeated to the end of the sector
//! ```

/// Bytes of a sector: what a disk writes or loses as a whole.
pub const SECTOR: usize = 512;

/// Bytes of a stamp.
pub const CELL: usize = 16;

/// The write a piece of data comes from. Zero: nobody's, all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

impl WriteId {
    pub const ZEROS: Self = Self(0);
}

/// Which stamps a write puts into its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each sector carries its own number.
    Placed,
    /// Each block is the same (WRITE SAME); a sector carries its number within the block.
    Repeated {
        block_sectors: u64,
    },
    Zeros,
}

impl Pattern {
    /// The stamp that this write leaves in a sector.
    #[must_use]
    pub const fn stamp(self, id: WriteId, sector: u64) -> Stamp {
        match self {
            Self::Placed => Stamp {
                id,
                place: sector + 1,
            },
            Self::Repeated { block_sectors } => Stamp {
                id,
                place: u64::MAX - sector % block_sectors,
            },
            Self::Zeros => Stamp::ZEROS,
        }
    }
}

/// The content of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub id: WriteId,
    pub place: u64,
}

impl Stamp {
    /// What a fresh medium holds.
    pub const ZEROS: Self = Self {
        id: WriteId::ZEROS,
        place: 0,
    };

    #[must_use]
    pub fn read(cell: &[u8; CELL]) -> Self {
        let value = u128::from_be_bytes(*cell);
        let half = |value: u128| u64::try_from(value).expect("half of 128 bits");
        Self {
            id: WriteId(half(value >> 64)),
            place: half(value & u128::from(u64::MAX)),
        }
    }

    fn bytes(self) -> [u8; CELL] {
        (u128::from(self.id.0) << 64 | u128::from(self.place)).to_be_bytes()
    }

    pub fn fill(self, sector: &mut [u8]) {
        let cell = self.bytes();
        for place in sector.chunks_mut(CELL) {
            place.copy_from_slice(&cell[..place.len()]);
        }
    }
}

/// Fills whole sectors, from sector number `first` on.
pub fn fill(bytes: &mut [u8], first: u64, id: WriteId, pattern: Pattern) {
    for (sector, part) in (first..).zip(bytes.chunks_mut(SECTOR)) {
        pattern.stamp(id, sector).fill(part);
    }
}

/// The different stamps of a sector, in order of appearance.
#[must_use]
pub fn stamps(sector: &[u8]) -> Vec<Stamp> {
    let mut found: Vec<Stamp> = Vec::new();
    for cell in sector.as_chunks::<CELL>().0 {
        let stamp = Stamp::read(cell);
        if found.last() != Some(&stamp) && !found.contains(&stamp) {
            found.push(stamp);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_is_read() {
        let mut bytes = [0; 2 * SECTOR];
        fill(&mut bytes, 9, WriteId(3), Pattern::Placed);
        assert_eq!(
            stamps(&bytes[SECTOR..]),
            [Pattern::Placed.stamp(WriteId(3), 10)]
        );
        fill(&mut bytes[..16], 9, WriteId(4), Pattern::Placed);
        assert_eq!(stamps(&bytes[..SECTOR]).len(), 2);
    }

    #[test]
    fn sectors_of_repeated_blocks_are_told_apart_within_the_block_only() {
        let pattern = Pattern::Repeated { block_sectors: 8 };
        let at = |sector| pattern.stamp(WriteId(1), sector);
        assert_eq!(at(3), at(11));
        assert_ne!(at(3), at(4));
    }
}
