//! A session with time limits, for what is not a data path: identification, questions, task management.
//!
//! The calls block, each within the limits of [`Timeouts`](crate::options::Timeouts). Commands may be
//! under way side by side ([`Session::start`]), which aborting one of them needs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_iscsi::initiator::login::LoginConfig;
use longshore_iscsi::initiator::{
    self, CloseReason, Command, CommandId, Connection, ConnectionEvent, NotSent,
};
use longshore_iscsi::pdu::{
    AsyncMessage, Attribute, Function, InitiatorTaskTag, LogoutReason, Lun,
    TaskManagementResponseCode,
};
use longshore_iscsi::session_parameters::SessionParameters;
use longshore_wire::transmit::{Segment, Transmit, WriteData};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::identity::random;
use super::{machine, outcome};
use crate::error::{Error, Failure, Lost};
use crate::options::Options;
use crate::url::HostPort;

/// What is received at a time.
const RECEIVE_BYTES: usize = 64 << 10;

/// Longest data of a command over a session of this kind.
const DATA_BYTES_MAX: u32 = 16 << 20;

/// Messages of a kind that are kept for whoever waits for them, or asks.
const NEWS_MAX: usize = 16;

/// Answers to the target's own questions wait behind data at most. A target that asks on and reads
/// nothing is not to fill our memory.
const UNSENT_MAX: usize = 8 * DATA_BYTES_MAX as usize + (4 << 20);

/// What a command moves.
#[derive(Clone, Copy, Debug)]
pub enum Transfer<'a> {
    /// Neither side sends data.
    None,
    /// So many bytes to us.
    Read(u32),
    /// These bytes to the target.
    Write(&'a [u8]),
}

/// Names a command that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(u64);

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status, sense data and residual.
    pub outcome: initiator::CommandOutcome,
    /// Read data, as much as has come.
    pub data: Vec<u8>,
}

impl Answer {
    /// How the command failed, or its data.
    ///
    /// # Errors
    /// It did not end with GOOD.
    pub fn data(self) -> Result<Vec<u8>, Failure> {
        match outcome::failure(&self.outcome, false) {
            None => Ok(self.data),
            Some(failure) => Err(failure),
        }
    }
}

/// A command under way, or one whose answer nobody has taken yet.
#[derive(Debug)]
struct Pending {
    tag: Tag,
    command: CommandId,
    data_out: Vec<u8>,
    data_in: Vec<u8>,
    outcome: Option<initiator::CommandOutcome>,
}

/// What came apart from the ends of commands.
#[derive(Debug, Default)]
struct Inbox {
    established: bool,
    managed: Vec<(InitiatorTaskTag, TaskManagementResponseCode)>,
    pongs: Vec<InitiatorTaskTag>,
    text: Option<Vec<u8>>,
    /// A PDU other than a command was refused: why.
    rejected: Option<String>,
    logged_out: bool,
    news: Vec<AsyncMessage>,
}

/// One session of one connection. See the module documentation.
#[derive(Debug)]
pub struct Session {
    portal: HostPort,
    address: SocketAddr,
    stream: TcpStream,
    connection: Connection,
    transmit: Transmit,
    pending: Vec<Pending>,
    inbox: Inbox,
    next_tag: u64,
    received: Box<[u8]>,
    /// Longest wait for the answer to one exchange.
    limit: Duration,
    /// How the connection ended: the error of every later call.
    ended: Option<End>,
}

/// Until when something is waited for.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Instant,
    limit: Duration,
    step: &'static str,
}

