//! Connect, Fabrics commands and admin commands.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_nvme::command::SubmissionEntry;
use longshore_nvme::controller::{
    AdminOutcome, AdminTransfer, Association, CONNECT_DATA_LENGTH, Claims, Controller, Deadline,
    QueueHandle, Refusal,
};
use longshore_nvme::io::{CommandEvent, Fusing, IoOutcome};
use longshore_nvme::opcode::{Direction, FABRICS, fabrics};
use longshore_nvme::server::{ArrivedCommand, CommandSlot, QueueParameters};
use longshore_nvme::status::Status;

use super::authentication::is_authentication;
use super::environment::PortEnvironment;
use super::state::{IoQueue, Kind, Nvme, Queue, Task};
use crate::address::{ConnectionAddress, TaskAddress};
use crate::core::request::ShutdownFlush;
use crate::core::{Core, Shared};
use crate::counters::ProtocolKind;
use crate::counters::clients::{Ending, Limit};
use crate::execute::task::TaskState;
use crate::exports::Exports;
use crate::mail::message::Post;
use crate::mail::message::{AbortReply, Message, Note};
use crate::memory::share::Holder;
use crate::sessions::activity::{Activity, AtEnd};
use crate::transport::channel::Channel;

impl Nvme {
    /// A Fabrics or admin command arrived.
    pub(super) fn start_admin(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        arrived: &ArrivedCommand,
    ) {
        let transfer = match &self.queue {
            Queue::Fresh => {
                let is_connect = arrived.entry.opcode() == FABRICS
                    && arrived.entry.fabrics_type() == fabrics::CONNECT;
                if !is_connect {
                    return self.refuse(channel, arrived.slot, Status::COMMAND_SEQUENCE_ERROR);
                }
                AdminTransfer {
                    direction: Direction::ToController,
                    length: CONNECT_DATA_LENGTH,
                }
            }
            Queue::Admin(_) => AdminTransfer::of(&arrived.entry),
            Queue::Unproved(_) | Queue::Io(_) if is_authentication(&arrived.entry) => {
                AdminTransfer::of(&arrived.entry)
            }
            Queue::Unproved(_) => {
                let status = Status::AUTHENTICATION_REQUIRED.do_not_retry();
                return self.refuse(channel, arrived.slot, status);
            }
            Queue::Left(_) => {
                return self.refuse(channel, arrived.slot, Status::COMMAND_SEQUENCE_ERROR);
            }
            Queue::Io(_) => AdminTransfer {
                direction: Direction::None,
                length: 0,
            },
        };
        let task = self.task(channel, arrived, Kind::Admin(Box::new(arrived.entry)), None);
        let wanted = transfer.length.min(arrived.data.length());
        if transfer.direction == Direction::ToController && wanted > 0 {
            self.collect(core, channel, arrived, task, wanted);
        } else if transfer.direction == Direction::ToHost && self.tasks.is_backed_up(core, channel)
        {
            // Log pages can be large, and a host that reads none of them could ask for many.
            self.tasks.defer(task);
        } else {
            self.run_command(core, channel, task, CommandEvent::Start);
        }
    }

