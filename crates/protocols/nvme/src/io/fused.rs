//! Compare and Write, the one fused operation (NVM command set 1.0 §2.1.3; NVMe base 2.0, fused
//! operations).
//!
//! Two commands that follow each other in their queue are carried out as one. [`Fusing`] finds the
//! pairs, [`FusedPair`] carries them out:
//!
//! ```text
//!  begin(first), begin(second) ─► FusedPair::new ─► decided? ─yes─► step(Start) ─► Complete
//!                                                      │no                            ▲
//!                                  (data of both) ◄────┘                              │
//!                                        └─► lock ─► (read a chunk ─► compare)… ─► write
//! ```
//!
//! The range is locked from before the first read until the pair is over, so that of two hosts that
//! expect the same old data exactly one succeeds.
//!
//! | what is wrong | Compare | Write |
//! |---|---|---|
//! | other commands, ranges or namespaces that differ | Invalid Field | Invalid Field |
//! | Compare of more blocks than ACWU | Atomic Write Unit Exceeded | Failed Fused Command |
//! | Compare is refused or fails | why | Failed Fused Command |
//! | Write is refused or fails | what came of it | why |
//! | the other one is missing | Missing Fused Command | Missing Fused Command |

use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::Operation;

use crate::command::Fuse;
use crate::io::command::{Command, Half, State};
use crate::io::status::media_failure;
use crate::io::step::{Buffers, CommandEvent, IoOutcome};
use crate::opcode::io;
use crate::status::Status;
use longshore_block::chunks::{self, Chunks};

/// Finds the pairs among the commands of one queue. `T` is whatever the driver knows a command by.
#[derive(Debug)]
pub struct Fusing<T> {
    first: Option<T>,
}

impl<T> Default for Fusing<T> {
    fn default() -> Self {
        Self { first: None }
    }
}

/// What is to be done now that a command has arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrival<T> {
    /// Half of a pair whose other half is missing: to be completed with
    /// [`Status::ABORTED_MISSING_FUSED`].
    pub orphan: Option<T>,
    pub next: Next<T>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// An ordinary command: carry it out.
    Alone(T),
    /// Carry out both as a [`FusedPair`].
    Pair { first: T, second: T },
    /// The other command of the pair has not arrived.
    Wait,
}

impl<T> Fusing<T> {
    /// No half waits for its partner: an ordinary command that arrives is alone.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.first.is_none()
    }

    /// A command has arrived; `fuse` is its FUSE field.
    #[inline]
    pub fn arrive(&mut self, fuse: Fuse, command: T) -> Arrival<T> {
        if fuse == Fuse::Normal && self.first.is_none() {
            return Arrival {
                orphan: None,
                next: Next::Alone(command),
            };
        }
        self.pair(fuse, command)
    }

    #[cold]
    fn pair(&mut self, fuse: Fuse, command: T) -> Arrival<T> {
        let waiting = self.first.take();
        match (fuse, waiting) {
            (Fuse::First, orphan) => {
                self.first = Some(command);
                Arrival {
                    orphan,
                    next: Next::Wait,
                }
            }
            (Fuse::Second, Some(first)) => Arrival {
                orphan: None,
                next: Next::Pair {
                    first,
                    second: command,
                },
            },
            (Fuse::Second, None) => Arrival {
                orphan: Some(command),
                next: Next::Wait,
            },
            // The reserved code is refused when the command is decoded.
            (Fuse::Normal | Fuse::Reserved, orphan) => Arrival {
                orphan,
                next: Next::Alone(command),
            },
        }
    }

    /// Takes out the first of a pair that still waits for its second: an Abort found it, or the queue
    /// ends.
    pub fn take_first_if(&mut self, wanted: impl FnOnce(&mut T) -> bool) -> Option<T> {
        self.first.take_if(wanted)
    }
}

