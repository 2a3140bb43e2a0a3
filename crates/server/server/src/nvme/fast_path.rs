//! Commands of I/O queues on the fast path (see [`crate::execute::plain`]).

use longshore_block::operation::MediaError;
use longshore_nvme::io::plain::{self, Plain};
use longshore_nvme::server::{ArrivedCommand, CommandSlot, Completion, Payload};
use longshore_nvme::status::Status;

use super::state::{Nvme, Queue};
use crate::connection::protocol::Protocol;
use crate::core::Core;
use crate::execute::medium::Command;
use crate::execute::plain::{FastPath, Plain as PlainCommand};
use crate::execute::task::Executed;
use crate::exports::Exports;
use crate::transport::channel::Channel;

impl Nvme {
    /// Carries out a Read or Write that has to wait for nothing. `input` begins with its in-capsule
    /// data.
    #[inline]
    pub(super) fn run_fast(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        exports: &Exports,
        arrived: &ArrivedCommand,
        input: &mut &[u8],
    ) -> FastPath {
        let Queue::Io(queue) = &self.queue else {
            return FastPath::NO;
        };
        // A half of a fused command that waits has to learn of its neighbour.
        if !queue.controller.is_enabled() || !queue.fusing.is_idle() {
            return FastPath::NO;
        }
        let namespaces = &queue.namespaces;
        let Some(plain) = plain::plain(namespaces, &arrived.entry, arrived.data.length()) else {
            return FastPath::NO;
        };
        let unit = namespaces[plain.namespace].index;
        if !plain.writes && self.tasks.is_backed_up(core, channel) {
            return FastPath::NO;
        }
        let slot = arrived.slot.0;
        let command = PlainCommand::new(slot, unit, exports.unit(unit), core.follow(Nvme::KIND));
        if plain.writes {
            self.write_plain(core, channel, command, plain, arrived, input)
        } else {
            self.read_plain(core, channel, command, plain, arrived)
        }
    }

    #[inline]
    fn read_plain(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut command: PlainCommand<'_>,
        plain: Plain,
        arrived: &ArrivedCommand,
    ) -> FastPath {
        let wanted = command.read_request(plain.lba, plain.length);
        let execution = Command::Plain(&mut command);
        let machine = &mut self.machine;
        match self
            .tasks
            .execute(core, channel, machine, execution, wanted)
        {
            Executed::Now(Ok(_)) => {
                if command.reads_zeros() {
                    self.complete_plain(channel, arrived.slot, Payload::Zeros(plain.length));
                }
            }
            Executed::Now(Err(error)) => {
                self.fail_plain(channel, command.index, plain, arrived, error)
            }
            Executed::Waits => return command.into_task(),
        }
        core.counters.operations_nvme += 1;
        command.answered(core, channel);
        FastPath::Done
    }

    #[inline]
    fn write_plain(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        command: PlainCommand<'_>,
        plain: Plain,
        arrived: &ArrivedCommand,
        input: &mut &[u8],
    ) -> FastPath {
        let arrived_bytes = *input;
        let Some(bytes) = self.machine.whole_in_capsule(arrived.slot, arrived_bytes) else {
            return command.into_task();
        };
        let mut command = command.with_data(bytes);
        let wanted = command.write_request(plain.lba, plain.fua);
        let execution = Command::Plain(&mut command);
        let machine = &mut self.machine;
        let failed = match self
            .tasks
            .execute(core, channel, machine, execution, wanted)
        {
            Executed::Now(result) => result.err(),
            Executed::Waits => return command.into_task(),
        };
        self.machine.take_in_capsule(arrived.slot, input);
        match failed {
            Some(error) => self.fail_plain(channel, command.index, plain, arrived, error),
            None => self.complete_plain(channel, arrived.slot, Payload::None),
        }
        core.counters.operations_nvme += 1;
        command.answered(core, channel);
        FastPath::Done
    }

    #[inline]
    fn complete_plain(&mut self, channel: &mut Channel, slot: CommandSlot, data: Payload<'_>) {
        let completion = Completion {
            status: Status::SUCCESS,
            result: 0,
            data,
        };
        let transmit = &mut channel.transmit;
        self.machine.complete(slot, completion, transmit);
    }

    #[cold]
    fn fail_plain(
        &mut self,
        channel: &mut Channel,
        unit: usize,
        plain: Plain,
        arrived: &ArrivedCommand,
        error: MediaError,
    ) {
        let status = plain.failed(error);
        let status = self.log_error(Some(unit), arrived.entry.id(), plain.lba.0, status);
        self.refuse(channel, arrived.slot, status);
    }
}
