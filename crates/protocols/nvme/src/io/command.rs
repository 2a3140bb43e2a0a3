//! One command of an I/O queue in progress.
//!
//! ```text
//!  begin ──► decided? ──yes──────────────────────────────┐
//!     │                                                  ▼
//!     └─► transfer() ─► (driver collects data) ────► step(Start)
//!                                                        │
//!            ┌───────────────────────────────────────────┤
//!            ▼                                           ▼
//!     Media / Persist / AbortTasks / Wait ──► step(event) ─► Complete
//! ```
//!
//! [`Command::begin`] decides everything that can be decided without data: the operation code, the
//! namespace, reservations, write protection, the range and the length. The driver then collects the
//! data, and calls [`Command::step`] until it says [`Step::Complete`]. A command in progress is a
//! value: dropping it aborts it.

use std::fmt;
use std::sync::Arc;

pub use longshore_block::command::CommandEvent;
use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;
use longshore_block::reservation::{Participant, StoreOrder, StoreWait};

use crate::command::{Fuse, SubmissionEntry};
use crate::io::decode;
use crate::io::fused::Half;
use crate::io::namespace::Attached;
use crate::io::status::media_failure;
use crate::opcode::Direction;
use crate::status::Status;

/// What a command takes from the host, or gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// Bytes, never more than the SGL describes.
    ///
    /// Of what goes to the controller it may be less than the SGL describes, by much: Linux sends
    /// 4096 bytes with every Dataset Management. Of what goes to the host it is the most; how much
    /// there really is shows only at the end, in [`Buffers::data_in`].
    pub length: u32,
}

impl Transfer {
    /// No data.
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
    /// [`Command::scratch_length`] bytes whose content survives from step to step.
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
        /// Which, by its place among those given to [`Command::begin`]. Always
        /// [`Command::namespace`], but for a Flush of all namespaces.
        namespace: usize,
        /// What to do.
        operation: Operation,
        /// Where its data comes from or goes to.
        payload: DataLocation,
    },
    /// From here until the command completes, let no other command's write touch this range: wait for the
    /// writes under way, then step with [`CommandEvent::Locked`]. A command asks for this at most once;
    /// only a [`FusedPair`](super::FusedPair) does.
    LockRange {
        /// By its place.
        namespace: usize,
        /// The range.
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
    Complete(Outcome),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion queue entry.
    pub result: u64,
}

impl Outcome {
    /// Success.
    pub const SUCCESS: Self = Self {
        status: Status::SUCCESS,
        result: 0,
    };
}

impl From<Status> for Outcome {
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

    /// Failed media operations are passed to `step` instead of ending the command.
    fn handles_failure(&self) -> bool {
        false
    }
}

/// A command in progress. See the module documentation.
#[derive(Debug)]
pub struct Command {
    pub(crate) transfer: Transfer,
    /// By its place; `NO_NAMESPACE` for commands that have none.
    namespace: usize,
    scratch_length: usize,
    pub(crate) fuse: Fuse,
    pub(crate) state: State,
}

const NO_NAMESPACE: usize = usize::MAX;

// One is moved for each Read and Write.
const _: () = assert!(size_of::<Command>() <= 96);

/// How a command is carried out.
#[derive(Debug)]
pub(crate) enum State {
    /// It is over; the outcome waits for a step.
    Decided(Outcome),
    /// One operation on the medium: Read, Write and others. No allocation.
    Single {
        operation: Operation,
        payload: DataLocation,
    },
    /// Half of a fused pair, which is not stepped by itself.
    Half(Half),
    /// Everything else. `writing`: the operation under way changes the medium.
    Procedure {
        procedure: Box<dyn Procedure>,
        writing: bool,
    },
}

impl Command {
    /// Decodes an entry and admits it. If it is refused, the outcome waits for the first step.
    ///
    /// `namespaces` are those of the controller, in ascending order of NSID. `data_length` is what
    /// the SGL describes.
    #[inline]
    pub fn begin<N: Attached>(namespaces: &[N], entry: &SubmissionEntry, data_length: u32) -> Self {
        decode::begin(namespaces, entry, data_length)
            .unwrap_or_else(|status| Self::decided_with(status.into(), entry.fuse()))
    }

