//! A change of the exports in an existing queue.

use std::sync::Arc;

use longshore_nvme::controller::AttachedNamespace;
use longshore_nvme::status::Status;

use super::state::{IoQueue, Kind, Nvme, Queue, Task};
use crate::core::Core;
use crate::counters::clients::Ending;
use crate::execute::task::TaskState;
use crate::execute::tasks::Tasks;
use crate::transport::channel::Channel;

/// How long the host of a controller that is dismissed has to notice that its namespaces are gone. It would keep their
/// disks, and wait for the controller to come back, if its connections ended at once.
const DISMISSAL_MS: u64 = 2000;

impl Nvme {
    /// Takes over the namespaces that the controller has now.
    pub(super) fn renew_queue(&mut self) {
        if let Queue::Io(queue) = &mut self.queue {
            let namespaces = queue.controller.namespaces();
            if !Arc::ptr_eq(&namespaces, &queue.namespaces) {
                queue.namespaces = namespaces;
                renew(queue, &mut self.tasks);
            }
        }
    }

    /// Forgets namespaces that the queue has no more and that no command needs. Whether some are left.
    pub(super) fn forget_gone(&mut self) -> bool {
        let Queue::Io(queue) = &mut self.queue else {
            return false;
        };
        let has_gone = |queue: &IoQueue| queue.known.len() > queue.namespaces.len();
        if has_gone(queue) {
            renew(queue, &mut self.tasks);
        }
        has_gone(queue)
    }

    /// Commands and other things of this queue that need a unit.
    pub(super) fn uses_of(&self, unit: usize) -> usize {
        let Queue::Io(queue) = &self.queue else {
            return 0;
        };
        let tasks = self.tasks.iter().filter(|task| needs(task, queue, unit));
        let gone = queue.known.iter().skip(queue.namespaces.len());
        let gone = gone.filter(|namespace| namespace.index == unit);
        // One that is gone stays for the sake of commands.
        tasks.count().max(gone.count())
    }

    /// The unit is to be removed, and its commands have had their time.
    pub(super) fn end_uses(&mut self, core: &mut Core, channel: &mut Channel, unit: usize) {
        let Queue::Io(queue) = &self.queue else {
            return;
        };
        let activity = Arc::clone(&queue.activity);
        let tasks = self.tasks.iter().filter(|task| needs(task, queue, unit));
        let slots: Vec<u32> = tasks.map(|task| task.address.slot).collect();
        let status = Status::INVALID_NAMESPACE_OR_FORMAT.do_not_retry();
        for slot in slots {
            let in_storage = |task: &&mut Task| matches!(task.state, TaskState::Storage { .. });
            if self.tasks.get_mut(slot).filter(in_storage).is_none() {
                self.abort_task(core, channel, slot, status, None);
            } else if let Some(mut task) = self.tasks.take(slot) {
                let orders = task.work.aborted.take();
                let orders = orders.map_or_else(Vec::new, |aborted| aborted.orders);
                Tasks::orphan(core, &mut task, orders, Some(&activity));
                self.finish_status(core, channel, task, status);
            }
        }
    }

    /// The host may not use the subsystem any more, or the subsystem is no more.
    pub(super) fn dismiss(&mut self, core: &Core, channel: &mut Channel) {
        if matches!(self.queue, Queue::Unproved(_)) {
            channel.close(false);
            return;
        }
        let Queue::Admin(controller) = &self.queue else {
            return;
        };
        if self.dismissed_ms.is_none() {
            self.dismissed_ms = Some(core.now_ms + DISMISSAL_MS);
            channel.ends_by(Ending::Access);
            tracing::info!(
                peer = %channel.socket.peer,
                host = %controller.host_nqn(),
                subsystem = %controller.subsystem_nqn(),
                controller = controller.id(),
                "controller ends: its subsystem or its access is gone"
            );
        }
    }
}

/// Has `known` consist of the namespaces of the queue and of earlier ones that commands need, and tells the commands
/// their places.
fn renew(queue: &mut IoQueue, tasks: &mut Tasks<super::state::NvmeWork>) {
    let mut known = queue.namespaces.to_vec();
    let places: Vec<usize> = queue
        .known
        .iter()
        .enumerate()
        .map(|(place, earlier)| {
            let same = |namespace: &AttachedNamespace| Arc::ptr_eq(&namespace.host, &earlier.host);
            let namespaces = &queue.namespaces;
            let now = namespaces.binary_search_by_key(&earlier.id, |namespace| namespace.id);
            match now.ok().filter(|now| same(&namespaces[*now])) {
                Some(now) => now,
                None if tasks.iter().any(|task| refers(task, place)) => {
                    known.push(earlier.clone());
                    known.len() - 1
                }
                // Nothing asks for it.
                None => usize::MAX,
            }
        })
        .collect();
    let place = |place: usize| places[place];
    for task in tasks.iter_mut() {
        match &mut task.work.kind {
            Kind::Io(command) => command.renumber(&place),
            Kind::Half(half) => half.command.renumber(&place),
            Kind::Pair { pair, .. } => pair.renumber(&place),
            Kind::Admin(_) | Kind::Spent => {}
        }
    }
    queue.known = if known.len() == queue.namespaces.len() {
        Arc::clone(&queue.namespaces)
    } else {
        known.into()
    };
}

/// Whether a command refers to a namespace by its place.
fn refers(task: &Task, place: usize) -> bool {
    match &task.work.kind {
        Kind::Io(command) => command.uses(place),
        Kind::Half(half) => half.command.uses(place),
        Kind::Pair { pair, .. } => pair.namespace() == Some(place),
        Kind::Admin(_) | Kind::Spent => false,
    }
}

fn needs(task: &Task, queue: &IoQueue, unit: usize) -> bool {
    let mut known = queue.known.iter().enumerate();
    task.unit == Some(unit)
        || known.any(|(place, namespace)| namespace.index == unit && refers(task, place))
}
