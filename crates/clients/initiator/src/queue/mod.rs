//! One TCP connection that carries operations, over either protocol.
//!
//! A [`Queue`] belongs to one thread at a time. It never blocks, has no clock and no threads: its owner waits for the
//! [socket](Queue::socket), and calls
//!
//! ```text
//!   submit()    an operation becomes a command in the transmit queue
//!   send()      what is queued goes to the socket, with one call where that takes all
//!   receive()   mostly one receive call; what has ended is appended to a list
//! ```
//!
//! so that many operations share a call in either direction.
//!
//! # The life of an operation
//!
//! ```text
//!            submit              receive: the answer            the kernel lets go of its memory
//!   (caller) ───────► under way ───────────────────► answered ─────────────────────────► (caller)
//!                        │  ▲                           └─── at once, unless pages are pinned ──┘
//!             DataWanted │  │ by reference or copied
//!                        └──┘
//! ```
//!
//! **Its memory belongs to the queue** from [`submit`](Queue::submit) until it comes back with the completion. So data
//! cannot change between its digest and its sending. What is sent by reference is read by the kernel within the send
//! call, or, by zero copy, until TCP has seen it acknowledged: an operation ends only when the peer has answered
//! *and* the kernel has released every page ([`SendPath::ZeroCopy`]). A command that fails early, while data that was
//! asked for is still queued, ends at once: what is queued is sent from a copy, because the stream has to go on where
//! it is.
//!
//! **Nothing here is hashed or searched for**: an operation has a place in a table, its number is the
//! [`PayloadId`] of what is sent by reference, and the protocol's slots are another table of such numbers. Once warm,
//! nothing is allocated.
//!
//! **The end of a connection** is [`Lost`], after which only [`abandon`](Queue::abandon) does anything. It resets the
//! connection, so that nothing of what the kernel still had to send arrives behind the caller's back, and gives
//! back what had no answer, with a note of whether the peer can have seen it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use longshore_reactor::socket;
use longshore_wire::transmit::{PayloadId, Transmit, WriteData};

use crate::channel::Channel;
use crate::error::{Failure, Lost};
use crate::info::Notice;
use crate::operation::{Data, Operation, OperationKind};
use crate::options::{ReceivePath, SendPath, TransferPaths};

mod any;
mod counters;
mod machine;
mod receiving;
mod sending;
mod table;
#[cfg(test)]
mod tests;
mod zero_copy;

pub use any::AnyQueue;
pub use counters::QueueCounters;
pub use machine::{Machine, MachineEvent, PayloadWanted, Refusal};
pub use receiving::Received;
pub use sending::Sent;
pub use table::Unfinished;

use table::Table;
use zero_copy::ZeroCopy;

/// Shorter data is copied between the headers: one run of memory costs less than a list.
const COPIED_BELOW: u64 = 1024;

/// Memory for data that is copied, kept when there is none.
const COPIED_KEPT: usize = 32 << 20;

/// An operation that the queue did not take, with its memory.
#[derive(Debug)]
pub struct Rejected {
    /// The memory that was given along, unchanged.
    pub data: Data,
    /// Whether another try can help.
    pub refusal: Refusal,
}

/// One connection. See the module documentation.
pub struct Queue<M> {
    channel: Channel,
    machine: M,
    transmit: Transmit,
    table: Table,
    /// Bytes that have gone to the socket.
    sent: u64,
    /// Bytes of answers to the peer's questions since the transmit queue was empty last.
    answers_queued: usize,
    /// Scratch list for [`Transmit::advance`], kept for its memory.
    released: Vec<PayloadId>,
    by_reference: bool,
    zero_copy: ZeroCopy,
    receive_buffer: Vec<u8>,
    receive_bytes: usize,
    direct: bool,
    /// What was received before the queue was made.
    early: Vec<u8>,
    notices: Vec<Notice>,
    pongs: u64,
    lost: Option<Lost>,
    counters: QueueCounters,
    block_size: u32,
}

