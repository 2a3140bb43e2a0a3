//! Compare and Write: the data of two commands, which are carried out as one.
//!
//! Each half collects its data as a task of its own, and waits in [`TaskState::Half`] for the other. When
//! both are complete, their data move into one buffer and the second half carries out the pair.

use longshore_nvme::io::{Arrival, Command, CommandEvent, FusedPair, Next};
use longshore_nvme::opcode::Direction;
use longshore_nvme::server::{ArrivedCommand, DataTransfer};
use longshore_nvme::status::Status;

use super::state::{Half, Kind, Nvme, Queue, Task};
use crate::core::Core;
use crate::execute::task::TaskState;
use crate::transport::channel::Channel;

impl Nvme {
    /// A command that is fused with another, or was to be.
    #[cold]
    pub(super) fn start_half(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        arrived: &ArrivedCommand,
        command: Command,
        arrival: &Arrival<u32>,
    ) {
        if arrival.orphan == Some(arrived.slot.0) {
            return self.refuse(channel, arrived.slot, Status::ABORTED_MISSING_FUSED);
        }
        if let Some(orphan) = arrival.orphan {
            self.end_lone_half(core, channel, orphan);
        }
        let pair = match arrival.next {
            Next::Pair { first, second } => Some((first, second)),
            Next::Alone(_) | Next::Wait => None,
        };
        if let Some((first, _)) = pair
            && let Some(half) = self.half_mut(first)
        {
            half.pair = pair;
        }
        let unit = self.unit_of(command.namespace());
        let transfer = command.transfer();
        let half = Half {
            command,
            pair,
            failed: None,
        };
        let task = self.task(channel, arrived, Kind::Half(Box::new(half)), unit);
        if transfer.direction == Direction::ToController && transfer.length > 0 {
            self.collect(core, channel, arrived, task, transfer.length);
        } else if let DataTransfer::InCapsule { .. } = arrived.data {
            // They are not wanted, but they come, and what comes with them is this half's still.
            self.receive_data(channel, task, 0);
        } else {
            self.half_complete(core, channel, task, None);
        }
    }

    fn half_mut(&mut self, slot: u32) -> Option<&mut Half> {
        match &mut self.tasks.get_mut(slot)?.work.kind {
            Kind::Half(half) => Some(half),
            Kind::Admin(_) | Kind::Io(_) | Kind::Pair { .. } | Kind::Spent => None,
        }
    }

    /// The data of a half have arrived, or never will.
    pub(super) fn half_complete(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut task: Task,
        failed: Option<Status>,
    ) {
        let Kind::Half(half) = &mut task.work.kind else {
            return self.tasks.park(task);
        };
        half.failed = half.failed.or(failed);
        let pair = half.pair;
        let is_lone = pair.is_none();
        if let Some(aborted) = task.work.aborted.as_ref().filter(|_| is_lone) {
            let status = aborted.status;
            self.forget_first(task.address.slot);
            return self.finish_status(core, channel, task, status);
        }
        task.state = TaskState::Half;
        self.tasks.park(task);
        if let Some((first, second)) = pair {
            self.join_halves(core, channel, first, second);
        }
    }

    /// Carries out a pair if the data of both are here.
    fn join_halves(&mut self, core: &mut Core, channel: &mut Channel, first: u32, second: u32) {
        let mut is_complete = |slot| {
            let half = self.tasks.get_mut(slot);
            half.is_some_and(|task| matches!(task.state, TaskState::Half))
        };
        if !is_complete(first) || !is_complete(second) {
            return;
        }
        let mut take = |slot| self.tasks.take(slot).expect("looked at above");
        let (mut compare, mut write) = (take(first), take(second));
        let aborted = compare.work.aborted.iter().chain(&write.work.aborted);
        let aborted = aborted.map(|aborted| aborted.status).next();
        if let Some(status) = aborted {
            self.finish_status(core, channel, compare, status);
            return self.finish_status(core, channel, write, status);
        }
        let (Some(compare_half), Some(write_half)) =
            (take_half(&mut compare), take_half(&mut write))
        else {
            unreachable!("only halves wait in this state");
        };
        assert!(
            compare_half.pair == Some((first, second)) && write_half.pair == compare_half.pair,
            "both halves belong to the same pair"
        );
        if compare_half.failed.is_some() || write_half.failed.is_some() {
            let other = Status::ABORTED_FAILED_FUSED;
            self.finish_status(core, channel, compare, compare_half.failed.unwrap_or(other));
            return self.finish_status(core, channel, write, write_half.failed.unwrap_or(other));
        }
        let pair = FusedPair::new(compare_half.command, write_half.command);
        let (compare_length, write_length) = pair.transfers();
        let length = usize::try_from(u64::from(compare_length) + u64::from(write_length))
            .unwrap_or(usize::MAX);
        if length > 0 {
            let scratch = core.memory.pool.take_at_once(pair.scratch_length());
            let (Some(mut data), Some(scratch)) = (core.memory.pool.take_at_once(length), scratch)
            else {
                let status = self.busy();
                self.finish_status(core, channel, compare, status);
                return self.finish_status(core, channel, write, status);
            };
            let middle = compare_length as usize;
            for (place, half) in [(0..middle, &compare), (middle..length, &write)] {
                let from = half.data_out.as_deref().unwrap_or_default();
                let length = place.len();
                data[place].copy_from_slice(&from[..length]);
            }
            core.memory.recycle(write.data_out.replace(data));
            write.scratch = Some(scratch);
        }
        write.unit = self.unit_of(pair.namespace());
        write.work.kind = Kind::Pair {
            pair: Box::new(pair),
            first,
        };
        // Its place in the queue lives on until the pair is over; its memory does not.
        self.tasks.let_go(core, channel, compare);
        self.run_command(core, channel, write, CommandEvent::Start);
    }

    /// Half of a pair whose other half did not come.
    #[cold]
    pub(super) fn end_lone_half(&mut self, core: &mut Core, channel: &mut Channel, slot: u32) {
        let status = Status::ABORTED_MISSING_FUSED;
        let Some(task) = self.tasks.get_mut(slot) else {
            return;
        };
        if let TaskState::Half | TaskState::Memory { .. } = task.state {
            let task = self.tasks.take(slot).expect("looked at above");
            self.finish_status(core, channel, task, status);
        } else {
            // The host may be sending its data.
            task.work.abort(status, None);
        }
    }

    /// The first of a pair ends without its second.
    pub(super) fn forget_first(&mut self, slot: u32) {
        if let Queue::Io(queue) = &mut self.queue {
            queue.fusing.take_first_if(|first| *first == slot);
        }
    }
}

fn take_half(task: &mut Task) -> Option<Half> {
    // What takes its place is never looked at: the task ends, or carries out the pair.
    match std::mem::replace(&mut task.work.kind, Kind::Spent) {
        Kind::Half(half) => Some(*half),
        Kind::Admin(_) | Kind::Io(_) | Kind::Pair { .. } | Kind::Spent => None,
    }
}
