//! What a command in progress and its driver say to each other, step by step, and what commands of several
//! steps implement.

use std::fmt;
use std::sync::Arc;

use crate::completion::Completion;
use crate::lun::Lun;
use crate::nexus::Nexus;
use crate::unit::LogicalUnit;
pub use longshore_block::command::CommandEvent;
use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;
use longshore_block::reservation::{Participant, StoreOrder};
use longshore_block::sanitize::SanitizeOrder;

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    None,
    /// Data-in: read by the initiator.
    ToInitiator,
    /// Data-out: written by the initiator.
    FromInitiator,
}

/// What a CDB asks to transfer; residual counts compare it with the transport's expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub direction: Direction,
    /// Bytes. For parameter data to the initiator this is the allocation length: how much there
    /// really is shows only at the end, in [`Buffers::data_in`].
    pub length: u64,
}

impl Transfer {
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
    /// [`Command::scratch_length`](crate::command::Command::scratch_length) bytes whose content survives from step to step.
    pub scratch: &'a mut [u8],
    /// Parameter data for the initiator is appended here. Empty at the first step.
    pub data_in: &'a mut Vec<u8>,
}

/// What a command needs next.
#[derive(Debug)]
pub enum Step {
    /// Do this on a medium, then step with [`CommandEvent::Media`].
    Media {
        unit: UnitSelector,
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
    /// Sanitize the unit's volume, or leave the failure of that behind, and step with
    /// [`CommandEvent::Persisted`]. What was begun goes on whatever becomes of the command.
    Sanitize(SanitizeRequest),
    /// Abort all commands of these nexuses and NVMe hosts on this unit's volume (PREEMPT AND ABORT),
    /// then step with [`CommandEvent::TasksAborted`].
    AbortTasks(Vec<Arc<dyn Participant>>),
    Complete(Completion),
}

/// What SANITIZE asks of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SanitizeRequest {
    Begin {
        order: SanitizeOrder,
        /// Step when it is stored that it has begun, rather than when it has ended (IMMED).
        immediate: bool,
    },
    ExitFailureMode,
}

/// Whose medium a [`Step::Media`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitSelector {
    /// The unit the command was sent to.
    Own,
    /// Another one, as [`Siblings::find`] named it (EXTENDED COPY).
    Sibling(UnitIndex),
}

/// The driver's name for a logical unit. It stays the same as long as a command uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitIndex(pub usize);

/// The logical units that the nexus' initiator reaches through the same target.
pub trait Siblings {
    /// Their numbers, as REPORT LUNS lists them.
    fn luns(&self) -> Vec<Lun>;
    /// REPORT LUNS has told them: on none of the initiator's units is REPORTED LUNS DATA HAS CHANGED pending any
    /// more (SPC-4 §6.33).
    fn luns_reported(&self) {}
    /// The unit a designation descriptor names (see [`LogicalUnit::is_designated_by`]).
    fn find(&self, designator: &[u8]) -> Option<UnitIndex>;
    /// The unit that `find` named.
    fn unit(&self, index: UnitIndex) -> &Arc<LogicalUnit>;
    /// The initiator's nexus with that unit, right after `find` named it.
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
/// [`Sense::media_failure`](crate::sense::Sense::media_failure) when a media operation fails (unless [`Procedure::handles_failure`]),
/// sets the sense format, and cuts data-in at the allocation length.
pub(crate) trait Procedure: fmt::Debug + Send {
    /// Runs until something is needed. The first event is [`CommandEvent::Start`].
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step;

    /// Whether it may ask for something of another unit than the one that the command was sent to.
    fn uses(&self, unit: UnitIndex) -> bool {
        let _ = unit;
        false
    }

    /// Failed media operations are passed to `step` instead of ending the command.
    fn handles_failure(&self) -> bool {
        false
    }
}
