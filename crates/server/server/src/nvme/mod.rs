//! NVMe/TCP connections: each is one queue of a controller.
//!
//! The machine of `longshore_nvme` takes PDUs apart; Fabrics and admin commands are carried out by
//! the queue's controller (`admin`), commands of I/O queues by their own machine and the volumes
//! (`commands`). Queues of a controller share nothing on the way of a read or write.

mod abort;
mod admin;
mod authentication;
mod commands;
mod completion;
mod environment;
mod fast_path;
mod fused;
mod renewal;
mod state;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_nvme::io::CommandEvent;
use longshore_nvme::server::{CloseReason, ConnectionEvent};

use self::state::{Kind, Nvme, NvmeWork, Queue};
use crate::address::{ConnectionAddress, TaskAddress};
use crate::connection::Connection;
use crate::connection::driven::{Handled, ShardEvent, State};
use crate::connection::export_user::ExportUser;
use crate::connection::protocol::{PayloadWanted, Protocol};
use crate::core::{Core, Shared};
use crate::counters::ProtocolKind;
use crate::counters::clients::Ending;
use crate::execute::medium::Retried;
use crate::execute::plain::FastPath;
use crate::execute::task::Task;
use crate::execute::tasks::Tasks;
use crate::mail::message::Note;
use crate::observe::sessions::{MappedVolume, SessionId, SessionPart, SessionReport};
use crate::transport::channel::Channel;

impl Protocol for Nvme {
    type Work = NvmeWork;
    const KIND: ProtocolKind = ProtocolKind::NvmeTcp;

    fn tasks(&self) -> &Tasks<NvmeWork> {
        &self.tasks
    }

    fn tasks_mut(&mut self) -> &mut Tasks<NvmeWork> {
        &mut self.tasks
    }

    fn state(&self) -> State {
        let is_quiet = match &self.queue {
            // I/O queues end with their admin queue, and may have something to finish.
            Queue::Admin(controller) => controller.io_queues().is_empty(),
            Queue::Fresh | Queue::Unproved(_) | Queue::Io(_) | Queue::Left(_) => true,
        };
        State {
            // Who has to prove itself has not finished its login before.
            established: !matches!(self.queue, Queue::Fresh | Queue::Unproved(_)),
            // Beside their I/O queues, admin queues have nothing to do.
            is_load: !self.is_admin_queue(),
            // Controllers know their I/O queues by name; an admin queue has little to do.
            may_move: matches!(self.queue, Queue::Io(_)) && !self.held && !self.draining,
            is_quiet,
        }
    }

    fn peer_name(&self) -> Option<&str> {
        Some(self.controller()?.host_nqn().as_str())
    }

    fn receives(&self) -> bool {
        !self.held && (!self.draining || self.awaits_data())
    }

    #[inline]
    fn payload_wanted(&self) -> Option<PayloadWanted> {
        let wanted = self.machine.payload_wanted()?;
        Some(PayloadWanted {
            slot: wanted.slot.0,
            buffer_offset: wanted.buffer_offset,
            length: wanted.length,
            solicited: wanted.solicited,
        })
    }

    #[inline]
    fn payload_received(&mut self, wanted: PayloadWanted, length: usize, now_ms: u64) {
        let start = wanted.buffer_offset as usize;
        let placed = self.tasks.placed(wanted.slot, start, length);
        self.machine.payload_received(placed, now_ms);
    }

    fn process(&mut self, core: &mut Core, channel: &mut Channel, input: &[u8]) {
        self.process_input(core, channel, input);
    }

    fn sent(&mut self, now_ms: u64) {
        self.machine.sent(now_ms);
    }

    #[inline]
    fn proceed(&mut self, core: &mut Core, channel: &mut Channel) -> bool {
        let mut ran = false;
        while let Some(task) = self.tasks.next_deferred(core, channel) {
            self.run_command(core, channel, task, CommandEvent::Start);
            self.respond(core, channel);
            ran = true;
        }
        if !ran {
            self.leave_when_drained(core, channel);
        }
        ran
    }

    fn handle(&mut self, core: &mut Core, channel: &mut Channel, event: ShardEvent<'_>) -> Handled {
        match event {
            ShardEvent::Retry(task) => {
                let machine = &mut self.machine;
                match self.tasks.retry(core, channel, machine, task) {
                    Retried::Runs(task, event) => self.run_command(core, channel, task, event),
                    Retried::Memory(task) => self.solicit(core, channel, task),
                    Retried::Waits => {}
                }
                self.respond(core, channel);
            }
            ShardEvent::Deadline => {
                let transmit = &mut channel.transmit;
                if let Some(reason) = self.machine.handle_deadline(transmit, core.now_ms) {
                    self.begin_close(core, channel, reason);
                }
                self.tasks.release_idle_memory(channel);
                channel.release_idle_memory();
                self.look_at_keep_alive(core, channel);
                self.look_at_authentication(core, channel);
                if self.dismissed_ms.is_some_and(|at| core.now_ms >= at) {
                    channel.close(false);
                }
            }
            ShardEvent::Abort(order) => {
                if !self.obey_order(core, channel, order) {
                    return Handled::Nothing;
                }
            }
            ShardEvent::Note(note) => self.take_note(core, channel, note),
            ShardEvent::Drain => {
                // There is no way to ask a host to leave. What was taken in is finished.
                self.draining = true;
                if self.is_drained(channel) {
                    return Handled::Over;
                }
            }
            ShardEvent::Close | ShardEvent::Drop => {
                channel.close(false);
            }
            ShardEvent::Exports => self.renew_queue(),
            ShardEvent::Removed(unit) => self.end_uses(core, channel, unit),
            ShardEvent::Stalled { .. } => {}
        }
        Handled::Changed
    }

