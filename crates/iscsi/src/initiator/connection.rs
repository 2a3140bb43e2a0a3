//! One connection of an initiator: login, then full feature phase, then logout or failure; the mirror
//! of `target::connection`.
//!
//! ```text
//!                last Login Response           Logout Response, error
//!   Login ────────────────────────► FullFeature ─────────────────────► Closed
//! ```
//!
//! The driver submits commands while the window is open ([`Connection::submit`]), feeds what it
//! receives to [`Connection::next`], puts [`Event::DataIn`] bytes where they belong, and answers
//! [`Event::R2t`] by [`Connection::send_data_out`]. Write data passed to these calls is copied into the
//! transmit queue. Error recovery is level 0: whatever is lost or damaged ends the connection, and
//! the session is to be established again (RFC 7143 §7.1.4.4).

mod requests;
mod responses;

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
    /// For the answer.
    pub target_transfer_tag: TargetTransferTag,
    /// The first byte wanted.
    pub buffer_offset: u32,
    /// How many.
    pub length: u32,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// SAM status; `None` when the target failed to execute the command (§11.4.3).
    pub status: Option<u8>,
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
pub enum Event<'a> {
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
        outcome: Outcome,
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
    /// The target refused a PDU.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// The header of the PDU refused.
        header: Vec<u8>,
    },
    /// News of the target: it asks for a logout, or is about to drop the connection.
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
}

/// The command cannot be sent now: the window is closed, or all command numbers are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

#[derive(Debug)]
enum Phase {
    Login(Box<Login>),
    FullFeature,
    Closed(CloseReason),
}

#[derive(Debug)]
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
    received: u32,
    data_sn: DataSn,
    r2t_sn: R2tSn,
}

/// A text exchange under way.
#[derive(Debug)]
struct TextExchange {
    tag: InitiatorTaskTag,
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
        let slot = Slot {
            live: false,
            generation: 0,
            lun: Lun::ZERO,
            transfer: Transfer::None,
            received: 0,
            data_sn: DataSn(0),
            r2t_sn: R2tSn(0),
        };
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
            slots: vec![slot; usize::from(commands)],
            free: (0..commands).rev().collect(),
            next_request: 0,
            text: None,
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
    pub fn next<'a>(&mut self, input: &mut &'a [u8], transmit: &mut Transmit) -> Event<'a> {
        loop {
            if let Phase::Closed(reason) = &self.phase {
                return Event::Close(reason.clone());
            }
            let event = match self.receiving {
                Receiving::Header => match self.framing.take_header(input) {
                    HeaderStep::NeedMore => Some(Event::NeedMore),
                    HeaderStep::DigestError => Some(self.close(CloseReason::HeaderDigestError)),
                    HeaderStep::Header(bhs) => self.header(bhs),
                },
                Receiving::Collected => self.collect(input, transmit),
                Receiving::DataIn(incoming) => self.data_in(incoming, input),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    fn header(&mut self, bhs: Bhs) -> Option<Event<'static>> {
        let length = bhs.data_segment_length();
        if length > self.limits.initiator_max_recv_data_segment_length {
            return Some(self.protocol_error("data segment longer than MaxRecvDataSegmentLength"));
        }
        self.current = bhs;
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
        self.receiving = Receiving::Collected;
        None
    }

    fn collect(&mut self, input: &mut &[u8], transmit: &mut Transmit) -> Option<Event<'static>> {
        let bytes = self.framing.take_data(u32::MAX, input);
        self.collected.extend_from_slice(bytes);
        if self.framing.remaining() > 0 {
            return Some(Event::NeedMore);
        }
        match self.framing.take_trailer(input) {
            TrailerStep::NeedMore => Some(Event::NeedMore),
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
    ) -> Option<Event<'static>> {
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
                Some(Event::Established)
            }
            Err(error) => Some(self.close(CloseReason::Login(error))),
        }
    }

    fn close(&mut self, reason: CloseReason) -> Event<'static> {
        self.phase = Phase::Closed(reason.clone());
        Event::Close(reason)
    }

    fn protocol_error(&mut self, problem: &'static str) -> Event<'static> {
        self.close(CloseReason::ProtocolError(problem))
    }

    /// What the login settled, once it has.
    #[must_use]
    pub const fn session(&self) -> Option<&SessionParameters> {
        self.session.as_ref()
    }

    /// How many commands the window lets pass now, immediate ones aside.
    #[must_use]
    pub const fn window_open(&self) -> u32 {
        let open = self.window.max_cmd_sn.next().steps_since(self.cmd_sn);
        if open < 1 << 31 { open } else { 0 }
    }

    fn slot_mut(&mut self, tag: InitiatorTaskTag) -> Option<(CommandId, &mut Slot)> {
        let [generation_high, generation_low, high, low] = tag.0.to_be_bytes();
        let id = CommandId(u16::from_be_bytes([high, low]));
        let generation = u16::from_be_bytes([generation_high, generation_low]);
        let slot = self.slots.get_mut(usize::from(id.0))?;
        (slot.live && slot.generation == generation).then_some((id, slot))
    }
}
