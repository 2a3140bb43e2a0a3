//! Controllers: what a host talks to once its queues are connected.
//!
//! ```text
//! Connect ─► Subsystems::connect ─► Association { controller, queue id }
//!                                        │
//!            admin queue: Controller::admin, poll_events, next_deadline_ms, handle_deadline
//!            I/O queues:  Controller::namespaces (once), is_enabled, note_activity (each command)
//!            both:        Controller::queue_closed
//! ```
//!
//! - [`access`]: which hosts see what; [`namespace`]: what all controllers share of a volume;
//! - `subsystem`: the registry of subsystems and controllers; `connect`: the Connect command;
//! - `properties`: CAP, VS, CC, CSTS and what setting them does;
//! - `identify`, `log_page`, `features`, `async_events`, `keep_alive`: the admin commands;
//! - [`discovery`]: entries of the discovery log page.
//!
//! Everything is NVMe base 2.0 and its fabrics chapters, dynamic controller model only. Nothing here
//! does I/O or knows the time: the driver passes milliseconds of any steady clock.
//!
//! Locks: a controller has one, taken by admin commands, events and timers. What I/O queues ask of a
//! controller is answered by atomics.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::command::{CommandId, NamespaceId, SubmissionEntry};
use crate::io::limits;
use crate::nqn::Nqn;
use crate::opcode::{self, Direction, admin, fabrics};
use crate::reservation::NotificationLog;
use crate::status::Status;

pub mod access;
mod async_events;
mod claims;
mod connect;
pub mod discovery;
mod environment;
mod failure;
mod features;
mod identify;
mod keep_alive;
mod log_page;
pub mod namespace;
mod properties;
mod subsystem;
mod transfer;

#[cfg(test)]
mod tests;

pub use access::{HostAccess, HostRule, NamespaceGrant};
pub use async_events::AsyncCompletion;
pub use claims::Claims;
pub use connect::{Association, CONNECT_DATA_LENGTH, Refusal};
pub use discovery::{DiscoveryEntry, SubsystemType};
pub use environment::{Environment, Health, Statistics};
pub use keep_alive::Deadline;
pub use log_page::ErrorRecord;
pub use namespace::{AttachedNamespace, Namespace, NamespaceParameters};
pub use subsystem::{ControllerLimits, NamespaceConfig, Notify, SubsystemConfig, Subsystems};
pub use transfer::AdminTransfer;

use async_events::{AsyncEvent, AsyncEvents};
use failure::Failure;
use features::Features;
use keep_alive::{Activity, KeepAlive};
use log_page::ErrorLog;
use properties::Properties;
use subsystem::Subsystem;

/// The driver's name for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueHandle(pub u128);

/// What the driver does after an admin command. Whatever it is, [`Controller::poll_events`] may have
/// something afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminOutcome {
    /// Completes the command; data for the host has been appended.
    Complete {
        /// How it ended.
        status: Status,
        /// Dwords 0 and 1 of the completion.
        result: u64,
    },
    /// An Asynchronous Event Request is outstanding until [`Controller::poll_events`] names it.
    AsyncEvent,
    /// Looks for a command and aborts it if it has not begun; completes with result 0 if it was
    /// aborted, and 1 if not.
    Abort {
        /// Connection of the queue.
        queue: QueueHandle,
        /// SQID.
        queue_id: u16,
        /// CID.
        command: CommandId,
    },
    /// A controller reset, or a shutdown that has nothing to write back: completes the command with
    /// success, and closes the connections.
    CloseQueues {
        /// I/O queues.
        queues: Vec<QueueHandle>,
    },
    /// A shutdown while volatile caches may hold data: completes the command with success, closes the
    /// connections, flushes the volumes of [`Controller::namespaces`] (nothing that was not completed
    /// by now needs to be in it) and then calls [`Controller::shutdown_finished`], for which the host
    /// waits.
    ShutDown {
        /// I/O queues.
        queues: Vec<QueueHandle>,
    },
    /// Of an I/O queue: completes with success, then closes this connection.
    Disconnect,
}

