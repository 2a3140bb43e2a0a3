//! The reservation commands (NVMe base 2.0 §8.19) on top of
//! [`longshore_block::reservation`], which keeps the registrations and says what they exclude.
//!
//! - [`ReservationCommand`]: Reservation Register, Acquire and Release, as a procedure of steps; what they
//!   do is a function of its own in `rules`.
//! - [`Report`]: Reservation Report.
//! - [`HostRegistrant`]: one controller's part in the reservations of one namespace: the gate that
//!   its commands look at, and whom notifications go to.
//! - [`NotificationLog`]: the Reservation Notification log page of a controller.
//!
//! A registrant is a host, identified by its Host Identifier (HOSTID) on all its controllers. Hosts of fabrics have
//! identifiers of 128 bits, so that Reservation Report is answered with EDS alone.
//!
//! While RESERVE (6) of a SCSI initiator holds the volume, no host can read, write, register, acquire
//! or release; Reservation Report shows what there is beside it, which is nothing.

mod command;
mod host;
mod notification;
mod report;
mod rules;

pub use command::{ReservationCommand, ReservationEvent, ReservationStep};
pub use host::HostRegistrant;
pub use notification::{NotificationLog, NotificationMask};
pub use report::{Report, reported_host_identifier};

use longshore_block::reservation::ReservationType;

#[cfg(test)]
mod tests;

/// The RTYPE field: types are numbered other than in SCSI.
#[must_use]
pub const fn type_code(kind: ReservationType) -> u8 {
    match kind {
        ReservationType::WriteExclusive => 1,
        ReservationType::ExclusiveAccess => 2,
        ReservationType::WriteExclusiveRegistrantsOnly => 3,
        ReservationType::ExclusiveAccessRegistrantsOnly => 4,
        ReservationType::WriteExclusiveAllRegistrants => 5,
        ReservationType::ExclusiveAccessAllRegistrants => 6,
    }
}

/// The type of an RTYPE field; `None` for reserved codes.
#[must_use]
pub fn type_from_code(code: u8) -> Option<ReservationType> {
    ReservationType::ALL
        .into_iter()
        .find(|kind| type_code(*kind) == code)
}
