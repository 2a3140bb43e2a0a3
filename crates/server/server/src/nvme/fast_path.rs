//! Commands of I/O queues on the fast path (see [`crate::execute::fast_path`]).

use longshore_block::media::MediaError;
use longshore_nvme::io::plain::{self, Plain};
use longshore_nvme::server::{ArrivedCommand, CommandSlot, Completion, Payload};
use longshore_nvme::status::Status;

use super::state::{Nvme, Queue};
use crate::connection::protocol::Protocol;
use crate::core::{Core, Shared};
use crate::execute::fast_path::{FastPath, FastRead, FastWrite, Way, fast_read, fast_write};
use crate::transport::channel::Channel;

impl Nvme {
    /// Carries out a Read or Write that has to wait for nothing. `input` begins with its in-capsule
    /// data.
    #[inline]
    pub(super) fn run_fast(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        shared: &Shared,
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
        let way = Way {
            unit,
            lba: plain.lba,
            followed: core.follow(Nvme::KIND),
        };
        if plain.writes {
            self.write_plain(core, channel, way, plain, arrived, input)
        } else {
            self.read_plain(core, channel, shared, way, plain, arrived)
        }
    }

    #[inline]
    fn read_plain(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        shared: &Shared,
        way: Way,
        plain: Plain,
        arrived: &ArrivedCommand,
    ) -> FastPath {
        let slot = arrived.slot;
        match fast_read(
            core,
            shared,
            channel,
            &mut self.machine,
            way,
            slot.0,
            plain.length,
        ) {
            FastRead::Done => {}
            FastRead::Zeros => self.complete_plain(channel, slot, Payload::Zeros(plain.length)),
            FastRead::Failed(error) => self.fail_plain(channel, way, plain, arrived, error),
            FastRead::Task { sleeps } => return way.task(sleeps),
        }
        core.counters.operations_nvme += 1;
        way.answered(core, channel);
        FastPath::Done
    }

    #[inline]
    fn write_plain(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        way: Way,
        plain: Plain,
        arrived: &ArrivedCommand,
        input: &mut &[u8],
    ) -> FastPath {
        let slot = arrived.slot;
        let Some(bytes) = self.machine.whole_in_capsule(slot, input) else {
            return way.task(false);
        };
        let failed = match fast_write(core, way, plain.fua, bytes) {
            FastWrite::Done => None,
            FastWrite::Failed(error) => Some(error),
            FastWrite::Task { sleeps } => return way.task(sleeps),
        };
        self.machine.take_in_capsule(slot, input);
        match failed {
            Some(error) => self.fail_plain(channel, way, plain, arrived, error),
            None => self.complete_plain(channel, slot, Payload::None),
        }
        core.counters.operations_nvme += 1;
        way.answered(core, channel);
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
        way: Way,
        plain: Plain,
        arrived: &ArrivedCommand,
        error: MediaError,
    ) {
        let status = plain.failed(error);
        let status = self.log_error(Some(way.unit), arrived.entry.id(), plain.lba.0, status);
        self.refuse(channel, arrived.slot, status);
    }
}
