//! The superblock: what a drive is, and where the newest checkpoint lies. Four copies on each drive.
//!
//! Copies are written in two pairs with a sync between them, so that at least two copies are whole at any time.

use uuid::Uuid;

use super::{FormatError, PAGE, Put, RESERVED_BYTES, Take, crc};
use crate::place::Place;

const MAGIC: &[u8; 8] = b"LS-POOL1";

/// Bytes of a copy.
pub const LENGTH: usize = PAGE;

/// Most drives of a pool.
pub const DRIVES_MAX: usize = 32;
/// Most segments of all drives: what is kept of each in memory has room.
pub const SEGMENTS_MAX: u32 = 1 << 24;
/// Most bytes of a pool's name.
pub const NAME_MAX: usize = 64;

/// An incompatible feature: drives may have been removed; they have no UUID in the list.
pub const REMOVED_DRIVES: u64 = 1;
/// An incompatible feature: there may be chunks compressed with zstd, and volumes that are to have them.
pub const ZSTD: u64 = 1 << 1;
/// An incompatible feature: settings of volumes have changed, or space was reserved.
pub const SETTINGS: u64 = 1 << 2;
/// An incompatible feature: drives may be mirrors.
pub const MIRRORS: u64 = 1 << 3;
/// An incompatible feature: checkpoints say where leaves lie, instead of having them.
pub const LEAVES: u64 = 1 << 4;
/// An incompatible feature: records may hand out segments.
pub const HAND_OUTS: u64 = 1 << 5;
/// Features that a version has to know to open the pool at all.
pub const INCOMPATIBLE_KNOWN: u64 = REMOVED_DRIVES | ZSTD | SETTINGS | MIRRORS | LEAVES | HAND_OUTS;
/// Features that a version has to know to write to the pool.
pub const READ_ONLY_COMPATIBLE_KNOWN: u64 = 0;

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub incompatible: u64,
    pub read_only_compatible: u64,
    pub pool: Uuid,
    pub name: String,
    /// This drive's number in the pool.
    pub drive: u8,
    /// Which side of a mirror this is, 0 or 1.
    pub side: u8,
    /// Identifiers of all drives, by number, with the first segment of each.
    pub drives: Vec<DriveEntry>,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Bytes that records are aligned to: 512 or 4096.
    pub unit: u32,
    /// Grows with each superblock; the largest one counts.
    pub number: u64,
    /// The first part of the newest checkpoint.
    pub checkpoint: Place,
    /// Number of that checkpoint.
    pub checkpoint_number: u64,
    /// The last record that the checkpoint has. 0: an earlier version did not say.
    pub checkpoint_record: u64,
}

/// A drive as all superblocks list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveEntry {
    pub id: Uuid,
    /// Number of its first segment in the pool.
    pub first_segment: u32,
    pub segments: u32,
    /// It is a mirror, and `id` is that of its side 0.
    pub mirror: Option<Mirror>,
}

/// What makes a drive a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Identifier of side 1.
    pub id: Uuid,
    /// The side that lacks what was written since it was left out.
    pub stale: Option<u8>,
}

impl DriveEntry {
    /// Identifiers of its sides.
    #[must_use]
    pub fn sides(&self) -> [Option<Uuid>; 2] {
        [Some(self.id), self.mirror.map(|mirror| mirror.id)]
    }

    /// Whether the drive was removed: its numbers, and those of its segments, are not used again.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.id.is_nil()
    }
}

