//! What a connection knows: its phase, what it receives, its commands under way. What it sends and receives
//! is decided in the files above.

use longshore_wire::transmit::Transmit;

use crate::command::CommandId;
use crate::host::commands::Transfer;
use crate::pdu::encoder::Encoder;
use crate::pdu::framing::{Framing, Receiver};
use crate::pdu::{Digests, FatalError, IcReq, IcResp, TransferTag};
use crate::status::Status;

/// What the driver decides about a connection before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// Which digests are asked for.
    pub digests: Digests,
    /// HPDA as it travels: data for us starts at a multiple of so many dwords, plus one. At most 31.
    pub hpda: u8,
    /// R2Ts a command may have unanswered at a time, at least 1. (MAXR2T on the wire is one less.)
    pub max_r2t: u32,
    /// Commands that can be under way: one less than the queue has entries. 1 to 32,768.
    pub commands: u16,
    /// Data up to this length travels in the capsule of its command. For the Connect command and on
    /// admin queues 8192; see [`Connection::set_in_capsule_data_bytes`].
    pub in_capsule_data_bytes: u32,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            hpda: 0,
            max_r2t: 16,
            commands: 127,
            in_capsule_data_bytes: 8192,
        }
    }
}

/// Dense number of a command of this connection, reused after its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandSlot(pub u16);

/// The controller wants data; answer by [`Connection::send_data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2tRequest {
    pub slot: CommandSlot,
    /// The first byte wanted.
    pub buffer_offset: u32,
    pub length: u32,
    /// TTAG, which goes back with the data.
    pub(super) tag: TransferTag,
    /// Tells an R2T of an earlier command in this slot.
    pub(super) command: CommandId,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandOutcome {
    /// Its status. A command that would have succeeded, but for a data digest that did not match, ends with
    /// [`Status::TRANSIENT_TRANSPORT_ERROR`].
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// SQHD; `None` when the command ended by the SUCCESS flag of its data.
    pub sq_head: Option<u16>,
    /// Bytes of data that have come for it.
    pub data_in_length: u32,
    /// Bytes of data that went to the controller: along with the command, or in answers to R2Ts. A write that
    /// succeeds with fewer than it has was not carried out as asked.
    pub data_out_length: u32,
    /// A data digest did not match.
    pub data_digest_error: bool,
}

/// Where the next bytes of the stream belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadWanted {
    pub slot: CommandSlot,
    pub buffer_offset: u32,
    /// At most so many bytes.
    pub length: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionEvent<'a> {
    /// The input is used up.
    NeedMore,
    /// The connection is initialized: submit the Connect command.
    Ready,
    /// Data for the host: put `bytes` at `buffer_offset` of the command's buffer.
    DataIn {
        slot: CommandSlot,
        buffer_offset: u32,
        bytes: &'a [u8],
    },
    /// The controller wants data.
    R2t(R2tRequest),
    /// A command has ended.
    Completed {
        slot: CommandSlot,
        outcome: CommandOutcome,
    },
    /// Nothing more will be accepted: send what is in the transmit queue, then close.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The controller sent a C2HTermReq.
    Terminated(FatalError),
    /// The controller broke a rule, and was told so by an H2CTermReq.
    ProtocolError(FatalError),
    /// The driver called [`Connection::terminate`].
    Host,
}

/// Why a command was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSent {
    /// All slots are in use.
    #[error("all slots are in use")]
    Busy,
    /// The connection takes no commands: it is closed, or not initialized yet. [`Connection::next`] says which.
    #[error("the connection takes no commands")]
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Initializing,
    Ready,
    Closed(CloseReason),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Receiving {
    Header,
    /// Data of a command.
    Data(Incoming),
    /// The header that a C2HTermReq gives back.
    Echo(FatalError),
}

/// Data of a command under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) slot: CommandSlot,
    /// Where its next byte belongs.
    pub(super) offset: u32,
    /// The command ends with it.
    pub(super) success: bool,
}

impl Incoming {
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        self.offset += u32::try_from(bytes.len()).expect("data of a PDU is bounded by its length");
    }
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) live: bool,
    /// In the upper bits of the Command Identifier.
    pub(super) generation: u16,
    pub(super) transfer: Transfer,
    /// Bytes of data that have come.
    pub(super) received: u32,
    /// No data comes any more: LAST_PDU was seen.
    pub(super) data_over: bool,
    pub(super) data_digest_error: bool,
    /// Bytes that R2Ts have asked for.
    pub(super) requested: u32,
    /// Bytes that were handed to the transmit queue.
    pub(super) sent: u32,
    /// R2Ts that have not been answered.
    pub(super) r2ts: u32,
}

