//! Aborting commands of a queue, by its host or for PREEMPT AND ABORT.

use std::sync::Arc;

use longshore_nvme::command::CommandId;
use longshore_nvme::server::CommandSlot;
use longshore_nvme::status::Status;

use super::state::{Kind, Nvme, Queue, Task};
use crate::core::Core;
use crate::execute::task::TaskState;
use crate::mail::abort::AbortOrder;
use crate::transport::channel::Channel;

impl Nvme {
    /// Carries out what an abort order says about this queue's commands. Those that wait end; those
    /// on the medium end when it has answered, and the order waits for them.
    pub(super) fn obey_order(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        order: &Arc<AbortOrder>,
    ) -> bool {
        let Queue::Io(queue) = &self.queue else {
            return false;
        };
        let named = |task: &&Task| {
            let namespace = task.unit.and_then(|unit| {
                let mut namespaces = queue.known.iter();
                namespaces.find(|namespace| namespace.index == unit)
            });
            namespace.is_some_and(|namespace| {
                order.preempts(task.address, namespace.index, &*namespace.host)
            })
        };
        let tasks = self.tasks.iter().filter(named);
        let slots: Vec<u32> = tasks.map(|task| task.address.slot).collect();
        let status = Status::ABORTED_PREEMPT_AND_ABORT;
        for slot in &slots {
            self.abort_task(core, channel, *slot, status, Some(order));
        }
        !slots.is_empty()
    }

    /// The host wants a command aborted. Whether it was.
    pub(super) fn abort_command(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        command: CommandId,
    ) -> bool {
        let task = self.tasks.iter().find(|task| task.work.id == command);
        let Some(slot) = task.map(|task| task.address.slot) else {
            return false;
        };
        self.abort_task(core, channel, slot, Status::ABORT_REQUESTED, None)
    }

    /// Aborts a task that is parked. `false`: it goes on, because storage works for it, or part of what it
    /// does is done elsewhere.
    pub(super) fn abort_task(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        slot: u32,
        status: Status,
        order: Option<&Arc<AbortOrder>>,
    ) -> bool {
        let Some(task) = self.tasks.get_mut(slot) else {
            return false;
        };
        let lone = match &task.work.kind {
            Kind::Half(half) => half.is_lone(),
            Kind::Admin(_) | Kind::Io(_) | Kind::Pair { .. } | Kind::Spent => false,
        };
        let whole = !matches!(task.work.kind, Kind::Half(_));
        match task.state {
            TaskState::Storage { .. } => {
                if order.is_some() {
                    task.work.abort(status, order);
                }
                false
            }
            TaskState::Elsewhere => false,
            // The host may be sending already: it ends when all it was asked for is here.
            TaskState::Receiving => {
                task.work.abort(status, None);
                let transmit = &mut channel.transmit;
                let machine = &mut self.machine;
                machine.want_data_out(CommandSlot(slot), 0, transmit);
                true
            }
            // Its other half is still to come here.
            _ if !whole && !lone => {
                task.work.abort(status, None);
                true
            }
            TaskState::Half
            | TaskState::Deferred
            | TaskState::Ordering
            | TaskState::Memory { .. }
            | TaskState::Medium(_)
            | TaskState::Delayed(_)
            | TaskState::Lock { .. } => {
                let task = self.tasks.take(slot).expect("looked at above");
                if lone {
                    self.forget_first(slot);
                }
                self.finish_status(core, channel, task, status);
                true
            }
        }
    }
}
