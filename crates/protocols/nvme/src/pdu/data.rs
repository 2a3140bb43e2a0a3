//! Data of commands, and the controller's request for it.
//!
//! ```text
//! ├─ 8, 9 ─┬─ 10, 11 ─┬─ 12 … 15 ─────┬─ 16 … 19 ─────┬─ 20 … 23 ─┤
//! │ CCCID  │   TTAG   │ DATAO or R2TO │ DATAL or R2TL │ reserved  │
//! ```
//!
//! C2HData has no TTAG.

use longshore_wire::field::{le16, le32, set_le16, set_le32};

use super::header::{CommonHeader, Flags, PduType};
use crate::command::CommandId;

/// Transfer Tag (TTAG): which R2T data answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferTag(pub u16);

/// Host to Controller Data Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2cData {
    /// LAST_PDU: the last for its R2T.
    pub last: bool,
    /// CCCID: the command that the data belongs to.
    pub command: CommandId,
    /// TTAG of the R2T it answers.
    pub tag: TransferTag,
    /// DATAO: bytes from the start of the command's data.
    pub offset: u32,
    /// DATAL: bytes of data.
    pub length: u32,
}

/// Controller to Host Data Transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct C2hData {
    /// LAST_PDU: the last for its command.
    pub last: bool,
    /// SUCCESS: the command has ended with success; no response capsule follows.
    pub success: bool,
    /// CCCID: the command that the data belongs to.
    pub command: CommandId,
    /// DATAO: bytes from the start of the command's data.
    pub offset: u32,
    /// DATAL: bytes of data.
    pub length: u32,
}

/// Ready to Transfer: the controller asks for data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// CCCID: the command that is to send data.
    pub command: CommandId,
    /// TTAG, for the H2CData PDUs that answer.
    pub tag: TransferTag,
    /// R2TO: bytes from the start of the command's data.
    pub offset: u32,
    /// R2TL: bytes of data that may be sent.
    pub length: u32,
}

fn data_header(
    pdu_type: PduType,
    flags: Flags,
    command: CommandId,
    tag: TransferTag,
    offset: u32,
    length: u32,
) -> [u8; 24] {
    let mut out = CommonHeader::start(pdu_type, flags);
    set_le16(&mut out, 8, command.0);
    set_le16(&mut out, 10, tag.0);
    set_le32(&mut out, 12, offset);
    set_le32(&mut out, 16, length);
    out
}

impl H2cData {
    /// Bytes of the header.
    pub const LENGTH: usize = 24;
    /// Byte of the header where DATAL begins.
    pub(crate) const DATAL_OFFSET: u32 = 16;

    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let flags = Flags::default().with(Flags::LAST_PDU, self.last);
        data_header(
            PduType::H2C_DATA,
            flags,
            self.command,
            self.tag,
            self.offset,
            self.length,
        )
    }

    #[inline]
    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        Self {
            last: Flags(header[1]).contains(Flags::LAST_PDU),
            command: CommandId(le16(header, 8)),
            tag: TransferTag(le16(header, 10)),
            offset: le32(header, 12),
            length: le32(header, 16),
        }
    }
}

impl C2hData {
    /// Bytes of the header.
    pub const LENGTH: usize = 24;

    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let flags = Flags::default()
            .with(Flags::LAST_PDU, self.last)
            .with(Flags::SUCCESS, self.success);
        data_header(
            PduType::C2H_DATA,
            flags,
            self.command,
            TransferTag(0),
            self.offset,
            self.length,
        )
    }

    #[inline]
    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        let flags = Flags(header[1]);
        Self {
            last: flags.contains(Flags::LAST_PDU),
            success: flags.contains(Flags::SUCCESS),
            command: CommandId(le16(header, 8)),
            offset: le32(header, 12),
            length: le32(header, 16),
        }
    }
}

impl R2t {
    /// Bytes of the header.
    pub const LENGTH: usize = 24;

    /// The header, which is all.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        data_header(
            PduType::R2T,
            Flags::default(),
            self.command,
            self.tag,
            self.offset,
            self.length,
        )
    }

    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        Self {
            command: CommandId(le16(header, 8)),
            tag: TransferTag(le16(header, 10)),
            offset: le32(header, 12),
            length: le32(header, 16),
        }
    }
}
