//! Why a negotiation fails.

use thiserror::Error;

use crate::keys::Key;

/// Why a negotiation has failed. During login that ends the login (RFC 7143 §7.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// Only the other side may send the key.
    #[error("the peer may not send {}", .0.name())]
    WrongSender(Key),
    /// The key may not be sent now (§6.3: a protocol error).
    #[error("{} was sent in the wrong stage", .0.name())]
    WrongStage(Key),
    /// The key was sent before (§6.3: to be detected, and the login rejected).
    #[error("{} was sent twice", .0.name())]
    Repeated(Key),
    /// Reject, Irrelevant or NotUnderstood were offered (§6.2: a protocol error).
    #[error("the offer of {} is a reserved word", .0.name())]
    ReservedWord(Key),
    /// The value is longer than the key's may be.
    #[error("the value of {} is too long", .0.name())]
    ValueTooLong(Key),
    /// What was declared is not acceptable.
    #[error("the value declared for {} is not acceptable", .0.name())]
    UnacceptableDeclaration(Key),
    /// Of the choices offered none is supported or allowed here.
    #[error("none of the values offered for {} is acceptable", .0.name())]
    NoCommonChoice(Key),
    /// The answer to our offer is none that may be given to it (§6.2: a protocol error).
    #[error("the answer to {} is not admissible", .0.name())]
    InadmissibleAnswer(Key),
    /// Our offer was never answered.
    #[error("the offer of {} was not answered", .0.name())]
    Unanswered(Key),
    /// The result is one we cannot work with.
    #[error("the peer does not accept the required value of {}", .0.name())]
    RequirementNotMet(Key),
}
