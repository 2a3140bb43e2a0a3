//! Command capsules: which are admitted, and where their data are.

use longshore_wire::transmit::Transmit;

use super::state::{Connection, ConnectionEvent, Incoming, Phase, Receiving, Source};
use crate::command::{CommandId, DataPointerKind, SubmissionEntry};
use crate::opcode::{self, Direction, Opcode};
use crate::pdu::{CapsuleCmd, CommonHeader, FatalError, FatalErrorStatus};
use crate::server::command::{ArrivedCommand, CommandSlot, DataTransfer};
use crate::server::commands::Command;
use crate::sgl::SglDescriptor;
use crate::status::Status;

/// In-capsule data that every controller takes with admin and Fabrics commands.
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// What becomes of a capsule that is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The command is completed; the connection goes on.
    Status(Status),
    /// The same: its identifier is that of a live command.
    InUse(CommandSlot),
    Fatal(FatalError),
}

/// Where the data of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Admitted {
    transfer: DataTransfer,
    /// Of in-capsule data: bytes before those of the command.
    lead: u32,
}

impl Admitted {
    const fn new(transfer: DataTransfer) -> Self {
        Self { transfer, lead: 0 }
    }
}

impl Connection {
    /// The header of a CapsuleCmd.
    #[inline]
    pub(super) fn capsule(&mut self, transmit: &mut Transmit) -> Option<ConnectionEvent<'static>> {
        let CapsuleCmd { entry } = CapsuleCmd::decode(self.framing.header());
        let length = self.framing.data.remaining();
        let admitted = loop {
            match self.admit(&entry, length) {
                Ok(admitted) => break admitted,
                Err(Refusal::InUse(slot)) if self.commands.get(slot).event_request => {
                    self.replace_event_request(slot);
                }
                Err(refusal) => return self.refuse(&entry, refusal, transmit),
            }
        };
        let mut command = Command::new(entry.id());
        command.event_request = self.is_event_request(&entry);
        match admitted.transfer {
            DataTransfer::None => {}
            DataTransfer::ToHost { length } => command.to_host = length,
            DataTransfer::ToController { length } => command.from_host = length,
            DataTransfer::InCapsule { length } => {
                command.from_host = length;
                command.solicit_offset = length;
                command.in_capsule = true;
            }
        }
        let Some(slot) = self.commands.insert(command) else {
            let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
            return Some(self.terminate(error, transmit));
        };
        if length > 0 {
            self.receive_in_capsule(slot, admitted);
        }
        Some(ConnectionEvent::Command(ArrivedCommand {
            slot,
            entry,
            data: admitted.transfer,
        }))
    }

    #[inline]
    fn receive_in_capsule(&mut self, slot: CommandSlot, admitted: Admitted) {
        let DataTransfer::InCapsule { length } = admitted.transfer else {
            self.receiving = Receiving::Skipped;
            return;
        };
        self.receiving = Receiving::Data(Incoming {
            slot,
            source: Source::Capsule,
            lead: admitted.lead,
            offset: 0,
            end: length,
        });
    }

    /// Decides on a command with `length` bytes of in-capsule data.
    #[inline]
    fn admit(&self, entry: &SubmissionEntry, length: u32) -> Result<Admitted, Refusal> {
        let opcode = entry.opcode();
        let in_capsule_max = match self.phase {
            Phase::Connected(queue) if queue.id > 0 && opcode != opcode::FABRICS => {
                self.config.in_capsule_data_bytes
            }
            Phase::Initializing | Phase::Unconnected | Phase::Connected(_) | Phase::Closed(_) => {
                self.config
                    .in_capsule_data_bytes
                    .max(ADMIN_IN_CAPSULE_BYTES)
            }
        };
        if length > in_capsule_max {
            let status = FatalErrorStatus::DATA_TRANSFER_LIMIT_EXCEEDED;
            return Err(Refusal::Fatal(FatalError::plain(status)));
        }
        if !matches!(self.phase, Phase::Connected(_)) && !is_connect(entry) {
            let status = Status::COMMAND_SEQUENCE_ERROR.do_not_retry();
            return Err(Refusal::Status(status));
        }
        if let Some(slot) = self.commands.find(entry.id()) {
            return Err(Refusal::InUse(slot));
        }
        match direction(entry, opcode) {
            // Whatever the data pointer says, and whatever is in the capsule.
            Direction::None | Direction::Both => Ok(Admitted::new(DataTransfer::None)),
            Direction::ToController => from_host(entry, length),
            Direction::ToHost => to_host(entry, length),
        }
    }

    /// Answers a command that is not admitted.
    #[cold]
    fn refuse(
        &mut self,
        entry: &SubmissionEntry,
        refusal: Refusal,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let status = match refusal {
            Refusal::Fatal(error) => return Some(self.terminate(error, transmit)),
            Refusal::Status(status) => status,
            Refusal::InUse(_) => Status::COMMAND_ID_CONFLICT.do_not_retry(),
        };
        self.send_response(entry.id(), status, 0, false, transmit);
        self.receiving = Receiving::Skipped;
        None
    }

    /// Whether a command is an Asynchronous Event Request. On I/O queues the opcode is another command's.
    #[inline]
    fn is_event_request(&self, entry: &SubmissionEntry) -> bool {
        entry.opcode() == opcode::admin::ASYNC_EVENT_REQUEST
            && matches!(self.phase, Phase::Connected(queue) if queue.id == 0)
    }

    /// A command came with the identifier of an outstanding Asynchronous Event Request, whose place it takes. SPDK's
    /// host (v26.09-pre) does so when it detaches: it ends its requests by itself, and sends the shutdown with one of
    /// their identifiers.
    #[cold]
    fn replace_event_request(&mut self, slot: CommandSlot) {
        let id = self.commands.get(slot).id;
        self.drop_command(slot);
        self.replaced.push(id);
    }

    /// Identifiers of the Asynchronous Event Requests whose places other commands have taken since the last call. The
    /// driver must not complete them any more, nor abort them by these identifiers.
    pub fn take_replaced_event_requests(&mut self) -> Vec<CommandId> {
        std::mem::take(&mut self.replaced)
    }

    /// Ends a command without a completion. Its entry of the submission queue is consumed all the same.
    ///
    /// # Panics
    /// When the command is not live, or while [`Self::outstanding_data_out`].
    pub fn drop_command(&mut self, slot: CommandSlot) {
        assert!(
            !self.outstanding_data_out(slot),
            "the host is sending data of the command"
        );
        self.end_command(slot);
        self.next_sq_head(false);
    }
}

