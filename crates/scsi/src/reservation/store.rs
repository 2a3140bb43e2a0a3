//! Reservations as bytes.

use super::table::ReservationTable;

/// Stored reservations that cannot be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReservationFormatError {
    /// The file does not start with the magic.
    #[error("not a reservations file")]
    NotReservations,
}

impl ReservationTable {
    /// Encodes.
    pub fn to_bytes(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Decodes.
    pub fn from_bytes(_bytes: &[u8]) -> Result<Self, ReservationFormatError> {
        Err(ReservationFormatError::NotReservations)
    }
}
