//! Why a connection is terminated: what H2CTermReq and C2HTermReq say.

use std::fmt;

/// Fatal Error Status (FES).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FatalErrorStatus(pub u16);

impl FatalErrorStatus {
    /// Invalid PDU Header Field; FEI is where the field stands in the header.
    pub const INVALID_PDU_HEADER_FIELD: Self = Self(0x01);
    /// PDU Sequence Error: an unexpected PDU.
    pub const PDU_SEQUENCE_ERROR: Self = Self(0x02);
    /// Header Digest Error; FEI is the digest received.
    pub const HEADER_DIGEST_ERROR: Self = Self(0x03);
    /// Data Transfer Out of Range: data beyond the transfer they belong to.
    pub const DATA_TRANSFER_OUT_OF_RANGE: Self = Self(0x04);
    /// By a controller: more data in a PDU than it takes.
    pub const DATA_TRANSFER_LIMIT_EXCEEDED: Self = Self(0x05);
    /// By a host: more R2Ts for a command than it takes.
    pub const R2T_LIMIT_EXCEEDED: Self = Self(0x05);
    /// Unsupported Parameter; FEI is where it stands in the header.
    pub const UNSUPPORTED_PARAMETER: Self = Self(0x06);
}

impl fmt::Debug for FatalErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FatalErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::INVALID_PDU_HEADER_FIELD => "invalid PDU header field",
            Self::PDU_SEQUENCE_ERROR => "PDU sequence error",
            Self::HEADER_DIGEST_ERROR => "header digest error",
            Self::DATA_TRANSFER_OUT_OF_RANGE => "data transfer out of range",
            Self::DATA_TRANSFER_LIMIT_EXCEEDED => "data transfer or R2T limit exceeded",
            Self::UNSUPPORTED_PARAMETER => "unsupported parameter",
            Self(code) => return write!(f, "fatal error status {code:02x}h"),
        })
    }
}

/// Why a connection is terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatalError {
    /// FES: the reason for the termination.
    pub status: FatalErrorStatus,
    /// FEI: what it means depends on the status; 0 where it means nothing.
    pub information: u32,
}

impl FatalError {
    /// A header field that is wrong, by where it stands.
    #[must_use]
    pub const fn invalid_field(offset: u32) -> Self {
        Self {
            status: FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
            information: offset,
        }
    }

    /// A status that has no further information.
    #[must_use]
    pub const fn plain(status: FatalErrorStatus) -> Self {
        Self {
            status,
            information: 0,
        }
    }

    /// A header digest that does not match.
    #[must_use]
    pub const fn header_digest(received: [u8; 4]) -> Self {
        Self {
            status: FatalErrorStatus::HEADER_DIGEST_ERROR,
            information: u32::from_le_bytes(received),
        }
    }
}
