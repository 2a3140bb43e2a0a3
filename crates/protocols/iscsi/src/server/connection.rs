//! One connection of a target: login, then full feature phase, then logout or failure.
//!
//! ```text
//!                  last Login Response            Logout, error, timeout
//!   Login ──────────────────────────► FullFeature ───────────────────────► Closed
//!     │ waits for: Login Requests       waits for: requests, write data,     (final)
//!     │ ended by: the initiator, the      the driver's completions
//!     │   login timeout                 ended by: Logout, the peer's errors,
//!     └──────── refused ─────────────►    silence despite a ping
//! ```
//!
//! The driver feeds bytes to [`Connection::next`] and acts on the [`ConnectionEvent`]s; whatever needs no
//! driver is answered inside. Payload does not travel through here: small reads are filled in place
//! ([`Connection::begin_inline_read`]), larger ones sent by reference, and write data can be received
//! straight into its buffer ([`Connection::payload_wanted`]).
//!
//! | file | subject |
//! |---|---|
//! | `connection/command.rs` | SCSI commands: admission and order |
//! | `connection/data_out.rs` | write data and R2Ts |
//! | `connection/data_in.rs` | read data, status, residuals |
//! | `connection/requests.rs` | NOP-Out, Logout, Login, the common part of numbered requests |
//! | `connection/text.rs` | text exchanges |
//! | `connection/task_management.rs` | task management |
//! | `connection/held.rs` | requests before their turn |
//! | `connection/reject.rs` | why a PDU is rejected |
//! | `connection/timers.rs` | silence, deadlines, Asynchronous Messages |
//!
//! Error recovery is level 0: one connection per session, no SNACK, no retransmission; a header
//! digest error closes the connection (RFC 7143 §7.8).

mod command;
mod data_in;
mod data_out;
mod held;
mod reject;
mod requests;
mod task_management;
#[cfg(test)]
mod tests;
mod text;
mod timers;

use std::borrow::Cow;
use std::collections::VecDeque;

use self::data_in::InlineRead;
use self::data_out::Incoming;
use self::held::Held;
use self::task_management::Pending;
use self::text::TextExchange;
use self::timers::Timers;
use super::command::{DataOutFailure, ScsiCommand, TaskId, TaskInfo, TaskManagementRequest};
use super::directory::Directory;
use super::login::{Claims, Login, LoginError};
use super::task::Tasks;
use super::window::Window;
use crate::encoder::Encoder;
use crate::framing::{Framing, HeaderStep, TrailerStep};
use crate::pdu::{Bhs, CmdSn, LoginRequest, LoginStatus, Opcode, StatSn, TargetTransferTag};
use crate::session_parameters::{OperationalParameters, SessionParameters, SessionType};
use longshore_wire::transmit::Transmit;

/// What the driver decides about a connection before it starts.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// A login that takes longer ends the connection.
    pub login_timeout_ms: u64,
    /// After so long without a byte from the initiator it is sent a NOP-In ping. 0: never.
    pub nop_interval_ms: u64,
    /// An unanswered ping ends the connection after this.
    pub nop_timeout_ms: u64,
    /// How long an initiator asked to log out may take (Parameter3 of the Async Message, rounded up
    /// to seconds).
    pub logout_timeout_ms: u64,
    /// Commands the initiator may have outstanding: the size of the command window.
    pub queue_depth: u32,
    /// Immediate commands beyond the window.
    pub immediate_commands: u32,
    /// The longest read answered by [`Connection::begin_inline_read`], in bytes.
    pub inline_read_max: u32,
    /// Makes target transfer tags hard to guess; any number.
    pub tag_seed: u64,
    /// Every login is refused with this status: shutting down, too many connections.
    pub refuse_logins: Option<LoginStatus>,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            login_timeout_ms: 15_000,
            nop_interval_ms: 30_000,
            nop_timeout_ms: 30_000,
            logout_timeout_ms: 5_000,
            queue_depth: 512,
            immediate_commands: 16,
            inline_read_max: 16 << 10,
            tag_seed: 0,
            refuse_logins: None,
        }
    }
}

