//! Reservations as SCSI commands: what SPC-4 adds to [`longshore_block::reservation`], which keeps them.
//!
//! - `persistent_in`, `persistent_out`: PERSISTENT RESERVE IN and OUT (SPC-4 §5.12, §6.15, §6.16);
//!   what OUT does is a function of its own in `rules`.
//! - `legacy`: RESERVE (6) and RELEASE (6) (SPC-2 §5.5.2 with the exceptions of SPC-4 §5.12.3).
//! - [`transport_id`]: iSCSI TransportIDs (SPC-4 §7.6.4.6).

pub(crate) mod legacy;
pub(crate) mod persistent_in;
pub(crate) mod persistent_out;
mod rules;
pub mod transport_id;

use longshore_block::reservation::{
    NexusIdentity, Relation, ReservationTable, ReservationType, table,
};

#[cfg(test)]
pub(crate) mod tests;
