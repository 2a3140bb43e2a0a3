//! Which command is allowed under which reservation.
//!
//! SPC-4 Table 66 and SBC-3 Table 13 list commands by name; each row is one of the few
//! [`ReservationClass`]es that the command table gives out. This is the whole table:
//!
//! ```text
//!                 persistent reservation held by another I_T nexus           RESERVE (6)
//!                 WE     EA     any RO, AR    WE RO, AR   EA RO, AR          by another
//!                               registrant    other       other
//! Unaffected      allow  allow  allow         allow       allow              allow
//! Inspects        allow  allow  allow         allow       allow              conflict
//! Reads           allow  CONFL  allow         allow       CONFLICT           conflict
//! Changes         CONFL  CONFL  allow         CONFLICT    CONFLICT           conflict
//! Reservation     decided by the command itself
//! ```

use super::ReservationClass;
use super::table::{Relation, ReservationType};

/// Whether a command conflicts with a persistent reservation.
pub fn conflicts(kind: ReservationType, relation: Relation, class: ReservationClass) -> bool {
    let shut_out = match relation {
        Relation::Holder => false,
        Relation::Registrant => !kind.shared_by_registrants(),
        Relation::Other => true,
    };
    shut_out
        && match class {
            ReservationClass::Unaffected
            | ReservationClass::Inspects
            | ReservationClass::Reservation => false,
            ReservationClass::Reads => kind.excludes_reads(),
            ReservationClass::Changes => true,
        }
}

/// Whether a command conflicts with RESERVE (6) held by another nexus.
pub fn conflicts_with_legacy(class: ReservationClass) -> bool {
    match class {
        ReservationClass::Unaffected | ReservationClass::Reservation => false,
        ReservationClass::Inspects | ReservationClass::Reads | ReservationClass::Changes => true,
    }
}

/// The bit of a class in the gate of a participant; no bit for what never conflicts.
#[inline]
#[must_use]
pub const fn gate_bit(class: ReservationClass) -> u8 {
    match class {
        ReservationClass::Unaffected | ReservationClass::Reservation => 0,
        ReservationClass::Inspects => 1,
        ReservationClass::Reads => 2,
        ReservationClass::Changes => 4,
    }
}

/// The bit of a gate that keeps out every command that touches the medium, reservations or not.
pub const GATE_BLOCKED: u8 = 0x80;

const GATED: [ReservationClass; 3] = [
    ReservationClass::Inspects,
    ReservationClass::Reads,
    ReservationClass::Changes,
];

fn gate_where(conflict: impl Fn(ReservationClass) -> bool) -> u8 {
    GATED
        .into_iter()
        .filter(|class| conflict(*class))
        .fold(0, |bits, class| bits | gate_bit(class))
}

pub(crate) fn persistent_gate(kind: ReservationType, relation: Relation) -> u8 {
    gate_where(|class| conflicts(kind, relation, class))
}

pub(crate) fn legacy_gate() -> u8 {
    gate_where(conflicts_with_legacy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReservationClass::{Changes, Inspects, Reads, Reservation, Unaffected};
    use ReservationType as Type;

    /// Written out from SPC-4 Table 66 and SBC-3 Table 13, independently of the code above:
    /// (type, relation) -> does [Unaffected, Inspects, Reads, Changes, Reservation] conflict.
    const EXPECTED: [(Type, Relation, [bool; 5]); 18] = {
        use Relation::{Holder, Other, Registrant};
        const FREE: [bool; 5] = [false; 5];
        const NO_WRITE: [bool; 5] = [false, false, false, true, false];
        const NOTHING: [bool; 5] = [false, false, true, true, false];
        [
            (Type::WriteExclusive, Holder, FREE),
            (Type::WriteExclusive, Registrant, NO_WRITE),
            (Type::WriteExclusive, Other, NO_WRITE),
            (Type::ExclusiveAccess, Holder, FREE),
            (Type::ExclusiveAccess, Registrant, NOTHING),
            (Type::ExclusiveAccess, Other, NOTHING),
            (Type::WriteExclusiveRegistrantsOnly, Holder, FREE),
            (Type::WriteExclusiveRegistrantsOnly, Registrant, FREE),
            (Type::WriteExclusiveRegistrantsOnly, Other, NO_WRITE),
            (Type::ExclusiveAccessRegistrantsOnly, Holder, FREE),
            (Type::ExclusiveAccessRegistrantsOnly, Registrant, FREE),
            (Type::ExclusiveAccessRegistrantsOnly, Other, NOTHING),
            (Type::WriteExclusiveAllRegistrants, Holder, FREE),
            (Type::WriteExclusiveAllRegistrants, Registrant, FREE),
            (Type::WriteExclusiveAllRegistrants, Other, NO_WRITE),
            (Type::ExclusiveAccessAllRegistrants, Holder, FREE),
            (Type::ExclusiveAccessAllRegistrants, Registrant, FREE),
            (Type::ExclusiveAccessAllRegistrants, Other, NOTHING),
        ]
    };

    #[test]
    fn every_type_relation_and_class_is_as_in_the_standards_tables() {
        for (kind, relation, expected) in EXPECTED {
            let classes = [Unaffected, Inspects, Reads, Changes, Reservation];
            for (class, expected) in classes.into_iter().zip(expected) {
                assert_eq!(
                    conflicts(kind, relation, class),
                    expected,
                    "{kind:?} {relation:?} {class:?}"
                );
                let gate = persistent_gate(kind, relation);
                assert_eq!(
                    gate & gate_bit(class) != 0,
                    expected,
                    "gate {kind:?} {relation:?} {class:?}"
                );
            }
        }
    }

    #[test]
    fn reserve_6_excludes_all_but_identification() {
        for (class, expected) in [
            (Unaffected, false),
            (Inspects, true),
            (Reads, true),
            (Changes, true),
            (Reservation, false),
        ] {
            assert_eq!(conflicts_with_legacy(class), expected);
            assert_eq!(legacy_gate() & gate_bit(class) != 0, expected);
        }
    }
}
