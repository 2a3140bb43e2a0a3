//! What an initiator sends in full feature phase.

use std::ops::Range;

use super::event::{Command, CommandId, NotSent, R2tRequest, Transfer};
use super::state::{Connection, Logout, OTHER_REQUEST, Phase, Slot, TextExchange};
use crate::pdu::{
    self, AdditionalHeaders, Bhs, CmdSn, DataOut, DataSn, Function, InitiatorTaskTag, LogoutReason,
    LogoutRequest, Lun, NopOut, TargetTransferTag, TextRequest,
};
use longshore_wire::transmit::{Chunk, Transmit, WriteData};

impl Connection {
    /// Sends a command. `data` is all of its write data, or at least the part that goes without being
    /// asked for ([`Self::unsolicited_length`]).
    ///
    /// # Errors
    /// When the window is closed, all command numbers are in use, or the connection is not
    /// [ready](Self::is_ready).
    ///
    /// # Panics
    /// When the CDB is longer than 260 bytes, or data that goes along is missing.
    #[inline]
    pub fn submit(
        &mut self,
        command: &Command<'_>,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<CommandId, NotSent> {
        self.check_ready()?;
        if !command.immediate && self.window_open() == 0 {
            return Err(NotSent::Busy);
        }
        let id = CommandId(self.free.pop().ok_or(NotSent::Busy)?);
        let cmd_sn = self.use_cmd_sn(command.immediate);
        self.occupy(id, command, cmd_sn);
        let tag = self.tag_of(id);
        let (read, write, expected) = match command.transfer {
            Transfer::None => (false, false, 0),
            Transfer::Read(length) => (true, false, length),
            Transfer::Write(length) => (false, true, length),
        };
        let (immediate, unsolicited) = if write {
            (
                self.immediate_length(expected),
                self.unsolicited_length(expected),
            )
        } else {
            (0, 0)
        };
        let (fixed, spillover) = command.cdb.split_at(command.cdb.len().min(16));
        let mut cdb = [0; 16];
        cdb[..fixed.len()].copy_from_slice(fixed);
        let header = pdu::ScsiCommand {
            immediate: command.immediate,
            is_final: unsolicited == immediate,
            read,
            write,
            attribute: command.attribute,
            lun: command.lun,
            initiator_task_tag: tag,
            expected_data_transfer_length: expected,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb,
        };
        let with_command = if immediate == 0 {
            Chunk::Bytes(&[])
        } else {
            data.chunk(0, immediate as usize, unsolicited == immediate)
        };
        if spillover.is_empty() {
            self.encoder
                .push_chunk(header.encode(), with_command, transmit);
        } else {
            let headers = AdditionalHeaders {
                extended_cdb: spillover,
                bidirectional_read_length: None,
            };
            self.encoder
                .push_with_ahs(header.encode(), &headers.encode(), with_command, transmit);
        }
        if unsolicited > immediate {
            let first = DataOut {
                is_final: false,
                lun: Lun::ZERO,
                initiator_task_tag: tag,
                target_transfer_tag: TargetTransferTag::RESERVED,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: DataSn(0),
                buffer_offset: immediate,
            };
            let (from, to) = (immediate as usize, unsolicited as usize);
            self.send_sequence(first, data, from..to, transmit);
        }
        Ok(id)
    }

    #[inline]
    fn check_ready(&self) -> Result<(), NotSent> {
        if self.is_ready() {
            Ok(())
        } else {
            Err(NotSent::Closed)
        }
    }

    #[inline]
    fn occupy(&mut self, id: CommandId, command: &Command<'_>, cmd_sn: CmdSn) {
        let slot = &mut self.slots[usize::from(id.0)];
        *slot = Slot {
            live: true,
            // The upper bit is left to other requests, so that no tag is the reserved one.
            generation: slot.generation.wrapping_add(1) & 0x7fff,
            lun: command.lun,
            transfer: command.transfer,
            cmd_sn,
            ..Slot::FREE
        };
    }

