//! Limits in force, where the data path finds them.

use crate::session_parameters::{OperationalParameters, SessionType};

/// Values in force, where the data path finds them.
#[derive(Clone, Copy, Debug)]
pub(super) struct NegotiatedLimits {
    pub(super) session_type: SessionType,
    /// Longest data segment we take; the default of 8192 during login.
    pub(super) target_max_recv_data_segment_length: u32,
    /// Longest data segment the initiator takes.
    pub(super) initiator_max_recv_data_segment_length: u32,
    pub(super) max_burst_length: u32,
    pub(super) first_burst_length: u32,
    pub(super) max_outstanding_r2t: u16,
    pub(super) initial_r2t: bool,
    pub(super) immediate_data: bool,
    /// Longest read sent by `begin_inline_read`: fits one Data-In PDU.
    pub(super) inline_read_max: u32,
}

impl NegotiatedLimits {
    pub(super) fn new(
        session_type: SessionType,
        operational: &OperationalParameters,
        inline_read_max: u32,
    ) -> Self {
        let segment = operational.initiator_max_recv_data_segment_length;
        Self {
            session_type,
            target_max_recv_data_segment_length: operational.target_max_recv_data_segment_length,
            initiator_max_recv_data_segment_length: segment,
            max_burst_length: operational.max_burst_length,
            first_burst_length: operational.first_burst_length,
            max_outstanding_r2t: operational.max_outstanding_r2t,
            initial_r2t: operational.initial_r2t,
            immediate_data: operational.immediate_data,
            inline_read_max: inline_read_max
                .min(segment)
                .min(operational.max_burst_length),
        }
    }
}
