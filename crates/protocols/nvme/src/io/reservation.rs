//! The reservation commands as procedures; what they do is in [`crate::reservation`].

use std::sync::Arc;

use longshore_block::reservation::Reservations;

use crate::command::SubmissionEntry;
use crate::io::command::Command;
use crate::io::fields::list_length;
use crate::io::namespace::Attached;
use crate::io::step::{CommandEvent, IoOutcome, Procedure, Step, StepContext, Transfer};
use crate::reservation::{Report, ReservationCommand, ReservationEvent, ReservationStep};
use crate::status::Status;

/// Reservation Register, Acquire and Release.
pub(crate) fn change<N: Attached>(
    at: usize,
    namespace: &N,
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    let can_store = namespace.can_store_reservations();
    let machine =
        ReservationCommand::begin(namespace.reservations(), namespace.host(), entry, can_store)?;
    let length = list_length(machine.data_length(), data_length)?;
    let transfer = Transfer::to_controller(length);
    Ok(Command::procedure(at, transfer, 0, Change(machine)))
}

/// Reservation Report. MDTS bounds what it makes room for.
pub(crate) fn report<N: Attached>(
    at: usize,
    namespace: &N,
    entry: &SubmissionEntry,
    data_length: u32,
) -> Result<Command, Status> {
    let report = Report::begin(entry)?;
    let most = u64::from(namespace.max_transfer_bytes());
    let wanted = report.data_length();
    let length = u32::try_from(wanted)
        .ok()
        .filter(|_| wanted <= most)
        .ok_or(Status::INVALID_FIELD.do_not_retry())?;
    let length = list_length(length, data_length)?;
    let machine = Reporting {
        report,
        reservations: Arc::clone(namespace.reservations()),
    };
    Ok(Command::procedure(
        at,
        Transfer::to_host(length),
        0,
        machine,
    ))
}

#[derive(Debug)]
struct Change(ReservationCommand);

impl Procedure for Change {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let event = match event {
            CommandEvent::Start => ReservationEvent::Start,
            CommandEvent::Persisted(stored) => ReservationEvent::Persisted(stored),
            CommandEvent::TasksAborted => ReservationEvent::TasksAborted,
            // It asks for neither.
            CommandEvent::Locked | CommandEvent::Media(_) => {
                return Step::Complete(Status::INTERNAL_ERROR.into());
            }
        };
        match self.0.step(event, context.buffers.data_out) {
            ReservationStep::Persist(order) => Step::Persist(order),
            ReservationStep::AbortTasks(participants) => Step::AbortTasks(participants),
            ReservationStep::Wait(wait) => Step::Wait(wait),
            ReservationStep::Complete(status) => Step::Complete(status.into()),
        }
    }
}

#[derive(Debug)]
struct Reporting {
    report: Report,
    reservations: Arc<Reservations>,
}

impl Procedure for Reporting {
    fn step(&mut self, _event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let data_in = &mut *context.buffers.data_in;
        // The host chooses how many zeros are behind the report.
        let length = usize::try_from(self.report.data_length()).unwrap_or(usize::MAX);
        if data_in.try_reserve_exact(length).is_err() {
            return Step::Complete(Status::COMMAND_INTERRUPTED.into());
        }
        self.report.execute(&self.reservations, usize::MAX, data_in);
        Step::Complete(IoOutcome::SUCCESS)
    }
}
