//! Asynchronous Message, Reject and SNACK Request (RFC 7143 §11.9, §11.16, §11.17).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|.| 0x32      |1| Reserved                                    |  Asynchronous Message
//!    0|.|.| 0x3f      |1| Reserved    | Reason        | Reserved      |  Reject
//!    0|.|.| 0x10      |1|.|.|.| Type  | Reserved                      |  SNACK
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| LUN or Reserved                                               |
//!   16| 0xffffffff                    /  ITT or 0xffffffff (SNACK)    |
//!   20| Reserved                      /  TTT or SNACK Tag             |
//!   24| StatSN                        /  Reserved                     |
//!   28| ExpCmdSN                      /  ExpStatSN                    |
//!   32| MaxCmdSN                      /  Reserved                     |
//!   36| AsyncEvent | AsyncVCode | P1  /  DataSN/R2TSN   /  Reserved   |
//!   40| Parameter2 | Parameter3       /  Reserved       /  BegRun     |
//!   44| Reserved                      /  Reserved       /  RunLength  |
//! ```
//!
//! The data segment of an Asynchronous Message is SenseLength, sense data and event data, of which we send the first two
//! with SCSI events; that of a Reject is the header of the PDU rejected.

use super::bhs::{open_bits, open_enum, pdu};
use super::fields::{CommandWindow, InitiatorTaskTag, Lun, StatSn, TargetTransferTag};

open_enum! {
    /// What happened at the target (RFC 7143 §11.9.1).
    AsyncEvent {
        SCSI_EVENT = 0,
        LOGOUT_REQUEST = 1,
        CONNECTION_DROP = 2,
        SESSION_DROP = 3,
        NEGOTIATION_REQUEST = 4,
        TASK_TERMINATION = 5,
        VENDOR_SPECIFIC = 255,
    }
}

pdu! {
    /// News from the target that belong to no command.
    AsyncMessage, ASYNC_MESSAGE, 0x80 {
        /// Valid for SCSI events and task termination.
        lun: Lun, at 8;
        /// Always the reserved value.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Number of this message.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
        event: AsyncEvent, at 36;
        /// Detail of a vendor-specific event.
        vendor_code: u8, at 37;
        /// The connection to be dropped, for that event.
        parameter1: u16, at 38;
        /// Time2Wait in seconds, for drops.
        parameter2: u16, at 40;
        /// Time2Retain in seconds, for drops; time to log out or negotiate, for those requests.
        parameter3: u16, at 42;
    }
}

open_enum! {
    /// Why a PDU is rejected (RFC 7143 §11.17.1).
    RejectReason {
        DATA_DIGEST_ERROR = 0x02,
        SNACK_REJECT = 0x03,
        PROTOCOL_ERROR = 0x04,
        COMMAND_NOT_SUPPORTED = 0x05,
        IMMEDIATE_COMMAND_REJECT = 0x06,
        TASK_IN_PROGRESS = 0x07,
        INVALID_DATA_ACK = 0x08,
        INVALID_PDU_FIELD = 0x09,
        LONG_OPERATION_REJECT = 0x0a,
        WAITING_FOR_LOGOUT = 0x0c,
    }
}

pdu! {
    /// The target refuses a PDU, whose header is the data segment.
    Reject, REJECT, 0x80 {
        reason: RejectReason, at 2;
        /// Always the reserved value.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Number of this response.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
        /// Valid for a rejected Data/R2T SNACK only.
        data_sn: u32, at 36;
    }
}

open_bits! {
    /// What a SNACK asks for (RFC 7143 §11.16.1).
    SnackType(0x0f) {
        DATA_OR_R2T = 0,
        STATUS = 1,
        DATA_ACK = 2,
        R_DATA = 3,
    }
}

pdu! {
    /// Asks for retransmission or acknowledges data; only at error recovery levels above 0.
    SnackRequest, SNACK_REQUEST, 0x80 {
        /// What is asked for.
        kind: SnackType, bits 1 0x0f;
        /// Valid for a DataACK.
        lun: Lun, at 8;
        /// The task, for data and R2Ts.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// That of the Data-In acknowledged; or a SNACK Tag.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Acknowledges all responses with a smaller StatSN.
        exp_stat_sn: StatSn, at 28;
        /// The first number wanted.
        beg_run: u32, at 40;
        /// How many; 0 for all from there.
        run_length: u32, at 44;
    }
}
