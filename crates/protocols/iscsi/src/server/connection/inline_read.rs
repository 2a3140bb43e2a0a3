//! A read that is filled into the transmit queue, and what it moves less or more than expected.

use crate::server::command::TaskId;
use longshore_wire::transmit::OpenPdu;

/// A read that the driver fills into the transmit queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineRead {
    pub(super) task: TaskId,
    pub(super) pdu: OpenPdu,
    pub(super) residual: Residual,
}

/// Difference between what the initiator expected and what the command moves (§11.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Residual {
    pub(super) overflow: bool,
    pub(super) underflow: bool,
    pub(super) count: u32,
}

impl Residual {
    /// `expected` is EDTL, `presented` what the SCSI layer had or wanted (SPDTL).
    pub(super) fn new(expected: u32, presented: u64) -> Self {
        let expected = u64::from(expected);
        Self {
            overflow: presented > expected,
            underflow: presented < expected,
            count: u32::try_from(presented.abs_diff(expected)).unwrap_or(u32::MAX),
        }
    }
}
