//! Data from the host: in the capsule, or asked for by R2Ts.
//!
//! ```text
//! 0                              wanted        length of the SGL
//! ├── R2T ──┼── R2T ──┼── … ──┼─ R2T ─┼── not asked for ──┤
//!  H2CData…   H2CData…
//! ```
//!
//! So many R2Ts as the host allows are outstanding at a time. The data of each come in order; of several
//! R2Ts any may be answered first. A data digest error does not end the command by itself: the data of the
//! R2Ts that are outstanding is awaited and thrown away, and then the driver is told to fail the command.

use longshore_wire::pdu_data::TrailerStep;
use longshore_wire::transmit::Transmit;

use super::state::{Connection, ConnectionEvent, Incoming, Phase, Ready, Receiving, Source};
use crate::pdu::{CommonHeader, FatalError, FatalErrorStatus, H2cData, R2t};
use crate::server::command::{CommandSlot, PayloadWanted};
use crate::server::commands::OutstandingR2t;

impl Connection {
    /// The driver's answer to a command with data for the controller: it takes `wanted` bytes of them, 0
    /// included. R2Ts are sent for what is not in the capsule. [`ConnectionEvent::DataOutComplete`] or
    /// [`ConnectionEvent::DataOutFailed`] follows, unless the command is completed before.
    ///
    /// Called again with less, as for a command that is aborted, no more R2Ts are sent, and the event
    /// follows when those outstanding have been answered.
    ///
    /// # Panics
    /// When the command is not live.
    pub fn want_data_out(&mut self, slot: CommandSlot, wanted: u32, transmit: &mut Transmit) {
        let command = self.commands.get_mut(slot);
        let most = command.wanted.unwrap_or(command.from_host);
        command.wanted = Some(wanted.min(most));
        if let Some(ready) = self.advance_data_out(slot, transmit) {
            self.ready.push_back(ready);
        }
    }

    /// While data of a command are being received: where the next bytes belong. The driver may receive
    /// straight into that place and call [`Self::payload_received`] instead of [`Self::next`].
    #[inline]
    #[must_use]
    pub fn payload_wanted(&self) -> Option<PayloadWanted> {
        let Receiving::Data(incoming) = &self.receiving else {
            return None;
        };
        if !self.framing.data.is_at_payload() || !self.ready.is_empty() {
            return None;
        }
        let length = incoming.wanted(self.commands.get(incoming.slot));
        (length > 0).then_some(PayloadWanted {
            slot: incoming.slot,
            buffer_offset: incoming.offset,
            length,
            solicited: matches!(incoming.source, Source::R2t(_)),
        })
    }

    /// `placed` bytes have been received to where [`Self::payload_wanted`] said.
    ///
    /// # Panics
    /// When nothing was wanted, or less.
    #[inline]
    pub fn payload_received(&mut self, placed: &[u8], now_ms: u64) {
        self.timers.heard(now_ms);
        let Receiving::Data(incoming) = &mut self.receiving else {
            panic!("no payload was wanted");
        };
        let length = u32::try_from(placed.len()).expect("a PDU is short");
        debug_assert!(
            length <= incoming.wanted(self.commands.get(incoming.slot)),
            "no more is placed than was wanted"
        );
        self.framing.data.placed(placed);
        incoming.offset += length;
    }

    /// Whether the host owes data that R2Ts asked for. It may be sending them: the command must not be
    /// completed before [`ConnectionEvent::DataOutComplete`] or [`ConnectionEvent::DataOutFailed`].
    ///
    /// # Panics
    /// When the command is not live.
    #[must_use]
    pub fn outstanding_data_out(&self, slot: CommandSlot) -> bool {
        !matches!(self.phase, Phase::Closed(_)) && self.commands.get(slot).r2ts > 0
    }

