//! RESERVE (6) and RELEASE (6) (SPC-2 §7.17 and §7.21), beside persistent reservations (SPC-4
//! §5.12.3, *compatible reservation handling*).
//!
//! The reservation belongs to the session: it is gone with the nexus and with every reset. Third
//! party and extent reservations, obsolete since SPC-2, are refused by the command table.
//!
//! While keys are registered, both commands do nothing and succeed for whom the persistent
//! reservation permits everything anyway, and conflict for everybody else. While RESERVE (6) holds,
//! PERSISTENT RESERVE IN and OUT conflict for everybody.

use std::sync::Arc;

use crate::command::Completion;
use crate::nexus::Nexus;
use crate::status::Status;
use crate::unit::LogicalUnit;

use super::Reservations;
use super::conflict::Relation;

/// RESERVE (6).
///
/// # Errors
/// The completion, if it is not GOOD.
pub(crate) fn reserve(unit: &LogicalUnit, nexus: &Arc<Nexus>) -> Result<(), Completion> {
    let mut shared = unit.lock();
    if shared.reservations.storing {
        // A registration may be about to take effect; it and this exclude each other.
        return Err(Status::BUSY.into());
    }
    if !shared.reservations.persistent_reservations_decide(nexus)? {
        shared.reservations.reserve_legacy(nexus)?;
        shared.refresh_gates();
    }
    Ok(())
}

/// RELEASE (6). By another nexus than the holder it succeeds and does nothing.
///
/// # Errors
/// The completion, if it is not GOOD.
pub(crate) fn release(unit: &LogicalUnit, nexus: &Arc<Nexus>) -> Result<(), Completion> {
    let mut shared = unit.lock();
    if !shared.reservations.persistent_reservations_decide(nexus)? {
        shared.reservations.nexus_lost(nexus);
        shared.refresh_gates();
    }
    Ok(())
}

impl Reservations {
    /// While keys are registered: `Ok(true)` if the command shall succeed without effect.
    fn persistent_reservations_decide(&self, nexus: &Arc<Nexus>) -> Result<bool, Completion> {
        if self.table.registrations().is_empty() {
            return Ok(false);
        }
        let permitted = self.table.reservation().is_some_and(|reservation| {
            match self.table.relation(nexus.identity()) {
                Relation::Holder => true,
                Relation::Registrant => reservation.kind.shared_by_registrants(),
                Relation::Other => false,
            }
        });
        if permitted {
            Ok(true)
        } else {
            Err(Status::RESERVATION_CONFLICT.into())
        }
    }

    fn reserve_legacy(&mut self, nexus: &Arc<Nexus>) -> Result<(), Completion> {
        match &self.legacy_holder {
            Some(holder) if !Arc::ptr_eq(holder, nexus) => Err(Status::RESERVATION_CONFLICT.into()),
            // A session that ended while its command was under way must not hold anything.
            Some(_) | None if nexus.is_attached() => {
                self.legacy_holder = Some(Arc::clone(nexus));
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }
}
