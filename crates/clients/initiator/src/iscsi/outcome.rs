//! What the end of a SCSI command means: status and sense data become a [`Failure`] that a caller can act
//! on, and news of the target become a [`Notice`].
//!
//! Sense data comes in two formats (SPC-4 §4.5): fixed (response codes 70h and 71h) and descriptors
//! (72h and 73h). What is cut off or of neither format has key 0.

use longshore_iscsi::initiator::CommandOutcome;
use longshore_iscsi::pdu::RejectReason;
use longshore_scsi::sense::AdditionalSense;
use longshore_scsi::status::Status;

use crate::error::{Failure, Sense};
use crate::info::Notice;

/// Sense keys (SPC-4 §4.5.6).
pub mod key {
    /// RECOVERED ERROR: it went well in the end.
    pub const RECOVERED_ERROR: u8 = 0x1;
    /// ILLEGAL REQUEST: the command or a parameter of it is not supported.
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    /// UNIT ATTENTION: something changed; the command was not executed.
    pub const UNIT_ATTENTION: u8 = 0x6;
    /// DATA PROTECT: the medium or a range of it is protected.
    pub const DATA_PROTECT: u8 = 0x7;
    /// MISCOMPARE: COMPARE AND WRITE found other data.
    pub const MISCOMPARE: u8 = 0xe;
}

/// Reads sense data of either format.
#[must_use]
pub fn parse_sense(bytes: &[u8]) -> Sense {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    match at(0) & 0x7f {
        0x70 | 0x71 => {
            let is_valid = at(0) & 0x80 != 0;
            let information = bytes.get(3..7).filter(|_| is_valid).map(be_u64);
            // ADDITIONAL SENSE LENGTH counts from byte 8.
            let length = 8 + usize::from(at(7));
            let within = |index: usize| if index < length { at(index) } else { 0 };
            Sense {
                key: at(2) & 0xf,
                asc: within(12),
                ascq: within(13),
                information,
            }
        }
        0x72 | 0x73 => {
            let end = bytes.len().min(8 + usize::from(at(7)));
            Sense {
                key: at(1) & 0xf,
                asc: at(2),
                ascq: at(3),
                information: information_descriptor(bytes.get(8..end).unwrap_or_default()),
            }
        }
        _ => Sense {
            key: 0,
            asc: 0,
            ascq: 0,
            information: None,
        },
    }
}

/// The INFORMATION of an information descriptor (type 00h), if it is valid.
fn information_descriptor(mut descriptors: &[u8]) -> Option<u64> {
    while let [kind, length, rest @ ..] = descriptors {
        let (body, later) = rest.split_at_checked(usize::from(*length))?;
        if *kind == 0 && body.first().is_some_and(|flags| flags & 0x80 != 0) {
            return body.get(2..10).map(be_u64);
        }
        descriptors = later;
    }
    None
}