/// What happened that the driver must act upon.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionEvent<'a> {
    /// The input is used up.
    NeedMore,
    /// The login has succeeded; [`Connection::session`] says with what.
    Established,
    /// A SCSI command whose turn it is. The driver calls `complete`, `begin_inline_read` or
    /// `want_data_out`, now or later.
    Command(ScsiCommand),
    /// Write data for a task: put `bytes` at `buffer_offset` of its data-out buffer. Owned bytes come
    /// with commands that had to wait for their turn.
    DataOut {
        /// Whose data.
        task: TaskId,
        /// Where it belongs.
        buffer_offset: u32,
        /// The data.
        bytes: Cow<'a, [u8]>,
    },
    /// All data that `want_data_out` asked for is there: execute the command.
    DataOutComplete {
        /// Which.
        task: TaskId,
    },
    /// The write data is unusable: complete the task with CHECK CONDITION, ABORTED COMMAND and the
    /// additional sense given. No more of its data will come.
    DataOutFailed {
        /// Which.
        task: TaskId,
        /// Why.
        failure: DataOutFailure,
    },
    /// A task management request; answer by `task_management_done`.
    TaskManagement(TaskManagementRequest),
    /// Nothing more will be accepted: send what is in the transmit queue, then close.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The initiator logged out of the session or this connection.
    #[error("logged out")]
    Logout,
    /// The login was refused, as the response says.
    #[error("{0}")]
    LoginRefused(LoginError),
    /// The login was refused because of [`ConnectionConfig::refuse_logins`].
    #[error("logins are not accepted now: {0}")]
    LoginsRefused(LoginStatus),
    /// The login took too long.
    #[error("the login took too long")]
    LoginTimeout,
    /// The peer does not speak iSCSI as a target can understand it.
    #[error("protocol error: {0}")]
    ProtocolError(&'static str),
    /// A header digest does not match (RFC 7143 §7.8).
    #[error("a header digest does not match")]
    HeaderDigestError,
    /// The initiator did not answer a ping.
    #[error("the initiator does not answer a NOP-In")]
    NopTimeout,
    /// The initiator did not log out when asked to.
    #[error("the initiator did not log out when it was asked to")]
    LogoutTimeout,
}

/// Values in force, where the data path finds them.
#[derive(Clone, Copy, Debug)]
struct NegotiatedLimits {
    session_type: SessionType,
    /// Longest data segment we take; the default of 8192 during login.
    target_max_recv_data_segment_length: u32,
    /// Longest data segment the initiator takes.
    initiator_max_recv_data_segment_length: u32,
    max_burst_length: u32,
    first_burst_length: u32,
    max_outstanding_r2t: u16,
    initial_r2t: bool,
    immediate_data: bool,
    /// Longest read sent by `begin_inline_read`: fits one Data-In PDU.
    inline_read_max: u32,
}

impl NegotiatedLimits {
    fn new(
        session_type: SessionType,
        operational: &OperationalParameters,
        inline_read_max: u32,
    ) -> Self {
        let segment = operational.initiator_max_recv_data_segment_length;
        Self {
            session_type,
            target_max_recv_data_segment_length: operational.target_max_recv_data_segment_length,
            initiator_max_recv_data_segment_length: segment,
            max_burst_length: operational.max_burst_length,
            first_burst_length: operational.first_burst_length,
            max_outstanding_r2t: operational.max_outstanding_r2t,
            initial_r2t: operational.initial_r2t,
            immediate_data: operational.immediate_data,
            inline_read_max: inline_read_max
                .min(segment)
                .min(operational.max_burst_length),
        }
    }
}

/// Memory for a data segment that is larger is given back after use.
const COLLECTED_KEPT: usize = 16 << 10;

/// See the module documentation.
#[derive(Debug)]
enum Phase {
    /// RFC 7143 §8.1.3: T-states S3 and S4.
    Login(Box<LoggingIn>),
    /// S5, logged in.
    FullFeature,
    /// Nothing more is accepted.
    Closed(CloseReason),
}

/// A login under way.
#[derive(Debug, Default)]
struct LoggingIn {
    login: Login,
    /// The request answered last; there is none before the login phase has started.
    last: Option<LoginRequest>,
}

