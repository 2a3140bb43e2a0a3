//! Asynchronous events (NVMe base 2.0 §5.2): requests that wait until there is something to tell.
//!
//! An event is told once; it is masked from then on until the host has read the log page that goes
//! with it without Retain Asynchronous Event. What happens meanwhile is in that page, so nothing is
//! lost.

use longshore_block::sanitize::SanitizeState;

use super::admin_command::AdminOutcome;
use super::failure::Failure;
use super::state::{AsyncEvent, Controller, State};
use crate::command::{CommandId, NamespaceId, SubmissionEntry};

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
        for attached in self.namespaces().iter().filter(|ns| ns.index == index) {
            state.changed_namespaces.insert(attached.id);
            notify |= state.events.raise(AsyncEvent::NamespaceAttributeChanged);
        }
        notify
    }

    /// The host sees other namespaces under these identifiers, or none. Whether the driver should poll.
    pub(super) fn namespaces_changed(&self, ids: &[NamespaceId]) -> bool {
        let mut state = self.lock();
        state.changed_namespaces.extend(ids);
        state.events.raise(AsyncEvent::NamespaceAttributeChanged)
    }

    /// A volume has failed. Whether the driver should poll.
    pub(super) fn namespace_failed(&self, index: usize) -> bool {
        self.namespaces().iter().any(|ns| ns.index == index)
            && self.lock().events.raise(AsyncEvent::Degraded)
    }

    /// A volume lacks spare. Whether the driver should poll.
    pub(super) fn spare_low(&self, index: usize) -> bool {
        self.namespaces().iter().any(|ns| ns.index == index)
            && self.lock().events.raise(AsyncEvent::SpareLow)
    }

    /// The sanitize operation of a volume has ended. Whether the driver should poll.
    pub(super) fn sanitize_ended(&self, index: usize) -> bool {
        let is_over = self.subsystem.sanitize_status().outcome != SanitizeState::InProgress;
        is_over
            && self.subsystem.has_volume(index)
            && self.lock().events.raise(AsyncEvent::SanitizeCompleted)
    }

    /// Discovery has other entries. Whether the driver should poll.
    pub(super) fn discovery_changed(&self) -> bool {
        self.lock().events.raise(AsyncEvent::DiscoveryLogPageChange)
    }
}
