//! Status codes (SAM-5 §5.3).

use std::fmt;

/// How a command ended. An open set: unknown codes survive and print in hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u8);

impl Status {
    pub const GOOD: Self = Self(0x00);
    /// Sense data says what is wrong.
    pub const CHECK_CONDITION: Self = Self(0x02);
    /// The condition asked about holds (PRE-FETCH: all blocks fit into the cache).
    pub const CONDITION_MET: Self = Self(0x04);
    /// The logical unit is busy; try again.
    pub const BUSY: Self = Self(0x08);
    /// Another I_T nexus holds a reservation that excludes this command.
    pub const RESERVATION_CONFLICT: Self = Self(0x18);
    /// No room for another command.
    pub const TASK_SET_FULL: Self = Self(0x28);
    /// Aborted from another I_T nexus while the TAS bit was set.
    pub const TASK_ABORTED: Self = Self(0x40);
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::GOOD => "GOOD",
            Self::CHECK_CONDITION => "CHECK CONDITION",
            Self::CONDITION_MET => "CONDITION MET",
            Self::BUSY => "BUSY",
            Self::RESERVATION_CONFLICT => "RESERVATION CONFLICT",
            Self::TASK_SET_FULL => "TASK SET FULL",
            Self::TASK_ABORTED => "TASK ABORTED",
            Self(other) => return write!(f, "Status({other:#04x})"),
        };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_status_prints_in_hex() {
        assert_eq!(format!("{:?}", Status(0x77)), "Status(0x77)");
        assert_eq!(format!("{:?}", Status::CONDITION_MET), "CONDITION MET");
    }
}
