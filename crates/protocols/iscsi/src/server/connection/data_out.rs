//! Write data: immediate, unsolicited and solicited (RFC 7143 §4.2.5.2, §11.7, §11.8).
//!
//! ```text
//! 0                immediate      unsolicited_end                              wanted    EDTL
//! ├── with command ──┼── Data-Out ──┼── R2T 0 ──┼── R2T 1 ──┼── … up to MaxBurst ─┼── not asked for
//! ```
//!
//! R2Ts for what lies beyond the unsolicited part are sent at once, up to MaxOutstandingR2T. An error
//! in the data does not end the task by itself: the rest of the data announced or asked for is
//! awaited and discarded (§7.8), and then the driver is told to fail the command.

use std::borrow::Cow;

use super::event::ConnectionEvent;
use super::reject::Refusal;
use super::state::{Connection, Incoming, Receiving, Sequence};
use crate::pdu::{self, Bhs, DataSn, R2t};
use crate::server::command::{DataOutFailure, PayloadWanted, TaskId};
use crate::server::task::{OutstandingR2t, Task};
use longshore_wire::pdu_data::TrailerStep;
use longshore_wire::transmit::Transmit;

impl Connection {
    /// The driver's answer to a write command: it takes `wanted` bytes of data, 0 included. R2Ts are
    /// sent for what is neither immediate nor unsolicited, up to EDTL. [`ConnectionEvent::DataOutComplete`] or
    /// [`ConnectionEvent::DataOutFailed`] follows, unless the task is completed or aborted before.
    pub fn want_data_out(&mut self, task: TaskId, wanted: u64, transmit: &mut Transmit) {
        let slot = self.tasks.get_mut(task);
        let limit = if slot.write {
            slot.expected_data_transfer_length
        } else {
            0
        };
        if !slot.write {
            slot.data_out.start(0, true, 0);
        }
        slot.data_out.wanted = Some(u32::try_from(wanted).unwrap_or(u32::MAX).min(limit));
        self.advance_data_out(task, transmit);
    }

    /// Bytes of a write command's data that come without being asked for, at most.
    ///
    /// # Panics
    /// When the task is not live.
    #[must_use]
    pub fn unsolicited_data_out(&self, task: TaskId) -> u32 {
        self.tasks.get(task).data_out.unsolicited_end
    }

    /// While write data is being received: where its next bytes belong. The driver may receive
    /// straight into that place and call [`Self::payload_received`] instead of [`Self::next`].
    #[inline]
    #[must_use]
    pub fn payload_wanted(&self) -> Option<PayloadWanted> {
        let Receiving::WriteData(incoming) = &self.receiving else {
            return None;
        };
        if self.replay.is_some() || !self.ready.is_empty() {
            return None;
        }
        let length = incoming.wanted(self.tasks.get(incoming.task), self.framing.data.remaining());
        (length > 0).then_some(PayloadWanted {
            task: incoming.task,
            buffer_offset: incoming.offset,
            length,
            solicited: matches!(incoming.sequence, Sequence::Solicited(_)),
        })
    }

    /// `placed` bytes have been received to where [`Self::payload_wanted`] said.
    ///
    /// # Panics
    /// When nothing was wanted, or less.
    #[inline]
    pub fn payload_received(&mut self, placed: &[u8], now_ms: u64) {
        self.timers.heard(now_ms);
        let Receiving::WriteData(incoming) = &mut self.receiving else {
            panic!("no payload was wanted");
        };
        let length = u32::try_from(placed.len()).expect("a data segment is short");
        let task = self.tasks.get_mut(incoming.task);
        debug_assert!(
            length <= incoming.wanted(task, self.framing.data.remaining()),
            "no more is placed than was wanted"
        );
        self.framing.data.placed(placed);
        incoming.offset += length;
        task.data_out.received += length;
    }

