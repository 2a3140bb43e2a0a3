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

use std::fmt;
use std::sync::Arc;

use crate::cdb::Cdb;
use crate::decode;
use crate::lun::Lun;
use crate::media;
use crate::media::partial_write::PartialWrite;
use crate::nexus::Nexus;
use crate::parameter::Parameter;
use crate::sense::{AdditionalSense, Sense, SenseBytes, SenseFormat};
use crate::status::Status;
use crate::unit::LogicalUnit;
pub use longshore_block::command::CommandEvent;
use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;
use longshore_block::reservation::{Participant, StoreOrder};

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// Data-in.
    ToInitiator,
    /// Data-out.
    FromInitiator,
}

/// What a CDB asks to transfer; residual counts compare it with the transport's expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// Bytes. For parameter data to the initiator this is the allocation length: how much there
    /// really is shows only at the end, in [`Buffers::data_in`].
    pub length: u64,
}

impl Transfer {
    /// No data.
    pub const NONE: Self = Self {
        direction: Direction::None,
        length: 0,
    };
}

/// Memory the driver lends to a command for one step.
#[derive(Debug)]
pub struct Buffers<'a> {
    /// Data-out that arrived, at most [`Transfer::length`] bytes. May be shorter if the initiator
    /// expected to send less.
    pub data_out: &'a [u8],
    /// [`Command::scratch_length`] bytes whose content survives from step to step.
    pub scratch: &'a mut [u8],
    /// Parameter data for the initiator is appended here. Empty at the first step.
    pub data_in: &'a mut Vec<u8>,
}

/// What a command needs next.
#[derive(Debug)]
pub enum Step {
    /// Do this on a medium, then step with [`CommandEvent::Media`].
    Media {
        /// Whose medium.
        unit: UnitSelector,
        /// What to do.
        operation: Operation,
        /// Where its data comes from or goes to.
        payload: DataLocation,
    },
    /// From here until the command completes, let no other command's write touch this range of the unit
    /// it was sent to: wait for the writes under way, then step with [`CommandEvent::Locked`]. A command
    /// asks for this at most once (COMPARE AND WRITE, ORWRITE, WRITE ATOMIC).
    LockRange(Extent),
    /// Store these bytes (the unit's reservations) durably, then step with
    /// [`CommandEvent::Persisted`]. Keep the order until then, even if the command goes.
    Persist(StoreOrder),
    /// Abort all commands of these nexuses and NVMe hosts on this unit's volume (PREEMPT AND ABORT),
    /// then step with [`CommandEvent::TasksAborted`].
    AbortTasks(Vec<Arc<dyn Participant>>),
    /// It is over.
    Complete(Completion),
}

/// Whose medium a [`Step::Media`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitSelector {
    /// The unit the command was sent to.
    Own,
    /// Another one, by its place among the [`Siblings`] (EXTENDED COPY).
    Sibling(UnitIndex),
}

/// How a command ended. Data-in is in [`Buffers::data_in`], or was read to [`DataLocation::DataIn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Status.
    pub status: Status,
    /// Present with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// How the sense data is to be encoded.
    pub sense_format: SenseFormat,
}

impl Completion {
    /// GOOD.
    pub const GOOD: Self = Self::status(Status::GOOD);

    /// A status without sense data.
    pub const fn status(status: Status) -> Self {
        Self {
            status,
            sense: None,
            sense_format: SenseFormat::Fixed,
        }
    }

    /// CHECK CONDITION with sense data.
    pub const fn check_condition(sense: Sense) -> Self {
        Self {
            status: Status::CHECK_CONDITION,
            sense: Some(sense),
            sense_format: SenseFormat::Fixed,
        }
    }

    /// Encoded sense data, if there is any.
    pub fn sense_bytes(&self) -> Option<SenseBytes> {
        self.sense.map(|sense| sense.to_bytes(self.sense_format))
    }
}

impl From<Sense> for Completion {
    fn from(sense: Sense) -> Self {
        Self::check_condition(sense)
    }
}

impl From<Status> for Completion {
    fn from(status: Status) -> Self {
        Self::status(status)
    }
}

/// Place of a logical unit among the [`Siblings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitIndex(pub usize);

/// The logical units that the nexus' initiator reaches through the same target.
pub trait Siblings {
    /// Their numbers, as REPORT LUNS lists them.
    fn luns(&self) -> Vec<Lun>;
    /// The unit a designation descriptor names (see [`LogicalUnit::is_designated_by`]).
    fn find(&self, designator: &[u8]) -> Option<UnitIndex>;
    /// The unit at `index`, as given by `find`.
    fn unit(&self, index: UnitIndex) -> &Arc<LogicalUnit>;
    /// The initiator's nexus with the unit at `index`.
    fn nexus(&self, index: UnitIndex) -> &Arc<Nexus>;
}

/// What a multi-step command sees of the world in one step.
pub(crate) struct StepContext<'a, 'b> {
    /// The unit the command was sent to.
    pub(crate) unit: &'a LogicalUnit,
    /// Memory lent by the driver.
    pub(crate) buffers: &'a mut Buffers<'b>,
    /// Units the same initiator reaches.
    pub(crate) siblings: &'a dyn Siblings,
}

/// A command of several steps after its CDB has been accepted.
///
/// The command's owner handles what is common to all: it completes the command with
/// [`Sense::media_failure`] when a media operation fails (unless [`Procedure::handles_failure`]),
/// sets the sense format, and cuts data-in at the allocation length.
pub(crate) trait Procedure: fmt::Debug + Send {
    /// Runs until something is needed. The first event is [`CommandEvent::Start`].
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step;

    /// Failed media operations are passed to `step` instead of ending the command.
    fn handles_failure(&self) -> bool {
        false
    }
}

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
    /// Decodes a CDB and admits it. If it is refused, the outcome waits for the first step.
    #[inline]
    pub fn begin(unit: &Arc<LogicalUnit>, nexus: &Arc<Nexus>, cdb: &[u8]) -> Self {
        decode::begin(unit, nexus, cdb).unwrap_or_else(Self::completed)
    }

    /// The same for a LUN without a logical unit: INQUIRY, REPORT LUNS and REQUEST SENSE are
    /// answered, everything else fails with LOGICAL UNIT NOT SUPPORTED (SAM-5, incorrect logical unit numbers).
    pub fn begin_without_unit(cdb: &[u8]) -> Self {
        decode::begin_without_unit(Cdb::new(cdb)).unwrap_or_else(Self::completed)
    }

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
            other => other,
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