/// A controller: made by Connect of an admin queue, gone with it.
pub struct Controller {
    id: u16,
    subsystem: Arc<Subsystem>,
    host_nqn: Nqn,
    host_identifier: [u8; 16],
    admin_queue: QueueHandle,
    namespaces: Arc<[AttachedNamespace]>,
    /// CC.EN and CSTS.RDY, and neither shut down nor failed.
    enabled: AtomicBool,
    /// ACRE of Host Behavior Support.
    advanced_retry: AtomicBool,
    /// One for each possible queue.
    activity: Box<[Activity]>,
    /// Notifications that the host has not read.
    reservations: Arc<NotificationLog>,
    state: Mutex<State>,
}

/// What the lock of a controller protects.
#[derive(Debug)]
struct State {
    properties: Properties,
    keep_alive: KeepAlive,
    events: AsyncEvents,
    /// Of the changed namespace list log page.
    changed_namespaces: BTreeSet<NamespaceId>,
    features: Features,
    errors: ErrorLog,
    /// I/O queues by their identifiers less one.
    io_queues: Vec<Option<QueueHandle>>,
    /// The admin queue is gone.
    closed: bool,
}

impl State {
    fn open_io_queues(&self) -> Vec<QueueHandle> {
        self.io_queues.iter().flatten().copied().collect()
    }
}

/// An admin command in progress.
struct Request<'a> {
    entry: &'a SubmissionEntry,
    data: &'a [u8],
    out: &'a mut Vec<u8>,
    environment: &'a dyn Environment,
    now_ms: u64,
}

impl Request<'_> {
    /// Data of the host, all of it.
    fn data<const N: usize>(&self) -> Result<&[u8; N], Failure> {
        self.data
            .first_chunk()
            .ok_or_else(|| Failure::of(Status::DATA_SGL_LENGTH_INVALID))
    }
}

/// ANAGRPID of all namespaces.
const ANA_GROUP: u32 = 1;

/// Success without a result.
const DONE: AdminOutcome = AdminOutcome::Complete {
    status: Status::SUCCESS,
    result: 0,
};

const fn done(result: u64) -> AdminOutcome {
    AdminOutcome::Complete {
        status: Status::SUCCESS,
        result,
    }
}

impl Controller {
    /// CNTLID.
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// HOSTNQN.
    #[must_use]
    pub const fn host_nqn(&self) -> &Nqn {
        &self.host_nqn
    }

    /// HOSTID.
    #[must_use]
    pub const fn host_identifier(&self) -> &[u8; 16] {
        &self.host_identifier
    }

    /// The subsystem it is part of.
    #[must_use]
    pub fn subsystem_nqn(&self) -> &Nqn {
        &self.subsystem.nqn
    }

