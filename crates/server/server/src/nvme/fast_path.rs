//! Commands of I/O queues on the fast path (see [`crate::fast_path`]).

use longshore_block::operation::MediaError;
use longshore_nvme::io::plain::{self, Plain};
use longshore_nvme::server::{ArrivedCommand, CommandSlot, Completion, Payload};
use longshore_nvme::status::Status;

use super::{Nvme, Queue};
use crate::connection::{Connection, Protocol};
use crate::core::{Core, Shared};
use crate::fast_path::{FastPath, FastRead, FastWrite, Way, fast_write};

impl Connection<Nvme> {
    /// Carries out a Read or Write that has to wait for nothing. `input` begins with its in-capsule
    /// data.
    #[inline]
    pub(super) fn run_fast(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        arrived: &ArrivedCommand,
        input: &mut &[u8],
    ) -> FastPath {
        let Queue::Io(queue) = &self.protocol.queue else {
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
        if !plain.writes && self.is_backed_up(core) {
            return FastPath::NO;
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
    ) -> FastPath {
        let slot = arrived.slot;
        match self.fast_read(core, shared, way, slot.0, plain.length) {
            FastRead::Done => {}
            FastRead::Zeros => self.complete_plain(slot, Payload::Zeros(plain.length)),
            FastRead::Failed(error) => self.fail_plain(way, plain, arrived, error),
            FastRead::Task { sleeps } => return way.task(sleeps),
        }
        core.counters.operations_nvme += 1;
        self.answered_fast(core, way);
        FastPath::Done
    }

    #[inline]
    fn write_plain(
        &mut self,
        core: &mut Core,
        way: Way,
        plain: Plain,
        arrived: &ArrivedCommand,
        input: &mut &[u8],
    ) -> FastPath {
        let slot = arrived.slot;
        let Some(bytes) = self.protocol.machine.whole_in_capsule(slot, input) else {
            return way.task(false);
        };
        let failed = match fast_write(core, way, plain.fua, bytes) {
            FastWrite::Done => None,
            FastWrite::Failed(error) => Some(error),
            FastWrite::Task { sleeps } => return way.task(sleeps),
        };
        self.protocol.machine.take_in_capsule(slot, input);
        match failed {
            Some(error) => self.fail_plain(way, plain, arrived, error),
            None => self.complete_plain(slot, Payload::None),
        }
        core.counters.operations_nvme += 1;
        self.answered_fast(core, way);
        FastPath::Done
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