/// How a pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FusedOutcome {
    /// Result of the Compare; a miscompare aborts the Write.
    pub first: IoOutcome,
    /// Result of the Write, which is aborted with a failed Compare.
    pub second: IoOutcome,
}

/// What a pair needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedStep {
    Media {
        /// Index of the namespace in the subsystem's table.
        namespace: usize,
        operation: Operation,
        /// Where its data comes from or goes to.
        payload: DataLocation,
    },
    /// From here until the pair completes, let no other command's write touch this range: wait for the
    /// writes under way, then step with [`CommandEvent::Locked`]. A pair asks for this once.
    LockRange {
        /// Index of the namespace in the subsystem's table.
        namespace: usize,
        /// Blocks to keep other writes out of.
        extent: Extent,
    },
    /// It is over; the first completes before the second.
    Complete(FusedOutcome),
}

/// A Compare and Write in progress.
#[derive(Debug)]
pub struct FusedPair(Pair);

#[derive(Debug)]
enum Pair {
    Decided(FusedOutcome),
    Running(Running),
}

#[derive(Debug)]
struct Running {
    namespace: usize,
    extent: Extent,
    block_size: u32,
    /// Bytes of each half.
    length: u32,
    /// The Compare has FUA.
    flush: bool,
    /// FUA of the Write, or why it was refused.
    write: Result<bool, Status>,
    chunks: Chunks,
    state: PairState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairState {
    Locking,
    Flushing,
    Comparing,
    Writing,
}

impl FusedPair {
    /// Two commands that [`Command::begin`] made, the second of which follows the first in the queue.
    #[must_use]
    pub fn new(first: Command, second: Command) -> Self {
        match (&first.state, &second.state) {
            (State::Half(compare), _) if compare.opcode != io::COMPARE => Self::unknown(),
            (_, State::Half(write)) if write.opcode != io::WRITE => Self::unknown(),
            (State::Half(compare), State::Half(write)) => {
                let same = first.namespace() == second.namespace();
                if same && compare.extent == write.extent {
                    Self::admitted(&first, *compare, Ok(write.fua))
                } else {
                    Self::unknown()
                }
            }
            (State::Half(compare), State::Decided(refused)) => {
                Self::admitted(&first, *compare, Err(refused.status))
            }
            (State::Decided(refused), _) => Self(Pair::Decided(compare_failed(refused.status))),
            _ => Self::unknown(),
        }
    }

    fn admitted(first: &Command, compare: Half, write: Result<bool, Status>) -> Self {
        let Half {
            extent, block_size, ..
        } = compare;
        let Some(namespace) = first.namespace() else {
            return Self::both(Status::INVALID_FIELD.do_not_retry());
        };
        Self(Pair::Running(Running {
            namespace,
            extent,
            block_size,
            length: u32::try_from(extent.bytes(block_size)).unwrap_or(u32::MAX),
            flush: compare.fua,
            write,
            chunks: Chunks::new(extent, block_size),
            state: PairState::Locking,
        }))
    }

    fn both(status: Status) -> Self {
        Self(Pair::Decided(FusedOutcome {
            first: status.into(),
            second: status.into(),
        }))
    }

    /// Not a pair we know.
    fn unknown() -> Self {
        Self::both(Status::INVALID_FIELD.do_not_retry())
    }

    /// It is over already, and no data is wanted.
    #[must_use]
    pub fn decided(&self) -> bool {
        matches!(self.0, Pair::Decided(_))
    }

    /// Bytes that come with each of the two commands; 0 for one whose data is not wanted. The
    /// driver's data buffer holds those of the first, then those of the second.
    #[must_use]
    pub fn transfers(&self) -> (u32, u32) {
        match &self.0 {
            Pair::Decided(_) => (0, 0),
            Pair::Running(running) => {
                let second = running.write.map_or(0, |_| running.length);
                (running.length, second)
            }
        }
    }

