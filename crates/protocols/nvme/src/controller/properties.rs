//! Properties: the registers of a controller, which fabrics read and write by command
//! (NVMe base 2.0 §3.1.3, §3.5, §3.6).
//!
//! ```text
//!            EN 0→1                SHN ≠ 0                          queues closed, caches flushed
//!  disabled ────────► ready (RDY) ─────────► shutting down (SHST 1) ──────────────► shut down (SHST 2)
//!     ▲                 │ EN 1→0                │ EN 1→0                              │ EN 1→0
//!     │ queues closed   ▼                       ▼                                     ▼
//!     └─────────── resetting (RDY still) ◄──────┴─────────────────────────────────────┘
//!  disabled ── EN 0→1 with settings that CAP does not offer ─► failed (CFS) ── EN 1→0 ─► disabled
//! ```
//!
//! A reset or shutdown closes the I/O queues, and is over when the last of them has ended: a write
//! that was under way cannot land after one that the host sends when it sees the outcome. The admin
//! queue stays, so that it can.
//!
//! | property | offset | size | |
//! |---|---|---|---|
//! | CAP | 00h | 8 | read |
//! | VS | 08h | 4 | read |
//! | CC | 14h | 4 | read, write |
//! | CSTS | 1Ch | 4 | read |
//! | NSSR | 20h | 4 | reads as 0: subsystem resets are not supported |
//! | CRTO | 68h | 4 | read |
//! | others | up to 12FFh | 4 or 8 | read as 0; they mean nothing over fabrics |

use std::sync::atomic::Ordering;

use super::admin_command::{AdminOutcome, DONE, QueueHandle, done};
use super::failure::Failure;
use super::namespace::AttachedNamespace;
use super::state::{ATTRIBUTES_AT, CC, Change, Controller, OFFSET_AT, State, refused};
use crate::command::SubmissionEntry;
use crate::reservation::NotificationMask;

/// ATTRIB, OFST and VALUE of Property Get and Set.
fn property_length(entry: &SubmissionEntry) -> Option<usize> {
    match entry.dword(10) & 7 {
        0 => Some(4),
        1 => Some(8),
        _ => None,
    }
}

impl Controller {
    pub(super) fn property_get(
        &self,
        state: &State,
        entry: &SubmissionEntry,
    ) -> Result<AdminOutcome, Failure> {
        let length = property_length(entry).ok_or(Failure::field(ATTRIBUTES_AT))?;
        Ok(done(state.properties.get(entry.dword(11), length)?))
    }

    pub(super) fn property_set(
        &self,
        state: &mut State,
        entry: &SubmissionEntry,
        now_ms: u64,
    ) -> Result<AdminOutcome, Failure> {
        if entry.dword(11) != CC {
            return Err(refused(OFFSET_AT));
        }
        if property_length(entry) != Some(4) {
            return Err(refused(ATTRIBUTES_AT));
        }
        let change = state.properties.configure(entry.dword(12))?;
        self.enabled
            .store(state.properties.is_running(), Ordering::Release);
        match change {
            Change::Nothing => Ok(DONE),
            Change::Reset => {
                let queues = self.reset(state, now_ms);
                Ok(AdminOutcome::CloseQueues { queues })
            }
            Change::ShutDown => Ok(self.shut_down(state)),
        }
    }

    fn shut_down(&self, state: &mut State) -> AdminOutcome {
        let queues = state.open_io_queues();
        state.events.end_requests();
        let caches = |ns: &AttachedNamespace| ns.namespace.parameters().volatile_cache;
        if self.namespaces().iter().any(caches) {
            state.properties.flushes += 1;
            return AdminOutcome::ShutDown { queues };
        }
        state.settle();
        AdminOutcome::CloseQueues { queues }
    }

    /// A controller level reset (§3.7.2): features return to their defaults.
    fn reset(&self, state: &mut State, now_ms: u64) -> Vec<QueueHandle> {
        state.events.reset(self.is_discovery());
        state.changed_namespaces.clear();
        state.features.reset(now_ms);
        self.reservations.reset();
        for attached in &*self.namespaces() {
            attached
                .host
                .set_notification_mask(NotificationMask::default());
        }
        self.advanced_retry.store(false, Ordering::Relaxed);
        state.settle();
        state.open_io_queues()
    }
}