fn is_connect(entry: &SubmissionEntry) -> bool {
    entry.opcode() == opcode::FABRICS && entry.fabrics_type() == opcode::fabrics::CONNECT
}

#[inline]
fn direction(entry: &SubmissionEntry, opcode: Opcode) -> Direction {
    if opcode == opcode::FABRICS {
        return Opcode(entry.fabrics_type()).direction();
    }
    opcode.direction()
}

/// Fabrics use SGLs only; metadata, if there was any, would be by address.
///
/// A pointer of zeros describes no data, whatever its kind.
#[inline]
fn check_pointer_kind(entry: &SubmissionEntry) -> Result<(), Refusal> {
    match entry.data_pointer_kind() {
        DataPointerKind::Sgl => Ok(()),
        _ if entry.sgl() == SglDescriptor::NONE => Ok(()),
        DataPointerKind::Prp | DataPointerKind::SglMetadata | DataPointerKind::Reserved => {
            Err(Refusal::Status(Status::INVALID_FIELD.do_not_retry()))
        }
    }
}

/// Data in the capsule that the data pointer does not describe: PLEN or the pointer is wrong.
#[inline]
const fn check_no_data(length: u32) -> Result<(), Refusal> {
    if length == 0 {
        return Ok(());
    }
    Err(Refusal::Fatal(FatalError::invalid_field(
        CommonHeader::PLEN_OFFSET,
    )))
}

/// The data pointer of a command whose data come from the host. `present`: bytes in the capsule.
#[inline]
fn from_host(entry: &SubmissionEntry, present: u32) -> Result<Admitted, Refusal> {
    check_pointer_kind(entry)?;
    match entry.sgl() {
        SglDescriptor::Offset { offset, length } => in_capsule(offset, length, present),
        SglDescriptor::Transport { length } => {
            check_no_data(present)?;
            Ok(Admitted::new(if length == 0 {
                DataTransfer::None
            } else {
                DataTransfer::ToController { length }
            }))
        }
        SglDescriptor::Address { length: 0, .. } => {
            check_no_data(present)?;
            Ok(Admitted::new(DataTransfer::None))
        }
        SglDescriptor::Address { .. } | SglDescriptor::Other(_) => {
            Err(Refusal::Status(unsupported_sgl()))
        }
    }
}

/// The data pointer of a command whose data go to the host. `present`: bytes in the capsule.
#[inline]
fn to_host(entry: &SubmissionEntry, present: u32) -> Result<Admitted, Refusal> {
    check_pointer_kind(entry)?;
    match entry.sgl() {
        SglDescriptor::Transport { length } if length > 0 => {
            check_no_data(present)?;
            Ok(Admitted::new(DataTransfer::ToHost { length }))
        }
        SglDescriptor::Transport { length: _ } | SglDescriptor::Address { length: 0, .. } => {
            check_no_data(present)?;
            Ok(Admitted::new(DataTransfer::None))
        }
        // The type is one we know, but a capsule has no room for data the other way.
        SglDescriptor::Offset { .. } => Err(Refusal::Status(Status::INVALID_FIELD.do_not_retry())),
        SglDescriptor::Address { .. } | SglDescriptor::Other(_) => {
            Err(Refusal::Status(unsupported_sgl()))
        }
    }
}

const fn unsupported_sgl() -> Status {
    Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry()
}

/// A piece of the in-capsule data.
#[inline]
fn in_capsule(offset: u64, length: u32, present: u32) -> Result<Admitted, Refusal> {
    let lead = match u32::try_from(offset) {
        Ok(lead) if lead <= present => lead,
        _ => {
            return Err(Refusal::Status(Status::SGL_OFFSET_INVALID.do_not_retry()));
        }
    };
    if length > present - lead {
        let status = Status::DATA_SGL_LENGTH_INVALID.do_not_retry();
        return Err(Refusal::Status(status));
    }
    if length == 0 {
        return Ok(Admitted::new(DataTransfer::None));
    }
    Ok(Admitted {
        transfer: DataTransfer::InCapsule { length },
        lead,
    })
}
