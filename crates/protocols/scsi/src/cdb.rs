//! Command descriptor blocks (SPC-4 §4.3) and the fields that many of them share.
//!
//! ```text
//!          opcode  flags  LOGICAL BLOCK ADDRESS   length            CONTROL
//!  6 byte    0       –    1 (5 bits)..3           4                 5
//! 10 byte    0       1    2..5                    7..8              9
//! 12 byte    0       1    2..5                    6..9              11
//! 16 byte    0       1    2..9                    10..13            15
//! ```

use longshore_block::extent::{BlockCount, Extent, Lba};

/// A CDB of up to 16 bytes, zero-padded. Which bytes mean something is the command table's matter
/// ([`crate::command_table`]); by the time a decoder sees a CDB, bits that are not in the usage map
/// are known to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cdb([u8; 16]);

impl Cdb {
    /// Takes the first 16 bytes; commands of other lengths than the table's are refused elsewhere.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut padded = [0; 16];
        let length = bytes.len().min(16);
        padded[..length].copy_from_slice(&bytes[..length]);
        Self(padded)
    }

    /// A CDB that has all 16.
    #[inline]
    pub(crate) const fn whole(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    pub(crate) fn operation_code(&self) -> u8 {
        self.0[0]
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// Whether one bit of a byte is set.
    pub(crate) fn flag(&self, at: usize, bit: u8) -> bool {
        self.0[at] & (1 << bit) != 0
    }

    /// `width` bits of a byte, the lowest of them `shift`.
    pub(crate) fn bits(&self, at: usize, shift: u8, width: u8) -> u8 {
        (self.0[at] >> shift) & ((1 << width) - 1)
    }

    pub(crate) fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub(crate) fn be32(&self, at: usize) -> u32 {
        let [a, b, c, d] = [self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]];
        u32::from_be_bytes([a, b, c, d])
    }

    pub(crate) fn be64(&self, at: usize) -> u64 {
        (u64::from(self.be32(at)) << 32) | u64::from(self.be32(at + 4))
    }

    /// All 16 bytes as one number, the operation code topmost.
    pub(crate) fn to_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// DPO and FUA sit in the same place in every command that has them.
    pub(crate) fn fua(&self) -> bool {
        self.flag(1, 3)
    }

    /// The SERVICE ACTION field of commands that keep it in byte 1.
    pub(crate) fn service_action(&self) -> u8 {
        self.bits(1, 0, 5)
    }

    /// LOGICAL BLOCK ADDRESS and the length field that follows it, by the length of the CDB. The
    /// 6-byte form's "0 means 256" is left to the caller.
    pub(crate) fn extent(&self, cdb_length: u8) -> Extent {
        let (lba, blocks) = match cdb_length {
            6 => {
                let lba = self.be32(0) & 0x001f_ffff;
                (u64::from(lba), u32::from(self.0[4]))
            }
            10 => (u64::from(self.be32(2)), u32::from(self.be16(7))),
            12 => (u64::from(self.be32(2)), self.be32(6)),
            _ => (self.be64(2), self.be32(10)),
        };
        Extent {
            lba: Lba(lba),
            blocks: BlockCount(u64::from(blocks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_all_lengths_decode() {
        let extent = |lba, blocks| Extent {
            lba: Lba(lba),
            blocks: BlockCount(blocks),
        };
        assert_eq!(
            Cdb::new(&[0x08, 0xff, 0x12, 0x34, 7, 0]).extent(6),
            extent(0x1f_1234, 7)
        );
        assert_eq!(
            Cdb::new(&[0x28, 0, 1, 2, 3, 4, 0xff, 5, 6, 0]).extent(10),
            extent(0x0102_0304, 0x0506)
        );
        assert_eq!(
            Cdb::new(&[0xa8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]).extent(12),
            extent(0x0102_0304, 0x0506_0708)
        );
        assert_eq!(
            Cdb::new(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]).extent(16),
            extent(0x0102_0304_0506_0708, 0x090a_0b0c)
        );
    }

    #[test]
    fn an_extent_that_wraps_around_does_not_fit() {
        let extent = Extent {
            lba: Lba(u64::MAX),
            blocks: BlockCount(2),
        };
        assert!(!extent.fits(u64::MAX));
        assert!(
            Extent {
                lba: Lba(10),
                blocks: BlockCount(0)
            }
            .fits(10)
        );
        assert!(
            !Extent {
                lba: Lba(11),
                blocks: BlockCount(0)
            }
            .fits(10)
        );
    }
}
