//! Task management requests that wait for the driver's answer.

use crate::pdu::{self, InitiatorTaskTag};
use crate::server::command::TaskManagementId;

/// Requests that wait for the driver's answer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) requests: Vec<PendingRequest>,
    pub(super) next_id: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) id: TaskManagementId,
    pub(super) initiator_task_tag: InitiatorTaskTag,
    pub(super) immediate: bool,
}

impl Pending {
    pub(super) fn add(&mut self, request: &pdu::TaskManagementRequest) -> TaskManagementId {
        let id = TaskManagementId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.requests.push(PendingRequest {
            id,
            initiator_task_tag: request.initiator_task_tag,
            immediate: request.immediate,
        });
        id
    }

    /// Whether a request with this tag waits.
    pub(super) fn contains(&self, tag: InitiatorTaskTag) -> bool {
        self.requests
            .iter()
            .any(|request| request.initiator_task_tag == tag)
    }

    pub(super) fn take(&mut self, id: TaskManagementId) -> Option<PendingRequest> {
        let at = self.requests.iter().position(|request| request.id == id)?;
        Some(self.requests.swap_remove(at))
    }
}
