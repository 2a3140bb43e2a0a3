//! Read data and the end of commands (RFC 7143 §11.4, §11.7).
//!
//! Data-In PDUs are cut at the initiator's MaxRecvDataSegmentLength, sequences at MaxBurstLength. The
//! last PDU carries the status when that is of the kind without sense data ("phase collapse",
//! §11.7.3); every other end is a SCSI Response.

use super::state::Connection;
use crate::pdu::{
    CommandWindow, DataIn, DataSn, InitiatorTaskTag, Lun, ScsiResponse, ServiceResponse, StatSn,
    TargetTransferTag,
};
use crate::server::command::{Completion, Payload, TaskId};
use crate::server::task::{InlineRead, Residual};
use longshore_wire::transmit::{Chunk, OpenPdu, Transmit};

/// GOOD, CONDITION MET, INTERMEDIATE and INTERMEDIATE-CONDITION MET may travel with data (§11.7).
const fn collapses(status: u8) -> bool {
    matches!(status, 0x00 | 0x04 | 0x10 | 0x14)
}

impl Connection {
    /// Place in the transmit queue for the data of a small read, which the driver fills at once and
    /// in full; stale bytes are in it. `scsi_length` is what the CDB asks for; the place is shorter
    /// when EDTL is. `None` when it does not fit one Data-In PDU, or there is nothing to send. Must
    /// be followed by [`Self::commit_inline_read`] or [`Self::rollback_inline_read`] before any other
    /// call.
    #[inline]
    pub fn begin_inline_read<'t>(
        &mut self,
        task: TaskId,
        scsi_length: u32,
        transmit: &'t mut Transmit,
    ) -> Option<&'t mut [u8]> {
        debug_assert!(self.inline_read.is_none(), "an inline read is open");
        let (pdu, residual) = self.open_inline(task, scsi_length, transmit)?;
        self.inline_read = Some(InlineRead {
            task,
            pdu,
            residual,
        });
        Some(pdu.payload_mut(transmit))
    }

    /// Sends the read begun, with status GOOD in the Data-In PDU; ends the task.
    ///
    /// # Panics
    /// When no inline read of this task is open.
    #[inline]
    pub fn commit_inline_read(&mut self, task: TaskId, transmit: &mut Transmit) {
        let open = self.inline_read.take().expect("an inline read is open");
        assert_eq!(open.task, task, "the inline read is another task's");
        self.send_inline(task, open.pdu, open.residual, transmit);
    }

    /// Answers a small read in one go: `fill` puts all of the data, `scsi_length` or fewer bytes, in the
    /// place it is given, where stale bytes are, and says whether it could. If so, the task ends with
    /// status GOOD. `Some(false)`: it could not, and the task lives on. `None`: the read does not fit one
    /// Data-In PDU, or there is nothing to send.
    ///
    /// # Panics
    /// When the task is not live.
    #[inline]
    pub fn read_inline(
        &mut self,
        task: TaskId,
        scsi_length: u32,
        transmit: &mut Transmit,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<bool> {
        let (pdu, residual) = self.open_inline(task, scsi_length, transmit)?;
        if !fill(pdu.payload_mut(transmit)) {
            pdu.cancel(transmit);
            return Some(false);
        }
        self.send_inline(task, pdu, residual, transmit);
        Some(true)
    }

    /// Opens the Data-In PDU of a read that fits it, with as many bytes as the initiator expects.
    #[inline(always)]
    fn open_inline(
        &mut self,
        task: TaskId,
        scsi_length: u32,
        transmit: &mut Transmit,
    ) -> Option<(OpenPdu, Residual)> {
        let slot = self.tasks.get(task);
        let expected = slot.expected_data_transfer_length;
        let length = scsi_length.min(expected);
        if !slot.read || length == 0 || length > self.limits.inline_read_max {
            return None;
        }
        let pdu = self.encoder.open(length as usize, transmit);
        Some((pdu, Residual::new(expected, u64::from(scsi_length))))
    }

    /// Ends a task by the Data-In PDU that its data are in.
    #[inline]
    fn send_inline(
        &mut self,
        task: TaskId,
        pdu: OpenPdu,
        residual: Residual,
        transmit: &mut Transmit,
    ) {
        let tag = self.tasks.get(task).initiator_task_tag;
        self.end_task(task);
        let end = End {
            tag,
            status: 0,
            residual,
        };
        let data_in = self.only_data_in(end);
        self.encoder.close(pdu, &mut data_in.encode(), transmit);
    }

    /// The Data-In PDU of a read that has one, with its status.
    #[inline]
    fn only_data_in(&mut self, end: End) -> DataIn {
        DataIn {
            is_final: true,
            acknowledge: false,
            overflow: end.residual.overflow,
            underflow: end.residual.underflow,
            has_status: true,
            status: end.status,
            lun: Lun::ZERO,
            initiator_task_tag: end.tag,
            target_transfer_tag: TargetTransferTag::RESERVED,
            stat_sn: self.next_stat_sn(),
            window: self.window.announced(),
            data_sn: DataSn(0),
            buffer_offset: 0,
            residual_count: end.residual.count,
        }
    }

    /// Forgets the read begun; the task lives on.
    ///
    /// # Panics
    /// When no inline read of this task is open.
    pub fn rollback_inline_read(&mut self, task: TaskId, transmit: &mut Transmit) {
        let open = self.inline_read.take().expect("an inline read is open");
        assert_eq!(open.task, task, "the inline read is another task's");
        open.pdu.cancel(transmit);
    }

    /// Ends a task: Data-In PDUs, the last with a status that needs no sense data, or a SCSI Response.
    ///
    /// # Panics
    /// When the task is not live.
    pub fn complete(&mut self, task: TaskId, completion: Completion<'_>, transmit: &mut Transmit) {
        let slot = self.tasks.get(task);
        let expected = slot.expected_data_transfer_length;
        let tag = slot.initiator_task_tag;
        let room = if slot.read { expected } else { 0 };
        let sent = u32::try_from(completion.data_in.len())
            .unwrap_or(u32::MAX)
            .min(room);
        // Of a read, what is not sent is not presented: it may have failed half way.
        let presented = if slot.read && sent < expected {
            u64::from(sent)
        } else {
            completion.scsi_length
        };
        let residual = Residual::new(expected, presented);
        self.end_task(task);
        let collapsed = sent > 0 && completion.sense.is_empty() && collapses(completion.status);
        let end = End {
            tag,
            status: completion.status,
            residual,
        };
        let limits = &self.limits;
        let segment_max = limits.initiator_max_recv_data_segment_length;
        if collapsed && sent <= segment_max.min(limits.max_burst_length) {
            let chunk = chunk(completion.data_in, 0, sent, true);
            let data_in = self.only_data_in(end);
            return self.encoder.push_chunk(data_in.encode(), chunk, transmit);
        }
        let pdus = self.send_data_in(completion.data_in, sent, end, collapsed, transmit);
        if !collapsed {
            self.send_response(end, completion.sense, pdus, transmit);
        }
    }

    /// Sends `sent` bytes of read data. Returns the number of PDUs.
    fn send_data_in(
        &mut self,
        payload: Payload<'_>,
        sent: u32,
        end: End,
        collapsed: bool,
        transmit: &mut Transmit,
    ) -> u32 {
        if let Payload::Buffer { id, .. } | Payload::Unseen { id, .. } = payload
            && sent == 0
        {
            // Nothing of it leaves, but it has to be released all the same.
            transmit.push_buffer(id, 0, 0, true);
        }
        let segment_max = self.limits.initiator_max_recv_data_segment_length;
        let mut data_sn = DataSn(0);
        let mut offset = 0;
        let mut burst_left = self.limits.max_burst_length;
        while offset < sent {
            let length = segment_max.min(burst_left).min(sent - offset);
            let last = offset + length == sent;
            burst_left -= length;
            let has_status = last && collapsed;
            let mut data_in = DataIn {
                is_final: last || burst_left == 0,
                acknowledge: false,
                overflow: false,
                underflow: false,
                has_status,
                status: 0,
                lun: Lun::ZERO,
                initiator_task_tag: end.tag,
                target_transfer_tag: TargetTransferTag::RESERVED,
                stat_sn: StatSn(0),
                window: self.window.announced(),
                data_sn,
                buffer_offset: offset,
                residual_count: 0,
            };
            if has_status {
                data_in.status = end.status;
                data_in.stat_sn = self.next_stat_sn();
                data_in.overflow = end.residual.overflow;
                data_in.underflow = end.residual.underflow;
                data_in.residual_count = end.residual.count;
            }
            let chunk = chunk(payload, offset, length, last);
            self.encoder.push_chunk(data_in.encode(), chunk, transmit);
            offset += length;
            data_sn = data_sn.next();
            if burst_left == 0 {
                burst_left = self.limits.max_burst_length;
            }
        }
        data_sn.0
    }

    fn send_response(
        &mut self,
        end: End,
        sense: &[u8],
        data_in_pdus: u32,
        transmit: &mut Transmit,
    ) {
        let response = ScsiResponse {
            bidirectional_overflow: false,
            bidirectional_underflow: false,
            overflow: end.residual.overflow,
            underflow: end.residual.underflow,
            response: ServiceResponse::COMMAND_COMPLETED,
            status: end.status,
            initiator_task_tag: end.tag,
            snack_tag: 0,
            stat_sn: self.next_stat_sn(),
            window: self.window.announced(),
            exp_data_sn: data_in_pdus,
            bidirectional_residual_count: 0,
            residual_count: end.residual.count,
        };
        if sense.is_empty() {
            return self.encoder.push(response.encode(), &[], transmit);
        }
        // Sense data is at most 252 bytes (SPC-4 §4.5.1); what exceeds the field is no sense data.
        let sense = &sense[..sense.len().min(SENSE_LENGTH_MAX)];
        let mut data = [0; 2 + SENSE_LENGTH_MAX];
        let (length, place) = data.split_at_mut(2);
        let sense_length = u16::try_from(sense.len()).expect("cut off above");
        length.copy_from_slice(&sense_length.to_be_bytes());
        place[..sense.len()].copy_from_slice(sense);
        self.encoder
            .push(response.encode(), &data[..2 + sense.len()], transmit);
    }

    /// Forgets a task without a response. Data still arriving for it is discarded.
    ///
    /// When this opens a closed window there may be no response to tell the initiator so; then a
    /// NOP-In is due at once (§11.4.11), which [`Self::next_deadline_ms`] reports.
    ///
    /// # Panics
    /// When the task is not live.
    pub fn abort(&mut self, task: TaskId) {
        self.timers.announce_window |= self.window.is_closed();
        self.end_task(task);
    }

    /// Whether a digest covers the data of reads, so that [`Payload::Unseen`] cannot be sent.
    #[inline]
    #[must_use]
    pub fn has_data_digest(&self) -> bool {
        self.encoder.data_digest
    }

    /// What [`Self::begin_inline_read`] may place at most, given what was negotiated.
    #[must_use]
    pub fn inline_read_max(&self) -> u32 {
        self.limits.inline_read_max
    }

    /// The window every response announces.
    #[must_use]
    pub fn command_window(&self) -> CommandWindow {
        self.window.announced()
    }
}

const SENSE_LENGTH_MAX: usize = 252;

/// What the last PDU of a command says.
#[derive(Clone, Copy, Debug)]
struct End {
    tag: InitiatorTaskTag,
    status: u8,
    residual: Residual,
}

/// `length` bytes of `payload` at `offset`.
fn chunk(payload: Payload<'_>, offset: u32, length: u32, last: bool) -> Chunk<'_> {
    let start = offset as usize;
    let end = start + length as usize;
    match payload {
        Payload::None => Chunk::Bytes(&[]),
        Payload::Bytes(bytes) => Chunk::Bytes(&bytes[start..end]),
        Payload::Zeros(_) => Chunk::Zeros(length),
        Payload::Buffer { id, bytes } => Chunk::Buffer {
            id,
            start,
            bytes: &bytes[start..end],
            last,
        },
        Payload::Unseen { id, .. } => Chunk::Unseen {
            id,
            start,
            length,
            last,
        },
    }
}
