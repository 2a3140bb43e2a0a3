//! What shards tell each other, and how things are named across shards.

use std::net::SocketAddr;
use std::sync::Arc;

use longshore_block::reservation::Participant;
use longshore_iscsi::server::TaskManagementId;
use longshore_nvme::command::CommandId;

use crate::abort::{AbortOrder, AbortReply};
use crate::config::TransmitConfig;
use crate::connection::Driven;
use crate::observe::collect::Question;
use crate::platform::Link;

/// A connection, wherever it lives. The generation keeps a reused slot from being mistaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionAddress {
    pub shard: u32,
    pub slot: u32,
    pub generation: u32,
}

/// A task of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskAddress {
    pub connection: ConnectionAddress,
    pub slot: u32,
    pub generation: u32,
}

/// Mail for a shard.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection was accepted and is yours.
    Accepted { link: Box<dyn Link>, portal: usize },
    /// A connection that was another shard's is yours.
    Moved(Box<dyn Driven>),
    /// The connection of that peer is to go to that shard.
    Relocate { peer: SocketAddr, to: usize },
    /// Close the oldest connection that has not finished its login, if there are still too many.
    MakeRoom,
    /// Try again: the write gate may be open now.
    Retry(TaskAddress),
    /// Another thread has woken requests of this shard.
    RequestsWoken,
    /// Abort the tasks the order names; the order is dropped when none of them can act any more.
    Abort(Arc<AbortOrder>),
    /// Something else took the place of the connection of that name, or ended it.
    CloseConnection(ConnectionAddress),
    /// For a connection, by its name or its address.
    Note(ConnectionAddress, Note),
    /// For all connections of the shard.
    NoteForAll(Note),
    /// Somebody wants to know what the shard has done.
    Report(Question),
    /// Some shard finds no memory: those whose peers do not move make room.
    MemoryShort,
    /// From now on, responses leave like this.
    Transmit(TransmitConfig),
    /// Stop accepting, ask peers to leave, finish, flush, end.
    Shutdown,
    /// Drop everything and end.
    ShutdownNow,
}

/// Mail for a connection.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// Those whose place it took can act no more: commands may run.
    PredecessorsEnded,
    /// The reservations of a task's unit were stored, or not.
    Persisted { task: TaskAddress, stored: bool },
    /// Reservations of a task's unit that another task changed are stored: this one may try again.
    StoreIsFree { task: TaskAddress },
    /// All that an abort order named is gone, which was given for a PREEMPT AND ABORT that is part of
    /// a task.
    PreemptedTasksAborted {
        task: TaskAddress,
        /// Nexuses and hosts that lost tasks.
        aborted: Vec<Arc<dyn Participant>>,
    },
    /// The same for a task management request of an iSCSI connection.
    ManagementDone {
        request: TaskManagementId,
        /// Nexuses and hosts that lost tasks.
        aborted: Vec<Arc<dyn Participant>>,
    },
    /// The iSCSI target was reset cold: its connections end.
    TargetReset(usize),
    /// The NVMe controller of this admin queue has something to report.
    ControllerEvents,
    /// Abort a command of this NVMe queue.
    AbortCommand {
        command: CommandId,
        reply: Arc<AbortReply>,
    },
    /// What came of the Abort that this task is.
    CommandAborted { task: TaskAddress, aborted: bool },
}

/// Who waits for an abort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbortedFor {
    /// A task management request of a connection, by the number the connection gave it.
    TaskManagement {
        connection: ConnectionAddress,
        request: TaskManagementId,
    },
    /// A PREEMPT AND ABORT that is part of a task.
    Task(TaskAddress),
}