    /// Bytes of write data that go with the command.
    #[inline]
    fn immediate_length(&self, expected: u32) -> u32 {
        if !self.limits.immediate_data {
            return 0;
        }
        let segment = self.limits.target_max_recv_data_segment_length;
        expected.min(self.limits.first_burst_length).min(segment)
    }

    /// Bytes of write data, of `expected`, that go without being asked for (§4.2.5.2).
    #[inline]
    #[must_use]
    pub fn unsolicited_length(&self, expected: u32) -> u32 {
        if self.limits.initial_r2t {
            self.immediate_length(expected)
        } else {
            expected.min(self.limits.first_burst_length)
        }
    }

    /// Answers an R2T; `data` are the bytes it asks for. Less than asked for is sent as it is, which
    /// the target takes for an error. Nothing is sent for a command that has ended meanwhile, for an R2T that
    /// was answered before, or on a connection that is closed.
    pub fn send_data_out(
        &mut self,
        r2t: &R2tRequest,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) {
        if !matches!(self.phase, Phase::FullFeature) {
            return;
        }
        let Some((_, slot)) = self.slot_mut(r2t.tag) else {
            return;
        };
        let Some(r2ts) = slot.r2ts.checked_sub(1) else {
            return;
        };
        slot.r2ts = r2ts;
        let first = DataOut {
            is_final: false,
            lun: slot.lun,
            initiator_task_tag: r2t.tag,
            target_transfer_tag: r2t.target_transfer_tag,
            exp_stat_sn: self.exp_stat_sn,
            data_sn: DataSn(0),
            buffer_offset: r2t.buffer_offset,
        };
        self.send_sequence(first, data, 0..data.bytes().len(), transmit);
    }

    /// Sends a sequence of Data-Out PDUs with the bytes of `data` in `range`.
    fn send_sequence(
        &self,
        mut header: DataOut,
        data: WriteData<'_>,
        range: Range<usize>,
        transmit: &mut Transmit,
    ) {
        let segment = self.limits.target_max_recv_data_segment_length;
        let mut from = range.start;
        loop {
            let length = (range.end - from).min(segment as usize);
            header.is_final = from + length == range.end;
            let chunk = if length == 0 {
                Chunk::Bytes(&[])
            } else {
                data.chunk(from, length, header.is_final)
            };
            self.encoder.push_chunk(header.encode(), chunk, transmit);
            if header.is_final {
                return;
            }
            header.data_sn = header.data_sn.next();
            header.buffer_offset += segment;
            from += length;
        }
    }

    /// The number for a request; immediate ones do not use it up (§4.2.2.1).
    #[inline]
    fn use_cmd_sn(&mut self, immediate: bool) -> CmdSn {
        let cmd_sn = self.cmd_sn;
        if !immediate {
            self.cmd_sn = cmd_sn.next();
        }
        cmd_sn
    }

    fn other_tag(&mut self) -> InitiatorTaskTag {
        self.next_request = self.next_request.wrapping_add(1) & 0x00ff_ffff;
        InitiatorTaskTag(OTHER_REQUEST | self.next_request)
    }

    /// Sends an immediate task management request. `command`: the one to abort, for ABORT TASK.
    ///
    /// # Errors
    /// When the connection is not [ready](Self::is_ready).
    pub fn task_management(
        &mut self,
        function: Function,
        lun: Lun,
        command: Option<(CommandId, CmdSn)>,
        transmit: &mut Transmit,
    ) -> Result<InitiatorTaskTag, NotSent> {
        self.check_ready()?;
        let tag = self.other_tag();
        let (referenced_task_tag, ref_cmd_sn) = match command {
            Some((id, cmd_sn)) => (self.tag_of(id), cmd_sn),
            None => (InitiatorTaskTag::RESERVED, CmdSn(0)),
        };
        let request = pdu::TaskManagementRequest {
            immediate: true,
            function,
            lun,
            initiator_task_tag: tag,
            referenced_task_tag,
            cmd_sn: self.use_cmd_sn(true),
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn,
            exp_data_sn: 0,
        };
        self.encoder.push(request.encode(), &[], transmit);
        Ok(tag)
    }