impl Session {
    /// Logs in over a connected socket. The error is the machine's, for [`login`](super::login) to explain.
    pub(super) fn log_in(
        portal: &HostPort,
        address: SocketAddr,
        stream: TcpStream,
        config: LoginConfig,
        commands: u16,
        options: &Options,
    ) -> Result<Self, LoginFailure> {
        let system = |what| {
            move |source| {
                LoginFailure::Error(Error::System {
                    what,
                    source: Arc::new(source),
                })
            }
        };
        stream
            .set_nonblocking(true)
            .map_err(system("set a socket to not block"))?;
        stream
            .set_nodelay(true)
            .map_err(system("set TCP_NODELAY"))?;
        let mut transmit = Transmit::new();
        let connection = Connection::new(config, commands, &mut random, &mut transmit);
        let mut session = Self {
            portal: portal.clone(),
            address,
            stream,
            connection,
            transmit,
            pending: Vec::new(),
            inbox: Inbox::default(),
            next_tag: 0,
            received: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            limit: options.timeouts.login,
            ended: None,
        };
        let deadline = session.deadline("login");
        while !session.inbox.established {
            session.turn(deadline).map_err(|end| match end {
                End::Closed(CloseReason::Login(error)) => LoginFailure::Machine(error),
                end @ (End::Closed(_) | End::TimedOut(_) | End::Lost(_)) => {
                    LoginFailure::Error(session.explain(end, "login"))
                }
            })?;
        }
        Ok(session)
    }

    /// What the login settled.
    ///
    /// # Panics
    /// Never: there is no session before the login.
    #[must_use]
    pub fn parameters(&self) -> &SessionParameters {
        let session = self.connection.session();
        session.expect("a session is made by a login")
    }

    /// Where it is connected, as it was named.
    #[must_use]
    pub const fn portal(&self) -> &HostPort {
        &self.portal
    }

    /// Where it is connected.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The asynchronous messages that have come since the last call.
    pub fn take_news(&mut self) -> Vec<AsyncMessage> {
        std::mem::take(&mut self.inbox.news)
    }

    /// Sends a command and waits for its end, whatever that is.
    ///
    /// # Errors
    /// The connection is lost, or the target does not answer in time. The session is over then.
    ///
    /// # Panics
    /// See [`Self::start`].
    pub fn command(
        &mut self,
        lun: Lun,
        cdb: &[u8],
        transfer: Transfer<'_>,
    ) -> Result<Answer, Error> {
        let tag = self.start(lun, cdb, transfer)?;
        self.wait(tag)
    }

    /// Sends a command. Waits only for a place among those under way.
    ///
    /// # Errors
    /// As for [`Self::command`].
    ///
    /// # Panics
    /// When the CDB is longer than 260 bytes, or more than 16 MiB are to be moved.
    pub fn start(&mut self, lun: Lun, cdb: &[u8], transfer: Transfer<'_>) -> Result<Tag, Error> {
        let (direction, data_out, data_in) = match transfer {
            Transfer::None => (initiator::Transfer::None, &[][..], 0),
            Transfer::Read(length) => (initiator::Transfer::Read(length), &[][..], length),
            Transfer::Write(data) => {
                let length = u32::try_from(data.len()).expect("a session is for short data");
                (initiator::Transfer::Write(length), data, 0)
            }
        };
        let length = data_out.len().max(data_in as usize);
        assert!(
            length <= DATA_BYTES_MAX as usize,
            "a session is for short data"
        );
        let deadline = self.deadline("a command");
        while self.connection.room() == 0 {
            self.turn_or(deadline)?;
        }
        let command = Command {
            lun,
            cdb,
            attribute: Attribute::SIMPLE,
            immediate: false,
            transfer: direction,
        };
        let command = self
            .connection
            .submit(&command, WriteData::Bytes(data_out), &mut self.transmit)
            .map_err(|refused| self.not_sent(refused, deadline.step))?;
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        self.pending.push(Pending {
            tag,
            command,
            data_out: data_out.to_vec(),
            data_in: vec![0; data_in as usize],
            outcome: None,
        });
        Ok(tag)
    }

    /// Waits for the end of a command.
    ///
    /// # Errors
    /// As for [`Self::command`].
    ///
    /// # Panics
    /// When the command's end has been taken already.
    pub fn wait(&mut self, tag: Tag) -> Result<Answer, Error> {
        let deadline = self.deadline("a command");
        loop {
            let at = self.position(tag);
            if let Some(outcome) = self.pending[at].outcome.take() {
                let pending = self.pending.swap_remove(at);
                let mut data = pending.data_in;
                data.truncate(usize::try_from(outcome.data_in_length).unwrap_or(usize::MAX));
                return Ok(Answer { outcome, data });
            }
            self.turn_or(deadline)?;
        }
    }