impl Slot {
    pub(super) const FREE: Self = Self {
        live: false,
        generation: 0,
        transfer: Transfer::None,
        received: 0,
        data_over: false,
        data_digest_error: false,
        requested: 0,
        sent: 0,
        r2ts: 0,
    };
}

/// One connection of a host. See the module documentation.
#[derive(Debug)]
pub struct Connection {
    pub(super) phase: Phase,
    pub(super) config: ConnectionConfig,
    /// Digests of both ends, as ICResp settled them.
    pub(super) digests: Digests,
    /// MAXH2CDATA: most bytes of data in one H2CData PDU.
    pub(super) max_h2c_data: u32,
    pub(super) framing: Framing,
    pub(super) encoder: Encoder,
    pub(super) receiving: Receiving,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u16>,
    /// Bits of a Command Identifier that hold the slot's number.
    pub(super) slot_bits: u32,
    /// C2HData PDUs that have come.
    pub(super) data_pdus: u64,
}

impl Connection {
    /// Starts a connection: the ICReq goes to `transmit`.
    ///
    /// # Panics
    /// When the configuration is out of range.
    #[must_use]
    pub fn new(config: ConnectionConfig, transmit: &mut Transmit) -> Self {
        let hpda_max = IcReq::ALIGNMENT_MAX;
        assert!(config.hpda <= hpda_max, "HPDA is at most {hpda_max}");
        assert!(config.max_r2t > 0, "data must be asked for somehow");
        let commands = 1..=1 << 15;
        assert!(commands.contains(&config.commands), "1 to 32,768 commands");
        let request = IcReq {
            pfv: 0,
            hpda: config.hpda,
            digests: config.digests,
            max_r2t: u64::from(config.max_r2t),
        };
        transmit.push_bytes(&request.encode());
        Self {
            phase: Phase::Initializing,
            config,
            digests: Digests::default(),
            max_h2c_data: IcResp::MAX_H2C_DATA_MIN,
            framing: Framing::new(Receiver::Host),
            encoder: Encoder::default(),
            receiving: Receiving::Header,
            slots: vec![Slot::FREE; usize::from(config.commands)],
            free: (0..config.commands).rev().collect(),
            slot_bits: 16 - (config.commands - 1).leading_zeros(),
            data_pdus: 0,
        }
    }

    pub(super) fn close(&mut self, reason: CloseReason) -> ConnectionEvent<'static> {
        self.phase = Phase::Closed(reason);
        ConnectionEvent::Close(reason)
    }

    /// Closes the connection for a reason of the driver's, unless it is closed already.
    #[cold]
    pub(super) fn close_by_host(&mut self) {
        if !matches!(self.phase, Phase::Closed(_)) {
            self.close(CloseReason::Host);
        }
    }

    /// Whether commands can be submitted.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Which digests there are, as settled.
    #[must_use]
    pub const fn digests(&self) -> Digests {
        self.digests
    }

    /// MAXH2CDATA: the longest data of an H2CData, as the controller said.
    #[must_use]
    pub const fn max_h2c_data(&self) -> u32 {
        self.max_h2c_data
    }

    /// How many C2HData PDUs have come.
    #[must_use]
    pub const fn data_pdus(&self) -> u64 {
        self.data_pdus
    }

    /// How many commands can be submitted now; none unless the connection is [ready](Self::is_ready).
    #[inline]
    #[must_use]
    pub fn slots_free(&self) -> usize {
        if self.is_ready() { self.free.len() } else { 0 }
    }

    /// The commands under way.
    pub fn under_way(&self) -> impl Iterator<Item = CommandSlot> + '_ {
        (0..self.config.commands)
            .filter(|slot| self.slots[usize::from(*slot)].live)
            .map(CommandSlot)
    }

    /// The Command Identifier of the command in a slot, for Abort.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn command_id(&self, slot: CommandSlot) -> CommandId {
        let generation = self.slots[usize::from(slot.0)].generation;
        let above = u32::from(generation) << self.slot_bits;
        CommandId(u16::try_from(above).expect("a generation fits above the slot") | slot.0)
    }

    /// The live command with this identifier.
    #[inline]
    pub(super) fn slot_of(&mut self, id: CommandId) -> Option<(CommandSlot, &mut Slot)> {
        let number = id.0 & ((1 << self.slot_bits) - 1);
        let generation = u32::from(id.0) >> self.slot_bits;
        let slot = self.slots.get_mut(usize::from(number))?;
        let is_it = slot.live && u32::from(slot.generation) == generation;
        is_it.then_some((CommandSlot(number), slot))
    }

    pub(super) fn release(&mut self, slot: CommandSlot) {
        self.slots[usize::from(slot.0)].live = false;
        self.free.push(slot.0);
    }
}
