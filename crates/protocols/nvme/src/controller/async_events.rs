//! Asynchronous events (NVMe base 2.0 §5.2): requests that wait until there is something to tell.
//!
//! An event is told once; it is masked from then on until the host has read the log page that goes
//! with it without Retain Asynchronous Event. What happens meanwhile is in that page, so nothing is
//! lost.

use super::failure::Failure;
use super::log_page::{
    LOG_ANA, LOG_CHANGED_NAMESPACES, LOG_DISCOVERY, LOG_HEALTH, LOG_RESERVATION,
};
use super::{AdminOutcome, Controller, State};
use crate::command::{CommandId, SubmissionEntry};
use crate::status::Status;

/// An Asynchronous Event Request that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncCompletion {
    /// CID on the admin queue.
    pub command: CommandId,
    /// Success, or why it will tell of nothing.
    pub status: Status,
    /// Dword 0: type, information and log page of the event.
    pub result: u64,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsyncEvent {
    /// SMART / health: reliability of the subsystem is degraded.
    Degraded,
    /// Notice: a namespace has a new size.
    NamespaceAttributeChanged,
    /// Notice: ANA states have changed.
    AsymmetricAccessChange,
    /// Notice: the discovery log page has changed.
    DiscoveryLogPageChange,
    /// I/O command specific: the reservation log page has an entry.
    ReservationLogPageAvailable,
}

impl AsyncEvent {
    const ALL: [Self; 5] = [
        Self::Degraded,
        Self::NamespaceAttributeChanged,
        Self::AsymmetricAccessChange,
        Self::DiscoveryLogPageChange,
        Self::ReservationLogPageAvailable,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Type, information and log page.
    const fn code(self) -> (u8, u8, u8) {
        match self {
            Self::Degraded => (1, 0x00, LOG_HEALTH),
            Self::NamespaceAttributeChanged => (2, 0x00, LOG_CHANGED_NAMESPACES),
            Self::AsymmetricAccessChange => (2, 0x03, LOG_ANA),
            Self::DiscoveryLogPageChange => (2, 0xf0, LOG_DISCOVERY),
            Self::ReservationLogPageAvailable => (6, 0x00, LOG_RESERVATION),
        }
    }

    fn result(self) -> u64 {
        let (kind, information, log_page) = self.code();
        u64::from(kind) | u64::from(information) << 8 | u64::from(log_page) << 16
    }

    /// Its bit of Asynchronous Event Configuration. Reservations have a mask of their own.
    const fn configuration(self) -> Option<u32> {
        match self {
            // Critical warning bit 2.
            Self::Degraded => Some(1 << 2),
            Self::NamespaceAttributeChanged => Some(CONFIGURE_NAMESPACE_ATTRIBUTE),
            Self::AsymmetricAccessChange => Some(CONFIGURE_ASYMMETRIC_ACCESS),
            Self::DiscoveryLogPageChange => Some(CONFIGURE_DISCOVERY),
            Self::ReservationLogPageAvailable => None,
        }
    }
}

const CONFIGURE_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
const CONFIGURE_ASYMMETRIC_ACCESS: u32 = 1 << 11;
const CONFIGURE_DISCOVERY: u32 = 1 << 31;
/// Critical warnings of the SMART / health log.
const CONFIGURE_HEALTH: u32 = 0xff;

/// OAES: the notices a controller may send.
pub(super) const fn supported_notices(is_discovery: bool) -> u32 {
    if is_discovery {
        CONFIGURE_DISCOVERY
    } else {
        CONFIGURE_NAMESPACE_ATTRIBUTE | CONFIGURE_ASYMMETRIC_ACCESS
    }
}

/// Bits of Asynchronous Event Configuration that may be set.
pub(super) const fn configurable(is_discovery: bool) -> u32 {
    if is_discovery {
        CONFIGURE_DISCOVERY
    } else {
        supported_notices(false) | CONFIGURE_HEALTH
    }
}

/// Requests and events of a controller.
#[derive(Debug)]
pub(super) struct AsyncEvents {
    requests_max: usize,
    /// In the order of their arrival.
    requests: Vec<CommandId>,
    /// Requests that end without an event.
    aborted: Vec<AsyncCompletion>,
    /// Requests that end without a completion.
    dropped: Vec<CommandId>,
    /// To be told.
    pending: u8,
    /// Told, and the log page not read since.
    masked: u8,
    /// Asynchronous Event Configuration.
    configuration: u32,
}

impl AsyncEvents {
    pub(super) fn new(requests_max: u8, is_discovery: bool) -> Self {
        Self {
            requests_max: usize::from(requests_max.max(1)),
            requests: Vec::new(),
            aborted: Vec::new(),
            dropped: Vec::new(),
            pending: 0,
            masked: 0,
            configuration: supported_notices(is_discovery),
        }
    }