    /// Carries out a Fabrics or admin command whose data are here.
    pub(super) fn run_admin(&mut self, core: &mut Core, channel: &mut Channel, mut task: Task) {
        let Kind::Admin(entry) = &task.work.kind else {
            unreachable!("the caller looked");
        };
        let entry: SubmissionEntry = **entry;
        self.forget_replaced_event_requests();
        if self.authentication.is_some() && is_authentication(&entry) {
            return self.authenticate(core, channel, task, &entry);
        }
        let shared = Arc::clone(&core.shared);
        let view = Arc::clone(&core.view);
        let environment = Self::environment(channel, &view.exports);
        let outcome = match &self.queue {
            Queue::Fresh => return self.connect(core, channel, task, &entry),
            Queue::Admin(controller) => {
                let data = task.data_out.as_deref().unwrap_or_default();
                let out = &mut task.parameter_data;
                controller.admin(&entry, data, out, &environment, core.now_ms)
            }
            Queue::Io(queue) => queue.controller.fabrics_on_io_queue(queue.id, &entry),
            // Nothing but authentication comes here while the queue is unproved.
            Queue::Unproved(_) | Queue::Left(_) => AdminOutcome::Complete {
                status: Status::COMMAND_SEQUENCE_ERROR,
                result: 0,
            },
        };
        let success = IoOutcome::SUCCESS;
        match outcome {
            AdminOutcome::Complete { status, result } => {
                self.finish(core, channel, task, IoOutcome { status, result });
            }
            // The controller knows it by its identifier; nothing here waits for it.
            AdminOutcome::AsyncEvent => self.tasks.let_go(core, channel, task),
            AdminOutcome::Abort { queue, command, .. } => {
                let name = ConnectionAddress::from_handle(queue);
                let reply = AbortReply::new(task.address, core.post().clone());
                task.state = TaskState::Elsewhere;
                self.tasks.park(task);
                let note = Note::AbortCommand { command, reply };
                let message = Message::Note(name, note);
                shared.addresses.send(&shared.posts, name, message);
            }
            AdminOutcome::CloseQueues { queues } => {
                close_queues(&shared, &queues);
                self.finish(core, channel, task, success);
            }
            AdminOutcome::ShutDown { queues } => {
                close_queues(&shared, &queues);
                self.finish(core, channel, task, success);
                self.flush_at_end = true;
                channel.ends_by(Ending::Logout);
                self.flush_for_shutdown(core);
            }
            AdminOutcome::Sanitize { volumes, order } => {
                let begun = core.begin_sanitize(task.address, volumes, &order, true);
                match begun {
                    Ok(()) => {
                        task.state = TaskState::Elsewhere;
                        self.tasks.park(task);
                    }
                    // Hosts repeat it.
                    Err(_) => self.finish_status(core, channel, task, Status::COMMAND_INTERRUPTED),
                }
            }
            AdminOutcome::ExitSanitizeFailure { volumes } => {
                core.exit_sanitize_failure(task.address, &volumes);
                task.state = TaskState::Elsewhere;
                self.tasks.park(task);
            }
            AdminOutcome::Disconnect => {
                self.finish(core, channel, task, success);
                tracing::debug!(peer = %channel.socket.peer, "host disconnected a queue");
                channel.ends_by(Ending::Logout);
                self.disconnect(core, channel);
                channel.close(true);
            }
        }
        self.report_events(channel);
    }

    /// Flushes the volumes of a controller that is shut down, once nothing writes to them any more.
    pub(super) fn flush_for_shutdown(&mut self, core: &mut Core) {
        let Queue::Admin(controller) = &self.queue else {
            return;
        };
        if !self.flush_at_end || !controller.io_queues().is_empty() {
            return;
        }
        self.flush_at_end = false;
        let mut units: Vec<usize> = controller.namespaces().iter().map(|n| n.index).collect();
        units.sort_unstable();
        units.dedup();
        core.flush_for(&ShutdownFlush::new(controller), &units);
    }

    /// The host has disconnected an I/O queue. Its identifier is free at once if nothing is in progress,
    /// otherwise when the connection is closed.
    fn disconnect(&mut self, core: &Core, channel: &mut Channel) {
        let controller = match &self.queue {
            Queue::Io(queue) if self.tasks.is_empty() => Arc::clone(&queue.controller),
            Queue::Fresh | Queue::Unproved(_) | Queue::Admin(_) | Queue::Io(_) | Queue::Left(_) => {
                return;
            }
        };
        let left = Queue::Left(controller);
        if let Queue::Io(queue) = std::mem::replace(&mut self.queue, left) {
            self.leave(core, channel, &queue);
        }
    }

    /// An I/O queue takes no more commands.
    pub(super) fn leave(&self, core: &Core, channel: &mut Channel, queue: &IoQueue) {
        let host = queue.controller.host_identifier();
        core.shared.hosts.leave(host, &queue.activity);
        self.log_closed(channel, &queue.controller, queue.id);
    }

    fn environment<'a>(channel: &'a Channel, exports: &'a Exports) -> PortEnvironment<'a> {
        PortEnvironment {
            exports,
            reached: channel.socket.reached,
            port: channel.socket.portal,
            tls_identity: channel.socket.link.tls_identity(),
        }
    }

