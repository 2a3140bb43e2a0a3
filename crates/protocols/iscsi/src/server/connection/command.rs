//! SCSI commands: admission and order (RFC 7143 §4.2.2.1, §11.3).

use super::event::{CloseReason, ConnectionEvent};
use super::limits::NegotiatedLimits;
use super::reject::Refusal;
use super::state::{Connection, Incoming, Receiving, Sequence};
use crate::pdu::{self, AdditionalHeaders, Attribute, Bhs};
use crate::server::command::{Cdb, DataOutFailure, ScsiCommand, TaskAttribute};
use crate::server::window::Turn;
use crate::session_parameters::SessionType;
use longshore_wire::transmit::Transmit;

impl Connection {
    /// The header of a SCSI Command.
    #[inline]
    pub(super) fn command_header(
        &mut self,
        bhs: &Bhs,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let command = pdu::ScsiCommand::decode(bhs);
        if !command.immediate {
            match self.window.turn(command.cmd_sn) {
                Turn::Now => {}
                Turn::Later => {
                    self.collected.clear();
                    self.receiving = Receiving::HeldRequest(command.cmd_sn);
                    return None;
                }
                Turn::Never => {
                    self.receiving = Receiving::Discarded;
                    return None;
                }
            }
        }
        let length = bhs.data_segment_length();
        let (cdb, bidirectional) = match self.check_command(&command, length, bhs) {
            Ok(admitted) => admitted,
            Err(NotAdmitted::Refuse(refusal)) => {
                self.refuse_current(refusal, transmit);
                return None;
            }
            Err(NotAdmitted::Close(problem)) => {
                return Some(self.close(CloseReason::ProtocolError(problem)));
            }
        };
        let Ok(id) = self
            .tasks
            .insert(command.initiator_task_tag, command.immediate)
        else {
            self.refuse_current(Refusal::TooManyImmediate, transmit);
            return None;
        };
        if !command.immediate {
            self.window.receive();
        }
        // Some initiators state a length and no direction (ESX 3 for RESERVE and RELEASE): nothing
        // can be moved then, whatever the length.
        let expected = if command.read || command.write {
            command.expected_data_transfer_length
        } else {
            0
        };
        let task = self.tasks.get_mut(id);
        task.lun = command.lun;
        task.cmd_sn = command.cmd_sn;
        task.expected_data_transfer_length = expected;
        // A bidirectional command is answered by its status: what it would read is never sent, and
        // the residual count is that of its write.
        task.read = command.read && !bidirectional;
        task.write = command.write;
        if command.write {
            let incoming = Incoming {
                task: id,
                offset: 0,
                sequence: Sequence::Immediate,
                is_final: false,
            };
            let first_burst = self.limits.first_burst_length.min(expected);
            let state = &mut task.data_out;
            state.start(length, command.is_final || length == expected, first_burst);
            state.failure =
                unsolicited_failure(&self.limits, length, expected, state.unsolicited_open);
            if length > 0 {
                self.receiving = Receiving::WriteData(incoming);
            } else if state.failure.is_some() {
                self.advance_data_out(id, transmit);
            }
        }
        Some(ConnectionEvent::Command(ScsiCommand {
            task: id,
            lun: command.lun,
            cdb,
            attribute: task_attribute(command.attribute),
            read: command.read || bidirectional,
            write: command.write || bidirectional,
            expected_data_transfer_length: expected,
            immediate: command.immediate,
        }))
    }

    /// Whether a command whose turn it is can be admitted: its CDB then, and whether it is
    /// bidirectional.
    #[inline]
    fn check_command(
        &self,
        command: &pdu::ScsiCommand,
        length: u32,
        bhs: &Bhs,
    ) -> Result<(Cdb, bool), NotAdmitted> {
        let tag = command.initiator_task_tag;
        if self.limits.session_type == SessionType::Discovery {
            return Err(NotAdmitted::Refuse(Refusal::NotInDiscoverySession));
        }
        if tag.is_reserved() || self.tag_in_use(tag) {
            return Err(NotAdmitted::Refuse(Refusal::TagInUse));
        }
        // §11.3.1: "At least one of the W and F bits MUST be set to 1."
        if !command.write && !command.is_final {
            return Err(NotAdmitted::Refuse(Refusal::ContradictoryFields));
        }
        if command.attribute.to_bits() > Attribute::ACA.to_bits() {
            return Err(NotAdmitted::Refuse(Refusal::ContradictoryFields));
        }
        if length > 0 && !command.write {
            return Err(NotAdmitted::Refuse(Refusal::DataWithoutWrite));
        }
        if bhs.total_ahs_length_bytes() == 0 {
            return Ok((Cdb::new(command.cdb), command.read && command.write));
        }
        self.extended_cdb(command)
    }

    #[cold]
    fn extended_cdb(&self, command: &pdu::ScsiCommand) -> Result<(Cdb, bool), NotAdmitted> {
        let headers = AdditionalHeaders::decode(self.framing.ahs())
            .map_err(|_| NotAdmitted::Close("additional header segments cannot be read"))?;
        let cdb = Cdb::extended(command.cdb, headers.extended_cdb);
        let bidirectional =
            command.read && command.write || headers.bidirectional_read_length.is_some();
        Ok((cdb, bidirectional))
    }
}

/// What becomes of a command that is not admitted.
#[derive(Clone, Copy, Debug)]
enum NotAdmitted {
    Refuse(Refusal),
    /// §7.7: a format error ends the connection.
    Close(&'static str),
}

/// Whether the unsolicited data of a command is allowed (§4.2.5.2, §11.4.7.2).
fn unsolicited_failure(
    limits: &NegotiatedLimits,
    immediate: u32,
    expected: u32,
    more_follows: bool,
) -> Option<DataOutFailure> {
    if immediate > 0 && !limits.immediate_data || more_follows && limits.initial_r2t {
        return Some(DataOutFailure::UNEXPECTED_UNSOLICITED_DATA);
    }
    if immediate > expected || immediate > limits.first_burst_length {
        return Some(DataOutFailure::INCORRECT_AMOUNT_OF_DATA);
    }
    None
}

const fn task_attribute(attribute: Attribute) -> TaskAttribute {
    match attribute {
        Attribute::SIMPLE => TaskAttribute::Simple,
        Attribute::ORDERED => TaskAttribute::Ordered,
        Attribute::HEAD_OF_QUEUE => TaskAttribute::HeadOfQueue,
        Attribute::ACA => TaskAttribute::Aca,
        // 0, and the reserved codes, which have been refused.
        _ => TaskAttribute::Untagged,
    }
}
