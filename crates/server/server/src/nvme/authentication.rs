//! Hosts that prove who they are (DH-HMAC-CHAP): Authentication Send and Authentication Receive.
//!
//! Each queue authenticates by itself. Before it has, when it must, nothing else is done on it, and it has as much time as
//! for a login. Until then it counts as a login that is pending. Later it may authenticate again, while its commands go on,
//! within the same time; if that fails, the queue is closed: once the host has read why, or a little later.
//!
//! Wrong proofs make a host wait, longer and longer ([`attempts`](crate::sessions::attempts)). Meanwhile it is told to try
//! again: whether its next proof would be right does not show.

use std::sync::atomic::Ordering;

use longshore_nvme::auth::{
    self, AuthenticationCommand, Computed, Failure, RECEIVE_LENGTH, Received, SEND_LENGTH_MAX, Sent,
};
use longshore_nvme::command::SubmissionEntry;
use longshore_nvme::controller::Association;
use longshore_nvme::opcode::{FABRICS, fabrics};
use longshore_nvme::status::Status;

use super::state::{Authentication, Nvme, Queue, Task};
use crate::address::TaskAddress;
use crate::computations::Urgency;
use crate::core::Core;
use crate::counters::ProtocolKind;
use crate::counters::clients::{Ending, Limit};
use crate::execute::task::TaskState;
use crate::transport::channel::Channel;

/// Whether a command is one of authentication.
pub(super) fn is_authentication(entry: &SubmissionEntry) -> bool {
    let kinds = [
        fabrics::AUTHENTICATION_SEND,
        fabrics::AUTHENTICATION_RECEIVE,
    ];
    entry.opcode() == FABRICS && kinds.contains(&entry.fabrics_type())
}

/// How long a queue is open after its authentication has failed, for the host to read that.
const FAILURE_READ_MS: u64 = 2000;

fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel gives random bytes");
}

impl Nvme {
    /// A queue is connected: its host authenticates if there are credentials for it, and has to if they say so.
    pub(super) fn may_authenticate(
        &mut self,
        core: &Core,
        channel: &Channel,
        association: &Association,
    ) {
        if association.credentials.is_none() {
            return self.let_in(core, channel);
        }
        let machine = auth::Controller::new(association.controller.parties());
        let machine = machine.over(association.channel);
        self.authentication = Some(Box::new(Authentication {
            machine,
            deadline_ms: association.must_authenticate.then(|| deadline_ms(core)),
            awaited: None,
            has_failed: false,
        }));
        if association.must_authenticate {
            let queue = std::mem::replace(&mut self.queue, Queue::Fresh);
            self.queue = Queue::Unproved(Box::new(queue));
        } else {
            self.let_in(core, channel);
        }
    }

    /// The host of a queue has proved who it is, or need not.
    fn let_in(&self, core: &Core, channel: &Channel) {
        core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
        let Some(controller) = self.controller() else {
            return;
        };
        let (peer, host) = (channel.socket.peer, controller.host_nqn());
        let number = controller.id();
        if self.is_admin_queue() {
            core.shared.clients.logged_in(ProtocolKind::NvmeTcp);
            let subsystem = controller.subsystem_nqn();
            tracing::info!(%peer, %host, %subsystem, controller = number, "NVMe host connected");
        } else {
            tracing::debug!(%peer, %host, controller = number, "NVMe queue can be used");
        }
    }

    /// Whether it is the admin queue of a controller, proved or not.
    pub(super) fn is_admin_queue(&self) -> bool {
        match &self.queue {
            Queue::Unproved(queue) => matches!(**queue, Queue::Admin(_)),
            Queue::Admin(_) => true,
            Queue::Fresh | Queue::Io(_) | Queue::Left(_) => false,
        }
    }

