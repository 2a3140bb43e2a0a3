//! RESERVE (6) and RELEASE (6) (SPC-2 §7.17 and §7.21): their statuses. What they do is in
//! [`longshore_block::reservation`].
//!
//! Third party and extent reservations, obsolete since SPC-2, are refused by the command table.

use std::sync::Arc;

use longshore_block::reservation::{LegacyRefusal, Participant};

use crate::completion::Completion;
use crate::nexus::Nexus;
use crate::status::Status;
use crate::unit::LogicalUnit;

/// RESERVE (6).
///
/// # Errors
/// The completion, if it is not GOOD.
pub(crate) fn reserve(unit: &LogicalUnit, nexus: &Arc<Nexus>) -> Result<(), Completion> {
    let member: Arc<dyn Participant> = Arc::<Nexus>::clone(nexus);
    Ok(unit.reservations().reserve_legacy(&member)?)
}

/// RELEASE (6). By another nexus than the holder it succeeds and does nothing.
///
/// # Errors
/// The completion, if it is not GOOD.
pub(crate) fn release(unit: &LogicalUnit, nexus: &Arc<Nexus>) -> Result<(), Completion> {
    Ok(unit.reservations().release_legacy(&**nexus)?)
}

impl From<LegacyRefusal> for Completion {
    fn from(refusal: LegacyRefusal) -> Self {
        match refusal {
            LegacyRefusal::Conflict => Status::RESERVATION_CONFLICT.into(),
            LegacyRefusal::Storing => Status::BUSY.into(),
        }
    }
}