    /// All data of a write command that has just been reported, if they are immediate and `input` begins
    /// with them. A driver that can use them where they are calls [`Self::take_immediate`] and then
    /// [`Self::complete`]; otherwise it goes on as if it had not asked.
    #[inline]
    #[must_use]
    pub fn whole_immediate<'a>(&self, task: TaskId, input: &'a [u8]) -> Option<&'a [u8]> {
        let Receiving::WriteData(incoming) = &self.receiving else {
            return None;
        };
        if incoming.task != task
            || incoming.sequence != Sequence::Immediate
            || incoming.offset > 0
            || self.replay.is_some()
            || !self.ready.is_empty()
        {
            return None;
        }
        let slot = self.tasks.get(task);
        if slot.expected_data_transfer_length != self.framing.data.remaining()
            || slot.data_out.failure.is_some()
            || slot.data_out.owed()
        {
            return None;
        }
        self.framing.data.whole(input)
    }

    /// Takes the data that [`Self::whole_immediate`] showed off the front of the same input.
    #[inline]
    pub fn take_immediate(&mut self, input: &mut &[u8]) {
        self.framing.data.take_whole(input);
        self.receiving = Receiving::Header;
    }

    /// The header of a Data-Out.
    pub(super) fn data_out_header(&mut self, bhs: &Bhs, transmit: &mut Transmit) {
        let data_out = pdu::DataOut::decode(bhs);
        let tag = data_out.initiator_task_tag;
        let Some(task) = self.tasks.find(tag) else {
            if self.held.find(tag).is_some() && data_out.target_transfer_tag.is_reserved() {
                self.receiving = Receiving::HeldDataOut;
                self.collected.clear();
                return;
            }
            // Data of a task that has ended is on its way for a while (§11.5.1).
            if self.tasks.ended_lately(tag) {
                self.receiving = Receiving::Discarded;
            } else {
                self.refuse_current(Refusal::UnknownTag, transmit);
            }
            return;
        };
        match self.place_in_sequence(task, &data_out, bhs.data_segment_length()) {
            Ok(sequence) => {
                self.receiving = Receiving::WriteData(Incoming {
                    task,
                    offset: data_out.buffer_offset,
                    sequence,
                    is_final: data_out.is_final,
                });
            }
            Err(refusal) => self.refuse_current(refusal, transmit),
        }
    }

    /// Finds the sequence of a Data-Out and checks that it comes next there. A PDU out of place
    /// makes the data of its task unusable and is then counted as if it were in place, so that the
    /// end of the sequence is still seen.
    fn place_in_sequence(
        &mut self,
        task: TaskId,
        data_out: &pdu::DataOut,
        length: u32,
    ) -> Result<Sequence, Refusal> {
        let task = self.tasks.get_mut(task);
        if !task.write {
            return Err(Refusal::UnknownTag);
        }
        let state = &mut task.data_out;
        let offset = data_out.buffer_offset;
        let end = offset.checked_add(length);
        let (sequence, failure) = if data_out.target_transfer_tag.is_reserved() {
            // What was announced may come after the command has all that it wants.
            if state.reported && !state.unsolicited_open {
                return Err(Refusal::UnknownTag);
            }
            let failure = if !state.unsolicited_open {
                Some(DataOutFailure::UNEXPECTED_UNSOLICITED_DATA)
            } else {
                misplaced(
                    data_out.data_sn == state.unsolicited_data_sn,
                    offset == state.unsolicited_offset,
                    end.is_some_and(|end| end <= state.unsolicited_end),
                )
            };
            state.unsolicited_data_sn = state.unsolicited_data_sn.next();
            state.unsolicited_offset = state.unsolicited_offset.saturating_add(length);
            (Sequence::Unsolicited, failure)
        } else {
            let tag = data_out.target_transfer_tag;
            let r2t = state
                .outstanding
                .iter_mut()
                .find(|r2t| r2t.target_transfer_tag == tag)
                .ok_or(Refusal::UnknownTag)?;
            let failure = misplaced(
                data_out.data_sn == r2t.data_sn,
                r2t.buffer_offset.checked_add(r2t.received) == Some(offset),
                r2t.received
                    .checked_add(length)
                    .is_some_and(|received| received <= r2t.length),
            );
            r2t.data_sn = r2t.data_sn.next();
            r2t.received = r2t.received.saturating_add(length);
            (Sequence::Solicited(tag), failure)
        };
        if let Some(failure) = failure {
            state.failure.get_or_insert(failure);
        }
        Ok(sequence)
    }

    /// Takes what the input has of the data segment under way.
    pub(super) fn write_data<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'a>> {
        let Receiving::WriteData(incoming) = &mut self.receiving else {
            unreachable!("called for write data");
        };
        let remaining = self.framing.data.remaining();
        if remaining > 0 {
            if input.is_empty() {
                return Some(ConnectionEvent::NeedMore);
            }
            let task = self.tasks.get_mut(incoming.task);
            let wanted = incoming.wanted(task, remaining);
            let most = if wanted > 0 { wanted } else { remaining };
            let bytes = self.framing.data.take(most, input);
            let buffer_offset = incoming.offset;
            let length = u32::try_from(bytes.len()).expect("a data segment is short");
            incoming.offset = incoming.offset.saturating_add(length);
            if wanted == 0 {
                return None;
            }
            task.data_out.received += length;
            let bytes = Cow::Borrowed(bytes);
            return Some(ConnectionEvent::DataOut {
                task: incoming.task,
                buffer_offset,
                bytes,
            });
        }
        match self.framing.data.take_trailer(input) {
            TrailerStep::NeedMore => Some(ConnectionEvent::NeedMore),
            TrailerStep::Done { digest_ok } => {
                let incoming = *incoming;
                self.receiving = Receiving::Header;
                self.data_pdu_received(incoming, digest_ok, transmit);
                None
            }
        }
    }

    /// A PDU with write data has arrived in full.
    fn data_pdu_received(&mut self, incoming: Incoming, digest_ok: bool, transmit: &mut Transmit) {
        if !digest_ok {
            let bhs = self.current;
            let failure = DataOutFailure::PROTOCOL_SERVICE_CRC_ERROR;
            self.refuse(&bhs, &[], Refusal::DataDigest, transmit);
            self.tasks
                .get_mut(incoming.task)
                .data_out
                .failure
                .get_or_insert(failure);
        }
        let first_burst = self.limits.first_burst_length;
        let task = self.tasks.get_mut(incoming.task);
        match incoming.sequence {
            Sequence::Immediate => {}
            Sequence::Unsolicited => {
                if incoming.is_final {
                    end_unsolicited(task, first_burst);
                }
            }
            Sequence::Solicited(tag) => end_solicited(task, tag, incoming.is_final),
        }
        self.advance_data_out(incoming.task, transmit);
    }

    /// Sends the R2Ts that are due, or tells the driver how the data ended.
    pub(super) fn advance_data_out(&mut self, id: TaskId, transmit: &mut Transmit) {
        let task = self.tasks.get_mut(id);
        let state = &mut task.data_out;
        if state.reported {
            return;
        }
        if let Some(failure) = state.failure {
            let arriving =
                matches!(&self.receiving, Receiving::WriteData(incoming) if incoming.task == id);
            if !state.owed() && !arriving {
                state.reported = true;
                self.ready
                    .push_back(ConnectionEvent::DataOutFailed { task: id, failure });
            }
            return;
        }
        let Some(wanted) = state.wanted else {
            return;
        };
        if state.received >= wanted {
            state.reported = true;
            self.ready
                .push_back(ConnectionEvent::DataOutComplete { task: id });
            return;
        }
        while state.outstanding.len() < usize::from(self.limits.max_outstanding_r2t)
            && state.solicit_offset < wanted
        {
            let length = (wanted - state.solicit_offset).min(self.limits.max_burst_length);
            let r2t = R2t {
                lun: task.lun,
                initiator_task_tag: task.initiator_task_tag,
                target_transfer_tag: self.transfer_tags.next(),
                stat_sn: self.stat_sn,
                window: self.window.announced(),
                r2t_sn: state.r2t_sn,
                buffer_offset: state.solicit_offset,
                desired_data_transfer_length: length,
            };
            assert!(
                r2t.buffer_offset + length <= task.expected_data_transfer_length,
                "an R2T asks for data that the command announced"
            );
            state.outstanding.push(OutstandingR2t {
                target_transfer_tag: r2t.target_transfer_tag,
                buffer_offset: r2t.buffer_offset,
                length,
                received: 0,
                data_sn: DataSn(0),
            });
            state.r2t_sn = state.r2t_sn.next();
            state.solicit_offset += length;
            self.encoder.push(r2t.encode(), &[], transmit);
        }
    }
}

