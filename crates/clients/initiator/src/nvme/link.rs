//! A connection of a host with time limits, for what is not a data path: setting up queues, admin commands.
//!
//! The socket does not block; [`Link::run`] waits for an answer up to a deadline, and [`Link::pump`] does
//! what can be done without waiting, for a driver that has other things to wait for.
//!
//! The end of the connection is a state: the call that meets it returns the reason, and so does every
//! later call. Nothing is sent or received any more, whatever the order of calls.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_nvme::host::{
    CloseReason, Command, Connection, ConnectionConfig, ConnectionEvent, NotSent, Transfer,
};
use longshore_nvme::pdu::FatalError;
use longshore_nvme::status::Status;
use longshore_wire::transmit::{Segment, Transmit, WriteData};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::channel::Channel;

/// What is received at a time.
const RECEIVE_BYTES: usize = 64 << 10;

/// Longest data of a command over a link.
pub(super) const DATA_BYTES_MAX: u32 = 1 << 20;

/// How a connection came to its end, or an answer did not come.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// Of a socket call.
    #[error("{call}: {error}")]
    Io {
        call: &'static str,
        error: Arc<io::Error>,
    },
    /// Nothing came in time.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// An end of file.
    #[error("the controller closed the connection")]
    Closed,
    #[error("the controller terminated the connection: {} ({:#x})", .0.status, .0.information)]
    Terminated(FatalError),
    /// The controller broke a rule, and was told so.
    #[error("the controller broke the protocol: {} ({:#x})", .0.status, .0.information)]
    Protocol(FatalError),
    /// All commands that the queue takes are under way.
    #[error("the queue takes no further command")]
    Busy,
}

impl LinkError {
    fn io(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io {
            call,
            error: Arc::new(error),
        }
    }

    /// Whether the connection is over. Otherwise a later call may go well.
    const fn is_end(&self) -> bool {
        !matches!(self, Self::TimedOut(_) | Self::Busy)
    }
}

/// What a controller answered to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// Dwords 0 and 1 of the completion.
    pub(crate) result: u64,
    /// SQHD, where a response capsule brought one.
    pub(crate) sq_head: Option<u16>,
    /// Data that has come, no more than the command asked for.
    pub(crate) data: Vec<u8>,
}

/// Names a command of a link for good: a slot may have another one before the answer was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// A command under way.
#[derive(Debug, Default)]
struct Pending {
    ticket: Ticket,
    data_out: Vec<u8>,
    data_in: Vec<u8>,
}

/// One connection. See the module documentation.
#[derive(Debug)]
pub(crate) struct Link {
    channel: Channel,
    connection: Connection,
    transmit: Transmit,
    /// Indexed by the slot of the queue, which is the CID.
    pending: Vec<Pending>,
    ended: Vec<(Ticket, Answer)>,
    last: Ticket,
    received: Box<[u8]>,
    /// How the connection ended.
    end: Option<LinkError>,
}