/// What the next bytes of input are.
#[derive(Debug)]
enum Receiving {
    /// A header.
    Header,
    /// The data segment of [`Connection::current`], thrown away.
    Discarded,
    /// The data segment of [`Connection::current`], wanted as a whole.
    Collected,
    /// The same of a request before its turn.
    HeldRequest(CmdSn),
    /// The same of a Data-Out of such a request.
    HeldDataOut,
    /// Write data of a task.
    WriteData(Incoming),
}

/// A request whose turn has come, going through the machine again.
#[derive(Debug)]
struct Replay {
    stream: Vec<u8>,
    at: usize,
}

/// Gives out target transfer tags: every value but the reserved one, in an order that depends on the
/// seed, none twice within 2^32.
#[derive(Debug)]
struct TransferTags {
    counter: u32,
    seed: u32,
}

impl TransferTags {
    const fn new(seed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = seed.to_be_bytes();
        Self {
            counter: u32::from_be_bytes([a, b, c, d]),
            seed: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// A bijection of the counter (xor, odd multiplication, xor-shift), so no value comes early.
    fn next(&mut self) -> TargetTransferTag {
        loop {
            self.counter = self.counter.wrapping_add(1);
            let mixed = (self.counter ^ self.seed).wrapping_mul(0x9e37_79b1);
            let tag = TargetTransferTag(mixed ^ (mixed >> 15));
            if !tag.is_reserved() {
                return tag;
            }
        }
    }
}

/// One connection of a target. See the module documentation.
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    phase: Phase,
    /// Of a login that ended the connection.
    claims: Option<Box<Claims>>,
    limits: NegotiatedLimits,
    framing: Framing,
    receiving: Receiving,
    /// Header of the PDU being received, or received last.
    current: Bhs,
    /// Data segment of a PDU that is wanted as a whole; bounded by what we declared for ourselves.
    collected: Vec<u8>,
    encoder: Encoder,
    window: Window,
    stat_sn: StatSn,
    transfer_tags: TransferTags,
    tasks: Tasks,
    inline_read: Option<InlineRead>,
    task_management: Pending,
    text: TextExchange,
    held: Held,
    replay: Option<Replay>,
    /// Frames what is replayed, where there are no digests.
    replay_framing: Framing,
    /// Events that wait to be picked up.
    ready: VecDeque<ConnectionEvent<'static>>,
    timers: Timers,
    session: Option<SessionParameters>,
}

impl ConnectionEvent<'_> {
    /// The same with the bytes it refers to.
    fn into_owned(self) -> ConnectionEvent<'static> {
        match self {
            Self::NeedMore => ConnectionEvent::NeedMore,
            Self::Established => ConnectionEvent::Established,
            Self::Command(command) => ConnectionEvent::Command(command),
            Self::DataOut {
                task,
                buffer_offset,
                bytes,
            } => {
                let bytes = Cow::Owned(bytes.into_owned());
                ConnectionEvent::DataOut {
                    task,
                    buffer_offset,
                    bytes,
                }
            }
            Self::DataOutComplete { task } => ConnectionEvent::DataOutComplete { task },
            Self::DataOutFailed { task, failure } => {
                ConnectionEvent::DataOutFailed { task, failure }
            }
            Self::TaskManagement(request) => ConnectionEvent::TaskManagement(request),
            Self::Close(reason) => ConnectionEvent::Close(reason),
        }
    }

    /// The task it is about, for those that wait.
    const fn data_out_task(&self) -> Option<TaskId> {
        match self {
            Self::DataOut { task, .. }
            | Self::DataOutComplete { task }
            | Self::DataOutFailed { task, .. } => Some(*task),
            Self::NeedMore
            | Self::Established
            | Self::Command(_)
            | Self::TaskManagement(_)
            | Self::Close(_) => None,
        }
    }
}

impl Connection {
    /// A connection that waits for its first Login Request.
    #[must_use]
    pub fn new(config: ConnectionConfig, now_ms: u64) -> Self {
        let defaults = OperationalParameters::default();
        Self {
            phase: Phase::Login(Box::default()),
            claims: None,
            limits: NegotiatedLimits::new(SessionType::Normal, &defaults, 0),
            framing: Framing::new(),
            receiving: Receiving::Header,
            current: Bhs::new(Opcode::NOP_OUT),
            collected: Vec::new(),
            encoder: Encoder::default(),
            window: Window::new(CmdSn(0), config.queue_depth),
            stat_sn: StatSn(0),
            transfer_tags: TransferTags::new(config.tag_seed),
            tasks: Tasks::new(0, 0),
            inline_read: None,
            task_management: Pending::default(),
            text: TextExchange::default(),
            held: Held::default(),
            replay: None,
            replay_framing: Framing::new(),
            ready: VecDeque::new(),
            timers: Timers::new(now_ms),
            session: None,
            config,
        }
    }

