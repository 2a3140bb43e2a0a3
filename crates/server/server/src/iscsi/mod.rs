//! iSCSI connections: the login, and the events of the iSCSI machine.

mod commands;
mod directory;
mod fast_path;
mod renewal;
mod session;
mod state;
mod task_management;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_block::reservation::Participant;
use longshore_iscsi::pdu::LoginStatus;
use longshore_iscsi::server::{
    CloseReason, Completion, ConnectionEvent, DataOutFailure, Payload, TaskId, TaskManagementId,
    TaskManagementResult,
};
use longshore_iscsi::session_parameters::SessionType;
use longshore_scsi::command::{CommandEvent, Completion as ScsiCompletion};
use longshore_scsi::sense::{AdditionalSense, Sense, SenseKey};

use self::directory::{ConnectionDirectory, EstablishedSession};
use self::session::Session;
use self::state::{Iscsi, ScsiWork};
use crate::address::TaskAddress;
use crate::connection::Connection;
use crate::connection::driven::{Handled, ShardEvent, State};
use crate::connection::export_user::ExportUser;
use crate::connection::protocol::{PayloadWanted, Protocol};
use crate::core::{Core, Shared};
use crate::counters::ProtocolKind;
use crate::counters::clients::{ClientCounters, Ending, Limit};
use crate::execute::medium::Retried;
use crate::execute::plain::FastPath;
use crate::execute::task::Task;
use crate::execute::tasks::Tasks;
use crate::mail::message::Note;
use crate::memory::share::Holder;
use crate::observe::sessions::{SessionId, SessionPart, SessionReport};
use crate::transport::channel::Channel;

impl Protocol for Iscsi {
    type Work = ScsiWork;
    const KIND: ProtocolKind = ProtocolKind::Iscsi;

    fn tasks(&self) -> &Tasks<ScsiWork> {
        &self.tasks
    }

    fn tasks_mut(&mut self) -> &mut Tasks<ScsiWork> {
        &mut self.tasks
    }

    fn state(&self) -> State {
        let session = self.session.as_ref();
        let has_target = session.is_some_and(|session| session.target.is_some());
        State {
            established: session.is_some(),
            is_load: true,
            may_move: has_target && !self.held && self.management.is_empty(),
            is_quiet: self.management.is_empty(),
        }
    }

    fn peer_name(&self) -> Option<&str> {
        let session = self.machine.session()?;
        Some(session.initiator_name.as_str())
    }

