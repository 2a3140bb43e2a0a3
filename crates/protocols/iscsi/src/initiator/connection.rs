//! One connection of an initiator: login, then full feature phase, then logout or failure; the mirror
//! of `server::connection`.
//!
//! ```text
//!                last Login Response           Logout Response, error
//!   Login ────────────────────────► FullFeature ─────────────────────► Closed
//! ```
//!
//! The driver submits commands while there is [room](Connection::room), feeds what it receives to
//! [`Connection::next`], puts [`ConnectionEvent::DataIn`] bytes where they belong, and answers [`ConnectionEvent::R2t`] by
//! [`Connection::send_data_out`], at once or when it has the data. Error recovery is level 0: whatever
//! is lost or damaged ends the connection, and the session is to be established again (RFC 7143
//! §7.1.4.4).
//!
//! Payload need not pass through here: what is sent may be referred to ([`WriteData::Buffer`](longshore_wire::transmit::WriteData)), and
//! what is received can go straight to its place ([`Connection::payload_wanted`]). Once warm, nothing is
//! allocated but for sense data.
//!
//! Data and R2Ts may come in any order of offset where DataPDUInOrder=No or DataSequenceInOrder=No was
//! negotiated; read data that overlaps then goes unnoticed, so that both are better left at Yes. A target that asks for the negotiation of parameters (§11.9.1) gets it without the driver's
//! doing: an empty text request, whose answer may change its MaxRecvDataSegmentLength. There are no
//! timers: a driver that has waited too long for anything closes the socket.
//!
//! A driver need not know the phase before a call: before the end of the login, after a logout and after the
//! end of the connection every request is refused with [`NotSent::Closed`], no data is sent and no payload
//! wanted, and [`Connection::next`] goes on to report why the connection closed.

mod requests;
mod responses;
#[cfg(test)]
mod tests;

use self::responses::Incoming;
use super::login::{Login, LoginConfig, LoginError, LoginStep};
use crate::encoder::Encoder;
use crate::framing::{Framing, HeaderStep, TrailerStep};
use crate::pdu::{
    AsyncMessage, Bhs, CmdSn, CommandWindow, DataSn, InitiatorTaskTag, LoginRequest, LoginResponse,
    LogoutResult, Lun, Opcode, R2tSn, RejectReason, StatSn, TargetTransferTag,
    TaskManagementResponseCode,
};
use crate::session_parameters::{OperationalParameters, SessionParameters};
use longshore_wire::transmit::Transmit;

/// Dense number of a command of this connection, reused after its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(pub u16);

/// A SCSI command to send.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The addressed logical unit.
    pub lun: Lun,
    /// 6 to 260 bytes.
    pub cdb: &'a [u8],
    /// ATTR.
    pub attribute: crate::pdu::Attribute,
    /// To be delivered at once.
    pub immediate: bool,
    /// What is to be moved.
    pub transfer: Transfer,
}

/// What a command moves: the direction, and EDTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Nothing.
    None,
    /// To the initiator, so many bytes.
    Read(u32),
    /// To the target, so many bytes.
    Write(u32),
}

/// The target wants write data; answer by [`Connection::send_data_out`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2tRequest {
    /// Whose data.
    pub command: CommandId,
    /// Tells an R2T of an earlier command in this slot.
    tag: InitiatorTaskTag,
    /// For the answer.
    pub target_transfer_tag: TargetTransferTag,
    /// The first byte wanted.
    pub buffer_offset: u32,
    /// How many.
    pub length: u32,
}

/// Where the next bytes of the stream belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadWanted {
    /// Whose data.
    pub command: CommandId,
    /// Where it belongs.
    pub buffer_offset: u32,
    /// At most so many bytes.
    pub length: u32,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutcome {
    /// SAM status; `None` when the target failed to execute the command (§11.4.3), or refused it.
    pub status: Option<u8>,
    /// Why the target refused the PDU that carried the command, if it did (§11.17).
    pub rejected: Option<RejectReason>,
    /// Sense data.
    pub sense: Vec<u8>,
    /// Difference between what was expected and what there was to move.
    pub residual: Residual,
    /// Bytes of read data that have come.
    pub data_in_length: u32,
}

