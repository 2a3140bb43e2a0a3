//! Reservations: who may do what to a volume while several initiators and hosts share it.
//!
//! There is one set of registrations and one reservation for each volume, for both protocols: a
//! persistent reservation of SCSI keeps NVMe hosts out, and the reverse.
//!
//! - [`table`]: registrations and the persistent reservation, as a value without protocol;
//!   [`NexusIdentity`] names registrants of SCSI and of NVMe alike.
//! - [`conflict`]: the one table of which command is allowed under which reservation.
//! - [`Reservations`]: the table behind its lock, with its current sessions and controllers
//!   ([`Participant`]), and with RESERVE (6) of SCSI.
//! - [`store`]: reservations as bytes that survive a restart (PTPL); [`StoreOrder`] keeps them in
//!   order.
//!
//! Which request is permitted, and what it changes, is decided by the protocols' own crates: they
//! look at the table, and hand back a [`Change`].

mod change;
mod class;
pub mod conflict;
mod legacy;
mod participant;
mod state;
pub mod store;
mod store_order;
pub mod table;

pub use change::{Applied, Change, PendingChange};
pub use class::ReservationClass;
pub use conflict::{GATE_BLOCKED, gate_bit};
pub use legacy::LegacyRefusal;
pub use participant::{Participant, is_same_participant, tasks_cleared_by};
pub use state::{Locked, Reservations, Unchangeable};
pub use store::ReservationFormatError;
pub use store_order::{StoreOrder, StoreWait};
pub use table::{NexusIdentity, Notice, NoticeEvent, Relation, ReservationTable, ReservationType};

#[cfg(test)]
mod tests;
