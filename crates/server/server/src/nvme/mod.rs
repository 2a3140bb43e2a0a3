//! NVMe/TCP connections: each is one queue of a controller.
//!
//! The machine of `longshore_nvme` takes PDUs apart; Fabrics and admin commands are carried out by
//! the queue's controller (`admin`), commands of I/O queues by their own machine and the volumes
//! (`execute`). Queues of a controller share nothing on the way of a read or write.

pub(crate) mod admin;
mod execute;
pub(crate) mod exports;
mod fast_path;
mod fused;
pub(crate) mod hosts;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_nvme::command::{CommandId, SubmissionEntry};
use longshore_nvme::controller::{AttachedNamespace, Controller};
use longshore_nvme::io::{Command, CommandEvent, FusedPair, Fusing};
use longshore_nvme::server::{
    CloseReason, CommandSlot, Connection as Machine, ConnectionConfig, ConnectionEvent,
};
use longshore_nvme::status::Status;
use longshore_wire::transmit::Transmit;

use self::fused::Half;
use crate::abort::AbortOrder;
use crate::activity::Activity;
use crate::channel::Channel;
use crate::connection::{Connection, Driven, PayloadWanted, Protocol};
use crate::core::{Core, Shared};
use crate::fast_path::FastPath;
use crate::message::Note;
use crate::observe::ProtocolKind;
use crate::task;

pub(crate) type Task = task::Task<NvmeWork>;

/// An NVMe/TCP connection's machine and queue.
#[derive(Debug)]
pub(crate) struct Nvme {
    machine: Machine,
    queue: Queue,
    /// Commands wait for the writes of closed queues of the same host.
    held: bool,
    /// The server is about to end: no more commands.
    draining: bool,
    /// The controller is shut down: volumes are flushed once no I/O queue is left.
    flush_at_end: bool,
}

/// What the connection is a queue of.
#[derive(Debug)]
enum Queue {
    /// Nothing yet: only Connect is carried out.
    Fresh,
    /// The admin queue of a controller.
    Admin(Arc<Controller>),
    /// An I/O queue.
    Io(Box<IoQueue>),
    /// An I/O queue that its host has disconnected; the host closes the connection.
    Left(Arc<Controller>),
}

/// An I/O queue.
#[derive(Debug)]
struct IoQueue {
    controller: Arc<Controller>,
    id: u16,
    namespaces: Arc<[AttachedNamespace]>,
    /// With it, the controller learns that nothing of the queue can act any more.
    activity: Arc<Activity>,
    /// Finds the pairs of fused commands, by their slots.
    fusing: Fusing<u32>,
}

/// What a task is to NVMe.
#[derive(Debug)]
pub(crate) struct NvmeWork {
    id: CommandId,
    /// SLBA of the commands that have one.
    first_block: u64,
    kind: Kind,
    /// It was aborted while it could not end: with what it ends as soon as it can.
    aborted: Option<Box<Aborted>>,
}

#[derive(Debug)]
enum Kind {
    /// A Fabrics or admin command.
    Admin(Box<SubmissionEntry>),
    /// A command of an I/O queue.
    Io(Command),
    /// Half of a Compare and Write whose data arrive, or which waits for the other half.
    Half(Box<Half>),
    /// The second half of a Compare and Write, which carries out both; the slot of the first.
    Pair { pair: Box<FusedPair>, first: u32 },
    /// A half whose part another task has taken over.
    Spent,
}

impl NvmeWork {
    /// Has the task end with this status as soon as it can. The order waits for that.
    fn abort(&mut self, status: Status, order: Option<&Arc<AbortOrder>>) {
        let aborted = self.aborted.get_or_insert_with(|| {
            Box::new(Aborted {
                status,
                orders: Vec::new(),
            })
        });
        aborted.orders.extend(order.cloned());
    }
}

#[derive(Debug)]
struct Aborted {
    status: Status,
    /// What waits for its end.
    orders: Vec<Arc<AbortOrder>>,
}

impl Nvme {
    pub(crate) fn new(shared: &Shared, now_ms: u64) -> Self {
        let limits = &shared.limits;
        let milliseconds =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = ConnectionConfig {
            in_capsule_data_bytes: limits.in_capsule_data,
            max_h2c_data_bytes: limits.r2t_bytes,
            r2t_bytes: limits.r2t_bytes,
            connect_timeout_ms: milliseconds(limits.login_timeout),
            ..ConnectionConfig::default()
        };
        Self {
            machine: Machine::new(config, now_ms),
            queue: Queue::Fresh,
            held: false,
            draining: false,
            flush_at_end: false,
        }
    }

    /// Whether the host is sending data it was asked for, or the rest of a command: what was taken in ends
    /// only with them.
    fn awaits_data(&self) -> bool {
        let machine = &self.machine;
        machine.is_inside_pdu()
            || machine
                .commands()
                .any(|slot| machine.outstanding_data_out(slot))
    }

