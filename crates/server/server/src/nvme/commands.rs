//! Commands of I/O queues: their steps on one side, volumes on the other.

use longshore_block::operation::MediaError;
use longshore_nvme::io::{Buffers, Command, CommandEvent, FusedStep, Next, Step};
use longshore_nvme::opcode::Direction;
use longshore_nvme::server::{ArrivedCommand, CommandSlot, DataTransfer};
use longshore_nvme::status::Status;

use super::state::{Kind, Nvme, NvmeWork, Queue, Task};
use crate::connection::protocol::Protocol;
use crate::core::Core;
use crate::execute::medium;
use crate::execute::plain::TaskStart;
use crate::execute::task::{Executed, MediaRequest, TaskState};
use crate::gate::Passage;
use crate::mail::message::{Message, Note};
use crate::transport::channel::Channel;

impl Nvme {
    pub(super) fn start_command(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        arrived: &ArrivedCommand,
        begun: TaskStart,
    ) {
        core.counters.operations_nvme += 1;
        channel.counts.operations += 1;
        let Queue::Io(queue) = &mut self.queue else {
            return self.start_admin(core, channel, arrived);
        };
        if arrived.entry.opcode() == longshore_nvme::opcode::FABRICS {
            return self.start_admin(core, channel, arrived);
        }
        if !queue.controller.is_enabled() {
            let status = Status::COMMAND_SEQUENCE_ERROR;
            return self.refuse(channel, arrived.slot, status);
        }
        let command = Command::begin(&queue.namespaces, &arrived.entry, arrived.data.length());
        let arrival = queue.fusing.arrive(command.fuse(), arrived.slot.0);
        match arrival.next {
            Next::Alone(_) => {
                if let Some(orphan) = arrival.orphan {
                    self.end_lone_half(core, channel, orphan);
                }
                self.start_io(core, channel, arrived, command, begun);
            }
            Next::Wait | Next::Pair { .. } => {
                self.start_half(core, channel, arrived, command, &arrival)
            }
        }
    }

    /// A task of a command that arrived.
    pub(super) fn task(
        &mut self,
        channel: &mut Channel,
        arrived: &ArrivedCommand,
        kind: Kind,
        unit: Option<usize>,
    ) -> Task {
        let address = self.tasks.begin(channel.address, arrived.slot.0);
        let work = NvmeWork {
            id: arrived.entry.id(),
            first_block: arrived.entry.qword(10),
            kind,
            aborted: None,
        };
        Task::new(address, work, unit)
    }

    /// Index of the unit behind a namespace, by its place among those of the controller.
    pub(super) fn unit_of(&self, namespace: Option<usize>) -> Option<usize> {
        match &self.queue {
            Queue::Io(queue) => Some(queue.known.get(namespace?)?.index),
            Queue::Fresh | Queue::Unproved(_) | Queue::Admin(_) | Queue::Left(_) => None,
        }
    }

    #[inline(always)]
    fn start_io(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        arrived: &ArrivedCommand,
        command: Command,
        begun: TaskStart,
    ) {
        let unit = self.unit_of(command.namespace());
        let transfer = command.transfer();
        let scratch_length = command.scratch_length();
        let mut task = self.task(channel, arrived, Kind::Io(command), unit);
        task.sleeps = begun.sleeps;
        task.followed = begun.followed.unwrap_or_else(|| core.follow(Nvme::KIND));
        if scratch_length > 0 {
            task.scratch = core.memory.pool.take_at_once(scratch_length);
            if task.scratch.is_none() {
                return self.finish_status(core, channel, task, self.busy());
            }
        }
        match transfer.direction {
            Direction::ToController if transfer.length > 0 => {
                self.collect(core, channel, arrived, task, transfer.length);
            }
            Direction::ToHost if self.tasks.is_backed_up(core, channel) => self.tasks.defer(task),
            Direction::None | Direction::ToController | Direction::ToHost | Direction::Both => {
                self.run_command(core, channel, task, CommandEvent::Start);
            }
        }
    }

    /// Has the data of a command come.
    pub(super) fn collect(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        arrived: &ArrivedCommand,
        mut task: Task,
        wanted: u32,
    ) {
        if let DataTransfer::ToController { .. } = arrived.data {
            task.state = TaskState::Memory { wanted };
            return self.solicit(core, channel, task);
        }
        // The data are here already, so there is no way to wait.
        let length = usize::try_from(wanted).unwrap_or(usize::MAX);
        task.data_out = core.memory.pool.take_at_once(length);
        let Some(buffer) = &task.data_out else {
            core.memory.is_short = true;
            let status = self.busy();
            if let Kind::Half(half) = &mut task.work.kind {
                // The other half must find it.
                half.fail(status);
                return self.receive_data(channel, task, 0);
            }
            return self.finish_status(core, channel, task, status);
        };
        task.writing = buffer.capacity();
        self.tasks.holdings.writing += task.writing;
        self.receive_data(channel, task, wanted);
    }

    /// Has memory for data that the host keeps until it is asked for them, or waits for memory.
    pub(super) fn solicit(&mut self, core: &mut Core, channel: &mut Channel, mut task: Task) {
        let TaskState::Memory { wanted } = task.state else {
            return self.tasks.park(task);
        };
        let length = usize::try_from(wanted).unwrap_or(usize::MAX);
        if core.memory.line.admits(task.address)
            && self
                .tasks
                .take_data_out(core, channel, &mut task, length, 0)
            || self
                .tasks
                .take_data_out_as_newcomer(core, channel, &mut task, length)
        {
            self.receive_data(channel, task, wanted);
        } else {
            // At its connection's limit it waits for others of these, and keeps nobody else waiting.
            let has_claim = self.tasks.has_part(core, length)
                && self.tasks.holdings.has_claim(&core.memory, length);
            self.tasks.wait_for_memory(core, task.address, has_claim);
            self.tasks.park(task);
        }
    }