    /// After a controller reset.
    pub(super) fn reset(&mut self, is_discovery: bool) {
        self.end_requests();
        self.pending = 0;
        self.masked = 0;
        self.configuration = supported_notices(is_discovery);
    }

    /// Nothing will be told any more, but the connection of the requests goes on. Reset and shutdown end them without
    /// a completion: SPDK's host, which has ended its requests by itself before, takes one for a transport error.
    pub(super) fn end_requests(&mut self) {
        self.dropped.append(&mut self.requests);
    }

    /// The host has used the identifier of a request for another command.
    fn forget(&mut self, command: CommandId) {
        self.requests.retain(|known| *known != command);
        self.aborted.retain(|ended| ended.command != command);
        self.dropped.retain(|known| *known != command);
    }

    pub(super) const fn configuration(&self) -> u32 {
        self.configuration
    }

    /// Events that are not wanted any more are forgotten.
    pub(super) fn configure(&mut self, configuration: u32) {
        self.configuration = configuration;
        for event in AsyncEvent::ALL {
            if !self.wants(event) {
                self.pending &= !event.bit();
                self.masked &= !event.bit();
            }
        }
    }

    fn wants(&self, event: AsyncEvent) -> bool {
        event
            .configuration()
            .is_none_or(|bit| self.configuration & bit != 0)
    }

    /// Something happened. Whether the driver should poll.
    pub(super) fn raise(&mut self, event: AsyncEvent) -> bool {
        if !self.wants(event) || self.masked & event.bit() != 0 {
            return false;
        }
        self.pending |= event.bit();
        !self.requests.is_empty()
    }

    /// The log page of an event was read without retaining it.
    pub(super) fn log_page_read(&mut self, log_page: u8) {
        for event in AsyncEvent::ALL {
            if event.code().2 == log_page {
                self.pending &= !event.bit();
                self.masked &= !event.bit();
            }
        }
    }

    fn request(&mut self, command: CommandId) -> Result<(), Failure> {
        if self.requests.len() >= self.requests_max {
            return Err(Failure::of(
                Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED.do_not_retry(),
            ));
        }
        self.requests.push(command);
        Ok(())
    }

    /// Ends a request by an Abort command.
    pub(super) fn abort(&mut self, command: CommandId) -> bool {
        let Some(position) = self.requests.iter().position(|known| *known == command) else {
            return false;
        };
        self.requests.remove(position);
        self.aborted.push(AsyncCompletion {
            command,
            status: Status::ABORT_REQUESTED,
            result: 0,
        });
        true
    }

    pub(super) fn poll(&mut self, completions: &mut Vec<AsyncCompletion>) {
        completions.append(&mut self.aborted);
        for event in AsyncEvent::ALL {
            if self.pending & event.bit() == 0 || self.requests.is_empty() {
                continue;
            }
            self.pending &= !event.bit();
            self.masked |= event.bit();
            completions.push(AsyncCompletion {
                command: self.requests.remove(0),
                status: Status::SUCCESS,
                result: event.result(),
            });
        }
    }
}

impl Controller {
    pub(super) fn async_event_request(
        &self,
        state: &mut State,
        entry: &SubmissionEntry,
    ) -> Result<AdminOutcome, Failure> {
        state.events.request(entry.id())?;
        Ok(AdminOutcome::AsyncEvent)
    }
}

impl Controller {
    /// The host has used the identifier of an Asynchronous Event Request for another command: it is outstanding no
    /// more.
    pub fn forget_event_request(&self, command: CommandId) {
        self.lock().events.forget(command);
    }

    /// Asynchronous Event Requests that ended without a completion since the last call: a reset or shutdown did.
    #[must_use]
    pub fn take_dropped_event_requests(&self) -> Vec<CommandId> {
        std::mem::take(&mut self.lock().events.dropped)
    }

    /// A volume has a new size. Whether the driver should poll.
    pub(super) fn namespace_changed(&self, index: usize) -> bool {
        let mut state = self.lock();
        let mut notify = false;
        for attached in self.namespaces.iter().filter(|ns| ns.index == index) {
            state.changed_namespaces.insert(attached.id);
            notify |= state.events.raise(AsyncEvent::NamespaceAttributeChanged);
        }
        notify
    }

    /// A volume has failed. Whether the driver should poll.
    pub(super) fn namespace_failed(&self, index: usize) -> bool {
        self.namespaces.iter().any(|ns| ns.index == index)
            && self.lock().events.raise(AsyncEvent::Degraded)
    }

    /// Discovery has other entries. Whether the driver should poll.
    pub(super) fn discovery_changed(&self) -> bool {
        self.lock().events.raise(AsyncEvent::DiscoveryLogPageChange)
    }
}
