//! One connection of a host: initialization, then the commands of one queue, then failure or the end;
//! the mirror of `server::connection`.
//!
//! ```text
//!                    ICResp                    H2CTermReq sent, C2HTermReq received
//!   Initializing ──────────────► Ready ─────────────────────────────────────────────► Closed
//!     │ waits for: ICResp          waits for: responses, data, R2Ts                     (final)
//!     │ ended by: the controller   ended by: a mistake of either side
//!     └────────── anything else ───────────────────────────────────────────────────►
//! ```
//!
//! The driver submits commands while there are free slots ([`Connection::submit`]), feeds what it
//! receives to [`Connection::next`], puts [`ConnectionEvent::DataIn`] bytes where they belong, and answers
//! [`ConnectionEvent::R2t`] by [`Connection::send_data`], at once or when it has the data. Connect is a command
//! like others: the machine does not care which queue this is.
//!
//! Payload need not pass through here: what is sent may be referred to
//! ([`WriteData::Buffer`](longshore_wire::transmit::WriteData::Buffer)), and
//! what is received can go straight to its place ([`Connection::payload_wanted`]). Once warm, nothing is
//! allocated.
//!
//! What the controller must not do ends the connection by an H2CTermReq that names the field. A data
//! digest that does not match fails its command alone. There are no timers: a driver that has waited
//! too long for anything closes the socket.
//!
//! A driver need not know the phase before a call: a connection that is not ready, because it was never
//! initialized or is closed, refuses every command with [`NotSent::Closed`], sends no data and wants no
//! payload, and [`Connection::next`] goes on to report why it closed.

mod requests;
mod responses;
mod state;
#[cfg(test)]
mod tests;

use longshore_wire::transmit::Transmit;

use crate::pdu::framing::HeaderStep;
use state::{Phase, Receiving};

pub use state::{
    CloseReason, CommandOutcome, CommandSlot, Connection, ConnectionConfig, ConnectionEvent,
    NotSent, PayloadWanted, R2tRequest,
};

impl Connection {
    /// Takes bytes off the front of `input` until something happens or the input is used up.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> ConnectionEvent<'a> {
        loop {
            if let Phase::Closed(reason) = self.phase {
                return ConnectionEvent::Close(reason);
            }
            let step = match self.receiving {
                Receiving::Header => match self.framing.take_header(input) {
                    HeaderStep::NeedMore => Ok(Some(ConnectionEvent::NeedMore)),
                    HeaderStep::Header(common) => self.header(&common),
                    HeaderStep::Fault(fault) => Err(fault),
                },
                Receiving::Data(incoming) => Ok(self.take_data(incoming, input)),
                Receiving::Echo(error) => Ok(Some(self.take_echo(error, input))),
            };
            match step {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(fault) => return self.fail(fault, transmit),
            }
        }
    }
}
