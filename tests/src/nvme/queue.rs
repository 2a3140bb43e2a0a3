//! One connection of a host, blocking.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::LIMIT;
use longshore_nvme::command::CommandId;
use longshore_nvme::host::{
    CloseReason, Command, CommandSlot, Connection, ConnectionConfig, ConnectionEvent, Transfer,
};
use longshore_nvme::status::Status;
use longshore_wire::transmit::{Segment, Transmit, WriteData};

/// What a controller answered to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// SQHD; none when the data of the command brought its success.
    pub sq_head: Option<u16>,
    /// Data of C2HData PDUs, in the order of their offsets.
    pub data: Vec<u8>,
    /// A data digest from the controller did not match.
    pub data_digest_error: bool,
}

impl Answer {
    pub fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// Status code type and status code alone.
    pub fn code(&self) -> Status {
        self.status.code()
    }

    /// The answer, if it is a success.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.is_success(), "{:?}", self.status);
        self
    }
}

/// A command under way: what it may send, and what it has read.
#[derive(Debug)]
struct Pending {
    data_out: Vec<u8>,
    data_in: Vec<u8>,
}

/// One connection of a host.
#[derive(Debug)]
pub struct Queue {
    stream: TcpStream,
    connection: Connection,
    transmit: Transmit,
    pending: HashMap<CommandSlot, Pending>,
    /// Commands that ended and were not waited for.
    ended: Vec<(CommandSlot, Answer)>,
    closed: Option<CloseReason>,
    /// What is sent goes out in pieces of so many bytes.
    piece: usize,
    /// R2Ts that have come.
    pub r2ts_seen: u32,
}

