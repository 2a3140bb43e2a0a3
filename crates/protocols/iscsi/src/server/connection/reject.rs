//! Refusing PDUs (RFC 7143 §7.3, §11.17).
//!
//! A command PDU that is rejected counts as not received: its CmdSN stays expected, and later
//! commands wait until the initiator plugs the gap (§7.3).

use super::state::{Connection, Receiving};
use crate::pdu::{Bhs, InitiatorTaskTag, Reject, RejectReason};
use longshore_wire::transmit::Transmit;

/// What is wrong with a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The data digest does not match.
    DataDigest,
    /// An opcode that no initiator may send, or that we do not know.
    UnknownOpcode,
    /// A request that this type of session does not have.
    NotInDiscoverySession,
    /// A SNACK, at error recovery level 0.
    Snack,
    /// A Login Request after the login.
    LoginInFullFeaturePhase,
    /// A code that no standard defines, or flags that contradict each other.
    ContradictoryFields,
    /// Data with a command that writes none.
    DataWithoutWrite,
    /// Tags that name nothing.
    UnknownTag,
    /// An initiator task tag that is in use, or reserved.
    TagInUse,
    /// More immediate commands than there is room for.
    TooManyImmediate,
    /// A text exchange that is longer than we take, or that we cannot continue.
    TextTooLong,
    /// A text that breaks the rules of negotiation.
    BadText,
}

impl Refusal {
    /// What the initiator is told.
    pub(super) const fn reason(self) -> RejectReason {
        match self {
            // §7.8: "answer with a Reject PDU with a reason code of Data-Digest-Error".
            Self::DataDigest => RejectReason::DATA_DIGEST_ERROR,
            // §11.17.1 code 5, "Command not supported".
            Self::UnknownOpcode => RejectReason::COMMAND_NOT_SUPPORTED,
            // §4.3 b): "All other requests MUST be rejected."
            Self::NotInDiscoverySession => RejectReason::COMMAND_NOT_SUPPORTED,
            // §11.16: SNACKs need not be supported at level 0; §11.17.1 code 3.
            Self::Snack => RejectReason::SNACK_REJECT,
            // §11: reserved codes are protocol errors; §6.3: Login Requests end with the login;
            // §4.2.5.2: immediate data belongs to writes; §6.2: the rules of text.
            Self::LoginInFullFeaturePhase
            | Self::ContradictoryFields
            | Self::DataWithoutWrite
            | Self::BadText => RejectReason::PROTOCOL_ERROR,
            // §11.17.1 note 2: "Some examples are invalid TTT/ITT, buffer offset".
            Self::UnknownTag => RejectReason::INVALID_PDU_FIELD,
            // §11.17.1 code 7, "Task in progress".
            Self::TagInUse => RejectReason::TASK_IN_PROGRESS,
            // §11.17.1 code 6, "too many immediate commands".
            Self::TooManyImmediate => RejectReason::IMMEDIATE_COMMAND_REJECT,
            // §11.11.4: not enough resources to continue; §11.17.1 code 0x0a.
            Self::TextTooLong => RejectReason::LONG_OPERATION_REJECT,
        }
    }
}

impl Connection {
    /// Answers a PDU by Reject. `ahs`: its additional header segments, for the copy of its header.
    pub(super) fn refuse(
        &mut self,
        bhs: &Bhs,
        ahs: &[u8],
        refusal: Refusal,
        transmit: &mut Transmit,
    ) {
        let reject = Reject {
            reason: refusal.reason(),
            initiator_task_tag: InitiatorTaskTag::RESERVED,
            stat_sn: self.next_stat_sn(),
            window: self.window.announced(),
            data_sn: 0,
        };
        let header = [&bhs.0[..], ahs].concat();
        // With many additional segments it can be longer than what the initiator takes.
        let limit = self.limits.initiator_max_recv_data_segment_length as usize;
        let header = &header[..header.len().min(limit)];
        self.encoder.push(reject.encode(), header, transmit);
    }

    /// Rejects the PDU whose header has just been taken; its data segment is discarded.
    pub(super) fn refuse_current(&mut self, refusal: Refusal, transmit: &mut Transmit) {
        let bhs = self.current;
        let ahs = self.framing.ahs().to_vec();
        self.refuse(&bhs, &ahs, refusal, transmit);
        self.receiving = Receiving::Discarded;
    }
}
