//! The PDUs of RFC 7143 chapter 11, both directions.
//!
//! A PDU is a [`Bhs`], additional header segments ([`AdditionalHeaders`]), and a data segment; the
//! struct of a PDU holds what its basic header says, and its lengths and the data segment belong to
//! the framing. Decoding cannot fail: every header of 48 bytes is some value of its struct, unknown
//! codes included, and the machines decide what to answer. Reserved fields are ignored when received
//! and zero when sent (§11).

mod ahs;
pub(crate) mod bhs;
mod data;
mod fields;
mod login;
mod logout;
mod nop;
mod notice;
mod scsi;
mod task_management;
mod text;

pub use ahs::{AdditionalHeaders, AhsError, CDB_LENGTH_MAX};
pub use bhs::{BHS_LENGTH, Bhs, DATA_SEGMENT_LENGTH_MAX, Opcode, padding};
pub use data::{DataIn, DataOut, R2t};
pub use fields::{
    CmdSn, CommandWindow, ConnectionId, DataSn, InitiatorTaskTag, Isid, Lun, R2tSn, StatSn,
    TargetTransferTag, Tsih,
};
pub use login::{LoginRequest, LoginResponse, LoginStatus, Stage};
pub use logout::{LogoutReason, LogoutRequest, LogoutResponse, LogoutResult};
pub use nop::{NopIn, NopOut};
pub use notice::{AsyncEvent, AsyncMessage, Reject, RejectReason, SnackRequest, SnackType};
pub use scsi::{Attribute, ScsiCommand, ScsiResponse, ServiceResponse};
pub use task_management::{
    Function, Response as TaskManagementResponseCode, TaskManagementRequest, TaskManagementResponse,
};
pub use text::{TextRequest, TextResponse};

#[cfg(test)]
pub(crate) mod tests;
