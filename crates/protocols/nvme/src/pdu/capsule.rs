//! Capsules: a command with its data, a response.

use longshore_wire::field::{bytes, set_bytes};

use super::header::{CommonHeader, Flags, PduType};
use crate::command::SubmissionEntry;
use crate::completion::CompletionEntry;

/// Command Capsule. In-capsule data follow as the data of the PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapsuleCmd {
    /// SQE of the command, little endian.
    pub entry: SubmissionEntry,
}

impl CapsuleCmd {
    /// Bytes of the header.
    pub const LENGTH: usize = 72;

    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut out = CommonHeader::start(PduType::CAPSULE_CMD, Flags::default());
        set_bytes(&mut out, 8, self.entry.0);
        out
    }

    #[inline]
    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        Self {
            entry: SubmissionEntry(bytes(header, 8)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapsuleResp {
    /// How the command ended.
    pub entry: CompletionEntry,
}

impl CapsuleResp {
    /// Bytes of the header.
    pub const LENGTH: usize = 24;

    /// The header, which is all.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut out = CommonHeader::start(PduType::CAPSULE_RESP, Flags::default());
        set_bytes(&mut out, 8, self.entry.encode());
        out
    }

    #[inline]
    #[must_use]
    pub fn decode(header: &[u8; Self::LENGTH]) -> Self {
        Self {
            entry: CompletionEntry::decode(&bytes(header, 8)),
        }
    }
}
