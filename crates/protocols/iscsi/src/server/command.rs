//! What the driver of a connection sees of tasks: commands in, completions out.

use std::fmt;

use crate::pdu::{CmdSn, InitiatorTaskTag, Lun};
pub use longshore_wire::transmit::Payload;

/// Dense number of a task of this connection: `0..Connection::task_capacity()`, reused after the
/// task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The number as an index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A SCSI command descriptor block of 16 bytes, or up to 260 with an extended CDB.
#[derive(Clone, PartialEq, Eq)]
pub struct Cdb {
    fixed: [u8; 16],
    /// The whole CDB when it is longer than 16 bytes.
    extended: Option<Box<[u8]>>,
}

impl Cdb {
    /// A CDB of at most 16 bytes, with zeros behind it.
    #[inline]
    #[must_use]
    pub const fn new(fixed: [u8; 16]) -> Self {
        Self {
            fixed,
            extended: None,
        }
    }

    /// A CDB whose bytes from the 17th on came in an additional header segment.
    #[must_use]
    pub fn extended(fixed: [u8; 16], spillover: &[u8]) -> Self {
        let extended = (!spillover.is_empty()).then(|| [&fixed, spillover].concat().into());
        Self { fixed, extended }
    }

    /// Its bytes, 16 or more.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.extended.as_deref().unwrap_or(&self.fixed)
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cdb({:02x?})", self.as_bytes())
    }
}

/// Task attribute (RFC 7143 §11.3.1, SAM-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAttribute {
    /// No attribute; treated as simple.
    Untagged,
    /// Any order among simple tasks.
    Simple,
    /// After all older tasks, before all younger ones.
    Ordered,
    /// Starts before all tasks that wait.
    HeadOfQueue,
    /// Within an auto contingent allegiance.
    Aca,
}

/// A SCSI command whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// Names the task until it is completed or aborted.
    pub task: TaskId,
    /// The addressed logical unit.
    pub lun: Lun,
    /// The CDB, opaque to this crate.
    pub cdb: Cdb,
    /// How it orders with others.
    pub attribute: TaskAttribute,
    /// R: the initiator expects data. With `write` the command is bidirectional: complete it without
    /// asking for its data, by a status that refuses it. No data can be returned for it.
    pub read: bool,
    /// W: the initiator has data to send.
    pub write: bool,
    /// Bytes the initiator expects to move, EDTL (§11.3.4).
    pub expected_data_transfer_length: u32,
    /// Delivered out of order by the I bit.
    pub immediate: bool,
}

/// How a task ends.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// STATUS of SAM-5 §5.3, such as 00h for GOOD.
    pub status: u8,
    /// Sense data, empty unless the status has some.
    pub sense: &'a [u8],
    /// Data for the initiator; what exceeds the expected transfer length is cut off.
    pub data_in: Payload<'a>,
    /// Bytes the command would move if the initiator's expectation were boundless: the residual
    /// count says how this differs from EDTL (§11.4.5.2).
    pub scsi_length: u64,
}

/// Where the next bytes of the connection belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadWanted {
    /// Into the write data of this task,
    pub task: TaskId,
    pub buffer_offset: u32,
    /// and at most so many bytes.
    pub length: u32,
    /// They answer an R2T.
    pub solicited: bool,
}

/// Why write data is unusable: complete the task with CHECK CONDITION, ABORTED COMMAND and this
/// additional sense (RFC 7143 §11.4.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOutFailure {
    /// ADDITIONAL SENSE CODE of the sense data.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
}

impl DataOutFailure {
    /// Data without R2T where R2Ts are required.
    pub const UNEXPECTED_UNSOLICITED_DATA: Self = Self {
        asc: 0x0c,
        ascq: 0x0c,
    };
    /// More or less data than announced or asked for.
    pub const INCORRECT_AMOUNT_OF_DATA: Self = Self {
        asc: 0x0c,
        ascq: 0x0d,
    };
    /// A data digest that does not match.
    pub const PROTOCOL_SERVICE_CRC_ERROR: Self = Self {
        asc: 0x47,
        ascq: 0x05,
    };
}

/// What is known of a live task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// The addressed logical unit.
    pub lun: Lun,
    /// The initiator's name for the task.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Its place in the order of commands.
    pub cmd_sn: CmdSn,
    /// Delivered out of order by the I bit.
    pub immediate: bool,
    /// Expected Data Transfer Length, in bytes.
    pub expected_data_transfer_length: u32,
}

/// Names a task management request until [`super::Connection::task_management_done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskManagementId(pub u32);

/// What a task management request asks for (RFC 7143 §11.5.1). Task reassignment never comes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagementFunction {
    /// Aborts the one task that [`TaskManagementRequest::referenced_task`] names.
    AbortTask,
    /// Aborts all tasks of this session on the logical unit.
    AbortTaskSet,
    /// Clears the auto contingent allegiance.
    ClearAca,
    /// Aborts all tasks of the task set.
    ClearTaskSet,
    LogicalUnitReset,
    /// Resets all logical units the initiator can see.
    TargetWarmReset,
    /// As a warm reset; and all sessions of the target end.
    TargetColdReset,
}

/// A task management request, checked for validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementRequest {
    /// Goes back with the answer to the function.
    pub id: TaskManagementId,
    pub function: TaskManagementFunction,
    /// To which logical unit; reserved for target resets.
    pub lun: Lun,
    /// For `AbortTask`: the task. `None` when it has ended: the answer is
    /// [`TaskManagementResult::TaskDoesNotExist`], as soon as it can no longer act.
    pub referenced_task: Option<TaskId>,
    /// Tasks with a CmdSN before this one are affected, and immediate ones received before it.
    pub cmd_sn: CmdSn,
}

/// How task management went (RFC 7143 §11.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagementResult {
    /// Response 0: all tasks concerned have ended.
    FunctionComplete,
    /// Response 1: the referenced task is not there.
    TaskDoesNotExist,
    /// Response 2: there is no logical unit of that number.
    LunDoesNotExist,
    /// Response 5: the function is unknown, or beyond error recovery level 0.
    FunctionNotSupported,
    /// Response 6: the initiator may not use the function.
    FunctionAuthorizationFailed,
    /// Response 255: refused for any other reason.
    FunctionRejected,
}
