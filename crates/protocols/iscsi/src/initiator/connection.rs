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

mod event;
mod requests;
mod responses;
mod state;
#[cfg(test)]
mod tests;

use crate::framing::HeaderStep;
use crate::pdu::{Bhs, Opcode};
use longshore_wire::pdu_data::TrailerStep;
use longshore_wire::transmit::Transmit;
use state::{Phase, Receiving};

pub use event::{
    CloseReason, Command, CommandId, CommandOutcome, ConnectionEvent, NotSent, PayloadWanted,
    R2tRequest, Residual, Transfer,
};
pub use state::Connection;

impl Connection {
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
        let bytes = self.framing.data.take(u32::MAX, input);
        self.collected.extend_from_slice(bytes);
        if self.framing.data.remaining() > 0 {
            return Some(ConnectionEvent::NeedMore);
        }
        match self.framing.data.take_trailer(input) {
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
}
