//! iSCSI connections: the login, and what the iSCSI machine says happened.

mod directory;
mod execute;
mod fast_path;
mod session;
pub(crate) mod sessions;
mod task_management;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_block::reservation::Participant;
use longshore_iscsi::pdu::LoginStatus;
use longshore_iscsi::server::{
    CloseReason, Completion, Connection as Machine, ConnectionConfig, ConnectionEvent,
    DataOutFailure, Payload, TaskId, TaskManagementId, TaskManagementResult,
};
use longshore_iscsi::session_parameters::SessionType;
use longshore_scsi::command::{Command, CommandEvent, Completion as ScsiCompletion};
use longshore_scsi::sense::{AdditionalSense, Sense, SenseKey};
use longshore_wire::transmit::Transmit;

use self::directory::{ConnectionDirectory, EstablishedSession};
use self::session::{LunEntry, Session};
use self::task_management::PendingManagement;
use crate::abort::AbortOrder;
use crate::channel::Channel;
use crate::connection::{Connection, PayloadWanted, Protocol};
use crate::core::{Core, Shared};
use crate::fast_path::FastPath;
use crate::message::{Note, TaskAddress};
use crate::observe::ProtocolKind;
use crate::share::Holder;
use crate::task::Task;

/// An iSCSI connection's machine and session.
#[derive(Debug)]
pub(crate) struct Iscsi {
    machine: Machine,
    session: Option<Session>,
    /// How many live tasks are ORDERED.
    ordered: usize,
    /// A task ended while there were ordered ones.
    order_changed: bool,
    /// Tasks that have arrived.
    sequence: u64,
    management: Vec<PendingManagement>,
    /// Commands wait for the end of the session this one takes the place of.
    held: bool,
}

/// What a task is to iSCSI.
#[derive(Debug)]
pub(crate) struct ScsiWork {
    command: Command,
    /// Index into the session's logical units; `None` when the LUN has no unit.
    lun: Option<usize>,
    expected_data_transfer_length: u32,
    /// Place in the order of arrival on this connection.
    sequence: u64,
    /// ORDERED (SAM-5 §8.6): all older tasks end before it runs, and no younger one runs before it ends.
    ordered: bool,
    /// HEAD OF QUEUE: it waits for no older task.
    head_of_queue: bool,
}

impl Iscsi {
    pub(crate) fn new(shared: &Shared, now_ms: u64) -> std::io::Result<Self> {
        let limits = &shared.limits;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(std::io::Error::other)?;
        let milliseconds =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = ConnectionConfig {
            login_timeout_ms: milliseconds(limits.login_timeout),
            nop_interval_ms: milliseconds(limits.nop_interval),
            nop_timeout_ms: milliseconds(limits.nop_timeout),
            logout_timeout_ms: milliseconds(limits.drain_timeout),
            queue_depth: limits.queue_depth,
            tag_seed: u64::from_ne_bytes(seed),
            ..ConnectionConfig::default()
        };
        Ok(Self {
            machine: Machine::new(config, now_ms),
            session: None,
            ordered: 0,
            order_changed: false,
            sequence: 0,
            management: Vec::new(),
            held: false,
        })
    }

    /// The logical units of the session.
    fn luns(&self) -> &[LunEntry] {
        self.session
            .as_ref()
            .map_or(&[], |session| &session.luns[..])
    }
}

impl Protocol for Iscsi {
    type Work = ScsiWork;
    const KIND: ProtocolKind = ProtocolKind::Iscsi;

