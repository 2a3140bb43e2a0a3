//! The PDUs that end a connection: H2CTermReq and C2HTermReq, alike but for their type.
//!
//! ```text
//! ├─ 8, 9 ─┬─ 10 … 13 ─┬─ 14 … 23 ─┬─ 24 … PLEN ─────────────────────────────────┤
//! │  FES   │    FEI    │ reserved  │ header of the PDU in error, at most 128 bytes │
//! ```
//!
//! They never have digests.

use longshore_wire::field::{le16, le32, set_le16, set_le32};

use super::fatal_error::{FatalError, FatalErrorStatus};
use super::header::{CommonHeader, Flags, PduType, TERM_REQ_LENGTH_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// From the host, in H2CTermReq.
    Host,
    /// From the controller, in C2HTermReq.
    Controller,
}

/// Terminate Connection Request, of either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermReq {
    pub by: Terminator,
    pub error: FatalError,
}

impl TermReq {
    /// Bytes of the header.
    pub const LENGTH: usize = 24;
    /// Bytes of the PDU in error that it can repeat.
    pub const DATA_LENGTH_MAX: usize = 128;
    /// Bytes of the whole PDU.
    pub const PDU_LENGTH_MAX: u32 = TERM_REQ_LENGTH_MAX;

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