    /// The controller, once connected.
    fn controller(&self) -> Option<&Arc<Controller>> {
        match &self.queue {
            Queue::Fresh => None,
            Queue::Admin(controller) | Queue::Left(controller) => Some(controller),
            Queue::Io(queue) => Some(&queue.controller),
        }
    }
}

impl Protocol for Nvme {
    type Work = NvmeWork;
    const KIND: ProtocolKind = ProtocolKind::NvmeTcp;

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
    fn payload_received(&mut self, placed: &[u8], now_ms: u64) {
        self.machine.payload_received(placed, now_ms);
    }

    fn sent(&mut self, now_ms: u64) {
        self.machine.sent(now_ms);
    }

    #[inline]
    fn has_data_digest(&self) -> bool {
        self.machine.has_data_digest()
    }

    fn begin_inline_read<'t>(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &'t mut Transmit,
    ) -> Option<&'t mut [u8]> {
        self.machine
            .begin_inline_read(CommandSlot(slot), length, transmit)
    }

    #[inline]
    fn read_inline(
        &mut self,
        slot: u32,
        length: u32,
        transmit: &mut Transmit,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<bool> {
        self.machine
            .read_inline(CommandSlot(slot), length, transmit, fill)
    }

    fn rollback_inline_read(&mut self, slot: u32, transmit: &mut Transmit) {
        self.machine
            .rollback_inline_read(CommandSlot(slot), transmit);
    }

    fn receives(&self) -> bool {
        !self.held && (!self.draining || self.awaits_data())
    }

    fn is_established(&self) -> bool {
        !matches!(self.queue, Queue::Fresh)
    }

    fn peer_name(&self) -> Option<&str> {
        Some(self.controller()?.host_nqn().as_str())
    }

    fn is_load(&self) -> bool {
        // Beside their I/O queues, admin queues have nothing to do.
        !matches!(self.queue, Queue::Admin(_))
    }

    fn may_move(&self) -> bool {
        // Controllers know their I/O queues by name; an admin queue has little to do.
        matches!(self.queue, Queue::Io(_)) && !self.held && !self.draining
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        let machine = self.machine.next_deadline_ms();
        let Queue::Admin(controller) = &self.queue else {
            return machine;
        };
        let controller = controller.next_deadline_ms();
        machine.into_iter().chain(controller).min()
    }

    fn handle_deadline(connection: &mut Connection<Self>, core: &mut Core) {
        let transmit = &mut connection.channel.transmit;
        let machine = &mut connection.protocol.machine;
        if let Some(reason) = machine.handle_deadline(transmit, core.now_ms) {
            connection.begin_close(reason);
        }
        connection.release_idle_memory();
        connection.look_at_keep_alive(core);
    }

    fn process(connection: &mut Connection<Self>, core: &mut Core, input: &[u8]) {
        connection.process_input(core, input);
    }

    fn begin(connection: &mut Connection<Self>, core: &mut Core, task: Task) {
        Self::run(connection, core, task, CommandEvent::Start);
    }

    #[inline(always)]
    fn run(connection: &mut Connection<Self>, core: &mut Core, task: Task, event: CommandEvent) {
        connection.run_command(core, task, event);
    }

    fn run_waiting(connection: &mut Connection<Self>, core: &mut Core) -> bool {
        connection.leave_when_drained(core);
        false
    }

    fn retry_memory(connection: &mut Connection<Self>, core: &mut Core, task: Task) {
        connection.solicit(core, task);
    }

    #[inline]
    fn task_ended(_connection: &mut Connection<Self>, _work: &NvmeWork) {}

    fn is_quiet(&self) -> bool {
        match &self.queue {
            // I/O queues end with their admin queue, and may have something to finish.
            Queue::Admin(controller) => controller.io_queues().is_empty(),
            Queue::Fresh | Queue::Io(_) | Queue::Left(_) => true,
        }
    }

    fn obey(connection: &mut Connection<Self>, core: &mut Core, order: &Arc<AbortOrder>) -> bool {
        connection.obey_order(core, order)
    }

    fn take_note(connection: &mut Connection<Self>, core: &mut Core, note: Note) {
        match note {
            Note::PredecessorsEnded => connection.protocol.held = false,
            Note::Persisted { task, stored } => {
                connection.resume(core, task, CommandEvent::Persisted(stored));
            }
            Note::StoreIsFree { task } => connection.resume(core, task, CommandEvent::Start),
            Note::PreemptedTasksAborted { task, aborted } => {
                // Nobody preempts itself: all of them are others.
                aborted.iter().for_each(|whose| whose.tasks_cleared());
                connection.resume(core, task, CommandEvent::TasksAborted);
            }
            Note::ControllerEvents => {
                connection.report_events();
                connection.flush_for_shutdown(core);
            }
            Note::AbortCommand { command, reply } => {
                reply.answer(connection.abort_command(core, command));
            }
            Note::CommandAborted { task, aborted } => {
                connection.abort_answered(core, task, aborted);
            }
            Note::ManagementDone { .. } | Note::TargetReset(_) => {}
        }
    }

    fn begin_drain(connection: &mut Connection<Self>, _core: &mut Core) -> bool {
        // There is no way to ask a host to leave. What was taken in is finished.
        connection.protocol.draining = true;
        !connection.is_quiet()
    }

    fn announce_drop(connection: &mut Connection<Self>, _core: &mut Core) {
        connection.channel.close(false);
    }

    fn tear_down(connection: &mut Connection<Self>, core: &mut Core) {
        connection.end_tasks(core);
        match std::mem::replace(&mut connection.protocol.queue, Queue::Fresh) {
            Queue::Fresh => {
                core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
            }
            Queue::Admin(controller) => {
                connection.controller_gone(core, &controller);
            }
            Queue::Io(queue) => connection.leave(core, &queue),
            Queue::Left(_) => {}
        }
    }
}

