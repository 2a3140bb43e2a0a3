//! Scatter gather list descriptors (NVMe base 2.0 §4.1.2). NVMe/TCP uses two: data in the capsule, and
//! data that the transport moves.

use longshore_wire::field::{le32, le64, set_le32, set_le64};

/// A descriptor of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglDescriptor {
    /// Data Block with an offset: data in the capsule, `offset` bytes behind the command
    /// (type 0h, subtype 1h).
    Offset {
        /// From the end of the command, and of ICDOFF.
        offset: u64,
        length: u32,
    },
    /// Data Block with an address (type 0h, subtype 0h). Not used over TCP.
    Address {
        /// In the host's memory.
        address: u64,
        length: u32,
    },
    /// Transport Data Block: the transport moves the data (type 5h, subtype Ah).
    Transport { length: u32 },
    /// Any other, by its last byte.
    Other(u8),
}

impl SglDescriptor {
    /// Bytes of a descriptor.
    pub const LENGTH: usize = 16;

    /// Describes no data: all zeros.
    pub const NONE: Self = Self::Address {
        address: 0,
        length: 0,
    };

    #[inline]
    #[must_use]
    pub fn decode(bytes: [u8; Self::LENGTH]) -> Self {
        let length = le32(&bytes, 8);
        match bytes[15] {
            0x00 => Self::Address {
                address: le64(&bytes, 0),
                length,
            },
            0x01 => Self::Offset {
                offset: le64(&bytes, 0),
                length,
            },
            0x5a => Self::Transport { length },
            identifier => Self::Other(identifier),
        }
    }

    #[must_use]
    pub fn encode(self) -> [u8; Self::LENGTH] {
        let mut out = [0; Self::LENGTH];
        let (address, length, identifier) = match self {
            Self::Address { address, length } => (address, length, 0x00),
            Self::Offset { offset, length } => (offset, length, 0x01),
            Self::Transport { length } => (0, length, 0x5a),
            Self::Other(identifier) => (0, 0, identifier),
        };
        set_le64(&mut out, 0, address);
        set_le32(&mut out, 8, length);
        out[15] = identifier;
        out
    }

    /// Bytes of data it describes.
    #[inline]
    #[must_use]
    pub const fn length(self) -> u32 {
        match self {
            Self::Offset { length, .. }
            | Self::Address { length, .. }
            | Self::Transport { length } => length,
            Self::Other(_) => 0,
        }
    }
}
