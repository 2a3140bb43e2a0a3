//! Answers to commands.

use longshore_nvme::command::CommandId;
use longshore_nvme::controller::ErrorRecord;
use longshore_nvme::io::IoOutcome;
use longshore_nvme::server::{CommandSlot, Completion, Payload};
use longshore_nvme::status::Status;
use longshore_wire::transmit::PayloadId;

use super::state::{Kind, Nvme, Queue, Task};
use crate::core::Core;
use crate::execute::pages::held_payload;
use crate::execute::reads::COPY_BYTES_MAX;
use crate::execute::task::DataIn;
use crate::transport::channel::Channel;

/// So much parameter data goes to the transmit queue even while there is no payload memory: hosts connect with it.
const PARAMETER_DATA_COPIED_MAX: usize = 16 << 10;

/// Parameter Error Location when no field is to blame.
const NO_LOCATION: u16 = 0xffff;

/// Moves much parameter data, such as a log page with all the zeros that the host asked for behind it, to memory that is
/// bounded.
#[cold]
fn place_parameter_data(core: &mut Core, task: &mut Task) -> Status {
    let data = std::mem::take(&mut task.parameter_data);
    match core.memory.pool.take(data.len()) {
        Some(mut buffer) => {
            buffer.copy_from_slice(&data);
            task.data_in = DataIn::Buffer(buffer);
            Status::SUCCESS
        }
        None => Status::COMMAND_INTERRUPTED,
    }
}

impl Nvme {
    /// Answers a task and lets go of all it holds.
    pub(super) fn finish(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut task: Task,
        mut outcome: IoOutcome,
    ) {
        let slot = CommandSlot(task.address.slot);
        if task.parameter_data.len() > PARAMETER_DATA_COPIED_MAX && outcome.status.is_success() {
            outcome.status = place_parameter_data(core, &mut task);
        }
        let success = outcome.status.is_success();
        if !success {
            let work = &task.work;
            outcome.status = self.log_error(task.unit, work.id, work.first_block, outcome.status);
        }
        let transmit = &mut channel.transmit;
        let machine = &mut self.machine;
        let data_in = std::mem::replace(&mut task.data_in, DataIn::None);
        if let DataIn::Inline = data_in {
            if success {
                machine.commit_inline_read(slot, transmit);
                return self.tasks.let_go(core, channel, task);
            }
            machine.rollback_inline_read(slot, transmit);
        }
        let mut sent = None;
        let data = match &data_in {
            DataIn::Zeros(length) if success => Payload::Zeros(*length),
            DataIn::Buffer(buffer) if success && buffer.len() <= COPY_BYTES_MAX => {
                core.counters.copied_transmit_bytes += buffer.len() as u64;
                Payload::Bytes(buffer)
            }
            DataIn::Buffer(buffer) if success => {
                let number = channel.payloads.next();
                sent = Some(number);
                Payload::Buffer {
                    id: PayloadId(number as u64),
                    bytes: buffer,
                }
            }
            DataIn::Pages(pages) if success => {
                let number = channel.payloads.next();
                sent = Some(number);
                held_payload(number, pages.held())
            }
            _ if success && !task.parameter_data.is_empty() => Payload::Bytes(&task.parameter_data),
            DataIn::None
            | DataIn::Inline
            | DataIn::Zeros(_)
            | DataIn::Buffer(_)
            | DataIn::Pages(_) => Payload::None,
        };
        let completion = Completion {
            status: outcome.status,
            result: outcome.result,
            data,
        };
        machine.complete(slot, completion, transmit);
        data_in.send(core, channel, sent);
        self.tasks.let_go(core, channel, task);
    }

    pub(super) fn finish_status(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: Task,
        status: Status,
    ) {
        if let Kind::Pair { first, .. } = task.work.kind {
            self.complete(channel, CommandSlot(first), status.into());
        }
        self.finish(core, channel, task, status.into());
    }

    /// Notes a failure of the medium in the error information log. The status to answer with.
    #[cold]
    pub(super) fn log_error(
        &self,
        unit: Option<usize>,
        command: CommandId,
        lba: u64,
        status: Status,
    ) -> Status {
        let Queue::Io(queue) = &self.queue else {
            return status;
        };
        let code = status.code();
        let logged = [
            Status::WRITE_FAULT,
            Status::UNRECOVERED_READ_ERROR,
            Status::CAPACITY_EXCEEDED,
        ];
        let mut namespaces = queue.known.iter();
        let namespace = namespaces.find(|namespace| Some(namespace.index) == unit);
        match namespace {
            Some(namespace) if logged.contains(&code) => {
                queue.controller.record_error(&ErrorRecord {
                    queue_id: queue.id,
                    command,
                    status,
                    location: NO_LOCATION,
                    lba,
                    namespace: namespace.id,
                })
            }
            _ => status,
        }
    }

    /// Answers a command that has no task.
    pub(super) fn complete(
        &mut self,
        channel: &mut Channel,
        slot: CommandSlot,
        outcome: IoOutcome,
    ) {
        let completion = Completion {
            status: outcome.status,
            result: outcome.result,
            data: Payload::None,
        };
        let transmit = &mut channel.transmit;
        self.machine.complete(slot, completion, transmit);
    }

    /// Answers a command that has no task, and none of whose data is wanted.
    pub(super) fn refuse(&mut self, channel: &mut Channel, slot: CommandSlot, status: Status) {
        self.complete(channel, slot, status.into());
    }
}
