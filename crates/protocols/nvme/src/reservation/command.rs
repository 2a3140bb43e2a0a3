//! Reservation Register, Acquire and Release in progress.
//!
//! ```text
//!  Start ─► decide (rules.rs) ─► apply (longshore_block::reservation)
//!                                 │Done          │Store
//!                                 │       Persist(order)
//!                                 │              │ Persisted(true)
//!                                 ▼              ▼
//!                            table replaced, members told
//!                                 │
//!             preempt and abort: AbortTasks ─► TasksAborted ─► Complete
//!
//!           dword 10                                                    data
//! Register  CPTPL 31:30 | IEKEY 3 | RREGA 2:0                           CRKEY 0..7, NRKEY 8..15
//! Acquire   RTYPE 15:8  | IEKEY 3 | RACQA 2:0                           CRKEY 0..7, PRKEY 8..15
//! Release   RTYPE 15:8  | IEKEY 3 | RRELA 2:0                           CRKEY 0..7
//! ```
//!
//! While one change is being stored, others wait and then start again. (SCSI says BUSY, and initiators
//! send the command again; of NVMe, hosts do so for reads and writes alone.)

use std::sync::Arc;

use longshore_block::reservation::{
    Applied, Participant, PendingChange, Reservations, StoreOrder, StoreWait, Unchangeable,
};

use super::host::HostRegistrant;
use super::rules::{
    AcquireAction, CONFLICT, INVALID_FIELD, Persistence, RegisterAction, ReleaseAction, Request,
    decide,
};
use super::type_from_code;
use crate::command::SubmissionEntry;
use crate::opcode::io;
use crate::status::Status;

/// A command that changes reservations.
#[derive(Debug)]
pub struct ReservationCommand {
    reservations: Arc<Reservations>,
    host: Arc<HostRegistrant>,
    can_store: bool,
    /// As decoded from dword 10, with keys of zero until the data is there.
    request: Request,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Waits for its data.
    Started,
    /// Waits for the driver to store the change.
    Storing(PendingChange),
    /// Waits for commands to be aborted, or is over.
    Decided,
}

/// What happened since the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationEvent {
    /// First step: the data has arrived. Or [`ReservationStep::Wait`] is over.
    Start,
    /// Whether the bytes of [`ReservationStep::Persist`] were stored.
    Persisted(bool),
    /// The commands of [`ReservationStep::AbortTasks`] are no more.
    TasksAborted,
}

/// What a command needs next.
#[derive(Debug)]
pub enum ReservationStep {
    /// Store these bytes durably, then step with [`ReservationEvent::Persisted`]. Keep the order
    /// until then, even if the command goes.
    Persist(StoreOrder),
    /// Abort all commands of these hosts and nexuses on the volume, then step with
    /// [`ReservationEvent::TasksAborted`].
    AbortTasks(Vec<Arc<dyn Participant>>),
    /// Wait for the end of this, then step with [`ReservationEvent::Start`] and the same data.
    Wait(StoreWait),
    Complete(Status),
}

impl ReservationCommand {
    /// Decodes a Reservation Register, Acquire or Release of a host. `can_store`: reservations of the
    /// namespace can be made to persist through power loss.
    ///
    /// # Errors
    /// The status of a command that cannot be, or is none of those three.
    pub fn begin(
        reservations: &Arc<Reservations>,
        host: &Arc<HostRegistrant>,
        entry: &SubmissionEntry,
        can_store: bool,
    ) -> Result<Self, Status> {
        Ok(Self {
            reservations: Arc::clone(reservations),
            host: Arc::clone(host),
            can_store,
            request: decode(entry)?,
            phase: Phase::Started,
        })
    }

    /// Bytes of data it takes from the host.
    #[must_use]
    pub fn data_length(&self) -> u32 {
        match self.request {
            Request::Register { .. } | Request::Acquire { .. } => 16,
            Request::Release { .. } => 8,
        }
    }

    /// Runs until it needs something. `data`, at the start: what the host sent.
    pub fn step(&mut self, event: ReservationEvent, data: &[u8]) -> ReservationStep {
        match event {
            ReservationEvent::Start => self.start(data).unwrap_or_else(ReservationStep::Complete),
            ReservationEvent::Persisted(stored) => self.persisted(stored),
            ReservationEvent::TasksAborted => ReservationStep::Complete(Status::SUCCESS),
        }
    }