impl Link {
    /// Initializes a connection over a socket that is connected: ICReq and ICResp.
    pub(crate) fn open(
        channel: Channel,
        config: ConnectionConfig,
        deadline: Deadline,
    ) -> Result<Self, LinkError> {
        rustix::io::ioctl_fionbio(&channel, true)
            .map_err(|error| LinkError::io("set a socket to not block")(error.into()))?;
        let mut transmit = Transmit::new();
        let connection = Connection::new(config, &mut transmit);
        let mut pending = Vec::new();
        pending.resize_with(usize::from(config.commands), Pending::default);
        let mut link = Self {
            channel,
            connection,
            transmit,
            pending,
            ended: Vec::new(),
            last: Ticket::default(),
            received: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            end: None,
        };
        while !link.connection.is_ready() {
            link.turn(deadline)?;
        }
        Ok(link)
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The machine, to change its settings.
    pub(crate) const fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Channel, machine and unsent bytes, for a driver of another kind. No command is under way.
    pub(crate) fn into_parts(self) -> (Channel, Connection, Transmit) {
        debug_assert!(self.connection.under_way().next().is_none());
        (self.channel, self.connection, self.transmit)
    }

    /// Queues a command; it leaves with the next [`Self::pump`] or [`Self::run`].
    ///
    /// # Panics
    /// When it moves more than [`DATA_BYTES_MAX`].
    pub(crate) fn start(&mut self, command: &Command, data: &[u8]) -> Result<Ticket, LinkError> {
        let expected = match command.transfer {
            Transfer::ToHost(length) => length,
            Transfer::None | Transfer::ToController(_) => 0,
        };
        assert!(expected <= DATA_BYTES_MAX, "links are for short data");
        self.check_open()?;
        let slot = self
            .connection
            .submit(command, WriteData::Bytes(data), &mut self.transmit)
            .map_err(|refused| match refused {
                NotSent::Busy => LinkError::Busy,
                NotSent::Closed | _ => LinkError::Closed,
            })?;
        self.last.0 += 1;
        self.pending[usize::from(slot.0)] = Pending {
            ticket: self.last,
            data_out: data.to_vec(),
            data_in: vec![0; expected as usize],
        };
        Ok(self.last)
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn run(
        &mut self,
        command: &Command,
        data: &[u8],
        deadline: Deadline,
    ) -> Result<Answer, LinkError> {
        let ticket = self.start(command, data)?;
        loop {
            if let Some(answer) = self.take(ticket) {
                return Ok(answer);
            }
            if let Err(error) = self.turn(deadline) {
                // The last answer of a connection may come together with its end.
                return self.take(ticket).ok_or(error);
            }
        }
    }

    fn take(&mut self, ticket: Ticket) -> Option<Answer> {
        let at = self.ended.iter().position(|(ended, _)| *ended == ticket)?;
        Some(self.ended.remove(at).1)
    }

    /// The next command that has ended.
    pub(crate) fn next_ended(&mut self) -> Option<(Ticket, Answer)> {
        (!self.ended.is_empty()).then(|| self.ended.remove(0))
    }

    /// Whether the socket has not taken all there is to send.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.transmit.is_empty()
    }

    /// Why the connection takes nothing any more, if it does not.
    fn check_open(&self) -> Result<(), LinkError> {
        match &self.end {
            Some(end) => Err(end.clone()),
            None => Ok(()),
        }
    }

    /// Runs a call that can meet the end of the connection, and remembers that.
    fn while_open(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        self.check_open()?;
        let result = call(self);
        if let Err(error) = &result
            && error.is_end()
        {
            self.end = Some(error.clone());
        }
        result
    }

    /// Sends and receives what is possible without waiting, a bounded amount of it.
    pub(crate) fn pump(&mut self) -> Result<(), LinkError> {
        self.while_open(Self::serve)
    }

    fn serve(&mut self) -> Result<(), LinkError> {
        self.send()?;
        for _ in 0..16 {
            if !self.receive()? {
                break;
            }
        }
        self.send()
    }

    /// Waits for the socket and serves it.
    fn turn(&mut self, deadline: Deadline) -> Result<(), LinkError> {
        self.while_open(|link| link.wait(deadline))
    }

    fn wait(&mut self, deadline: Deadline) -> Result<(), LinkError> {
        self.send()?;
        let Some(left) = deadline.left() else {
            return Err(LinkError::TimedOut(deadline.limit));
        };
        if self.channel.has_more() {
            return self.serve();
        }
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, self.has_unsent());
        let limit = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut sockets = [PollFd::new(&self.channel, interest)];
        match poll(&mut sockets, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.serve(),
            Err(error) => Err(LinkError::io("poll")(error.into())),
        }
    }

