//! A protocol's side of a queue.

use longshore_wire::transmit::{Transmit, WriteData};

use crate::error::{CloseCause, Failure};
use crate::info::Notice;
use crate::operation::{Operation, Reply};

/// A protocol's side of a queue: it turns operations into commands, and what comes into events. It does no
/// I/O, never blocks and allocates nothing once warm. The two protocols implement it over their machines;
/// [`Queue`](super::Queue) is written once for both.
///
/// A *slot* names a command under way: below [`slots`](Self::slots), and free again once its end was reported.
/// Offsets and lengths are bytes of the operation's data.
pub trait Machine {
    /// Names a request for data (R2T).
    type Token: Copy;

    /// How many slots there are: the most commands that are ever under way.
    fn slots(&self) -> usize;

    /// How many commands can be submitted now.
    fn room(&self) -> usize;

    /// Bytes of a logical block.
    fn block_size(&self) -> u32;

    /// Sends the command of an operation. `data` are all bytes of a write; what does not go along with the command
    /// is asked for later, by [`MachineEvent::DataWanted`]. Returns the command's slot.
    ///
    /// # Errors
    /// Nothing was sent.
    fn submit(
        &mut self,
        operation: &Operation,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal>;

    /// Takes bytes off the front of `input` until something happens or the input is used up. After
    /// [`MachineEvent::Closed`] nothing else happens.
    fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> MachineEvent<'a, Self::Token>;

    /// Where the next bytes of the stream belong, if they are data of a read. Never beyond the data that the
    /// operation asks for.
    fn payload_wanted(&self) -> Option<PayloadWanted>;

    /// Tells that the next bytes of the stream were received straight to where
    /// [`payload_wanted`](Self::payload_wanted) says. At most as many as are wanted there.
    fn payload_received(&mut self, bytes: &[u8]);

    /// Answers a [`MachineEvent::DataWanted`]; `data` are the bytes it asks for. Nothing is sent for a command that
    /// has ended meanwhile.
    fn send_data(&mut self, token: Self::Token, data: WriteData<'_>, transmit: &mut Transmit);

    /// Asks the peer whether it is there, where the protocol can on this connection; `data` is to come back with the
    /// answer. Answered by [`MachineEvent::Pong`]. Returns whether something was queued.
    fn ping(&mut self, data: &[u8], transmit: &mut Transmit) -> bool;

    /// PDUs with read data that have come.
    fn data_pdus(&self) -> u64;

    /// Ends the connection in the protocol's own way: logout, or nothing where there is no such thing.
    fn close(&mut self, transmit: &mut Transmit);
}

/// Why a machine does not take an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not now: the command window is closed, or all slots are in use.
    Busy,
    /// Never: the peer cannot execute it.
    Failed(Failure),
}

/// Where the next bytes of the stream belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadWanted {
    /// Slot of the operation that the data belongs to.
    pub slot: u16,
    /// Bytes from the start of the operation's data.
    pub offset: u32,
    /// At most so many bytes.
    pub length: u32,
}

/// What [`Machine::next`] found in the received bytes.
#[derive(Debug)]
pub enum MachineEvent<'a, T> {
    /// The input is used up.
    NeedMore,
    /// Part of the data of a read has come.
    DataIn {
        /// Slot of the read that it belongs to.
        slot: u16,
        /// Where it belongs. Together with its length never beyond what the operation asks for.
        offset: u32,
        /// The data itself, within the received bytes.
        bytes: &'a [u8],
    },
    /// The peer wants data of a write.
    DataWanted {
        /// Slot of the write whose data is asked for.
        slot: u16,
        /// The first byte. Together with the length never beyond what the operation has.
        offset: u32,
        /// Bytes that the peer asks for.
        length: u32,
        /// Goes back with the data: the tag of the transfer.
        token: T,
    },
    /// A command has ended, and its slot is free.
    Completed {
        /// Slot of the operation that has ended.
        slot: u16,
        /// How. That all data has come is for the queue to see.
        result: Result<Reply, Failure>,
    },
    /// A ping has its answer.
    Pong,
    /// News of the peer.
    Notice(Notice),
    /// Nothing more will be accepted: what is in the transmit queue may be sent, then the connection is to be
    /// closed.
    Closed(CloseCause),
}
