//! Running SCSI commands: the steps of the SCSI machine on one side, volumes on the other.

use longshore_block::operation::MediaError;
use longshore_iscsi::server::{Completion, Payload, ScsiCommand, TaskAttribute, TaskId};
use longshore_scsi::command::{
    Buffers, Command, CommandEvent, Direction, SanitizeRequest, Step, Transfer, UnitSelector,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::sense::{AdditionalSense, Sense};
use longshore_scsi::status::Status;
use longshore_wire::transmit::PayloadId;

use super::session::{LunEntry, SessionSiblings};
use super::state::{Iscsi, ScsiWork};
use crate::connection::protocol::Protocol;
use crate::core::Core;
use crate::execute::medium;
use crate::execute::pages::held_payload;
use crate::execute::plain::TaskStart;
use crate::execute::reads::COPY_BYTES_MAX;
use crate::execute::task::{self, DataIn, Executed, MediaRequest, TaskState};
use crate::gate::Passage;
use crate::transport::channel::Channel;

type Task = task::Task<ScsiWork>;

impl Iscsi {
    /// A command whose turn it is.
    pub(crate) fn start_command(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        arrived: &ScsiCommand,
        begun: TaskStart,
    ) {
        let session = self.session.as_ref();
        let lun = session.and_then(|session| session.find_lun(Lun(arrived.lun.0)));
        let cdb = arrived.cdb.as_bytes();
        let mut command = match lun.and_then(|lun| self.lun_entry(lun)) {
            Some(entry) => {
                let unit = &core.unit(entry.unit).logical_unit;
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
        core.counters.operations_iscsi += 1;
        channel.counts.operations += 1;
        let address = self.tasks.begin(channel.address, arrived.task.0);
        let unit = lun.and_then(|lun| Some(self.lun_entry(lun)?.unit));
        let work = ScsiWork {
            command,
            lun,
            expected_data_transfer_length: arrived.expected_data_transfer_length,
            sequence: self.sequence,
            ordered,
            head_of_queue: arrived.attribute == TaskAttribute::HeadOfQueue,
        };
        let mut task = Task::new(address, work, unit);
        task.sleeps = begun.sleeps;
        task.followed = begun.followed.unwrap_or_else(|| core.follow(Iscsi::KIND));
        let waits_for_data = arrived.read && arrived.expected_data_transfer_length > 0;
        if arrived.read && arrived.write || waits_for_data && takes_data(transfer) {
            // The initiator waits for data where the command wants some. GOOD would tell it that
            // something was written. And no command that we carry out is bidirectional.
            let sense = AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
            let sense = Sense::illegal_request(sense);
            return self.finish(core, channel, task, sense.into());
        }
        if scratch_length > 0 {
            task.scratch = core.memory.pool.take(scratch_length);
            if task.scratch.is_none() {
                core.memory.found_none();
                return self.refuse_for_memory(core, channel, task);
            }
        }
        let wanted = self.wanted_data_out(arrived, transfer);
        if wanted > 0 {
            let early = self.machine.unsolicited_data_out(arrived.task) as usize;
            if !self
                .tasks
                .take_data_out_now(core, channel, &mut task, wanted, early)
            {
                return self.refuse_for_memory(core, channel, task);
            }
            self.tasks.park(task);
            let transmit = &mut channel.transmit;
            self.machine
                .want_data_out(arrived.task, wanted as u64, transmit);
        } else if transfer.direction == Direction::ToInitiator
            && self.tasks.is_backed_up(core, channel)
        {
            self.tasks.defer(task);
        } else {
            self.run_in_order(core, channel, task);
        }
    }

    /// Runs a task that has all it needs, unless it must wait for older ones.
    #[inline(always)]
    pub(crate) fn run_in_order(&mut self, core: &mut Core, channel: &mut Channel, mut task: Task) {
        if self.ordered > 0 && !task.work.head_of_queue && !self.may_run(&task) {
            task.state = TaskState::Ordering;
            return self.tasks.park(task);
        }
        self.run_command(core, channel, task, CommandEvent::Start);
    }

    /// Tasks ended: others may have waited for them. Returns whether any ran.
    pub(crate) fn run_ordering(&mut self, core: &mut Core, channel: &mut Channel) -> bool {
        let mut ran = false;
        while std::mem::take(&mut self.order_changed) || ran {
            let may_run =
                |task: &&Task| matches!(task.state, TaskState::Ordering) && self.may_run(task);
            let Some(slot) = self
                .tasks
                .iter()
                .find(may_run)
                .map(|task| task.address.slot)
            else {
                break;
            };
            let task = self.tasks.take(slot).expect("found above");
            self.run_command(core, channel, task, CommandEvent::Start);
            ran = true;
        }
        ran
    }

    /// Whether the order of ordered tasks lets this one run: those parked are all that have not
    /// ended (SAM-5 §8.6). Tasks on different logical units do not wait for each other.
    fn may_run(&self, task: &Task) -> bool {
        let before =
            |other: &ScsiWork| other.lun == task.work.lun && other.sequence < task.work.sequence;
        let mut others = self.tasks.iter().map(|other| &other.work);
        !others.any(|other| before(other) && (task.work.ordered || other.ordered))
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
    fn refuse_for_memory(&mut self, core: &mut Core, channel: &mut Channel, task: Task) {
        let completion = longshore_scsi::command::Completion::status(Status::TASK_SET_FULL);
        self.finish(core, channel, task, completion);
    }

    /// All write data of a task has arrived.
    pub(crate) fn data_out_complete(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: TaskId,
    ) {
        if let Some(task) = self.tasks.take(task.0) {
            if task.lacks_memory {
                return self.refuse_for_memory(core, channel, task);
            }
            self.run_in_order(core, channel, task);
        }
    }

    /// Runs a task until it ends or waits.
    #[inline(always)]
    pub(super) fn run_command(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut task: Task,
        mut event: CommandEvent,
    ) {
        loop {
            let step = self.step(core, &mut task, event);
            let executed = match step {
                Step::Complete(completion) => return self.finish(core, channel, task, completion),
                Step::Media {
                    unit,
                    operation,
                    payload,
                } => match unit_index(&task, unit) {
                    Some(unit) => {
                        let wanted = MediaRequest {
                            unit,
                            operation,
                            payload,
                        };
                        self.execute(core, channel, &mut task, wanted)
                    }
                    None => Executed::Now(Err(MediaError::Io)),
                },
                Step::LockRange(_) => match task.unit {
                    Some(unit) => match task.lock_range(core, unit) {
                        Passage::Open => {
                            event = CommandEvent::Locked;
                            continue;
                        }
                        Passage::Wait => Executed::Waits,
                    },
                    None => Executed::Now(Err(MediaError::Io)),
                },
                Step::Persist(order) => {
                    core.persist(task.address, task.unit, order);
                    task.state = TaskState::Elsewhere;
                    Executed::Waits
                }
                Step::Sanitize(request) => {
                    let volumes = task.unit.into_iter().collect();
                    task.state = TaskState::Elsewhere;
                    match request {
                        SanitizeRequest::Begin { order, immediate } => {
                            match core.begin_sanitize(task.address, volumes, &order, immediate) {
                                Ok(()) => Executed::Waits,
                                Err(error) => Executed::Now(Err(error)),
                            }
                        }
                        SanitizeRequest::ExitFailureMode => {
                            core.exit_sanitize_failure(task.address, &volumes);
                            Executed::Waits
                        }
                    }
                }
                Step::AbortTasks(participants) => {
                    core.abort_for_preemption(task.address, task.unit, participants);
                    task.state = TaskState::Elsewhere;
                    Executed::Waits
                }
            };
            match executed {
                Executed::Now(result) => event = CommandEvent::Media(result),
                Executed::Waits => return self.tasks.park(task),
            }
        }
    }

    fn step(&self, core: &Core, task: &mut Task, event: CommandEvent) -> Step {
        let luns = self.luns();
        let siblings = SessionSiblings {
            luns,
            exports: &core.view.exports,
        };
        let unit = task.unit.map(|unit| &*core.unit(unit).logical_unit);
        let buffers = Buffers {
            data_out: task.data_out.as_deref().unwrap_or_default(),
            scratch: task.scratch.as_deref_mut().unwrap_or_default(),
            data_in: &mut task.parameter_data,
        };
        task.work.command.step(unit, event, buffers, &siblings)
    }

    fn execute(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: &mut Task,
        wanted: MediaRequest,
    ) -> Executed {
        let (command, machine) = (medium::Command::Task(task), &mut self.machine);
        self.tasks.execute(core, channel, machine, command, wanted)
    }

    /// Answers a task and lets go of all it holds.
    pub(crate) fn finish(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut task: Task,
        completion: longshore_scsi::command::Completion,
    ) {
        let id = TaskId(task.address.slot);
        let good = completion.status == Status::GOOD;
        let transfer = task.work.command.transfer();
        let sense = completion.sense_bytes();
        let sense = sense.as_ref().map_or(&[][..], |sense| sense.as_ref());
        let data_in = std::mem::replace(&mut task.data_in, DataIn::None);
        if let DataIn::Inline = data_in {
            if good {
                self.machine.commit_inline_read(id, &mut channel.transmit);
                return self.let_go(core, channel, task);
            }
            self.machine.rollback_inline_read(id, &mut channel.transmit);
        }
        let parameter_length = task.parameter_data.len();
        let expected = task.work.expected_data_transfer_length as usize;
        let mut sent = None;
        let (payload, scsi_length) = match &data_in {
            DataIn::Zeros(length) if good => (Payload::Zeros(*length), transfer.length),
            DataIn::Buffer(buffer) if good && buffer.len().min(expected) <= COPY_BYTES_MAX => {
                // Also when nothing is expected: what is sent by reference has at least a byte.
                core.counters.copied_transmit_bytes += buffer.len() as u64;
                (Payload::Bytes(buffer), transfer.length)
            }
            DataIn::Buffer(buffer) if good => {
                let number = channel.payloads.next();
                sent = Some(number);
                let length = buffer
                    .len()
                    .min(task.work.expected_data_transfer_length as usize);
                let id = PayloadId(number as u64);
                (
                    Payload::Buffer {
                        id,
                        bytes: &buffer[..length],
                    },
                    transfer.length,
                )
            }
            DataIn::Pages(pages) if good => {
                let number = channel.payloads.next();
                sent = Some(number);
                (
                    held_payload(number, pages.held().min(expected)),
                    transfer.length,
                )
            }
            _ if parameter_length > 0 => (
                Payload::Bytes(&task.parameter_data),
                parameter_length as u64,
            ),
            // What a write would have moved counts even if it failed; a read that failed moved nothing.
            DataIn::None
            | DataIn::Inline
            | DataIn::Zeros(_)
            | DataIn::Buffer(_)
            | DataIn::Pages(_) => match transfer.direction {
                Direction::FromInitiator => (Payload::None, transfer.length),
                Direction::ToInitiator | Direction::None => (Payload::None, 0),
            },
        };
        let status = completion.status.0;
        let completion = Completion {
            status,
            sense,
            data_in: payload,
            scsi_length,
        };
        self.machine.complete(id, completion, &mut channel.transmit);
        data_in.send(core, channel, sent);
        self.let_go(core, channel, task);
    }

    /// A task has ended: its memory is free, and others may run.
    #[inline]
    pub(super) fn let_go(&mut self, core: &mut Core, channel: &mut Channel, task: Task) {
        if self.ordered > 0 {
            self.ordered -= usize::from(task.work.ordered);
            self.order_changed = true;
        }
        self.tasks.let_go(core, channel, task);
    }

    fn lun_entry(&self, index: usize) -> Option<&LunEntry> {
        self.luns().get(index)
    }
}

/// The place of the unit that an operation is for.
fn unit_index(task: &Task, selector: UnitSelector) -> Option<usize> {
    match selector {
        UnitSelector::Own => task.unit,
        UnitSelector::Sibling(index) => Some(index.0),
    }
}

/// Whether a command is about to be given data.
fn takes_data(transfer: Transfer) -> bool {
    transfer.direction == Direction::FromInitiator && transfer.length > 0
}