/// What is wrong with a PDU that does not come next in its sequence.
///
/// A DataSN out of order means that an earlier PDU was lost to a digest error (§7.9); a place or an
/// amount other than asked for is the "incorrect amount of data" of §11.4.7.2.
const fn misplaced(data_sn: bool, offset: bool, amount: bool) -> Option<DataOutFailure> {
    match (data_sn, offset && amount) {
        (true, true) => None,
        (false, _) => Some(DataOutFailure::PROTOCOL_SERVICE_CRC_ERROR),
        (true, false) => Some(DataOutFailure::INCORRECT_AMOUNT_OF_DATA),
    }
}

/// The last unsolicited PDU has arrived.
///
/// Less than was possible is an error when EDTL is beyond FirstBurstLength (§11.4.7.2); otherwise
/// the rest is asked for.
fn end_unsolicited(task: &mut Task, first_burst_length: u32) {
    let state = &mut task.data_out;
    state.unsolicited_open = false;
    if state.unsolicited_offset >= state.unsolicited_end {
        return;
    }
    if task.expected_data_transfer_length > first_burst_length {
        state
            .failure
            .get_or_insert(DataOutFailure::INCORRECT_AMOUNT_OF_DATA);
    } else if state.r2t_sn.0 == 0 {
        state.solicit_offset = state.unsolicited_offset;
    }
}

/// A PDU of an R2T's burst has arrived. The burst ends with its F bit, or with its last byte.
fn end_solicited(task: &mut Task, tag: pdu::TargetTransferTag, is_final: bool) {
    let state = &mut task.data_out;
    let Some(at) = state
        .outstanding
        .iter()
        .position(|r2t| r2t.target_transfer_tag == tag)
    else {
        return;
    };
    let r2t = state.outstanding[at];
    let complete = r2t.received == r2t.length;
    if is_final && !complete {
        state
            .failure
            .get_or_insert(DataOutFailure::INCORRECT_AMOUNT_OF_DATA);
    }
    if is_final || complete && state.failure.is_none() {
        state.outstanding.remove(at);
    }
}
