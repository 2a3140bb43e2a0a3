//! What a connection knows: its phase, what it receives, its tasks. The files above decide what it does.

use std::collections::VecDeque;

use super::event::{CloseReason, ConnectionConfig, ConnectionEvent};
use super::held::Held;
use super::limits::NegotiatedLimits;
use super::pending::Pending;
use super::transfer_tags::TransferTags;
use crate::encoder::Encoder;
use crate::framing::Framing;
use crate::pdu::{
    self, Bhs, CmdSn, InitiatorTaskTag, LoginRequest, Opcode, StatSn, TargetTransferTag,
};
use crate::server::command::{TaskId, TaskInfo};
use crate::server::login::{Claims, Login};
use crate::server::task::{InlineRead, Task, Tasks};
use crate::server::window::Window;
use crate::session_parameters::{OperationalParameters, SessionParameters, SessionType};
use crate::text::{TextAssembly, TextSegments};

/// See the module documentation.
#[derive(Debug)]
pub(super) enum Phase {
    /// RFC 7143 §8.1.3: T-states S3 and S4.
    Login(Box<LoggingIn>),
    /// State S5 of the connection, LOGGED_IN (RFC 7143 §8.1.3).
    FullFeature,
    /// Nothing more is accepted.
    Closed(CloseReason),
}

/// A login under way.
#[derive(Debug, Default)]
pub(super) struct LoggingIn {
    pub(super) login: Login,
    /// The request answered last; there is none before the login phase has started.
    pub(super) last: Option<LoginRequest>,
}

/// What the next bytes of input are.
#[derive(Debug)]
pub(super) enum Receiving {
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

/// A data segment of write data under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) task: TaskId,
    /// Where its next byte belongs.
    pub(super) offset: u32,
    pub(super) sequence: Sequence,
    /// F: the last PDU of its sequence.
    pub(super) is_final: bool,
}

/// Which sequence of the task a PDU belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    Immediate,
    Unsolicited,
    Solicited(pdu::TargetTransferTag),
}

impl Incoming {
    /// Where a piece of the segment goes: how many of `remaining` bytes are wanted.
    #[inline]
    pub(super) fn wanted(&self, task: &Task, remaining: u32) -> u32 {
        task.data_out
            .limit()
            .saturating_sub(self.offset)
            .min(remaining)
    }
}

/// A request whose turn has come, going through the machine again.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) stream: Vec<u8>,
    pub(super) at: usize,
}

/// The text exchange of a connection.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    /// Who may go on, and by which tag; `None` between exchanges.
    pub(super) open: Option<(InitiatorTaskTag, TargetTransferTag)>,
    pub(super) incoming: TextAssembly,
    pub(super) outgoing: TextSegments,
    /// The initiator's new MaxRecvDataSegmentLength, in force when the exchange is over (§13.12).
    pub(super) initiator_max_recv_data_segment_length: Option<u32>,
}

/// Times that deadlines depend on, in milliseconds of the driver's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    pub(super) started_ms: u64,
    pub(super) last_heard_ms: u64,
    pub(super) ping: Option<Ping>,
    pub(super) logout_deadline_ms: Option<u64>,
    /// The window was closed and has opened without a response that says so.
    pub(super) announce_window: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ping {
    pub(super) target_transfer_tag: TargetTransferTag,
    pub(super) sent_ms: u64,
}

impl Timers {
    const fn new(now_ms: u64) -> Self {
        Self {
            started_ms: now_ms,
            last_heard_ms: now_ms,
            ping: None,
            logout_deadline_ms: None,
            announce_window: false,
        }
    }

    /// Bytes have come in.
    #[inline]
    pub(super) const fn heard(&mut self, now_ms: u64) {
        self.last_heard_ms = now_ms;
    }

    /// A NOP-Out answers a ping.
    pub(super) fn ping_answered(&mut self, tag: TargetTransferTag) {
        if self
            .ping
            .is_some_and(|ping| ping.target_transfer_tag == tag)
        {
            self.ping = None;
        }
    }
}

/// One connection of a target. See the module documentation.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: ConnectionConfig,
    pub(super) phase: Phase,
    /// Of a login that ended the connection.
    pub(super) claims: Option<Box<Claims>>,
    pub(super) limits: NegotiatedLimits,
    pub(super) framing: Framing,
    pub(super) receiving: Receiving,
    /// Header of the PDU being received, or received last.
    pub(super) current: Bhs,
    /// Data segment of a PDU that is wanted as a whole; bounded by what we declared for ourselves.
    pub(super) collected: Vec<u8>,
    pub(super) encoder: Encoder,
    pub(super) window: Window,
    pub(super) stat_sn: StatSn,
    pub(super) transfer_tags: TransferTags,
    pub(super) tasks: Tasks,
    pub(super) inline_read: Option<InlineRead>,
    pub(super) task_management: Pending,
    pub(super) text: TextExchange,
    pub(super) held: Held,
    pub(super) replay: Option<Replay>,
    /// Frames what is replayed, where there are no digests.
    pub(super) replay_framing: Framing,
    /// Events that wait to be picked up.
    pub(super) ready: VecDeque<ConnectionEvent<'static>>,
    pub(super) timers: Timers,
    pub(super) session: Option<SessionParameters>,
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

    /// A login that ends here leaves behind what the initiator said of itself.
    pub(super) fn enter_closed(&mut self, reason: CloseReason) {
        if let Phase::Login(logging_in) = &self.phase {
            self.claims = Some(Box::new(logging_in.login.claims().clone()));
        }
        self.phase = Phase::Closed(reason);
    }

    /// Ends the connection: all further input is ignored.
    #[cold]
    pub(super) fn close(&mut self, reason: CloseReason) -> ConnectionEvent<'static> {
        self.enter_closed(reason.clone());
        self.receiving = Receiving::Header;
        self.replay = None;
        self.ready.clear();
        ConnectionEvent::Close(reason)
    }

    /// Uses up a StatSN.
    #[inline]
    pub(super) const fn next_stat_sn(&mut self) -> StatSn {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    /// Frees a task: its place in the window, its slot, and what of it is still under way.
    #[inline]
    pub(super) fn end_task(&mut self, task: TaskId) {
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

    /// A numbered request is accepted. Those refused keep their number expected (§7.3).
    pub(super) fn receive_numbered(&mut self, immediate: bool) {
        if !immediate {
            self.window.receive();
        }
    }

    /// A numbered request is about to be answered.
    pub(super) fn give_back_numbered(&mut self, immediate: bool) {
        if !immediate {
            self.window.give_back();
        }
    }

    /// Whether a tag names a task of any kind.
    #[inline]
    pub(super) fn tag_in_use(&self, tag: InitiatorTaskTag) -> bool {
        self.tasks.find(tag).is_some() || self.task_management.contains(tag)
    }

    /// The initiator declared another MaxRecvDataSegmentLength in full feature phase (§13.12).
    pub(super) fn set_initiator_max_recv_data_segment_length(&mut self, length: u32) {
        let session = self
            .session
            .as_mut()
            .expect("there is a session in full feature phase");
        session.operational.initiator_max_recv_data_segment_length = length;
        self.limits = NegotiatedLimits::new(
            session.session_type,
            &session.operational,
            self.config.inline_read_max,
        );
    }
}
