//! Failures of one operation, and remedies.

use std::fmt;
use std::io;
use std::time::Duration;

use longshore_nvme::status::Status as NvmeStatus;
use longshore_scsi::sense::AdditionalSense;
use longshore_scsi::status::Status as ScsiStatus;
use thiserror::Error;

use super::lost::Lost;

/// Sense data, as far as anybody acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// SENSE KEY (SPC-4 §4.5.6), 0 to Fh.
    pub key: u8,
    /// ADDITIONAL SENSE CODE (SPC-4 Annex F).
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
    /// INFORMATION, when it is valid.
    pub information: Option<u64>,
}

/// How one operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// A SCSI status other than those below.
    #[error("the target answers {}{}", ScsiText(*.status), SenseText(*.sense))]
    Scsi {
        /// STATUS (SAM-5 §5.3), as the response carries it.
        status: u8,
        /// Sense data, which comes with CHECK CONDITION.
        sense: Option<Sense>,
    },
    /// An NVMe status other than those below.
    #[error("the controller answers {status:?}")]
    Nvme {
        /// Status code type and status code of the completion.
        status: NvmeStatus,
        /// The delay that its CRD field names.
        retry_after: Option<Duration>,
    },
    /// A compare and write found something else; nothing was written.
    #[error("the data on the medium is not the expected data")]
    Miscompare {
        /// Where the first difference is, in bytes, where the peer says so.
        offset: Option<u32>,
    },
    /// Somebody else has reserved the volume.
    #[error("somebody else has reserved the volume; `longshore info` shows who")]
    ReservationConflict,
    /// The peer has no such operation.
    #[error("the volume does not support the operation")]
    Unsupported,
    /// The range does not lie within the volume.
    #[error("the range lies outside the volume, which may have shrunk")]
    OutOfRange,
    /// The volume takes no writes.
    #[error("the volume is write protected")]
    ReadOnly,
    /// No space is left behind the volume.
    #[error("the storage of the volume has no space left")]
    NoSpace,
    /// The peer said that all went well, but did not move all data.
    #[error("{moved} of {expected} bytes were transferred")]
    ShortTransfer {
        /// Bytes of the operation.
        expected: u64,
        /// Bytes that were moved.
        moved: u64,
    },
    /// A data digest did not match.
    #[error("data was damaged in transit: its digest does not match")]
    DataDigest,
    /// The memory given is not what the operation needs.
    #[error("the operation needs {needed} bytes of memory, {given} were given")]
    WrongDataLength {
        /// Bytes of the operation.
        needed: u64,
        /// Bytes of the memory that came with it.
        given: u64,
    },
    /// Offset and length are not whole blocks.
    #[error("{length} bytes at offset {offset} are not whole blocks of {block_size} bytes")]
    Misaligned {
        /// From the start of the volume, in bytes.
        offset: u64,
        /// Bytes that were asked for.
        length: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// More than the peer takes in one command.
    #[error("more than the volume accepts in one operation")]
    TooLarge,
    /// The connection ended before the answer.
    #[error("the connection was lost: {0}")]
    ConnectionLost(Lost),
    /// The connection ended, and nobody knows whether the operation was done. It cannot be repeated
    /// blindly.
    #[error(
        "the connection was lost ({0}) and the operation may have been done; check before you \
         repeat it"
    )]
    OutcomeUnknown(Lost),
    /// The system call of an operation on local storage failed.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    System(i32),
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// It was aborted: by us, or by a task management function of somebody else.
    #[error("the operation was aborted")]
    Aborted,
    /// The volume was closed before.
    #[error("the volume is closed")]
    Closed,
}

/// What may help after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nothing: it would fail again.
    Never,
    /// The same again, at once.
    Now,
    /// The same again, later.
    After(Duration),
    /// The same over another path.
    OtherPath,
}

/// A peer that is busy gets so much time.
const BUSY_DELAY: Duration = Duration::from_millis(20);

/// A volume that is getting ready, or a path that changes its state, gets so much time.
const TRANSITION_DELAY: Duration = Duration::from_millis(500);