impl<M: Machine> Queue<M> {
    /// A queue over a connection that is logged in. `transmit` is what is still to be sent, `received` what came after
    /// the login and was not looked at.
    ///
    /// # Errors
    /// The socket does not take an option that was asked for.
    pub fn start(
        channel: impl Into<Channel>,
        machine: M,
        mut transmit: Transmit,
        received: &[u8],
        paths: &TransferPaths,
    ) -> std::io::Result<Self> {
        if paths.send == SendPath::Copy {
            transmit.keep(COPIED_KEPT);
        }
        let channel = channel.into();
        let socket = channel.as_fd();
        rustix::io::ioctl_fionbio(socket, true)?;
        socket::set_nodelay(socket, true)?;
        socket::set_buffer_sizes(socket, paths.socket_send_bytes, paths.socket_receive_bytes)?;
        if let Some(microseconds) = paths.busy_poll_us {
            let result = socket::set_busy_poll(socket, microseconds, paths.prefer_busy_poll);
            unless_forbidden("busy polling by the kernel (SO_BUSY_POLL)", result)?;
        }
        if let Some(priority) = paths.socket_priority {
            let result = socket::set_priority(socket, priority);
            unless_forbidden("this priority of a socket (SO_PRIORITY)", result)?;
        }
        let block_size = machine.block_size();
        Ok(Self {
            zero_copy: ZeroCopy::start(&channel, paths)?,
            table: Table::new(machine.slots()),
            channel,
            machine,
            transmit,
            sent: 0,
            answers_queued: 0,
            released: Vec::new(),
            by_reference: paths.send != SendPath::Copy,
            receive_buffer: Vec::new(),
            receive_bytes: paths.receive_buffer.max(RECEIVE_BYTES_MIN),
            direct: paths.receive == ReceivePath::Direct,
            early: received.to_vec(),
            notices: Vec::new(),
            pongs: 0,
            lost: None,
            counters: QueueCounters::default(),
            block_size,
        })
    }

    /// How many operations can be submitted now.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.machine.room().min(self.table.room())
    }

    /// Turns an operation into a command, which [`send`](Self::send) sends. `tag` comes back with its completion.
    ///
    /// # Errors
    /// With its memory: there is no room, or the operation cannot be done.
    #[inline]
    pub fn submit(&mut self, operation: Operation, data: Data, tag: u64) -> Result<(), Rejected> {
        let length = match self.admit(&operation, &data) {
            Ok(length) => length,
            Err(refusal) => return Err(Rejected { data, refusal }),
        };
        let Some(number) = self.table.next() else {
            let refusal = Refusal::Busy;
            return Err(Rejected { data, refusal });
        };
        let bytes = match OperationKind::of(&operation) {
            OperationKind::Write => &data.bytes()[..length],
            OperationKind::Read | OperationKind::Other => &[],
        };
        let by_reference = self.by_reference && bytes.len() as u64 >= COPIED_BELOW;
        let position = self.sent + self.transmit.pending_bytes() as u64;
        let releases = self.transmit.releases_due();
        let bytes = write_data(by_reference, number, 0, bytes);
        match self.machine.submit(&operation, bytes, &mut self.transmit) {
            Ok(slot) => {
                let entry = self.table.occupy(number, slot, operation, data, length);
                entry.tag = tag;
                entry.by_reference = by_reference;
                entry.position = position;
                entry.queued = self.transmit.releases_due() - releases;
                self.counters.operations += 1;
                Ok(())
            }
            Err(refusal) => Err(Rejected { data, refusal }),
        }
    }

    /// How many bytes the operation moves, if it has the memory for them.
    #[inline]
    fn admit(&self, operation: &Operation, data: &Data) -> Result<usize, Refusal> {
        if let Some(lost) = &self.lost {
            return Err(Refusal::Failed(Failure::ConnectionLost(lost.clone())));
        }
        let needed = operation.data_length(self.block_size);
        let given = match (OperationKind::of(operation), data) {
            (OperationKind::Read, Data::Discard) => u64::from(u32::MAX),
            (OperationKind::Read, Data::Shared { .. }) => 0,
            _ => data.bytes().len() as u64,
        };
        match usize::try_from(needed) {
            Ok(length) if needed <= given => Ok(length),
            _ => {
                let failure = Failure::WrongDataLength { needed, given };
                Err(Refusal::Failed(failure))
            }
        }
    }

    /// Whether there is something to send.
    #[inline]
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.transmit.is_empty()
    }

    /// How many operations have not ended.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.table.in_flight()
    }

    /// Its socket: wait for this to become readable, and writable while something is [unsent](Self::has_unsent). An
    /// error condition (POLLERR) counts as readable: the kernel tells of zero-copy sends that way.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Asks the peer whether it is there; [`pongs`](Self::pongs) counts the answers. Returns whether the protocol can do
    /// that here.
    pub fn ping(&mut self) -> bool {
        self.ping_with(&[])
    }

    /// The same with data, which a peer gives back, as far as it does. More than the peer takes in one segment is not
    /// sent.
    pub fn ping_with(&mut self, data: &[u8]) -> bool {
        self.lost.is_none() && self.machine.ping(data, &mut self.transmit)
    }

    /// How many pings were answered.
    #[must_use]
    pub const fn pongs(&self) -> u64 {
        self.pongs
    }

    /// Appends the news of the peer since the last call.
    pub fn take_notices(&mut self, notices: &mut Vec<Notice>) {
        notices.append(&mut self.notices);
    }

    /// Whether there are news.
    #[must_use]
    pub const fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Ends the connection in the protocol's own way. What that queues is still to be sent; then the
    /// peer closes.
    pub fn close(&mut self) {
        if self.lost.is_none() {
            self.machine.close(&mut self.transmit);
        }
    }

    /// Gives back memory that is kept for speed. It comes back with use.
    pub fn release_memory(&mut self) {
        self.receive_buffer = Vec::new();
        self.transmit.release_memory();
        self.channel.release_memory();
    }

    /// What it has done.
    #[must_use]
    pub const fn counters(&self) -> &QueueCounters {
        &self.counters
    }

    /// The protocol machine, for reading its state.
    #[must_use]
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The protocol's side, to change how it goes on.
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    fn lose(&mut self, lost: Lost) -> Lost {
        self.lost.get_or_insert(lost).clone()
    }
}