impl Superblock {
    /// # Panics
    /// With more drives, or a longer name, than a superblock has room for.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.drives.len() <= DRIVES_MAX && self.name.len() <= NAME_MAX);
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend_from_slice(MAGIC);
        bytes.u64(self.incompatible);
        bytes.u64(self.read_only_compatible);
        bytes.extend_from_slice(self.pool.as_bytes());
        bytes.text(&self.name);
        bytes.u8(self.drive);
        bytes.u8(u8::try_from(self.drives.len()).expect("at most 32"));
        for drive in &self.drives {
            bytes.extend_from_slice(drive.id.as_bytes());
            bytes.u32(drive.first_segment);
            bytes.u32(drive.segments);
        }
        bytes.u32(self.segment_bytes);
        bytes.u32(self.unit);
        bytes.u64(self.number);
        bytes.u64(self.checkpoint.to_bits());
        bytes.u64(self.checkpoint_number);
        if self.incompatible & MIRRORS != 0 {
            bytes.u8(self.side);
            for drive in &self.drives {
                let id = drive.mirror.map(|mirror| mirror.id).unwrap_or_default();
                bytes.extend_from_slice(id.as_bytes());
                let stale = drive.mirror.and_then(|mirror| mirror.stale);
                bytes.u8(stale.map_or(0, |side| side + 1));
            }
        }
        bytes.u64(self.checkpoint_record);
        bytes.resize(LENGTH - 4, 0);
        let sum = crc(&bytes);
        bytes.u32(sum);
        bytes
    }

    /// # Errors
    /// The bytes are no superblock, damaged, or of a version that this one does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut take = Take::new(bytes);
        if take.array::<8>()? != *MAGIC {
            return Err(FormatError::Magic);
        }
        let mut all = Take::new(bytes);
        let covered = all.bytes(LENGTH - 4)?;
        if all.u32()? != crc(covered) {
            return Err(FormatError::Checksum);
        }
        let incompatible = take.u64()?;
        let read_only_compatible = take.u64()?;
        if incompatible & !INCOMPATIBLE_KNOWN != 0 {
            return Err(FormatError::Field("a feature of a later version"));
        }
        let pool = Uuid::from_bytes(take.array()?);
        let name = take.text()?;
        let drive = take.u8()?;
        let count = usize::from(take.u8()?);
        if count == 0 || count > DRIVES_MAX || usize::from(drive) >= count || name.len() > NAME_MAX
        {
            return Err(FormatError::Field("the list of drives"));
        }
        let mut drives = Vec::with_capacity(count);
        let mut next = 0_u32;
        for _ in 0..count {
            let entry = DriveEntry {
                id: Uuid::from_bytes(take.array()?),
                first_segment: take.u32()?,
                segments: take.u32()?,
                mirror: None,
            };
            if entry.first_segment != next || entry.segments == 0 {
                return Err(FormatError::Field("the segments of a drive"));
            }
            if entry.is_removed() && incompatible & REMOVED_DRIVES == 0 {
                return Err(FormatError::Field("the UUID of a drive"));
            }
            next = next
                .checked_add(entry.segments)
                .filter(|next| *next <= SEGMENTS_MAX)
                .ok_or(FormatError::Field("the segments of a drive"))?;
            drives.push(entry);
        }
        if drives[usize::from(drive)].is_removed() {
            return Err(FormatError::Field("its own drive, which was removed"));
        }
        let segment_bytes = take.u32()?;
        let unit = take.u32()?;
        let sizes_fit = segment_bytes.is_power_of_two()
            && (SEGMENT_MIN..=SEGMENT_MAX).contains(&segment_bytes)
            && matches!(unit, 512 | 4096);
        if !sizes_fit {
            return Err(FormatError::Field("the size of segments"));
        }
        let mut found = Self {
            incompatible,
            read_only_compatible,
            pool,
            name,
            drive,
            side: 0,
            drives,
            segment_bytes,
            unit,
            number: take.u64()?,
            checkpoint: Place::from_bits(take.u64()?),
            checkpoint_number: take.u64()?,
            checkpoint_record: 0,
        };
        if incompatible & MIRRORS != 0 {
            found.side = take.u8()?;
            for entry in &mut found.drives {
                entry.mirror = decode_mirror(&mut take)?;
            }
            let own = &found.drives[usize::from(drive)].sides();
            if !own
                .get(usize::from(found.side))
                .is_some_and(Option::is_some)
            {
                return Err(FormatError::Field("its side of a mirror"));
            }
        }
        found.checkpoint_record = take.u64()?;
        Ok(found)
    }

    /// The segments of all drives.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.drives
            .last()
            .map_or(0, |drive| drive.first_segment + drive.segments)
    }
}

fn decode_mirror(take: &mut Take<'_>) -> Result<Option<Mirror>, FormatError> {
    let id = Uuid::from_bytes(take.array()?);
    let stale = match take.u8()? {
        0 => None,
        side @ 1..=2 => Some(side - 1),
        _ => return Err(FormatError::Field("the stale side of a mirror")),
    };
    Ok((!id.is_nil()).then_some(Mirror { id, stale }))
}

