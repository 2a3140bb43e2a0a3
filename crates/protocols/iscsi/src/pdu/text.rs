//! Text Request and Text Response (RFC 7143 §11.10, §11.11).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|I| 0x04      |F|C| Reserved                                  |  request
//!    0|.|.| 0x24      |F|C| Reserved                                  |  response
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| LUN or Reserved                                               |
//!   12|                                                               |
//!   16| Initiator Task Tag                                            |
//!   20| Target Transfer Tag or 0xffffffff                             |
//!   24| CmdSN                         /  StatSN                       |
//!   28| ExpStatSN                     /  ExpCmdSN                     |
//!   32| Reserved                      /  MaxCmdSN                     |
//!   36/ Reserved                                                      /
//! ```
//!
//! The data segment is text, as [`crate::text`] reads and writes it.

use super::bhs::pdu;
use super::fields::{CmdSn, CommandWindow, InitiatorTaskTag, Lun, StatSn, TargetTransferTag};

pdu! {
    /// Keys from the initiator in full feature phase.
    TextRequest, TEXT_REQUEST, 0x00 {
        /// I: to be answered at once.
        immediate: bool, bit 0 0x40;
        /// F: the initiator has no more requests in this exchange.
        is_final: bool, bit 1 0x80;
        /// C: the text goes on in the next request.
        continues: bool, bit 1 0x40;
        /// That of the response continued; reserved without one.
        lun: Lun, at 8;
        /// The same in all requests of an exchange.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// That of the response continued; the reserved value starts a new exchange.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Place in the order of commands.
        cmd_sn: CmdSn, at 24;
        /// Acknowledges all responses with a smaller StatSN.
        exp_stat_sn: StatSn, at 28;
    }
}

pdu! {
    /// The answer to a [`TextRequest`].
    TextResponse, TEXT_RESPONSE, 0x00 {
        /// F: the exchange is over.
        is_final: bool, bit 1 0x80;
        /// C: the text goes on in the next response.
        continues: bool, bit 1 0x40;
        /// Valid with a target transfer tag.
        lun: Lun, at 8;
        /// That of the request.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// By which the initiator asks for more; the reserved value when the exchange is over.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Number of this response.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
    }
}

impl TextRequest {
    /// CmdSN of this and of every other request that has one: all have it at the same place.
    #[inline]
    pub(crate) fn cmd_sn_of(bhs: &super::Bhs) -> CmdSn {
        super::bhs::Field::get(bhs, 24)
    }
}