    /// Bytes of scratch memory it needs from the first step on.
    #[must_use]
    pub fn scratch_length(&self) -> usize {
        match &self.0 {
            Pair::Decided(_) => 0,
            Pair::Running(running) => chunks::scratch_length(running.extent, running.block_size),
        }
    }

    /// The namespace, by its place.
    #[must_use]
    pub fn namespace(&self) -> Option<usize> {
        match &self.0 {
            Pair::Decided(_) => None,
            Pair::Running(running) => Some(running.namespace),
        }
    }

    pub fn renumber(&mut self, place: &dyn Fn(usize) -> usize) {
        if let Pair::Running(running) = &mut self.0 {
            running.namespace = place(running.namespace);
        }
    }

    /// Runs until it needs something, as [`Command::step`].
    ///
    /// # Panics
    /// If there is less data or scratch memory than was asked for.
    pub fn step(&mut self, event: CommandEvent, buffers: Buffers<'_>) -> FusedStep {
        let step = match &mut self.0 {
            Pair::Decided(outcome) => FusedStep::Complete(*outcome),
            Pair::Running(running) => running.step(event, &buffers),
        };
        if let FusedStep::Complete(outcome) = step {
            self.0 = Pair::Decided(outcome);
        }
        step
    }
}

/// The Write does nothing when the Compare has failed.
fn compare_failed(status: Status) -> FusedOutcome {
    FusedOutcome {
        first: status.into(),
        second: Status::ABORTED_FAILED_FUSED.into(),
    }
}

/// The Compare was successful, whatever becomes of the Write.
fn write_ended(status: Status) -> FusedStep {
    FusedStep::Complete(FusedOutcome {
        first: IoOutcome::SUCCESS,
        second: status.into(),
    })
}

impl Running {
    fn step(&mut self, event: CommandEvent, buffers: &Buffers<'_>) -> FusedStep {
        if let CommandEvent::Media(Err(error)) = event {
            return match self.state {
                PairState::Writing => write_ended(media_failure(error, true)),
                state @ (PairState::Locking | PairState::Flushing | PairState::Comparing) => {
                    let status = media_failure(error, state == PairState::Flushing);
                    FusedStep::Complete(compare_failed(status))
                }
            };
        }
        match (event, self.state) {
            (CommandEvent::Start, _) => FusedStep::LockRange {
                namespace: self.namespace,
                extent: self.extent,
            },
            (_, PairState::Locking) if self.flush => {
                self.state = PairState::Flushing;
                self.media(Operation::Flush, DataLocation::None)
            }
            (_, PairState::Locking | PairState::Flushing) => self.read_next_or_write(buffers),
            (_, PairState::Comparing) => {
                let chunk = self.chunks.chunk();
                let difference = chunk.first_difference(buffers.scratch, buffers.data_out);
                if difference.is_none() {
                    self.read_next_or_write(buffers)
                } else {
                    let status = Status::COMPARE_FAILURE.do_not_retry();
                    FusedStep::Complete(compare_failed(status))
                }
            }
            (_, PairState::Writing) => write_ended(Status::SUCCESS),
        }
    }

    fn read_next_or_write(&mut self, buffers: &Buffers<'_>) -> FusedStep {
        if let Some(chunk) = self.chunks.advance(buffers.scratch) {
            self.state = PairState::Comparing;
            return self.media(chunk.read(), chunk.payload());
        }
        let fua = match self.write {
            Ok(fua) => fua,
            Err(refused) => return write_ended(refused),
        };
        self.state = PairState::Writing;
        let extent = self.extent;
        let length = usize::try_from(self.length).expect("it fits the data buffer");
        let payload = DataLocation::DataOut {
            start: length,
            length,
        };
        self.media(Operation::Write { extent, fua }, payload)
    }

    fn media(&self, operation: Operation, payload: DataLocation) -> FusedStep {
        FusedStep::Media {
            namespace: self.namespace,
            operation,
            payload,
        }
    }
}