    pub(super) fn receive_data(&mut self, channel: &mut Channel, mut task: Task, wanted: u32) {
        task.state = TaskState::Receiving;
        let slot = CommandSlot(task.address.slot);
        self.tasks.park(task);
        let transmit = &mut channel.transmit;
        self.machine.want_data_out(slot, wanted, transmit);
    }

    /// All data of a command have arrived.
    pub(super) fn data_out_complete(&mut self, core: &mut Core, channel: &mut Channel, slot: u32) {
        if !self.tasks.is_receiving(slot) {
            return;
        }
        let Some(task) = self.tasks.take(slot) else {
            return;
        };
        let lacking = task.lacks_memory.then(|| self.busy());
        if let Kind::Half(_) = task.work.kind {
            return self.half_complete(core, channel, task, lacking);
        }
        if let Some(status) = lacking {
            return self.finish_status(core, channel, task, status);
        }
        match &task.work.aborted {
            Some(aborted) => {
                let status = aborted.status;
                self.finish_status(core, channel, task, status);
            }
            None => self.run_command(core, channel, task, CommandEvent::Start),
        }
    }

    /// The data of a command did not match their digest.
    pub(super) fn data_out_failed(&mut self, core: &mut Core, channel: &mut Channel, slot: u32) {
        if !self.tasks.is_receiving(slot) {
            return;
        }
        let Some(task) = self.tasks.take(slot) else {
            return;
        };
        let status = Status::TRANSIENT_TRANSPORT_ERROR;
        match task.work.kind {
            Kind::Half(_) => self.half_complete(core, channel, task, Some(status)),
            Kind::Admin(_) | Kind::Io(_) | Kind::Pair { .. } | Kind::Spent => {
                self.finish_status(core, channel, task, status);
            }
        }
    }

    /// Runs a task until it ends or waits.
    #[inline]
    pub(super) fn run_command(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut task: Task,
        mut event: CommandEvent,
    ) {
        if let Kind::Admin(_) = task.work.kind {
            return self.run_admin(core, channel, task);
        }
        loop {
            let step = self.step(channel, &mut task, event);
            // Without an operation, the medium is to be locked.
            let (namespace, operation) = match step {
                Step::Complete(outcome) => return self.finish(core, channel, task, outcome),
                Step::Persist(order) => {
                    core.persist(task.address, task.unit, order);
                    task.state = TaskState::Elsewhere;
                    return self.tasks.park(task);
                }
                Step::Wait(wait) => {
                    let (post, address) = (core.post().clone(), task.address);
                    task.state = TaskState::Elsewhere;
                    self.tasks.park(task);
                    return wait.then(move || {
                        let note = Note::StoreIsFree { task: address };
                        post.send(Message::Note(address.connection, note));
                    });
                }
                Step::AbortTasks(participants) => {
                    core.abort_for_preemption(task.address, task.unit, participants);
                    task.state = TaskState::Elsewhere;
                    return self.tasks.park(task);
                }
                Step::LockRange { namespace, .. } => (namespace, None),
                Step::Media {
                    namespace,
                    operation,
                    payload,
                } => (namespace, Some((operation, payload))),
            };
            if let Some(aborted) = &task.work.aborted {
                let status = aborted.status;
                return self.finish_status(core, channel, task, status);
            }
            let Some(unit) = self.unit_of(Some(namespace)) else {
                event = CommandEvent::Media(Err(MediaError::Io));
                continue;
            };
            let Some((operation, payload)) = operation else {
                match task.lock_range(core, unit) {
                    Passage::Open => event = CommandEvent::Locked,
                    Passage::Wait => return self.tasks.park(task),
                }
                continue;
            };
            let wanted = MediaRequest {
                unit,
                operation,
                payload,
            };
            match self.execute(core, channel, &mut task, wanted) {
                Executed::Now(result) => event = CommandEvent::Media(result),
                Executed::Waits => return self.tasks.park(task),
            }
        }
    }

    fn step(&mut self, channel: &mut Channel, task: &mut Task, event: CommandEvent) -> Step {
        let Queue::Io(queue) = &self.queue else {
            unreachable!("commands of I/O queues come from I/O queues");
        };
        let buffers = Buffers {
            data_out: task.data_out.as_deref().unwrap_or_default(),
            scratch: task.scratch.as_deref_mut().unwrap_or_default(),
            data_in: &mut task.parameter_data,
        };
        match &mut task.work.kind {
            Kind::Io(command) => command.step(&queue.known, event, buffers),
            Kind::Pair { pair, first } => match pair.step(event, buffers) {
                FusedStep::Media {
                    namespace,
                    operation,
                    payload,
                } => Step::Media {
                    namespace,
                    operation,
                    payload,
                },
                FusedStep::LockRange { namespace, extent } => Step::LockRange { namespace, extent },
                FusedStep::Complete(outcome) => {
                    let first = CommandSlot(*first);
                    self.complete(channel, first, outcome.first);
                    Step::Complete(outcome.second)
                }
            },
            Kind::Admin(_) | Kind::Half(_) | Kind::Spent => {
                unreachable!("only whole commands of I/O queues take steps")
            }
        }
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

    /// There is no memory now: the host is to try again, after a moment if it understands that.
    pub(super) fn busy(&self) -> Status {
        let status = Status::COMMAND_INTERRUPTED;
        match self.controller() {
            Some(controller) if controller.has_advanced_retry() => status.retry_delay(1),
            _ => status,
        }
    }
}
