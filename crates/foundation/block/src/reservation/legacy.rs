//! RESERVE (6) and RELEASE (6) of SCSI (SPC-2 §7.17 and §7.21), beside persistent reservations (SPC-4
//! §5.12.3, *compatible reservation handling*).
//!
//! The reservation belongs to the session: it is gone with its participant and with every reset. It excludes all
//! other nexuses, and NVMe hosts.
//!
//! While keys are registered, both commands do nothing. They succeed for nexuses with full access under the
//! persistent reservation, and conflict for all others. While RESERVE (6) holds, registrations and the persistent
//! reservation cannot change.

use std::sync::Arc;

use super::participant::Participant;
use super::state::{Reservations, State};
use super::table::Relation;

/// Why RESERVE (6) or RELEASE (6) is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyRefusal {
    /// Somebody else's reservation, of either kind.
    Conflict,
    /// A registration may be about to take effect; it and RESERVE (6) exclude each other: later.
    Storing,
}

impl Reservations {
    /// RESERVE (6).
    ///
    /// # Errors
    /// It is refused.
    pub fn reserve_legacy(&self, member: &Arc<dyn Participant>) -> Result<(), LegacyRefusal> {
        let mut state = self.state();
        if state.storing {
            return Err(LegacyRefusal::Storing);
        }
        if state.persistent_reservations_decide(&**member)? {
            return Ok(());
        }
        if state.legacy_holder.is_some() && !state.holds_legacy(&**member) {
            return Err(LegacyRefusal::Conflict);
        }
        // A session that ended while its command was under way must not hold anything.
        if state.is_member(&**member) {
            state.legacy_holder = Some(Arc::clone(member));
            state.refresh_gates();
        }
        Ok(())
    }

    /// RELEASE (6). By another than the holder it succeeds and does nothing.
    ///
    /// # Errors
    /// It is refused.
    pub fn release_legacy(&self, member: &dyn Participant) -> Result<(), LegacyRefusal> {
        let mut state = self.state();
        if !state.persistent_reservations_decide(member)? && state.holds_legacy(member) {
            state.legacy_holder = None;
            state.refresh_gates();
        }
        Ok(())
    }

    /// A reset: RESERVE (6) is released, whoever holds it.
    pub fn reset_legacy(&self) {
        let mut state = self.state();
        state.legacy_holder = None;
        state.refresh_gates();
    }
}

impl State {
    /// While keys are registered: `Ok(true)` if the command shall succeed without effect.
    fn persistent_reservations_decide(
        &self,
        member: &dyn Participant,
    ) -> Result<bool, LegacyRefusal> {
        if self.table.registrations().is_empty() {
            return Ok(false);
        }
        let permitted = self.table.reservation().is_some_and(|reservation| {
            match self.table.relation(member.identity()) {
                Relation::Holder => true,
                Relation::Registrant => reservation.kind.shared_by_registrants(),
                Relation::Other => false,
            }
        });
        if permitted {
            Ok(true)
        } else {
            Err(LegacyRefusal::Conflict)
        }
    }
}