    fn start(&mut self, data: &[u8]) -> Result<ReservationStep, Status> {
        self.take_keys(data)
            .ok_or(Status::DATA_SGL_LENGTH_INVALID.do_not_retry())?;
        let locked = match self.reservations.lock_for_change() {
            Ok(locked) => locked,
            Err(Unchangeable::LegacyReservation) => return Err(CONFLICT),
            Err(Unchangeable::Storing) => {
                return Ok(ReservationStep::Wait(self.reservations.wait_for_store()));
            }
        };
        let me = self.host.identity();
        let change = decide(locked.table(), me, &self.request, self.can_store)?;
        Ok(match locked.apply(change) {
            Applied::Done(abort) => {
                self.phase = Phase::Decided;
                decided(abort)
            }
            Applied::Store(order, pending) => {
                self.phase = Phase::Storing(pending);
                ReservationStep::Persist(order)
            }
        })
    }

    /// `None` if there is too little data.
    fn take_keys(&mut self, data: &[u8]) -> Option<()> {
        let key = |at: usize| Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?));
        match &mut self.request {
            Request::Register {
                current_key,
                new_key: second,
                ..
            }
            | Request::Acquire {
                current_key,
                preempt_key: second,
                ..
            } => {
                *current_key = key(0)?;
                *second = key(8)?;
            }
            Request::Release { current_key, .. } => *current_key = key(0)?,
        }
        Some(())
    }

    fn persisted(&mut self, stored: bool) -> ReservationStep {
        let Phase::Storing(pending) = std::mem::replace(&mut self.phase, Phase::Decided) else {
            return ReservationStep::Complete(Status::INTERNAL_ERROR);
        };
        match pending.stored(stored) {
            Some(abort) => decided(abort),
            None => ReservationStep::Complete(Status::INTERNAL_ERROR),
        }
    }
}

/// The change is in force.
fn decided(abort: Vec<Arc<dyn Participant>>) -> ReservationStep {
    if abort.is_empty() {
        ReservationStep::Complete(Status::SUCCESS)
    } else {
        ReservationStep::AbortTasks(abort)
    }
}

fn decode(entry: &SubmissionEntry) -> Result<Request, Status> {
    let dword = entry.dword(10);
    let action = dword & 0b111;
    let ignore_existing_key = dword & 1 << 3 != 0;
    let [_, type_code, _, _] = dword.to_le_bytes();
    let kind = type_from_code(type_code);
    match entry.opcode() {
        io::RESERVATION_REGISTER => Ok(Request::Register {
            action: match action {
                0 => RegisterAction::Register,
                1 => RegisterAction::Unregister,
                2 => RegisterAction::Replace,
                _ => return Err(INVALID_FIELD),
            },
            ignore_existing_key,
            persistence: match dword >> 30 {
                0 => Persistence::Unchanged,
                2 => Persistence::Clear,
                3 => Persistence::Persist,
                _ => return Err(INVALID_FIELD),
            },
            current_key: 0,
            new_key: 0,
        }),
        // Only registering can do without the key.
        io::RESERVATION_ACQUIRE | io::RESERVATION_RELEASE if ignore_existing_key => {
            Err(INVALID_FIELD)
        }
        io::RESERVATION_ACQUIRE => Ok(Request::Acquire {
            action: match action {
                0 => AcquireAction::Acquire,
                1 => AcquireAction::Preempt,
                2 => AcquireAction::PreemptAndAbort,
                _ => return Err(INVALID_FIELD),
            },
            kind,
            current_key: 0,
            preempt_key: 0,
        }),
        io::RESERVATION_RELEASE => Ok(Request::Release {
            action: match action {
                0 => ReleaseAction::Release,
                1 => ReleaseAction::Clear,
                _ => return Err(INVALID_FIELD),
            },
            kind,
            current_key: 0,
        }),
        _ => Err(Status::INVALID_COMMAND_OPCODE.do_not_retry()),
    }
}
