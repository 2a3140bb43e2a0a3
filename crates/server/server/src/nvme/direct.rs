//! Commands of I/O queues on the direct way (see [`crate::direct`]).

use longshore_block::media::MediaError;
use longshore_nvme::io::plain::{self, Plain};
use longshore_nvme::server::{ArrivedCommand, CommandSlot, Completion, Payload};
use longshore_nvme::status::Status;

use super::{Nvme, Queue};
use crate::connection::{Connection, Protocol};
use crate::core::{Core, Shared};
use crate::direct::{DirectRead, DirectWrite, Directly, Way, write_directly};

impl Connection<Nvme> {
    /// Carries out a Read or Write that has to wait for nothing. `input` begins with its in-capsule
    /// data.
    #[inline]
    pub(super) fn run_directly(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        arrived: &ArrivedCommand,
        input: &mut &[u8],
    ) -> Directly {
        let Queue::Io(queue) = &self.protocol.queue else {
            return Directly::NO;
        };
        // A half of a fused command that waits has to learn of its neighbour.
        if !queue.controller.is_enabled() || !queue.fusing.is_idle() {
            return Directly::NO;
        }
        let namespaces = &queue.namespaces;
        let Some(plain) = plain::plain(namespaces, &arrived.entry, arrived.data.length()) else {
            return Directly::NO;
        };
        let unit = namespaces[plain.namespace].index;
        if !plain.writes && self.is_backed_up(core) {
            return Directly::NO;
        }
        let way = Way {
            unit,
            lba: plain.lba,
            followed: core.follow(Nvme::KIND),
        };
        if plain.writes {
            self.write_plain(core, way, plain, arrived, input)
        } else {
            self.read_plain(core, shared, way, plain, arrived)
        }
    }

    #[inline]
    fn read_plain(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        way: Way,
        plain: Plain,
        arrived: &ArrivedCommand,
    ) -> Directly {
        let slot = arrived.slot;
        match self.read_directly(core, shared, way, slot.0, plain.length) {
            DirectRead::Done => {}
            DirectRead::Zeros => self.complete_plain(slot, Payload::Zeros(plain.length)),
            DirectRead::Failed(error) => self.fail_plain(way, plain, arrived, error),
            DirectRead::Task { sleeps } => return way.task(sleeps),
        }
        core.counters.operations_nvme += 1;
        self.answered_directly(core, way);
        Directly::Done
    }

    #[inline]
    fn write_plain(
        &mut self,
        core: &mut Core,
        way: Way,
        plain: Plain,
        arrived: &ArrivedCommand,
        input: &mut &[u8],
    ) -> Directly {
        let slot = arrived.slot;
        let Some(bytes) = self.protocol.machine.whole_in_capsule(slot, input) else {
            return way.task(false);
        };
        let failed = match write_directly(core, way, plain.fua, bytes) {
            DirectWrite::Done => None,
            DirectWrite::Failed(error) => Some(error),
            DirectWrite::Task { sleeps } => return way.task(sleeps),
        };
        self.protocol.machine.take_in_capsule(slot, input);
        match failed {
            Some(error) => self.fail_plain(way, plain, arrived, error),
            None => self.complete_plain(slot, Payload::None),
        }
        core.counters.operations_nvme += 1;
        self.answered_directly(core, way);
        Directly::Done
    }

    #[inline]
    fn complete_plain(&mut self, slot: CommandSlot, data: Payload<'_>) {
        let completion = Completion {
            status: Status::SUCCESS,
            result: 0,
            data,
        };
        let transmit = &mut self.channel.transmit;
        self.protocol.machine.complete(slot, completion, transmit);
    }

    #[cold]
    fn fail_plain(&mut self, way: Way, plain: Plain, arrived: &ArrivedCommand, error: MediaError) {
        let status = plain.failed(error);
        let status = self.log_error(Some(way.unit), arrived.entry.id(), plain.lba.0, status);
        self.refuse(arrived.slot, status);
    }
}
