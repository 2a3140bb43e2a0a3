//! Controllers: what a host talks to once its queues are connected.
//!
//! ```text
//! Connect ─► Subsystems::connect ─► Association { controller, queue id }
//!                                        │
//!            admin queue: Controller::admin, poll_events, next_deadline_ms, handle_deadline
//!            I/O queues:  Controller::namespaces, is_enabled, note_activity (each command)
//!            both:        Controller::queue_closed
//! ```
//!
//! - [`access`]: which hosts see what; [`namespace`]: what all controllers share of a volume;
//! - `state`: what a controller knows, in parts; `subsystem`, `registry`, `subsystems`: where it is known;
//! - `connect`: the Connect command; `properties`: CAP, VS, CC, CSTS and what setting them does;
//! - `identify`, `log_page`, `features`, `async_events`, `keep_alive`: the admin commands;
//! - `secure`, `key_lookup`: keys and requirements of TLS, which the driver speaks;
//! - [`discovery`]: entries of the discovery log page.
//!
//! Everything is NVMe base 2.0 and its fabrics chapters, dynamic controller model only. Nothing here
//! does I/O or knows the time: the driver passes milliseconds of any steady clock.
//!
//! Locks: a controller has one, taken by admin commands, events and timers. What I/O queues ask of a
//! controller is answered by atomics.

use std::sync::atomic::Ordering;

use crate::command::{CommandId, SubmissionEntry};
use crate::opcode::{self, Direction, admin, fabrics};
use crate::status::Status;

pub mod access;
mod admin_command;
mod async_events;
mod claims;
mod connect;
pub mod discovery;
mod environment;
mod failure;
mod features;
mod generated_keys;
mod identify;
mod keep_alive;
mod key_lookup;
mod limits;
mod log_page;
mod log_page_id;
pub mod namespace;
mod properties;
mod registry;
mod sanitize;
mod secure;
mod state;
mod subsystem;
mod subsystems;
mod transfer;

#[cfg(test)]
mod tests;

pub use access::{HostAccess, HostRule, NamespaceGrant};
pub use admin_command::{AdminOutcome, QueueHandle};
pub use claims::Claims;
pub use connect::{Association, CONNECT_DATA_LENGTH, Refusal};
pub use discovery::{DiscoveryEntry, SubsystemType};
pub use environment::{Environment, Health, Statistics};
pub use keep_alive::Deadline;
pub use limits::ControllerLimits;
pub use log_page::ErrorRecord;
pub use namespace::{AttachedNamespace, Namespace, NamespaceConfig, NamespaceParameters};
pub use secure::{TlsKeys, TlsUse};
pub use state::{AsyncCompletion, Controller};
pub use subsystem::SubsystemConfig;
pub use subsystems::{Notify, Reconfigured, Subsystems};
pub use transfer::AdminTransfer;

use admin_command::{DONE, Request, done};
use failure::Failure;
use state::{AsyncEvent, State};

impl Controller {
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
            admin::SANITIZE if self.sanitizes() => self.sanitize(entry),
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
        self.registry.forget(self.id, self);
        queues
    }
}
