//! PERSISTENT RESERVE OUT (SPC-4 §6.16): decoding, storing, telling.
//!
//! ```text
//!  Start ─► decode parameter list ─► decide (rules.rs) ─► apply (longshore_block::reservation)
//!                                                          │Done          │Store
//!                                                          │       Persist(order)
//!                                                          │              │ Persisted(true)
//!                                                          ▼              ▼
//!                                                     table replaced, members told
//!                                                          │
//!                                    PREEMPT AND ABORT: AbortTasks ─► TasksAborted ─► Complete
//! ```
//!
//! While one change waits to be stored, another PERSISTENT RESERVE OUT gets BUSY.
//!
//! ```text
//! parameter list                                     REGISTER AND MOVE
//!  0..7    RESERVATION KEY                            0..7    RESERVATION KEY
//!  8..15   SERVICE ACTION RESERVATION KEY             8..15   SERVICE ACTION RESERVATION KEY
//! 16..19   obsolete                                  17       UNREG (1) | APTPL (0)
//! 20       SPEC_I_PT (3) | ALL_TG_PT (2) | APTPL (0)  18..19   RELATIVE TARGET PORT IDENTIFIER
//! 24..27   TRANSPORTID PARAMETER DATA LENGTH         20..23   TRANSPORTID LENGTH
//! 28..     TransportIDs, with SPEC_I_PT              24..     TransportID
//! ```

use std::sync::Arc;

use longshore_block::reservation::{Applied, Locked, Participant, PendingChange, Unchangeable};
use longshore_wire::{OutOfBytes, Reader};

use crate::completion::Completion;
use crate::nexus::Nexus;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::status::Status;
use crate::step::{CommandEvent, Procedure, Step, StepContext};
use crate::unit::LogicalUnit;

use super::rules::{Move, Refusal, Request, ServiceAction, Situation, decide};
use super::transport_id::{InvalidTransportId, TransportId};

/// Longest parameter list that is looked at: room for about thirty TransportIDs of the longest kind.
pub(crate) const MAX_PARAMETER_LIST_LENGTH: u32 = 8192;

const BASIC_LENGTH: usize = 24;

/// A PERSISTENT RESERVE OUT in progress.
#[derive(Debug)]
pub(crate) struct PersistentReserveOut {
    unit: Arc<LogicalUnit>,
    nexus: Arc<Nexus>,
    action: ServiceAction,
    scope_and_type: u8,
    parameter_list_length: u32,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Waits for the parameter list.
    Started,
    /// Waits for the driver to store the change.
    Storing(PendingChange),
    /// Waits for tasks to be aborted, or is over.
    Decided,
}

impl PersistentReserveOut {
    /// Decodes the CDB.
    ///
    /// # Errors
    /// A service action that does not exist, or a parameter list that cannot be.
    pub(crate) fn begin(
        unit: &Arc<LogicalUnit>,
        nexus: &Arc<Nexus>,
        cdb: &[u8],
    ) -> Result<Self, Sense> {
        let &[_, action, scope_and_type, _, _, a, b, c, d, ..] = cdb else {
            return Err(Sense::invalid_field_in_cdb(0, 7));
        };
        let action =
            ServiceAction::from_code(action & 0x1f).ok_or(Sense::invalid_field_in_cdb(1, 4))?;
        let parameter_list_length = u32::from_be_bytes([a, b, c, d]);
        if parameter_list_length > MAX_PARAMETER_LIST_LENGTH {
            return Err(Sense::parameter_list_length_error());
        }
        Ok(Self {
            unit: Arc::clone(unit),
            nexus: Arc::clone(nexus),
            action,
            scope_and_type,
            parameter_list_length,
            phase: Phase::Started,
        })
    }

    /// Bytes of data-out wanted.
    pub(crate) fn parameter_list_length(&self) -> u32 {
        self.parameter_list_length
    }

    fn start(&mut self, data_out: &[u8]) -> Result<Step, Completion> {
        if u32::try_from(data_out.len()) != Ok(self.parameter_list_length) {
            return Err(Sense::parameter_list_length_error().into());
        }
        let request = decode(self.action, self.scope_and_type, data_out)?;
        let own_port = self.nexus.port().relative_target_port;
        let target_ports = self.unit.target_ports(own_port);
        let locked = self.unit.reservations().lock_for_change()?;
        let situation = self.situation(&locked, &target_ports);
        let change = decide(&situation, self.nexus.identity(), &request)?;
        Ok(match locked.apply(change) {
            Applied::Done(abort) => {
                self.phase = Phase::Decided;
                decided(abort)
            }
            Applied::Store(order, pending) => {
                self.phase = Phase::Storing(pending);
                Step::Persist(order)
            }
        })
    }

    fn situation<'a>(&self, locked: &'a Locked<'_>, target_ports: &'a [u16]) -> Situation<'a> {
        Situation {
            table: locked.table(),
            target_ports,
            connected: locked
                .members()
                .iter()
                .map(|member| member.identity())
                .collect(),
            can_store: self.unit.config().persistent_reservations_store,
        }
    }

    fn persisted(&mut self, stored: bool) -> Step {
        let Phase::Storing(pending) = std::mem::replace(&mut self.phase, Phase::Decided) else {
            return Step::Complete(internal_failure());
        };
        match pending.stored(stored) {
            Some(abort) => decided(abort),
            None => Step::Complete(internal_failure()),
        }
    }
}

