//! The header of a segment: durable before the first record of the segment is written.

use uuid::Uuid;

use super::{FormatError, Put, Take, crc};

const MAGIC: &[u8; 8] = b"LS-SEGM1";
const LENGTH: usize = 48;

/// Which segment, and for the how-many-th time it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub pool: Uuid,
    /// Number of the segment in the pool.
    pub segment: u32,
    /// Grows with each use of any segment.
    pub generation: u64,
}

impl SegmentHeader {
    /// The bytes of the header, `length` in all.
    #[must_use]
    pub fn encode(&self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(self.pool.as_bytes());
        bytes.u32(self.segment);
        bytes.u64(self.generation);
        let sum = crc(&bytes);
        bytes.u32(sum);
        bytes.resize(length.max(LENGTH), 0);
        bytes
    }

    /// # Errors
    /// The bytes are no header, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut take = Take::new(bytes);
        if take.array::<8>()? != *MAGIC {
            return Err(FormatError::Magic);
        }
        let pool = Uuid::from_bytes(take.array()?);
        let segment = take.u32()?;
        let generation = take.u64()?;
        if take.u32()? != crc(&bytes[..36]) {
            return Err(FormatError::Checksum);
        }
        Ok(Self {
            pool,
            segment,
            generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_flipped_bit_passes() {
        let header = SegmentHeader {
            pool: Uuid::from_u128(7),
            segment: 9,
            generation: 1 << 40,
        };
        let bytes = header.encode(512);
        assert_eq!(bytes.len(), 512);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for bit in 0..40 * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&damaged).is_err(), "bit {bit}");
        }
        assert!(SegmentHeader::decode(&bytes[..39]).is_err());
    }
}
