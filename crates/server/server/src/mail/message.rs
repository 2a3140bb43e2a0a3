//! Messages between shards.

use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use longshore_block::reservation::Participant;
use longshore_iscsi::server::TaskManagementId;
use longshore_nvme::auth::Computed;
use longshore_nvme::command::CommandId;
use longshore_reactor::Buffer;

use super::abort::{AbortOrder, AbortWaiter};
use super::grace::Token;
use super::removal::Removal;
use crate::address::{ConnectionAddress, TargetId, TaskAddress};
use crate::config::TransmitConfig;
use crate::observe::sessions::{SessionId, SessionPart};
use crate::observe::shard_report::Question;
use crate::platform::Link;

/// Mail for a shard.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection was accepted and is yours.
    Accepted { link: Box<dyn Link>, portal: usize },
    /// The connection of that peer is to go to that shard.
    Relocate { peer: SocketAddr, to: usize },
    /// Close the oldest connection that has not finished its login, if there are still too many.
    MakeRoom,
    /// Try again: the write gate of that unit may be open now.
    Retry { task: TaskAddress, unit: usize },
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
    /// A sanitize operation of the unit in that place has begun: carry it out.
    Sanitize {
        place: usize,
        /// Memory for its writes, if it needs any.
        memory: Option<Buffer>,
        /// Keeps the unit there until then.
        hold: Box<dyn Debug + Send>,
    },
    /// One listener more, or less (without a socket), by its place. The answer says whether it is so.
    Listen {
        place: usize,
        socket: Option<TcpListener>,
        answer: Sender<io::Result<()>>,
    },
    /// Somebody wants to know whose connections these are.
    Sessions(Sender<Vec<SessionPart>>),
    /// That session or controller is to end.
    CloseSession {
        id: SessionId,
        found: Arc<AtomicBool>,
        token: Arc<Token>,
    },
    /// Some shard finds no memory: those whose peers do not move make room.
    MemoryShort,
    /// From now on, responses leave like this.
    Transmit(TransmitConfig),
    /// A volume has other limits.
    Limits,
    /// All shards know what is exported now: connections take it over.
    Renew(Arc<Token>),
    /// No connection begins a command for that unit any more. The token goes when nothing of the shard needs it.
    Remove {
        removal: Arc<Removal>,
        token: Arc<Token>,
    },
    /// No shard needs that unit any more: flush it.
    FlushRemoved {
        removal: Arc<Removal>,
        token: Arc<Token>,
    },
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
    /// What a task wanted stored was, or not: the reservations of its unit, or that it is being sanitized.
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
    TargetReset(TargetId),
    /// The NVMe host of this admin queue must not use the subsystem any more.
    Dismissed,
    /// The NVMe controller of this admin queue has something to report.
    ControllerEvents,
    /// Abort a command of this NVMe queue.
    AbortCommand {
        command: CommandId,
        reply: Arc<AbortReply>,
    },
    /// What the Authentication Send that this task is has waited for.
    Computed { task: TaskAddress, value: Computed },
    /// What came of the Abort that this task is.
    CommandAborted { task: TaskAddress, aborted: bool },
}

/// Gets messages to a shard.
pub(crate) trait Deliver: Debug + Send + Sync {
    /// Delivers a message, unless the shard has ended: then nobody waits for it any more.
    fn deliver(&self, message: Message);
}

/// Sends to one shard. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Post(Arc<dyn Deliver>);

impl Post {
    pub(crate) fn new(mailer: impl Deliver + 'static) -> Self {
        Self(Arc::new(mailer))
    }

    pub(crate) fn send(&self, message: Message) {
        self.0.deliver(message);
    }
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

/// Has a connection noted when the tasks of an order are gone.
#[derive(Debug)]
pub(crate) struct AbortNotice {
    pub waiter: AbortedFor,
    /// Of the connection's shard.
    pub post: Post,
}

impl AbortWaiter for AbortNotice {
    fn tasks_aborted(&self, aborted: Vec<Arc<dyn Participant>>) {
        let (connection, note) = match self.waiter {
            AbortedFor::TaskManagement {
                connection,
                request,
            } => (connection, Note::ManagementDone { request, aborted }),
            AbortedFor::Task(task) => (
                task.connection,
                Note::PreemptedTasksAborted { task, aborted },
            ),
        };
        self.post.send(Message::Note(connection, note));
    }
}

/// The answer to an NVMe Abort, wherever the command is. It is given in any case: if the queue is gone, by
/// dropping this.
#[derive(Debug)]
pub(crate) struct AbortReply {
    task: TaskAddress,
    post: Post,
    aborted: AtomicBool,
}

impl AbortReply {
    /// The answer to the Abort that `task` is, given on that post.
    pub(crate) fn new(task: TaskAddress, post: Post) -> Arc<Self> {
        Arc::new(Self {
            task,
            post,
            aborted: AtomicBool::new(false),
        })
    }

    /// Whether the command was aborted.
    pub(crate) fn answer(&self, aborted: bool) {
        self.aborted.store(aborted, Ordering::Relaxed);
    }
}

impl Drop for AbortReply {
    fn drop(&mut self) {
        let note = Note::CommandAborted {
            task: self.task,
            aborted: *self.aborted.get_mut(),
        };
        self.post.send(Message::Note(self.task.connection, note));
    }
}