/// Smallest and largest segment, in bytes.
pub const SEGMENT_MIN: u32 = 128 << 10;
/// The largest one; see [`SEGMENT_MIN`].
pub const SEGMENT_MAX: u32 = 64 << 20;

/// Where the copies of a drive of so many bytes lie: the first pair, then the second.
#[must_use]
pub fn copies(drive_bytes: u64) -> [[u64; 2]; 2] {
    let tail = tail_start(drive_bytes);
    [[0, tail], [64 << 10, tail + (64 << 10)]]
}

/// Where the reserved part at the end of a drive begins.
#[must_use]
pub fn tail_start(drive_bytes: u64) -> u64 {
    (drive_bytes / RESERVED_BYTES).saturating_sub(1) * RESERVED_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            incompatible: 0,
            read_only_compatible: 0,
            pool: Uuid::from_u128(5),
            name: "tank".into(),
            drive: 1,
            side: 0,
            drives: vec![
                DriveEntry {
                    id: Uuid::from_u128(6),
                    first_segment: 0,
                    segments: 10,
                    mirror: None,
                },
                DriveEntry {
                    id: Uuid::from_u128(7),
                    first_segment: 10,
                    segments: 4,
                    mirror: None,
                },
            ],
            segment_bytes: 1 << 20,
            unit: 512,
            number: 12,
            checkpoint: Place::new(1, 1 << 20),
            checkpoint_number: 9,
            checkpoint_record: 1 << 40,
        }
    }

    #[test]
    fn a_superblock_comes_back_and_damage_is_found() {
        let bytes = superblock().encode();
        assert_eq!(bytes.len(), LENGTH);
        assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
        for place in (0..LENGTH).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            assert!(Superblock::decode(&damaged).is_err(), "byte {place}");
        }
    }

    #[test]
    fn a_feature_of_a_later_version_is_refused() {
        let mut later = superblock();
        later.incompatible = 1 << 63;
        let refused = Superblock::decode(&later.encode());
        assert_eq!(
            refused,
            Err(FormatError::Field("a feature of a later version"))
        );
    }

    #[test]
    fn drives_that_were_removed_are_known_and_bounded() {
        let mut removed = superblock();
        removed.drives[0].id = Uuid::nil();
        let refused = Superblock::decode(&removed.encode());
        assert_eq!(refused, Err(FormatError::Field("the UUID of a drive")));
        removed.incompatible = REMOVED_DRIVES;
        assert_eq!(Superblock::decode(&removed.encode()), Ok(removed.clone()));
        let own = Superblock {
            drive: 0,
            ..removed.clone()
        };
        assert!(Superblock::decode(&own.encode()).is_err());
        // What is kept of each segment has to have room, though no drive is so long.
        removed.drives[0].segments = SEGMENTS_MAX;
        removed.drives[1].first_segment = SEGMENTS_MAX;
        assert!(Superblock::decode(&removed.encode()).is_err());
    }

    #[test]
    fn mirrors_are_known_by_both_sides() {
        let mut mirrored = superblock();
        mirrored.incompatible = MIRRORS;
        for stale in [None, Some(0), Some(1)] {
            mirrored.drives[1].mirror = Some(Mirror {
                id: Uuid::from_u128(8),
                stale,
            });
            for side in 0..2 {
                mirrored.side = side;
                assert_eq!(Superblock::decode(&mirrored.encode()), Ok(mirrored.clone()));
            }
        }
        // The first drive is none.
        mirrored.drive = 0;
        let refused = Superblock::decode(&mirrored.encode());
        assert_eq!(refused, Err(FormatError::Field("its side of a mirror")));
    }

    #[test]
    fn copies_lie_in_the_reserved_parts_and_do_not_overlap() {
        for bytes in [16 << 20, (16 << 20) + 512, (1 << 40) + 4096] {
            let [[a, c], [b, d]] = copies(bytes);
            assert!(b >= a + 4096 && b + 4096 <= RESERVED_BYTES);
            assert!(d >= c + 4096 && d + 4096 <= bytes && c >= bytes - 2 * RESERVED_BYTES);
        }
    }
}
