//! The operational stage.

use super::*;

#[test]
fn unknown_keys_are_not_understood() {
    let mut talk = Talk::new();
    let text = format!(
        "{} X-com.example.key=1 SRP_U=user X-other=NotUnderstood",
        names()
    );
    let heard = talk.say(OPERATIONAL, Some(FULL), &text);
    assert_eq!(
        heard.text[..2],
        ["X-com.example.key=NotUnderstood", "SRP_U=NotUnderstood"]
    );
    assert!(!heard.text.iter().any(|pair| pair.starts_with("X-other")));
    heard.finished();
}

#[test]
fn node_architecture_is_taken_without_a_word() {
    let mut talk = Talk::new();
    let text = format!("{} X#NodeArchitecture=Example/1,CPU/x86", names());
    let heard = talk.say(OPERATIONAL, Some(FULL), &text);
    assert_eq!(
        heard.text,
        ["MaxRecvDataSegmentLength=262144", "TargetPortalGroupTag=1"]
    );
}

#[test]
fn markers_are_rejected() {
    let mut talk = Talk::new();
    let text = format!(
        "{} IFMarker=No OFMarker=Yes IFMarkInt=1~2 OFMarkInt=2048",
        names()
    );
    let heard = talk.say(OPERATIONAL, Some(FULL), &text);
    for key in ["IFMarker", "OFMarker", "IFMarkInt", "OFMarkInt"] {
        assert_eq!(heard.value(key), "Reject");
    }
    heard.finished();
}

#[test]
fn names_declared_again_in_a_later_stage_are_taken_when_unchanged() {
    // As libiscsi 1.19 does when it authenticates itself.
    let mut talk = Talk::new();
    let text = format!("{} SessionType=Normal AuthMethod=CHAP,None", names());
    talk.say(SECURITY, Some(OPERATIONAL), &text)
        .transits_to(OPERATIONAL);
    let text = format!("{} SessionType=Normal", names());
    talk.say(OPERATIONAL, Some(FULL), &text).finished();

    for changed in [
        "InitiatorName=iqn.other",
        "SessionType=Discovery",
        "TargetName=iqn.other",
    ] {
        let mut talk = Talk::new();
        let text = format!("{} SessionType=Normal", names());
        talk.say(SECURITY, Some(OPERATIONAL), &text)
            .transits_to(OPERATIONAL);
        let heard = talk.say(OPERATIONAL, Some(FULL), changed);
        assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR, "{changed}");
    }
}

#[test]
fn a_session_type_that_comes_late_cannot_change_the_session() {
    let mut talk = Talk::new();
    talk.say(SECURITY, Some(OPERATIONAL), &names())
        .transits_to(OPERATIONAL);
    let heard = talk.say(OPERATIONAL, Some(FULL), "SessionType=Discovery");
    assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);

    let mut talk = Talk::new();
    talk.say(SECURITY, Some(OPERATIONAL), &names())
        .transits_to(OPERATIONAL);
    talk.say(OPERATIONAL, Some(FULL), "SessionType=Normal")
        .finished();
}

#[test]
fn a_digest_that_is_required_and_not_offered_is_asked_for() {
    let directory = || {
        let mut directory = TestDirectory::default();
        directory.config.header_digest = DigestPolicy::Crc32c;
        directory
    };
    let mut talk = Talk::with(directory());
    let heard = talk.say(OPERATIONAL, Some(FULL), &names());
    assert_eq!(heard.stays().value("HeaderDigest"), "CRC32C");
    let session = talk
        .say(OPERATIONAL, Some(FULL), "HeaderDigest=CRC32C")
        .finished();
    assert_eq!(session.operational.header_digest, Digest::Crc32c);

    for answer in ["HeaderDigest=None", "HeaderDigest=Reject", ""] {
        let mut talk = Talk::with(directory());
        talk.say(OPERATIONAL, Some(FULL), &names()).stays();
        let heard = talk.say(OPERATIONAL, Some(FULL), answer);
        assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR, "{answer}");
    }

    let mut talk = Talk::with(directory());
    let heard = talk.say(
        OPERATIONAL,
        Some(FULL),
        &format!("{} HeaderDigest=None", names()),
    );
    assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn the_initiators_order_of_digests_decides() {
    for (offer, digest) in [
        ("CRC32C,None", Digest::Crc32c),
        ("None,CRC32C", Digest::None),
        ("X-other,CRC32C", Digest::Crc32c),
    ] {
        let mut talk = Talk::new();
        let text = format!("{} DataDigest={offer}", names());
        let session = talk.say(OPERATIONAL, Some(FULL), &text).finished();
        assert_eq!(session.operational.data_digest, digest);
    }
}
