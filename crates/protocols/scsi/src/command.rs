//! One command in progress (SAM-5 §5): a small machine between a CDB and the operations on the
//! medium that carry it out.
//!
//! ```text
//!  begin ──► decided? ──yes──────────────────────────────┐
//!     │                                                  ▼
//!     └─► transfer() ─► (driver collects data-out) ─► step(Start)
//!                                                        │
//!            ┌───────────────────────────────────────────┤
//!            ▼                                           ▼
//!     Media / Persist / AbortTasks ──► step(event) ─► Complete
//! ```
//!
//! [`Command::begin`] decodes the CDB and decides everything that can be decided without data: the
//! operation code, reserved fields, unit attentions, reservations, write protection and the range.
//! The driver then collects the data-out, and calls [`Command::step`] until it says
//! [`Step::Complete`]. A command in progress is a value: dropping it aborts it.

use crate::media;
use crate::media::partial_write::PartialWrite;
use crate::parameter::Parameter;
use crate::sense::{AdditionalSense, Sense, SenseFormat};
use crate::status::Status;
use crate::unit::LogicalUnit;

pub use crate::completion::Completion;
pub use crate::step::{
    Buffers, CommandEvent, Direction, SanitizeRequest, Siblings, Step, Transfer, UnitIndex,
    UnitSelector,
};
use crate::step::{Procedure, StepContext};
use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;

/// A command in progress. See the module documentation.
#[derive(Debug)]
pub struct Command {
    transfer: Transfer,
    scratch_length: usize,
    /// The data-out has one right size: see [`Command::expect_data_out`].
    exact: bool,
    state: State,
}

/// How a command is carried out.
#[derive(Debug)]
enum State {
    /// It is over; the outcome waits for a step.
    Decided(Completion),
    /// One operation on the medium: READ, WRITE and others. No allocation.
    Single {
        operation: Operation,
        payload: DataLocation,
    },
    /// Parameter data in or out, and no operation on the medium.
    Parameter(Parameter),
    /// Everything else. `writing`: the operation under way changes the medium.
    Procedure {
        procedure: Box<dyn Procedure>,
        writing: bool,
    },
}

impl Command {
    /// How much the transport says the initiator is ready to send (iSCSI: Expected Data Transfer
    /// Length of a write). To be called, if at all, before anything else.
    ///
    /// Less or more than the CDB asks for is a residual, not an error: a WRITE that gets less writes
    /// what it gets, to the byte. COMPARE AND WRITE and WRITE SAME are the exception: how much they
    /// take follows from what the data means, so that with more of it CDB and data cannot both be
    /// right. They fail with INVALID FIELD IN CDB.
    #[inline]
    pub fn expect_data_out(&mut self, length: u64) {
        if length != self.transfer.length {
            self.expect_other_data_out(length);
        }
    }