    /// The number the next command that is not immediate will have.
    #[must_use]
    pub const fn next_cmd_sn(&self) -> CmdSn {
        self.cmd_sn
    }

    /// Forgets a command that has been aborted: no response will come for it.
    pub fn forget(&mut self, command: CommandId) {
        self.free_slot(command);
    }

    /// Sends an immediate ping. `data`, no longer than the target's MaxRecvDataSegmentLength, comes back.
    ///
    /// # Errors
    /// When the connection is not [ready](Self::is_ready).
    pub fn ping(
        &mut self,
        data: &[u8],
        transmit: &mut Transmit,
    ) -> Result<InitiatorTaskTag, NotSent> {
        self.check_ready()?;
        let tag = self.other_tag();
        let nop = NopOut {
            immediate: true,
            lun: Lun::ZERO,
            initiator_task_tag: tag,
            target_transfer_tag: TargetTransferTag::RESERVED,
            cmd_sn: self.use_cmd_sn(true),
            exp_stat_sn: self.exp_stat_sn,
        };
        self.encoder.push(nop.encode(), data, transmit);
        Ok(tag)
    }

    /// Sends a text, which may be longer than a data segment.
    ///
    /// # Errors
    /// When a text request is under way (§11.10 allows one), or the connection is not
    /// [ready](Self::is_ready).
    pub fn text(&mut self, text: &[u8], transmit: &mut Transmit) -> Result<(), NotSent> {
        self.start_text(text, false, transmit)
    }

    /// `negotiation`: the target asked for it.
    pub(super) fn start_text(
        &mut self,
        text: &[u8],
        negotiation: bool,
        transmit: &mut Transmit,
    ) -> Result<(), NotSent> {
        self.check_ready()?;
        if self.text.is_some() {
            return Err(NotSent::Busy);
        }
        let tag = self.other_tag();
        self.text = Some(TextExchange {
            tag,
            negotiation,
            unsent: text.to_vec(),
            answer: Vec::new(),
        });
        self.send_text(tag, TargetTransferTag::RESERVED, transmit);
        Ok(())
    }

    /// Sends the next piece of the text; empty when all of it has been sent and the answer goes on.
    pub(super) fn send_text(
        &mut self,
        initiator_task_tag: InitiatorTaskTag,
        target_transfer_tag: TargetTransferTag,
        transmit: &mut Transmit,
    ) {
        let segment = self.limits.target_max_recv_data_segment_length as usize;
        let cmd_sn = self.use_cmd_sn(true);
        let Some(exchange) = &mut self.text else {
            return;
        };
        let now: Vec<u8> = exchange
            .unsent
            .drain(..exchange.unsent.len().min(segment))
            .collect();
        let continues = !exchange.unsent.is_empty();
        let request = TextRequest {
            immediate: true,
            is_final: !continues,
            continues,
            lun: Lun::ZERO,
            initiator_task_tag,
            target_transfer_tag,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.encoder.push(request.encode(), &now, transmit);
    }

    /// Asks for the end of the session or of this connection. No command is taken after it, unless the
    /// target refuses.
    ///
    /// # Errors
    /// When the connection is not [ready](Self::is_ready): there is nothing to log out of, or a logout is
    /// under way.
    pub fn logout(&mut self, reason: LogoutReason, transmit: &mut Transmit) -> Result<(), NotSent> {
        self.check_ready()?;
        let session = self.session.as_ref().ok_or(NotSent::Closed)?;
        let connection_id = session.connection_id;
        let tag = self.other_tag();
        self.logout = Some(Logout {
            tag,
            is_last: reason != LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY,
        });
        let request = LogoutRequest {
            immediate: true,
            reason,
            initiator_task_tag: tag,
            connection_id,
            cmd_sn: self.use_cmd_sn(true),
            exp_stat_sn: self.exp_stat_sn,
        };
        self.encoder.push(request.encode(), &[], transmit);
        Ok(())
    }

    /// Queues a PDU of the caller's making, for tests of the other end.
    pub fn send_raw(&mut self, header: Bhs, data: &[u8], transmit: &mut Transmit) {
        self.encoder.push(header, data, transmit);
    }
}
