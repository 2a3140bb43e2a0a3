//! Why logins fail.

use thiserror::Error;

use crate::chap::BinaryValueError;
use crate::negotiation::NegotiationError;
use crate::pdu::{LoginStatus, Stage};
use crate::text::TextError;

/// Requests after which a target that never finishes is given up.
pub(super) const REQUESTS_MAX: u32 = 256;

/// Why a login has failed. The connection is to be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The target refuses, or sends us elsewhere.
    #[error("refused: {status}")]
    Refused {
        status: LoginStatus,
        /// Where to instead: the TargetAddresses of a redirection.
        addresses: Vec<String>,
    },
    /// A response does not belong to our request.
    #[error("the {0} of a response is wrong")]
    WrongHeader(&'static str),
    /// The target made a transition we did not ask for or that does not exist.
    #[error("the target changes to stage {0:?} out of order")]
    WrongTransition(Stage),
    /// T and C are both set.
    #[error("a response with incomplete text (C bit) ends the stage (T bit)")]
    TransitWithContinue,
    /// Text came in answer to a request that was not complete.
    #[error("the target responds before the text of the request is complete")]
    EarlyText,
    /// A data segment longer than we take in a login.
    #[error("a data segment of {0} bytes is too long for a login")]
    DataSegmentTooLong(usize),
    /// The target never finishes.
    #[error("the login took more than {REQUESTS_MAX} requests")]
    TooManyRequests,
    /// The text is malformed.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A key breaks the rules, or no agreement is possible.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// TargetPortalGroupTag is no number of 16 bits.
    #[error("the portal group tag is malformed")]
    MalformedPortalGroupTag,
    /// The final response has no TSIH.
    #[error("the target gave no session handle")]
    MissingTsih,
    /// The target chose a method we did not offer, or none.
    #[error("initiator and target share no authentication method")]
    NoCommonAuthMethod,
    /// A key of the exchange is missing, malformed or not due.
    #[error("a key of the authentication exchange came out of order")]
    AuthenticationOutOfOrder,
    /// The target ended the stage before the exchange was over.
    #[error("the target ended authentication early")]
    AuthenticationUnfinished,
    /// CHAP_C or CHAP_R is no binary value.
    #[error("malformed CHAP value: {0}")]
    MalformedChapValue(BinaryValueError),
    /// The target did not prove that it is what it should be.
    #[error("the target could not be authenticated")]
    TargetNotAuthenticated,
    /// The same secret is configured for both directions (§9.2.1).
    #[error("the same CHAP secret is used in both directions")]
    ChapSecretShared,
    /// The target's challenge is ours (§9.2.1).
    #[error("the CHAP challenge was reflected")]
    ChapChallengeReflected,
}
