//! One connection of a controller: one queue of it, from ICReq to the end.
//!
//! ```text
//!                ICReq, ICResp               connected()               H2CTermReq, error, timeout
//!   Initializing ─────────────► Unconnected ─────────────► Connected ───────────────────────► Closed
//!     waits for: ICReq            waits for: Connect         waits for: commands, data,        (final)
//!     ended by: the host, the connect timeout                  the driver's completions
//! ```
//!
//! The driver feeds bytes to [`Connection::next`] and acts on the [`ConnectionEvent`]s; whatever needs no driver is
//! answered inside. Payload does not travel through here: small reads are filled in place
//! ([`Connection::begin_inline_read`]), larger ones sent by reference, and write data can be received
//! straight into its buffer ([`Connection::payload_wanted`]).
//!
//! | file | subject |
//! |---|---|
//! | `connection/capsule.rs` | commands: admission, data pointers |
//! | `connection/h2c_data.rs` | in-capsule data, R2Ts and what answers them |
//! | `connection/completion.rs` | data for the host, response capsules, SQ head |
//! | `connection/terminate.rs` | the end, and timers |
//!
//! What a host does wrong with a command fails the command; what makes the byte stream doubtful, or
//! breaks the rules of the transport, ends the connection with a C2HTermReq that says why. A data digest
//! error fails its command only.

mod capsule;
mod completion;
mod h2c_data;
mod terminate;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use longshore_wire::transmit::Transmit;

use self::completion::InlineRead;
use self::h2c_data::Incoming;
use self::terminate::Timers;
use super::command::{ArrivedCommand, CommandSlot, QueueParameters};
use super::commands::Commands;
use crate::command::CommandId;
use crate::pdu::encoder::Encoder;
use crate::pdu::framing::{Framing, HeaderStep, Receiver};
use crate::pdu::{CommonHeader, Digests, FatalError, IcReq, IcResp, PduType, TermReq};

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
        /// Whose data.
        slot: CommandSlot,
        /// Where it belongs.
        buffer_offset: u32,
        /// The data.
        bytes: &'a [u8],
    },
    /// All data that `want_data_out` asked for is there: execute the command.
    DataOutComplete {
        /// Which.
        slot: CommandSlot,
    },
    /// A data digest does not match: complete the command with
    /// [`Status::TRANSIENT_TRANSPORT_ERROR`](crate::status::Status::TRANSIENT_TRANSPORT_ERROR). No more of
    /// its data will come. In-capsule data can fail before `want_data_out`.
    DataOutFailed {
        /// Which.
        slot: CommandSlot,
    },
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
enum Phase {
    Initializing,
    Unconnected,
    Connected(QueueParameters),
    Closed(CloseReason),
}

/// What the next bytes of input are.
#[derive(Clone, Copy, Debug)]
enum Receiving {
    /// A header.
    Header,
    /// The data of a PDU that nobody wants.
    Skipped,
    /// Data of a command.
    Data(Incoming),
}

/// Commands before Connect has succeeded. A host has no reason for more than one.
const UNCONNECTED_COMMANDS: u32 = 4;

/// Values of TTAG: each outstanding R2T has one.
const TRANSFER_TAGS: u32 = 1 << 16;

const _: () = assert!(u16::MAX as u32 <= TRANSFER_TAGS);

/// An event that waits to be picked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    DataOutComplete(CommandSlot),
    DataOutFailed(CommandSlot),
}

impl Ready {
    const fn slot(self) -> CommandSlot {
        match self {
            Self::DataOutComplete(slot) | Self::DataOutFailed(slot) => slot,
        }
    }

    const fn event(self) -> ConnectionEvent<'static> {
        match self {
            Self::DataOutComplete(slot) => ConnectionEvent::DataOutComplete { slot },
            Self::DataOutFailed(slot) => ConnectionEvent::DataOutFailed { slot },
        }
    }
}

/// One connection of a controller. See the module documentation.
#[derive(Debug)]
pub struct Connection {
    config: ConnectionConfig,
    phase: Phase,
    framing: Framing,
    receiving: Receiving,
    encoder: Encoder,
    commands: Commands,
    /// R2Ts a command may have outstanding: the host's MAXR2T and our own limit.
    r2ts_max: u32,
    /// SQHD: entries of the submission queue consumed, modulo their number.
    sq_head: u16,
    inline_read: Option<InlineRead>,
    ready: VecDeque<Ready>,
    /// Event requests whose identifiers were used again.
    replaced: Vec<CommandId>,
    timers: Timers,
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

