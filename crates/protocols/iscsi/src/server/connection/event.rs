//! What the driver of a connection sees: its configuration, and events.

use std::borrow::Cow;

use crate::pdu::LoginStatus;
use crate::server::command::{DataOutFailure, ScsiCommand, TaskId, TaskManagementRequest};
use crate::server::login::LoginError;

/// What the driver decides about a connection before it starts.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// A login that takes longer ends the connection.
    pub login_timeout_ms: u64,
    /// After so long without a byte from the initiator it is sent a NOP-In ping. 0: never.
    pub nop_interval_ms: u64,
    /// An unanswered ping ends the connection after this.
    pub nop_timeout_ms: u64,
    /// How long an initiator asked to log out may take (Parameter3 of the Async Message, rounded up
    /// to seconds).
    pub logout_timeout_ms: u64,
    /// Commands the initiator may have outstanding: the size of the command window.
    pub queue_depth: u32,
    /// Immediate commands beyond the window.
    pub immediate_commands: u32,
    /// The longest read answered by [`Connection::begin_inline_read`](super::Connection::begin_inline_read), in bytes.
    pub inline_read_max: u32,
    /// Makes target transfer tags hard to guess; any number.
    pub tag_seed: u64,
    /// Every login is refused with this status: shutting down, too many connections.
    pub refuse_logins: Option<LoginStatus>,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            login_timeout_ms: 15_000,
            nop_interval_ms: 30_000,
            nop_timeout_ms: 30_000,
            logout_timeout_ms: 5_000,
            queue_depth: 512,
            immediate_commands: 16,
            inline_read_max: 16 << 10,
            tag_seed: 0,
            refuse_logins: None,
        }
    }
}

/// What happened that the driver must act upon.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionEvent<'a> {
    /// The input is used up.
    NeedMore,
    /// The login has succeeded; [`Connection::session`](super::Connection::session) says with what.
    Established,
    /// A SCSI command whose turn it is. The driver calls `complete`, `begin_inline_read` or
    /// `want_data_out`, now or later.
    Command(ScsiCommand),
    /// Write data for a task: put `bytes` at `buffer_offset` of its data-out buffer. Owned bytes come
    /// with commands that had to wait for their turn.
    DataOut {
        task: TaskId,
        buffer_offset: u32,
        bytes: Cow<'a, [u8]>,
    },
    /// All data that `want_data_out` asked for is there: execute the command.
    DataOutComplete { task: TaskId },
    /// The write data is unusable: complete the task with CHECK CONDITION, ABORTED COMMAND and the
    /// additional sense given. No more of its data will come.
    DataOutFailed {
        task: TaskId,
        failure: DataOutFailure,
    },
    /// A task management request; answer by `task_management_done`.
    TaskManagement(TaskManagementRequest),
    /// Nothing more will be accepted: send what is in the transmit queue, then close.
    Close(CloseReason),
}

impl ConnectionEvent<'_> {
    /// The same with the bytes it refers to.
    pub(super) fn into_owned(self) -> ConnectionEvent<'static> {
        match self {
            Self::NeedMore => ConnectionEvent::NeedMore,
            Self::Established => ConnectionEvent::Established,
            Self::Command(command) => ConnectionEvent::Command(command),
            Self::DataOut {
                task,
                buffer_offset,
                bytes,
            } => {
                let bytes = Cow::Owned(bytes.into_owned());
                ConnectionEvent::DataOut {
                    task,
                    buffer_offset,
                    bytes,
                }
            }
            Self::DataOutComplete { task } => ConnectionEvent::DataOutComplete { task },
            Self::DataOutFailed { task, failure } => {
                ConnectionEvent::DataOutFailed { task, failure }
            }
            Self::TaskManagement(request) => ConnectionEvent::TaskManagement(request),
            Self::Close(reason) => ConnectionEvent::Close(reason),
        }
    }

    /// The task it is about, for those that wait.
    pub(super) const fn data_out_task(&self) -> Option<TaskId> {
        match self {
            Self::DataOut { task, .. }
            | Self::DataOutComplete { task }
            | Self::DataOutFailed { task, .. } => Some(*task),
            Self::NeedMore
            | Self::Established
            | Self::Command(_)
            | Self::TaskManagement(_)
            | Self::Close(_) => None,
        }
    }
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The initiator logged out of the session or this connection.
    #[error("logged out")]
    Logout,
    /// The login was refused, as the response says.
    #[error("{0}")]
    LoginRefused(LoginError),
    /// The login was refused because of [`ConnectionConfig::refuse_logins`].
    #[error("logins are not accepted now: {0}")]
    LoginsRefused(LoginStatus),
    /// The login took too long.
    #[error("the login took too long")]
    LoginTimeout,
    /// The peer does not speak iSCSI as a target can understand it.
    #[error("protocol error: {0}")]
    ProtocolError(&'static str),
    /// A header digest does not match (RFC 7143 §7.8).
    #[error("a header digest does not match")]
    HeaderDigestError,
    /// The initiator did not answer a ping.
    #[error("the initiator does not answer a NOP-In")]
    NopTimeout,
    /// The initiator did not log out when asked to.
    #[error("the initiator did not log out when it was asked to")]
    LogoutTimeout,
}
