//! Logins of discovery sessions.

use super::*;

#[test]
fn needs_no_target_and_gets_no_portal_group_tag() {
    let mut talk = Talk::new();
    let heard = talk.say(
        SECURITY,
        Some(OPERATIONAL),
        &format!("InitiatorName={INITIATOR} SessionType=Discovery AuthMethod=None"),
    );
    assert_eq!(heard.transits_to(OPERATIONAL).text, ["AuthMethod=None"]);
    let heard = talk.say(
        OPERATIONAL,
        Some(FULL),
        "MaxConnections=4 InitialR2T=No ErrorRecoveryLevel=2 MaxBurstLength=1024 \
             DefaultTime2Wait=0 HeaderDigest=None,CRC32C",
    );
    assert_eq!(
        heard.text,
        [
            "MaxConnections=Irrelevant",
            "InitialR2T=Irrelevant",
            "ErrorRecoveryLevel=0",
            "MaxBurstLength=Irrelevant",
            "DefaultTime2Wait=2",
            "HeaderDigest=None",
            "MaxRecvDataSegmentLength=262144",
        ]
    );
    let session = heard.finished();
    assert_eq!(session.session_type, SessionType::Discovery);
    assert_eq!(session.target_name, None);
    assert_eq!(session.portal_group_tag, None);
}

#[test]
fn of_a_named_target_gets_its_portal_group_tag() {
    let mut talk = Talk::new();
    let text = format!("{} SessionType=Discovery", names());
    let heard = talk.say(SECURITY, Some(OPERATIONAL), &text);
    assert_eq!(heard.text, ["TargetPortalGroupTag=1"]);
}

#[test]
fn has_authentication_of_its_own() {
    let mut talk = Talk::new();
    talk.directory.discovery_authentication = Authentication::chap_required(chap(false));
    let text = format!("InitiatorName={INITIATOR} SessionType=Discovery");
    assert_eq!(
        talk.say(OPERATIONAL, Some(FULL), &text).refused(),
        LoginStatus::AUTHENTICATION_FAILURE
    );
}