impl Failure {
    /// The remedy that the status leaves. Sense data is weighed where there is any.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Scsi { status, sense } => retry_scsi(ScsiStatus(*status), *sense),
            Self::Nvme {
                status,
                retry_after,
            } => retry_nvme(*status, *retry_after),
            Self::DataDigest | Self::Aborted => Retry::Now,
            Self::ConnectionLost(_) | Self::TimedOut => Retry::OtherPath,
            Self::Miscompare { .. }
            | Self::ReservationConflict
            | Self::Unsupported
            | Self::OutOfRange
            | Self::ReadOnly
            | Self::NoSpace
            | Self::ShortTransfer { .. }
            | Self::WrongDataLength { .. }
            | Self::Misaligned { .. }
            | Self::TooLarge
            | Self::OutcomeUnknown(_)
            | Self::System(_)
            | Self::Closed => Retry::Never,
        }
    }

    /// Whether the target reports a change of the unit instead of executing the command.
    #[must_use]
    pub fn is_unit_attention(&self) -> bool {
        matches!(self, Self::Scsi { sense: Some(sense), .. } if sense.key == UNIT_ATTENTION)
    }

    /// As an error of the operating system, for those who know only these.
    #[must_use]
    pub fn to_io_error(&self) -> io::Error {
        let kind = match self {
            Self::System(number) => return io::Error::from_raw_os_error(*number),
            Self::Unsupported => io::ErrorKind::Unsupported,
            Self::OutOfRange
            | Self::WrongDataLength { .. }
            | Self::Misaligned { .. }
            | Self::TooLarge => io::ErrorKind::InvalidInput,
            Self::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            Self::NoSpace => io::ErrorKind::StorageFull,
            Self::ReservationConflict => io::ErrorKind::PermissionDenied,
            Self::DataDigest => io::ErrorKind::InvalidData,
            Self::ConnectionLost(_) | Self::OutcomeUnknown(_) | Self::Closed => {
                io::ErrorKind::NotConnected
            }
            Self::TimedOut => io::ErrorKind::TimedOut,
            Self::ShortTransfer { .. } => io::ErrorKind::UnexpectedEof,
            Self::Scsi { .. } | Self::Nvme { .. } | Self::Miscompare { .. } | Self::Aborted => {
                io::ErrorKind::Other
            }
        };
        io::Error::new(kind, self.clone())
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        failure.to_io_error()
    }
}

/// Sense keys (SPC-4 §4.5.6) after which another attempt may go well.
const NOT_READY: u8 = 0x2;
const UNIT_ATTENTION: u8 = 0x6;
const ABORTED_COMMAND: u8 = 0xb;

fn retry_scsi(status: ScsiStatus, sense: Option<Sense>) -> Retry {
    match status {
        ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL => Retry::After(BUSY_DELAY),
        ScsiStatus::TASK_ABORTED => Retry::Now,
        ScsiStatus::CHECK_CONDITION => {
            match sense.map(|sense| (sense.key, sense.asc, sense.ascq)) {
                // The asymmetric access states: transition, standby and unavailable.
                Some((NOT_READY, 0x04, 0x0a)) => Retry::After(TRANSITION_DELAY),
                Some((NOT_READY, 0x04, 0x0b | 0x0c)) => Retry::OtherPath,
                // Becoming ready, and operations in progress.
                Some((NOT_READY, 0x04, 0x01 | 0x04 | 0x07 | 0x08 | 0x09 | 0x14)) => {
                    Retry::After(TRANSITION_DELAY)
                }
                Some((UNIT_ATTENTION | ABORTED_COMMAND, ..)) => Retry::Now,
                _ => Retry::Never,
            }
        }
        _ => Retry::Never,
    }
}

fn retry_nvme(status: NvmeStatus, retry_after: Option<Duration>) -> Retry {
    match status.code() {
        NvmeStatus::ASYMMETRIC_ACCESS_INACCESSIBLE
        | NvmeStatus::ASYMMETRIC_ACCESS_PERSISTENT_LOSS
        | NvmeStatus::CONTROLLER_PATHING_ERROR
        | NvmeStatus::HOST_PATHING_ERROR
        | NvmeStatus::INTERNAL_PATH_ERROR => Retry::OtherPath,
        NvmeStatus::ASYMMETRIC_ACCESS_TRANSITION => {
            Retry::After(retry_after.unwrap_or(TRANSITION_DELAY))
        }
        _ if status.is_final() => Retry::Never,
        NvmeStatus::COMMAND_INTERRUPTED | NvmeStatus::NAMESPACE_NOT_READY => {
            Retry::After(retry_after.unwrap_or(BUSY_DELAY))
        }
        NvmeStatus::TRANSIENT_TRANSPORT_ERROR
        | NvmeStatus::ABORT_REQUESTED
        | NvmeStatus::ABORTED_SQ_DELETION
        | NvmeStatus::ABORTED_PREEMPT_AND_ABORT
        | NvmeStatus::ABORTED_FAILED_FUSED
        | NvmeStatus::ABORTED_MISSING_FUSED => retry_after.map_or(Retry::Now, Retry::After),
        // A delay is named only where another attempt makes sense.
        _ => retry_after.map_or(Retry::Never, Retry::After),
    }
}

struct ScsiText(u8);

impl fmt::Display for ScsiText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", ScsiStatus(self.0))
    }
}

struct SenseText(Option<Sense>);

