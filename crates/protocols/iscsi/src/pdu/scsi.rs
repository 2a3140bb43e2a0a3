//! SCSI Command and SCSI Response (RFC 7143 §11.3, §11.4).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|I| 0x01      |F|R|W|. .|ATTR | Reserved                      |  command
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| Logical Unit Number (LUN)                                     |
//!   12|                                                               |
//!   16| Initiator Task Tag                                            |
//!   20| Expected Data Transfer Length                                 |
//!   24| CmdSN                                                         |
//!   28| ExpStatSN                                                     |
//!   32/ SCSI Command Descriptor Block (CDB), 16 bytes                 /
//!
//!    0|.|.| 0x21      |1|. .|o|u|O|U|.| Response      | Status        |  response
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| Reserved                                                      |
//!   16| Initiator Task Tag                                            |
//!   20| SNACK Tag or Reserved                                         |
//!   24| StatSN                                                        |
//!   28| ExpCmdSN                                                      |
//!   32| MaxCmdSN                                                      |
//!   36| ExpDataSN or Reserved                                         |
//!   40| Bidirectional Read Residual Count or Reserved                 |
//!   44| Residual Count or Reserved                                    |
//! ```
//!
//! The data segment of a command is immediate write data. That of a response is SenseLength (two
//! bytes), sense data, and response data, which this implementation neither sends nor reads.

use super::bhs::{open_bits, open_enum, pdu};
use super::fields::{CmdSn, CommandWindow, InitiatorTaskTag, Lun, StatSn};

open_bits! {
    /// ATTR of a SCSI Command (RFC 7143 §11.3.1).
    Attribute(7) {
        UNTAGGED = 0,
        SIMPLE = 1,
        ORDERED = 2,
        HEAD_OF_QUEUE = 3,
        ACA = 4,
    }
}

pdu! {
    /// A SCSI command, with or without immediate data.
    ScsiCommand, SCSI_COMMAND, 0x00 {
        /// I: to be delivered at once, without waiting for earlier commands.
        immediate: bool, bit 0 0x40;
        /// F: no unsolicited Data-Out PDUs follow.
        is_final: bool, bit 1 0x80;
        /// R: data is expected by the initiator.
        read: bool, bit 1 0x40;
        /// W: the initiator has data to send.
        write: bool, bit 1 0x20;
        /// ATTR: the task attribute (SAM-5 §8.6).
        attribute: Attribute, bits 1 0x07;
        /// The addressed logical unit.
        lun: Lun, at 8;
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Bytes to be moved; of the write part when both R and W are set.
        expected_data_transfer_length: u32, at 20;
        /// Place in the order of commands.
        cmd_sn: CmdSn, at 24;
        /// Acknowledges responses before this one.
        exp_stat_sn: StatSn, at 28;
        /// The first 16 bytes of the CDB.
        cdb: [u8; 16], at 32;
    }
}

open_enum! {
    /// iSCSI service response (RFC 7143 §11.4.3).
    ServiceResponse {
        COMMAND_COMPLETED = 0x00,
        TARGET_FAILURE = 0x01,
    }
}

pdu! {
    /// The end of a command, when a Data-In PDU does not carry it.
    ScsiResponse, SCSI_RESPONSE, 0x80 {
        /// o: the read part of a bidirectional command had more to send.
        bidirectional_overflow: bool, bit 1 0x10;
        /// u: the read part of a bidirectional command had less to send.
        bidirectional_underflow: bool, bit 1 0x08;
        /// O: there was more to move than expected.
        overflow: bool, bit 1 0x04;
        /// U: there was less to move than expected.
        underflow: bool, bit 1 0x02;
        /// Whether the command completed at the target at all.
        response: ServiceResponse, at 2;
        /// SAM status; valid when it did.
        status: u8, at 3;
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Copied from an R-Data SNACK; 0 without one.
        snack_tag: u32, at 20;
        /// Number of this response.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
        /// Data-In PDUs sent for the command.
        exp_data_sn: u32, at 36;
        /// Valid with either of the bidirectional flags.
        bidirectional_residual_count: u32, at 40;
        /// Bytes by which expectation and offer differ; valid with either of the flags.
        residual_count: u32, at 44;
    }
}