    /// Takes bytes off the front of `input` until something happens or the input is used up. What is
    /// left of a PDU that has not arrived in full stays inside, so the input need not be kept.
    ///
    /// In-capsule data of a command are delivered from the first call after its [`ConnectionEvent::Command`] on; a
    /// driver without room for them stops calling. An event's command may be completed at any time,
    /// unless [`Self::outstanding_data_out`].
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
        now_ms: u64,
    ) -> ConnectionEvent<'a> {
        if !input.is_empty() {
            self.timers.heard(now_ms);
        }
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return ready.event();
            }
            if let Some(event) = self.step(input, transmit) {
                return event;
            }
        }
    }

    /// Takes the next piece of input. `None`: there may be more to do at once.
    #[inline]
    fn step<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'a>> {
        match self.receiving {
            Receiving::Header => {
                if let Phase::Closed(reason) = self.phase {
                    return Some(ConnectionEvent::Close(reason));
                }
                match self.framing.take_header(input) {
                    HeaderStep::NeedMore => Some(ConnectionEvent::NeedMore),
                    HeaderStep::Header(common) => self.header(common, transmit),
                    HeaderStep::Fault(error) => Some(self.terminate(error, transmit)),
                }
            }
            Receiving::Data(incoming) => self.h2c_payload(incoming, input, transmit),
            Receiving::Skipped => {
                if !self.framing.skip(input) {
                    return Some(ConnectionEvent::NeedMore);
                }
                self.receiving = Receiving::Header;
                None
            }
        }
    }

    /// A header has arrived.
    #[inline]
    fn header(
        &mut self,
        common: CommonHeader,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        match common.pdu_type {
            PduType::CAPSULE_CMD => self.capsule(transmit),
            PduType::H2C_DATA => self.h2c_data_header(transmit),
            PduType::IC_REQ => self.initialize(transmit),
            _ => {
                let request = TermReq::decode(self.framing.header());
                Some(self.close(CloseReason::HostTerminated(request.error)))
            }
        }
    }

    /// ICReq.
    fn initialize(&mut self, transmit: &mut Transmit) -> Option<ConnectionEvent<'static>> {
        let request = IcReq::decode(self.framing.header());
        if request.pfv != 0 {
            let error = FatalError::invalid_field(IcReq::PFV_OFFSET);
            return Some(self.terminate(error, transmit));
        }
        if request.hpda > IcReq::ALIGNMENT_MAX {
            let error = FatalError::invalid_field(IcReq::HPDA_OFFSET);
            return Some(self.terminate(error, transmit));
        }
        let digests = Digests {
            header: request.digests.header && self.config.header_digest,
            data: request.digests.data && self.config.data_digest,
        };
        let response = IcResp {
            pfv: 0,
            cpda: 0,
            digests,
            max_h2c_data: self.config.max_h2c_data_bytes,
        };
        transmit.push_bytes(&response.encode());
        self.framing.initialized(digests.header, digests.data, 0);
        self.encoder
            .initialized(digests.header, digests.data, request.hpda);
        let ours = self.config.r2ts_in_flight_max.max(1);
        self.r2ts_max = u32::try_from(request.max_r2t).unwrap_or(ours).min(ours);
        self.phase = Phase::Unconnected;
        None
    }

    /// A Connect has succeeded; its completion, which follows, may say so. From now on there can be as
    /// many commands as the queue has entries.
    ///
    /// # Panics
    /// When `connect` is not live.
    pub fn connected(&mut self, connect: CommandSlot, queue: QueueParameters) {
        self.commands.get_mut(connect).connects = true;
        if !matches!(self.phase, Phase::Unconnected) {
            return;
        }
        self.phase = Phase::Connected(queue);
        self.commands.set_limit(u32::from(queue.entries));
        let capacity = self.commands.capacity();
        self.r2ts_max = self.r2ts_max.min(TRANSFER_TAGS / capacity).max(1);
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

    /// The live commands.
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
    fn end_command(&mut self, slot: CommandSlot) {
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
}
