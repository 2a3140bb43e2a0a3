//! What a command in progress and its driver say to each other, step by step, and what commands of several
//! steps implement.

use std::fmt;
use std::sync::Arc;

pub use longshore_block::command::CommandEvent;
use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;
use longshore_block::reservation::{Participant, StoreOrder, StoreWait};

use crate::opcode::Direction;
use crate::status::Status;

/// What a command takes from the host, or gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub direction: Direction,
    /// Bytes, never more than the SGL describes.
    ///
    /// Of what goes to the controller it may be less than the SGL describes, by much: Linux sends
    /// 4096 bytes with every Dataset Management. Of what goes to the host it is the most; how much
    /// there really is shows only at the end, in [`Buffers::data_in`].
    pub length: u32,
}

impl Transfer {
    pub const NONE: Self = Self {
        direction: Direction::None,
        length: 0,
    };

    pub(crate) const fn to_controller(length: u32) -> Self {
        Self {
            direction: Direction::ToController,
            length,
        }
    }

    pub(crate) const fn to_host(length: u32) -> Self {
        Self {
            direction: Direction::ToHost,
            length,
        }
    }
}

/// Memory the driver lends to a command for one step.
#[derive(Debug)]
pub struct Buffers<'a> {
    /// All [`Transfer::length`] bytes from the host.
    pub data_out: &'a [u8],
    /// [`Command::scratch_length`](super::Command::scratch_length) bytes whose content survives from step to step.
    pub scratch: &'a mut [u8],
    /// Data for the host that does not come from the medium is appended here. Empty at the first
    /// step.
    pub data_in: &'a mut Vec<u8>,
}

/// What a command needs next.
#[derive(Debug)]
pub enum Step {
    /// Do this on the medium of a namespace, then step with [`CommandEvent::Media`].
    Media {
        /// Which, by its place among those given to [`Command::begin`](super::Command::begin). Always
        /// [`Command::namespace`](super::Command::namespace), but for a Flush of all namespaces.
        namespace: usize,
        operation: Operation,
        /// Where its data comes from or goes to.
        payload: DataLocation,
    },
    /// From here until the command completes, let no other command's write touch this range: wait for the
    /// writes under way, then step with [`CommandEvent::Locked`]. A command asks for this at most once;
    /// only a [`FusedPair`](super::FusedPair) does.
    LockRange {
        /// Index of the namespace in the subsystem's table.
        namespace: usize,
        extent: Extent,
    },
    /// Store these bytes (the namespace's reservations) durably, then step with
    /// [`CommandEvent::Persisted`]. Keep the order until then, even if the command goes.
    Persist(StoreOrder),
    /// Abort all commands of these participants for this namespace (Preempt and Abort), then step
    /// with [`CommandEvent::TasksAborted`].
    AbortTasks(Vec<Arc<dyn Participant>>),
    /// Wait for the end of this, then step with [`CommandEvent::Start`] once more.
    Wait(StoreWait),
    /// It is over. Data for the host is in [`Buffers::data_in`], or was read to
    /// [`DataLocation::DataIn`].
    Complete(IoOutcome),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoOutcome {
    pub status: Status,
    /// Dwords 0 and 1 of the completion queue entry.
    pub result: u64,
}

impl IoOutcome {
    pub const SUCCESS: Self = Self {
        status: Status::SUCCESS,
        result: 0,
    };
}

impl From<Status> for IoOutcome {
    fn from(status: Status) -> Self {
        Self { status, result: 0 }
    }
}

/// What a command of several steps sees of the world in one step.
pub(crate) struct StepContext<'a, 'b> {
    /// The namespace it was sent to, by its place.
    pub(crate) namespace: usize,
    /// NSZE of it at this moment.
    pub(crate) block_count: u64,
    /// Memory lent by the driver.
    pub(crate) buffers: &'a mut Buffers<'b>,
}

impl StepContext<'_, '_> {
    /// An operation on the namespace's medium.
    pub(crate) fn media(&self, operation: Operation, payload: DataLocation) -> Step {
        Step::Media {
            namespace: self.namespace,
            operation,
            payload,
        }
    }
}

/// A command of several steps after its entry has been accepted.
pub(crate) trait Procedure: fmt::Debug + Send {
    /// Runs until something is needed. The first event is [`CommandEvent::Start`].
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step;

    /// Dwords 0 and 1 when an operation on the medium failed now.
    fn failure_result(&self) -> u64 {
        0
    }

    /// Whether it may ask for something of this namespace, beside the one that the command was sent to.
    fn uses(&self, namespace: usize) -> bool {
        let _ = namespace;
        false
    }

    /// Namespaces have other places now, which `place` tells by the old ones.
    fn renumber(&mut self, place: &dyn Fn(usize) -> usize) {
        let _ = place;
    }

    /// Failed media operations are passed to `step` instead of ending the command.
    fn handles_failure(&self) -> bool {
        false
    }
}
