//! SCSI Data-Out, SCSI Data-In and Ready To Transfer (RFC 7143 §11.7, §11.8).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|.| 0x05      |F| Reserved                                    |  Data-Out
//!    0|.|.| 0x25      |F|A|0 0 0|O|U|S| Reserved      |Status or Rsvd |  Data-In
//!    0|.|.| 0x31      |1| Reserved                                    |  R2T
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| LUN or Reserved                                               |
//!   12|                                                               |
//!   16| Initiator Task Tag                                            |
//!   20| Target Transfer Tag or 0xffffffff                             |
//!   24| Reserved                      /  StatSN         /  StatSN     |
//!   28| ExpStatSN                     /  ExpCmdSN       /  ExpCmdSN   |
//!   32| Reserved                      /  MaxCmdSN       /  MaxCmdSN   |
//!   36| DataSN                        /  DataSN         /  R2TSN      |
//!   40| Buffer Offset                                                 |
//!   44| Reserved     /  Residual Count  /  Desired Data Transfer Len. |
//! ```

use super::bhs::pdu;
use super::fields::{
    CommandWindow, DataSn, InitiatorTaskTag, Lun, R2tSn, StatSn, TargetTransferTag,
};

pdu! {
    /// Write data: unsolicited, or the answer to an R2T.
    DataOut, DATA_OUT, 0x00 {
        /// F: the last PDU of its sequence.
        is_final: bool, bit 1 0x80;
        /// That of the R2T; reserved without one.
        lun: Lun, at 8;
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// That of the R2T, or the reserved value for unsolicited data.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Acknowledges all responses with a smaller StatSN.
        exp_stat_sn: StatSn, at 28;
        /// Number within its sequence.
        data_sn: DataSn, at 36;
        /// Bytes from the start of the command's write data.
        buffer_offset: u32, at 40;
    }
}

pdu! {
    /// Read data, and with `has_status` the end of the command.
    DataIn, DATA_IN, 0x00 {
        /// F: the last PDU of its sequence.
        is_final: bool, bit 1 0x80;
        /// A: asks for a DataACK; never at error recovery level 0.
        acknowledge: bool, bit 1 0x40;
        /// O, valid with `has_status`: there was more to read than expected.
        overflow: bool, bit 1 0x04;
        /// U, valid with `has_status`: there was less to read than expected.
        underflow: bool, bit 1 0x02;
        /// S: `status`, `stat_sn` and `residual_count` are valid. Then `is_final` is set too.
        has_status: bool, bit 1 0x01;
        /// SAM status, of the kind without sense data.
        status: u8, at 3;
        /// Valid with `acknowledge`, reserved otherwise.
        lun: Lun, at 8;
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Valid with `acknowledge`, else the reserved value.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Number of the status, valid with `has_status`.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
        /// Number within the command.
        data_sn: DataSn, at 36;
        /// Bytes from the start of the command's read data.
        buffer_offset: u32, at 40;
        /// Bytes by which expectation and offer differ, valid with either flag.
        residual_count: u32, at 44;
    }
}

pdu! {
    /// Ready To Transfer, sent by the target to ask for write data.
    R2t, R2T, 0x80 {
        /// The logical unit of the command.
        lun: Lun, at 8;
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Echoed in each Data-Out of this burst. Never the reserved value.
        target_transfer_tag: TargetTransferTag, at 20;
        /// Next StatSN of the connection; sending an R2T does not use it up.
        stat_sn: StatSn, at 24;
        /// What the target takes.
        window: CommandWindow, at 28;
        /// Number within the command.
        r2t_sn: R2tSn, at 36;
        /// Bytes from the start of the command's write data.
        buffer_offset: u32, at 40;
        /// Bytes wanted: 1 up to the negotiated MaxBurstLength.
        desired_data_transfer_length: u32, at 44;
    }
}