    /// Whether it is one of discovery: no namespaces, no I/O queues.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.subsystem.is_discovery
    }

    /// Connection of its admin queue.
    #[must_use]
    pub const fn admin_queue(&self) -> QueueHandle {
        self.admin_queue
    }

    /// What its host sees, in the order of identifiers.
    #[must_use]
    pub fn namespaces(&self) -> Arc<[AttachedNamespace]> {
        Arc::clone(&self.namespaces)
    }

    /// Whether commands of I/O queues are taken; they are COMMAND SEQUENCE ERROR otherwise.
    #[inline]
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Whether the host understands retry delays (CRD of a status).
    #[inline]
    #[must_use]
    pub fn has_advanced_retry(&self) -> bool {
        self.advanced_retry.load(Ordering::Relaxed)
    }

    /// A command arrived on a queue: the host is alive (CTRATT.TBKAS).
    #[inline]
    pub fn note_activity(&self, queue_id: u16) {
        if let Some(activity) = self.activity.get(usize::from(queue_id)) {
            activity.note();
        }
    }

    /// Connections of its I/O queues.
    #[must_use]
    pub fn io_queues(&self) -> Vec<QueueHandle> {
        self.lock().open_io_queues()
    }

    /// A command of the admin queue, except Connect. `data` is what came with it, `out` is where data
    /// for the host is appended: exactly as much as [`AdminTransfer::of`] says if the command
    /// succeeds, nothing if it fails.
    pub fn admin(
        &self,
        entry: &SubmissionEntry,
        data: &[u8],
        out: &mut Vec<u8>,
        environment: &dyn Environment,
        now_ms: u64,
    ) -> AdminOutcome {
        self.note_activity(0);
        let before = out.len();
        let mut state = self.lock();
        let mut request = Request {
            entry,
            data,
            out,
            environment,
            now_ms,
        };
        match self.execute(&mut state, &mut request) {
            Ok(outcome) => outcome,
            Err(failure) => {
                out.truncate(before);
                let status = state.errors.record(&failure.record(entry));
                AdminOutcome::Complete {
                    status,
                    result: failure.result,
                }
            }
        }
    }

    fn execute(&self, state: &mut State, request: &mut Request) -> Result<AdminOutcome, Failure> {
        let entry = request.entry;
        if entry.opcode() == opcode::FABRICS {
            return self.fabrics(state, entry, request.now_ms);
        }
        if !self.is_enabled() {
            return Err(Failure::of(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()));
        }
        if entry.fuse() != crate::command::Fuse::Normal {
            return Err(Failure::field(1));
        }
        let expected = AdminTransfer::of(entry);
        if expected.direction == Direction::ToHost && expected.length > entry.sgl().length() {
            return Err(Failure::of(Status::DATA_SGL_LENGTH_INVALID.do_not_retry()));
        }
        match entry.opcode() {
            admin::IDENTIFY => self.identify(request),
            admin::GET_LOG_PAGE => self.get_log_page(state, request),
            admin::GET_FEATURES => self.get_features(state, request),
            admin::SET_FEATURES => self.set_features(state, request),
            admin::ASYNC_EVENT_REQUEST => self.async_event_request(state, entry),
            // Like every command it has left its mark.
            admin::KEEP_ALIVE => Ok(DONE),
            admin::ABORT if !self.is_discovery() => Ok(self.abort(state, entry)),
            _ => Err(Failure::of(Status::INVALID_COMMAND_OPCODE.do_not_retry())),
        }
    }

    fn fabrics(
        &self,
        state: &mut State,
        entry: &SubmissionEntry,
        now_ms: u64,
    ) -> Result<AdminOutcome, Failure> {
        match entry.fabrics_type() {
            fabrics::PROPERTY_GET => self.property_get(state, entry),
            fabrics::PROPERTY_SET => self.property_set(state, entry, now_ms),
            // It was connected already.
            fabrics::CONNECT => Err(Failure::of(Status::COMMAND_SEQUENCE_ERROR.do_not_retry())),
            // Admin queues end with their connection.
            fabrics::DISCONNECT => Err(Failure::of(Status::INVALID_QUEUE_TYPE.do_not_retry())),
            _ => Err(Failure::of(Status::INVALID_COMMAND_OPCODE.do_not_retry())),
        }
    }

    /// A Fabrics command on an I/O queue.
    #[must_use]
    pub fn fabrics_on_io_queue(&self, queue_id: u16, entry: &SubmissionEntry) -> AdminOutcome {
        self.note_activity(queue_id);
        let status = match entry.fabrics_type() {
            fabrics::DISCONNECT if entry.dword(10) & 0xffff == 0 => {
                return AdminOutcome::Disconnect;
            }
            fabrics::DISCONNECT => Status::CONNECT_INCOMPATIBLE_FORMAT,
            fabrics::CONNECT => Status::COMMAND_SEQUENCE_ERROR,
            // Properties belong to the admin queue.
            _ => Status::INVALID_COMMAND_OPCODE,
        };
        AdminOutcome::Complete {
            status: status.do_not_retry(),
            result: 0,
        }
    }

    /// Abort (§5.1): SQID in bits 15:0 of dword 10, CID in 31:16.
    fn abort(&self, state: &mut State, entry: &SubmissionEntry) -> AdminOutcome {
        const NOT_ABORTED: u64 = 1;
        let [low, high, command_low, command_high] = entry.dword(10).to_le_bytes();
        let queue_id = u16::from_le_bytes([low, high]);
        let command = CommandId(u16::from_le_bytes([command_low, command_high]));
        if queue_id == 0 && state.events.abort(command) {
            return DONE;
        }
        let queue = match queue_id.checked_sub(1) {
            None => Some(self.admin_queue),
            Some(index) => state.io_queues.get(usize::from(index)).copied().flatten(),
        };
        match queue {
            Some(queue) => AdminOutcome::Abort {
                queue,
                queue_id,
                command,
            },
            None => done(NOT_ABORTED),
        }
    }

    /// Asynchronous Event Requests that complete now. To be called after every admin command and
    /// when [`Notify`] asked for it.
    pub fn poll_events(&self, completions: &mut Vec<AsyncCompletion>) {
        let mut state = self.lock();
        if self.reservations.take_event() {
            state.events.raise(AsyncEvent::ReservationLogPageAvailable);
        }
        state.events.poll(completions);
    }

    /// A command of an I/O queue failed in a way worth remembering: an entry of the error information
    /// log. Returns its status with M set.
    pub fn record_error(&self, record: &ErrorRecord) -> Status {
        self.lock().errors.record(record)
    }

    /// The flush after [`AdminOutcome::ShutDown`] has ended, however it ended. To be called once for
    /// each: one that a reset has overtaken may end after the next has begun.
    pub fn shutdown_finished(&self) {
        let mut state = self.lock();
        state.properties.flushed();
        state.settle();
    }

    /// A connection has ended, and so have all its commands: a reset or shutdown waits for that, lest
    /// a write land after those that the host sends next. Returns the ones to close with it: those of
    /// all I/O queues if it was that of the admin queue. The controller is then gone.
    pub fn queue_closed(&self, queue_id: u16) -> Vec<QueueHandle> {
        let mut state = self.lock();
        if let Some(index) = queue_id.checked_sub(1) {
            if let Some(queue) = state.io_queues.get_mut(usize::from(index)) {
                *queue = None;
            }
            state.settle();
            return Vec::new();
        }
        state.closed = true;
        let queues = state.open_io_queues();
        drop(state);
        self.enabled.store(false, Ordering::Release);
        self.subsystem.forget(self);
        queues
    }

    /// NN: identifiers above it are invalid.
    fn namespaces_max(&self) -> u32 {
        let highest = self.namespaces.last().map_or(0, |ns| ns.id.0);
        highest.max(limits::NAMESPACES_MAX)
    }

    /// The namespace that a command is about.
    fn named(&self, id: NamespaceId) -> Result<&AttachedNamespace, Failure> {
        let inactive = (1..=self.namespaces_max()).contains(&id.0);
        self.attached(id).ok_or(if inactive {
            Failure::field(Failure::NAMESPACE_AT)
        } else {
            Failure::INVALID_NAMESPACE
        })
    }

    fn attached(&self, id: NamespaceId) -> Option<&AttachedNamespace> {
        let position = self.namespaces.binary_search_by_key(&id, |ns| ns.id).ok()?;
        self.namespaces.get(position)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.subsystem.forget(self);
        // Commands of I/O queues keep the controller, so none of them is left behind.
        for attached in &*self.namespaces {
            let reservations = &attached.namespace.parameters().reservations;
            attached.host.leave(reservations);
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("id", &self.id)
            .field("subsystem", &self.subsystem.nqn)
            .field("host", &self.host_nqn)
            .finish_non_exhaustive()
    }
}
