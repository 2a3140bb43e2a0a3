//! Unit attention conditions (SAM-5 §5.14): things that happened to a logical unit that each
//! initiator has to learn of once.
//!
//! A condition of one kind is pending at most once for an I_T nexus, so the queue of a nexus is a
//! set of bits in one atomic word: bounded, without lock, and empty exactly when the word is zero.
//! The bits are in order of precedence (SAM-5 §5.14.5): resets are reported before everything else,
//! and a power on clears what was pending, because it says that everything may have changed.

use crate::sense::AdditionalSense;

/// A kind of unit attention condition. Declared in order of precedence, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UnitAttention {
    /// The nexus is new, or the target was reset: nothing is as it was.
    PowerOnOrReset = 0,
    /// The target device was reset from cold.
    PowerOn = 1,
    /// The target device was reset.
    TargetReset = 2,
    /// The logical unit was reset.
    LogicalUnitReset = 3,
    /// The I_T nexus was lost and is back.
    NexusLoss = 4,
    /// Another initiator cleared commands of this nexus.
    CommandsCleared = 5,
    /// The reservation this nexus held was preempted.
    ReservationsPreempted = 6,
    /// The registration of this nexus was removed.
    RegistrationsPreempted = 7,
    /// A reservation this registered nexus relied upon was released.
    ReservationsReleased = 8,
    /// Another initiator changed mode pages.
    ModeParametersChanged = 9,
    /// The number of blocks changed.
    CapacityChanged = 10,
    /// Standard INQUIRY or VPD data changed.
    InquiryDataChanged = 11,
    /// The set of logical units of the target changed.
    ReportedLunsChanged = 12,
    /// What thin volumes take their space from is nearly full (SBC-3, logical block provisioning thresholds).
    SoftThresholdReached = 13,
}

impl UnitAttention {
    /// Every kind, highest precedence first.
    pub const ALL: [Self; 14] = [
        Self::PowerOnOrReset,
        Self::PowerOn,
        Self::TargetReset,
        Self::LogicalUnitReset,
        Self::NexusLoss,
        Self::CommandsCleared,
        Self::ReservationsPreempted,
        Self::RegistrationsPreempted,
        Self::ReservationsReleased,
        Self::ModeParametersChanged,
        Self::CapacityChanged,
        Self::InquiryDataChanged,
        Self::ReportedLunsChanged,
        Self::SoftThresholdReached,
    ];

    /// What the sense data says.
    pub fn additional_sense(self) -> AdditionalSense {
        match self {
            Self::PowerOnOrReset => AdditionalSense::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED,
            Self::PowerOn => AdditionalSense::POWER_ON_OCCURRED,
            Self::TargetReset => AdditionalSense::SCSI_BUS_RESET_OCCURRED,
            Self::LogicalUnitReset => AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED,
            Self::NexusLoss => AdditionalSense::I_T_NEXUS_LOSS_OCCURRED,
            Self::CommandsCleared => AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR,
            Self::ReservationsPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
            Self::RegistrationsPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
            Self::ReservationsReleased => AdditionalSense::RESERVATIONS_RELEASED,
            Self::ModeParametersChanged => AdditionalSense::MODE_PARAMETERS_CHANGED,
            Self::CapacityChanged => AdditionalSense::CAPACITY_DATA_HAS_CHANGED,
            Self::InquiryDataChanged => AdditionalSense::INQUIRY_DATA_HAS_CHANGED,
            Self::ReportedLunsChanged => AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED,
            Self::SoftThresholdReached => AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
        }
    }

    /// Whether it is reported even before a reservation conflict (SAM-5 §5.3.3: the 29h codes).
    pub(crate) fn precedes_reservation_conflict(self) -> bool {
        (self as u8) <= (Self::NexusLoss as u8)
    }

    pub(crate) const fn bit(self) -> u32 {
        1 << (self as u8)
    }

    /// The highest-precedence condition of a set of bits.
    pub(crate) fn first_of(bits: u32) -> Option<Self> {
        let index = usize::try_from((bits & Self::MASK).trailing_zeros()).ok()?;
        Self::ALL.get(index).copied()
    }

    /// The bits of all kinds.
    pub(crate) const MASK: u32 = (1 << Self::ALL.len()) - 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_kinds_is_in_order_of_the_bits() {
        for (index, kind) in UnitAttention::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(UnitAttention::first_of(kind.bit()), Some(kind));
        }
        assert_eq!(UnitAttention::first_of(0), None);
        assert_eq!(UnitAttention::first_of(!UnitAttention::MASK), None);
    }

    #[test]
    fn only_resets_precede_a_reservation_conflict() {
        for kind in UnitAttention::ALL {
            let is_29 = kind.additional_sense().asc == 0x29;
            assert_eq!(kind.precedes_reservation_conflict(), is_29, "{kind:?}");
        }
    }
}