impl<M> Queue<M> {
    /// Gives the connection up, resets it, and gives back what had no answer.
    #[must_use]
    pub fn abandon(mut self) -> Vec<Unfinished> {
        self.reset(true);
        self.table.take_unfinished(self.sent)
    }

    /// Makes the kernel forget what it was to send, and let go of memory. `goes_on`: the operations are
    /// wanted, with their data.
    fn reset(&mut self, goes_on: bool) {
        let is_quiet = self.table.in_flight() == 0 && self.transmit.is_empty();
        self.transmit.release_all(&mut self.released);
        self.released.clear();
        if !is_quiet || self.table.pinned() > 0 {
            // An error means that the connection is reset already.
            let _ = socket::reset_on_close(&self.channel);
        }
        if self.table.pinned() > 0 {
            self.zero_copy
                .disconnect(self.channel.as_fd(), &mut self.table, goes_on);
        }
    }
}

impl<M> Drop for Queue<M> {
    /// With operations under way the connection is reset: data that nobody keeps any more must not be sent
    /// from memory that is used for something else.
    fn drop(&mut self) {
        self.reset(false);
    }
}

impl<M> fmt::Debug for Queue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("channel", &self.channel)
            .field("in_flight", &self.table.in_flight())
            .field("unsent", &self.transmit.pending_bytes())
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

/// What only makes things faster, and not everybody is allowed to, is gone without.
fn unless_forbidden(what: &str, result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            tracing::warn!("{what} needs CAP_NET_ADMIN; continuing without it");
            Ok(())
        }
        other => other,
    }
}

/// A receive buffer holds at least this.
const RECEIVE_BYTES_MIN: usize = 4096;

/// Bytes at `start` of the data of an operation.
#[inline]
fn write_data(by_reference: bool, number: u32, start: usize, bytes: &[u8]) -> WriteData<'_> {
    if by_reference {
        let id = PayloadId(u64::from(number));
        WriteData::Buffer { id, start, bytes }
    } else {
        WriteData::Bytes(bytes)
    }
}
