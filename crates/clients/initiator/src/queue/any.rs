//! A queue of either protocol.

use std::os::fd::BorrowedFd;

use super::{Queue, QueueCounters, Received, Rejected, Sent, Unfinished};
use crate::error::Lost;
use crate::info::{Notice, Protocol};
use crate::operation::{Completion, Data, Operation};
use crate::{iscsi, nvme};

/// A queue of either protocol, for those who do not care which. Every call is one branch more.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there are few of them, and a box would be a step more on every call"
)]
pub enum AnyQueue {
    /// A connection that is a whole iSCSI session.
    Iscsi(Queue<iscsi::Machine>),
    /// An NVMe I/O queue.
    NvmeTcp(Queue<nvme::Machine>),
}

macro_rules! either {
    ($self:ident, $queue:ident => $call:expr) => {
        match $self {
            Self::Iscsi($queue) => $call,
            Self::NvmeTcp($queue) => $call,
        }
    };
}

impl AnyQueue {
    /// Which protocol it is.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        match self {
            Self::Iscsi(_) => Protocol::Iscsi,
            Self::NvmeTcp(_) => Protocol::NvmeTcp,
        }
    }

    /// Operations that [`Self::submit`] takes now; see [`Queue::room`].
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        either!(self, queue => queue.room())
    }

    /// See [`Queue::submit`].
    ///
    /// # Errors
    /// With its memory: there is no room, or the operation cannot be done.
    #[inline]
    pub fn submit(&mut self, operation: Operation, data: Data, tag: u64) -> Result<(), Rejected> {
        either!(self, queue => queue.submit(operation, data, tag))
    }

    /// See [`Queue::send`].
    ///
    /// # Errors
    /// The connection is broken.
    #[inline]
    pub fn send(&mut self) -> Result<Sent, Lost> {
        either!(self, queue => queue.send())
    }

    /// See [`Queue::send_at_most`].
    ///
    /// # Errors
    /// The connection is broken.
    #[inline]
    pub fn send_at_most(&mut self, most: usize) -> Result<Sent, Lost> {
        either!(self, queue => queue.send_at_most(most))
    }

    /// See [`Queue::receive`].
    ///
    /// # Errors
    /// The connection is over.
    #[inline]
    pub fn receive(&mut self, completions: &mut Vec<Completion>) -> Result<Received, Lost> {
        either!(self, queue => queue.receive(completions))
    }

    /// Whether the socket left something behind; see [`Queue::has_unsent`].
    #[inline]
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        either!(self, queue => queue.has_unsent())
    }

    /// Operations without a completion; see [`Queue::in_flight`].
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> usize {
        either!(self, queue => queue.in_flight())
    }

    /// The socket, to wait on; see [`Queue::socket`].
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        either!(self, queue => queue.socket())
    }

    /// Queues a ping without data; see [`Queue::ping`].
    pub fn ping(&mut self) -> bool {
        either!(self, queue => queue.ping())
    }

    /// Queues a ping that echoes `data`; see [`Queue::ping_with`].
    pub fn ping_with(&mut self, data: &[u8]) -> bool {
        either!(self, queue => queue.ping_with(data))
    }

    /// Answers to pings so far; see [`Queue::pongs`].
    #[must_use]
    pub const fn pongs(&self) -> u64 {
        either!(self, queue => queue.pongs())
    }

    /// Moves news of the peer into `notices`; see [`Queue::take_notices`].
    pub fn take_notices(&mut self, notices: &mut Vec<Notice>) {
        either!(self, queue => queue.take_notices(notices));
    }

    /// Whether there is news to take; see [`Queue::has_notices`].
    #[must_use]
    pub const fn has_notices(&self) -> bool {
        either!(self, queue => queue.has_notices())
    }

    /// Queues the logout, where the protocol has one; see [`Queue::close`].
    pub fn close(&mut self) {
        either!(self, queue => queue.close());
    }

    /// Frees buffers of an idle queue; see [`Queue::release_memory`].
    pub fn release_memory(&mut self) {
        either!(self, queue => queue.release_memory());
    }

    /// Counts since the queue's beginning; see [`Queue::counters`].
    #[must_use]
    pub const fn counters(&self) -> &QueueCounters {
        either!(self, queue => queue.counters())
    }

    /// Ends the queue with what is under way; see [`Queue::abandon`].
    #[must_use]
    pub fn abandon(self) -> Vec<Unfinished> {
        either!(self, queue => queue.abandon())
    }
}