    /// Whether a command has ended, so that [`Self::wait`] would not.
    ///
    /// # Panics
    /// When the command's end has been taken already.
    #[must_use]
    pub fn has_ended(&self, tag: Tag) -> bool {
        self.pending[self.position(tag)].outcome.is_some()
    }

    fn position(&self, tag: Tag) -> usize {
        let found = self.pending.iter().position(|pending| pending.tag == tag);
        found.expect("the command is under way")
    }

    /// Asks for the abortion of one command (ABORT TASK). If the target answers that it is done, the
    /// command has no end of its own any more: it is forgotten here as well.
    ///
    /// # Errors
    /// As for [`Self::command`].
    ///
    /// # Panics
    /// When the command's end has been taken already.
    pub fn abort_task(&mut self, lun: Lun, tag: Tag) -> Result<TaskManagementResponseCode, Error> {
        let command = self.pending[self.position(tag)].command;
        let which = (command, self.connection.cmd_sn_of(command));
        let response = self.manage(Function::ABORT_TASK, lun, Some(which))?;
        let at = self.position(tag);
        let done = response == TaskManagementResponseCode::FUNCTION_COMPLETE;
        if done && self.pending[at].outcome.is_none() {
            self.connection.forget(command);
            self.pending.swap_remove(at);
        }
        Ok(response)
    }

    /// Asks for another task management function, of a logical unit or of the target. Commands that
    /// ended by it are forgotten.
    ///
    /// # Errors
    /// As for [`Self::command`].
    pub fn task_management(
        &mut self,
        function: Function,
        lun: Lun,
    ) -> Result<TaskManagementResponseCode, Error> {
        let response = self.manage(function, lun, None)?;
        let ends_tasks = matches!(
            function,
            Function::ABORT_TASK_SET
                | Function::CLEAR_TASK_SET
                | Function::LOGICAL_UNIT_RESET
                | Function::TARGET_WARM_RESET
                | Function::TARGET_COLD_RESET
        );
        if ends_tasks && response == TaskManagementResponseCode::FUNCTION_COMPLETE {
            for pending in &self.pending {
                if pending.outcome.is_none() {
                    self.connection.forget(pending.command);
                }
            }
            self.pending.retain(|pending| pending.outcome.is_some());
        }
        Ok(response)
    }

    fn manage(
        &mut self,
        function: Function,
        lun: Lun,
        which: Option<(CommandId, longshore_iscsi::pdu::CmdSn)>,
    ) -> Result<TaskManagementResponseCode, Error> {
        let deadline = self.deadline("task management");
        let request = self
            .connection
            .task_management(function, lun, which, &mut self.transmit)
            .map_err(|refused| self.not_sent(refused, deadline.step))?;
        loop {
            let mut managed = self.inbox.managed.iter();
            if let Some(at) = managed.position(|(answered, _)| *answered == request) {
                return Ok(self.inbox.managed.swap_remove(at).1);
            }
            self.turn_or(deadline)?;
            self.check_rejection(deadline.step)?;
        }
    }

    /// Asks the target whether it is there (NOP-Out), and waits for the answer.
    ///
    /// # Errors
    /// As for [`Self::command`].
    pub fn ping(&mut self) -> Result<(), Error> {
        let deadline = self.deadline("NOP-Out");
        let request = self
            .connection
            .ping(b"longshore", &mut self.transmit)
            .map_err(|refused| self.not_sent(refused, deadline.step))?;
        loop {
            if let Some(at) = self.inbox.pongs.iter().position(|pong| *pong == request) {
                self.inbox.pongs.swap_remove(at);
                return Ok(());
            }
            self.turn_or(deadline)?;
            self.check_rejection(deadline.step)?;
        }
    }