impl Queue {
    /// A TCP connection and its initialization; Connect is up to the caller.
    ///
    /// # Errors
    /// The socket's, or what the controller did wrong.
    pub fn open(portal: SocketAddr, config: ConnectionConfig) -> io::Result<Self> {
        let stream = TcpStream::connect(portal)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut transmit = Transmit::new();
        let connection = Connection::new(config, &mut transmit);
        let mut queue = Self {
            stream,
            connection,
            transmit,
            pending: HashMap::new(),
            ended: Vec::new(),
            closed: None,
            piece: usize::MAX,
            r2ts_seen: 0,
        };
        queue.flush()?;
        while !queue.connection.is_ready() {
            queue.receive()?;
        }
        Ok(queue)
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The machine, to change its settings.
    pub fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Socket and machine, for a driver of another kind. No command may be under way.
    ///
    /// # Panics
    /// When one is.
    pub fn into_parts(self) -> (TcpStream, Connection) {
        assert!(self.pending.is_empty(), "commands are under way");
        (self.stream, self.connection)
    }

    /// The socket, for tests that misuse it.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Why the connection ended, if it did by a PDU.
    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    /// From now on what is sent goes out in pieces of so many bytes.
    pub fn send_in_pieces(&mut self, bytes: usize) {
        self.piece = bytes;
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The socket's.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a command and does not wait for its answer.
    ///
    /// # Errors
    /// The socket's; there is no free slot.
    pub fn start(&mut self, command: &Command, data: &[u8]) -> io::Result<CommandSlot> {
        let slot = self.prepare(command, data)?;
        self.flush()?;
        Ok(slot)
    }

    /// Queues a command; it is sent with the next that is started or waited for.
    ///
    /// # Errors
    /// There is no free slot.
    pub fn prepare(&mut self, command: &Command, data: &[u8]) -> io::Result<CommandSlot> {
        let slot = self
            .connection
            .submit(command, WriteData::Bytes(data), &mut self.transmit)
            .map_err(|_| io::Error::other("all slots are in use"))?;
        let expected = match command.transfer {
            Transfer::ToHost(length) => usize::try_from(length).expect("32 bits fit"),
            Transfer::None | Transfer::ToController(_) => 0,
        };
        let pending = Pending {
            data_out: data.to_vec(),
            data_in: vec![0; expected],
        };
        self.pending.insert(slot, pending);
        Ok(slot)
    }

    /// Serves the connection until this command has ended.
    ///
    /// # Errors
    /// The connection ended or took too long.
    pub fn wait(&mut self, slot: CommandSlot) -> io::Result<Answer> {
        self.flush()?;
        loop {
            let found = self.ended.iter().position(|(ended, _)| *ended == slot);
            if let Some(index) = found {
                return Ok(self.ended.remove(index).1);
            }
            self.receive()?;
        }
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// The connection ended or took too long.
    pub fn run(&mut self, command: &Command, data: &[u8]) -> io::Result<Answer> {
        let slot = self.start(command, data)?;
        self.wait(slot)
    }

    /// Whether this command ends within `limit`, and how.
    ///
    /// # Errors
    /// The connection ended.
    pub fn wait_for(&mut self, slot: CommandSlot, limit: Duration) -> io::Result<Option<Answer>> {
        self.stream.set_read_timeout(Some(limit))?;
        let answer = self.wait(slot);
        self.stream.set_read_timeout(Some(LIMIT))?;
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The identifier of a command, for Abort.
    pub fn command_id(&self, slot: CommandSlot) -> CommandId {
        self.connection.command_id(slot)
    }

    /// Whether the controller closes the connection within `limit`; answers that come before are
    /// taken.
    ///
    /// # Errors
    /// The socket's.
    pub fn is_closed_within(&mut self, limit: Duration) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(limit))?;
        let mut buffer = [0; 65_536];
        let closed = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(length) => self.take(&buffer[..length]),
                Err(error) if is_timeout(&error) => break false,
                Err(error) => match error.kind() {
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => break true,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        };
        self.stream.set_read_timeout(Some(LIMIT))?;
        Ok(closed)
    }

    /// Sends what is queued.
    fn flush(&mut self) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(self.transmit.pending_bytes());
        for segment in self.transmit.segments() {
            match segment {
                Segment::Arena { start, length } => {
                    bytes.extend_from_slice(&self.transmit.arena()[start..start + length]);
                }
                Segment::Zeros { length } => bytes.resize(bytes.len() + length, 0),
                Segment::Buffer { .. } => unreachable!("data is copied here"),
            }
        }
        self.transmit.advance(bytes.len(), &mut Vec::new());
        for piece in bytes.chunks(self.piece) {
            self.stream.write_all(piece)?;
        }
        Ok(())
    }

    /// Receives once and acts on it.
    fn receive(&mut self) -> io::Result<()> {
        if let Some(reason) = self.closed {
            return Err(io::Error::other(format!("connection closed: {reason:?}")));
        }
        let mut buffer = [0; 65_536];
        let length = self.stream.read(&mut buffer)?;
        if length == 0 {
            let kind = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(kind, "the controller hung up"));
        }
        self.take(&buffer[..length]);
        self.flush()
    }

    /// Acts on bytes received.
    fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            match self.connection.next(&mut rest, &mut self.transmit) {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::Ready => {}
                ConnectionEvent::DataIn {
                    slot,
                    buffer_offset,
                    bytes,
                } => {
                    let start = usize::try_from(buffer_offset).expect("32 bits fit");
                    let pending = self.pending.get_mut(&slot).expect("a command under way");
                    pending.data_in[start..start + bytes.len()].copy_from_slice(bytes);
                }
                ConnectionEvent::R2t(r2t) => {
                    self.r2ts_seen += 1;
                    let start = usize::try_from(r2t.buffer_offset).expect("32 bits fit");
                    let end = start + usize::try_from(r2t.length).expect("32 bits fit");
                    let data = &self.pending[&r2t.slot].data_out[start..end];
                    let data = WriteData::Bytes(data);
                    self.connection.send_data(&r2t, data, &mut self.transmit);
                }
                ConnectionEvent::Completed { slot, outcome } => {
                    let mut pending = self.pending.remove(&slot).expect("a command under way");
                    let length = usize::try_from(outcome.data_in_length).expect("32 bits fit");
                    pending.data_in.truncate(length);
                    let answer = Answer {
                        status: outcome.status,
                        result: outcome.result,
                        sq_head: outcome.sq_head,
                        data: pending.data_in,
                        data_digest_error: outcome.data_digest_error,
                    };
                    self.ended.push((slot, answer));
                }
                ConnectionEvent::Close(reason) => {
                    self.closed = Some(reason);
                    break;
                }
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
