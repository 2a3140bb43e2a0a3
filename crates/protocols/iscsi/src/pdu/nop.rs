//! NOP-Out and NOP-In (RFC 7143 §11.18, §11.19).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|I| 0x00      |1| Reserved                                    |  NOP-Out
//!    0|.|.| 0x20      |1| Reserved                                    |  NOP-In
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| LUN or Reserved                                               |
//!   12|                                                               |
//!   16| Initiator Task Tag or 0xffffffff                              |
//!   20| Target Transfer Tag or 0xffffffff                             |
//!   24| CmdSN                         /  StatSN                       |
//!   28| ExpStatSN                     /  ExpCmdSN                     |
//!   32| Reserved                      /  MaxCmdSN                     |
//!   36/ Reserved                                                      /
//! ```
//!
//! The data segment is ping data, or its echo.

use super::bhs::pdu;
use super::fields::{CmdSn, CommandWindow, InitiatorTaskTag, Lun, StatSn, TargetTransferTag};

pdu! {
    /// A ping from the initiator, or its answer to one, or just an ExpStatSN.
    NopOut, NOP_OUT, 0x80 {
        /// I: does not use up its CmdSN.
        immediate: bool, bit 0 0x40;
        /// That of the NOP-In answered.
        lun: Lun, at 8;
        /// Names a ping; the reserved value when no answer is wanted.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// That of the NOP-In answered, else the reserved value.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Place in the order of commands.
        cmd_sn: CmdSn, at 24;
        /// Acknowledges all responses with a smaller StatSN.
        exp_stat_sn: StatSn, at 28;
    }
}

pdu! {
    /// A ping from the target, or its answer to one, or just a command window.
    NopIn, NOP_IN, 0x80 {
        /// Valid with a target transfer tag.
        lun: Lun, at 8;
        /// That of the NOP-Out answered, else the reserved value.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Names a ping; the reserved value when no answer is wanted.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Next StatSN; used up only when this answers a NOP-Out.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
    }
}