    /// Carries out Authentication Send or Receive, whose data are here.
    pub(super) fn authenticate(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut task: Task,
        entry: &SubmissionEntry,
    ) {
        let controller = self.controller().cloned();
        let Some((authentication, controller)) = self.authentication.as_mut().zip(controller)
        else {
            return self.finish_status(core, channel, task, Status::INVALID_COMMAND_OPCODE);
        };
        if let Queue::Admin(_) = &self.queue {
            controller.note_activity(0);
        }
        let length = match AuthenticationCommand::decode(entry) {
            Ok(command) => command.length,
            Err(status) => return self.finish_status(core, channel, task, status),
        };
        if entry.fabrics_type() == fabrics::AUTHENTICATION_RECEIVE {
            if length.min(RECEIVE_LENGTH) > entry.sgl().length() {
                let status = Status::DATA_SGL_LENGTH_INVALID.do_not_retry();
                return self.finish_status(core, channel, task, status);
            }
            let received = authentication
                .machine
                .receive(length, &mut task.parameter_data);
            return self.take_received(core, channel, task, received, length);
        }
        let urgency = match authentication.machine.is_authenticated() {
            true => Urgency::Proved,
            false => Urgency::Unproved,
        };
        let data = task.data_out.as_deref().unwrap_or_default();
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(data) = data.get(..wanted).filter(|_| length <= SEND_LENGTH_MAX) else {
            let status = Status::INVALID_FIELD.do_not_retry();
            return self.finish_status(core, channel, task, status);
        };
        let Some(credentials) = controller.credentials() else {
            // It was configured when the queue was connected, and is not any more.
            let status = Status::INVALID_COMMAND_OPCODE.do_not_retry();
            return self.finish_status(core, channel, task, status);
        };
        let (peer, host) = (channel.socket.peer.ip(), controller.host_nqn().as_str());
        if urgency == Urgency::Unproved && !core.shared.attempts.may_try(peer, host, core.now_ms) {
            core.shared.clients.reached(Limit::LoginAttempts);
            return self.finish_status(core, channel, task, Status::COMMAND_INTERRUPTED);
        }
        match authentication.machine.send(data, &credentials, &mut random) {
            Sent::Taken => {
                self.goes_on(core, channel);
                self.finish_status(core, channel, task, Status::SUCCESS);
            }
            Sent::Authenticated => {
                self.authenticated(core, channel);
                self.finish_status(core, channel, task, Status::SUCCESS);
            }
            Sent::Compute(computation) => {
                let (post, address) = (core.post().clone(), task.address);
                let computations = &core.shared.computations;
                match computations.begin(
                    computation,
                    address,
                    post,
                    (channel.socket.peer.ip(), urgency),
                ) {
                    Some(place) => {
                        authentication.awaited = Some(place);
                        self.goes_on(core, channel);
                        task.state = TaskState::Elsewhere;
                        self.tasks.park(task);
                    }
                    // The host may send it again.
                    None => {
                        authentication.machine.postponed();
                        self.finish_status(core, channel, task, Status::COMMAND_INTERRUPTED);
                    }
                }
            }
            Sent::GivenUp(failure) => {
                self.finish_status(core, channel, task, Status::SUCCESS);
                self.not_authenticated(core, channel, "the host gave up", failure);
                channel.close(true);
            }
            Sent::Refused(status) => self.finish_status(core, channel, task, status),
        }
    }

    /// What an Authentication Send has waited for is computed.
    pub(super) fn computed(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        task: TaskAddress,
        value: Computed,
    ) {
        if let Some(authentication) = &mut self.authentication {
            authentication.awaited = None;
            authentication.machine.computed(value);
            self.goes_on(core, channel);
        }
        let Some(task) = self.tasks.take_elsewhere(task) else {
            return;
        };
        let status = match &task.work.aborted {
            Some(aborted) => aborted.status,
            None => Status::SUCCESS,
        };
        self.finish_status(core, channel, task, status);
    }

    fn take_received(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        mut task: Task,
        received: Result<Received, Status>,
        length: u32,
    ) {
        let received = match received {
            Ok(received) => received,
            Err(status) => return self.finish_status(core, channel, task, status),
        };
        let length = usize::try_from(length.min(RECEIVE_LENGTH)).unwrap_or(usize::MAX);
        task.parameter_data.resize(length, 0);
        if received == Received::Authenticated {
            self.authenticated(core, channel);
        }
        self.finish_status(core, channel, task, Status::SUCCESS);
        if let Received::Failed(_) = received {
            channel.close(true);
        }
    }

