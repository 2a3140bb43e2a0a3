//! What a connection knows: its phase, what it receives, its commands. The files above decide what it does.

use std::collections::VecDeque;

use longshore_wire::transmit::{OpenPdu, Transmit};

use crate::command::CommandId;
use crate::pdu::encoder::{Encoder, push_term_req};
use crate::pdu::framing::{Framing, Receiver};
use crate::pdu::{FatalError, IcResp, TermReq, Terminator, TransferTag};
use crate::server::command::{ArrivedCommand, CommandSlot, QueueParameters};
use crate::server::commands::{Command, Commands};

/// What the driver decides about a connection before it starts.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// In-capsule data of a command on an I/O queue, at most. (8192 are always taken on admin queues.)
    pub in_capsule_data_bytes: u32,
    /// MAXH2CDATA: data of an H2CData PDU, at most; at least 4096.
    pub max_h2c_data_bytes: u32,
    /// The longest R2T; not more than MAXH2CDATA, as hosts with Linux before 5.17 answer each R2T by one
    /// PDU.
    pub r2t_bytes: u32,
    /// R2Ts of a command in flight at a time, where the host allows more than one.
    pub r2ts_in_flight_max: u32,
    /// Header digests are used if the host asks for them.
    pub header_digest: bool,
    /// Data digests are used if the host asks for them.
    pub data_digest: bool,
    /// ICReq and a Connect that succeeds must come within this.
    pub connect_timeout_ms: u64,
    /// How long a host may take to close the connection after a C2HTermReq.
    pub terminate_timeout_ms: u64,
    /// After so long without a byte, memory of busier times is given back. 0: never.
    pub idle_ms: u64,
    /// The longest read answered by [`Connection::begin_inline_read`], in bytes.
    pub inline_read_max: u32,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            in_capsule_data_bytes: 8192,
            max_h2c_data_bytes: 1 << 20,
            r2t_bytes: 1 << 20,
            r2ts_in_flight_max: 4,
            header_digest: true,
            data_digest: true,
            connect_timeout_ms: 15_000,
            terminate_timeout_ms: 30_000,
            idle_ms: 30_000,
            inline_read_max: 16 << 10,
        }
    }
}

/// What happened that the driver must act upon.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectionEvent<'a> {
    /// The input is used up.
    NeedMore,
    /// A command. The driver calls `complete`, `begin_inline_read` or `want_data_out`, now or later;
    /// before Connect has succeeded only Connects come.
    Command(ArrivedCommand),
    /// Data of a command for the controller: put `bytes` at `buffer_offset` of them.
    DataOut {
        slot: CommandSlot,
        buffer_offset: u32,
        /// The data itself, within the received bytes.
        bytes: &'a [u8],
    },
    /// All data that `want_data_out` asked for is there: execute the command.
    DataOutComplete { slot: CommandSlot },
    /// A data digest does not match: complete the command with
    /// [`Status::TRANSIENT_TRANSPORT_ERROR`](crate::status::Status::TRANSIENT_TRANSPORT_ERROR). No more of
    /// its data will come. In-capsule data can fail before `want_data_out`.
    DataOutFailed { slot: CommandSlot },
    /// Nothing more will be accepted: send what is in the transmit queue, then close. It repeats.
    Close(CloseReason),
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The host sent an H2CTermReq: what it says of our last PDUs.
    HostTerminated(FatalError),
    /// The host broke the rules, as the C2HTermReq says.
    Terminated(FatalError),
    /// ICReq and Connect took too long.
    ConnectTimeout,
    /// The host has not closed the connection after a C2HTermReq.
    TerminateTimeout,
}

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Initializing,
    Unconnected,
    Connected(QueueParameters),
    Closed(CloseReason),
}

/// What the next bytes of input are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Receiving {
    Header,
    /// The data of a PDU that nobody wants.
    Skipped,
    /// Data of a command.
    Data(Incoming),
}

/// Data of a command under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) slot: CommandSlot,
    pub(super) source: Source,
    /// Bytes before those of the command: SGLs may begin within the in-capsule data.
    pub(super) lead: u32,
    /// Where the next byte belongs.
    pub(super) offset: u32,
    /// Where the command's data in this PDU end.
    pub(super) end: u32,
}

/// What announced the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Capsule,
    R2t(TransferTag),
}

impl Incoming {
    /// How many of the bytes from `offset` on are wanted.
    #[inline]
    pub(super) fn wanted(&self, command: &Command) -> u32 {
        if self.lead > 0 {
            return 0;
        }
        command.limit().min(self.end).saturating_sub(self.offset)
    }
}

/// A read that the driver fills into the transmit queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineRead {
    pub(super) slot: CommandSlot,
    pub(super) pdu: OpenPdu,
    pub(super) length: u32,
}

/// An event that waits to be picked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    DataOutComplete(CommandSlot),
    DataOutFailed(CommandSlot),
}

impl Ready {
    pub(super) const fn slot(self) -> CommandSlot {
        match self {
            Self::DataOutComplete(slot) | Self::DataOutFailed(slot) => slot,
        }
    }

    pub(super) const fn event(self) -> ConnectionEvent<'static> {
        match self {
            Self::DataOutComplete(slot) => ConnectionEvent::DataOutComplete { slot },
            Self::DataOutFailed(slot) => ConnectionEvent::DataOutFailed { slot },
        }
    }
}

