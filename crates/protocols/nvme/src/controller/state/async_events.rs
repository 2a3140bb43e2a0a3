//! Asynchronous events: which are told, and the requests that wait for them.

use crate::command::CommandId;
use crate::controller::failure::Failure;
use crate::controller::log_page_id::{
    LOG_ANA, LOG_CHANGED_NAMESPACES, LOG_DISCOVERY, LOG_HEALTH, LOG_RESERVATION, LOG_SANITIZE,
};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum AsyncEvent {
    /// SMART / health: reliability of the subsystem is degraded.
    Degraded,
    /// SMART / health: less of the spare is left than the threshold.
    SpareLow,
    /// Notice: a namespace has a new size.
    NamespaceAttributeChanged,
    /// Notice: ANA states have changed.
    AsymmetricAccessChange,
    /// Notice: the discovery log page has changed.
    DiscoveryLogPageChange,
    /// I/O command specific: the reservation log page has an entry.
    ReservationLogPageAvailable,
    /// I/O command specific: a sanitize operation has ended.
    SanitizeCompleted,
}

impl AsyncEvent {
    const ALL: [Self; 7] = [
        Self::Degraded,
        Self::SpareLow,
        Self::NamespaceAttributeChanged,
        Self::AsymmetricAccessChange,
        Self::DiscoveryLogPageChange,
        Self::ReservationLogPageAvailable,
        Self::SanitizeCompleted,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Type, information and log page.
    const fn code(self) -> (u8, u8, u8) {
        match self {
            Self::Degraded => (1, 0x00, LOG_HEALTH),
            Self::SpareLow => (1, 0x02, LOG_HEALTH),
            Self::NamespaceAttributeChanged => (2, 0x00, LOG_CHANGED_NAMESPACES),
            Self::AsymmetricAccessChange => (2, 0x03, LOG_ANA),
            Self::DiscoveryLogPageChange => (2, 0xf0, LOG_DISCOVERY),
            Self::ReservationLogPageAvailable => (6, 0x00, LOG_RESERVATION),
            Self::SanitizeCompleted => (6, 0x01, LOG_SANITIZE),
        }
    }

    fn result(self) -> u64 {
        let (kind, information, log_page) = self.code();
        u64::from(kind) | u64::from(information) << 8 | u64::from(log_page) << 16
    }

    /// Its bit of Asynchronous Event Configuration. Reservations have a mask of their own.
    const fn configuration(self) -> Option<u32> {
        match self {
            // The bit of the critical warning.
            Self::Degraded => Some(1 << 2),
            Self::SpareLow => Some(1 << 0),
            Self::NamespaceAttributeChanged => Some(CONFIGURE_NAMESPACE_ATTRIBUTE),
            Self::AsymmetricAccessChange => Some(CONFIGURE_ASYMMETRIC_ACCESS),
            Self::DiscoveryLogPageChange => Some(CONFIGURE_DISCOVERY),
            Self::ReservationLogPageAvailable | Self::SanitizeCompleted => None,
        }
    }
}

const CONFIGURE_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;

const CONFIGURE_ASYMMETRIC_ACCESS: u32 = 1 << 11;

const CONFIGURE_DISCOVERY: u32 = 1 << 31;

/// Critical warnings of the SMART / health log.
const CONFIGURE_HEALTH: u32 = 0xff;

/// OAES: the notices a controller may send.
pub(in crate::controller) const fn supported_notices(is_discovery: bool) -> u32 {
    if is_discovery {
        CONFIGURE_DISCOVERY
    } else {
        CONFIGURE_NAMESPACE_ATTRIBUTE | CONFIGURE_ASYMMETRIC_ACCESS
    }
}

/// Bits of Asynchronous Event Configuration that may be set.
pub(in crate::controller) const fn configurable(is_discovery: bool) -> u32 {
    if is_discovery {
        CONFIGURE_DISCOVERY
    } else {
        supported_notices(false) | CONFIGURE_HEALTH
    }
}

/// Requests and events of a controller.
#[derive(Debug)]
pub(in crate::controller) struct AsyncEvents {
    requests_max: usize,
    /// In the order of their arrival.
    requests: Vec<CommandId>,
    /// Requests that end without an event.
    aborted: Vec<AsyncCompletion>,
    /// Requests that end without a completion.
    pub(in crate::controller) dropped: Vec<CommandId>,
    /// Bits of the event kinds that are still to be reported.
    pending: u8,
    /// Told, and the log page not read since.
    masked: u8,
    /// Value of the Asynchronous Event Configuration feature: the notices that the host wants.
    configuration: u32,
}

impl AsyncEvents {
    pub(in crate::controller) fn new(requests_max: u8, is_discovery: bool) -> Self {
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
    pub(in crate::controller) fn reset(&mut self, is_discovery: bool) {
        self.end_requests();
        self.pending = 0;
        self.masked = 0;
        self.configuration = supported_notices(is_discovery);
    }

    /// Nothing will be told any more, but the connection of the requests goes on. Reset and shutdown end them without
    /// a completion: SPDK's host, which has ended its requests by itself before, takes one for a transport error.
    pub(in crate::controller) fn end_requests(&mut self) {
        self.dropped.append(&mut self.requests);
    }

    /// The host has used the identifier of a request for another command.
    pub(in crate::controller) fn forget(&mut self, command: CommandId) {
        self.requests.retain(|known| *known != command);
        self.aborted.retain(|ended| ended.command != command);
        self.dropped.retain(|known| *known != command);
    }

    pub(in crate::controller) const fn configuration(&self) -> u32 {
        self.configuration
    }

    /// Events that are not wanted any more are forgotten.
    pub(in crate::controller) fn configure(&mut self, configuration: u32) {
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
    pub(in crate::controller) fn raise(&mut self, event: AsyncEvent) -> bool {
        if !self.wants(event) || self.masked & event.bit() != 0 {
            return false;
        }
        self.pending |= event.bit();
        !self.requests.is_empty()
    }

    /// The log page of an event was read without retaining it.
    pub(in crate::controller) fn log_page_read(&mut self, log_page: u8) {
        for event in AsyncEvent::ALL {
            if event.code().2 == log_page {
                self.pending &= !event.bit();
                self.masked &= !event.bit();
            }
        }
    }

    pub(in crate::controller) fn request(&mut self, command: CommandId) -> Result<(), Failure> {
        if self.requests.len() >= self.requests_max {
            return Err(Failure::of(
                Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED.do_not_retry(),
            ));
        }
        self.requests.push(command);
        Ok(())
    }

    /// Ends a request by an Abort command.
    pub(in crate::controller) fn abort(&mut self, command: CommandId) -> bool {
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

    pub(in crate::controller) fn poll(&mut self, completions: &mut Vec<AsyncCompletion>) {
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