/// Difference between EDTL and what a command moved (§11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// None.
    None,
    /// So much more could have been moved.
    Overflow(u32),
    /// So much less was moved.
    Underflow(u32),
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionEvent<'a> {
    /// The input is used up.
    NeedMore,
    /// The login has succeeded; [`Connection::session`] says with what.
    Established,
    /// Read data: put `bytes` at `buffer_offset` of the command's buffer.
    DataIn {
        /// Whose data.
        command: CommandId,
        /// Where it belongs.
        buffer_offset: u32,
        /// The data.
        bytes: &'a [u8],
    },
    /// The target wants write data.
    R2t(R2tRequest),
    /// A command has ended.
    Completed {
        /// Which.
        command: CommandId,
        /// How.
        outcome: CommandOutcome,
    },
    /// A task management request has its answer.
    TaskManagementDone {
        /// What [`Connection::task_management`] returned.
        request: InitiatorTaskTag,
        /// How it went.
        response: TaskManagementResponseCode,
    },
    /// A ping has its answer.
    Pong {
        /// What [`Connection::ping`] returned.
        request: InitiatorTaskTag,
        /// The data of the ping, as far as the target gave it back.
        data: Vec<u8>,
    },
    /// A text request has its whole answer.
    Text(Vec<u8>),
    /// The target refused a PDU other than a command, whose end is reported like any other.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// The header of the PDU refused.
        header: Vec<u8>,
    },
    /// News of the target: it asks for a logout, or is about to drop the connection.
    /// [`Connection::data_segment`] has what came with it.
    Async(AsyncMessage),
    /// The logout has its answer. After `CLOSED` the connection is to be closed.
    LoggedOut(LogoutResult),
    /// Nothing more will be accepted: close.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// We logged out.
    Logout,
    /// The login has failed.
    Login(LoginError),
    /// The target broke a rule.
    ProtocolError(&'static str),
    /// A header digest does not match.
    HeaderDigestError,
    /// A data digest does not match. At level 0 the session has to be recovered (§7.8).
    DataDigestError,
    /// The driver placed bytes that were not wanted ([`Connection::payload_received`]).
    Initiator,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The window is closed, all command numbers are in use, or a text request is under way.
    #[error("the session takes no further request now")]
    Busy,
    /// The connection takes no requests: it is closed, logging out, or not logged in yet. Where it is closed,
    /// [`Connection::next`] says why.
    #[error("the session takes no requests")]
    Closed,
}

#[derive(Debug)]
enum Phase {
    Login(Box<Login>),
    FullFeature,
    Closed(CloseReason),
}

#[derive(Clone, Copy, Debug)]
enum Receiving {
    Header,
    /// The data segment of `current`, wanted as a whole.
    Collected,
    /// Read data of a command.
    DataIn(Incoming),
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    live: bool,
    generation: u16,
    lun: Lun,
    transfer: Transfer,
    /// Of the request, for ABORT TASK.
    cmd_sn: CmdSn,
    /// Bytes of read data that have come.
    received: u32,
    /// The number of the next Data-In.
    data_sn: DataSn,
    /// The number of the next R2T.
    r2t_sn: R2tSn,
    /// Bytes that R2Ts have asked for.
    requested: u32,
    /// R2Ts that have not been answered.
    r2ts: u16,
}

impl Slot {
    const FREE: Self = Self {
        live: false,
        generation: 0,
        lun: Lun::ZERO,
        transfer: Transfer::None,
        cmd_sn: CmdSn(0),
        received: 0,
        data_sn: DataSn(0),
        r2t_sn: R2tSn(0),
        requested: 0,
        r2ts: 0,
    };
}

/// A logout that has no answer.
#[derive(Clone, Copy, Debug)]
struct Logout {
    tag: InitiatorTaskTag,
    /// It ends this connection: no commands follow it (§11.14).
    is_last: bool,
}

/// A text exchange under way.
#[derive(Debug)]
struct TextExchange {
    tag: InitiatorTaskTag,
    /// It answers the target's request to negotiate, not one of the driver's.
    negotiation: bool,
    /// What is still to be sent of the request.
    unsent: Vec<u8>,
    answer: Vec<u8>,
}

/// Longest answer to a text request that is joined.
const TEXT_ANSWER_MAX: usize = 1 << 20;

/// Tags with this bit name requests other than SCSI commands.
const OTHER_REQUEST: u32 = 0x8000_0000;

