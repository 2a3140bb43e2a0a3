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

use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;

use crate::command::Fuse;
use crate::io::namespace::Attached;
use crate::io::status::media_failure;
use crate::io::step::{Buffers, CommandEvent, IoOutcome, Procedure, Step, StepContext, Transfer};
use crate::opcode::{Direction, Opcode};
use crate::status::Status;

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

/// Half of a pair that was admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) opcode: Opcode,
    pub(crate) extent: Extent,
    pub(crate) block_size: u32,
    /// Write: on the medium when it completes. Compare: flush first.
    pub(crate) fua: bool,
}

/// How a command is carried out.
#[derive(Debug)]
pub(crate) enum State {
    /// It is over; the outcome waits for a step.
    Decided(IoOutcome),
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

    /// The namespaces given to later steps have other places, which `place` tells by the old ones: some have come
    /// or gone meanwhile. Those that the command is about must be among them still.
    pub fn renumber(&mut self, place: &dyn Fn(usize) -> usize) {
        if let Some(namespace) = self.namespace() {
            self.namespace = place(namespace);
        }
        if let State::Procedure { procedure, .. } = &mut self.state {
            procedure.renumber(place);
        }
    }

    /// Whether it may ask for something of a namespace, by its place.
    #[must_use]
    pub fn uses(&self, namespace: usize) -> bool {
        self.namespace() == Some(namespace)
            || match &self.state {
                State::Procedure { procedure, .. } => procedure.uses(namespace),
                State::Decided(_) | State::Single { .. } | State::Half(_) => false,
            }
    }

    /// FUSE: the driver pairs fused commands by [`Fusing`](super::Fusing) and does not step them.
    #[must_use]
    pub fn fuse(&self) -> Fuse {
        self.fuse
    }

    /// Runs until it needs something. `namespaces` are those it began with, or those it was told of by
    /// [`Self::renumber`]; the data and the scratch
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
                CommandEvent::Media(Ok(_)) => return Step::Complete(IoOutcome::SUCCESS),
                CommandEvent::Media(Err(_))
                | CommandEvent::Locked
                | CommandEvent::Persisted(_)
                | CommandEvent::TasksAborted => {}
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
                CommandEvent::Start
                | CommandEvent::Media(Ok(_))
                | CommandEvent::Locked
                | CommandEvent::Persisted(_)
                | CommandEvent::TasksAborted => Step::Complete(IoOutcome::SUCCESS),
            },
            State::Half(_) => Step::Complete(Status::ABORTED_MISSING_FUSED.into()),
            State::Procedure { procedure, writing } => match event {
                CommandEvent::Media(Err(error)) if !procedure.handles_failure() => {
                    Step::Complete(IoOutcome {
                        status: media_failure(error, *writing),
                        result: procedure.failure_result(),
                    })
                }
                CommandEvent::Start
                | CommandEvent::Media(_)
                | CommandEvent::Locked
                | CommandEvent::Persisted(_)
                | CommandEvent::TasksAborted => {
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
    pub(crate) fn decided_with(outcome: IoOutcome, fuse: Fuse) -> Self {
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
            ..Self::decided_with(IoOutcome::SUCCESS, Fuse::Normal)
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