fn be_u64(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// How a command failed; `None` when it went well.
///
/// `optional`: the command is one that targets need not have, so that an invalid field means that this
/// one does not have it.
#[inline]
#[must_use]
pub fn failure(outcome: &CommandOutcome, optional: bool) -> Option<Failure> {
    match outcome.status.map(Status) {
        Some(Status::GOOD | Status::CONDITION_MET) => None,
        _ => failed(outcome, optional),
    }
}

#[cold]
fn failed(outcome: &CommandOutcome, optional: bool) -> Option<Failure> {
    let Some(status) = outcome.status else {
        return Some(match outcome.rejected {
            None | Some(RejectReason::WAITING_FOR_LOGOUT | RejectReason::TASK_IN_PROGRESS) => {
                Failure::Aborted
            }
            Some(_) => Failure::Unsupported,
        });
    };
    match Status(status) {
        Status::CHECK_CONDITION => {
            let sense = parse_sense(&outcome.sense);
            (sense.key != key::RECOVERED_ERROR).then(|| sense_failure(sense, optional))
        }
        Status::RESERVATION_CONFLICT => Some(Failure::ReservationConflict),
        _ => Some(Failure::Scsi {
            status,
            sense: None,
        }),
    }
}

/// What sense data of a CHECK CONDITION means.
fn sense_failure(sense: Sense, optional: bool) -> Failure {
    let additional = AdditionalSense {
        asc: sense.asc,
        ascq: sense.ascq,
    };
    match (sense.key, additional) {
        (key::MISCOMPARE, _) => Failure::Miscompare {
            offset: sense.information.and_then(|at| u32::try_from(at).ok()),
        },
        (key::ILLEGAL_REQUEST, AdditionalSense::INVALID_COMMAND_OPERATION_CODE) => {
            Failure::Unsupported
        }
        (key::ILLEGAL_REQUEST, AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE) => {
            Failure::OutOfRange
        }
        (key::ILLEGAL_REQUEST, AdditionalSense::INVALID_FIELD_IN_CDB) if optional => {
            Failure::Unsupported
        }
        // SPACE ALLOCATION FAILED WRITE PROTECT (SBC-3 §4.7.3.6).
        (
            key::DATA_PROTECT,
            AdditionalSense {
                asc: 0x27,
                ascq: 0x07,
            },
        ) => Failure::NoSpace,
        (key::DATA_PROTECT, AdditionalSense { asc: 0x27, .. }) => Failure::ReadOnly,
        _ => Failure::Scsi {
            status: Status::CHECK_CONDITION.0,
            sense: Some(sense),
        },
    }
}

/// The news that a unit attention brings, beside the end of the command that met it.
#[must_use]
pub fn notice(failure: &Failure) -> Option<Notice> {
    let Failure::Scsi {
        sense: Some(sense), ..
    } = failure
    else {
        return None;
    };
    news(*sense)
}

/// What sense data tells of the unit; `None` when it is about a command.
#[must_use]
pub fn news(sense: Sense) -> Option<Notice> {
    if sense.key != key::UNIT_ATTENTION {
        return None;
    }
    Some(match (sense.asc, sense.ascq) {
        // CAPACITY DATA HAS CHANGED; INQUIRY DATA HAS CHANGED; MODE PARAMETERS CHANGED.
        (0x2a, 0x09) | (0x3f, 0x03) | (0x2a, 0x01) => Notice::CapacityChanged,
        // REPORTED LUNS DATA HAS CHANGED; ASYMMETRIC ACCESS STATE CHANGED, and IMPLICIT ASYMMETRIC ACCESS
        // STATE TRANSITION FAILED: what it is now takes a question to find out.
        (0x3f, 0x0e) | (0x2a, 0x06 | 0x07) => Notice::VolumesChanged,
        _ => Notice::Other(format!("the target reports: {sense}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_iscsi::initiator::Residual;
    use proptest::prelude::*;

    fn check_condition(sense: &[u8]) -> CommandOutcome {
        CommandOutcome {
            status: Some(Status::CHECK_CONDITION.0),
            rejected: None,
            sense: sense.to_vec(),
            residual: Residual::None,
            data_in_length: 0,
        }
    }

    fn fixed(key: u8, asc: u8, ascq: u8, information: Option<u32>) -> Vec<u8> {
        let mut bytes = vec![
            0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0,
        ];
        if let Some(information) = information {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes
    }

    fn descriptors(key: u8, asc: u8, ascq: u8, information: u64) -> Vec<u8> {
        let mut bytes = vec![0x72, key, asc, ascq, 0, 0, 0, 20];
        // Another descriptor first: command specific information.
        bytes.extend([1, 6, 0, 0, 1, 2, 3, 4]);
        bytes.extend([0, 10, 0x80, 0]);
        bytes.extend(information.to_be_bytes());
        bytes
    }

    #[test]
    fn both_formats_say_the_same() {
        for bytes in [
            fixed(0xe, 0x1d, 0, Some(513)),
            descriptors(0xe, 0x1d, 0, 513),
        ] {
            let outcome = check_condition(&bytes);
            let expected = Failure::Miscompare { offset: Some(513) };
            assert_eq!(failure(&outcome, false), Some(expected));
        }
    }

    #[test]
    fn what_a_caller_can_act_on_has_a_failure_of_its_own() {
        for (sense, optional, expected) in [
            (
                fixed(0xe, 0x1d, 0, None),
                false,
                Failure::Miscompare { offset: None },
            ),
            (fixed(5, 0x20, 0, None), false, Failure::Unsupported),
            (fixed(5, 0x24, 0, None), true, Failure::Unsupported),
            (fixed(5, 0x21, 0, None), false, Failure::OutOfRange),
            (fixed(7, 0x27, 0, None), false, Failure::ReadOnly),
            (fixed(7, 0x27, 7, None), false, Failure::NoSpace),
        ] {
            let outcome = check_condition(&sense);
            assert_eq!(failure(&outcome, optional), Some(expected));
        }
        let invalid_field = failure(&check_condition(&fixed(5, 0x24, 0, None)), false);
        assert!(matches!(invalid_field, Some(Failure::Scsi { .. })));
    }

    #[test]
    fn a_recovered_error_is_no_failure_and_other_statuses_are() {
        assert_eq!(
            failure(&check_condition(&fixed(1, 0x17, 1, None)), false),
            None
        );
        let of = |status| {
            let outcome = CommandOutcome {
                status: Some(status),
                ..check_condition(&[])
            };
            failure(&outcome, false)
        };
        assert_eq!(of(0), None);
        assert_eq!(of(4), None);
        assert_eq!(of(0x18), Some(Failure::ReservationConflict));
        for status in [0x08, 0x28, 0x40, 0x77] {
            let expected = Failure::Scsi {
                status,
                sense: None,
            };
            assert_eq!(of(status), Some(expected));
        }
    }

    #[test]
    fn a_target_that_fails_or_rejects_a_command_is_told_from_one_that_answers() {
        let of = |rejected| {
            let outcome = CommandOutcome {
                status: None,
                rejected,
                ..check_condition(&[])
            };
            failure(&outcome, false)
        };
        assert_eq!(of(None), Some(Failure::Aborted));
        assert_eq!(
            of(Some(RejectReason::WAITING_FOR_LOGOUT)),
            Some(Failure::Aborted)
        );
        assert_eq!(
            of(Some(RejectReason::COMMAND_NOT_SUPPORTED)),
            Some(Failure::Unsupported)
        );
    }

    #[test]
    fn unit_attentions_bring_news() {
        let of = |asc, ascq| {
            let outcome = check_condition(&fixed(6, asc, ascq, None));
            notice(&failure(&outcome, false).unwrap())
        };
        assert_eq!(of(0x2a, 0x09), Some(Notice::CapacityChanged));
        assert_eq!(of(0x3f, 0x0e), Some(Notice::VolumesChanged));
        assert_eq!(of(0x2a, 0x06), Some(Notice::VolumesChanged));
        assert!(matches!(of(0x29, 0x00), Some(Notice::Other(_))));
        assert_eq!(notice(&Failure::Aborted), None);
    }

    #[test]
    fn sense_data_that_was_cut_off_keeps_what_is_left() {
        let sense = parse_sense(&fixed(5, 0x24, 1, Some(9))[..13]);
        assert_eq!((sense.key, sense.asc, sense.ascq), (5, 0x24, 0));
        assert_eq!(parse_sense(&[0x72, 5]).key, 5);
        assert_eq!(parse_sense(&[]).key, 0);
        assert_eq!(parse_sense(&[0x7f, 6, 6, 6]).key, 0);
        // An ADDITIONAL SENSE LENGTH of 0 says that there is no code.
        let mut short = fixed(5, 0x24, 1, None);
        short[7] = 0;
        assert_eq!(parse_sense(&short).asc, 0);
    }

    proptest! {
        #[test]
        fn no_sense_data_makes_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            code in 0x6e_u8..0x75,
            optional: bool,
        ) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = *first & 0x80 | code;
            }
            if let Some(failure) = failure(&check_condition(&bytes), optional) {
                let _ = (notice(&failure), failure.to_string());
            }
        }
    }
}