    /// What it takes from the host or gives it. No data once it is decided.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        self.transfer
    }

    /// It is over already, and no data is wanted.
    #[must_use]
    pub fn decided(&self) -> bool {
        matches!(self.state, State::Decided(_))
    }

    /// Bytes of scratch memory it needs from the first step on; 0 for most commands.
    #[must_use]
    pub fn scratch_length(&self) -> usize {
        self.scratch_length
    }

    /// The namespace it was sent to, by its place; `None` if there is none or if it was refused
    /// before that was known.
    #[must_use]
    pub fn namespace(&self) -> Option<usize> {
        (self.namespace != NO_NAMESPACE).then_some(self.namespace)
    }

    /// FUSE: the driver pairs fused commands by [`Fusing`](super::Fusing) and does not step them.
    #[must_use]
    pub fn fuse(&self) -> Fuse {
        self.fuse
    }

    /// Runs until it needs something. `namespaces` are those it began with; the data and the scratch
    /// memory are the same at every step.
    ///
    /// # Panics
    /// If there is less data or scratch memory than was asked for.
    #[inline]
    pub fn step<N: Attached>(
        &mut self,
        namespaces: &[N],
        event: CommandEvent,
        buffers: Buffers<'_>,
    ) -> Step {
        if let State::Single { operation, payload } = &self.state {
            match event {
                CommandEvent::Start => {
                    return Step::Media {
                        namespace: self.namespace,
                        operation: *operation,
                        payload: *payload,
                    };
                }
                CommandEvent::Media(Ok(_)) => return Step::Complete(Outcome::SUCCESS),
                _ => {}
            }
        }
        self.step_any(namespaces, event, buffers)
    }

    /// [`Command::step`] without its shortcuts.
    fn step_any<N: Attached>(
        &mut self,
        namespaces: &[N],
        event: CommandEvent,
        mut buffers: Buffers<'_>,
    ) -> Step {
        assert!(
            buffers.scratch.len() >= self.scratch_length,
            "scratch memory as promised"
        );
        if self.transfer.direction == Direction::ToController {
            assert!(
                buffers.data_out.len() as u64 >= u64::from(self.transfer.length),
                "all data has arrived"
            );
        }
        let step = match &mut self.state {
            State::Decided(outcome) => Step::Complete(*outcome),
            State::Single { operation, .. } => match event {
                CommandEvent::Media(Err(error)) => {
                    Step::Complete(media_failure(error, operation.fails_as_write()).into())
                }
                _ => Step::Complete(Outcome::SUCCESS),
            },
            State::Half(_) => Step::Complete(Status::ABORTED_MISSING_FUSED.into()),
            State::Procedure { procedure, writing } => match event {
                CommandEvent::Media(Err(error)) if !procedure.handles_failure() => {
                    Step::Complete(Outcome {
                        status: media_failure(error, *writing),
                        result: procedure.failure_result(),
                    })
                }
                _ => {
                    let mut context = StepContext {
                        namespace: self.namespace,
                        block_count: namespaces
                            .get(self.namespace)
                            .map_or(0, Attached::block_count),
                        buffers: &mut buffers,
                    };
                    let step = procedure.step(event, &mut context);
                    if let Step::Media { operation, .. } = &step {
                        *writing = operation.fails_as_write();
                    }
                    step
                }
            },
        };
        if let Step::Complete(outcome) = &step {
            if !outcome.status.is_success() {
                buffers.data_in.clear();
            }
            let most = usize::try_from(self.transfer.length).unwrap_or(usize::MAX);
            buffers.data_in.truncate(most);
            self.state = State::Decided(*outcome);
        }
        step
    }

    /// A command whose outcome is known.
    pub(crate) fn decided_with(outcome: Outcome, fuse: Fuse) -> Self {
        Self {
            transfer: Transfer::NONE,
            namespace: NO_NAMESPACE,
            scratch_length: 0,
            fuse,
            state: State::Decided(outcome),
        }
    }

    /// A command that succeeds without doing anything.
    pub(crate) fn nothing_to_do(namespace: usize) -> Self {
        Self {
            namespace,
            ..Self::decided_with(Outcome::SUCCESS, Fuse::Normal)
        }
    }

    /// A command that is one operation on the medium.
    #[inline]
    pub(crate) fn single(
        namespace: usize,
        transfer: Transfer,
        operation: Operation,
        payload: DataLocation,
    ) -> Self {
        Self {
            transfer,
            namespace,
            scratch_length: 0,
            fuse: Fuse::Normal,
            state: State::Single { operation, payload },
        }
    }

    /// A command of several steps.
    pub(crate) fn procedure(
        namespace: usize,
        transfer: Transfer,
        scratch_length: usize,
        procedure: impl Procedure + 'static,
    ) -> Self {
        Self {
            transfer,
            namespace,
            scratch_length,
            fuse: Fuse::Normal,
            state: State::Procedure {
                procedure: Box::new(procedure),
                writing: false,
            },
        }
    }

    /// A command of several steps that is about no namespace in particular.
    pub(crate) fn without_namespace(procedure: impl Procedure + 'static) -> Self {
        Self::procedure(NO_NAMESPACE, Transfer::NONE, 0, procedure)
    }

    /// Half of a pair.
    pub(crate) fn half(namespace: usize, transfer: Transfer, fuse: Fuse, half: Half) -> Self {
        Self {
            transfer,
            namespace,
            scratch_length: 0,
            fuse,
            state: State::Half(half),
        }
    }
}
