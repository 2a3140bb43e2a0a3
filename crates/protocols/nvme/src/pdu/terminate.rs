//! The PDUs that end a connection: H2CTermReq and C2HTermReq, alike but for their type.
//!
//! ```text
//! ├─ 8, 9 ─┬─ 10 … 13 ─┬─ 14 … 23 ─┬─ 24 … PLEN ─────────────────────────────────┤
//! │  FES   │    FEI    │ reserved  │ header of the PDU in error, at most 128 bytes │
//! ```
//!
//! They never have digests.

use std::fmt;

use longshore_wire::field::{le16, le32, set_le16, set_le32};

use super::header::{CommonHeader, Flags, PduType};

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
    /// FES.
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

/// Who terminates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// H2CTermReq.
    Host,
    /// C2HTermReq.
    Controller,
}

/// Terminate Connection Request, of either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermReq {
    /// Who sends it.
    pub by: Terminator,
    /// Why.
    pub error: FatalError,
}

impl TermReq {
    /// Bytes of the header.
    pub const LENGTH: usize = 24;
    /// Bytes of the PDU in error that it can repeat.
    pub const DATA_LENGTH_MAX: usize = 128;
    /// Bytes of the whole PDU.
    pub const PDU_LENGTH_MAX: u32 = 152;

    /// The header, for `data_length` bytes of the PDU in error.
    ///
    /// # Panics
    /// When that is more than [`Self::DATA_LENGTH_MAX`].
    #[must_use]
    pub fn encode(&self, data_length: usize) -> [u8; Self::LENGTH] {
        assert!(data_length <= Self::DATA_LENGTH_MAX);
        let pdu_type = match self.by {
            Terminator::Host => PduType::H2C_TERM_REQ,
            Terminator::Controller => PduType::C2H_TERM_REQ,
        };
        let mut out = CommonHeader::start(pdu_type, Flags::default());
        let plen = u32::try_from(Self::LENGTH + data_length).expect("bounded above");
        set_le32(&mut out, 4, plen);
        set_le16(&mut out, 8, self.error.status.0);
        set_le32(&mut out, 10, self.error.information);
        out
    }

    /// From the wire.
    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        let by = match CommonHeader::decode(header).pdu_type {
            PduType::H2C_TERM_REQ => Terminator::Host,
            _ => Terminator::Controller,
        };
        Self {
            by,
            error: FatalError {
                status: FatalErrorStatus(le16(header, 8)),
                information: le32(header, 10),
            },
        }
    }
}
