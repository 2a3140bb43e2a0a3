//! The common header: the first eight bytes of every PDU.
//!
//! ```text
//! ├─ 0 ──────┬─ 1 ───┬─ 2 ──┬─ 3 ─┬─ 4 … 7 ─┤
//! │ PDU-type │ FLAGS │ HLEN │ PDO │   PLEN   │
//! ```

use std::fmt;

use longshore_wire::field::{le32, set_le32};
use longshore_wire::pdu_data::DataLayout;

use super::fatal_error::FatalError;

/// Bytes of a digest.
pub(crate) const DIGEST_LENGTH: usize = 4;

/// Bytes of the longest H2CTermReq or C2HTermReq: a header, and the one in error.
pub(super) const TERM_REQ_LENGTH_MAX: u32 = 152;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PduType(pub u8);

impl PduType {
    /// Initialize Connection Request, by the host.
    pub const IC_REQ: Self = Self(0x00);
    /// Initialize Connection Response, by the controller.
    pub const IC_RESP: Self = Self(0x01);
    /// Host to Controller Terminate Connection Request.
    pub const H2C_TERM_REQ: Self = Self(0x02);
    /// Controller to Host Terminate Connection Request.
    pub const C2H_TERM_REQ: Self = Self(0x03);
    /// Command Capsule, by the host.
    pub const CAPSULE_CMD: Self = Self(0x04);
    /// Response Capsule, by the controller.
    pub const CAPSULE_RESP: Self = Self(0x05);
    /// Host to Controller Data Transfer.
    pub const H2C_DATA: Self = Self(0x06);
    /// Controller to Host Data Transfer.
    pub const C2H_DATA: Self = Self(0x07);
    /// Ready to Transfer, by the controller.
    pub const R2T: Self = Self(0x09);

    /// HLEN of its PDUs.
    #[inline]
    #[must_use]
    pub const fn header_length(self) -> Option<u8> {
        match self {
            Self::IC_REQ | Self::IC_RESP => Some(128),
            Self::CAPSULE_CMD => Some(72),
            Self::H2C_TERM_REQ
            | Self::C2H_TERM_REQ
            | Self::CAPSULE_RESP
            | Self::H2C_DATA
            | Self::C2H_DATA
            | Self::R2T => Some(24),
            _ => None,
        }
    }

    /// Whether it is one of the two that open a connection.
    #[inline]
    #[must_use]
    pub const fn initializes(self) -> bool {
        matches!(self, Self::IC_REQ | Self::IC_RESP)
    }

    /// Whether it is one of the two that end a connection.
    #[inline]
    #[must_use]
    pub const fn terminates(self) -> bool {
        matches!(self, Self::H2C_TERM_REQ | Self::C2H_TERM_REQ)
    }

    /// Whether its PDUs can have digests, when the connection uses them.
    #[inline]
    #[must_use]
    pub const fn has_digests(self) -> bool {
        !self.initializes() && !self.terminates()
    }
}

impl fmt::Debug for PduType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::IC_REQ => "ICReq",
            Self::IC_RESP => "ICResp",
            Self::H2C_TERM_REQ => "H2CTermReq",
            Self::C2H_TERM_REQ => "C2HTermReq",
            Self::CAPSULE_CMD => "CapsuleCmd",
            Self::CAPSULE_RESP => "CapsuleResp",
            Self::H2C_DATA => "H2CData",
            Self::C2H_DATA => "C2HData",
            Self::R2T => "R2T",
            Self(code) => return write!(f, "PDU type {code:02x}h"),
        };
        f.write_str(name)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// HDGSTF: a header digest follows the header.
    pub const HDGSTF: Self = Self(1 << 0);
    /// DDGSTF: a data digest follows the data.
    pub const DDGSTF: Self = Self(1 << 1);
    /// LAST_PDU of H2CData and C2HData: the last of its transfer.
    pub const LAST_PDU: Self = Self(1 << 2);
    /// SUCCESS of C2HData: the command has ended with success; no response capsule follows.
    pub const SUCCESS: Self = Self(1 << 3);

    /// Whether all flags of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags, and `other` if `wanted`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, wanted: bool) -> Self {
        if wanted { Self(self.0 | other.0) } else { self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    pub pdu_type: PduType,
    pub flags: Flags,
    /// Bytes of the header, without its digest.
    pub hlen: u8,
    /// From the start of the PDU to its data; 0 when there are none.
    pub pdo: u8,
    /// Bytes of the whole PDU.
    pub plen: u32,
}

