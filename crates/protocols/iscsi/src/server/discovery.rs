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
#[non_exhaustive]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::{ConnectionId, Isid, Tsih};
    use crate::server::directory::fixture::{INITIATOR, TARGET, TestDirectory, name};
    use crate::session_parameters::OperationalParameters;

    const OTHER: &str = "iqn.1999-07.com.example:diskarray.sn.99";
    const OWN_RECORD: &str = "TargetName=iqn.1999-07.com.example:diskarray.sn.88 \
         TargetAddress=10.1.0.45:3000,1 TargetAddress=[2001:db8::1]:3260,2";
    const OTHER_RECORD: &str = "TargetName=iqn.1999-07.com.example:diskarray.sn.99 \
         TargetAddress=10.1.0.45:3000,1";

    fn session(session_type: SessionType, target: Option<&str>) -> SessionParameters {
        SessionParameters {
            session_type,
            initiator_name: name(INITIATOR),
            initiator_alias: None,
            target_name: target.map(name),
            target_alias: None,
            portal_group_tag: target.map(|_| PortalGroupTag(1)),
            isid: Isid([0; 6]),
            tsih: Tsih(1),
            connection_id: ConnectionId(0),
            continues_session: false,
            authenticated_as: None,
            operational: OperationalParameters::default(),
        }
    }

    fn ask(session: &SessionParameters, text: &str) -> Result<TextReply, TextRequestError> {
        let mut bytes = text.replace(' ', "\0").into_bytes();
        bytes.push(0);
        answer_text(session, &bytes, &TestDirectory::default())
    }

    fn text(session: &SessionParameters, request: &str) -> String {
        let reply = ask(session, request).unwrap();
        String::from_utf8(reply.text)
            .unwrap()
            .replace('\0', " ")
            .trim_end()
            .to_owned()
    }

    #[test]
    fn discovery_lists_all_targets_the_initiator_may_see() {
        let session = session(SessionType::Discovery, None);
        let all = format!("{OWN_RECORD} {OTHER_RECORD}");
        assert_eq!(text(&session, "SendTargets=All"), all);
    }

    #[test]
    fn a_record_is_written_as_the_standard_has_it() {
        let session = session(SessionType::Discovery, None);
        let reply = answer_text(
            &session,
            b"SendTargets=iqn.1999-07.com.example:diskarray.sn.99\0",
            &TestDirectory::default(),
        );
        assert_eq!(
            reply.unwrap().text,
            b"TargetName=iqn.1999-07.com.example:diskarray.sn.99\0\
              TargetAddress=10.1.0.45:3000,1\0"
        );
    }

    #[test]
    fn discovery_of_a_name_lists_that_target_or_nothing() {
        let session = session(SessionType::Discovery, None);
        assert_eq!(text(&session, &format!("SendTargets={TARGET}")), OWN_RECORD);
        let upper = TARGET.to_ascii_uppercase();
        assert_eq!(text(&session, &format!("SendTargets={upper}")), OWN_RECORD);
        for unseen in ["iqn.2000-01.com.example:hidden", "all", "ALL", "x"] {
            assert_eq!(text(&session, &format!("SendTargets={unseen}")), "");
        }
    }

    #[test]
    fn discovery_of_nothing_lists_the_target_named_at_login() {
        let named = session(SessionType::Discovery, Some(OTHER));
        assert_eq!(text(&named, "SendTargets="), OTHER_RECORD);
        let unnamed = session(SessionType::Discovery, None);
        assert_eq!(text(&unnamed, "SendTargets="), "");
    }

    #[test]
    fn a_normal_session_learns_of_its_own_target_only() {
        let session = session(SessionType::Normal, Some(TARGET));
        assert_eq!(text(&session, "SendTargets="), OWN_RECORD);
        assert_eq!(text(&session, &format!("SendTargets={TARGET}")), OWN_RECORD);
        for refused in ["All", OTHER, "x"] {
            let request = format!("SendTargets={refused}");
            assert_eq!(text(&session, &request), "SendTargets=Reject");
        }
    }

    #[test]
    fn send_targets_comes_alone() {
        for session in [
            session(SessionType::Discovery, None),
            session(SessionType::Normal, Some(TARGET)),
        ] {
            let request = "SendTargets= MaxRecvDataSegmentLength=8192";
            assert_eq!(
                ask(&session, request),
                Err(TextRequestError::SendTargetsNotAlone)
            );
        }
    }

    #[test]
    fn the_segment_length_may_be_declared_again() {
        let session = session(SessionType::Normal, Some(TARGET));
        let request = "MaxRecvDataSegmentLength=65536 X-key=1 InitiatorAlias=x";
        let reply = ask(&session, request).unwrap();
        assert_eq!(reply.initiator_max_recv_data_segment_length, Some(65_536));
        assert_eq!(reply.text, b"X-key=NotUnderstood\0");
        let key = Key::MaxRecvDataSegmentLength;
        for (value, error) in [
            ("1", NegotiationError::UnacceptableDeclaration(key)),
            (
                "512 MaxRecvDataSegmentLength=512",
                NegotiationError::Repeated(key),
            ),
        ] {
            let result = ask(&session, &format!("MaxRecvDataSegmentLength={value}"));
            assert_eq!(result, Err(error.into()));
        }
    }

    #[test]
    fn keys_of_the_login_are_refused_afterwards() {
        let session = session(SessionType::Normal, Some(TARGET));
        for key in [
            Key::MaxBurstLength,
            Key::HeaderDigest,
            Key::AuthMethod,
            Key::TargetName,
        ] {
            let result = ask(&session, &format!("{}=1", key.name()));
            assert_eq!(result, Err(NegotiationError::WrongStage(key).into()));
        }
    }

    #[test]
    fn a_discovery_session_takes_no_declarations() {
        let session = session(SessionType::Discovery, None);
        let key = Key::MaxRecvDataSegmentLength;
        let result = ask(&session, "MaxRecvDataSegmentLength=8192");
        assert_eq!(result, Err(TextRequestError::NotForDiscovery(key)));
    }

    #[test]
    fn an_empty_request_is_answered_by_nothing() {
        let session = session(SessionType::Normal, Some(TARGET));
        assert_eq!(
            answer_text(&session, b"", &TestDirectory::default()),
            Ok(TextReply::default())
        );
    }
}
