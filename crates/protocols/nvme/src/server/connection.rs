//! One connection of a controller: one queue of it, from ICReq to the end.
//!
//! ```text
//!                ICReq, ICResp               connected()               H2CTermReq, error, timeout
//!   Initializing ─────────────► Unconnected ─────────────► Connected ───────────────────────► Closed
//!     waits for: ICReq            waits for: Connect         waits for: commands, data,        (final)
//!     ended by: the host, the connect timeout                  the driver's completions
//! ```
//!
//! The driver feeds bytes to [`Connection::next`] and acts on the [`ConnectionEvent`]s; requests that need no driver
//! are answered inside. Payload does not travel through here: small reads are filled in place
//! ([`Connection::begin_inline_read`]), larger ones sent by reference, and write data can be received straight into
//! its buffer ([`Connection::payload_wanted`]).
//!
//! | file | subject |
//! |---|---|
//! | `connection/state.rs` | what all of these know |
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
mod state;
mod terminate;
#[cfg(test)]
mod tests;

use longshore_wire::transmit::Transmit;

use super::command::{CommandSlot, QueueParameters};
use crate::pdu::framing::HeaderStep;
use crate::pdu::{CommonHeader, Digests, FatalError, IcReq, IcResp, PduType, TermReq};
use state::{Phase, Receiving};

pub use state::{CloseReason, Connection, ConnectionConfig, ConnectionEvent};

/// Values of TTAG: each outstanding R2T has one.
const TRANSFER_TAGS: u32 = 1 << 16;

const _: () = assert!(u16::MAX as u32 <= TRANSFER_TAGS);

impl Connection {
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
                if !self.framing.data.skip(input) {
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

    /// Answers ICReq, or ends the connection with C2HTermReq.
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
}
