//! Status codes and ends of connections as failures for the caller.

use std::time::Duration;

use longshore_nvme::pdu::{FatalError, FatalErrorStatus};
use longshore_nvme::status::Status;

use super::link::LinkError;
use crate::error::{CloseCause, Error, Failure, Lost};
use crate::url::HostPort;

/// CRDT1 to CRDT3: the delays that CRD of a status names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RetryDelays([Duration; 3]);

impl RetryDelays {
    /// From Identify Controller, in units of 100 ms.
    pub(super) fn new(units: [u16; 3]) -> Self {
        Self(units.map(|units| Duration::from_millis(u64::from(units) * 100)))
    }

    fn of(self, status: Status) -> Option<Duration> {
        let index = usize::from(status.retry_delay_index()).checked_sub(1)?;
        self.0.get(index).copied()
    }
}

/// How an operation failed that ended with this status, which is no success.
#[cold]
pub(super) fn failure(status: Status, delays: RetryDelays) -> Failure {
    match status.code() {
        Status::COMPARE_FAILURE => Failure::Miscompare { offset: None },
        Status::RESERVATION_CONFLICT => Failure::ReservationConflict,
        Status::LBA_OUT_OF_RANGE => Failure::OutOfRange,
        Status::NAMESPACE_WRITE_PROTECTED | Status::WRITE_TO_READ_ONLY_RANGE => Failure::ReadOnly,
        Status::CAPACITY_EXCEEDED => Failure::NoSpace,
        Status::COMMAND_SIZE_LIMIT_EXCEEDED => Failure::TooLarge,
        Status::INVALID_COMMAND_OPCODE => Failure::Unsupported,
        // The association is over, and this command has not been carried out.
        Status::KEEP_ALIVE_TIMER_EXPIRED => {
            let reason = "its keep alive timer has expired".to_owned();
            Failure::ConnectionLost(CloseCause::Peer(reason).into())
        }
        _ => Failure::Nvme {
            status,
            retry_after: delays.of(status),
        },
    }
}

/// What a C2HTermReq says.
pub(super) fn terminated(error: FatalError) -> CloseCause {
    CloseCause::Peer(format!("{} ({:#x})", error.status, error.information))
}

/// What the peer did wrong.
pub(super) fn broken(error: FatalError) -> CloseCause {
    if error.status == FatalErrorStatus::HEADER_DIGEST_ERROR {
        return CloseCause::Digest("header");
    }
    CloseCause::Protocol(format!("{} ({:#x})", error.status, error.information))
}

impl From<LinkError> for Lost {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Io { error, .. } => Self::from_io(&error),
            LinkError::TimedOut(_) => Self::Silent,
            LinkError::Closed => Self::HungUp,
            LinkError::Terminated(error) => terminated(error).into(),
            LinkError::Protocol(error) => broken(error).into(),
            LinkError::Busy => {
                let reason = "commands of the admin queue are not answered".to_owned();
                CloseCause::Protocol(reason).into()
            }
        }
    }
}

/// The end of a connection as an error of the control path.
pub(super) fn link_error(portal: &HostPort, step: &'static str, error: LinkError) -> Error {
    match error {
        LinkError::TimedOut(after) => Error::TimedOut {
            portal: portal.clone(),
            step,
            after,
        },
        LinkError::Io { .. }
        | LinkError::Closed
        | LinkError::Terminated(_)
        | LinkError::Protocol(_)
        | LinkError::Busy => Error::Lost {
            portal: portal.clone(),
            step,
            lost: Lost::from(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Retry;

    fn delays() -> RetryDelays {
        RetryDelays::new([1, 10, 50])
    }

    #[test]
    fn a_retry_delay_is_the_one_the_status_names() {
        let busy = failure(Status::COMMAND_INTERRUPTED.retry_delay(2), delays());
        assert_eq!(busy.retry(), Retry::After(Duration::from_secs(1)));
        let last = failure(Status::COMMAND_INTERRUPTED.retry_delay(3), delays());
        assert_eq!(last.retry(), Retry::After(Duration::from_secs(5)));
    }

    #[test]
    fn a_final_status_is_not_tried_again() {
        let status = Status::COMMAND_INTERRUPTED.retry_delay(1).do_not_retry();
        assert_eq!(failure(status, delays()).retry(), Retry::Never);
    }

    #[test]
    fn statuses_of_the_path_ask_for_another_one() {
        for status in [
            Status::ASYMMETRIC_ACCESS_INACCESSIBLE,
            Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS,
            Status::INTERNAL_PATH_ERROR,
            Status::CONTROLLER_PATHING_ERROR,
            Status::KEEP_ALIVE_TIMER_EXPIRED,
        ] {
            assert_eq!(
                failure(status, delays()).retry(),
                Retry::OtherPath,
                "{status}"
            );
        }
        let transition = failure(Status::ASYMMETRIC_ACCESS_TRANSITION, delays());
        assert!(matches!(transition.retry(), Retry::After(_)));
    }

    #[test]
    fn what_callers_act_on_has_a_name() {
        let named = [
            (
                Status::COMPARE_FAILURE,
                Failure::Miscompare { offset: None },
            ),
            (Status::RESERVATION_CONFLICT, Failure::ReservationConflict),
            (Status::LBA_OUT_OF_RANGE, Failure::OutOfRange),
            (Status::NAMESPACE_WRITE_PROTECTED, Failure::ReadOnly),
            (Status::WRITE_TO_READ_ONLY_RANGE, Failure::ReadOnly),
            (Status::CAPACITY_EXCEEDED, Failure::NoSpace),
            (Status::INVALID_COMMAND_OPCODE, Failure::Unsupported),
        ];
        for (status, expected) in named {
            assert_eq!(failure(status.do_not_retry(), delays()), expected);
        }
    }
}
