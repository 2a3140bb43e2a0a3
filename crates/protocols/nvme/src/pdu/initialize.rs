//! The PDUs that open a connection.
//!
//! ```text
//! ├─ 8, 9 ─┬─ 10 ─────────┬─ 11 ─┬─ 12 … 15 ───────────┬─ 16 … 127 ─┤
//! │  PFV   │ HPDA or CPDA │ DGST │ MAXR2T or MAXH2CDATA │  reserved  │
//! ```

use longshore_wire::field::{le16, le32, set_le16, set_le32};

use super::header::{CommonHeader, Flags, PduType};

/// DGST: which digests are wanted, or in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// HDGST_ENABLE: CRC32C after each header.
    pub header: bool,
    /// DDGST_ENABLE: CRC32C after the data.
    pub data: bool,
}

impl Digests {
    const HEADER: u8 = 1 << 0;
    const DATA: u8 = 1 << 1;

    const fn decode(bits: u8) -> Self {
        Self {
            header: bits & Self::HEADER != 0,
            data: bits & Self::DATA != 0,
        }
    }

    fn encode(self) -> u8 {
        (u8::from(self.header) * Self::HEADER) | (u8::from(self.data) * Self::DATA)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcReq {
    /// PDU Format Version; 0 is the only one.
    pub pfv: u16,
    /// Host PDU Data Alignment as it travels: data for the host begins at a multiple of this many
    /// dwords, plus one. At most [`Self::ALIGNMENT_MAX`].
    pub hpda: u8,
    /// Which digests the host wants.
    pub digests: Digests,
    /// MAXR2T: R2Ts a command may have outstanding, at least 1. (Zero-based on the wire.)
    pub max_r2t: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcResp {
    /// PFV: PDU Format Version, 0 in this edition.
    pub pfv: u16,
    /// Controller PDU Data Alignment, as HPDA.
    pub cpda: u8,
    /// Which digests the connection uses from now on.
    pub digests: Digests,
    /// MAXH2CDATA: bytes of data an H2CData PDU has at most.
    pub max_h2c_data: u32,
}

impl IcReq {
    /// Bytes of the PDU.
    pub const LENGTH: usize = 128;
    /// The largest HPDA and CPDA.
    pub const ALIGNMENT_MAX: u8 = 31;
    /// Byte of the header where PFV begins.
    pub(crate) const PFV_OFFSET: u32 = 8;
    /// Byte of the header where HPDA stands.
    pub(crate) const HPDA_OFFSET: u32 = 10;

    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut out = CommonHeader::start(PduType::IC_REQ, Flags::default());
        set_le16(&mut out, 8, self.pfv);
        out[10] = self.hpda;
        out[11] = self.digests.encode();
        let zero_based = self.max_r2t.saturating_sub(1);
        set_le32(&mut out, 12, u32::try_from(zero_based).unwrap_or(u32::MAX));
        out
    }

    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        Self {
            pfv: le16(header, 8),
            hpda: header[10],
            digests: Digests::decode(header[11]),
            max_r2t: u64::from(le32(header, 12)) + 1,
        }
    }
}

impl IcResp {
    /// Bytes of the PDU.
    pub const LENGTH: usize = 128;
    /// The smallest MAXH2CDATA a controller should offer.
    pub const MAX_H2C_DATA_MIN: u32 = 4096;

    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut out = CommonHeader::start(PduType::IC_RESP, Flags::default());
        set_le16(&mut out, 8, self.pfv);
        out[10] = self.cpda;
        out[11] = self.digests.encode();
        set_le32(&mut out, 12, self.max_h2c_data);
        out
    }

    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        Self {
            pfv: le16(header, 8),
            cpda: header[10],
            digests: Digests::decode(header[11]),
            max_h2c_data: le32(header, 12),
        }
    }
}
