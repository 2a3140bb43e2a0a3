//! How operations fail, how connections end, and why a volume cannot be reached.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_nvme::status::Status as NvmeStatus;
use longshore_scsi::sense::AdditionalSense;
use longshore_scsi::status::Status as ScsiStatus;
use thiserror::Error;

use crate::url::{HostPort, UrlError};

/// Sense data, as far as anybody acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// SENSE KEY.
    pub key: u8,
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
    /// INFORMATION, when it is valid.
    pub information: Option<u64>,
}

/// How one operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// A SCSI status other than those below.
    #[error("the target answers {}{}", ScsiText(*.status), SenseText(*.sense))]
    Scsi {
        /// STATUS.
        status: u8,
        /// With CHECK CONDITION.
        sense: Option<Sense>,
    },
    /// An NVMe status other than those below.
    #[error("the controller answers {status:?}")]
    Nvme {
        /// The Status Field.
        status: NvmeStatus,
        /// The delay that its CRD field names.
        retry_after: Option<Duration>,
    },
    /// A compare and write found something else; nothing was written.
    #[error("the medium does not hold what was expected")]
    Miscompare {
        /// Where the first difference is, in bytes, where the peer says so.
        offset: Option<u32>,
    },
    /// Somebody else has reserved the volume.
    #[error("somebody else has reserved the volume; `longshore info` shows who")]
    ReservationConflict,
    /// The peer has no such operation.
    #[error("the volume has no such operation")]
    Unsupported,
    /// The range does not lie within the volume.
    #[error("the range lies outside the volume, which may have shrunk")]
    OutOfRange,
    /// The volume takes no writes.
    #[error("the volume is write protected")]
    ReadOnly,
    /// No space is left behind the volume.
    #[error("no space is left behind the volume")]
    NoSpace,
    /// The peer said that all went well, but did not move all data.
    #[error("{moved} of {expected} bytes were moved")]
    ShortTransfer {
        /// Bytes of the operation.
        expected: u64,
        /// Bytes that were moved.
        moved: u64,
    },
    /// A data digest did not match.
    #[error("data was damaged on its way: its digest does not match")]
    DataDigest,
    /// The memory given is not what the operation needs.
    #[error("the operation needs {needed} bytes of memory, {given} were given")]
    WrongDataLength {
        /// Bytes of the operation.
        needed: u64,
        /// Bytes given.
        given: u64,
    },
    /// Offset and length are not whole blocks.
    #[error("{length} bytes at offset {offset} are not whole blocks of {block_size} bytes")]
    Misaligned {
        /// In bytes.
        offset: u64,
        /// In bytes.
        length: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// More than the peer takes in one command.
    #[error("more than the volume takes at a time")]
    TooLarge,
    /// The connection ended before the answer.
    #[error("the connection was lost: {0}")]
    ConnectionLost(Lost),
    /// The connection ended, and nobody knows whether the operation was done. It cannot be repeated
    /// blindly.
    #[error(
        "the connection was lost ({0}) and the operation may have been done; look before repeating it"
    )]
    OutcomeUnknown(Lost),
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
    /// What may help.
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
            | Self::Closed => Retry::Never,
        }
    }

    /// As an error of the operating system, for those who know only these.
    #[must_use]
    pub fn to_io_error(&self) -> io::Error {
        let kind = match self {
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

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// The peer closed its end.
    #[error("the server has closed the connection")]
    HungUp,
    /// A call on the socket failed.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Socket(i32),
    /// The protocol ended it.
    #[error(transparent)]
    Closed(#[from] CloseCause),
    /// The peer did not answer in time, so we gave it up.
    #[error("the server does not answer")]
    Silent,
    /// We closed it.
    #[error("it was closed here")]
    Ours,
    /// The portal now leads to another volume than the one that was opened.
    #[error("another volume is there: {0}")]
    AnotherVolume(String),
}

impl Lost {
    /// A call on the socket failed.
    #[must_use]
    pub fn from_io(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Socket(number),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::HungUp,
            None => Self::Socket(rustix::io::Errno::IO.raw_os_error()),
        }
    }
}

/// How a protocol ends a connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseCause {
    /// We logged out or disconnected.
    #[error("logged out")]
    LoggedOut,
    /// The peer ended it, and says why.
    #[error("the server ended the connection: {0}")]
    Peer(String),
    /// The peer broke a rule.
    #[error("the server broke a rule of the protocol: {0}")]
    Protocol(String),
    /// A digest did not match, and the protocol cannot go on from there.
    #[error("a {0} digest does not match")]
    Digest(&'static str),
}

/// Why a volume or its peer cannot be reached or used. Each says where and what to do next.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// The URL is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The name has no address.
    #[error(
        "{portal}: cannot find the address of this host: {source}; check the name, or use an address"
    )]
    Resolve {
        /// Where to.
        portal: HostPort,
        /// What the resolver said.
        source: Arc<io::Error>,
    },
    /// No TCP connection.
    #[error(
        "{portal}: cannot connect to {address}: {source}; check that the server runs there and that no firewall is between"
    )]
    Connect {
        /// Where to.
        portal: HostPort,
        /// Its address.
        address: SocketAddr,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
    /// No answer in time.
    #[error("{portal}: no answer to {step} within {} s; check that it speaks the protocol of the URL, or allow more time", .after.as_secs_f32())]
    TimedOut {
        /// Where to.
        portal: HostPort,
        /// What was waited for: "login", "Connect", …
        step: &'static str,
        /// For how long.
        after: Duration,
    },
    /// The connection ended while it was set up, or during a command on the control path.
    #[error("{portal}: the connection was lost during {step}: {lost}")]
    Lost {
        /// Where to.
        portal: HostPort,
        /// During what.
        step: &'static str,
        /// How.
        lost: Lost,
    },
    /// The peer refuses us: login status, Connect status.
    #[error("{portal}: {step} was refused: {reason}; {advice}")]
    Refused {
        /// Where to.
        portal: HostPort,
        /// What was refused.
        step: &'static str,
        /// What the peer says, in the standard's words.
        reason: String,
        /// What to do next.
        advice: &'static str,
    },
    /// Names or secrets do not match, on either side.
    #[error("{portal}: authentication failed: {reason}; {advice}")]
    Authentication {
        /// Where to.
        portal: HostPort,
        /// What went wrong. No secrets.
        reason: String,
        /// What to do next.
        advice: &'static str,
    },
    /// There is no such target, LUN, subsystem or namespace.
    #[error("{portal}: there is no {wanted}{}", Available(.available))]
    NotFound {
        /// Where to.
        portal: HostPort,
        /// What the URL names, for example `LUN 3`.
        wanted: String,
        /// What there is instead.
        available: Vec<String>,
    },
    /// What was required is not granted: a digest, mutual authentication, a number of queues.
    #[error("{portal}: the server does not grant {what}; {advice}")]
    NotGranted {
        /// Where to.
        portal: HostPort,
        /// What was asked for.
        what: String,
        /// What to do next.
        advice: &'static str,
    },
    /// The peer broke a rule.
    #[error("{portal}: the server broke a rule during {step}: {reason}")]
    Protocol {
        /// Where to.
        portal: HostPort,
        /// During what.
        step: &'static str,
        /// Which rule.
        reason: String,
    },
    /// A command of the control path failed.
    #[error("{portal}: {step} failed: {failure}")]
    Command {
        /// Where to.
        portal: HostPort,
        /// Which command.
        step: &'static str,
        /// How.
        failure: Failure,
    },
    /// The volume is nothing we can use: no disk, a block size of odd length, metadata in the data.
    #[error("{portal}: the volume cannot be used: {reason}")]
    Unusable {
        /// Where to.
        portal: HostPort,
        /// Why.
        reason: String,
    },
    /// Several portals, and none works.
    #[error("none of {} portals works: {}", .0.len(), Joined(.0))]
    AllPortals(Vec<Error>),
    /// The options contradict each other or the peer.
    #[error("{0}")]
    Options(String),
    /// The system gives no random numbers, sockets or the like.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: Arc<io::Error>,
    },
}

impl Error {
    /// Whether trying again later may go well without anybody changing anything: the peer may be starting.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::TimedOut { .. }
            | Self::Lost { .. }
            | Self::Resolve { .. }
            | Self::System { .. } => true,
            Self::Command { failure, .. } => failure.retry() != Retry::Never,
            Self::AllPortals(errors) => errors.iter().any(Self::is_transient),
            Self::Url(_)
            | Self::Refused { .. }
            | Self::Authentication { .. }
            | Self::NotFound { .. }
            | Self::NotGranted { .. }
            | Self::Protocol { .. }
            | Self::Unusable { .. }
            | Self::Options(_) => false,
        }
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

struct Available<'a>(&'a [String]);

impl fmt::Display for Available<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        if self.0.is_empty() {
            return f.write_str("; `longshore discover` lists what there is");
        }
        write!(
            f,
            "; there is {}",
            self.0[..self.0.len().min(SHOWN)].join(", ")
        )?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

struct Joined<'a>(&'a [Error]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "; " })?;
            error.fmt(f)?;
        }
        Ok(())
    }
}