    fn resume(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: Task<NvmeWork>,
        event: CommandEvent,
    ) {
        self.run_command(core, channel, task, event);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        let machine = self.machine.next_deadline_ms();
        let proof = self.authentication_deadline_ms();
        let controller = match &self.queue {
            Queue::Admin(controller) => controller.next_deadline_ms(),
            Queue::Fresh | Queue::Unproved(_) | Queue::Io(_) | Queue::Left(_) => None,
        };
        let deadlines = machine.into_iter().chain(proof).chain(controller);
        deadlines.chain(self.dismissed_ms).min()
    }

    fn tear_down(&mut self, core: &mut Core, channel: &mut Channel) {
        self.end_tasks(core, channel);
        // What is computed for it is of no use any more.
        self.authentication = None;
        let was_proved = !matches!(self.queue, Queue::Unproved(_));
        if matches!(self.queue, Queue::Fresh | Queue::Unproved(_)) {
            core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
        }
        match std::mem::replace(&mut self.queue, Queue::Fresh).proved() {
            Queue::Unproved(_) => unreachable!("a queue is unproved once"),
            Queue::Admin(controller) => {
                self.controller_gone(core, channel, &controller, was_proved);
            }
            Queue::Io(queue) => self.leave(core, channel, &queue),
            Queue::Fresh | Queue::Left(_) => {}
        }
    }
}

impl ExportUser for Nvme {
    fn knows_exports(&self, _revision: u64) -> bool {
        // Its controller knows, and comparing costs as much as asking.
        !matches!(self.queue, Queue::Io(_))
    }

    fn mapped(&self) -> usize {
        match &self.queue {
            Queue::Io(queue) => queue.known.len(),
            Queue::Fresh | Queue::Unproved(_) | Queue::Admin(_) | Queue::Left(_) => 0,
        }
    }

    fn settle(&mut self, _core: &mut Core) -> bool {
        !self.forget_gone()
    }

    fn uses(&self, unit: usize) -> usize {
        self.uses_of(unit)
    }

    fn session_id(&self) -> Option<SessionId> {
        matches!(self.queue, Queue::Admin(_)).then_some(self.id)
    }

    fn session(&self, core: &Core, channel: &Channel) -> Option<SessionPart> {
        let peer = channel.socket.peer;
        let controller = match &self.queue {
            Queue::Fresh | Queue::Unproved(_) | Queue::Left(_) => return None,
            Queue::Io(queue) => {
                return Some(SessionPart {
                    main: ConnectionAddress::from_handle(queue.controller.admin_queue()),
                    peer,
                    report: None,
                });
            }
            Queue::Admin(controller) => controller,
        };
        let exports = &core.view.exports;
        let namespaces = controller.namespaces();
        let volumes = namespaces.iter().map(|namespace| MappedVolume {
            number: namespace.id.0,
            volume: exports.unit(namespace.index).volume.identity().name.clone(),
            read_only: namespace.read_only,
        });
        let age_ms = core.now_ms.saturating_sub(self.since_ms);
        let report = SessionReport {
            id: self.id,
            protocol: Nvme::KIND,
            number: controller.id(),
            name: controller.host_nqn().to_string(),
            exporter: Some(controller.subsystem_nqn().to_string()),
            peers: vec![peer],
            age: Duration::from_millis(age_ms),
            volumes: volumes.collect(),
        };
        Some(SessionPart {
            main: channel.migration.name,
            peer,
            report: Some(Box::new(report)),
        })
    }
}

impl Nvme {
    fn take_note(&mut self, core: &mut Core, channel: &mut Channel, note: Note) {
        match note {
            Note::PredecessorsEnded => self.held = false,
            Note::Persisted { task, stored } => {
                let Some(task) = self.tasks.take_elsewhere(task) else {
                    return;
                };
                if let Kind::Admin(_) = task.work.kind {
                    self.sanitize_answered(core, channel, task, stored);
                } else {
                    let event = CommandEvent::Persisted(stored);
                    self.run_command(core, channel, task, event);
                }
            }
            Note::StoreIsFree { task } => self.resume(core, channel, task, CommandEvent::Start),
            Note::PreemptedTasksAborted { task, aborted } => {
                // Nobody preempts itself: all of them are others.
                aborted.iter().for_each(|whose| whose.tasks_cleared());
                self.resume(core, channel, task, CommandEvent::TasksAborted);
            }
            Note::ControllerEvents => {
                self.report_events(channel);
                self.flush_for_shutdown(core);
            }
            Note::AbortCommand { command, reply } => {
                reply.answer(self.abort_command(core, channel, command));
            }
            Note::CommandAborted { task, aborted } => {
                self.abort_answered(core, channel, task, aborted);
            }
            Note::Dismissed => self.dismiss(core, channel),
            Note::Computed { task, value } => self.computed(core, channel, task, value),
            Note::ManagementDone { .. } | Note::TargetReset(_) => {}
        }
    }

