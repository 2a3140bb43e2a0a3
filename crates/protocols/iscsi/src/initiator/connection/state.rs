//! What a connection knows: its phase, what it receives, its commands under way. What it sends and receives
//! is decided in the files above.

use super::event::{CloseReason, CommandId, ConnectionEvent, Residual, Transfer};
use crate::encoder::Encoder;
use crate::framing::Framing;
use crate::initiator::login::{Login, LoginConfig, LoginStep};
use crate::pdu::{
    Bhs, CmdSn, CommandWindow, DataSn, InitiatorTaskTag, LoginRequest, Lun, Opcode, R2tSn, StatSn,
};
use crate::session_parameters::{OperationalParameters, SessionParameters};
use longshore_wire::transmit::Transmit;

#[derive(Debug)]
pub(super) enum Phase {
    Login(Box<Login>),
    FullFeature,
    Closed(CloseReason),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Receiving {
    Header,
    /// The data segment of `current`, wanted as a whole.
    Collected,
    /// Read data of a command.
    DataIn(Incoming),
}

/// A Data-In under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) command: CommandId,
    /// Tells it from a later command in this slot: the driver may forget a command whose data is coming.
    pub(super) tag: InitiatorTaskTag,
    /// Where its next byte belongs.
    pub(super) offset: u32,
    /// The status it brings, with the residual.
    pub(super) status: Option<(u8, Residual)>,
}

impl Incoming {
    #[inline]
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        self.offset += u32::try_from(bytes.len()).expect("a data segment is short");
    }
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) live: bool,
    pub(super) generation: u16,
    pub(super) lun: Lun,
    pub(super) transfer: Transfer,
    /// Of the request, for ABORT TASK.
    pub(super) cmd_sn: CmdSn,
    /// Bytes of read data that have come.
    pub(super) received: u32,
    /// The number of the next Data-In.
    pub(super) data_sn: DataSn,
    /// The number of the next R2T.
    pub(super) r2t_sn: R2tSn,
    /// Bytes that R2Ts have asked for.
    pub(super) requested: u32,
    /// R2Ts that have not been answered.
    pub(super) r2ts: u16,
}

impl Slot {
    pub(super) const FREE: Self = Self {
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
pub(super) struct Logout {
    pub(super) tag: InitiatorTaskTag,
    /// It ends this connection: no commands follow it (§11.14).
    pub(super) is_last: bool,
}

/// A text exchange under way.
#[derive(Debug)]
pub(super) struct TextExchange {
    pub(super) tag: InitiatorTaskTag,
    /// It answers the target's request to negotiate, not one of the driver's.
    pub(super) negotiation: bool,
    /// What is still to be sent of the request.
    pub(super) unsent: Vec<u8>,
    pub(super) answer: Vec<u8>,
}

/// Longest answer to a text request that is joined.
pub(super) const TEXT_ANSWER_MAX: usize = 1 << 20;

/// Tags with this bit name requests other than SCSI commands.
pub(super) const OTHER_REQUEST: u32 = 0x8000_0000;

/// One connection of an initiator. See the module documentation.
#[derive(Debug)]
pub struct Connection {
    pub(super) phase: Phase,
    pub(super) framing: Framing,
    pub(super) receiving: Receiving,
    pub(super) current: Bhs,
    pub(super) collected: Vec<u8>,
    pub(super) encoder: Encoder,
    /// The number of the next command that is not immediate.
    pub(super) cmd_sn: CmdSn,
    pub(super) window: CommandWindow,
    pub(super) exp_stat_sn: StatSn,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u16>,
    pub(super) next_request: u32,
    pub(super) text: Option<TextExchange>,
    /// A logout is under way.
    pub(super) logout: Option<Logout>,
    /// Data-In PDUs that have come.
    pub(super) data_pdus: u64,
    pub(super) limits: OperationalParameters,
    pub(super) session: Option<SessionParameters>,
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
            data_pdus: 0,
            limits: OperationalParameters::default(),
            session: None,
        };
        if let LoginStep::Send { request, data } = first {
            connection.send_login(&request, &data, transmit);
        }
        connection
    }

    pub(super) fn send_login(&self, request: &LoginRequest, data: &[u8], transmit: &mut Transmit) {
        self.encoder
            .push(request.encode_immediate(), data, transmit);
    }

    #[cold]
    pub(super) fn close(&mut self, reason: CloseReason) -> ConnectionEvent<'static> {
        self.phase = Phase::Closed(reason.clone());
        ConnectionEvent::Close(reason)
    }

    #[cold]
    pub(super) fn protocol_error(&mut self, problem: &'static str) -> ConnectionEvent<'static> {
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

    /// How many Data-In PDUs have come.
    #[must_use]
    pub const fn data_pdus(&self) -> u64 {
        self.data_pdus
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
    pub(super) fn tag_of(&self, id: CommandId) -> InitiatorTaskTag {
        let generation = self.slots[usize::from(id.0)].generation;
        InitiatorTaskTag(u32::from(generation) << 16 | u32::from(id.0))
    }

    /// Whether the command in a slot is under way and has this tag.
    #[inline]
    pub(super) fn is_live(&self, id: CommandId, tag: InitiatorTaskTag) -> bool {
        let slot = self.slots.get(usize::from(id.0));
        slot.is_some_and(|slot| slot.live) && self.tag_of(id) == tag
    }

    /// The live command with this tag.
    #[inline]
    pub(super) fn slot_mut(&mut self, tag: InitiatorTaskTag) -> Option<(CommandId, &mut Slot)> {
        let [generation_high, generation_low, high, low] = tag.0.to_be_bytes();
        let id = CommandId(u16::from_be_bytes([high, low]));
        let generation = u16::from_be_bytes([generation_high, generation_low]);
        let slot = self.slots.get_mut(usize::from(id.0))?;
        (slot.live && slot.generation == generation).then_some((id, slot))
    }

    #[inline]
    pub(super) fn free_slot(&mut self, command: CommandId) {
        let slot = &mut self.slots[usize::from(command.0)];
        if slot.live {
            slot.live = false;
            self.free.push(command.0);
        }
    }
}