/// One connection of an initiator. See the module documentation.
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    framing: Framing,
    receiving: Receiving,
    current: Bhs,
    collected: Vec<u8>,
    encoder: Encoder,
    /// The number of the next command that is not immediate.
    cmd_sn: CmdSn,
    window: CommandWindow,
    exp_stat_sn: StatSn,
    slots: Vec<Slot>,
    free: Vec<u16>,
    next_request: u32,
    text: Option<TextExchange>,
    /// A logout is under way.
    logout: Option<Logout>,
    limits: OperationalParameters,
    session: Option<SessionParameters>,
}

impl Connection {
    /// Starts a login: its first request goes to `transmit`. `commands` is how many commands can be
    /// under way. `random` fills its argument with unpredictable bytes.
    #[must_use]
    pub fn new(
        login: LoginConfig,
        commands: u16,
        random: &mut dyn FnMut(&mut [u8]),
        transmit: &mut Transmit,
    ) -> Self {
        let cmd_sn = login.cmd_sn;
        let mut login = Login::new(login, random);
        let first = login.start();
        let connection = Self {
            phase: Phase::Login(Box::new(login)),
            framing: Framing::new(),
            receiving: Receiving::Header,
            current: Bhs::new(Opcode::NOP_IN),
            collected: Vec::new(),
            encoder: Encoder::default(),
            cmd_sn,
            window: CommandWindow {
                exp_cmd_sn: cmd_sn,
                max_cmd_sn: CmdSn(cmd_sn.0.wrapping_sub(1)),
            },
            exp_stat_sn: StatSn(0),
            slots: vec![Slot::FREE; usize::from(commands)],
            free: (0..commands).rev().collect(),
            next_request: 0,
            text: None,
            logout: None,
            limits: OperationalParameters::default(),
            session: None,
        };
        if let LoginStep::Send { request, data } = first {
            connection.send_login(&request, &data, transmit);
        }
        connection
    }

    fn send_login(&self, request: &LoginRequest, data: &[u8], transmit: &mut Transmit) {
        self.encoder
            .push(request.encode_immediate(), data, transmit);
    }

    /// Takes bytes off the front of `input` until something happens or the input is used up.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> ConnectionEvent<'a> {
        loop {
            if let Phase::Closed(reason) = &self.phase {
                return ConnectionEvent::Close(reason.clone());
            }
            let event = match self.receiving {
                Receiving::Header => match self.framing.take_header(input) {
                    HeaderStep::NeedMore => Some(ConnectionEvent::NeedMore),
                    HeaderStep::DigestError => Some(self.close(CloseReason::HeaderDigestError)),
                    HeaderStep::Header(bhs) => self.header(bhs, transmit),
                },
                Receiving::Collected => self.collect(input, transmit),
                Receiving::DataIn(incoming) => self.data_in(incoming, input),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    #[inline]
    fn header(&mut self, bhs: Bhs, transmit: &mut Transmit) -> Option<ConnectionEvent<'static>> {
        let length = bhs.data_segment_length();
        if length > self.limits.initiator_max_recv_data_segment_length {
            return Some(self.protocol_error("data segment longer than MaxRecvDataSegmentLength"));
        }
        self.framing.begin_segment(length);
        if bhs.opcode() == Opcode::DATA_IN && matches!(self.phase, Phase::FullFeature) {
            return match self.data_in_header(&bhs) {
                Ok(incoming) => {
                    self.receiving = Receiving::DataIn(incoming);
                    None
                }
                Err(problem) => Some(self.protocol_error(problem)),
            };
        }
        self.collected.clear();
        if length == 0 {
            let event = self.response(&bhs, &[], transmit);
            return event.unwrap_or_else(|problem| Some(self.protocol_error(problem)));
        }
        self.current = bhs;
        self.receiving = Receiving::Collected;
        None
    }

    #[cold]
    fn collect(
        &mut self,
        input: &mut &[u8],
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let bytes = self.framing.take_data(u32::MAX, input);
        self.collected.extend_from_slice(bytes);
        if self.framing.remaining() > 0 {
            return Some(ConnectionEvent::NeedMore);
        }
        match self.framing.take_trailer(input) {
            TrailerStep::NeedMore => Some(ConnectionEvent::NeedMore),
            TrailerStep::Done { digest_ok: false } => {
                Some(self.close(CloseReason::DataDigestError))
            }
            TrailerStep::Done { digest_ok: true } => {
                self.receiving = Receiving::Header;
                let data = std::mem::take(&mut self.collected);
                let bhs = self.current;
                let event = self.response(&bhs, &data, transmit);
                self.collected = data;
                event.unwrap_or_else(|problem| Some(self.protocol_error(problem)))
            }
        }
    }

    fn login_response(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let response = LoginResponse::decode(bhs);
        let Phase::Login(login) = &mut self.phase else {
            return Some(self.protocol_error("a Login Response after the login"));
        };
        match login.handle(&response, data) {
            Ok(LoginStep::Send { request, data }) => {
                self.send_login(&request, &data, transmit);
                None
            }
            Ok(LoginStep::Finished(session)) => {
                self.exp_stat_sn = response.stat_sn.next();
                self.window = response.window;
                self.limits = session.operational.clone();
                let (header, data) = (self.limits.header_digest, self.limits.data_digest);
                self.framing.set_digests(header, data);
                self.encoder.set_digests(header, data);
                self.session = Some(*session);
                self.phase = Phase::FullFeature;
                Some(ConnectionEvent::Established)
            }
            Err(error) => Some(self.close(CloseReason::Login(error))),
        }
    }

    #[cold]
    fn close(&mut self, reason: CloseReason) -> ConnectionEvent<'static> {
        self.phase = Phase::Closed(reason.clone());
        ConnectionEvent::Close(reason)
    }

