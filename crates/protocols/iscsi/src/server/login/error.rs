//! Why logins are refused, and what the initiator is told.

use thiserror::Error;

use crate::chap::BinaryValueError;
use crate::keys::Key;
use crate::name::NameError;
use crate::negotiation::NegotiationError;
use crate::pdu::{LoginStatus, Stage};
use crate::server::directory::LoginRefusal;
use crate::text::TextError;

/// Login Requests after which an initiator is given up. A login takes two to five; one that cuts 64 KiB
/// of text into segments of 512 bytes takes 128.
pub const REQUESTS_MAX: u32 = 256;

/// Why a login is refused. [`LoginError::status`] is what the initiator is told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoginError {
    /// Version-min is higher than anything we speak.
    #[error("the initiator speaks no version below {version_min}")]
    UnsupportedVersion {
        /// The lowest it speaks.
        version_min: u8,
    },
    /// A field that must stay the same has changed during the login.
    #[error("{0} changed during the login")]
    HeaderChanged(&'static str),
    /// The current stage is not the one the login is in, or no stage at all.
    #[error("a request of stage {0:?} is out of order")]
    WrongCurrentStage(Stage),
    /// The next stage does not come after the current one.
    #[error("stage {0:?} cannot come next")]
    WrongNextStage(Stage),
    /// T and C are both set.
    #[error("a request with incomplete text (C bit) asks for the next stage (T bit)")]
    TransitWithContinue,
    /// We are in the middle of a long response, and the request has text.
    #[error("a request carries text before the response is complete")]
    TextDuringLongResponse,
    /// The data segment is longer than the default MaxRecvDataSegmentLength.
    #[error("a data segment of {0} bytes is too long for a login")]
    DataSegmentTooLong(usize),
    /// More requests than any login takes.
    #[error("the login took more than {REQUESTS_MAX} requests")]
    TooManyRequests,
    /// The login has ended already.
    #[error("the login is over")]
    Over,
    /// The text is malformed.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A key breaks the rules, or no agreement is possible.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// InitiatorName, or TargetName of a normal session, is not in the first request.
    #[error("{} is missing", .0.name())]
    Missing(Key),
    /// InitiatorName is no name.
    #[error("the initiator's name is malformed: {0}")]
    MalformedInitiatorName(NameError),
    /// TargetName is no name, so there is no such target.
    #[error("the target's name is malformed: {0}")]
    MalformedTargetName(NameError),
    /// SessionType is neither Normal nor Discovery.
    #[error("the session type is unknown")]
    UnknownSessionType,
    /// A name or the session type was declared, and the login is about another one.
    #[error("{} differs from its first value in this login", .0.name())]
    RedeclaredDifferently(Key),
    /// The directory says no.
    #[error("refused: {0:?}")]
    Refused(LoginRefusal),
    /// The directory does not establish the session.
    #[error("not established: {0}")]
    NotEstablished(LoginStatus),
    /// The initiator goes straight to the operational stage, and has to prove itself first.
    #[error("the initiator skips the required authentication")]
    AuthenticationSkipped,
    /// None of the initiator's methods is allowed.
    #[error("initiator and target share no authentication method")]
    NoCommonAuthMethod,
    /// The initiator does not say anything to our offer of CHAP.
    #[error("the initiator does not begin the required authentication")]
    AuthMethodUnanswered,
    /// None of the initiator's CHAP algorithms is allowed.
    #[error("initiator and target share no CHAP algorithm")]
    NoCommonChapAlgorithm,
    /// A key of the exchange came when it was not due, or without its companion.
    #[error("a key of the authentication exchange came out of order")]
    AuthenticationOutOfOrder,
    /// CHAP_R or CHAP_C is no binary value.
    #[error("malformed CHAP value: {0}")]
    MalformedChapValue(BinaryValueError),
    /// CHAP_I is not a number of eight bits.
    #[error("malformed CHAP identifier")]
    MalformedChapIdentifier,
    /// No such name, or not its secret.
    #[error("the CHAP name or response is wrong")]
    ChapResponseWrong,
    /// The initiator's secret is the target's own (§9.2.1).
    #[error("the same CHAP secret is used in both directions")]
    ChapSecretShared,
    /// The initiator's challenge is ours (§9.2.1).
    #[error("the CHAP challenge was reflected")]
    ChapChallengeReflected,
    /// The initiator wants the target to prove itself, and it has nothing to do so with.
    #[error("the initiator asks for target authentication, and none is configured")]
    TargetAuthenticationUnavailable,
}

impl LoginError {
    /// Whether the initiator has tried to prove something, and has not.
    #[must_use]
    pub const fn is_wrong_proof(&self) -> bool {
        matches!(
            self,
            Self::ChapResponseWrong | Self::ChapSecretShared | Self::ChapChallengeReflected
        )
    }

    /// What the initiator is told (RFC 7143 §11.13.5).
    #[must_use]
    pub const fn status(&self) -> LoginStatus {
        match self {
            Self::UnsupportedVersion { .. } => LoginStatus::UNSUPPORTED_VERSION,
            // §6.2, §6.3: protocol errors and negotiation failures end the login as errors of the
            // initiator.
            Self::HeaderChanged(_)
            | Self::WrongCurrentStage(_)
            | Self::WrongNextStage(_)
            | Self::TransitWithContinue
            | Self::TextDuringLongResponse
            | Self::DataSegmentTooLong(_)
            | Self::TooManyRequests
            | Self::Over
            | Self::Text(_)
            | Self::Negotiation(_)
            | Self::MalformedInitiatorName(_)
            | Self::RedeclaredDifferently(_) => LoginStatus::INITIATOR_ERROR,
            // §6.3: the names belong in the first request.
            Self::Missing(_) => LoginStatus::MISSING_PARAMETER,
            // A name that cannot exist does not.
            Self::MalformedTargetName(_) => LoginStatus::NOT_FOUND,
            // §13.21.
            Self::UnknownSessionType => LoginStatus::SESSION_TYPE_NOT_SUPPORTED,
            Self::Refused(LoginRefusal::Status(status)) | Self::NotEstablished(status) => *status,
            Self::Refused(LoginRefusal::MovedTemporarily(_)) => {
                LoginStatus::TARGET_MOVED_TEMPORARILY
            }
            Self::Refused(LoginRefusal::MovedPermanently(_)) => {
                LoginStatus::TARGET_MOVED_PERMANENTLY
            }
            // §6.3.1, §12.1.3.
            Self::AuthenticationSkipped
            | Self::NoCommonAuthMethod
            | Self::AuthMethodUnanswered
            | Self::NoCommonChapAlgorithm
            | Self::AuthenticationOutOfOrder
            | Self::MalformedChapValue(_)
            | Self::MalformedChapIdentifier
            | Self::ChapResponseWrong
            | Self::ChapSecretShared
            | Self::ChapChallengeReflected
            | Self::TargetAuthenticationUnavailable => LoginStatus::AUTHENTICATION_FAILURE,
        }
    }
}
