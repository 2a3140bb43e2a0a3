//! SCSI commands on the fast path (see [`crate::fast_path`]).

use longshore_block::operation::MediaError;
use longshore_iscsi::server::{Completion, Payload, ScsiCommand, TaskAttribute, TaskId};
use longshore_scsi::lun::Lun;
use longshore_scsi::plain::{self, Plain};
use longshore_scsi::status::Status;

use super::Iscsi;
use crate::connection::{Connection, Protocol};
use crate::core::{Core, Shared};
use crate::fast_path::{FastPath, FastRead, FastWrite, Way, fast_write};

impl Connection<Iscsi> {
    /// Carries out a READ or WRITE whose turn it is and which has to wait for nothing. `input` begins
    /// with its immediate data.
    #[inline]
    pub(super) fn run_fast(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        arrived: &ScsiCommand,
        input: &mut &[u8],
    ) -> FastPath {
        // One direction only, and no order among tasks to heed (SAM-5 §8.6).
        if arrived.read == arrived.write
            || self.protocol.ordered > 0
            || arrived.attribute == TaskAttribute::Ordered
        {
            return FastPath::NO;
        }
        let Some(session) = &self.protocol.session else {
            return FastPath::NO;
        };
        let lun = session.find_lun(Lun(arrived.lun.0));
        let Some(entry) = lun.and_then(|lun| session.luns.get(lun)) else {
            return FastPath::NO;
        };
        let unit = entry.unit;
        let logical_unit = &shared.unit(unit).logical_unit;
        let Some(plain) = plain::plain(logical_unit, &entry.nexus, arrived.cdb.as_bytes()) else {
            return FastPath::NO;
        };
        // The transfer is the one the initiator has in mind; of reads, no more are started when many
        // wait to be sent.
        if plain.writes != arrived.write
            || plain.writes && plain.length != arrived.expected_data_transfer_length
            || !plain.writes && self.is_backed_up(core)
        {
            return FastPath::NO;
        }
        let way = Way {
            unit,
            lba: plain.lba,
            followed: core.follow(Iscsi::KIND),
        };
        if plain.writes {
            self.write_plain(core, way, plain, arrived.task, input)
        } else {
            self.read_plain(core, shared, way, plain, arrived.task)
        }
    }

    #[inline]
    fn read_plain(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        way: Way,
        plain: Plain,
        task: TaskId,
    ) -> FastPath {
        match self.fast_read(core, shared, way, task.0, plain.length) {
            FastRead::Done => {}
            FastRead::Zeros => self.complete_plain(task, plain, Payload::Zeros(plain.length)),
            FastRead::Failed(error) => self.fail_plain(core, way, plain, task, error),
            FastRead::Task { sleeps } => return way.task(sleeps),
        }
        core.counters.operations_iscsi += 1;
        self.answered_fast(core, way);
        FastPath::Done
    }

    #[inline]
    fn write_plain(
        &mut self,
        core: &mut Core,
        way: Way,
        plain: Plain,
        task: TaskId,
        input: &mut &[u8],
    ) -> FastPath {
        let Some(bytes) = self.protocol.machine.whole_immediate(task, input) else {
            return way.task(false);
        };
        let failed = match fast_write(core, way, plain.fua, bytes) {
            FastWrite::Done => None,
            FastWrite::Failed(error) => Some(error),
            FastWrite::Task { sleeps } => return way.task(sleeps),
        };
        self.protocol.machine.take_immediate(input);
        match failed {
            Some(error) => self.fail_plain(core, way, plain, task, error),
            None => self.complete_plain(task, plain, Payload::None),
        }
        core.counters.operations_iscsi += 1;
        self.answered_fast(core, way);
        FastPath::Done
    }

    #[inline]
    fn complete_plain(&mut self, task: TaskId, plain: Plain, data_in: Payload<'_>) {
        let completion = Completion {
            status: Status::GOOD.0,
            sense: &[],
            data_in,
            scsi_length: u64::from(plain.length),
        };
        let transmit = &mut self.channel.transmit;
        self.protocol.machine.complete(task, completion, transmit);
    }

    #[cold]
    fn fail_plain(
        &mut self,
        core: &mut Core,
        way: Way,
        plain: Plain,
        task: TaskId,
        error: MediaError,
    ) {
        let failed = plain.failed(&core.shared.unit(way.unit).logical_unit, error);
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
        let transmit = &mut self.channel.transmit;
        self.protocol.machine.complete(task, completion, transmit);
    }
}
