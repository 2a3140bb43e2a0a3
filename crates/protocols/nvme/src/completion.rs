//! The completion queue entry: how a command ended, 16 bytes (NVMe base 2.0 §3.3.3.2).

use longshore_wire::field::{le16, le64, set_le16, set_le64};

use crate::command::CommandId;
use crate::status::Status;

/// A completion queue entry. Over fabrics there is no phase tag; SQID is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionEntry {
    /// Dwords 0 and 1: what the command returns beside data.
    pub result: u64,
    /// SQHD: how far the submission queue has been consumed; 0 when flow control is disabled.
    pub sq_head: u16,
    /// CID of the command.
    pub id: CommandId,
    pub status: Status,
}

impl CompletionEntry {
    /// Bytes of an entry.
    pub const LENGTH: usize = 16;

    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut out = [0; Self::LENGTH];
        set_le64(&mut out, 0, self.result);
        set_le16(&mut out, 8, self.sq_head);
        set_le16(&mut out, 12, self.id.0);
        set_le16(&mut out, 14, self.status.0 << 1);
        out
    }

    /// From the wire. The phase tag is ignored.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        Self {
            result: le64(bytes, 0),
            sq_head: le16(bytes, 8),
            id: CommandId(le16(bytes, 12)),
            status: Status(le16(bytes, 14) >> 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_what_it_was_after_a_round_trip() {
        let entry = CompletionEntry {
            result: 0x0102_0304_0506_0708,
            sq_head: 0x1234,
            id: CommandId(0xabcd),
            status: Status::LBA_OUT_OF_RANGE.do_not_retry(),
        };
        let bytes = entry.encode();
        assert_eq!(bytes[14..], [0x00, 0x81]);
        assert_eq!(CompletionEntry::decode(&bytes), entry);
    }
}
