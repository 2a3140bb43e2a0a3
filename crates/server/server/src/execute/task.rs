//! A task: one command of one connection, from its arrival to its end.
//!
//! ```text
//!  Command ──┬── write data wanted ──► Receiving ──┐ DataOutComplete
//!            │                                     ▼
//!            └───────────────────────────────────► step ──┬─► Complete
//!                 ▲               ▲     ▲     ▲           │
//!       Deferred ─┤               │     │     └───────────┼─► Storage    (a request is in flight)
//!       Ordering ─┘               │     └─────────────────┼─► Medium     (gate closed, no memory)
//!                                 └───────────────────────┴─► Elsewhere  (storing, aborting)
//! ```
//!
//! While it runs, a task is on the stack; while it waits, it is parked in its connection's [`Tasks`](super::tasks::Tasks).
//! A parked task that is aborted ends at once, except that a request in `Storage` lives on by itself
//! until the medium has answered (see [`crate::core::request`]).

use longshore_block::command::DataLocation;
use longshore_block::operation::{MediaError, Operation, Reply};
use longshore_reactor::{Buffer, PagePipe, Reservation};
use longshore_volume::RequestId;

use crate::address::TaskAddress;
use crate::core::Core;
use crate::counters::stages::Followed;
use crate::transport::channel::Channel;
use crate::transport::payload::Held;

/// What a parked task waits for.
#[derive(Debug)]
pub(crate) enum TaskState {
    /// Write data; its arrival is told by the connection machine.
    Receiving,
    /// Memory for so many bytes of write data, which the peer keeps until then; ended by a retry.
    Memory { wanted: u32 },
    /// The other half of a fused command.
    Half,
    /// Room to answer; ended by the connection when it has sent enough.
    Deferred,
    /// Its turn among ordered tasks; ended when an older task ends.
    Ordering,
    /// A request to a volume, which has borrowed the memory where `payload` lies; ended with it.
    Storage {
        request: RequestId,
        payload: DataLocation,
    },
    /// Another try at the medium; ended by [`crate::mail::message::Message::Retry`].
    Medium(MediaRequest),
    /// The medium of a unit to itself; ended by the same.
    Lock { unit: usize },
    /// Its time by the limits of its volume; ended by the shard when that has come.
    Delayed(MediaRequest),
    /// Stored reservations or aborts on other shards; ended by a message.
    Elsewhere,
}

impl TaskState {
    /// Whether the connection may go to another shard meanwhile: nobody else works for the task, or knows
    /// its address but to let it try again, which the new shard does as well.
    pub(crate) const fn moves(&self) -> bool {
        match self {
            Self::Receiving
            | Self::Memory { .. }
            | Self::Half
            | Self::Deferred
            | Self::Ordering => true,
            Self::Storage { .. }
            | Self::Medium(_)
            | Self::Lock { .. }
            | Self::Delayed(_)
            | Self::Elsewhere => false,
        }
    }
}

/// An operation that a command wants done on a medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MediaRequest {
    /// Index of the unit whose medium it is.
    pub unit: usize,
    pub operation: Operation,
    pub payload: DataLocation,
}

/// What became of an operation on the medium.
pub(crate) enum Executed {
    Now(Result<Reply, MediaError>),
    /// A task waits in the state it was given. A plain command has to become a task.
    Waits,
}

/// Where data for the peer is.
#[derive(Debug)]
pub(crate) enum DataIn {
    /// There is none yet.
    None,
    /// In the transmit queue already, behind its header.
    Inline,
    /// So many zero bytes.
    Zeros(u32),
    /// In a buffer, its whole length.
    Buffer(Buffer),
    /// In pages of the page cache, all that the pipe holds.
    Pages(PagePipe),
}

impl DataIn {
    /// Has the connection keep what its transmit queue refers to by the number `sent`, or gives back what it does not
    /// refer to.
    #[inline]
    pub(crate) fn send(self, core: &mut Core, channel: &mut Channel, sent: Option<usize>) {
        match (self, sent) {
            (Self::Buffer(buffer), Some(number)) => {
                channel.payloads.keep(Held::Buffer(buffer), number)
            }
            (Self::Pages(pages), Some(number)) => channel.payloads.keep(Held::Pages(pages), number),
            (Self::Buffer(buffer), None) => core.memory.pool.put(buffer),
            (Self::Pages(pages), None) => core.pipes.put(pages),
            (Self::None | Self::Inline | Self::Zeros(_), _) => {}
        }
    }
}