    fn connect(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: Task,
        entry: &SubmissionEntry,
    ) {
        let shared = Arc::clone(&core.shared);
        let view = Arc::clone(&core.view);
        let environment = Self::environment(channel, &view.exports);
        let handle = channel.migration.name.to_handle();
        let data = task.data_out.as_deref().unwrap_or_default();
        if shared.closing.load(Ordering::Relaxed) {
            return self.finish_status(core, channel, task, Status::CONNECT_CONTROLLER_BUSY);
        }
        let subsystems = &view.exports.nvme.subsystems;
        let peer = channel.socket.peer;
        match subsystems.connect(entry, data, handle, &environment, core.now_ms) {
            Ok(association) => {
                let slot = CommandSlot(task.address.slot);
                self.connected(core, channel, slot, &association);
                let outcome = IoOutcome {
                    status: Status::SUCCESS,
                    result: association.result,
                };
                self.finish(core, channel, task, outcome);
            }
            Err(refusal) => {
                let claims = Claims::in_connect_data(data);
                shared.clients.login_failed(ProtocolKind::NvmeTcp);
                if refusal.status == Status::CONNECT_CONTROLLER_BUSY {
                    shared.clients.reached(Limit::Controllers);
                }
                tracing::warn!(
                    %peer,
                    host = claims.host,
                    host_id = %claims.host_identifier,
                    subsystem = claims.subsystem,
                    status = %refusal.status,
                    reason = explanation(&refusal),
                    "NVMe Connect refused"
                );
                let outcome = IoOutcome {
                    status: refusal.status,
                    result: refusal.result,
                };
                self.finish(core, channel, task, outcome);
            }
        }
    }

    fn connected(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        slot: CommandSlot,
        association: &Association,
    ) {
        let controller = &association.controller;
        let (peer, host) = (channel.socket.peer, controller.host_nqn());
        let (number, queue) = (controller.id(), association.queue_id);
        tracing::debug!(%peer, %host, controller = number, queue, "NVMe queue connected");
        let parameters = QueueParameters {
            id: association.queue_id,
            entries: association.entries,
            flow_control: association.flow_control,
        };
        self.machine.connected(slot, parameters);
        let holder = if host.as_str().is_empty() {
            Holder::Nameless(*controller.host_identifier())
        } else {
            Holder::Host(host.as_str().to_owned())
        };
        self.tasks
            .holdings
            .belongs_to(core.shared.shares.of(holder));
        if association.queue_id == 0 {
            self.queue = Queue::Admin(Arc::clone(controller));
            self.id = core.shared.next_session();
            self.since_ms = core.now_ms;
            core.shared.connections[core.shard].fetch_sub(1, Ordering::Relaxed);
            return self.may_authenticate(core, channel, association);
        }
        let admin_queue = ConnectionAddress::from_handle(controller.admin_queue());
        let activity = Activity::with_end(EndOfQueue {
            controller: Arc::clone(controller),
            id: association.queue_id,
            admin_queue,
            post: core.shared.posts[admin_queue.shard as usize].clone(),
        });
        let hosts = &core.shared.hosts;
        self.held = hosts.enter(controller, &activity, core.post(), channel.address);
        let namespaces = controller.namespaces();
        self.queue = Queue::Io(Box::new(IoQueue {
            controller: Arc::clone(controller),
            id: association.queue_id,
            known: Arc::clone(&namespaces),
            namespaces,
            activity,
            fusing: Fusing::default(),
        }));
        self.may_authenticate(core, channel, association);
    }

    /// The Sanitize that this task is has begun, or a failure was left behind; or neither.
    pub(super) fn sanitize_answered(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: Task,
        succeeded: bool,
    ) {
        let status = if succeeded {
            Status::SUCCESS
        } else {
            Status::SANITIZE_FAILED
        };
        self.finish_status(core, channel, task, status);
    }

    /// The Abort that this task is has been tried.
    pub(super) fn abort_answered(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: TaskAddress,
        aborted: bool,
    ) {
        if let Some(task) = self.tasks.take_exact(task) {
            let outcome = IoOutcome {
                status: Status::SUCCESS,
                result: u64::from(!aborted),
            };
            self.finish(core, channel, task, outcome);
        }
    }