    /// Sends a text request and waits for all of its answer.
    ///
    /// # Errors
    /// As for [`Self::command`], or the target refuses.
    pub fn text(&mut self, text: &[u8]) -> Result<Vec<u8>, Error> {
        let deadline = self.deadline("a text request");
        // The target may have asked for a negotiation, which goes first.
        while self.connection.text(text, &mut self.transmit).is_err() {
            self.turn_or(deadline)?;
        }
        loop {
            if let Some(answer) = self.inbox.text.take() {
                return Ok(answer);
            }
            self.turn_or(deadline)?;
            self.check_rejection(deadline.step)?;
        }
    }

    /// Logs out, and waits a short while for the answer.
    pub fn close(mut self) {
        let reason = LogoutReason::CLOSE_SESSION;
        let asked = self.connection.logout(reason, &mut self.transmit);
        if self.ended.is_some() || asked.is_err() {
            return;
        }
        let deadline = Deadline {
            at: Instant::now() + self.limit.min(Duration::from_secs(1)),
            ..self.deadline("logout")
        };
        while !self.inbox.logged_out {
            if self.turn(deadline).is_err() {
                return;
            }
        }
    }

    /// Socket and machine, for a queue. Nothing is under way, and all that was received has been looked
    /// at.
    pub(super) fn into_parts(self) -> (TcpStream, Connection, Transmit) {
        debug_assert!(self.connection.under_way().next().is_none());
        (self.stream, self.connection, self.transmit)
    }

    fn check_rejection(&mut self, step: &'static str) -> Result<(), Error> {
        match self.inbox.rejected.take() {
            None => Ok(()),
            Some(reason) => Err(Error::Refused {
                portal: self.portal.clone(),
                step,
                reason,
                advice: "the target may not have this function",
            }),
        }
    }

    fn deadline(&self, step: &'static str) -> Deadline {
        Deadline {
            at: Instant::now() + self.limit,
            limit: self.limit,
            step,
        }
    }

    fn turn_or(&mut self, deadline: Deadline) -> Result<(), Error> {
        self.turn(deadline)
            .map_err(|end| self.explain(end, deadline.step))
    }

    /// Why a request could not be sent: how the connection ended, if it has.
    #[cold]
    fn not_sent(&self, refused: NotSent, step: &'static str) -> Error {
        let end = match (&self.ended, refused) {
            (Some(end), _) => end.clone(),
            (None, NotSent::Busy) => End::TimedOut(Duration::ZERO),
            (None, NotSent::Closed | _) => End::Closed(CloseReason::Logout),
        };
        self.explain(end, step)
    }

    fn explain(&self, end: End, step: &'static str) -> Error {
        let portal = self.portal.clone();
        match end {
            End::TimedOut(after) => Error::TimedOut {
                portal,
                step,
                after,
            },
            End::Lost(lost) => Error::Lost { portal, step, lost },
            End::Closed(CloseReason::ProtocolError(problem)) => Error::Protocol {
                portal,
                step,
                reason: problem.to_owned(),
            },
            End::Closed(reason) => Error::Lost {
                portal,
                step,
                lost: Lost::Closed(machine::cause(&reason)),
            },
        }
    }

    /// Waits for the socket and serves it. After the end of the connection nothing is sent or received.
    fn turn(&mut self, deadline: Deadline) -> Result<(), End> {
        if let Some(end) = &self.ended {
            return Err(end.clone());
        }
        let turned = self.turn_once(deadline);
        if let Err(end @ (End::Lost(_) | End::Closed(_))) = &turned {
            self.ended = Some(end.clone());
        }
        turned
    }

