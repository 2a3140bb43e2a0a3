//! Reservations: who may do what to a logical unit while several initiators share it.
//!
//! - [`table`]: registrations and the persistent reservation, as a value without protocol;
//!   [`NexusIdentity`] names registrants of SCSI and of NVMe alike.
//! - [`conflict`]: the one table of which command is allowed under which reservation.
//! - `persistent_in`, `persistent_out`: PERSISTENT RESERVE IN and OUT (SPC-4 §5.12, §6.15, §6.16) on
//!   top of it; what OUT does is a function of its own in `rules`.
//! - `legacy`: RESERVE (6) and RELEASE (6) (SPC-2 §5.5.2 with the exceptions of SPC-4 §5.12.3).
//! - [`transport_id`]: iSCSI TransportIDs (SPC-4 §7.6.4.6).
//! - [`store`]: reservations as bytes that survive a restart (APTPL); [`StoreOrder`] keeps them in
//!   order.

use std::sync::Arc;

use crate::nexus::Nexus;

pub mod conflict;
pub(crate) mod legacy;
pub(crate) mod persistent_in;
pub(crate) mod persistent_out;
mod rules;
pub mod store;
mod store_order;
pub mod table;
pub mod transport_id;

pub use conflict::Relation;
pub(crate) use conflict::gate_bit;
pub use store::ReservationFormatError;
pub use store_order::StoreOrder;
pub use table::{NexusIdentity, ReservationTable, ReservationType};

#[cfg(test)]
pub(crate) mod tests;

/// Target ports a unit remembers; more are not told apart by ALL_TG_PT.
const MAX_TARGET_PORTS: usize = 64;

/// All reservation state of a logical unit.
#[derive(Debug, Default)]
pub struct Reservations {
    table: ReservationTable,
    legacy_holder: Option<Arc<Nexus>>,
    target_ports: Vec<u16>,
    /// A PERSISTENT RESERVE OUT waits for its bytes to be stored; others get BUSY meanwhile, so that
    /// what is stored last is what was decided last.
    storing: bool,
    /// What is stored may differ from the table: the last attempt failed or was abandoned.
    store_uncertain: bool,
}

impl Reservations {
    /// Registrations and the persistent reservation.
    pub fn table(&self) -> &ReservationTable {
        &self.table
    }

    pub(crate) fn add_target_port(&mut self, relative_identifier: u16) {
        if self.target_ports.len() < MAX_TARGET_PORTS
            && !self.target_ports.contains(&relative_identifier)
        {
            self.target_ports.push(relative_identifier);
        }
    }

    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<(), ReservationFormatError> {
        self.table = ReservationTable::from_bytes(bytes)?;
        Ok(())
    }

    pub(crate) fn release_legacy(&mut self) {
        self.legacy_holder = None;
    }

    pub(crate) fn nexus_lost(&mut self, nexus: &Arc<Nexus>) {
        if self
            .legacy_holder
            .as_ref()
            .is_some_and(|holder| Arc::ptr_eq(holder, nexus))
        {
            self.legacy_holder = None;
        }
    }

    /// The gate bits of a nexus: one for each class of commands that would conflict now.
    pub(crate) fn gate_of(&self, nexus: &Arc<Nexus>) -> u8 {
        if let Some(holder) = &self.legacy_holder {
            return if Arc::ptr_eq(holder, nexus) {
                0
            } else {
                conflict::legacy_gate()
            };
        }
        match self.table.reservation() {
            None => 0,
            Some(reservation) => {
                conflict::persistent_gate(reservation.kind, self.table.relation(nexus.identity()))
            }
        }
    }
}
