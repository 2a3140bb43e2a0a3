//! What an initiator receives in full feature phase.

use super::event::{
    CloseReason, CommandOutcome, ConnectionEvent, PayloadWanted, R2tRequest, Residual, Transfer,
};
use super::state::{Connection, Incoming, Phase, Receiving, Slot, TEXT_ANSWER_MAX, TextExchange};
use crate::initiator::login::LoginStep;
use crate::keys::Key;
use crate::negotiation::declared_segment_length;
use crate::pdu::{
    AsyncEvent, AsyncMessage, BHS_LENGTH, Bhs, CommandWindow, DataIn, InitiatorTaskTag,
    LoginResponse, LogoutResponse, LogoutResult, NopIn, NopOut, Opcode, R2t, Reject, RejectReason,
    ScsiResponse, ServiceResponse, StatSn, TaskManagementResponse, TextResponse,
};
use crate::text;
use longshore_wire::pdu_data::TrailerStep;
use longshore_wire::transmit::Transmit;

impl Connection {
    /// Checks a Data-In against its command.
    #[inline]
    pub(super) fn data_in_header(&mut self, bhs: &Bhs) -> Result<Incoming, &'static str> {
        let data_in = DataIn::decode(bhs);
        let length = bhs.data_segment_length();
        let in_order = self.limits.data_pdu_in_order && self.limits.data_sequence_in_order;
        self.learn_window(data_in.window);
        if data_in.has_status {
            self.learn_stat_sn(data_in.stat_sn)?;
        }
        let (command, slot) = self
            .slot_mut(data_in.initiator_task_tag)
            .ok_or("Data-In for no command")?;
        let Transfer::Read(expected) = slot.transfer else {
            return Err("Data-In for a command that does not read");
        };
        if data_in.data_sn != slot.data_sn {
            return Err("a Data-In is missing");
        }
        if data_in
            .buffer_offset
            .checked_add(length)
            .is_none_or(|end| end > expected)
        {
            return Err("Data-In beyond the expected length");
        }
        if length > expected - slot.received {
            return Err("more read data than expected");
        }
        // Otherwise what came twice could pass for what never came.
        if in_order && length > 0 && data_in.buffer_offset != slot.received {
            return Err("Data-In out of order");
        }
        slot.data_sn = slot.data_sn.next();
        slot.received += length;
        self.data_pdus += 1;
        let residual = residual(data_in.overflow, data_in.underflow, data_in.residual_count);
        let status = data_in.has_status.then_some((data_in.status, residual));
        Ok(Incoming {
            command,
            tag: data_in.initiator_task_tag,
            offset: data_in.buffer_offset,
            status,
        })
    }

    fn login_response(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
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
                Some(ConnectionEvent::Established)
            }
            Err(error) => Some(self.close(CloseReason::Login(error))),
        }
    }

    /// Takes what the input has of the Data-In under way.
    #[inline]
    pub(super) fn data_in<'a>(
        &mut self,
        mut incoming: Incoming,
        input: &mut &'a [u8],
    ) -> Option<ConnectionEvent<'a>> {
        if self.framing.data.remaining() > 0 {
            if input.is_empty() {
                return Some(ConnectionEvent::NeedMore);
            }
            let bytes = self.framing.data.take(u32::MAX, input);
            let buffer_offset = incoming.offset;
            incoming.advance(bytes);
            self.receiving = Receiving::DataIn(incoming);
            // Data of a forgotten command is dropped.
            let (command, _) = self.slot_mut(incoming.tag)?;
            return Some(ConnectionEvent::DataIn {
                command,
                buffer_offset,
                bytes,
            });
        }
        match self.framing.data.take_trailer(input) {
            TrailerStep::NeedMore => return Some(ConnectionEvent::NeedMore),
            TrailerStep::Done { digest_ok: false } => {
                return Some(self.close(CloseReason::DataDigestError));
            }
            TrailerStep::Done { digest_ok: true } => self.receiving = Receiving::Header,
        }
        let (status, residual) = incoming.status?;
        let (command, slot) = self.slot_mut(incoming.tag)?;
        let data_in_length = slot.received;
        self.free_slot(command);
        let outcome = CommandOutcome {
            status: Some(status),
            rejected: None,
            sense: Vec::new(),
            residual,
            data_in_length,
        };
        Some(ConnectionEvent::Completed { command, outcome })
    }

    /// Where the next bytes of the stream belong, when they are read data: the driver may receive them
    /// there rather than pass them to [`Self::next`], and calls [`Self::payload_received`].
    #[inline]
    #[must_use]
    pub fn payload_wanted(&self) -> Option<PayloadWanted> {
        match (&self.phase, self.receiving) {
            (Phase::FullFeature, Receiving::DataIn(incoming))
                if self.framing.data.remaining() > 0
                    && self.is_live(incoming.command, incoming.tag) =>
            {
                Some(PayloadWanted {
                    command: incoming.command,
                    buffer_offset: incoming.offset,
                    length: self.framing.data.remaining(),
                })
            }
            _ => None,
        }
    }

    /// The driver has received `bytes`, no more than [were wanted](Self::payload_wanted), and they are in
    /// their place. What happens by it comes with the next [`Self::next`], whose input may be empty.
    ///
    /// Bytes that were not wanted close the connection: the driver has lost its place in the stream.
    #[inline]
    pub fn payload_received(&mut self, bytes: &[u8]) {
        match (self.receiving, self.payload_wanted()) {
            (Receiving::DataIn(mut incoming), Some(wanted))
                if bytes.len() <= wanted.length as usize =>
            {
                self.framing.data.placed(bytes);
                incoming.advance(bytes);
                self.receiving = Receiving::DataIn(incoming);
            }
            _ if matches!(self.phase, Phase::Closed(_)) => {}
            _ => drop(self.close(CloseReason::Initiator)),
        }
    }

    /// A PDU other than Data-In has arrived in full. `Err`: what the target did wrong.
    #[inline]
    pub(super) fn response(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        transmit: &mut Transmit,
    ) -> Result<Option<ConnectionEvent<'static>>, &'static str> {
        let opcode = bhs.opcode();
        if opcode == Opcode::LOGIN_RESPONSE {
            return Ok(self.login_response(bhs, data, transmit));
        }
        if !matches!(self.phase, Phase::FullFeature) {
            return Err("a PDU other than a Login Response during login");
        }
        match opcode {
            Opcode::SCSI_RESPONSE => self
                .scsi_response(&ScsiResponse::decode(bhs), data)
                .map(Some),
            Opcode::R2T => self.r2t(&R2t::decode(bhs)).map(Some),
            Opcode::NOP_IN => self.nop_in(&NopIn::decode(bhs), data, transmit),
            Opcode::TASK_MANAGEMENT_RESPONSE => {
                let response = TaskManagementResponse::decode(bhs);
                self.learn(response.stat_sn, response.window)?;
                Ok(Some(ConnectionEvent::TaskManagementDone {
                    request: response.initiator_task_tag,
                    response: response.response,
                }))
            }
            Opcode::TEXT_RESPONSE => self.text_response(&TextResponse::decode(bhs), data, transmit),
            Opcode::LOGOUT_RESPONSE => {
                let response = LogoutResponse::decode(bhs);
                self.learn(response.stat_sn, response.window)?;
                self.logout
                    .take_if(|logout| logout.tag == response.initiator_task_tag)
                    .ok_or("Logout Response for no request")?;
                if response.response == LogoutResult::CLOSED {
                    self.phase = Phase::Closed(CloseReason::Logout);
                }
                Ok(Some(ConnectionEvent::LoggedOut(response.response)))
            }
            Opcode::ASYNC_MESSAGE => {
                let message = AsyncMessage::decode(bhs);
                self.learn(message.stat_sn, message.window)?;
                if message.event == AsyncEvent::NEGOTIATION_REQUEST {
                    // A text request under way will do as well (§11.9.1).
                    let _ = self.start_text(&[], true, transmit);
                }
                Ok(Some(ConnectionEvent::Async(message)))
            }
            Opcode::REJECT => self.rejected(&Reject::decode(bhs), data).map(Some),
            _ => Err("an opcode no target sends"),
        }
    }

    /// The target refuses a PDU of ours. A command ends by it, unless it was only the immediate data that
    /// was damaged: for a task that has begun, a response follows (§7.8, §11.17.1). Other requests are
    /// the driver's to give up.
    #[cold]
    fn rejected(
        &mut self,
        reject: &Reject,
        data: &[u8],
    ) -> Result<ConnectionEvent<'static>, &'static str> {
        self.learn(reject.stat_sn, reject.window)?;
        if let Some(header) = data.first_chunk::<BHS_LENGTH>() {
            let header = Bhs(*header);
            let tag = header.initiator_task_tag();
            match header.opcode() {
                Opcode::SCSI_COMMAND if reject.reason != RejectReason::DATA_DIGEST_ERROR => {
                    if let Some((command, slot)) = self.slot_mut(tag) {
                        let data_in_length = slot.received;
                        self.free_slot(command);
                        let outcome = CommandOutcome {
                            status: None,
                            rejected: Some(reject.reason),
                            sense: Vec::new(),
                            residual: Residual::None,
                            data_in_length,
                        };
                        return Ok(ConnectionEvent::Completed { command, outcome });
                    }
                }
                Opcode::TEXT_REQUEST if self.text.as_ref().is_some_and(|text| text.tag == tag) => {
                    self.text = None;
                }
                Opcode::LOGOUT_REQUEST => {
                    self.logout.take_if(|logout| logout.tag == tag);
                }
                _ => {}
            }
        }
        Ok(ConnectionEvent::Rejected {
            reason: reject.reason,
            header: data.to_vec(),
        })
    }

    #[inline]
    fn scsi_response(
        &mut self,
        response: &ScsiResponse,
        data: &[u8],
    ) -> Result<ConnectionEvent<'static>, &'static str> {
        self.learn(response.stat_sn, response.window)?;
        let (command, slot) = self
            .slot_mut(response.initiator_task_tag)
            .ok_or("SCSI Response for no command")?;
        let slot: Slot = *slot;
        let completed = response.response == ServiceResponse::COMMAND_COMPLETED;
        // RFC 3720 counted R2Ts as well, and tgt 1.0.85 says nothing: only for reads, and only a count
        // that is given, can be held against the target. The driver compares lengths.
        let count = response.exp_data_sn;
        let is_read = matches!(slot.transfer, Transfer::Read(_));
        if completed && is_read && count != 0 && count != slot.data_sn.0 {
            return Err("a Data-In is missing");
        }
        let sense = sense(data).ok_or("sense data beyond the data segment")?;
        self.free_slot(command);
        let outcome = CommandOutcome {
            status: completed.then_some(response.status),
            rejected: None,
            sense: sense.to_vec(),
            residual: residual(
                response.overflow,
                response.underflow,
                response.residual_count,
            ),
            data_in_length: slot.received,
        };
        Ok(ConnectionEvent::Completed { command, outcome })
    }

    fn r2t(&mut self, r2t: &R2t) -> Result<ConnectionEvent<'static>, &'static str> {
        self.learn_window(r2t.window);
        let max_burst = self.limits.max_burst_length;
        let outstanding_max = self.limits.max_outstanding_r2t;
        let (command, slot) = self
            .slot_mut(r2t.initiator_task_tag)
            .ok_or("R2T for no command")?;
        let Transfer::Write(expected) = slot.transfer else {
            return Err("R2T for a command that does not write");
        };
        if r2t.r2t_sn != slot.r2t_sn {
            return Err("an R2T is missing");
        }
        slot.r2t_sn = slot.r2t_sn.next();
        let length = r2t.desired_data_transfer_length;
        let end = r2t.buffer_offset.checked_add(length);
        if length == 0 || length > max_burst || end.is_none_or(|end| end > expected) {
            return Err("R2T beyond what can be sent");
        }
        // At level 0 each byte is asked for once.
        if length > expected - slot.requested {
            return Err("R2Ts for more than there is");
        }
        if slot.r2ts == outstanding_max {
            return Err("more R2Ts than MaxOutstandingR2T");
        }
        slot.requested += length;
        slot.r2ts += 1;
        Ok(ConnectionEvent::R2t(R2tRequest {
            command,
            tag: r2t.initiator_task_tag,
            target_transfer_tag: r2t.target_transfer_tag,
            buffer_offset: r2t.buffer_offset,
            length,
        }))
    }

    fn nop_in(
        &mut self,
        nop: &NopIn,
        data: &[u8],
        transmit: &mut Transmit,
    ) -> Result<Option<ConnectionEvent<'static>>, &'static str> {
        self.learn_window(nop.window);
        if !nop.initiator_task_tag.is_reserved() {
            self.learn_stat_sn(nop.stat_sn)?;
            return Ok(Some(ConnectionEvent::Pong {
                request: nop.initiator_task_tag,
                data: data.to_vec(),
            }));
        }
        if !nop.target_transfer_tag.is_reserved() {
            let answer = NopOut {
                immediate: true,
                lun: nop.lun,
                initiator_task_tag: InitiatorTaskTag::RESERVED,
                target_transfer_tag: nop.target_transfer_tag,
                cmd_sn: self.cmd_sn,
                exp_stat_sn: self.exp_stat_sn,
            };
            self.encoder.push(answer.encode(), &[], transmit);
        }
        Ok(None)
    }

    fn text_response(
        &mut self,
        response: &TextResponse,
        data: &[u8],
        transmit: &mut Transmit,
    ) -> Result<Option<ConnectionEvent<'static>>, &'static str> {
        self.learn(response.stat_sn, response.window)?;
        let Some(exchange) = &mut self.text else {
            return Err("Text Response for no request");
        };
        if exchange.tag != response.initiator_task_tag {
            return Err("Text Response for no request");
        }
        if exchange.answer.len() + data.len() > TEXT_ANSWER_MAX {
            return Err("an answer to a text request that never ends");
        }
        exchange.answer.extend_from_slice(data);
        if response.is_final {
            return Ok(self
                .text
                .take()
                .and_then(|exchange| self.answered(exchange)));
        }
        self.send_text(
            response.initiator_task_tag,
            response.target_transfer_tag,
            transmit,
        );
        Ok(None)
    }

    /// A text exchange is over. What a target declares when it asked for the negotiation holds from now
    /// on (§13.12); the other keys that are allowed then are for people.
    fn answered(&mut self, exchange: TextExchange) -> Option<ConnectionEvent<'static>> {
        if !exchange.negotiation {
            return Some(ConnectionEvent::Text(exchange.answer));
        }
        for pair in text::parse(&exchange.answer).unwrap_or_default() {
            if Key::from_name(pair.key) == Some(Key::MaxRecvDataSegmentLength)
                && let Some(length) = declared_segment_length(pair.value)
            {
                self.limits.target_max_recv_data_segment_length = length;
            }
        }
        None
    }

    #[inline]
    fn learn(&mut self, stat_sn: StatSn, window: CommandWindow) -> Result<(), &'static str> {
        self.learn_window(window);
        self.learn_stat_sn(stat_sn)
    }

    /// §4.2.2.1: a window that ends before it starts is ignored, and so is an older one.
    #[inline]
    fn learn_window(&mut self, window: CommandWindow) {
        if window.max_cmd_sn.next().precedes(window.exp_cmd_sn) {
            return;
        }
        if self.window.max_cmd_sn.precedes(window.max_cmd_sn) {
            self.window.max_cmd_sn = window.max_cmd_sn;
        }
        if self.window.exp_cmd_sn.precedes(window.exp_cmd_sn) {
            self.window.exp_cmd_sn = window.exp_cmd_sn;
        }
    }

    /// A response out of order means that one is missing (§7.9).
    #[inline]
    fn learn_stat_sn(&mut self, stat_sn: StatSn) -> Result<(), &'static str> {
        if stat_sn != self.exp_stat_sn {
            return Err("a response is missing");
        }
        self.exp_stat_sn = stat_sn.next();
        Ok(())
    }
}

#[inline]
const fn residual(overflow: bool, underflow: bool, count: u32) -> Residual {
    match (overflow, underflow) {
        (true, _) => Residual::Overflow(count),
        (false, true) => Residual::Underflow(count),
        (false, false) => Residual::None,
    }
}

/// Sense data in the data segment of a SCSI Response (§11.4.7).
fn sense(data: &[u8]) -> Option<&[u8]> {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return data.is_empty().then_some(data);
    };
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}