    #[cold]
    fn protocol_error(&mut self, problem: &'static str) -> ConnectionEvent<'static> {
        self.close(CloseReason::ProtocolError(problem))
    }

    /// What the login settled, once it has.
    #[must_use]
    pub const fn session(&self) -> Option<&SessionParameters> {
        self.session.as_ref()
    }

    /// Whether commands can be sent, window and slots permitting.
    #[inline]
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        let is_leaving = matches!(self.logout, Some(Logout { is_last: true, .. }));
        matches!(self.phase, Phase::FullFeature) && !is_leaving
    }

    /// Values of the operational keys that are in force now.
    #[must_use]
    pub const fn operational(&self) -> &OperationalParameters {
        &self.limits
    }

    /// How many commands the window lets pass now, immediate ones aside.
    #[inline]
    #[must_use]
    pub const fn window_open(&self) -> u32 {
        let open = self.window.max_cmd_sn.next().steps_since(self.cmd_sn);
        if open < 1 << 31 { open } else { 0 }
    }

    /// How many commands can be under way.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// How many commands there are numbers for.
    #[inline]
    #[must_use]
    pub const fn slots_free(&self) -> usize {
        self.free.len()
    }

    /// How many commands that are not immediate can be submitted now.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_ready() {
            self.slots_free().min(self.window_open() as usize)
        } else {
            0
        }
    }

    /// The commands under way.
    pub fn under_way(&self) -> impl Iterator<Item = CommandId> + '_ {
        (0_u16..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.live)
            .map(|(number, _)| CommandId(number))
    }

    /// The data segment of the PDU that the last event was about, if that had one and was no Data-In.
    #[must_use]
    pub fn data_segment(&self) -> &[u8] {
        &self.collected
    }

    /// The CmdSN of a command under way, for ABORT TASK.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn cmd_sn_of(&self, command: CommandId) -> CmdSn {
        self.slots[usize::from(command.0)].cmd_sn
    }

    /// The tag of the command in a slot.
    #[inline]
    fn tag_of(&self, id: CommandId) -> InitiatorTaskTag {
        let generation = self.slots[usize::from(id.0)].generation;
        InitiatorTaskTag(u32::from(generation) << 16 | u32::from(id.0))
    }

    /// Whether the command in a slot is under way and has this tag.
    #[inline]
    fn is_live(&self, id: CommandId, tag: InitiatorTaskTag) -> bool {
        let slot = self.slots.get(usize::from(id.0));
        slot.is_some_and(|slot| slot.live) && self.tag_of(id) == tag
    }

    /// The live command with this tag.
    #[inline]
    fn slot_mut(&mut self, tag: InitiatorTaskTag) -> Option<(CommandId, &mut Slot)> {
        let [generation_high, generation_low, high, low] = tag.0.to_be_bytes();
        let id = CommandId(u16::from_be_bytes([high, low]));
        let generation = u16::from_be_bytes([generation_high, generation_low]);
        let slot = self.slots.get_mut(usize::from(id.0))?;
        (slot.live && slot.generation == generation).then_some((id, slot))
    }
}
