//! What a command does, as far as reservations and unit attentions care.
//!
//! The command table gives each command an [`Access`]; the logical unit admits or refuses it.

pub use longshore_block::reservation::ReservationClass;

/// What admission needs to know of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// How it fares under reservations.
    pub reservation: ReservationClass,
    /// It is processed although a unit attention condition is pending, and leaves that pending:
    /// INQUIRY, REPORT LUNS; REQUEST SENSE reports it as data (SAM-5 §5.14).
    pub ignores_unit_attention: bool,
}
