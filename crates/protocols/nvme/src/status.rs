//! Status of a command (NVMe base 2.0 §3.3.3.2.1, Figures 93 to 99; NVM command set 1.0).

use std::fmt;

/// The Status Field: SC in bits 7:0, SCT in 10:8, CRD in 12:11, M in 13, DNR in 14. (On the wire it stands
/// one bit higher, above the phase tag.)
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $type:literal, $code:literal, $text:literal;)*) => {
        impl Status {
            $(
                $(#[$doc])*
                #[doc = $text]
                pub const $name: Self = Self($type << 8 | $code);
            )*

            fn text(self) -> Option<&'static str> {
                match self.0 & 0x7ff {
                    $(x if x == $type << 8 | $code => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0x0, 0x00, "Successful Completion";
    INVALID_COMMAND_OPCODE = 0x0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0x0, 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0x0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0x0, 0x04, "Data Transfer Error";
    INTERNAL_ERROR = 0x0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0x0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0x0, 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0x0, 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0x0, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE_OR_FORMAT = 0x0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0x0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0x0, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_NUMBER_OF_SGL_DESCRIPTORS = 0x0, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0x0, 0x0f, "Data SGL Length Invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = 0x0, 0x11, "SGL Descriptor Type Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x0, 0x14, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0x0, 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = 0x0, 0x16, "SGL Offset Invalid";
    HOST_IDENTIFIER_INCONSISTENT_FORMAT = 0x0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_TIMER_EXPIRED = 0x0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_TIMEOUT_INVALID = 0x0, 0x1a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT_AND_ABORT = 0x0, 0x1b, "Command Aborted due to Preempt and Abort";
    NAMESPACE_WRITE_PROTECTED = 0x0, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0x0, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0x0, 0x22, "Transient Transport Error";
    LBA_OUT_OF_RANGE = 0x0, 0x80, "LBA Out of Range";
    SANITIZE_FAILED = 0x0, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0x0, 0x1d, "Sanitize In Progress";
    FORMAT_IN_PROGRESS = 0x0, 0x84, "Format In Progress";
    CAPACITY_EXCEEDED = 0x0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0x0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0x0, 0x83, "Reservation Conflict";

    // Some codes mean another thing to I/O commands. Logs tell those of Connect, so these come first.
    CONNECT_INCOMPATIBLE_FORMAT = 0x1, 0x80, "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = 0x1, 0x81, "Connect Controller Busy";
    /// Of Connect. Dword 0 says where: the offset in bits 15:0, 1 in bit 16 if it is one into the data.
    CONNECT_INVALID_PARAMETERS = 0x1, 0x82, "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = 0x1, 0x83, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 0x1, 0x84, "Connect Invalid Host";
    /// Of Disconnect, when it is sent to the admin queue.
    INVALID_QUEUE_TYPE = 0x1, 0x85, "Invalid Queue Type";
    /// The discovery log page changed while it was read.
    DISCOVERY_RESTART = 0x1, 0x90, "Discovery Restart";
    /// The queue must authenticate before other commands.
    AUTHENTICATION_REQUIRED = 0x1, 0x91, "Authentication Required";

    INVALID_QUEUE_IDENTIFIER = 0x1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 0x1, 0x02, "Invalid Queue Size";
    ABORT_COMMAND_LIMIT_EXCEEDED = 0x1, 0x03, "Abort Command Limit Exceeded";
    ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED = 0x1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = 0x1, 0x09, "Invalid Log Page";
    FEATURE_NOT_SAVEABLE = 0x1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 0x1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x1, 0x0f, "Feature Not Namespace Specific";
    COMMAND_SET_COMBINATION_REJECTED = 0x1, 0x2b, "I/O Command Set Combination Rejected";
    CONFLICTING_ATTRIBUTES = 0x1, 0x80, "Conflicting Attributes";
    WRITE_TO_READ_ONLY_RANGE = 0x1, 0x82, "Attempted Write to Read Only Range";
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x1, 0x83, "Command Size Limit Exceeded";

    WRITE_FAULT = 0x2, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 0x2, 0x81, "Unrecovered Read Error";
    COMPARE_FAILURE = 0x2, 0x85, "Compare Failure";
    ACCESS_DENIED = 0x2, 0x86, "Access Denied";
    DEALLOCATED_OR_UNWRITTEN = 0x2, 0x87, "Deallocated or Unwritten Logical Block";

    INTERNAL_PATH_ERROR = 0x3, 0x00, "Internal Path Error";
    ASYMMETRIC_ACCESS_PERSISTENT_LOSS = 0x3, 0x01, "Asymmetric Access Persistent Loss";
    ASYMMETRIC_ACCESS_INACCESSIBLE = 0x3, 0x02, "Asymmetric Access Inaccessible";
    ASYMMETRIC_ACCESS_TRANSITION = 0x3, 0x03, "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = 0x3, 0x60, "Controller Pathing Error";
    HOST_PATHING_ERROR = 0x3, 0x70, "Host Pathing Error";
    ABORTED_BY_HOST = 0x3, 0x71, "Command Aborted By Host";
}

impl Status {
    const CRD_SHIFT: u16 = 11;
    const MORE: u16 = 1 << 13;
    const DO_NOT_RETRY: u16 = 1 << 14;

    /// Whether the command did what it was to do.
    #[inline]
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// With DNR: the same command would fail again.
    #[must_use]
    pub const fn do_not_retry(self) -> Self {
        Self(self.0 | Self::DO_NOT_RETRY)
    }

    /// With M: the error information log says more.
    #[must_use]
    pub const fn more(self) -> Self {
        Self(self.0 | Self::MORE)
    }

    /// With CRD: which of the controller's three retry delays to wait, 1 to 3; 0 for none.
    #[must_use]
    pub const fn retry_delay(self, index: u16) -> Self {
        Self(self.0 & !(3 << Self::CRD_SHIFT) | (index & 3) << Self::CRD_SHIFT)
    }

    /// CRD: which of the controller's three retry delays to wait, 1 to 3; 0 for none.
    #[must_use]
    pub const fn retry_delay_index(self) -> u16 {
        self.0 >> Self::CRD_SHIFT & 3
    }

    /// SCT: the status code type. 3 is of the path rather than of the command.
    #[must_use]
    pub const fn code_type(self) -> u16 {
        self.0 >> 8 & 7
    }

    /// Status code type and status code, without CRD, M and DNR.
    #[must_use]
    pub const fn code(self) -> Self {
        Self(self.0 & 0x7ff)
    }

    /// Whether DNR is set.
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 & Self::DO_NOT_RETRY != 0
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = (self.0 >> 8 & 7, self.0 & 0xff);
        write!(
            f,
            "{} ({kind:x}h/{code:02x}h",
            self.text().unwrap_or("status")
        )?;
        if self.is_final() {
            f.write_str(", do not retry")?;
        }
        f.write_str(")")
    }
}