/// Commands before Connect has succeeded. A host has no reason for more than one.
const UNCONNECTED_COMMANDS: u32 = 4;

/// Times that deadlines depend on, in milliseconds of the driver's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    pub(super) started_ms: u64,
    pub(super) last_heard_ms: u64,
    pub(super) closed_ms: u64,
    /// Memory has been given back, and nothing has come since.
    pub(super) idle: bool,
}

impl Timers {
    const fn new(now_ms: u64) -> Self {
        Self {
            started_ms: now_ms,
            last_heard_ms: now_ms,
            closed_ms: now_ms,
            idle: false,
        }
    }

    /// Bytes have come in, or left.
    #[inline]
    pub(super) const fn heard(&mut self, now_ms: u64) {
        self.last_heard_ms = now_ms;
        self.idle = false;
    }
}

/// One connection of a controller. See the module documentation.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: ConnectionConfig,
    pub(super) phase: Phase,
    pub(super) framing: Framing,
    pub(super) receiving: Receiving,
    pub(super) encoder: Encoder,
    pub(super) commands: Commands,
    /// R2Ts a command may have outstanding: the host's MAXR2T and our own limit.
    pub(super) r2ts_max: u32,
    /// SQHD: entries of the submission queue consumed, modulo their number.
    pub(super) sq_head: u16,
    pub(super) inline_read: Option<InlineRead>,
    pub(super) ready: VecDeque<Ready>,
    /// Event requests whose identifiers were used again.
    pub(super) replaced: Vec<CommandId>,
    pub(super) timers: Timers,
}

impl Connection {
    /// A connection that waits for its ICReq.
    #[must_use]
    pub fn new(mut config: ConnectionConfig, now_ms: u64) -> Self {
        // MAXH2CDATA counts in dwords, and so do the offsets of R2Ts.
        config.max_h2c_data_bytes = config.max_h2c_data_bytes.max(IcResp::MAX_H2C_DATA_MIN) & !3;
        config.r2t_bytes = config.r2t_bytes.clamp(4, config.max_h2c_data_bytes) & !3;
        Self {
            phase: Phase::Initializing,
            framing: Framing::new(Receiver::Controller),
            receiving: Receiving::Header,
            encoder: Encoder::default(),
            commands: Commands::new(UNCONNECTED_COMMANDS),
            r2ts_max: 1,
            sq_head: 0,
            inline_read: None,
            ready: VecDeque::new(),
            replaced: Vec::new(),
            timers: Timers::new(now_ms),
            config,
        }
    }

    /// What Connect settled, once it has succeeded.
    #[must_use]
    pub const fn queue(&self) -> Option<QueueParameters> {
        match self.phase {
            Phase::Connected(queue) => Some(queue),
            Phase::Initializing | Phase::Unconnected | Phase::Closed(_) => None,
        }
    }

    /// Whether Connect has succeeded, and the connection has not ended.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.queue().is_some()
    }

    /// Why it has ended, if it has.
    #[must_use]
    pub const fn closed(&self) -> Option<CloseReason> {
        match self.phase {
            Phase::Closed(reason) => Some(reason),
            Phase::Initializing | Phase::Unconnected | Phase::Connected(_) => None,
        }
    }

    /// How many commands there can be at a time: slots are below this.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.commands.capacity() as usize
    }

    pub fn commands(&self) -> impl Iterator<Item = CommandSlot> + '_ {
        self.commands.live()
    }

    /// The live command of this identifier: what Abort names.
    #[must_use]
    pub fn find(&self, id: CommandId) -> Option<CommandSlot> {
        self.commands.find(id)
    }

    /// Whether part of a PDU has arrived and the rest has not.
    #[must_use]
    pub const fn is_inside_pdu(&self) -> bool {
        !matches!(self.receiving, Receiving::Header) || self.framing.is_inside_header()
    }

    /// Frees a command: its slot, and what of it is still under way.
    #[inline]
    pub(super) fn end_command(&mut self, slot: CommandSlot) {
        if let Receiving::Data(incoming) = &self.receiving
            && incoming.slot == slot
        {
            self.receiving = Receiving::Skipped;
        }
        if !self.ready.is_empty() {
            self.ready.retain(|ready| ready.slot() != slot);
        }
        self.commands.remove(slot);
    }

    /// Ends the connection: all further input is ignored.
    #[cold]
    pub(super) fn close(&mut self, reason: CloseReason) -> ConnectionEvent<'static> {
        self.phase = Phase::Closed(reason);
        self.timers.closed_ms = self.timers.last_heard_ms;
        self.receiving = Receiving::Header;
        self.ready.clear();
        ConnectionEvent::Close(reason)
    }

    /// Ends the connection because of the PDU received last: the host is told, and all further input is
    /// ignored.
    #[cold]
    pub(super) fn terminate(
        &mut self,
        error: FatalError,
        transmit: &mut Transmit,
    ) -> ConnectionEvent<'static> {
        let request = TermReq {
            by: Terminator::Controller,
            error,
        };
        push_term_req(request, self.framing.header_bytes(), transmit);
        self.close(CloseReason::Terminated(error))
    }
}