    fn receives(&self) -> bool {
        !self.held
    }

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
            self.run_in_order(core, channel, task);
            self.respond(core, channel);
            ran = true;
        }
        ran || self.run_ordering(core, channel)
    }

    fn handle(&mut self, core: &mut Core, channel: &mut Channel, event: ShardEvent<'_>) -> Handled {
        match event {
            ShardEvent::Retry(task) => {
                let machine = &mut self.machine;
                match self.tasks.retry(core, channel, machine, task) {
                    Retried::Runs(task, event) => self.run_command(core, channel, task, event),
                    // Commands without memory for their data are refused instead.
                    Retried::Memory(task) => self.tasks.park(task),
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
            }
            ShardEvent::Abort(order) => {
                if !self.obey_order(core, channel, order) {
                    return Handled::Nothing;
                }
            }
            ShardEvent::Note(note) => self.take_note(core, channel, note),
            ShardEvent::Close => {
                let transmit = &mut channel.transmit;
                self.machine.request_logout(transmit, core.now_ms);
            }
            ShardEvent::Drain => {
                let session = self.session.as_ref();
                if session.is_none_or(|session| session.target.is_none()) {
                    return Handled::Over;
                }
                let transmit = &mut channel.transmit;
                self.machine.request_logout(transmit, core.now_ms);
            }
            ShardEvent::Drop => {
                if !channel.is_closing() {
                    self.machine.announce_drop(&mut channel.transmit);
                    self.begin_close(core, channel, CloseReason::LogoutTimeout);
                }
            }
            ShardEvent::Exports => self.renew_session(core, channel),
            ShardEvent::Removed(unit) => self.end_uses(core, channel, unit),
            ShardEvent::Stalled { .. } => {}
        }
        Handled::Changed
    }

    fn resume(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: Task<ScsiWork>,
        event: CommandEvent,
    ) {
        self.run_command(core, channel, task, event);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.machine.next_deadline_ms()
    }

    fn tear_down(&mut self, core: &mut Core, channel: &mut Channel) {
        self.abandon_management(core);
        let slots: Vec<u32> = self.tasks.iter().map(|t| t.address.slot).collect();
        for slot in slots {
            self.end_task(core, channel, slot, None);
        }
        if let Some(session) = self.session.take() {
            session.end(&core.view.exports);
            let clients = &core.shared.clients;
            clients.ended(ProtocolKind::Iscsi, channel.ending());
            let sessions = &core.shared.sessions;
            sessions.leave(session.ticket.tsih, channel.migration.name);
        } else {
            core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl ExportUser for Iscsi {
    fn knows_exports(&self, revision: u64) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|session| session.revision >= revision)
    }

    fn mapped(&self) -> usize {
        self.luns().len()
    }

    fn settle(&mut self, core: &mut Core) -> bool {
        !self.forget_gone(core)
    }

    fn uses(&self, unit: usize) -> usize {
        Self::uses(self, unit)
    }

    fn session_id(&self) -> Option<SessionId> {
        self.session.as_ref().map(|session| session.id)
    }

    fn session(&self, core: &Core, channel: &Channel) -> Option<SessionPart> {
        let (session, parameters) = (self.session.as_ref()?, self.machine.session()?);
        let target = parameters.target_name.as_ref();
        let age_ms = core.now_ms.saturating_sub(session.since_ms);
        let report = SessionReport {
            id: session.id,
            protocol: Iscsi::KIND,
            number: parameters.tsih.0,
            name: parameters.initiator_name.as_str().to_owned(),
            exporter: target.map(|name| name.as_str().to_owned()),
            peers: vec![channel.socket.peer],
            age: Duration::from_millis(age_ms),
            volumes: session.volumes(&core.view.exports),
        };
        Some(SessionPart {
            main: channel.migration.name,
            peer: channel.socket.peer,
            report: Some(Box::new(report)),
        })
    }
}

impl Iscsi {
    fn take_note(&mut self, core: &mut Core, channel: &mut Channel, note: Note) {
        match note {
            Note::PredecessorsEnded => self.held = false,
            Note::Persisted { task, stored } => {
                self.resume(core, channel, task, CommandEvent::Persisted(stored));
            }
            Note::PreemptedTasksAborted { task, aborted } => {
                self.preempted_tasks_aborted(core, channel, task, &aborted);
            }
            Note::ManagementDone { request, aborted } => {
                self.management_done(core, channel, request, &aborted);
            }
            Note::TargetReset(target) => {
                let session = self.session.as_ref();
                if session.is_some_and(|session| session.target == Some(target)) {
                    self.begin_close(core, channel, CloseReason::Logout);
                }
            }
            Note::StoreIsFree { .. }
            | Note::Computed { .. }
            | Note::ControllerEvents
            | Note::Dismissed
            | Note::AbortCommand { .. }
            | Note::CommandAborted { .. } => {}
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

    /// Stops receiving; the rest is sent.
    fn begin_close(&mut self, core: &Core, channel: &mut Channel, reason: CloseReason) {
        // After a logout the initiator sends no more.
        let is_logout = matches!(reason, CloseReason::Logout);
        if !channel.close(!is_logout) {
            return;
        }
        channel.ends_by(match is_logout {
            true => Ending::Logout,
            false => Ending::Error,
        });
        let peer = channel.socket.peer;
        let machine = &self.machine;
        if let Some(session) = machine.session() {
            let initiator = session.initiator_name.as_str();
            let target = session.target_name.as_ref().map(|name| name.as_str());
            match reason {
                CloseReason::Logout => tracing::info!(%peer, initiator, target, "logged out"),
                CloseReason::LoginRefused(_)
                | CloseReason::LoginsRefused(_)
                | CloseReason::LoginTimeout
                | CloseReason::ProtocolError(_)
                | CloseReason::HeaderDigestError
                | CloseReason::NopTimeout
                | CloseReason::LogoutTimeout => {
                    tracing::warn!(%peer, initiator, target, %reason, "closing connection")
                }
            }
            return;
        }
        // Nothing of it has been checked, which is why it was refused.
        let claims = machine.claims().cloned().unwrap_or_default();
        let (initiator, target, user) = (claims.initiator, claims.target, claims.user);
        let status = match &reason {
            CloseReason::LoginRefused(error) => Some(error.status()),
            CloseReason::LoginsRefused(status) => Some(*status),
            CloseReason::Logout
            | CloseReason::LoginTimeout
            | CloseReason::ProtocolError(_)
            | CloseReason::HeaderDigestError
            | CloseReason::NopTimeout
            | CloseReason::LogoutTimeout => None,
        };
        count_failure(&core.shared.clients, status);
        if let CloseReason::LoginRefused(error) = &reason
            && error.is_wrong_proof()
            && let Some(initiator) = &initiator
            && let Some(pause) = core
                .shared
                .attempts
                .failed(peer.ip(), initiator, core.now_ms)
        {
            let seconds = pause.as_secs();
            tracing::warn!(%peer, initiator, seconds, "too many wrong CHAP responses; refusing logins for a while");
        }
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
    fn process_input(&mut self, core: &mut Core, channel: &mut Channel, mut input: &[u8]) {
        let view = Arc::clone(&core.view);
        let (shared, exports) = (&*view.shared, &view.exports);
        let reached: SocketAddr = channel.socket.reached;
        let portal = channel.socket.portal;
        let mut established = None;
        let mut directory = ConnectionDirectory {
            shared,
            exports,
            connection: channel.migration.name,
            post: &shared.posts[core.shard],
            peer: channel.socket.peer.ip(),
            now_ms: core.now_ms,
            reached,
            portal,
            portal_group_tag: exports.portal(portal).portal_group_tag,
            closing: shared.closing.load(Ordering::Relaxed),
            established: &mut established,
        };
        loop {
            let transmit = &mut channel.transmit;
            let machine = &mut self.machine;
            let event = machine.next(&mut input, &mut directory, transmit, core.now_ms);
            match event {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::Established => {
                    self.established(core, channel, directory.established.take());
                    if self.held && !input.is_empty() {
                        // It could not know yet that it is logged in, and what it sent must not run
                        // before the session it takes the place of has ended.
                        let early = "commands before the login response";
                        self.begin_close(core, channel, CloseReason::ProtocolError(early));
                        break;
                    }
                }
                ConnectionEvent::Command(command) => {
                    channel.request_read(&mut core.counters);
                    match self.run_fast(core, channel, exports, &command, &mut input) {
                        FastPath::Done => {}
                        FastPath::Task(begun) => self.start_command(core, channel, &command, begun),
                    }
                    self.respond(core, channel);
                }
                ConnectionEvent::DataOut {
                    task,
                    buffer_offset,
                    bytes,
                } => {
                    self.tasks
                        .place(core, channel, task.0, buffer_offset, &bytes);
                }
                ConnectionEvent::DataOutComplete { task } => {
                    self.data_out_complete(core, channel, task);
                    self.respond(core, channel);
                }
                ConnectionEvent::DataOutFailed { task, failure } => {
                    self.data_out_failed(core, channel, task, failure)
                }
                ConnectionEvent::TaskManagement(request) => {
                    self.task_management(core, channel, request)
                }
                ConnectionEvent::Close(reason) => {
                    self.begin_close(core, channel, reason);
                    break;
                }
            }
        }
        // A login that took the place of a session and then failed leaves a session behind that
        // nobody uses.
        if let Some(unused) = established {
            shared
                .sessions
                .leave(unused.ticket.tsih, channel.migration.name);
        }
    }

    fn established(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        established: Option<EstablishedSession>,
    ) {
        let established = established.expect("a login that succeeds has established its session");
        let peer = channel.socket.peer;
        let parameters = self.machine.session().expect("the login is over");
        tracing::info!(
            %peer,
            initiator = %parameters.initiator_name.as_str(),
            target = parameters.target_name.as_ref().map(|name| name.as_str()),
            discovery = parameters.session_type == SessionType::Discovery,
            tsih = parameters.tsih.0,
            "logged in"
        );
        core.shared.clients.logged_in(ProtocolKind::Iscsi);
        tracing::debug!(%peer, parameters = ?parameters.operational, "negotiated");
        core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
        let holder = Holder::Initiator(parameters.initiator_name.as_str().to_owned());
        self.tasks
            .holdings
            .belongs_to(core.shared.shares.of(holder));
        self.held = established.ticket.must_wait;
        self.session = Some(Session::begin(
            &core.view.exports,
            established,
            parameters,
            (core.shared.next_session(), core.now_ms),
        ));
    }

    fn data_out_failed(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: TaskId,
        failure: DataOutFailure,
    ) {
        if self.tasks.get_mut(task.0).is_some() && !self.tasks.is_receiving(task.0) {
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
            Some(task) => self.finish(core, channel, task, ScsiCompletion::check_condition(sense)),
            None => {
                let sense = ScsiCompletion::check_condition(sense);
                let bytes = sense.sense_bytes();
                let completion = Completion {
                    status: sense.status.0,
                    sense: bytes.as_ref().map_or(&[], |bytes| bytes.as_ref()),
                    data_in: Payload::None,
                    scsi_length: 0,
                };
                let transmit = &mut channel.transmit;
                self.machine.complete(task, completion, transmit);
            }
        }
    }

    /// The tasks that a PREEMPT AND ABORT waits for are gone: whose they were learns of it, and the
    /// command goes on.
    fn preempted_tasks_aborted(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        address: TaskAddress,
        aborted: &[Arc<dyn Participant>],
    ) {
        let task = self.tasks.iter().find(|task| task.address == address);
        if let Some(lun) = task.and_then(|task| self.luns().get(task.work.lun?)) {
            let unit = &core.unit(lun.unit).logical_unit;
            unit.tasks_cleared_by(&lun.nexus, aborted);
        }
        self.resume(core, channel, address, CommandEvent::TasksAborted);
    }

    /// Answers a task management request.
    fn answer_management(
        &mut self,
        channel: &mut Channel,
        id: TaskManagementId,
        result: TaskManagementResult,
    ) {
        let transmit = &mut channel.transmit;
        let machine = &mut self.machine;
        machine.task_management_done(id, result, transmit);
    }
}

/// A login was refused with this status, or went wrong.
fn count_failure(clients: &ClientCounters, status: Option<LoginStatus>) {
    // Where a target has moved to is an answer, no refusal.
    if !status.is_some_and(LoginStatus::is_redirection) {
        clients.login_failed(ProtocolKind::Iscsi);
    }
    if status == Some(LoginStatus::OUT_OF_RESOURCES) {
        clients.reached(Limit::Sessions);
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
    Ok(Connection::new(channel, protocol))
}
