//! What a target answers to the text of text requests: SendTargets (RFC 7143 appendix C), and the few
//! keys that may be sent in full feature phase (§6.4).
//!
//! | `SendTargets=` | discovery session | normal session |
//! |---|---|---|
//! | `All` | all targets the initiator may see | Reject (appendix C: must not be supported) |
//! | a name | that target, if the initiator may see it | the session's own; Reject for another |
//! | nothing | the target named at login, if there was one | the session's own |
//!
//! A target that the initiator may not see is not there: the answer has no record of it. Each record
//! is a TargetName and its TargetAddresses, with the portal group tag.
//!
//! The connection joins requests that have the C bit and cuts long answers; here texts are whole.

use thiserror::Error;

use super::directory::{Directory, TargetRecord};
use crate::keys::{Key, Phase};
use crate::name::IscsiName;
use crate::negotiation::{Ledger, NegotiationError, Role, declared_segment_length};
use crate::session_parameters::{PortalGroupTag, SessionParameters, SessionType};
use crate::text::{self, NOT_UNDERSTOOD, Pair, REJECT, TextError, TextWriter};

/// The value of SendTargets that asks for all targets.
const ALL: &str = "All";

/// The answer to a complete text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextReply {
    /// Text of the response, of any length; may be empty.
    pub text: Vec<u8>,
    /// The initiator's new MaxRecvDataSegmentLength in bytes, if it declared one. Takes effect once the
    /// exchange is over (§6.4).
    pub initiator_max_recv_data_segment_length: Option<u32>,
}

/// Why a text request gets a Reject PDU, with the reason Protocol Error (§6.4), instead of an answer.
/// Nothing that the request declared takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextRequestError {
    /// The text is malformed.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A key breaks the rules.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// SendTargets came together with another key (appendix C: exactly one).
    #[error("SendTargets came together with other keys")]
    SendTargetsNotAlone,
    /// A discovery session takes nothing but SendTargets (§13.21).
    #[error("{} was sent on a discovery session", .0.name())]
    NotForDiscovery(Key),
}

/// The answer to the complete text of a text request.
///
/// # Errors
/// When the request is to be rejected.
pub fn answer_text(
    session: &SessionParameters,
    text: &[u8],
    directory: &dyn Directory,
) -> Result<TextReply, TextRequestError> {
    let pairs = text::parse(text)?;
    if let Some(request) = pairs
        .iter()
        .find(|pair| pair.key == Key::SendTargets.name())
    {
        if pairs.len() > 1 {
            return Err(TextRequestError::SendTargetsNotAlone);
        }
        let text = send_targets(session, request.value, directory);
        return Ok(TextReply {
            text,
            ..TextReply::default()
        });
    }
    answer_declarations(session, &pairs)
}

fn answer_declarations(
    session: &SessionParameters,
    pairs: &[Pair<'_>],
) -> Result<TextReply, TextRequestError> {
    let mut out = TextWriter::new();
    let mut reply = TextReply::default();
    let mut ledger = Ledger::new(Role::Initiator);
    for pair in pairs {
        let Some(key) = Key::from_name(pair.key) else {
            if pair.value != NOT_UNDERSTOOD {
                out.push(pair.key, NOT_UNDERSTOOD);
            }
            continue;
        };
        ledger.admit(key, pair.value, Phase::FullFeature)?;
        if session.session_type == SessionType::Discovery {
            return Err(TextRequestError::NotForDiscovery(key));
        }
        if key == Key::MaxRecvDataSegmentLength {
            let length = declared_segment_length(pair.value)
                .ok_or(NegotiationError::UnacceptableDeclaration(key))?;
            reply.initiator_max_recv_data_segment_length = Some(length);
        }
    }
    reply.text = out.into_bytes();
    Ok(reply)
}

fn send_targets(session: &SessionParameters, value: &str, directory: &dyn Directory) -> Vec<u8> {
    let wanted = match (value, session.session_type) {
        (ALL, SessionType::Discovery) => None,
        (ALL, SessionType::Normal) => return rejected(),
        ("", _) => match &session.target_name {
            Some(own) => Some(own.clone()),
            None => return Vec::new(),
        },
        (name, session_type) => match (IscsiName::from_peer(name).ok(), session_type) {
            (Some(name), SessionType::Discovery) => Some(name),
            (None, SessionType::Discovery) => return Vec::new(),
            (name, SessionType::Normal) if name == session.target_name => name,
            (_, SessionType::Normal) => return rejected(),
        },
    };
    let mut out = TextWriter::new();
    for record in directory.visible_targets(&session.initiator_name) {
        if wanted.as_ref().is_none_or(|wanted| *wanted == record.name) {
            write_record(&record, &mut out);
        }
    }
    out.into_bytes()
}

fn rejected() -> Vec<u8> {
    let mut out = TextWriter::new();
    out.push(Key::SendTargets.name(), REJECT);
    out.into_bytes()
}

fn write_record(record: &TargetRecord, out: &mut TextWriter) {
    out.push(Key::TargetName.name(), &record.name);
    for portal in &record.portals {
        let PortalGroupTag(tag) = portal.portal_group_tag;
        out.push(
            Key::TargetAddress.name(),
            format_args!("{},{tag}", portal.address.0),
        );
    }
}
