//! Logout Request and Logout Response (RFC 7143 §11.14, §11.15).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|I| 0x06      |1| Reason Code | Reserved                      |  request
//!    0|.|.| 0x26      |1| Reserved    | Response      | Reserved      |  response
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8/ Reserved                                                      /
//!   16| Initiator Task Tag                                            |
//!   20| CID or Reserved               | Reserved                      |
//!   24| CmdSN                         /  StatSN                       |
//!   28| ExpStatSN                     /  ExpCmdSN                     |
//!   32| Reserved                      /  MaxCmdSN                     |
//!   36| Reserved                                                      |
//!   40| Reserved                      /  Time2Wait | Time2Retain      |
//!   44| Reserved                                                      |
//! ```

use super::bhs::{open_bits, open_enum, pdu};
use super::fields::{CmdSn, CommandWindow, ConnectionId, InitiatorTaskTag, StatSn};

open_bits! {
    /// Why the initiator logs out (RFC 7143 §11.14.1).
    LogoutReason(0x7f) {
        CLOSE_SESSION = 0,
        CLOSE_CONNECTION = 1,
        REMOVE_CONNECTION_FOR_RECOVERY = 2,
    }
}

pdu! {
    /// Ends a connection or a session in good order.
    LogoutRequest, LOGOUT_REQUEST, 0x80 {
        /// I: to be considered at once.
        immediate: bool, bit 0 0x40;
        reason: LogoutReason, bits 1 0x7f;
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Which connection to close; reserved when it is the session.
        connection_id: ConnectionId, at 20;
        /// Place in the order of commands.
        cmd_sn: CmdSn, at 24;
        /// Acknowledges all responses with a smaller StatSN.
        exp_stat_sn: StatSn, at 28;
    }
}

open_enum! {
    /// How it went (RFC 7143 §11.15.1).
    LogoutResult {
        CLOSED = 0,
        CID_NOT_FOUND = 1,
        RECOVERY_NOT_SUPPORTED = 2,
        CLEANUP_FAILED = 3,
    }
}

pdu! {
    /// The answer to a [`LogoutRequest`].
    LogoutResponse, LOGOUT_RESPONSE, 0x80 {
        response: LogoutResult, at 2;
        /// That of the request.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Number of this response.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
        /// Seconds before a reconnect; see §11.15.3.
        time2wait: u16, at 40;
        /// Seconds for which tasks are kept; see §11.15.4.
        time2retain: u16, at 42;
    }
}
