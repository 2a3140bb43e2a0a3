//! What a command does, as far as reservations care.

/// How a command fares when somebody else holds a reservation (SPC-4 §5.12 and SBC-3, the tables of
/// commands allowed in the presence of various reservations; NVMe base 2.0, *Reservations*, the
/// figure of command behaviour). SCSI and NVMe sort their commands into these.
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
    /// RESERVE (6), PERSISTENT RESERVE IN/OUT and the reservation commands of NVMe, which decide for
    /// themselves.
    Reservation,
}