    /// All data of a command that has just been reported, if they are in the capsule and `input` begins
    /// with them. A driver that can use them where they are calls [`Self::take_in_capsule`] and then
    /// [`Self::complete`]; otherwise it goes on as if it had not asked.
    #[inline]
    #[must_use]
    pub fn whole_in_capsule<'a>(&self, slot: CommandSlot, input: &'a [u8]) -> Option<&'a [u8]> {
        let Receiving::Data(incoming) = &self.receiving else {
            return None;
        };
        let whole = incoming.slot == slot
            && incoming.source == Source::Capsule
            && incoming.lead == 0
            && incoming.offset == 0
            && incoming.end == self.framing.data.remaining()
            && self.ready.is_empty();
        whole.then(|| self.framing.data.whole(input)).flatten()
    }

    /// Takes the data that [`Self::whole_in_capsule`] showed off the front of the same input.
    #[inline]
    pub fn take_in_capsule(&mut self, slot: CommandSlot, input: &mut &[u8]) {
        self.framing.data.take_whole(input);
        self.receiving = Receiving::Header;
        self.commands.get_mut(slot).in_capsule = false;
    }

    /// The header of an H2CData.
    pub(super) fn h2c_data_header(
        &mut self,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let data = H2cData::decode(self.framing.header());
        match self.check_h2c_data(&data) {
            Ok(slot) => {
                self.receiving = Receiving::Data(Incoming {
                    slot,
                    source: Source::R2t(data.tag),
                    lead: 0,
                    offset: data.offset,
                    end: data.offset + data.length,
                });
                None
            }
            Err(error) => Some(self.terminate(error, transmit)),
        }
    }

    /// Finds the R2T that data answer; they must come next there.
    fn check_h2c_data(&mut self, data: &H2cData) -> Result<CommandSlot, FatalError> {
        let max_h2c_data = self.config.max_h2c_data_bytes;
        let plain = |status| Err(FatalError::plain(status));
        if data.length == 0 || data.length != self.framing.data.remaining() {
            return Err(FatalError::invalid_field(H2cData::DATAL_OFFSET));
        }
        if data.length > max_h2c_data {
            return plain(FatalErrorStatus::DATA_TRANSFER_LIMIT_EXCEEDED);
        }
        let Some(r2t) = self.commands.r2t_mut(data.tag) else {
            return plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
        };
        if data.offset != r2t.offset || data.length > r2t.end - r2t.offset {
            return plain(FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE);
        }
        if data.last && data.length < r2t.end - r2t.offset {
            // Nothing else would come, and the command would wait forever. The last PDU without the
            // flag does no harm.
            return Err(FatalError::invalid_field(CommonHeader::FLAGS_OFFSET));
        }
        let slot = r2t.slot;
        r2t.offset += data.length;
        if self.commands.get(slot).id != data.command {
            return plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
        }
        Ok(slot)
    }

    /// Takes what the input has of the data under way.
    #[inline]
    pub(super) fn h2c_payload<'a>(
        &mut self,
        mut incoming: Incoming,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'a>> {
        let remaining = self.framing.data.remaining();
        if remaining > 0 {
            if input.is_empty() {
                return Some(ConnectionEvent::NeedMore);
            }
            if incoming.lead > 0 {
                let skipped = self.framing.data.take(incoming.lead, input).len();
                incoming.lead -= u32::try_from(skipped).expect("a PDU is short");
                self.receiving = Receiving::Data(incoming);
                return None;
            }
            let wanted = incoming.wanted(self.commands.get(incoming.slot));
            if wanted == 0 {
                self.framing.data.take(remaining, input);
                return None;
            }
            let bytes = self.framing.data.take(wanted, input);
            if bytes.is_empty() {
                return None;
            }
            let buffer_offset = incoming.offset;
            incoming.offset += u32::try_from(bytes.len()).expect("a PDU is short");
            self.receiving = Receiving::Data(incoming);
            return Some(ConnectionEvent::DataOut {
                slot: incoming.slot,
                buffer_offset,
                bytes,
            });
        }
        match self.framing.data.take_trailer(input) {
            TrailerStep::NeedMore => Some(ConnectionEvent::NeedMore),
            TrailerStep::Done { digest_ok } => {
                self.receiving = Receiving::Header;
                self.data_pdu_received(incoming, digest_ok, transmit)
                    .map(Ready::event)
            }
        }
    }

    /// A PDU with data of a command has arrived in full.
    #[inline]
    fn data_pdu_received(
        &mut self,
        incoming: Incoming,
        digest_ok: bool,
        transmit: &mut Transmit,
    ) -> Option<Ready> {
        let command = self.commands.get_mut(incoming.slot);
        command.failed |= !digest_ok;
        match incoming.source {
            Source::Capsule => command.in_capsule = false,
            Source::R2t(tag) => {
                if self
                    .commands
                    .r2t_mut(tag)
                    .is_some_and(|r2t| r2t.offset == r2t.end)
                {
                    self.commands.end_r2t(tag);
                }
            }
        }
        self.advance_data_out(incoming.slot, transmit)
    }

    /// Sends the R2Ts that are due, or says how the data ended.
    #[inline]
    fn advance_data_out(&mut self, slot: CommandSlot, transmit: &mut Transmit) -> Option<Ready> {
        let r2ts_max = self.r2ts_max;
        let command = self.commands.get_mut(slot);
        if command.reported || matches!(self.phase, Phase::Closed(_)) {
            return None;
        }
        if command.failed {
            command.reported = !command.is_owed_data();
            return command.reported.then_some(Ready::DataOutFailed(slot));
        }
        let wanted = command.wanted?;
        if command.solicit_offset >= wanted {
            command.reported = !command.is_owed_data();
            return command.reported.then_some(Ready::DataOutComplete(slot));
        }
        while self.commands.get(slot).r2ts < r2ts_max && self.send_r2t(slot, wanted, transmit) {}
        None
    }

    /// Asks for the next piece of a command's data. Returns whether there was one.
    fn send_r2t(&mut self, slot: CommandSlot, wanted: u32, transmit: &mut Transmit) -> bool {
        let command = self.commands.get_mut(slot);
        let offset = command.solicit_offset;
        let length = wanted.saturating_sub(offset).min(self.config.r2t_bytes);
        if length == 0 {
            return false;
        }
        assert!(
            offset + length <= command.from_host,
            "an R2T asks for data that the command has"
        );
        let id = command.id;
        let r2t = OutstandingR2t {
            slot,
            offset,
            end: offset + length,
        };
        let tag = self.commands.add_r2t(r2t);
        self.commands.get_mut(slot).solicit_offset = offset + length;
        let r2t = R2t {
            command: id,
            tag,
            offset,
            length,
        };
        self.encoder.push(r2t.encode(), transmit);
        true
    }
}