    /// A message for a task that waits for one came.
    fn resume(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        address: TaskAddress,
        event: CommandEvent,
    ) {
        if let Some(task) = self.tasks.take_elsewhere(address) {
            self.run_command(core, channel, task, event);
        }
    }

    /// Nothing of it is in progress.
    fn is_drained(&self, channel: &Channel) -> bool {
        self.tasks.is_empty() && channel.transmit.is_empty() && self.state().is_quiet
    }

    /// Stops receiving; the rest is sent.
    fn begin_close(&mut self, core: &Core, channel: &mut Channel, reason: CloseReason) {
        if !channel.close(true) {
            return;
        }
        channel.ends_by(Ending::Error);
        let peer = channel.socket.peer;
        let controller = self.controller();
        let host = controller.map(|controller| controller.host_nqn().to_string());
        let subsystem = controller.map(|controller| controller.subsystem_nqn().to_string());
        if controller.is_none() {
            core.shared.clients.login_failed(ProtocolKind::NvmeTcp);
        }
        tracing::warn!(%peer, host, subsystem, ?reason, "closing NVMe queue");
    }

    /// Feeds bytes to the machine and does what it says.
    fn process_input(&mut self, core: &mut Core, channel: &mut Channel, mut input: &[u8]) {
        if let Queue::Io(queue) = &self.queue {
            queue.controller.note_activity(queue.id);
        }
        let view = Arc::clone(&core.view);
        loop {
            if self.held && !input.is_empty() {
                // It could not know yet that it is connected, and what it sent must not run before
                // the last writes of the queue it takes the place of.
                channel.close(false);
                let peer = channel.socket.peer;
                let controller = self.controller();
                let host = controller.map(|controller| controller.host_nqn().to_string());
                tracing::warn!(%peer, host, "the host sent commands before the response to Connect; closing connection");
                break;
            }
            let transmit = &mut channel.transmit;
            let machine = &mut self.machine;
            match machine.next(&mut input, transmit, core.now_ms) {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::Command(arrived) => {
                    channel.request_read(&mut core.counters);
                    match self.run_fast(core, channel, &view.exports, &arrived, &mut input) {
                        FastPath::Done => {
                            self.respond(core, channel);
                            continue;
                        }
                        FastPath::Task(begun) => self.start_command(core, channel, &arrived, begun),
                    }
                    self.respond(core, channel);
                    if channel.is_closing() {
                        break;
                    }
                }
                ConnectionEvent::DataOut {
                    slot,
                    buffer_offset,
                    bytes,
                } => self
                    .tasks
                    .place(core, channel, slot.0, buffer_offset, bytes),
                ConnectionEvent::DataOutComplete { slot } => {
                    self.data_out_complete(core, channel, slot.0);
                    self.respond(core, channel);
                }
                ConnectionEvent::DataOutFailed { slot } => {
                    self.data_out_failed(core, channel, slot.0)
                }
                ConnectionEvent::Close(reason) => {
                    self.begin_close(core, channel, reason);
                    break;
                }
            }
        }
    }

    /// Closes a queue that has nothing left to do when the server is about to end.
    fn leave_when_drained(&mut self, core: &Core, channel: &mut Channel) {
        if self.draining && self.is_drained(channel) && channel.close(false) {
            tracing::debug!(peer = %channel.socket.peer, shard = core.shard, "NVMe queue drained");
        }
    }

    /// Ends all tasks without an answer. Requests in flight live on as orphans.
    fn end_tasks(&mut self, core: &mut Core, channel: &mut Channel) {
        let slots: Vec<u32> = self.tasks.iter().map(|t| t.address.slot).collect();
        for slot in slots {
            let Some(mut task) = self.tasks.take(slot) else {
                continue;
            };
            let aborted = task.work.aborted.take();
            let orders = aborted.map_or_else(Vec::new, |aborted| aborted.orders);
            let activity = match &self.queue {
                Queue::Io(queue) => Some(&queue.activity),
                Queue::Fresh | Queue::Unproved(_) | Queue::Admin(_) | Queue::Left(_) => None,
            };
            Tasks::orphan(core, &mut task, orders, activity);
            core.stages.drop(std::mem::take(&mut task.followed));
            self.tasks.let_go(core, channel, task);
        }
    }
}

/// A connection of a host.
pub(crate) fn connection(shared: &Shared, channel: Channel, now_ms: u64) -> Connection<Nvme> {
    Connection::new(channel, Nvme::new(shared, now_ms))
}
