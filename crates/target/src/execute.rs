//! Running commands: the steps of the SCSI machine on one side, volumes on the other.

use std::sync::Arc;

use longshore_block::media::MediaError;
use longshore_iscsi::target::{Completion, Payload, ScsiCommand, TaskAttribute, TaskId};
use longshore_scsi::command::{
    Buffers, Command, CommandEvent, Direction, Step, Transfer, UnitSelector,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::Nexus;
use longshore_scsi::reservation::StoreOrder;
use longshore_scsi::sense::{AdditionalSense, Sense};
use longshore_scsi::status::Status;
use longshore_wire::transmit::PayloadId;

use crate::abort::{AbortOrder, AbortScope, Exception};
use crate::connection::Connection;
use crate::core::Core;
use crate::medium::{COPY_BYTES_MAX, Medium};
use crate::message::{AbortedFor, Message};
use crate::session::{LunEntry, SessionSiblings};
use crate::task::{DataIn, MediumWish, Task, TaskState};

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
            head_of_queue: arrived.attribute == TaskAttribute::HeadOfQueue,
            command,
            lun,
            expected_data_transfer_length: arrived.expected_data_transfer_length,
            state: TaskState::Receiving,
            exclusive: false,
            data_out: None,
            scratch: None,
            parameter_data: Vec::new(),
            data_in: DataIn::None,
            reading: 0,
            writing: 0,
        };
        let waits_for_data = arrived.read && arrived.expected_data_transfer_length > 0;
        if arrived.read && arrived.write || waits_for_data && takes_data(transfer) {
            // The initiator waits for data where the command wants some. GOOD would tell it that
            // something was written. And no command that we carry out is bidirectional.
            let sense = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
            let sense = Sense::illegal_request(sense);
            return self.finish(core, task, sense.into());
        }
        if scratch_length > 0 {
            task.scratch = core.pool.take(scratch_length);
            if task.scratch.is_none() {
                return self.refuse_for_memory(core, task);
            }
        }
        let wanted = self.wanted_data_out(arrived, transfer);
        if wanted > 0 {
            if self.may_write(core, wanted) {
                task.data_out = core.pool.take(wanted);
            }
            let Some(buffer) = &task.data_out else {
                return self.refuse_for_memory(core, task);
            };
            task.writing = buffer.capacity();
            self.writing += task.writing;
            self.tasks.park(task);
            self.machine
                .want_data_out(arrived.task, wanted as u64, &mut self.transmit);
        } else if transfer.direction == Direction::ToInitiator && self.is_backed_up(core) {
            task.state = TaskState::Deferred;
            self.deferred.push_back(task.address);
            self.tasks.park(task);
        } else {
            self.run_in_order(core, task);
        }
    }

    /// Runs a task that has all it needs, unless it must wait for older ones.
    pub(crate) fn run_in_order(&mut self, core: &mut Core, mut task: Task) {
        if self.ordered > 0 && !task.head_of_queue && !self.tasks.may_run(&task) {
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
                    Some(unit) => {
                        let wish = MediumWish {
                            unit,
                            operation,
                            place,
                        };
                        self.medium(core, &mut task, wish)
                    }
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

    pub(crate) fn unit_index(&self, task: &Task, selector: UnitSelector) -> Option<usize> {
        let luns = &self.session.as_ref()?.luns;
        let entry = match selector {
            UnitSelector::Own => luns.get(task.lun?)?,
            UnitSelector::Sibling(index) => luns.get(index.0)?,
        };
        Some(entry.unit)
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
        self.reading -= task.reading;
        self.writing -= task.writing;
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
            Exception::Task(task.address),
            AbortedFor::Task(task.address),
            core.post().clone(),
        );
        core.shared.broadcast(|| Message::Abort(Arc::clone(&order)));
    }

    fn lun_entry(&self, index: usize) -> Option<&LunEntry> {
        self.session.as_ref()?.luns.get(index)
    }
}

/// Whether a command is about to be given data.
fn takes_data(transfer: Transfer) -> bool {
    transfer.direction == Direction::FromInitiator && transfer.length > 0
}
