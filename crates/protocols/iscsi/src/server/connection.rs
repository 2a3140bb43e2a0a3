//! One connection of a target: login, then full feature phase, then logout or failure.
//!
//! ```text
//!                  last Login Response            Logout, error, timeout
//!   Login ──────────────────────────► FullFeature ───────────────────────► Closed
//!     │ waits for: Login Requests       waits for: requests, write data,     (final)
//!     │ ended by: the initiator, the      the driver's completions
//!     │   login timeout                 ended by: Logout, the peer's errors,
//!     └──────── refused ─────────────►    silence despite a ping
//! ```
//!
//! The driver feeds bytes to [`Connection::next`] and acts on the [`ConnectionEvent`]s; requests that need no driver
//! are answered inside. Payload does not travel through here: small reads are filled in place
//! ([`Connection::begin_inline_read`]), larger ones sent by reference, and write data can be received straight into
//! its buffer ([`Connection::payload_wanted`]).
//!
//! | file | subject |
//! |---|---|
//! | `connection/command.rs` | SCSI commands: admission and order |
//! | `connection/data_out.rs` | write data and R2Ts |
//! | `connection/data_in.rs` | read data, status, residuals |
//! | `connection/requests.rs` | NOP-Out, Logout, Login, the common part of numbered requests |
//! | `connection/text.rs` | text exchanges |
//! | `connection/task_management.rs` | task management |
//! | `connection/held.rs` | requests before their turn |
//! | `connection/reject.rs` | why a PDU is rejected |
//! | `connection/deadlines.rs` | silence, deadlines, Asynchronous Messages |
//! | `connection/state.rs`, with `limits`, `pending` and `transfer_tags` | what all of these know |
//!
//! Error recovery is level 0: one connection per session, no SNACK, no retransmission; a header
//! digest error closes the connection (RFC 7143 §7.8).

mod command;
mod data_in;
mod data_out;
mod deadlines;
mod event;
mod held;
mod limits;
mod pending;
mod reject;
mod requests;
mod state;
mod task_management;
#[cfg(test)]
mod tests;
mod text;
mod transfer_tags;

use self::state::{Phase, Receiving, Replay};
use super::directory::Directory;
use crate::framing::HeaderStep;
use crate::pdu::{Bhs, Opcode};
use longshore_wire::pdu_data::TrailerStep;
use longshore_wire::transmit::Transmit;

pub use self::event::{CloseReason, ConnectionConfig, ConnectionEvent};
pub use self::state::Connection;

/// Memory for a data segment that is larger is given back after use.
const COLLECTED_KEPT: usize = 16 << 10;