    /// Takes bytes off the front of `input` until something happens or the input is used up. What is
    /// left of a PDU that has not arrived in full stays inside, so the input need not be kept.
    ///
    /// Write data of a command is delivered from the first call after its [`ConnectionEvent::Command`] on; a
    /// driver without room for it stops calling. An event's task may be completed at any time.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
        now_ms: u64,
    ) -> ConnectionEvent<'a> {
        if !input.is_empty() {
            self.timers.heard(now_ms);
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            let event = if self.has_replay() {
                self.step_replay(directory, transmit)
            } else {
                self.step(input, directory, transmit)
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Takes the next piece of input. `None`: there may be more to do at once.
    #[inline]
    fn step<'a>(
        &mut self,
        input: &mut &'a [u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'a>> {
        match &self.receiving {
            Receiving::Header => {
                if let Phase::Closed(reason) = &self.phase {
                    return Some(ConnectionEvent::Close(reason.clone()));
                }
                match self.framing.take_header(input) {
                    HeaderStep::NeedMore => Some(ConnectionEvent::NeedMore),
                    HeaderStep::DigestError => Some(self.close(CloseReason::HeaderDigestError)),
                    HeaderStep::Header(bhs) => self.header(bhs, directory, transmit),
                }
            }
            Receiving::WriteData(_) => self.write_data(input, transmit),
            Receiving::Discarded
            | Receiving::Collected
            | Receiving::HeldRequest(_)
            | Receiving::HeldDataOut => self.whole_segment(input, directory, transmit),
        }
    }

    /// A header has arrived.
    #[inline]
    fn header(
        &mut self,
        bhs: Bhs,
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let length = bhs.data_segment_length();
        if length > self.limits.target_max_recv_data_segment_length {
            if matches!(self.phase, Phase::Login(_)) && bhs.opcode() == Opcode::LOGIN_REQUEST {
                return Some(self.refuse_long_login(&bhs, transmit));
            }
            // §7.7: inconsistent lengths are format errors, which end the connection.
            let problem = "data segment longer than MaxRecvDataSegmentLength";
            return Some(self.close(CloseReason::ProtocolError(problem)));
        }
        self.current = bhs;
        self.framing.begin_segment(length);
        if bhs.opcode() == Opcode::SCSI_COMMAND && matches!(self.phase, Phase::FullFeature) {
            return self.command_header(&bhs, transmit);
        }
        self.other_header(&bhs, directory, transmit)
    }

    /// Takes a data segment that is wanted as a whole, or not at all.
    fn whole_segment<'a>(
        &mut self,
        input: &mut &'a [u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'a>> {
        if self.framing.remaining() > 0 {
            if input.is_empty() {
                return Some(ConnectionEvent::NeedMore);
            }
            let bytes = self.framing.take_data(u32::MAX, input);
            if !matches!(self.receiving, Receiving::Discarded) {
                self.collected.extend_from_slice(bytes);
            }
            return None;
        }
        let TrailerStep::Done { digest_ok } = self.framing.take_trailer(input) else {
            return Some(ConnectionEvent::NeedMore);
        };
        let receiving = std::mem::replace(&mut self.receiving, Receiving::Header);
        let bhs = self.current;
        if matches!(receiving, Receiving::Discarded) {
            return None;
        }
        if !digest_ok {
            if matches!(self.phase, Phase::FullFeature) {
                self.refuse(&bhs, &[], reject::Refusal::DataDigest, transmit);
            }
            return None;
        }
        let data = std::mem::take(&mut self.collected);
        let event = match receiving {
            Receiving::HeldRequest(cmd_sn) => {
                let held = self.held.hold(cmd_sn, &bhs, self.framing.ahs(), &data);
                held.err().map(|held::Full| self.close_disordered())
            }
            Receiving::HeldDataOut => {
                let held = self.held.hold_data_out(&bhs, &data);
                held.err().map(|held::Full| self.close_disordered())
            }
            Receiving::Header
            | Receiving::Discarded
            | Receiving::Collected
            | Receiving::WriteData(_) => self.request(&bhs, &data, directory, transmit),
        };
        if data.capacity() <= COLLECTED_KEPT {
            self.collected = data;
        }
        event
    }

    fn close_disordered(&mut self) -> ConnectionEvent<'static> {
        self.close(CloseReason::ProtocolError(
            "too many requests before their turn",
        ))
    }

    /// Whether a request that had to wait goes through the machine, or can start to.
    #[inline]
    fn has_replay(&mut self) -> bool {
        if self.replay.is_some() {
            return true;
        }
        if self.held.is_empty() || !matches!(self.receiving, Receiving::Header) {
            return false;
        }
        self.start_replay()
    }

    #[cold]
    fn start_replay(&mut self) -> bool {
        while let Some(stream) = self.held.take(self.window.exp_cmd_sn()) {
            if !stream.is_empty() {
                self.replay = Some(Replay { stream, at: 0 });
                return true;
            }
            // It only counts as received (§11.6.1 b): its place is free at once.
            self.window.receive();
            self.window.give_back();
        }
        false
    }

    /// As [`Self::step`], on what had to wait.
    #[cold]
    fn step_replay(
        &mut self,
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let mut replay = self.replay.take()?;
        std::mem::swap(&mut self.framing, &mut self.replay_framing);
        let mut rest = &replay.stream[replay.at..];
        let event = self
            .step(&mut rest, directory, transmit)
            .map(ConnectionEvent::into_owned);
        replay.at = replay.stream.len() - rest.len();
        std::mem::swap(&mut self.framing, &mut self.replay_framing);
        if replay.at < replay.stream.len() || !matches!(self.receiving, Receiving::Header) {
            self.replay = Some(replay);
        }
        event.filter(|event| *event != ConnectionEvent::NeedMore)
    }

    /// A login that ends here leaves behind what the initiator said of itself.
    fn enter_closed(&mut self, reason: CloseReason) {
        if let Phase::Login(logging_in) = &self.phase {
            self.claims = Some(Box::new(logging_in.login.claims().clone()));
        }
        self.phase = Phase::Closed(reason);
    }

    /// Ends the connection: all further input is ignored.
    #[cold]
    fn close(&mut self, reason: CloseReason) -> ConnectionEvent<'static> {
        self.enter_closed(reason.clone());
        self.receiving = Receiving::Header;
        self.replay = None;
        self.ready.clear();
        ConnectionEvent::Close(reason)
    }

    /// Uses up a StatSN.
    #[inline]
    const fn next_stat_sn(&mut self) -> StatSn {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    /// Frees a task: its place in the window, its slot, and what of it is still under way.
    #[inline]
    fn end_task(&mut self, task: TaskId) {
        if let Receiving::WriteData(incoming) = &self.receiving
            && incoming.task == task
        {
            self.receiving = Receiving::Discarded;
        }
        if !self.ready.is_empty() {
            self.ready
                .retain(|event| event.data_out_task() != Some(task));
        }
        if self.tasks.remove(task) {
            self.window.give_back();
        }
    }

    /// What the initiator said of itself in a login that ended this connection.
    #[must_use]
    pub fn claims(&self) -> Option<&Claims> {
        self.claims.as_deref()
    }

    /// What the login settled, once it has. Digests and limits are in force from then on.
    #[must_use]
    pub const fn session(&self) -> Option<&SessionParameters> {
        self.session.as_ref()
    }

    /// How many tasks there can be at a time: task numbers are below this. Known once established.
    #[must_use]
    pub fn task_capacity(&self) -> usize {
        self.tasks.capacity()
    }

    /// The live tasks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.live()
    }

    /// What is known of a live task.
    ///
    /// # Panics
    /// When the task is not live.
    #[must_use]
    pub fn task_info(&self, task: TaskId) -> TaskInfo {
        self.tasks.get(task).info()
    }

    /// Whether part of a PDU has arrived and the rest has not.
    #[must_use]
    pub fn is_inside_pdu(&self) -> bool {
        !matches!(self.receiving, Receiving::Header) || self.framing.is_inside_header()
    }
}
