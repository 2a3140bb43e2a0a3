//! What an initiator receives in full feature phase.

use super::{
    CloseReason, CommandId, Connection, Event, Outcome, Phase, R2tRequest, Receiving, Residual,
    Slot, TEXT_ANSWER_MAX, Transfer,
};
use crate::framing::TrailerStep;
use crate::pdu::{
    AsyncMessage, Bhs, CommandWindow, DataIn, InitiatorTaskTag, LogoutResponse, LogoutResult,
    NopIn, NopOut, Opcode, R2t, Reject, ScsiResponse, ServiceResponse, StatSn,
    TaskManagementResponse, TextResponse,
};
use longshore_wire::transmit::Transmit;

/// A Data-In under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    command: CommandId,
    /// Where its next byte belongs.
    offset: u32,
    /// The status it brings, with the residual.
    status: Option<(u8, Residual)>,
}

impl Connection {
    /// Checks a Data-In against its command.
    pub(super) fn data_in_header(&mut self, bhs: &Bhs) -> Result<Incoming, &'static str> {
        let data_in = DataIn::decode(bhs);
        let length = bhs.data_segment_length();
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
        slot.data_sn = slot.data_sn.next();
        slot.received += length;
        if slot.received > expected {
            return Err("more read data than expected");
        }
        let residual = residual(data_in.overflow, data_in.underflow, data_in.residual_count);
        let status = data_in.has_status.then_some((data_in.status, residual));
        Ok(Incoming {
            command,
            offset: data_in.buffer_offset,
            status,
        })
    }

    /// Takes what the input has of the Data-In under way.
    pub(super) fn data_in<'a>(
        &mut self,
        mut incoming: Incoming,
        input: &mut &'a [u8],
    ) -> Option<Event<'a>> {
        if self.framing.remaining() > 0 {
            if input.is_empty() {
                return Some(Event::NeedMore);
            }
            let bytes = self.framing.take_data(u32::MAX, input);
            let buffer_offset = incoming.offset;
            incoming.offset += u32::try_from(bytes.len()).expect("a data segment is short");
            self.receiving = Receiving::DataIn(incoming);
            return Some(Event::DataIn {
                command: incoming.command,
                buffer_offset,
                bytes,
            });
        }
        match self.framing.take_trailer(input) {
            TrailerStep::NeedMore => return Some(Event::NeedMore),
            TrailerStep::Done { digest_ok: false } => {
                return Some(self.close(CloseReason::DataDigestError));
            }
            TrailerStep::Done { digest_ok: true } => self.receiving = Receiving::Header,
        }
        let (status, residual) = incoming.status?;
        let data_in_length = self.slots[usize::from(incoming.command.0)].received;
        self.free_slot(incoming.command);
        let outcome = Outcome {
            status: Some(status),
            sense: Vec::new(),
            residual,
            data_in_length,
        };
        Some(Event::Completed {
            command: incoming.command,
            outcome,
        })
    }

    /// A PDU other than Data-In has arrived in full. `Err`: what the target did wrong.
    pub(super) fn response(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        transmit: &mut Transmit,
    ) -> Result<Option<Event<'static>>, &'static str> {
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
                Ok(Some(Event::TaskManagementDone {
                    request: response.initiator_task_tag,
                    response: response.response,
                }))
            }
            Opcode::TEXT_RESPONSE => self.text_response(&TextResponse::decode(bhs), data, transmit),
            Opcode::LOGOUT_RESPONSE => {
                let response = LogoutResponse::decode(bhs);
                self.learn(response.stat_sn, response.window)?;
                if response.response == LogoutResult::CLOSED {
                    self.phase = Phase::Closed(CloseReason::Logout);
                }
                Ok(Some(Event::LoggedOut(response.response)))
            }
            Opcode::ASYNC_MESSAGE => {
                let message = AsyncMessage::decode(bhs);
                self.learn(message.stat_sn, message.window)?;
                Ok(Some(Event::Async(message)))
            }
            Opcode::REJECT => {
                let reject = Reject::decode(bhs);
                self.learn(reject.stat_sn, reject.window)?;
                Ok(Some(Event::Rejected {
                    reason: reject.reason,
                    header: data.to_vec(),
                }))
            }
            _ => Err("an opcode no target sends"),
        }
    }

    fn scsi_response(
        &mut self,
        response: &ScsiResponse,
        data: &[u8],
    ) -> Result<Event<'static>, &'static str> {
        self.learn(response.stat_sn, response.window)?;
        let (command, slot) = self
            .slot_mut(response.initiator_task_tag)
            .ok_or("SCSI Response for no command")?;
        let slot: Slot = *slot;
        let completed = response.response == ServiceResponse::COMMAND_COMPLETED;
        if completed && response.exp_data_sn != slot.data_sn.0 {
            return Err("a Data-In is missing");
        }
        self.free_slot(command);
        let outcome = Outcome {
            status: completed.then_some(response.status),
            sense: sense(data)
                .ok_or("sense data beyond the data segment")?
                .to_vec(),
            residual: residual(
                response.overflow,
                response.underflow,
                response.residual_count,
            ),
            data_in_length: slot.received,
        };
        Ok(Event::Completed { command, outcome })
    }

    fn r2t(&mut self, r2t: &R2t) -> Result<Event<'static>, &'static str> {
        self.learn_window(r2t.window);
        let max_burst = self.limits.max_burst_length;
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
        Ok(Event::R2t(R2tRequest {
            command,
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
    ) -> Result<Option<Event<'static>>, &'static str> {
        self.learn_window(nop.window);
        if !nop.initiator_task_tag.is_reserved() {
            self.learn_stat_sn(nop.stat_sn)?;
            return Ok(Some(Event::Pong {
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
    ) -> Result<Option<Event<'static>>, &'static str> {
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
                .map(|exchange| Event::Text(exchange.answer)));
        }
        self.send_text(
            response.initiator_task_tag,
            response.target_transfer_tag,
            transmit,
        );
        Ok(None)
    }

    fn learn(&mut self, stat_sn: StatSn, window: CommandWindow) -> Result<(), &'static str> {
        self.learn_window(window);
        self.learn_stat_sn(stat_sn)
    }

    /// §4.2.2.1: a window that ends before it starts is ignored, and so is an older one.
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
    fn learn_stat_sn(&mut self, stat_sn: StatSn) -> Result<(), &'static str> {
        if stat_sn != self.exp_stat_sn {
            return Err("a response is missing");
        }
        self.exp_stat_sn = stat_sn.next();
        Ok(())
    }
}

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
