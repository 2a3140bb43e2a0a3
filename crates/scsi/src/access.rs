//! What a command does, as far as reservations and unit attentions care.
//!
//! The command table gives each command an [`Access`]; the logical unit admits or refuses it.

/// How a command fares when another I_T nexus holds a reservation (SPC-4 §5.12 and
/// SBC-3, the tables of commands allowed in the presence of various reservations).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationClass {
    /// Allowed whatever is reserved: INQUIRY, REPORT LUNS, REQUEST SENSE, RELEASE (6).
    Unaffected,
    /// Allowed under every persistent reservation, refused under RESERVE (6): TEST UNIT READY,
    /// READ CAPACITY, REPORT SUPPORTED OPERATION CODES, START STOP UNIT that starts, and so on.
    Inspects,
    /// Reads the medium or settings: refused under Exclusive Access types, allowed under Write
    /// Exclusive types, refused under RESERVE (6).
    Reads,
    /// Changes the medium or settings: refused under every type.
    Changes,
    /// RESERVE (6) and PERSISTENT RESERVE IN/OUT, which decide for themselves.
    Reservation,
}

/// What admission needs to know of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// How it fares under reservations.
    pub reservation: ReservationClass,
    /// It is processed although a unit attention condition is pending, and leaves that pending:
    /// INQUIRY, REPORT LUNS; REQUEST SENSE reports it as data (SAM-5 §5.14).
    pub ignores_unit_attention: bool,
}