    fn send(&mut self) -> Result<(), LinkError> {
        while let Some((start, length)) = self.unsent() {
            let bytes = &self.transmit.arena()[start..start + length];
            match self.channel.send(&[IoSlice::new(bytes)], false) {
                Ok(sent) => self.transmit.advance(sent, &mut Vec::new()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What the controller said before it hung up explains more than that it did.
                Err(error) => {
                    while self.receive()? {}
                    return Err(LinkError::io("send")(error));
                }
            }
        }
        Ok(())
    }

    /// Start and length of the next run to send: everything is copied into the arena here.
    fn unsent(&self) -> Option<(usize, usize)> {
        match self.transmit.segments().next()? {
            Segment::Arena { start, length } => Some((start, length)),
            Segment::Zeros { .. } | Segment::Buffer { .. } => {
                unreachable!("a link sends nothing by reference")
            }
        }
    }

    /// Takes in what has arrived; whether there may be more.
    fn receive(&mut self) -> Result<bool, LinkError> {
        let mut received = std::mem::take(&mut self.received);
        let outcome = match self.channel.receive(&mut [IoSliceMut::new(&mut received)]) {
            Ok(0) => Err(LinkError::Closed),
            Ok(length) => self.handle(&received[..length]).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(LinkError::io("receive")(error)),
        };
        self.received = received;
        outcome
    }

    fn handle(&mut self, mut input: &[u8]) -> Result<(), LinkError> {
        loop {
            match self.connection.next(&mut input, &mut self.transmit) {
                ConnectionEvent::NeedMore => return Ok(()),
                ConnectionEvent::Ready => {}
                ConnectionEvent::DataIn {
                    slot,
                    buffer_offset,
                    bytes,
                } => {
                    // The machine has held the range against the command.
                    let start = buffer_offset as usize;
                    let place = &mut self.pending[usize::from(slot.0)].data_in;
                    place[start..start + bytes.len()].copy_from_slice(bytes);
                }
                ConnectionEvent::R2t(r2t) => {
                    let start = r2t.buffer_offset as usize;
                    let data = &self.pending[usize::from(r2t.slot.0)].data_out;
                    let data = WriteData::Bytes(&data[start..start + r2t.length as usize]);
                    self.connection.send_data(&r2t, data, &mut self.transmit);
                }
                ConnectionEvent::Completed { slot, outcome } => {
                    let pending = std::mem::take(&mut self.pending[usize::from(slot.0)]);
                    let mut data = pending.data_in;
                    data.truncate(outcome.data_in_length as usize);
                    let answer = Answer {
                        status: outcome.status,
                        result: outcome.result,
                        sq_head: outcome.sq_head,
                        data,
                    };
                    self.ended.push((pending.ticket, answer));
                }
                ConnectionEvent::Close(reason) => return Err(self.closed(reason)),
            }
        }
    }

    /// Tells the controller what is queued to be told, as far as that goes at once.
    fn closed(&mut self, reason: CloseReason) -> LinkError {
        if let Some((start, length)) = self.unsent() {
            let bytes = &self.transmit.arena()[start..start + length];
            // The connection ends either way.
            let _ = self.channel.send(&[IoSlice::new(bytes)], false);
        }
        match reason {
            CloseReason::Terminated(error) => LinkError::Terminated(error),
            CloseReason::ProtocolError(error) => LinkError::Protocol(error),
            CloseReason::Host => LinkError::Closed,
        }
    }
}

/// Whether a controller answers an ICReq with an ICResp in time.
pub(crate) fn greet(channel: Channel, limit: Duration) -> bool {
    let config = ConnectionConfig::default();
    Link::open(channel, config, Deadline::after(limit)).is_ok()
}

/// Until when something has to be done, and how long that was from the start, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// So long from now.
    pub(crate) fn after(limit: Duration) -> Self {
        /// As good as never, and no time overflows by it.
        const LONGEST: Duration = Duration::from_secs(24 * 3600);
        let limit = limit.min(LONGEST);
        Self {
            at: Instant::now() + limit,
            limit,
        }
    }

    /// How long it was from the start.
    pub(crate) const fn limit(self) -> Duration {
        self.limit
    }

    /// How long is left; `None` when it has passed.
    pub(crate) fn left(self) -> Option<Duration> {
        let left = self.at.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}