impl fmt::Display for SenseText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |sense| write!(f, ": {sense}"))
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self.key {
            0x0 => "NO SENSE",
            0x1 => "RECOVERED ERROR",
            0x2 => "NOT READY",
            0x3 => "MEDIUM ERROR",
            0x4 => "HARDWARE ERROR",
            0x5 => "ILLEGAL REQUEST",
            0x6 => "UNIT ATTENTION",
            0x7 => "DATA PROTECT",
            0x8 => "BLANK CHECK",
            0x9 => "VENDOR SPECIFIC",
            0xa => "COPY ABORTED",
            0xb => "ABORTED COMMAND",
            0xd => "VOLUME OVERFLOW",
            0xe => "MISCOMPARE",
            0xf => "COMPLETED",
            _ => "RESERVED",
        };
        let additional = AdditionalSense {
            asc: self.asc,
            ascq: self.ascq,
        };
        write!(f, "{key} {additional:?}")?;
        self.information
            .map_or(Ok(()), |at| write!(f, " (information {at})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_condition(key: u8, asc: u8, ascq: u8) -> Failure {
        Failure::Scsi {
            status: ScsiStatus::CHECK_CONDITION.0,
            sense: Some(Sense {
                key,
                asc,
                ascq,
                information: None,
            }),
        }
    }

    fn scsi(status: ScsiStatus) -> Failure {
        Failure::Scsi {
            status: status.0,
            sense: None,
        }
    }

    fn nvme(status: NvmeStatus) -> Failure {
        Failure::Nvme {
            status,
            retry_after: None,
        }
    }

    #[test]
    fn a_busy_target_is_asked_again_later() {
        for failure in [
            scsi(ScsiStatus::BUSY),
            scsi(ScsiStatus::TASK_SET_FULL),
            check_condition(NOT_READY, 0x04, 0x01),
            check_condition(NOT_READY, 0x04, 0x0a),
            nvme(NvmeStatus::COMMAND_INTERRUPTED),
            nvme(NvmeStatus::NAMESPACE_NOT_READY),
            nvme(NvmeStatus::ASYMMETRIC_ACCESS_TRANSITION),
        ] {
            assert!(matches!(failure.retry(), Retry::After(_)), "{failure}");
        }
    }

    #[test]
    fn unit_attentions_and_aborted_commands_are_repeated_at_once() {
        for failure in [
            scsi(ScsiStatus::TASK_ABORTED),
            check_condition(UNIT_ATTENTION, 0x29, 0x00),
            check_condition(ABORTED_COMMAND, 0x47, 0x00),
            nvme(NvmeStatus::ABORT_REQUESTED),
            Failure::DataDigest,
        ] {
            assert_eq!(failure.retry(), Retry::Now, "{failure}");
        }
    }

    #[test]
    fn a_path_without_access_is_left() {
        for failure in [
            check_condition(NOT_READY, 0x04, 0x0b),
            check_condition(NOT_READY, 0x04, 0x0c),
            // Do Not Retry is about the same path.
            nvme(NvmeStatus::ASYMMETRIC_ACCESS_INACCESSIBLE.do_not_retry()),
            nvme(NvmeStatus::CONTROLLER_PATHING_ERROR),
            Failure::ConnectionLost(Lost::HungUp),
        ] {
            assert_eq!(failure.retry(), Retry::OtherPath, "{failure}");
        }
    }

    #[test]
    fn what_would_fail_again_is_not_repeated() {
        for failure in [
            check_condition(0x3, 0x11, 0x00),
            check_condition(0x5, 0x24, 0x00),
            nvme(NvmeStatus::INVALID_FIELD),
            nvme(NvmeStatus::COMMAND_INTERRUPTED.do_not_retry()),
            Failure::OutcomeUnknown(Lost::HungUp),
            Failure::Miscompare { offset: None },
        ] {
            assert_eq!(failure.retry(), Retry::Never, "{failure}");
        }
    }

    #[test]
    fn a_delay_that_the_controller_names_is_kept() {
        let retry_after = Some(Duration::from_millis(700));
        let status = NvmeStatus::INTERNAL_ERROR.retry_delay(1);
        let failure = Failure::Nvme {
            status,
            retry_after,
        };
        assert_eq!(failure.retry(), Retry::After(Duration::from_millis(700)));
    }

    #[test]
    fn sense_is_told_in_the_words_of_the_standard() {
        let text = check_condition(0x3, 0x11, 0x00).to_string();
        assert!(text.contains("CHECK CONDITION: MEDIUM ERROR"), "{text}");
        assert!(text.contains("UNRECOVERED READ ERROR"), "{text}");
    }

    #[test]
    fn an_io_error_says_the_same_and_keeps_its_kind() {
        let error = Failure::ReadOnly.to_io_error();
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(error.to_string(), Failure::ReadOnly.to_string());
    }
}