impl CommonHeader {
    /// Bytes of the common header.
    pub const LENGTH: usize = 8;

    /// Byte of the header where FLAGS stands.
    pub(crate) const FLAGS_OFFSET: u32 = 1;
    const HLEN_OFFSET: u32 = 2;
    const PDO_OFFSET: u32 = 3;
    /// Byte of the header where PLEN begins.
    pub(crate) const PLEN_OFFSET: u32 = 4;

    #[inline]
    #[must_use]
    pub fn decode<const N: usize>(header: &[u8; N]) -> Self {
        Self {
            pdu_type: PduType(header[0]),
            flags: Flags(header[1]),
            hlen: header[2],
            pdo: header[3],
            plen: le32(header, 4),
        }
    }

    /// Overwrites the first eight bytes of a header.
    #[inline]
    pub fn encode_into<const N: usize>(self, header: &mut [u8; N]) {
        header[0] = self.pdu_type.0;
        header[1] = self.flags.0;
        header[2] = self.hlen;
        header[3] = self.pdo;
        set_le32(header, 4, self.plen);
    }

    /// The header of a PDU of `N` bytes without data, its other fields zero.
    pub(super) fn start<const N: usize>(pdu_type: PduType, flags: Flags) -> [u8; N] {
        let hlen = pdu_type.header_length().expect("a known type");
        debug_assert_eq!(usize::from(hlen), N);
        let mut header = [0; N];
        let common = Self {
            pdu_type,
            flags,
            hlen,
            pdo: 0,
            plen: u32::from(hlen),
        };
        common.encode_into(&mut header);
        header
    }

    /// Bytes before padding and data.
    #[inline]
    #[must_use]
    pub const fn header_end(self) -> u32 {
        let digest = if self.flags.contains(Flags::HDGSTF) && self.pdu_type.has_digests() {
            4
        } else {
            0
        };
        self.hlen as u32 + digest
    }

    /// Checks HLEN, and HDGSTF against what was negotiated: then the end of the header is known.
    ///
    /// # Errors
    /// What to terminate the connection with.
    #[inline]
    pub fn check_header(self, header_digest: bool) -> Result<(), FatalError> {
        if self.pdu_type.header_length() != Some(self.hlen) {
            return Err(FatalError::invalid_field(Self::HLEN_OFFSET));
        }
        if self.pdu_type.has_digests() && self.flags.contains(Flags::HDGSTF) != header_digest {
            return Err(FatalError::invalid_field(Self::FLAGS_OFFSET));
        }
        Ok(())
    }

    /// Finds the data, which must begin at a multiple of `alignment` bytes.
    ///
    /// # Errors
    /// What to terminate the connection with.
    #[inline]
    pub fn layout(self, data_digest: bool, alignment: u32) -> Result<DataLayout, FatalError> {
        let header_end = self.header_end();
        if self.plen == header_end {
            // PDO and DDGSTF mean nothing without data.
            return Ok(DataLayout::default());
        }
        match self.pdu_type {
            PduType::CAPSULE_CMD | PduType::H2C_DATA | PduType::C2H_DATA => {
                self.data_layout(data_digest, alignment, header_end)
            }
            PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ
                if self.plen > header_end && self.plen <= TERM_REQ_LENGTH_MAX =>
            {
                Ok(DataLayout {
                    length: self.plen - header_end,
                    ..DataLayout::default()
                })
            }
            _ => Err(FatalError::invalid_field(Self::PLEN_OFFSET)),
        }
    }

    #[inline]
    fn data_layout(
        self,
        data_digest: bool,
        alignment: u32,
        header_end: u32,
    ) -> Result<DataLayout, FatalError> {
        let pdo = u32::from(self.pdo);
        if self.plen < header_end {
            return Err(FatalError::invalid_field(Self::PLEN_OFFSET));
        }
        if self.flags.contains(Flags::DDGSTF) != data_digest {
            return Err(FatalError::invalid_field(Self::FLAGS_OFFSET));
        }
        if pdo < header_end || pdo % alignment != 0 {
            return Err(FatalError::invalid_field(Self::PDO_OFFSET));
        }
        let digest = if data_digest { 4 } else { 0 };
        match self.plen.checked_sub(pdo + digest) {
            Some(length) if length > 0 => Ok(DataLayout {
                lead: pdo - header_end,
                length,
                padding: 0,
                has_digest: data_digest,
            }),
            _ => Err(FatalError::invalid_field(Self::PLEN_OFFSET)),
        }
    }
}
