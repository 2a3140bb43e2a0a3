//! Task Management Function Request and Response (RFC 7143 §11.5, §11.6).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|I| 0x02      |1| Function    | Reserved                      |  request
//!    0|.|.| 0x22      |1| Reserved    | Response      | Reserved      |  response
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| LUN or Reserved               /  Reserved                     |
//!   12|                                                               |
//!   16| Initiator Task Tag                                            |
//!   20| Referenced Task Tag           /  Reserved                     |
//!   24| CmdSN                         /  StatSN                       |
//!   28| ExpStatSN                     /  ExpCmdSN                     |
//!   32| RefCmdSN or Reserved          /  MaxCmdSN                     |
//!   36| ExpDataSN or Reserved         /  Reserved                     |
//!   40/ Reserved                                                      /
//! ```

use super::bhs::{open_bits, open_enum, pdu};
use super::fields::{CmdSn, CommandWindow, InitiatorTaskTag, Lun, StatSn};

open_bits! {
    /// What is asked for (RFC 7143 §11.5.1; 9 to 12 are RFC 7144's).
    Function(0x7f) {
        ABORT_TASK = 1,
        ABORT_TASK_SET = 2,
        CLEAR_ACA = 3,
        CLEAR_TASK_SET = 4,
        LOGICAL_UNIT_RESET = 5,
        TARGET_WARM_RESET = 6,
        TARGET_COLD_RESET = 7,
        TASK_REASSIGN = 8,
        QUERY_TASK = 9,
        QUERY_TASK_SET = 10,
        I_T_NEXUS_RESET = 11,
        QUERY_ASYNCHRONOUS_EVENT = 12,
    }
}

pdu! {
    /// Asks the target to abort tasks or to reset.
    TaskManagementRequest, TASK_MANAGEMENT_REQUEST, 0x80 {
        /// I: to be considered at once.
        immediate: bool, bit 0 0x40;
        /// What is asked for.
        function: Function, bits 1 0x7f;
        /// The addressed logical unit; reserved for target resets and reassignment.
        lun: Lun, at 8;
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// The task to abort or reassign, else the reserved value.
        referenced_task_tag: InitiatorTaskTag, at 20;
        /// Place in the order of commands.
        cmd_sn: CmdSn, at 24;
        /// Acknowledges all responses with a smaller StatSN.
        exp_stat_sn: StatSn, at 28;
        /// CmdSN of the task to abort; `cmd_sn` itself when that task was an immediate command.
        ref_cmd_sn: CmdSn, at 32;
        /// Used by TASK REASSIGN only; reserved otherwise.
        exp_data_sn: u32, at 36;
    }
}

open_enum! {
    /// How it went (RFC 7143 §11.6.1; 7 is RFC 7144's).
    Response {
        FUNCTION_COMPLETE = 0,
        TASK_DOES_NOT_EXIST = 1,
        LUN_DOES_NOT_EXIST = 2,
        TASK_STILL_ALLEGIANT = 3,
        REASSIGNMENT_NOT_SUPPORTED = 4,
        FUNCTION_NOT_SUPPORTED = 5,
        AUTHORIZATION_FAILED = 6,
        FUNCTION_SUCCEEDED = 7,
        FUNCTION_REJECTED = 255,
    }
}

pdu! {
    /// The answer to a [`TaskManagementRequest`].
    TaskManagementResponse, TASK_MANAGEMENT_RESPONSE, 0x80 {
        response: Response, at 2;
        /// That of the request.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Number of this response.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
    }
}