impl Connection {
    /// Takes bytes off the front of `input` until something happens or the input is used up. What is
    /// left of a PDU that has not arrived in full stays inside, so the input need not be kept.
    ///
    /// Write data of a command is delivered from the first call after its [`ConnectionEvent::Command`] on; a
    /// driver without room for it stops calling. An event's task may be completed at any time.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
        now_ms: u64,
    ) -> ConnectionEvent<'a> {
        if !input.is_empty() {
            self.timers.heard(now_ms);
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            let event = if self.has_replay() {
                self.step_replay(directory, transmit)
            } else {
                self.step(input, directory, transmit)
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Takes the next piece of input. `None`: there may be more to do at once.
    #[inline]
    fn step<'a>(
        &mut self,
        input: &mut &'a [u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'a>> {
        match &self.receiving {
            Receiving::Header => {
                if let Phase::Closed(reason) = &self.phase {
                    return Some(ConnectionEvent::Close(reason.clone()));
                }
                match self.framing.take_header(input) {
                    HeaderStep::NeedMore => Some(ConnectionEvent::NeedMore),
                    HeaderStep::DigestError => Some(self.close(CloseReason::HeaderDigestError)),
                    HeaderStep::Header(bhs) => self.header(bhs, directory, transmit),
                }
            }
            Receiving::WriteData(_) => self.write_data(input, transmit),
            Receiving::Discarded
            | Receiving::Collected
            | Receiving::HeldRequest(_)
            | Receiving::HeldDataOut => self.whole_segment(input, directory, transmit),
        }
    }

    /// A header has arrived.
    #[inline]
    fn header(
        &mut self,
        bhs: Bhs,
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let length = bhs.data_segment_length();
        if length > self.limits.target_max_recv_data_segment_length {
            if matches!(self.phase, Phase::Login(_)) && bhs.opcode() == Opcode::LOGIN_REQUEST {
                return Some(self.refuse_long_login(&bhs, transmit));
            }
            // §7.7: inconsistent lengths are format errors, which end the connection.
            let problem = "data segment longer than MaxRecvDataSegmentLength";
            return Some(self.close(CloseReason::ProtocolError(problem)));
        }
        self.current = bhs;
        self.framing.begin_segment(length);
        if bhs.opcode() == Opcode::SCSI_COMMAND && matches!(self.phase, Phase::FullFeature) {
            return self.command_header(&bhs, transmit);
        }
        self.other_header(&bhs, directory, transmit)
    }

    /// Takes a data segment that is wanted as a whole, or not at all.
    fn whole_segment<'a>(
        &mut self,
        input: &mut &'a [u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'a>> {
        if self.framing.data.remaining() > 0 {
            if input.is_empty() {
                return Some(ConnectionEvent::NeedMore);
            }
            let bytes = self.framing.data.take(u32::MAX, input);
            if !matches!(self.receiving, Receiving::Discarded) {
                self.collected.extend_from_slice(bytes);
            }
            return None;
        }
        let TrailerStep::Done { digest_ok } = self.framing.data.take_trailer(input) else {
            return Some(ConnectionEvent::NeedMore);
        };
        let receiving = std::mem::replace(&mut self.receiving, Receiving::Header);
        let bhs = self.current;
        if matches!(receiving, Receiving::Discarded) {
            return None;
        }
        if !digest_ok {
            if matches!(self.phase, Phase::FullFeature) {
                self.refuse(&bhs, &[], reject::Refusal::DataDigest, transmit);
            }
            return None;
        }
        let data = std::mem::take(&mut self.collected);
        let event = match receiving {
            Receiving::HeldRequest(cmd_sn) => {
                let held = self.held.hold(cmd_sn, &bhs, self.framing.ahs(), &data);
                held.err().map(|held::Full| self.close_disordered())
            }
            Receiving::HeldDataOut => {
                let held = self.held.hold_data_out(&bhs, &data);
                held.err().map(|held::Full| self.close_disordered())
            }
            Receiving::Header
            | Receiving::Discarded
            | Receiving::Collected
            | Receiving::WriteData(_) => self.request(&bhs, &data, directory, transmit),
        };
        if data.capacity() <= COLLECTED_KEPT {
            self.collected = data;
        }
        event
    }

    fn close_disordered(&mut self) -> ConnectionEvent<'static> {
        self.close(CloseReason::ProtocolError(
            "too many requests before their turn",
        ))
    }

    /// Whether a request that had to wait goes through the machine, or can start to.
    #[inline]
    fn has_replay(&mut self) -> bool {
        if self.replay.is_some() {
            return true;
        }
        if self.held.is_empty() || !matches!(self.receiving, Receiving::Header) {
            return false;
        }
        self.start_replay()
    }

    #[cold]
    fn start_replay(&mut self) -> bool {
        while let Some(stream) = self.held.take(self.window.exp_cmd_sn()) {
            if !stream.is_empty() {
                self.replay = Some(Replay { stream, at: 0 });
                return true;
            }
            // It only counts as received (§11.6.1 b): its place is free at once.
            self.window.receive();
            self.window.give_back();
        }
        false
    }

    /// As [`Self::step`], on what had to wait.
    #[cold]
    fn step_replay(
        &mut self,
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let mut replay = self.replay.take()?;
        std::mem::swap(&mut self.framing, &mut self.replay_framing);
        let mut rest = &replay.stream[replay.at..];
        let event = self
            .step(&mut rest, directory, transmit)
            .map(ConnectionEvent::into_owned);
        replay.at = replay.stream.len() - rest.len();
        std::mem::swap(&mut self.framing, &mut self.replay_framing);
        if replay.at < replay.stream.len() || !matches!(self.receiving, Receiving::Header) {
            self.replay = Some(replay);
        }
        event.filter(|event| *event != ConnectionEvent::NeedMore)
    }
}
