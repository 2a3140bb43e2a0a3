//! SCSI commands on the fast path (see [`crate::execute::plain`]).

use longshore_block::operation::MediaError;
use longshore_iscsi::server::{Completion, Payload, ScsiCommand, TaskAttribute, TaskId};
use longshore_scsi::lun::Lun;
use longshore_scsi::plain::{self, Plain};
use longshore_scsi::status::Status;

use super::state::Iscsi;
use crate::connection::protocol::Protocol;
use crate::core::Core;
use crate::execute::medium::Command;
use crate::execute::plain::{FastPath, Plain as PlainCommand};
use crate::execute::task::Executed;
use crate::exports::Exports;
use crate::transport::channel::Channel;

impl Iscsi {
    /// Carries out a READ or WRITE whose turn it is and which has to wait for nothing. `input` begins
    /// with its immediate data.
    #[inline]
    pub(super) fn run_fast(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        exports: &Exports,
        arrived: &ScsiCommand,
        input: &mut &[u8],
    ) -> FastPath {
        // One direction only, and no order among tasks to heed (SAM-5 §8.6).
        if arrived.read == arrived.write
            || self.ordered > 0
            || arrived.attribute == TaskAttribute::Ordered
        {
            return FastPath::NO;
        }
        let Some(session) = &self.session else {
            return FastPath::NO;
        };
        let lun = session.find_lun(Lun(arrived.lun.0));
        let Some(entry) = lun.and_then(|lun| session.luns.get(lun)) else {
            return FastPath::NO;
        };
        let unit = entry.unit;
        let exported = exports.unit(unit);
        let logical_unit = &exported.logical_unit;
        let Some(plain) = plain::plain(logical_unit, &entry.nexus, arrived.cdb.as_bytes()) else {
            return FastPath::NO;
        };
        // The transfer is the one the initiator has in mind; of reads, no more are started when many
        // wait to be sent.
        if plain.writes != arrived.write
            || plain.writes && plain.length != arrived.expected_data_transfer_length
            || !plain.writes && self.tasks.is_backed_up(core, channel)
        {
            return FastPath::NO;
        }
        let slot = arrived.task.0;
        let command = PlainCommand::new(slot, unit, exported, core.follow(Iscsi::KIND));
        if plain.writes {
            self.write_plain(core, channel, command, plain, arrived.task, input)
        } else {
            self.read_plain(core, channel, command, plain, arrived.task)
        }
    }

    #[inline]
    fn read_plain(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut command: PlainCommand<'_>,
        plain: Plain,
        task: TaskId,
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
                    self.complete_plain(channel, task, plain, Payload::Zeros(plain.length));
                }
            }
            Executed::Now(Err(error)) => {
                self.fail_plain(core, channel, command.index, plain, task, error)
            }
            Executed::Waits => return command.into_task(),
        }
        core.counters.operations_iscsi += 1;
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
        task: TaskId,
        input: &mut &[u8],
    ) -> FastPath {
        let arrived_bytes = *input;
        let Some(bytes) = self.machine.whole_immediate(task, arrived_bytes) else {
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
        self.machine.take_immediate(input);
        match failed {
            Some(error) => self.fail_plain(core, channel, command.index, plain, task, error),
            None => self.complete_plain(channel, task, plain, Payload::None),
        }
        core.counters.operations_iscsi += 1;
        command.answered(core, channel);
        FastPath::Done
    }

    #[inline]
    fn complete_plain(
        &mut self,
        channel: &mut Channel,
        task: TaskId,
        plain: Plain,
        data_in: Payload<'_>,
    ) {
        let completion = Completion {
            status: Status::GOOD.0,
            sense: &[],
            data_in,
            scsi_length: u64::from(plain.length),
        };
        let transmit = &mut channel.transmit;
        self.machine.complete(task, completion, transmit);
    }

    #[cold]
    fn fail_plain(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        unit: usize,
        plain: Plain,
        task: TaskId,
        error: MediaError,
    ) {
        let failed = plain.failed(&core.unit(unit).logical_unit, error);
        let sense = failed.sense_bytes();
        let completion = Completion {
            status: failed.status.0,
            sense: sense.as_ref().map_or(&[], |sense| sense.as_ref()),
            data_in: Payload::None,
            // What a write would have moved counts even if it failed; a read that failed moved nothing.
            scsi_length: if plain.writes {
                u64::from(plain.length)
            } else {
                0
            },
        };
        let transmit = &mut channel.transmit;
        self.machine.complete(task, completion, transmit);
    }
}
