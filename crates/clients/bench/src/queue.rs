//! What the engine asks of a queue: a connection that takes operations and brings completions,
//! without ever blocking.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use longshore_initiator::error::{Failure, Lost};
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_initiator::queue::{AnyQueue, QueueCounters, Refusal};

/// A connection that one thread owns.
pub trait LoadQueue: Send {
    /// How many operations it takes now.
    fn room(&self) -> usize;

    /// Takes an operation; nothing is sent yet. What it has no room for comes back.
    fn submit(&mut self, operation: Operation, data: Data, tag: u64) -> Result<(), Refused>;

    /// Sends what can be sent now, at most so many bytes.
    fn send(&mut self, most: usize) -> Result<(), Lost>;

    /// Whether something waits for the socket to take more.
    fn has_unsent(&self) -> bool;

    /// Takes in what has come; whether there was anything. Appends what has ended also when it fails.
    fn receive(&mut self, completions: &mut Vec<Completion>) -> Result<bool, Lost>;

    /// What to wait for; nothing for one that is always ready.
    fn socket(&self) -> Option<BorrowedFd<'_>>;

    /// Waits until there is something to receive, where there is no socket to wait for. May return early.
    fn sleep(&mut self, _most: Duration) -> Result<(), Lost> {
        Ok(())
    }

    /// The thread that has used it uses it no more.
    fn leave_thread(&mut self) {}

    /// How bytes have moved so far.
    fn counters(&self) -> QueueCounters {
        QueueCounters::default()
    }
}

/// An operation that was not taken.
#[derive(Debug)]
pub enum Refused {
    /// No slot is free; the memory comes back.
    Busy(Data),
    /// It can never be done.
    Failed(Data, Failure),
}

impl LoadQueue for AnyQueue {
    #[inline]
    fn room(&self) -> usize {
        Self::room(self)
    }

    #[inline]
    fn submit(&mut self, operation: Operation, data: Data, tag: u64) -> Result<(), Refused> {
        Self::submit(self, operation, data, tag).map_err(|rejected| match rejected.refusal {
            Refusal::Busy => Refused::Busy(rejected.data),
            Refusal::Failed(failure) => Refused::Failed(rejected.data, failure),
        })
    }

    #[inline]
    fn send(&mut self, most: usize) -> Result<(), Lost> {
        self.send_at_most(most).map(drop)
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        Self::has_unsent(self)
    }

    #[inline]
    fn receive(&mut self, completions: &mut Vec<Completion>) -> Result<bool, Lost> {
        let received = Self::receive(self, completions)?;
        if self.has_notices() {
            forget_notices(self);
        }
        Ok(received.bytes > 0)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(Self::socket(self))
    }

    fn counters(&self) -> QueueCounters {
        *Self::counters(self)
    }
}

/// What a server tells on its own does not change the load; if it ends the connection, that shows.
#[cold]
fn forget_notices(queue: &mut AnyQueue) {
    queue.take_notices(&mut Vec::new());
}