    fn turn_once(&mut self, deadline: Deadline) -> Result<(), End> {
        self.send()?;
        let left = deadline.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(End::TimedOut(deadline.limit));
        }
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, !self.transmit.is_empty());
        let limit = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut sockets = [PollFd::new(&self.stream, interest)];
        match poll(&mut sockets, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(End::Lost(Lost::from_io(&error.into()))),
        }
        self.receive()?;
        self.send()
    }

    fn send(&mut self) -> Result<(), End> {
        loop {
            let (start, length) = match self.transmit.segments().next() {
                None => return Ok(()),
                Some(Segment::Arena { start, length }) => (start, length),
                Some(_) => unreachable!("a session sends nothing by reference"),
            };
            let bytes = &self.transmit.arena()[start..start + length];
            match self.stream.write(bytes) {
                Ok(sent) => self.transmit.advance(sent, &mut Vec::new()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // What the target said before it hung up explains more than that it did.
                    while self.receive()? {}
                    return Err(End::Lost(Lost::from_io(&error)));
                }
            }
        }
    }

    /// Takes in what one call brings; whether it brought anything.
    fn receive(&mut self) -> Result<bool, End> {
        if self.transmit.pending_bytes() > UNSENT_MAX {
            let problem = "it asks without listening to the answers";
            return Err(End::Closed(CloseReason::ProtocolError(problem)));
        }
        let mut buffer = std::mem::take(&mut self.received);
        let result = match self.stream.read(&mut buffer) {
            Ok(0) => Err(End::Lost(Lost::HungUp)),
            Ok(length) => self.handle(&buffer[..length]).map(|()| true),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(End::Lost(Lost::from_io(&error))),
        };
        self.received = buffer;
        result
    }

    fn handle(&mut self, mut input: &[u8]) -> Result<(), End> {
        loop {
            match self.connection.next(&mut input, &mut self.transmit) {
                ConnectionEvent::NeedMore => return Ok(()),
                ConnectionEvent::Established => self.inbox.established = true,
                ConnectionEvent::DataIn {
                    command,
                    buffer_offset,
                    bytes,
                } => {
                    if let Some(pending) = find(&mut self.pending, command) {
                        let start = buffer_offset as usize;
                        pending.data_in[start..start + bytes.len()].copy_from_slice(bytes);
                    }
                }
                ConnectionEvent::R2t(r2t) => {
                    if let Some(pending) = find(&mut self.pending, r2t.command) {
                        let start = r2t.buffer_offset as usize;
                        let data = &pending.data_out[start..start + r2t.length as usize];
                        let data = WriteData::Bytes(data);
                        self.connection
                            .send_data_out(&r2t, data, &mut self.transmit);
                    }
                }
                ConnectionEvent::Completed { command, outcome } => {
                    if let Some(pending) = find(&mut self.pending, command) {
                        pending.outcome = Some(outcome);
                    }
                }
                ConnectionEvent::TaskManagementDone { request, response } => {
                    if self.inbox.managed.len() < NEWS_MAX {
                        self.inbox.managed.push((request, response));
                    }
                }
                ConnectionEvent::Pong { request, .. } => {
                    if self.inbox.pongs.len() < NEWS_MAX {
                        self.inbox.pongs.push(request);
                    }
                }
                ConnectionEvent::Text(text) => self.inbox.text = Some(text),
                ConnectionEvent::Rejected { reason, .. } => {
                    self.inbox.rejected = Some(format!("{reason:?}"));
                }
                ConnectionEvent::Async(message) => {
                    if self.inbox.news.len() < NEWS_MAX {
                        self.inbox.news.push(message);
                    }
                }
                ConnectionEvent::LoggedOut(_) => self.inbox.logged_out = true,
                ConnectionEvent::Close(reason) => return Err(End::Closed(reason)),
            }
        }
    }
}

fn find(pending: &mut [Pending], command: CommandId) -> Option<&mut Pending> {
    let mut under_way = pending.iter_mut().filter(|it| it.outcome.is_none());
    under_way.find(|pending| pending.command == command)
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Debug)]
enum End {
    TimedOut(Duration),
    Lost(Lost),
    Closed(CloseReason),
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum LoginFailure {
    /// The login machine says.
    Machine(longshore_iscsi::initiator::login::LoginError),
    Error(Error),
}