impl Procedure for PersistentReserveOut {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        match event {
            CommandEvent::Start => self
                .start(context.buffers.data_out)
                .unwrap_or_else(Step::Complete),
            CommandEvent::Persisted(stored) => self.persisted(stored),
            CommandEvent::TasksAborted => Step::Complete(Completion::GOOD),
            CommandEvent::Locked | CommandEvent::Media(_) => Step::Complete(internal_failure()),
        }
    }
}

/// The change is in force.
fn decided(abort: Vec<Arc<dyn Participant>>) -> Step {
    if abort.is_empty() {
        Step::Complete(Completion::GOOD)
    } else {
        Step::AbortTasks(abort)
    }
}

fn internal_failure() -> Completion {
    Sense::new(
        SenseKey::HardwareError,
        AdditionalSense::INTERNAL_TARGET_FAILURE,
    )
    .into()
}

/// Decodes a parameter list.
fn decode(action: ServiceAction, scope_and_type: u8, list: &[u8]) -> Result<Request, Completion> {
    let too_short = |_: OutOfBytes| Sense::parameter_list_length_error();
    let mut reader = Reader::new(list);
    let reservation_key = reader.be64().map_err(too_short)?;
    let service_action_key = reader.be64().map_err(too_short)?;
    let [_, move_flags, port_high, port_low] = reader.array().map_err(too_short)?;
    let [flags, ..] = reader.array::<4>().map_err(too_short)?;
    let mut request = Request {
        action,
        scope: scope_and_type >> 4,
        type_code: scope_and_type & 0x0f,
        reservation_key,
        service_action_key,
        aptpl: flags & 0x01 != 0,
        all_target_ports: flags & 0x04 != 0,
        initiator_ports: None,
        r#move: None,
    };
    if action == ServiceAction::RegisterAndMove {
        request.aptpl = move_flags & 0x01 != 0;
        request.all_target_ports = false;
        request.r#move = Some(Move {
            unregister: move_flags & 0x02 != 0,
            relative_target_port: u16::from_be_bytes([port_high, port_low]),
            initiator_port: decode_one(&list[BASIC_LENGTH - 4..])?,
        });
    } else if flags & 0x08 != 0 {
        // SPEC_I_PT is for REGISTER alone.
        if action != ServiceAction::Register {
            return Err(Sense::invalid_field_in_parameter_list(20).into());
        }
        request.initiator_ports = Some(decode_list(reader.rest())?);
    } else if !reader.is_empty() {
        return Err(Sense::parameter_list_length_error().into());
    }
    Ok(request)
}

/// A length field and as many bytes: neither less nor more.
fn counted(bytes: &[u8]) -> Result<Reader<'_>, Sense> {
    let mut reader = Reader::new(bytes);
    let length = reader
        .be32()
        .map_err(|_| Sense::parameter_list_length_error())?;
    if usize::try_from(length) != Ok(reader.rest().len()) {
        return Err(Sense::parameter_list_length_error());
    }
    Ok(reader)
}

/// TRANSPORTID LENGTH and the TransportID of REGISTER AND MOVE.
fn decode_one(bytes: &[u8]) -> Result<TransportId, Sense> {
    let mut ids = counted(bytes)?;
    let invalid = Sense::invalid_field_in_parameter_list(24);
    let id = TransportId::decode(&mut ids).map_err(|InvalidTransportId| invalid)?;
    if ids.is_empty() { Ok(id) } else { Err(invalid) }
}

/// TRANSPORTID PARAMETER DATA LENGTH and the TransportIDs of SPEC_I_PT.
fn decode_list(bytes: &[u8]) -> Result<Vec<TransportId>, Sense> {
    let mut ids = counted(bytes)?;
    let mut list = Vec::new();
    while !ids.is_empty() {
        let id = TransportId::decode(&mut ids);
        list.push(id.map_err(|InvalidTransportId| Sense::invalid_field_in_parameter_list(28))?);
    }
    Ok(list)
}

impl From<Unchangeable> for Completion {
    fn from(reason: Unchangeable) -> Self {
        match reason {
            Unchangeable::LegacyReservation => Status::RESERVATION_CONFLICT.into(),
            Unchangeable::Storing => Status::BUSY.into(),
        }
    }
}

impl From<Refusal> for Completion {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::ReservationConflict => Status::RESERVATION_CONFLICT.into(),
            Refusal::InvalidFieldInCdb { byte, bit } => {
                Sense::invalid_field_in_cdb(byte, bit).into()
            }
            Refusal::InvalidFieldInParameterList { byte } => {
                Sense::invalid_field_in_parameter_list(byte).into()
            }
            Refusal::InvalidRelease => {
                Sense::illegal_request(AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
                    .into()
            }
            Refusal::NoRoom => {
                Sense::illegal_request(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES).into()
            }
        }
    }
}