impl Connection<Nvme> {
    /// Stops receiving; the rest is sent.
    fn begin_close(&mut self, reason: CloseReason) {
        if !self.channel.close(true) {
            return;
        }
        let peer = self.channel.peer;
        let controller = self.protocol.controller();
        let host = controller.map(|controller| controller.host_nqn().to_string());
        let subsystem = controller.map(|controller| controller.subsystem_nqn().to_string());
        tracing::warn!(%peer, host, subsystem, ?reason, "closing NVMe queue");
    }

    /// Feeds bytes to the machine and does what it says.
    fn process_input(&mut self, core: &mut Core, mut input: &[u8]) {
        if let Queue::Io(queue) = &self.protocol.queue {
            queue.controller.note_activity(queue.id);
        }
        let shared = Arc::clone(&core.shared);
        loop {
            if self.protocol.held && !input.is_empty() {
                // It could not know yet that it is connected, and what it sent must not run before
                // the last writes of the queue it takes the place of.
                self.channel.close(false);
                let peer = self.channel.peer;
                let controller = self.protocol.controller();
                let host = controller.map(|controller| controller.host_nqn().to_string());
                tracing::warn!(%peer, host, "the host sent commands before the response to Connect; closing connection");
                break;
            }
            let transmit = &mut self.channel.transmit;
            let machine = &mut self.protocol.machine;
            match machine.next(&mut input, transmit, core.now_ms) {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::Command(arrived) => {
                    self.channel.request_read(&mut core.counters);
                    match self.run_fast(core, &shared, &arrived, &mut input) {
                        FastPath::Done => {
                            self.respond(core);
                            continue;
                        }
                        FastPath::Task(begun) => self.start_command(core, &arrived, begun),
                    }
                    self.respond(core);
                    if self.channel.is_closing() {
                        break;
                    }
                }
                ConnectionEvent::DataOut {
                    slot,
                    buffer_offset,
                    bytes,
                } => self.place(core, slot.0, buffer_offset, bytes),
                ConnectionEvent::DataOutComplete { slot } => {
                    self.data_out_complete(core, slot.0);
                    self.respond(core);
                }
                ConnectionEvent::DataOutFailed { slot } => self.data_out_failed(core, slot.0),
                ConnectionEvent::Close(reason) => {
                    self.begin_close(reason);
                    break;
                }
            }
        }
    }

    /// Closes a queue that has nothing left to do when the server is about to end.
    fn leave_when_drained(&mut self, core: &Core) {
        if self.protocol.draining && self.is_quiet() && self.channel.close(false) {
            tracing::debug!(peer = %self.channel.peer, shard = core.shard, "NVMe queue drained");
        }
    }

    /// Ends all tasks without an answer. Requests in flight live on as orphans.
    fn end_tasks(&mut self, core: &mut Core) {
        let slots: Vec<u32> = self.tasks.iter().map(|t| t.address.slot).collect();
        for slot in slots {
            let Some(mut task) = self.tasks.take(slot) else {
                continue;
            };
            let aborted = task.work.aborted.take();
            let orders = aborted.map_or_else(Vec::new, |aborted| aborted.orders);
            let activity = match &self.protocol.queue {
                Queue::Io(queue) => Some(&queue.activity),
                Queue::Fresh | Queue::Admin(_) | Queue::Left(_) => None,
            };
            self.orphan(core, &mut task, orders, activity);
            core.stages.drop(std::mem::take(&mut task.followed));
            self.let_go(core, task);
        }
    }
}

/// A connection of a host.
pub(crate) fn connection(shared: &Shared, channel: Channel, now_ms: u64) -> Connection<Nvme> {
    Connection::new(channel, Nvme::new(shared, now_ms), &shared.limits)
}
