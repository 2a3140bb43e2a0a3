//! Running commands: the steps of the SCSI machine on one side, volumes on the other.

use std::sync::Arc;

use longshore_iscsi::target::{Completion, Payload, ScsiCommand, TaskAttribute, TaskId};
use longshore_iscsi::transmit::PayloadId;
use longshore_reactor::storage::StorageTag;
use longshore_scsi::block::{ExtentState, MediaError, MediaOperation, MediaOutcome};
use longshore_scsi::command::{
    Buffers, Command, CommandEvent, Direction, Place, Step, Transfer, UnitSelector,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::Nexus;
use longshore_scsi::reservation::StoreOrder;
use longshore_scsi::status::Status;
use longshore_volume::{
    Attempt, ByteOffset, Durability, Operation, Outcome, Progress, Request, RequestProgress,
    VolumeError,
};

use crate::abort::{AbortOrder, AbortScope};
use crate::connection::Connection;
use crate::core::Core;
use crate::exports::Unit;
use crate::gate::Passage;
use crate::message::{AbortedFor, Message, TaskAddress};
use crate::request::{BufferHome, InFlight, Owner};
use crate::session::{LunEntry, SessionSiblings};
use crate::task::{DataIn, Task, TaskState};

/// Data for the initiator up to this length is copied behind its header rather than sent by reference.
const COPY_BYTES_MAX: usize = 1024;

/// What became of an operation on the medium.
enum Medium {
    /// It is over.
    Now(Result<MediaOutcome, MediaError>),
    /// The task waits in the state it was given.
    Parked,
}

impl Connection {
    /// A command whose turn it is.
    pub(crate) fn start_command(&mut self, core: &mut Core, arrived: &ScsiCommand) {
        let lun = self
            .session
            .as_ref()
            .and_then(|s| s.find_lun(Lun(arrived.lun.0)));
        let cdb = arrived.cdb.as_bytes();
        let mut command = match lun.and_then(|lun| self.lun_entry(lun)) {
            Some(entry) => {
                let unit = &core.shared.unit(entry.unit).logical_unit;
                Command::begin(unit, &entry.nexus, cdb)
            }
            None => Command::begin_without_unit(cdb),
        };
        if arrived.write {
            command.expect_data_out(u64::from(arrived.expected_data_transfer_length));
        }
        let transfer = command.transfer();
        let scratch_length = command.scratch_length();
        let ordered = arrived.attribute == TaskAttribute::Ordered;
        self.ordered += usize::from(ordered);
        self.sequence += 1;
        let mut task = Task {
            address: self.tasks.begin(self.address, arrived.task.0),
            sequence: self.sequence,
            ordered,
            command,
            lun,
            expected_data_transfer_length: arrived.expected_data_transfer_length,
            state: TaskState::Receiving,
            exclusive: false,
            data_out: None,
            scratch: None,
            parameter_data: Vec::new(),
            data_in: DataIn::None,
        };
        if scratch_length > 0 {
            task.scratch = core.pool.take(scratch_length);
            if task.scratch.is_none() {
                return self.refuse_for_memory(core, task);
            }
        }
        let wanted = self.wanted_data_out(arrived, transfer);
        if wanted > 0 {
            task.data_out = core.pool.take(wanted);
            if task.data_out.is_none() {
                return self.refuse_for_memory(core, task);
            }
            self.tasks.park(task);
            self.machine
                .want_data_out(arrived.task, wanted as u64, &mut self.transmit);
        } else if transfer.direction == Direction::ToInitiator && self.is_backed_up() {
            task.state = TaskState::Deferred;
            self.deferred.push_back(task.address);
            self.tasks.park(task);
        } else if arrived.attribute == TaskAttribute::HeadOfQueue {
            self.run(core, task, CommandEvent::Start);
        } else {
            self.run_in_order(core, task);
        }
    }

    /// Runs a task that has all it needs, unless it must wait for older ones.
    pub(crate) fn run_in_order(&mut self, core: &mut Core, mut task: Task) {
        if self.ordered > 0 && !self.tasks.may_run(&task) {
            task.state = TaskState::Ordering;
            return self.tasks.park(task);
        }
        self.run(core, task, CommandEvent::Start);
    }

    /// Tasks ended: others may have waited for them. Returns whether any ran.
    pub(crate) fn run_ordering(&mut self, core: &mut Core) -> bool {
        let mut ran = false;
        while std::mem::take(&mut self.order_changed) || ran {
            let may_run = |task: &&Task| {
                matches!(task.state, TaskState::Ordering) && self.tasks.may_run(task)
            };
            let Some(slot) = self
                .tasks
                .iter()
                .find(may_run)
                .map(|task| task.address.slot)
            else {
                break;
            };
            let task = self.tasks.take(slot).expect("found above");
            self.run(core, task, CommandEvent::Start);
            ran = true;
        }
        ran
    }

    /// Bytes of write data that will come and be used.
    fn wanted_data_out(&self, arrived: &ScsiCommand, transfer: Transfer) -> usize {
        if transfer.direction != Direction::FromInitiator || !arrived.write {
            return 0;
        }
        let expected = u64::from(arrived.expected_data_transfer_length);
        usize::try_from(transfer.length.min(expected)).expect("bounded by 32 bits")
    }

    /// There is no memory for the data of a command: the initiator is to try again later
    /// (SAM-5 §5.3.1, TASK SET FULL).
    fn refuse_for_memory(&mut self, core: &mut Core, task: Task) {
        let completion = longshore_scsi::command::Completion::status(Status::TASK_SET_FULL);
        self.finish(core, task, completion);
    }

    /// All write data of a task has arrived.
    pub(crate) fn data_out_complete(&mut self, core: &mut Core, task: TaskId) {
        if let Some(task) = self.tasks.take(task.0) {
            self.run_in_order(core, task);
        }
    }

    /// Runs a task until it ends or waits.
    pub(crate) fn run(&mut self, core: &mut Core, mut task: Task, mut event: CommandEvent) {
        loop {
            let step = self.step(core, &mut task, event);
            let medium = match step {
                Step::Complete(completion) => return self.finish(core, task, completion),
                Step::Media {
                    unit,
                    operation,
                    place,
                } => match self.unit_index(&task, unit) {
                    Some(unit) => self.medium(core, &mut task, unit, operation, place),
                    None => Medium::Now(Err(MediaError::Io)),
                },
                Step::Persist(order) => {
                    self.persist(core, &task, order);
                    task.state = TaskState::Elsewhere;
                    Medium::Parked
                }
                Step::AbortTasks(nexuses) => {
                    self.abort_for_preemption(core, &task, nexuses);
                    task.state = TaskState::Elsewhere;
                    Medium::Parked
                }
            };
            match medium {
                Medium::Now(result) => event = CommandEvent::Media(result),
                Medium::Parked => return self.tasks.park(task),
            }
        }
    }

    fn step(&self, core: &Core, task: &mut Task, event: CommandEvent) -> Step {
        let luns = self
            .session
            .as_ref()
            .map_or(&[][..], |session| &session.luns);
        let siblings = SessionSiblings {
            luns,
            exports: &core.shared.exports,
        };
        let unit = task
            .lun
            .and_then(|lun| luns.get(lun))
            .map(|entry| &*core.shared.unit(entry.unit).logical_unit);
        let buffers = Buffers {
            data_out: task.data_out.as_deref().unwrap_or_default(),
            scratch: task.scratch.as_deref_mut().unwrap_or_default(),
            data_in: &mut task.parameter_data,
        };
        task.command.step(unit, event, buffers, &siblings)
    }

    fn unit_index(&self, task: &Task, selector: UnitSelector) -> Option<usize> {
        let luns = &self.session.as_ref()?.luns;
        let entry = match selector {
            UnitSelector::Own => luns.get(task.lun?)?,
            UnitSelector::Sibling(index) => luns.get(index.0)?,
        };
        Some(entry.unit)
    }

    /// Tries the medium again for a task that waited for the gate or for memory.
    pub(crate) fn retry(&mut self, core: &mut Core, address: TaskAddress) {
        let Some(mut task) = self.tasks.take_exact(address) else {
            // It ended meanwhile; whatever it was woken for is somebody else's now.
            return;
        };
        let TaskState::Medium {
            unit,
            operation,
            place,
        } = task.state
        else {
            return self.tasks.park(task);
        };
        match self.medium(core, &mut task, unit, operation, place) {
            Medium::Now(result) => self.run(core, task, CommandEvent::Media(result)),
            Medium::Parked => self.tasks.park(task),
        }
    }

    /// Does an operation on the medium of `unit`, now if that needs no sleep.
    fn medium(
        &mut self,
        core: &mut Core,
        task: &mut Task,
        unit_index: usize,
        operation: MediaOperation,
        place: Place,
    ) -> Medium {
        let shared = Arc::clone(&core.shared);
        let unit = shared.unit(unit_index);
        if let MediaOperation::LockRange { .. } = operation {
            task.exclusive = true;
            return match unit.gate.enter_exclusive(task.address) {
                Passage::Open => Medium::Now(Ok(MediaOutcome::Done)),
                Passage::Wait => {
                    task.state = TaskState::Medium {
                        unit: unit_index,
                        operation,
                        place,
                    };
                    Medium::Parked
                }
            };
        }
        let counted = operation.writes()
            && !matches!(operation, MediaOperation::Flush)
            && !self.holds_gate(task, unit_index);
        if counted {
            let passage = unit
                .gate
                .enter(core.shard, task.address, |waiting| shared.retry(waiting));
            if passage == Passage::Wait {
                task.state = TaskState::Medium {
                    unit: unit_index,
                    operation,
                    place,
                };
                return Medium::Parked;
            }
        }
        let medium = self.ungated(core, task, unit, unit_index, operation, place, counted);
        let in_flight =
            matches!(medium, Medium::Parked) && matches!(task.state, TaskState::Storage { .. });
        if counted && !in_flight {
            core.leave_gate(unit_index);
        }
        medium
    }

    /// Whether the task keeps all other writes away from that unit.
    fn holds_gate(&self, task: &Task, unit: usize) -> bool {
        task.exclusive && self.unit_index(task, UnitSelector::Own) == Some(unit)
    }

    #[allow(clippy::too_many_arguments)]
    fn ungated(
        &mut self,
        core: &mut Core,
        task: &mut Task,
        unit: &Unit,
        unit_index: usize,
        operation: MediaOperation,
        place: Place,
        counted: bool,
    ) -> Medium {
        let wanted = volume_operation(operation, unit.block_shift);
        let (home, range) = match (operation, place) {
            (MediaOperation::Read { .. }, Place::DataIn { length }) => {
                match self.read_to_initiator(task, unit, wanted, length) {
                    Some(done) => return done,
                    None => (BufferHome::DataIn, 0..length),
                }
            }
            (_, Place::DataOut { start, length }) => (BufferHome::DataOut, start..start + length),
            (_, Place::Scratch { start, length }) => (BufferHome::Scratch, start..start + length),
            (_, Place::None | Place::DataIn { .. }) => (BufferHome::None, 0..0),
        };
        let buffer = match home {
            BufferHome::None => &mut None,
            BufferHome::DataOut => &mut task.data_out,
            BufferHome::Scratch => &mut task.scratch,
            BufferHome::DataIn => {
                let Some(buffer) = core.pool.take(range.len()) else {
                    task.state = TaskState::Medium {
                        unit: unit_index,
                        operation,
                        place,
                    };
                    core.starved.push_back(task.address);
                    return Medium::Parked;
                };
                &mut Some(buffer)
            }
        };
        let attempt = match (wanted, buffer.as_deref_mut()) {
            (Operation::Read { offset }, Some(bytes)) => {
                unit.volume.try_read(offset, &mut bytes[range.clone()])
            }
            (Operation::Write { offset, durability }, Some(bytes)) => {
                unit.volume
                    .try_write(offset, &bytes[range.clone()], durability)
            }
            _ => Attempt::WouldSleep,
        };
        let result = match attempt {
            Attempt::Done(result) => result.map(|()| Outcome::Done),
            Attempt::WouldSleep => {
                let entry = core.requests.vacant_entry();
                let number = entry.key();
                let mut request = Request {
                    operation: wanted,
                    buffer: buffer.take(),
                    start: range.start,
                    end: range.end,
                    tag: StorageTag(number as u64),
                    progress: RequestProgress::default(),
                };
                match unit.volume.start(&mut request, &mut *core.platform) {
                    Progress::Pending => {
                        let owner = Owner::Task(task.address);
                        entry.insert(InFlight {
                            request,
                            owner,
                            unit: unit_index,
                            home,
                            counted,
                        });
                        task.state = TaskState::Storage { request: number };
                        return Medium::Parked;
                    }
                    Progress::Done(result) => {
                        *buffer = request.buffer;
                        result
                    }
                }
            }
        };
        if home == BufferHome::DataIn
            && let Some(buffer) = buffer.take()
        {
            task.data_in = DataIn::Buffer(buffer);
        }
        Medium::Now(media_result(unit, result))
    }

    /// The quick ways of a read: zeros that need no memory, and a small read straight into the transmit
    /// queue. `None`: a buffer is needed.
    fn read_to_initiator(
        &mut self,
        task: &mut Task,
        unit: &Unit,
        operation: Operation,
        length: usize,
    ) -> Option<Medium> {
        let Operation::Read { offset } = operation else {
            return None;
        };
        let zeros = unit.volume.known_zeros(offset, length as u64);
        if zeros && length > COPY_BYTES_MAX {
            task.data_in = DataIn::Zeros(u32::try_from(length).ok()?);
            return Some(Medium::Now(Ok(MediaOutcome::Done)));
        }
        let id = TaskId(task.address.slot);
        let scsi_length = u32::try_from(length).ok()?;
        let place = self
            .machine
            .begin_inline_read(id, scsi_length, &mut self.transmit)?;
        let attempt = if place.len() != length {
            Attempt::WouldSleep
        } else if zeros {
            place.fill(0);
            Attempt::Done(Ok(()))
        } else {
            unit.volume.try_read(offset, place)
        };
        if let Attempt::Done(Ok(())) = attempt {
            task.data_in = DataIn::Inline;
            return Some(Medium::Now(Ok(MediaOutcome::Done)));
        }
        self.machine.rollback_inline_read(id, &mut self.transmit);
        match attempt {
            Attempt::Done(Err(error)) => Some(Medium::Now(media_result(unit, Err(error)))),
            Attempt::Done(Ok(())) | Attempt::WouldSleep => None,
        }
    }

    /// A storage request of a task ended.
    pub(crate) fn storage_done(
        &mut self,
        core: &mut Core,
        address: TaskAddress,
        in_flight: InFlight,
        result: Result<Outcome, VolumeError>,
    ) {
        let Some(mut task) = self.tasks.take_exact(address) else {
            unreachable!("a task that ends makes orphans of its requests");
        };
        match in_flight.home {
            BufferHome::None => {}
            BufferHome::DataOut => task.data_out = in_flight.request.buffer,
            BufferHome::Scratch => task.scratch = in_flight.request.buffer,
            BufferHome::DataIn => {
                if let Some(buffer) = in_flight.request.buffer {
                    task.data_in = DataIn::Buffer(buffer);
                }
            }
        }
        let result = media_result(core.shared.unit(in_flight.unit), result);
        self.run(core, task, CommandEvent::Media(result));
    }

    /// Answers a task and lets go of all it holds.
    pub(crate) fn finish(
        &mut self,
        core: &mut Core,
        mut task: Task,
        completion: longshore_scsi::command::Completion,
    ) {
        let id = TaskId(task.address.slot);
        let good = completion.status == Status::GOOD;
        let transfer = task.command.transfer();
        let sense = completion.sense_bytes();
        let sense = sense.as_ref().map_or(&[][..], |sense| sense.as_ref());
        let data_in = std::mem::replace(&mut task.data_in, DataIn::None);
        if let DataIn::Inline = data_in {
            if good {
                self.machine.commit_inline_read(id, &mut self.transmit);
                return self.let_go(core, task);
            }
            self.machine.rollback_inline_read(id, &mut self.transmit);
        }
        let parameter_length = task.parameter_data.len();
        let expected = task.expected_data_transfer_length as usize;
        let mut sent = None;
        let (payload, scsi_length) = match &data_in {
            DataIn::Zeros(length) if good => (Payload::Zeros(*length), transfer.length),
            DataIn::Buffer(buffer) if good && buffer.len().min(expected) <= COPY_BYTES_MAX => {
                // Also when nothing is expected: what is sent by reference has at least a byte.
                (Payload::Bytes(buffer), transfer.length)
            }
            DataIn::Buffer(buffer) if good => {
                let number = self.sending.vacant_key();
                sent = Some(number);
                let length = buffer
                    .len()
                    .min(task.expected_data_transfer_length as usize);
                let id = PayloadId(number as u64);
                (
                    Payload::Buffer {
                        id,
                        bytes: &buffer[..length],
                    },
                    transfer.length,
                )
            }
            _ if parameter_length > 0 => (
                Payload::Bytes(&task.parameter_data),
                parameter_length as u64,
            ),
            // What a write would have moved counts even if it failed; a read that failed moved nothing.
            _ => match transfer.direction {
                Direction::FromInitiator => (Payload::None, transfer.length),
                Direction::ToInitiator | Direction::None => (Payload::None, 0),
            },
        };
        let by_reference = sent.is_some();
        let status = completion.status.0;
        let completion = Completion {
            status,
            sense,
            data_in: payload,
            scsi_length,
        };
        self.machine.complete(id, completion, &mut self.transmit);
        if let DataIn::Buffer(buffer) = data_in {
            if by_reference {
                let number = self.sending.insert(buffer);
                debug_assert_eq!(Some(number), sent);
            } else {
                core.pool.put(buffer);
            }
        }
        self.let_go(core, task);
    }

    /// A task has ended: its memory is free, and others may run.
    pub(crate) fn let_go(&mut self, core: &mut Core, mut task: Task) {
        self.release_gate(core, &mut task);
        core.recycle(task.data_out.take());
        core.recycle(task.scratch.take());
        if let DataIn::Buffer(buffer) = task.data_in {
            core.pool.put(buffer);
        }
        if self.ordered > 0 {
            self.ordered -= usize::from(task.ordered);
            self.order_changed = true;
        }
    }

    /// The task no longer keeps others from writing.
    fn release_gate(&self, core: &Core, task: &mut Task) {
        if std::mem::take(&mut task.exclusive)
            && let Some(unit) = self.unit_index(task, UnitSelector::Own)
        {
            core.leave_exclusive(unit, task.address);
        }
    }

    /// Stores the reservations of a task's unit on a helper thread.
    fn persist(&self, core: &Core, task: &Task, order: StoreOrder) {
        let shared = Arc::clone(&core.shared);
        let post = core.post().clone();
        let address = task.address;
        let unit = self.unit_index(task, UnitSelector::Own);
        core.shared.blocking.run(Box::new(move || {
            let stored = match (&shared.reservation_store, unit) {
                (Some(store), Some(unit)) => {
                    let uuid = shared.unit(unit).volume.identity().uuid;
                    store.store(uuid, &order).inspect_err(|error| {
                        let path = store.path(uuid);
                        tracing::error!(path = %path.display(), %error, "reservations not stored");
                    })
                }
                .is_ok(),
                _ => false,
            };
            post.send(Message::Persisted {
                task: address,
                stored,
            });
        }));
    }

    /// PREEMPT AND ABORT: the tasks of the preempted nexuses end before the command does.
    fn abort_for_preemption(&self, core: &Core, task: &Task, nexuses: Vec<Arc<Nexus>>) {
        let Some(unit) = self.unit_index(task, UnitSelector::Own) else {
            return;
        };
        let order = AbortOrder::new(
            AbortScope::Nexuses { unit, nexuses },
            Some(task.address),
            AbortedFor::Task(task.address),
            core.post().clone(),
        );
        core.shared.broadcast(|| Message::Abort(Arc::clone(&order)));
    }

    fn lun_entry(&self, index: usize) -> Option<&LunEntry> {
        self.session.as_ref()?.luns.get(index)
    }
}

/// Blocks to bytes.
fn volume_operation(operation: MediaOperation, shift: u32) -> Operation {
    let offset = |lba: longshore_scsi::block::Lba| ByteOffset(lba.0 << shift);
    let length = |blocks: longshore_scsi::block::BlockCount| blocks.0 << shift;
    let durability = |fua| {
        if fua {
            Durability::Durable
        } else {
            Durability::Cached
        }
    };
    match operation {
        MediaOperation::Read { lba, .. } => Operation::Read {
            offset: offset(lba),
        },
        MediaOperation::Write { lba, fua, .. } => Operation::Write {
            offset: offset(lba),
            durability: durability(fua),
        },
        MediaOperation::Flush | MediaOperation::LockRange { .. } => Operation::Flush,
        MediaOperation::Unmap { lba, blocks } => Operation::Unmap {
            offset: offset(lba),
            length: length(blocks),
        },
        MediaOperation::WriteZeroes {
            lba,
            blocks,
            may_unmap,
            fua,
        } => Operation::WriteZeroes {
            offset: offset(lba),
            length: length(blocks),
            may_unmap,
            durability: durability(fua),
        },
        MediaOperation::Anchor { lba, blocks } => Operation::Anchor {
            offset: offset(lba),
            length: length(blocks),
        },
        MediaOperation::ExtentStatus { lba, blocks } => Operation::ExtentStatus {
            offset: offset(lba),
            length: length(blocks),
        },
        MediaOperation::Prefetch { lba, blocks } => Operation::Prefetch {
            offset: offset(lba),
            length: length(blocks),
        },
    }
}

/// Bytes to blocks, and the volume's errors to those of the SCSI machine.
fn media_result(
    unit: &Unit,
    result: Result<Outcome, VolumeError>,
) -> Result<MediaOutcome, MediaError> {
    match result {
        Ok(Outcome::Done) => Ok(MediaOutcome::Done),
        Ok(Outcome::Extent { length, state }) => Ok(MediaOutcome::Extent {
            blocks: longshore_scsi::block::BlockCount((length >> unit.block_shift).max(1)),
            state: match state {
                longshore_volume::ExtentState::Mapped => ExtentState::Mapped,
                longshore_volume::ExtentState::Deallocated => ExtentState::Deallocated,
                longshore_volume::ExtentState::Anchored => ExtentState::Anchored,
            },
        }),
        Err(error) => Err(media_error(unit, &error)),
    }
}

#[cold]
fn media_error(unit: &Unit, error: &VolumeError) -> MediaError {
    tracing::warn!(volume = %unit.volume.identity().name, %error, "operation failed");
    match error {
        VolumeError::OutOfRange => MediaError::OutOfRange,
        VolumeError::ReadOnly => MediaError::ReadOnly,
        VolumeError::NoSpace => MediaError::NoSpace,
        VolumeError::Unsupported => MediaError::Unsupported,
        VolumeError::Poisoned => MediaError::Poisoned,
        VolumeError::ShortFile { .. } => MediaError::ShortFile,
        VolumeError::Io { .. } => MediaError::Io,
    }
}
