//! What the driver of a connection sees: commands in, events out.

use crate::initiator::login::LoginError;
use crate::pdu::{
    AsyncMessage, InitiatorTaskTag, LogoutResult, Lun, RejectReason, TargetTransferTag,
    TaskManagementResponseCode,
};

/// Dense number of a command of this connection, reused after its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(pub u16);

/// A SCSI command to send.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The addressed logical unit.
    pub lun: Lun,
    /// 6 to 260 bytes.
    pub cdb: &'a [u8],
    /// ATTR: the task attribute of the command.
    pub attribute: crate::pdu::Attribute,
    /// To be delivered at once.
    pub immediate: bool,
    /// What is to be moved.
    pub transfer: Transfer,
}

/// What a command moves: the direction, and EDTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    None,
    /// To the initiator, so many bytes.
    Read(u32),
    /// To the target, so many bytes.
    Write(u32),
}

/// The target wants write data; answer by [`Connection::send_data_out`](super::Connection::send_data_out).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2tRequest {
    pub command: CommandId,
    /// Tells an R2T of an earlier command in this slot.
    pub(super) tag: InitiatorTaskTag,
    /// Goes back with the data, in each Data-Out PDU.
    pub target_transfer_tag: TargetTransferTag,
    /// The first byte wanted.
    pub buffer_offset: u32,
    pub length: u32,
}

/// Where the next bytes of the stream belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadWanted {
    pub command: CommandId,
    pub buffer_offset: u32,
    /// At most so many bytes.
    pub length: u32,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutcome {
    /// SAM status; `None` when the target failed to execute the command (§11.4.3), or refused it.
    pub status: Option<u8>,
    /// Why the target refused the PDU that carried the command, if it did (§11.17).
    pub rejected: Option<RejectReason>,
    /// Sense data without its length field; empty without CHECK CONDITION.
    pub sense: Vec<u8>,
    /// Difference between what was expected and what there was to move.
    pub residual: Residual,
    /// Bytes of read data that have come.
    pub data_in_length: u32,
}

/// Difference between EDTL and what a command moved (§11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    None,
    /// So much more could have been moved.
    Overflow(u32),
    /// So much less was moved.
    Underflow(u32),
}

#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionEvent<'a> {
    /// The input is used up.
    NeedMore,
    /// The login has succeeded; [`Connection::session`](super::Connection::session) says with what.
    Established,
    /// Read data: put `bytes` at `buffer_offset` of the command's buffer.
    DataIn {
        command: CommandId,
        buffer_offset: u32,
        bytes: &'a [u8],
    },
    /// The target wants write data.
    R2t(R2tRequest),
    /// A command has ended.
    Completed {
        command: CommandId,
        outcome: CommandOutcome,
    },
    /// A task management request has its answer.
    TaskManagementDone {
        /// Tag that [`Connection::task_management`](super::Connection::task_management) returned.
        request: InitiatorTaskTag,
        response: TaskManagementResponseCode,
    },
    /// A ping has its answer.
    Pong {
        /// Tag that [`Connection::ping`](super::Connection::ping) returned.
        request: InitiatorTaskTag,
        /// The data of the ping, as far as the target gave it back.
        data: Vec<u8>,
    },
    /// A text request has its whole answer.
    Text(Vec<u8>),
    /// The target refused a PDU other than a command, whose end is reported like any other.
    Rejected {
        reason: RejectReason,
        /// The header of the PDU refused.
        header: Vec<u8>,
    },
    /// News of the target: it asks for a logout, or is about to drop the connection.
    /// [`Connection::data_segment`](super::Connection::data_segment) has what came with it.
    Async(AsyncMessage),
    /// The logout has its answer. After `CLOSED` the connection is to be closed.
    LoggedOut(LogoutResult),
    /// Nothing more will be accepted: close.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The target has answered our Logout Request.
    Logout,
    /// The login has failed.
    Login(LoginError),
    /// The target broke a rule.
    ProtocolError(&'static str),
    /// A header digest does not match.
    HeaderDigestError,
    /// A data digest does not match. At level 0 the session has to be recovered (§7.8).
    DataDigestError,
    /// The driver placed bytes that were not wanted ([`Connection::payload_received`](super::Connection::payload_received)).
    Initiator,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSent {
    /// The window is closed, all command numbers are in use, or a text request is under way.
    #[error("the session takes no further request now")]
    Busy,
    /// The connection takes no requests: it is closed, logging out, or not logged in yet. Where it is closed,
    /// [`Connection::next`](super::Connection::next) says why.
    #[error("the session takes no requests")]
    Closed,
}