    /// A message of the host was taken: the transaction has an end, and may have failed.
    fn goes_on(&mut self, core: &Core, channel: &mut Channel) {
        let Some(authentication) = &mut self.authentication else {
            return;
        };
        authentication
            .deadline_ms
            .get_or_insert_with(|| deadline_ms(core));
        if let Some(failure) = authentication.machine.failure()
            && !authentication.has_failed
        {
            authentication.deadline_ms = Some(core.now_ms.saturating_add(FAILURE_READ_MS));
            if failure == Failure::FAILED {
                self.note_wrong_proof(core, channel);
            }
            self.not_authenticated(core, channel, "the host has not proved who it is", failure);
        }
    }

    /// What the host has proved is wrong: it may have to wait before it tries again.
    fn note_wrong_proof(&self, core: &Core, channel: &Channel) {
        let Some(controller) = self.controller() else {
            return;
        };
        let (peer, host) = (channel.socket.peer, controller.host_nqn());
        let attempts = &core.shared.attempts;
        if let Some(pause) = attempts.failed(peer.ip(), host.as_str(), core.now_ms) {
            let seconds = pause.as_secs();
            tracing::warn!(%peer, %host, seconds, "too many wrong proofs; refusing authentication for a while");
        }
    }

    /// The host has proved who it is: the queue is what it was connected as.
    fn authenticated(&mut self, core: &Core, channel: &Channel) {
        let made = self.authentication.as_mut().and_then(|authentication| {
            authentication.deadline_ms = None;
            authentication.machine.take_generated()
        });
        if let (Some(made), Some(controller)) = (made, self.controller()) {
            // Before the host learns that it has proved itself: it may come with the key at once.
            controller.keep_generated(made);
        }
        let was_unproved = matches!(self.queue, Queue::Unproved(_));
        self.queue = std::mem::replace(&mut self.queue, Queue::Fresh).proved();
        // What changed meanwhile was for queues that can be used.
        self.renew_queue();
        if was_unproved {
            self.let_in(core, channel);
        }
        let peer = channel.socket.peer;
        if let Some(controller) = self.controller() {
            let (host, subsystem) = (controller.host_nqn(), controller.subsystem_nqn());
            let attempts = &core.shared.attempts;
            attempts.succeeded(peer.ip(), host.as_str(), core.now_ms);
            let again = !was_unproved;
            tracing::debug!(%peer, %host, %subsystem, again, "NVMe host authenticated");
        }
    }

    /// The queue is about to end.
    fn not_authenticated(
        &mut self,
        core: &Core,
        channel: &mut Channel,
        why: &'static str,
        failure: Failure,
    ) {
        if let Some(authentication) = &mut self.authentication {
            authentication.has_failed = true;
        }
        core.shared.clients.login_failed(ProtocolKind::NvmeTcp);
        let peer = channel.socket.peer;
        let controller = self.controller();
        let host = controller.map(|controller| controller.host_nqn().to_string());
        let subsystem = controller.map(|controller| controller.subsystem_nqn().to_string());
        let reason = failure.text();
        tracing::warn!(%peer, host, subsystem, reason, "NVMe authentication failed: {why}");
        channel.ends_by(Ending::Error);
    }

    /// Until when the host has to authenticate.
    pub(super) fn authentication_deadline_ms(&self) -> Option<u64> {
        self.authentication.as_ref()?.deadline_ms
    }

    /// Ends a queue whose host takes too long to authenticate.
    pub(super) fn look_at_authentication(&self, core: &Core, channel: &mut Channel) {
        let deadline = self.authentication_deadline_ms();
        let has_failed = self.authentication.as_ref().is_some_and(|it| it.has_failed);
        if deadline.is_some_and(|at| core.now_ms >= at) && channel.close(false) && !has_failed {
            core.shared.clients.login_failed(ProtocolKind::NvmeTcp);
            channel.ends_by(Ending::Error);
            let peer = channel.socket.peer;
            let host = self.controller().map(|known| known.host_nqn().to_string());
            tracing::warn!(%peer, host, "the host has not authenticated in time; closing NVMe queue");
        }
    }
}

/// Until when a host has to authenticate that begins now.
fn deadline_ms(core: &Core) -> u64 {
    let limit = core.shared.limits.login_timeout.as_millis();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    core.now_ms.saturating_add(limit)
}
