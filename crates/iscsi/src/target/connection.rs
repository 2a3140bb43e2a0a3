//! One connection of a target: login, then full feature phase, then logout or failure.

use std::borrow::Cow;

use super::command::{
    Completion, DataOutFailure, PayloadWanted, ScsiCommand, TaskId, TaskInfo, TaskManagementId,
    TaskManagementRequest, TaskManagementResult,
};
use super::directory::Directory;
use crate::pdu::LoginStatus;
use crate::session_parameters::SessionParameters;
use crate::transmit::Transmit;

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
    /// The longest read answered by [`Connection::begin_inline_read`], in bytes.
    pub inline_read_max: u32,
    /// Makes target transfer tags hard to guess; any number.
    pub tag_seed: u64,
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
        }
    }
}

/// What happened that the driver must act upon.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The input is used up.
    NeedMore,
    /// The login has succeeded; [`Connection::session`] says with what.
    Established,
    /// A SCSI command whose turn it is. The driver calls `complete`, `begin_inline_read` or
    /// `want_data_out`, now or later.
    Command(ScsiCommand),
    /// Write data for a task: put `bytes` at `buffer_offset` of its data-out buffer. Owned bytes come
    /// with commands that had to wait for their turn.
    DataOut {
        /// Whose data.
        task: TaskId,
        /// Where it belongs.
        buffer_offset: u32,
        /// The data.
        bytes: Cow<'a, [u8]>,
    },
    /// All data that `want_data_out` asked for is there: execute the command.
    DataOutComplete {
        /// Which.
        task: TaskId,
    },
    /// The write data is unusable: complete the task with CHECK CONDITION, ABORTED COMMAND and the
    /// additional sense given. No more of its data will come.
    DataOutFailed {
        /// Which.
        task: TaskId,
        /// Why.
        failure: DataOutFailure,
    },
    /// A task management request; answer by `task_management_done`.
    TaskManagement(TaskManagementRequest),
    /// Nothing more will be accepted: send what is in the transmit queue, then close.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The initiator logged out of the session or this connection.
    Logout,
    /// The login was refused; the response says so too.
    LoginRefused(LoginStatus),
    /// The login took too long.
    LoginTimeout,
    /// The peer does not speak iSCSI as a target can understand it.
    ProtocolError(&'static str),
    /// A header digest does not match (RFC 7143 §7.8).
    HeaderDigestError,
    /// The initiator did not answer a ping.
    NopTimeout,
    /// The initiator did not log out when asked to.
    LogoutTimeout,
}

/// One connection of a target. See the module documentation.
pub struct Connection {}

#[allow(unused_variables, clippy::unimplemented, clippy::needless_pass_by_ref_mut)]
impl Connection {
    /// A connection that waits for its first Login Request.
    #[must_use]
    pub fn new(config: ConnectionConfig, now_ms: u64) -> Self {
        unimplemented!()
    }

    /// Takes bytes off the front of `input` until something happens or the input is used up.
    ///
    /// Write data of a command is delivered from the first call after its `Event::Command` on, so a
    /// driver without room for it has to stop calling.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
        now_ms: u64,
    ) -> Event<'a> {
        unimplemented!()
    }

    /// While write data is being received: where its next bytes belong. The driver may receive
    /// straight into that place and call [`Self::payload_received`] instead of [`Self::next`].
    #[must_use]
    pub fn payload_wanted(&self) -> Option<PayloadWanted> {
        unimplemented!()
    }

    /// `placed` bytes have been received to where [`Self::payload_wanted`] said.
    pub fn payload_received(&mut self, placed: &[u8], now_ms: u64) {
        unimplemented!()
    }

    /// The driver's answer to a write command: it takes `wanted` bytes of data, 0 included. R2Ts are
    /// sent for what is neither immediate nor unsolicited, up to EDTL. `Event::DataOutComplete` or
    /// `Event::DataOutFailed` follows, unless the task is completed or aborted before.
    pub fn want_data_out(&mut self, task: TaskId, wanted: u64, transmit: &mut Transmit) {
        unimplemented!()
    }

    /// Place in the transmit queue for the data of a small read, which the driver fills at once and
    /// in full; stale bytes are in it. `scsi_length` is what the CDB asks for; the place is shorter
    /// when EDTL is. `None` when it does not fit one Data-In PDU. Must be followed by
    /// [`Self::commit_inline_read`] or [`Self::rollback_inline_read`] before any other call.
    pub fn begin_inline_read<'t>(
        &mut self,
        task: TaskId,
        scsi_length: u32,
        transmit: &'t mut Transmit,
    ) -> Option<&'t mut [u8]> {
        unimplemented!()
    }

    /// Sends the read begun, with status GOOD in the Data-In PDU; ends the task.
    pub fn commit_inline_read(&mut self, task: TaskId, transmit: &mut Transmit) {
        unimplemented!()
    }

    /// Forgets the read begun; the task lives on.
    pub fn rollback_inline_read(&mut self, task: TaskId, transmit: &mut Transmit) {
        unimplemented!()
    }

    /// Ends a task: Data-In PDUs, the last with status GOOD if it is that, or a SCSI Response.
    pub fn complete(
        &mut self,
        task: TaskId,
        completion: Completion<'_>,
        transmit: &mut Transmit,
    ) {
        unimplemented!()
    }

    /// Forgets a task without a response. Data still arriving for it is discarded.
    pub fn abort(&mut self, task: TaskId) {
        unimplemented!()
    }

    /// Answers a task management request.
    pub fn task_management_done(
        &mut self,
        request: TaskManagementId,
        result: TaskManagementResult,
        transmit: &mut Transmit,
    ) {
        unimplemented!()
    }

    /// Asks the initiator to log out (Asynchronous Message 1).
    pub fn request_logout(&mut self, transmit: &mut Transmit, now_ms: u64) {
        unimplemented!()
    }

    /// Tells the initiator that this connection is about to be dropped (Asynchronous Message 2).
    pub fn announce_drop(&mut self, transmit: &mut Transmit) {
        unimplemented!()
    }

    /// What the login settled, once it has.
    #[must_use]
    pub fn session(&self) -> Option<&SessionParameters> {
        unimplemented!()
    }

    /// When [`Self::handle_deadline`] should be called next.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        unimplemented!()
    }

    /// Does what is due by now. A reason to close means: send what is queued, then close.
    pub fn handle_deadline(&mut self, transmit: &mut Transmit, now_ms: u64) -> Option<CloseReason> {
        unimplemented!()
    }

    /// How many tasks there can be at a time: task numbers are below this.
    #[must_use]
    pub fn task_capacity(&self) -> usize {
        unimplemented!()
    }

    /// The live tasks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        std::iter::empty()
    }

    /// What is known of a live task.
    #[must_use]
    pub fn task_info(&self, task: TaskId) -> TaskInfo {
        unimplemented!()
    }
}
