//! The connections of a path, as traits, so that tests can stand in for servers.
//!
//! [`Dialer`] makes a [`Link`] in a connector thread; its queues go into the shared queues of the path, its control
//! to the driver.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::error::{Error, Failure, Lost};
use crate::info::{Notice, VolumeInfo};
use crate::operation::{Completion, Data, Operation, Reply};
use crate::options::QueueMaps;

mod dial;

pub(super) use dial::UrlDialer;

/// Connects to the portals of one volume.
pub(super) trait Dialer: Send + Sync {
    /// The portals, as people write them.
    fn portals(&self) -> Vec<String>;

    /// Connects, logs in and identifies, which may take long.
    fn dial(&self, portal: usize) -> Result<Link, Error>;

    /// Whether a link to the same address, with at least as many queues, proves that operations of the former link
    /// of the same portal are over.
    fn redial_ends_former(&self) -> bool;
}

/// A path's connections, just set up.
pub(super) struct Link {
    pub(super) info: VolumeInfo,
    /// Where it leads. A portal may send us elsewhere.
    pub(super) address: SocketAddr,
    /// In the order of `maps`.
    pub(super) queues: Vec<Box<dyn LinkQueue>>,
    pub(super) maps: QueueMaps,
    pub(super) control: Box<dyn LinkControl>,
    /// What the path was like when it was set up.
    pub(super) access: crate::info::AccessState,
}

/// One queue of a link: [`AnyQueue`](crate::queue::AnyQueue), or a fake.
pub(super) trait LinkQueue: Send {
    fn room(&self) -> usize;
    fn in_flight(&self) -> usize;
    /// Encodes the command; [`Self::send`] sends it.
    fn submit(&mut self, operation: &Operation, data: Data, tag: u64) -> Result<(), Rejected>;
    /// Sends as much as the socket takes; the rest when it becomes writable.
    fn send(&mut self) -> Result<(), Lost>;
    fn has_unsent(&self) -> bool;
    /// Takes in what has arrived, in a bounded portion.
    fn receive(
        &mut self,
        completions: &mut Vec<Completion>,
        notices: &mut Vec<Notice>,
    ) -> Result<Received, Lost>;
    /// Asks the peer for a sign of life. False: the protocol has no such question on this connection.
    fn ping(&mut self) -> bool;
    /// Says goodbye. True: the peer will close the connection.
    fn close(&mut self) -> bool;
    /// Closes the connection with a reset. What was not answered is given back.
    fn abandon(self: Box<Self>) -> Vec<Unfinished>;
    fn socket(&self) -> BorrowedFd<'_>;
}

/// Why a queue did not take an operation, with its memory.
pub(super) struct Rejected {
    pub(super) data: Data,
    /// Why the operation was not taken; `None`: there was no room.
    pub(super) failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The peer has said something.
    pub(super) heard: bool,
    /// There may be more.
    pub(super) more: bool,
}

/// An operation whose connection ended first.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) tag: u64,
    pub(super) data: Data,
    /// The peer may have received it.
    pub(super) was_sent: bool,
    /// The peer's answer, if it had come and only the kernel had not let go of the memory.
    pub(super) answer: Option<Result<Reply, Failure>>,
}

/// What a path has beside its queues: [`Control`](crate::attach::Control), or a fake.
pub(super) trait LinkControl: Send {
    fn socket(&self) -> Option<BorrowedFd<'_>>;
    fn deadline(&self) -> Option<Instant>;
    /// Does what is due and takes in what has arrived, without waiting.
    fn drive(&mut self, now: Instant) -> Result<Vec<Notice>, Lost>;
    /// Identifies the volume again. Waits for the answer.
    fn identify(&mut self) -> Result<VolumeInfo, Error>;
    /// Ends it. Waits for that, within bounds. True: the peer has confirmed that nothing submitted
    /// on this link is executed any more.
    fn end(self: Box<Self>) -> bool;
}