    #[inline]
    fn payload_wanted(&self) -> Option<PayloadWanted> {
        let wanted = self.machine.payload_wanted()?;
        Some(PayloadWanted {
            slot: wanted.task.0,
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
            .begin_inline_read(TaskId(slot), length, transmit)
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
            .read_inline(TaskId(slot), length, transmit, fill)
    }

    fn rollback_inline_read(&mut self, slot: u32, transmit: &mut Transmit) {
        self.machine.rollback_inline_read(TaskId(slot), transmit);
    }

    fn receives(&self) -> bool {
        !self.held
    }

    fn is_established(&self) -> bool {
        self.session.is_some()
    }

    fn peer_name(&self) -> Option<&str> {
        let session = self.machine.session()?;
        Some(session.initiator_name.as_str())
    }

    fn may_move(&self) -> bool {
        let session = self.session.as_ref();
        let has_target = session.is_some_and(|session| session.target.is_some());
        has_target && !self.held && self.management.is_empty()
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.machine.next_deadline_ms()
    }

    fn handle_deadline(connection: &mut Connection<Self>, core: &mut Core) {
        let transmit = &mut connection.channel.transmit;
        let machine = &mut connection.protocol.machine;
        if let Some(reason) = machine.handle_deadline(transmit, core.now_ms) {
            connection.begin_close(reason);
        }
        connection.release_idle_memory();
    }

    fn process(connection: &mut Connection<Self>, core: &mut Core, input: &[u8]) {
        connection.process_input(core, input);
    }

    fn begin(connection: &mut Connection<Self>, core: &mut Core, task: Task<ScsiWork>) {
        connection.run_in_order(core, task);
    }

    #[inline(always)]
    fn run(
        connection: &mut Connection<Self>,
        core: &mut Core,
        task: Task<ScsiWork>,
        event: CommandEvent,
    ) {
        connection.run_command(core, task, event);
    }

    fn run_waiting(connection: &mut Connection<Self>, core: &mut Core) -> bool {
        connection.run_ordering(core)
    }

    fn retry_memory(connection: &mut Connection<Self>, _core: &mut Core, task: Task<ScsiWork>) {
        // Commands without memory for their data are refused instead.
        connection.tasks.park(task);
    }

    #[inline]
    fn task_ended(connection: &mut Connection<Self>, work: &ScsiWork) {
        let protocol = &mut connection.protocol;
        if protocol.ordered > 0 {
            protocol.ordered -= usize::from(work.ordered);
            protocol.order_changed = true;
        }
    }

    fn is_quiet(&self) -> bool {
        self.management.is_empty()
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
            Note::PreemptedTasksAborted { task, aborted } => {
                connection.preempted_tasks_aborted(core, task, &aborted);
            }
            Note::ManagementDone { request, aborted } => {
                connection.management_done(core, request, &aborted);
            }
            Note::TargetReset(target) => {
                let session = connection.protocol.session.as_ref();
                if session.is_some_and(|session| session.target == Some(target)) {
                    connection.begin_close(CloseReason::Logout);
                }
            }
            Note::StoreIsFree { .. }
            | Note::ControllerEvents
            | Note::AbortCommand { .. }
            | Note::CommandAborted { .. } => {}
        }
    }

    fn begin_drain(connection: &mut Connection<Self>, core: &mut Core) -> bool {
        let session = connection.protocol.session.as_ref();
        if session.is_none_or(|session| session.target.is_none()) {
            return false;
        }
        let transmit = &mut connection.channel.transmit;
        let machine = &mut connection.protocol.machine;
        machine.request_logout(transmit, core.now_ms);
        true
    }

    fn announce_drop(connection: &mut Connection<Self>, _core: &mut Core) {
        if !connection.channel.is_closing() {
            let transmit = &mut connection.channel.transmit;
            connection.protocol.machine.announce_drop(transmit);
            connection.begin_close(CloseReason::LogoutTimeout);
        }
    }

    fn tear_down(connection: &mut Connection<Self>, core: &mut Core) {
        connection.abandon_management(core);
        let slots: Vec<u32> = connection.tasks.iter().map(|t| t.address.slot).collect();
        for slot in slots {
            connection.end_task(core, slot, None);
        }
        if let Some(session) = connection.protocol.session.take() {
            session.end(&core.shared.exports);
            let sessions = &core.shared.sessions;
            sessions.leave(session.ticket.tsih, connection.channel.migration.name);
        } else {
            core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Connection<Iscsi> {
    /// Stops receiving; the rest is sent.
    fn begin_close(&mut self, reason: CloseReason) {
        // After a logout the initiator sends no more.
        if !self.channel.close(!matches!(reason, CloseReason::Logout)) {
            return;
        }
        let peer = self.channel.peer;
        let machine = &self.protocol.machine;
        if let Some(session) = machine.session() {
            let initiator = session.initiator_name.as_str();
            let target = session.target_name.as_ref().map(|name| name.as_str());
            match reason {
                CloseReason::Logout => tracing::info!(%peer, initiator, target, "logged out"),
                _ => tracing::warn!(%peer, initiator, target, %reason, "closing connection"),
            }
            return;
        }
        // Nothing of it has been checked, which is why it was refused.
        let claims = machine.claims().cloned().unwrap_or_default();
        let (initiator, target, user) = (claims.initiator, claims.target, claims.user);
        let status = match &reason {
            CloseReason::LoginRefused(error) => Some(error.status()),
            CloseReason::LoginsRefused(status) => Some(*status),
            _ => None,
        };
        match status {
            // Where a target has moved to is an answer, no refusal.
            Some(status) if status.is_redirection() => {
                tracing::info!(%peer, initiator, target, %status, "login redirected");
            }
            Some(status) => {
                let reason = explanation(&reason, status);
                tracing::warn!(%peer, initiator, user, target, %status, reason, "login rejected");
            }
            None => {
                tracing::warn!(%peer, initiator, user, target, %reason, "closing connection");
            }
        }
    }

    /// Feeds bytes to the machine and does what it says.
    fn process_input(&mut self, core: &mut Core, mut input: &[u8]) {
        let shared = Arc::clone(&core.shared);
        let reached: SocketAddr = self.channel.reached;
        let portal = self.channel.portal;
        let mut established = None;
        let mut directory = ConnectionDirectory {
            shared: &shared,
            connection: self.channel.migration.name,
            post: &shared.posts[core.shard],
            reached,
            portal,
            portal_group_tag: shared.exports.portals[portal].portal_group_tag,
            closing: shared.closing.load(Ordering::Relaxed),
            established: &mut established,
        };
        loop {
            let transmit = &mut self.channel.transmit;
            let machine = &mut self.protocol.machine;
            let event = machine.next(&mut input, &mut directory, transmit, core.now_ms);
            match event {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::Established => {
                    self.established(core, directory.established.take());
                    if self.protocol.held && !input.is_empty() {
                        // It could not know yet that it is logged in, and what it sent must not run
                        // before the session it takes the place of has ended.
                        let early = "commands before the login response";
                        self.begin_close(CloseReason::ProtocolError(early));
                        break;
                    }
                }
                ConnectionEvent::Command(command) => {
                    self.channel.request_read(&mut core.counters);
                    match self.run_fast(core, &shared, &command, &mut input) {
                        FastPath::Done => {}
                        FastPath::Task(begun) => self.start_command(core, &command, begun),
                    }
                    self.respond(core);
                }
                ConnectionEvent::DataOut {
                    task,
                    buffer_offset,
                    bytes,
                } => {
                    self.place(core, task.0, buffer_offset, &bytes);
                }
                ConnectionEvent::DataOutComplete { task } => {
                    self.data_out_complete(core, task);
                    self.respond(core);
                }
                ConnectionEvent::DataOutFailed { task, failure } => {
                    self.data_out_failed(core, task, failure)
                }
                ConnectionEvent::TaskManagement(request) => self.task_management(core, request),
                ConnectionEvent::Close(reason) => {
                    self.begin_close(reason);
                    break;
                }
            }
        }
        // A login that took the place of a session and then failed leaves a session behind that
        // nobody uses.
        if let Some(unused) = established {
            shared
                .sessions
                .leave(unused.ticket.tsih, self.channel.migration.name);
        }
    }

    fn established(&mut self, core: &mut Core, established: Option<EstablishedSession>) {
        let established = established.expect("a login that succeeds has established its session");
        let peer = self.channel.peer;
        let parameters = self.protocol.machine.session().expect("the login is over");
        tracing::info!(
            %peer,
            initiator = %parameters.initiator_name.as_str(),
            target = parameters.target_name.as_ref().map(|name| name.as_str()),
            discovery = parameters.session_type == SessionType::Discovery,
            tsih = parameters.tsih.0,
            "logged in"
        );
        tracing::debug!(%peer, parameters = ?parameters.operational, "negotiated");
        core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
        let holder = Holder::Initiator(parameters.initiator_name.as_str().to_owned());
        self.stake.belongs_to(core.shared.shares.of(holder));
        self.protocol.held = established.ticket.must_wait;
        self.protocol.session = Some(Session::begin(
            &core.shared.exports,
            established,
            parameters,
        ));
    }

    fn data_out_failed(&mut self, core: &mut Core, task: TaskId, failure: DataOutFailure) {
        if self.tasks.get_mut(task.0).is_some() && !self.is_receiving(task.0) {
            // A command that takes no data, and was sent some, is under way. Its own end answers it.
            return;
        }
        let sense = Sense::new(
            SenseKey::AbortedCommand,
            AdditionalSense {
                asc: failure.asc,
                ascq: failure.ascq,
            },
        );
        match self.tasks.take(task.0) {
            Some(task) => self.finish(core, task, ScsiCompletion::check_condition(sense)),
            None => {
                let sense = ScsiCompletion::check_condition(sense);
                let bytes = sense.sense_bytes();
                let completion = Completion {
                    status: sense.status.0,
                    sense: bytes.as_ref().map_or(&[], |bytes| bytes.as_ref()),
                    data_in: Payload::None,
                    scsi_length: 0,
                };
                let transmit = &mut self.channel.transmit;
                self.protocol.machine.complete(task, completion, transmit);
            }
        }
    }

    /// The tasks that a PREEMPT AND ABORT waits for are gone: whose they were learns of it, and the
    /// command goes on.
    fn preempted_tasks_aborted(
        &mut self,
        core: &mut Core,
        address: TaskAddress,
        aborted: &[Arc<dyn Participant>],
    ) {
        let task = self.tasks.iter().find(|task| task.address == address);
        if let Some(lun) = task.and_then(|task| self.protocol.luns().get(task.work.lun?)) {
            let unit = &core.shared.unit(lun.unit).logical_unit;
            unit.tasks_cleared_by(&lun.nexus, aborted);
        }
        self.resume(core, address, CommandEvent::TasksAborted);
    }

    /// Answers a task management request.
    fn answer_management(&mut self, id: TaskManagementId, result: TaskManagementResult) {
        let transmit = &mut self.channel.transmit;
        let machine = &mut self.protocol.machine;
        machine.task_management_done(id, result, transmit);
    }
}

/// Why a login was refused, and what to do for those who should be let in.
fn explanation(reason: &CloseReason, status: LoginStatus) -> String {
    match status {
        LoginStatus::AUTHORIZATION_FAILURE => {
            "no rule of the target names this initiator; add its name to one to let it in"
                .to_owned()
        }
        LoginStatus::NOT_FOUND => "there is no such target, or not at this portal".to_owned(),
        _ => reason.to_string(),
    }
}

/// A connection of an initiator.
pub(crate) fn connection(
    shared: &Shared,
    channel: Channel,
    now_ms: u64,
) -> std::io::Result<Connection<Iscsi>> {
    let protocol = Iscsi::new(shared, now_ms)?;
    Ok(Connection::new(channel, protocol, &shared.limits))
}
