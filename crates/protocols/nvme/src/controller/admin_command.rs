//! Admin commands, as all of them see it: what comes with one, and what the driver does afterwards.

use longshore_block::sanitize::SanitizeOrder;

use super::environment::Environment;
use super::failure::Failure;
use crate::command::{CommandId, SubmissionEntry};
use crate::status::Status;

/// The driver's name for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueHandle(pub u128);

/// What the driver does after an admin command. Whatever it is, [`Controller::poll_events`](super::Controller::poll_events) may have
/// something afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminOutcome {
    /// Completes the command; data for the host has been appended.
    Complete {
        status: Status,
        /// Dwords 0 and 1 of the completion.
        result: u64,
    },
    /// An Asynchronous Event Request is outstanding until [`Controller::poll_events`](super::Controller::poll_events) names it.
    AsyncEvent,
    /// Looks for a command and aborts it if it has not begun; completes with result 0 if it was
    /// aborted, and 1 if not.
    Abort {
        /// Connection of the queue.
        queue: QueueHandle,
        /// SQID of the command to abort.
        queue_id: u16,
        /// CID of the command to abort.
        command: CommandId,
    },
    /// A controller reset, or a shutdown that has nothing to write back: completes the command with
    /// success, and closes the connections.
    CloseQueues { queues: Vec<QueueHandle> },
    /// A shutdown while volatile caches may hold data: completes the command with success, closes the
    /// connections, flushes the volumes of [`Controller::namespaces`](super::Controller::namespaces) (nothing that was not completed
    /// by now needs to be in it) and then calls [`Controller::shutdown_finished`](super::Controller::shutdown_finished), for which the host
    /// waits.
    ShutDown { queues: Vec<QueueHandle> },
    /// Sanitizes volumes: completes with success when it is stored that this has begun, and with Sanitize In Progress
    /// if another operation was quicker.
    Sanitize {
        /// The driver's indices of the volumes.
        volumes: Vec<usize>,
        order: SanitizeOrder,
    },
    /// Leaves failed operations behind: completes with success, or Sanitize Failed.
    ExitSanitizeFailure {
        /// The driver's indices of the volumes.
        volumes: Vec<usize>,
    },
    /// Of an I/O queue: completes with success, then closes this connection.
    Disconnect,
}

/// An admin command in progress.
pub(super) struct Request<'a> {
    pub(super) entry: &'a SubmissionEntry,
    pub(super) data: &'a [u8],
    pub(super) out: &'a mut Vec<u8>,
    pub(super) environment: &'a dyn Environment,
    pub(super) now_ms: u64,
}

impl Request<'_> {
    /// Data of the host, all of it.
    pub(super) fn data<const N: usize>(&self) -> Result<&[u8; N], Failure> {
        self.data
            .first_chunk()
            .ok_or_else(|| Failure::of(Status::DATA_SGL_LENGTH_INVALID))
    }
}

/// Success without a result.
pub(super) const DONE: AdminOutcome = AdminOutcome::Complete {
    status: Status::SUCCESS,
    result: 0,
};

pub(super) const fn done(result: u64) -> AdminOutcome {
    AdminOutcome::Complete {
        status: Status::SUCCESS,
        result,
    }
}