/// Memory that a task takes when its write data come.
#[derive(Debug)]
pub(crate) struct Promised {
    pub whole: Reservation,
    /// For what comes unasked, while it lies apart.
    pub early: Option<Reservation>,
}

/// See the module documentation. `W` is what the task is to its protocol.
#[derive(Debug)]
pub(crate) struct Task<W> {
    pub address: TaskAddress,
    pub work: W,
    /// Index of the unit it was sent to; `None` when there is none.
    pub unit: Option<usize>,
    pub state: TaskState,
    /// Holds, or waits for, the write gate of its own unit.
    pub exclusive: bool,
    /// Its medium was tried already, and would have to sleep.
    pub sleeps: bool,
    /// Memory for the write data; its length is what is wanted.
    pub data_out: Option<Buffer>,
    /// Memory for the write data that is taken when they come.
    pub promised: Option<Promised>,
    pub scratch: Option<Buffer>,
    /// Parameter data of commands other than reads.
    pub parameter_data: Vec<u8>,
    pub data_in: DataIn,
    /// Its part of what its connection reads at this time.
    pub reading: usize,
    /// Its part of the memory that its connection reads into.
    pub filling: usize,
    /// There was no memory after all for its write data, which come: it fails when they have come.
    pub lacks_memory: bool,
    /// Its part of what its connection holds for write data, or has been promised.
    pub writing: usize,
    /// Whether it is noted when it gets how far.
    pub followed: Followed,
}

impl<W> Task<W> {
    /// A task without memory.
    #[inline(always)]
    pub(crate) fn new(address: TaskAddress, work: W, unit: Option<usize>) -> Self {
        Self {
            address,
            work,
            unit,
            state: TaskState::Receiving,
            exclusive: false,
            sleeps: false,
            data_out: None,
            promised: None,
            scratch: None,
            parameter_data: Vec::new(),
            data_in: DataIn::None,
            reading: 0,
            filling: 0,
            lacks_memory: false,
            writing: 0,
            followed: Followed::NOT,
        }
    }

    /// Gives back all its memory.
    #[inline]
    pub(crate) fn give_back_memory(&mut self, core: &mut Core) {
        self.promised = None;
        core.memory.recycle(self.data_out.take());
        core.memory.recycle(self.scratch.take());
        match std::mem::replace(&mut self.data_in, DataIn::None) {
            DataIn::Buffer(buffer) => core.memory.pool.put(buffer),
            DataIn::Pages(pipe) => core.pipes.put(pipe),
            DataIn::None | DataIn::Inline | DataIn::Zeros(_) => {}
        }
    }

    /// The memory where a payload lies.
    pub(crate) fn buffer(&mut self, payload: DataLocation) -> Option<&mut Buffer> {
        match payload {
            DataLocation::None => None,
            DataLocation::DataOut { .. } => self.data_out.as_mut(),
            DataLocation::Scratch { .. } => self.scratch.as_mut(),
            DataLocation::DataIn { .. } => match &mut self.data_in {
                DataIn::Buffer(buffer) => Some(buffer),
                DataIn::None | DataIn::Inline | DataIn::Zeros(_) | DataIn::Pages(_) => None,
            },
        }
    }

    /// Lends that memory to a storage request.
    pub(crate) fn lend(&mut self, payload: DataLocation) -> Option<Buffer> {
        match payload {
            DataLocation::None => None,
            DataLocation::DataOut { .. } => self.data_out.take(),
            DataLocation::Scratch { .. } => self.scratch.take(),
            DataLocation::DataIn { .. } => match std::mem::replace(&mut self.data_in, DataIn::None)
            {
                DataIn::Buffer(buffer) => Some(buffer),
                DataIn::None | DataIn::Inline | DataIn::Zeros(_) | DataIn::Pages(_) => None,
            },
        }
    }

    /// Takes memory back that was lent.
    pub(crate) fn take_back(&mut self, payload: DataLocation, buffer: Option<Buffer>) {
        match (payload, buffer) {
            (DataLocation::DataOut { .. }, buffer) => {
                assert!(self.data_out.is_none(), "the task has lent its write data");
                self.data_out = buffer;
            }
            (DataLocation::Scratch { .. }, buffer) => {
                assert!(
                    self.scratch.is_none(),
                    "the task has lent its scratch memory"
                );
                self.scratch = buffer;
            }
            (DataLocation::DataIn { .. }, Some(buffer)) => {
                assert!(
                    matches!(self.data_in, DataIn::None),
                    "the task has lent the memory it reads into"
                );
                self.data_in = DataIn::Buffer(buffer);
            }
            (DataLocation::None, _) | (DataLocation::DataIn { .. }, None) => {}
        }
    }
}