    #[cold]
    fn expect_other_data_out(&mut self, length: u64) {
        if self.exact && length > self.transfer.length {
            let sense = Sense::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB);
            *self = Self::completed(sense.into());
        } else if let State::Single {
            operation:
                Operation::Write {
                    extent: Extent { lba, blocks },
                    fua,
                },
            ..
        } = self.state
            && length < self.transfer.length
        {
            let block_size = u32::try_from(self.transfer.length / blocks.0).unwrap_or(u32::MAX);
            let machine = PartialWrite::new(Extent { lba, blocks }, block_size, fua);
            *self = Self::procedure(self.transfer, machine.scratch_length(), machine);
        }
    }

    /// What it wants to transfer. No data once it is decided.
    pub fn transfer(&self) -> Transfer {
        self.transfer
    }

    /// It is over already, and no data-out is wanted.
    pub fn decided(&self) -> bool {
        matches!(self.state, State::Decided(_))
    }

    /// Bytes of scratch memory it needs from the first step on; 0 for most commands.
    pub fn scratch_length(&self) -> usize {
        self.scratch_length
    }

    /// Whether it may ask for something of a sibling of its unit.
    pub fn uses(&self, unit: UnitIndex) -> bool {
        match &self.state {
            State::Procedure { procedure, .. } => procedure.uses(unit),
            State::Decided(_) | State::Single { .. } | State::Parameter(_) => false,
        }
    }

    /// Runs until it needs something. `unit` is the one it began with; the data-out and the scratch
    /// memory are the same at every step.
    ///
    /// # Panics
    /// If the scratch memory is shorter than promised.
    #[inline]
    pub fn step(
        &mut self,
        unit: Option<&LogicalUnit>,
        event: CommandEvent,
        buffers: Buffers<'_>,
        siblings: &dyn Siblings,
    ) -> Step {
        if let State::Single { operation, payload } = &self.state {
            match (event, payload) {
                (CommandEvent::Media(Ok(_)), _) => return Step::Complete(Completion::GOOD),
                (CommandEvent::Start, DataLocation::DataIn { .. }) => {
                    return Step::Media {
                        unit: UnitSelector::Own,
                        operation: *operation,
                        payload: *payload,
                    };
                }
                _ => {}
            }
        }
        self.step_any(unit, event, buffers, siblings)
    }

    /// [`Command::step`] without its shortcuts.
    fn step_any(
        &mut self,
        unit: Option<&LogicalUnit>,
        event: CommandEvent,
        mut buffers: Buffers<'_>,
        siblings: &dyn Siblings,
    ) -> Step {
        assert!(
            buffers.scratch.len() >= self.scratch_length,
            "scratch memory as promised"
        );
        let step = match &mut self.state {
            State::Decided(completion) => Step::Complete(*completion),
            State::Single { operation, payload } => {
                single(*operation, *payload, event, &buffers, unit)
            }
            State::Parameter(parameter) => {
                let length = self.transfer.length;
                Step::Complete(parameter.execute(unit, &mut buffers, siblings, length))
            }
            State::Procedure { procedure, writing } => match (event, unit) {
                (CommandEvent::Media(Err(error)), _) if !procedure.handles_failure() => {
                    Step::Complete(Sense::media_failure(error, *writing).into())
                }
                (_, Some(unit)) => {
                    let mut context = StepContext {
                        unit,
                        buffers: &mut buffers,
                        siblings,
                    };
                    let step = procedure.step(event, &mut context);
                    if let Step::Media { operation, .. } = &step {
                        *writing = operation.fails_as_write();
                    }
                    step
                }
                (_, None) => Step::Complete(Sense::logical_unit_not_supported().into()),
            },
        };
        match step {
            Step::Complete(completion) => {
                Step::Complete(self.finish(completion, unit, buffers.data_in))
            }
            Step::Media { .. }
            | Step::LockRange(_)
            | Step::Persist(_)
            | Step::Sanitize(_)
            | Step::AbortTasks(_) => step,
        }
    }

    /// A command whose outcome is known.
    pub(crate) fn completed(completion: Completion) -> Self {
        Self {
            transfer: Transfer::NONE,
            scratch_length: 0,
            exact: false,
            state: State::Decided(completion),
        }
    }

    /// A command that is one operation on the medium.
    #[inline]
    pub(crate) fn single(transfer: Transfer, operation: Operation, payload: DataLocation) -> Self {
        Self {
            transfer,
            scratch_length: 0,
            exact: false,
            state: State::Single { operation, payload },
        }
    }

    /// A command that only exchanges parameter data.
    pub(crate) fn parameter(transfer: Transfer, parameter: Parameter) -> Self {
        Self {
            transfer,
            scratch_length: 0,
            exact: false,
            state: State::Parameter(parameter),
        }
    }

    /// A command of several steps.
    pub(crate) fn procedure(
        transfer: Transfer,
        scratch_length: usize,
        procedure: impl Procedure + 'static,
    ) -> Self {
        let procedure = Box::new(procedure);
        Self {
            transfer,
            scratch_length,
            exact: false,
            state: State::Procedure {
                procedure,
                writing: false,
            },
        }
    }

    /// The data-out has one right size.
    #[must_use]
    pub(crate) fn exact(self) -> Self {
        Self {
            exact: true,
            ..self
        }
    }

    #[must_use]
    pub(crate) fn with_scratch(self, scratch_length: usize) -> Self {
        Self {
            scratch_length,
            ..self
        }
    }

    fn finish(
        &mut self,
        completion: Completion,
        unit: Option<&LogicalUnit>,
        data_in: &mut Vec<u8>,
    ) -> Completion {
        if completion.status == Status::CHECK_CONDITION {
            data_in.clear();
        }
        data_in.truncate(usize::try_from(self.transfer.length).unwrap_or(usize::MAX));
        let sense_format = unit.map_or(SenseFormat::Fixed, |unit| unit.modes().sense_format());
        let completion = Completion {
            sense_format,
            ..completion
        };
        self.state = State::Decided(completion);
        completion
    }
}

/// One step of a command that is one operation on the medium.
#[inline]
fn single(
    operation: Operation,
    payload: DataLocation,
    event: CommandEvent,
    buffers: &Buffers<'_>,
    unit: Option<&LogicalUnit>,
) -> Step {
    match event {
        CommandEvent::Start => match (payload, operation, unit) {
            (DataLocation::DataOut { length, .. }, Operation::Write { .. }, Some(unit))
                if buffers.data_out.len() < length =>
            {
                partial_write(operation, buffers, unit.config().block_size)
            }
            _ => Step::Media {
                unit: UnitSelector::Own,
                operation,
                payload,
            },
        },
        CommandEvent::Media(Err(error)) => {
            Step::Complete(Sense::media_failure(error, operation.fails_as_write()).into())
        }
        CommandEvent::Media(Ok(_))
        | CommandEvent::Locked
        | CommandEvent::Persisted(_)
        | CommandEvent::TasksAborted => Step::Complete(Completion::GOOD),
    }
}

/// A WRITE for which the initiator sent less than the CDB says: the blocks it sent are written.
#[cold]
fn partial_write(operation: Operation, buffers: &Buffers<'_>, block_size: u32) -> Step {
    let Operation::Write {
        extent: Extent { lba, blocks },
        fua,
    } = operation
    else {
        return Step::Media {
            unit: UnitSelector::Own,
            operation,
            payload: DataLocation::None,
        };
    };
    match media::whole_blocks_sent(buffers.data_out, blocks, block_size) {
        Err(sense) => Step::Complete(sense.into()),
        Ok(sent) if sent.0 == 0 => Step::Complete(Completion::GOOD),
        Ok(blocks) => Step::Media {
            unit: UnitSelector::Own,
            operation: Operation::Write {
                extent: Extent { lba, blocks },
                fua,
            },
            payload: DataLocation::DataOut {
                start: 0,
                length: buffers.data_out.len(),
            },
        },
    }
}
