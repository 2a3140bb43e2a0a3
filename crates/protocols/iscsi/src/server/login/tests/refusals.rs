//! Logins that are refused, and with which status.

use super::*;

fn first(from: Stage, to: Option<Stage>, text: &str) -> LoginStatus {
    Talk::new().say(from, to, text).refused()
}

#[test]
fn missing_names_are_missing_parameters() {
    let target = format!("TargetName={TARGET}");
    let initiator = format!("InitiatorName={INITIATOR}");
    for text in ["", &target, &initiator, &format!("{initiator} TargetName=")] {
        assert_eq!(
            first(SECURITY, None, text),
            LoginStatus::MISSING_PARAMETER,
            "{text}"
        );
    }
}

#[test]
fn unknown_targets_are_not_found() {
    for target in [
        "iqn.2000-01.com.example:other",
        "disk",
        "iqn.2000-01.com.example:a/b",
    ] {
        let text = format!("InitiatorName={INITIATOR} TargetName={target}");
        assert_eq!(
            first(SECURITY, None, &text),
            LoginStatus::NOT_FOUND,
            "{target}"
        );
    }
}

#[test]
fn malformed_initiator_names_are_initiator_errors() {
    let text = format!("InitiatorName=host TargetName={TARGET}");
    assert_eq!(first(SECURITY, None, &text), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn session_types_are_normal_and_discovery() {
    let text = format!("{} SessionType=normal", names());
    assert_eq!(
        first(SECURITY, None, &text),
        LoginStatus::SESSION_TYPE_NOT_SUPPORTED
    );
}

#[test]
fn versions_above_zero_are_unsupported_and_the_response_says_zero() {
    let mut talk = Talk::new();
    talk.header.version_max = 2;
    talk.header.version_min = 1;
    let heard = talk.say(SECURITY, None, &names());
    assert_eq!(heard.refused(), LoginStatus::UNSUPPORTED_VERSION);
    assert_eq!(
        (heard.response.version_max, heard.response.version_active),
        (0, 0)
    );

    let mut talk = Talk::new();
    talk.header.version_max = 2;
    talk.say(SECURITY, Some(OPERATIONAL), &names())
        .transits_to(OPERATIONAL);
}

#[test]
fn the_directory_decides_who_gets_in() {
    for status in [
        LoginStatus::AUTHORIZATION_FAILURE,
        LoginStatus::TARGET_REMOVED,
        LoginStatus::SERVICE_UNAVAILABLE,
    ] {
        let mut talk = Talk::new();
        talk.directory.refusal = Some(status.into());
        let heard = talk.say(SECURITY, None, &names());
        assert_eq!(heard.refused(), status);
        assert!(heard.text.is_empty());
    }
}

#[test]
fn a_target_that_moved_says_where_to() {
    let address = PortalAddress("[2001:db8::7]:3260".to_owned());
    for (refusal, status) in [
        (
            LoginRefusal::MovedTemporarily(address.clone()),
            LoginStatus::TARGET_MOVED_TEMPORARILY,
        ),
        (
            LoginRefusal::MovedPermanently(address),
            LoginStatus::TARGET_MOVED_PERMANENTLY,
        ),
    ] {
        let mut talk = Talk::new();
        talk.directory.refusal = Some(refusal);
        let heard = talk.say(SECURITY, Some(OPERATIONAL), &names());
        assert_eq!(heard.refused(), status);
        assert_eq!(heard.text, ["TargetAddress=[2001:db8::7]:3260"]);
    }
}

#[test]
fn what_cannot_be_established_is_refused_in_the_last_response() {
    let mut talk = Talk::new();
    talk.directory.not_established = Some(LoginStatus::OUT_OF_RESOURCES);
    let heard = talk.say(OPERATIONAL, Some(FULL), &names());
    assert_eq!(heard.refused(), LoginStatus::OUT_OF_RESOURCES);
}

#[test]
fn stages_go_forward_only() {
    assert_eq!(first(FULL, None, &names()), LoginStatus::INITIATOR_ERROR);
    assert_eq!(
        first(Stage::from_bits(2), None, &names()),
        LoginStatus::INITIATOR_ERROR
    );
    for (from, to) in [
        (SECURITY, SECURITY),
        (SECURITY, Stage::from_bits(2)),
        (OPERATIONAL, SECURITY),
        (OPERATIONAL, OPERATIONAL),
        (OPERATIONAL, Stage::from_bits(2)),
    ] {
        assert_eq!(
            first(from, Some(to), &names()),
            LoginStatus::INITIATOR_ERROR
        );
    }
    let mut talk = Talk::new();
    talk.say(OPERATIONAL, None, &names()).stays();
    assert_eq!(
        talk.say(SECURITY, None, "").refused(),
        LoginStatus::INITIATOR_ERROR
    );
    let mut talk = Talk::new();
    talk.say(SECURITY, None, &names()).stays();
    assert_eq!(
        talk.say(OPERATIONAL, None, "").refused(),
        LoginStatus::INITIATOR_ERROR
    );
}

#[test]
fn the_header_stays_the_same_during_the_login() {
    let changes: [fn(&mut LoginRequest); 6] = [
        |header| header.isid = Isid([1; 6]),
        |header| header.tsih = Tsih(1),
        |header| header.connection_id = ConnectionId(2),
        |header| header.initiator_task_tag = InitiatorTaskTag(1),
        |header| header.version_max = 1,
        |header| header.version_min = 1,
    ];
    for change in changes {
        let mut talk = Talk::new();
        talk.say(SECURITY, None, &names()).stays();
        change(&mut talk.header);
        assert_eq!(
            talk.say(SECURITY, None, "").refused(),
            LoginStatus::INITIATOR_ERROR
        );
    }
}

#[test]
fn keys_in_the_wrong_stage_end_the_login() {
    for (stage, text) in [
        (SECURITY, "MaxBurstLength=8192"),
        (SECURITY, "SendTargets=All"),
        (OPERATIONAL, "AuthMethod=None"),
        (OPERATIONAL, "CHAP_A=5"),
        (OPERATIONAL, "SendTargets=All"),
        (SECURITY, "TargetPortalGroupTag=1"),
        (OPERATIONAL, "TargetAlias=x"),
    ] {
        let text = format!("{} {text}", names());
        assert_eq!(
            first(stage, None, &text),
            LoginStatus::INITIATOR_ERROR,
            "{text}"
        );
    }
}

#[test]
fn keys_sent_twice_end_the_login() {
    for text in [
        "MaxBurstLength=8192 MaxBurstLength=8192",
        "InitiatorName=iqn.x",
    ] {
        let text = format!("{} {text}", names());
        assert_eq!(
            first(OPERATIONAL, None, &text),
            LoginStatus::INITIATOR_ERROR
        );
    }
    let mut talk = Talk::new();
    talk.say(OPERATIONAL, None, &format!("{} InitialR2T=No", names()))
        .stays();
    let heard = talk.say(OPERATIONAL, None, "InitialR2T=No");
    assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn malformed_text_ends_the_login() {
    for data in [
        &b"InitiatorName"[..],
        b"InitiatorName=x",
        b"\xff=\0",
        b"A=\xff\0",
    ] {
        let mut talk = Talk::new();
        let header = talk.header;
        assert_eq!(
            talk.send(&header, data).refused(),
            LoginStatus::INITIATOR_ERROR
        );
    }
}

#[test]
fn nothing_is_taken_after_the_end() {
    let mut talk = Talk::new();
    talk.say(OPERATIONAL, Some(FULL), &names()).finished();
    assert!(talk.login.is_over());
    let heard = talk.say(OPERATIONAL, Some(FULL), "");
    assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);
}

#[test]
fn endless_logins_end() {
    let mut talk = Talk::new();
    talk.say(SECURITY, None, &names()).stays();
    for _ in 1..REQUESTS_MAX {
        talk.say(SECURITY, None, "").stays();
    }
    assert_eq!(
        talk.say(SECURITY, None, "").refused(),
        LoginStatus::INITIATOR_ERROR
    );
}