    /// Completes Asynchronous Event Requests for which there is an event.
    pub(super) fn report_events(&mut self, channel: &mut Channel) {
        self.forget_replaced_event_requests();
        let Queue::Admin(controller) = &self.queue else {
            return;
        };
        let mut completions = Vec::new();
        controller.poll_events(&mut completions);
        for command in controller.take_dropped_event_requests() {
            if let Some(slot) = self.machine.find(command) {
                self.machine.drop_command(slot);
            }
        }
        for completion in completions {
            if let Some(slot) = self.machine.find(completion.command) {
                let outcome = IoOutcome {
                    status: completion.status,
                    result: completion.result,
                };
                self.complete(channel, slot, outcome);
            }
        }
    }

    /// Has the controller forget event requests whose identifiers the host has used again.
    fn forget_replaced_event_requests(&mut self) {
        let replaced = self.machine.take_replaced_event_requests();
        if let Queue::Admin(controller) = &self.queue {
            for command in replaced {
                controller.forget_event_request(command);
            }
        }
    }

    /// Ends the association when its host has been silent for too long.
    pub(super) fn look_at_keep_alive(&mut self, core: &Core, channel: &mut Channel) {
        let Queue::Admin(controller) = &self.queue else {
            return;
        };
        if let Deadline::KeepAliveExpired { queues } = controller.handle_deadline(core.now_ms)
            && channel.close(false)
        {
            close_queues(&core.shared, &queues);
            channel.ends_by(Ending::Error);
            tracing::warn!(
                peer = %channel.socket.peer,
                host = %controller.host_nqn(),
                subsystem = %controller.subsystem_nqn(),
                controller = controller.id(),
                "Keep Alive Timeout expired; closing the connections of the controller"
            );
        }
    }

    /// The connection was the admin queue of a controller, and is over.
    pub(super) fn controller_gone(
        &self,
        core: &Core,
        channel: &mut Channel,
        controller: &Controller,
        was_proved: bool,
    ) {
        close_queues(&core.shared, &controller.queue_closed(0));
        if was_proved {
            core.shared
                .clients
                .ended(ProtocolKind::NvmeTcp, channel.ending());
            self.log_closed(channel, controller, 0);
        }
    }

    fn log_closed(&self, channel: &mut Channel, controller: &Controller, id: u16) {
        let (peer, host) = (channel.socket.peer, controller.host_nqn());
        let number = controller.id();
        if id == 0 {
            tracing::info!(%peer, %host, controller = number, "NVMe host disconnected");
        } else {
            tracing::debug!(%peer, %host, controller = number, queue = id, "NVMe queue closed");
        }
    }
}

/// What was wrong with a Connect, and what to do for hosts that should be let in. A parameter is named by
/// where it stands (IPO), with bit 16 set in the data (IATTR).
fn explanation(refusal: &Refusal) -> Option<&'static str> {
    const IN_DATA: u64 = 1 << 16;
    const HOST_IDENTIFIER: u64 = IN_DATA;
    const CONTROLLER: u64 = IN_DATA | 16;
    const SUBSYSTEM: u64 = IN_DATA | 256;
    const HOST: u64 = IN_DATA | 512;
    if refusal.status.code() == Status::CONNECT_INVALID_HOST {
        return Some("no rule of the subsystem names this host; add its NQN to one to let it in");
    }
    if refusal.status.code() != Status::CONNECT_INVALID_PARAMETERS {
        return None;
    }
    Some(match refusal.result {
        42 => "the queue's number",
        44 => "the queue's size",
        HOST_IDENTIFIER => "the host identifier",
        CONTROLLER => "the controller's number",
        SUBSYSTEM => "there is no such subsystem, or not at this port",
        HOST => "the host's name",
        _ => return None,
    })
}

/// Tells a controller, by being dropped, that an I/O queue is gone with all that it did: reset and
/// shutdown wait for that.
#[derive(Debug)]
struct EndOfQueue {
    controller: Arc<Controller>,
    id: u16,
    admin_queue: ConnectionAddress,
    post: Post,
}

impl AtEnd for EndOfQueue {}

impl Drop for EndOfQueue {
    fn drop(&mut self) {
        self.controller.queue_closed(self.id);
        let note = Message::Note(self.admin_queue, Note::ControllerEvents);
        self.post.send(note);
    }
}

fn close_queues(shared: &Shared, queues: &[QueueHandle]) {
    for queue in queues {
        shared.close(ConnectionAddress::from_handle(*queue));
    }
}
