//! Conversations of an initiator, written out by hand, with the target's login.

use super::*;
use crate::chap::{Challenge, ChapAlgorithm, Secret, format_binary_value};
use crate::negotiation::DigestPolicy;
use crate::session_parameters::{Digest, OperationalParameters};
use crate::target::directory::fixture::{INITIATOR, TARGET, TestDirectory, account, chap};
use crate::target::directory::{Authentication, PortalAddress};

const SECURITY: Stage = Stage::SECURITY_NEGOTIATION;
const OPERATIONAL: Stage = Stage::LOGIN_OPERATIONAL_NEGOTIATION;
const FULL: Stage = Stage::FULL_FEATURE_PHASE;

/// An initiator that says what the test wants it to.
struct Talk {
    login: Login,
    directory: TestDirectory,
    header: LoginRequest,
}

/// What it hears.
struct Heard {
    response: LoginResponse,
    text: Vec<String>,
    outcome: LoginOutcome,
}

impl Talk {
    fn new() -> Self {
        Self::with(TestDirectory::default())
    }

    fn with(directory: TestDirectory) -> Self {
        Self {
            login: Login::new(),
            directory,
            header: LoginRequest {
                transit: false,
                continues: false,
                current_stage: SECURITY,
                next_stage: SECURITY,
                version_max: 0,
                version_min: 0,
                isid: Isid([0x40, 0, 0, 0x37, 0, 1]),
                tsih: Tsih(0),
                initiator_task_tag: InitiatorTaskTag(0x77),
                connection_id: ConnectionId(1),
                cmd_sn: crate::pdu::CmdSn(5),
                exp_stat_sn: StatSn(0),
            },
        }
    }

    fn demanding(authentication: Authentication) -> Self {
        Self::with(TestDirectory {
            authentication,
            ..TestDirectory::default()
        })
    }

    /// Says `text`, pairs apart by blanks, in a request of stage `from` that asks for `to`.
    fn say(&mut self, from: Stage, to: Option<Stage>, text: &str) -> Heard {
        let mut data: Vec<u8> = Vec::new();
        for pair in text.split_whitespace() {
            data.extend_from_slice(pair.as_bytes());
            data.push(0);
        }
        let request = LoginRequest {
            transit: to.is_some(),
            current_stage: from,
            next_stage: to.unwrap_or(SECURITY),
            ..self.header
        };
        self.send(&request, &data)
    }

    fn send(&mut self, request: &LoginRequest, data: &[u8]) -> Heard {
        let reply = self.login.handle(request, data, &mut self.directory);
        assert!(reply.data.len() <= DATA_SEGMENT_MAX);
        assert!(!(reply.response.transit && reply.response.continues));
        let text = if reply.response.continues {
            Vec::new()
        } else {
            String::from_utf8(reply.data.clone())
                .unwrap()
                .split_terminator('\0')
                .map(str::to_owned)
                .collect()
        };
        Heard {
            response: reply.response,
            text,
            outcome: reply.outcome,
        }
    }
}

impl Heard {
    fn refused(&self) -> LoginStatus {
        assert!(
            matches!(self.outcome, LoginOutcome::Refused(_)),
            "{:?}",
            self.outcome
        );
        assert!(!self.response.transit);
        self.response.status
    }

    fn goes_on(&self) -> &Self {
        assert!(
            matches!(self.outcome, LoginOutcome::Continue),
            "{:?}",
            self.outcome
        );
        assert_eq!(self.response.status, LoginStatus::SUCCESS);
        self
    }

    fn transits_to(&self, stage: Stage) -> &Self {
        self.goes_on();
        assert!(self.response.transit);
        assert_eq!(self.response.next_stage, stage);
        self
    }

    fn stays(&self) -> &Self {
        self.goes_on();
        assert!(!self.response.transit);
        self
    }

    fn finished(self) -> Box<SessionParameters> {
        assert!(self.response.transit);
        assert_eq!(self.response.next_stage, FULL);
        match self.outcome {
            LoginOutcome::Finished(session) => session,
            other => panic!("not finished: {other:?}"),
        }
    }

    fn value(&self, key: &str) -> &str {
        let prefix = format!("{key}=");
        self.text
            .iter()
            .find_map(|pair| pair.strip_prefix(&prefix))
            .unwrap_or_else(|| panic!("{key} is not in {:?}", self.text))
    }
}

fn names() -> String {
    format!("InitiatorName={INITIATOR} TargetName={TARGET}")
}

#[test]
fn a_login_without_security_takes_one_exchange() {
    let mut talk = Talk::new();
    let heard = talk.say(
        OPERATIONAL,
        Some(FULL),
        &format!(
            "{} HeaderDigest=None DataDigest=None InitialR2T=No ImmediateData=Yes \
             MaxRecvDataSegmentLength=65536 MaxBurstLength=16776192 FirstBurstLength=262144 \
             MaxOutstandingR2T=1 MaxConnections=1 ErrorRecoveryLevel=0 DefaultTime2Wait=2",
            names()
        ),
    );
    assert_eq!(
        heard.text,
        [
            "HeaderDigest=None",
            "DataDigest=None",
            "InitialR2T=No",
            "ImmediateData=Yes",
            "MaxBurstLength=1048576",
            "FirstBurstLength=262144",
            "MaxOutstandingR2T=1",
            "MaxConnections=1",
            "ErrorRecoveryLevel=0",
            "DefaultTime2Wait=2",
            "MaxRecvDataSegmentLength=262144",
            "TargetPortalGroupTag=1",
        ]
    );
    assert_eq!(heard.response.tsih, Tsih(0x1234));
    assert_eq!(heard.response.isid, talk.header.isid);
    assert_eq!(heard.response.initiator_task_tag, InitiatorTaskTag(0x77));
    let session = heard.finished();
    assert_eq!(session.initiator_name.as_str(), INITIATOR);
    assert_eq!(session.target_name.as_ref().unwrap().as_str(), TARGET);
    assert_eq!(session.portal_group_tag, Some(PortalGroupTag(1)));
    assert_eq!(
        session.operational.initiator_max_recv_data_segment_length,
        65_536
    );
    assert_eq!(
        session.operational.target_max_recv_data_segment_length,
        262_144
    );
    assert!(!session.operational.initial_r2t);
    assert_eq!(talk.directory.established, [(Tsih(0x1234), None)]);
}

#[test]
fn appendix_b_security_stage_with_none_then_operational_stage() {
    let mut talk = Talk::new();
    let heard = talk.say(
        SECURITY,
        Some(OPERATIONAL),
        &format!("{} AuthMethod=KRB5,SRP,None", names()),
    );
    heard.transits_to(OPERATIONAL);
    assert_eq!(heard.text, ["AuthMethod=None", "TargetPortalGroupTag=1"]);
    assert_eq!(heard.response.tsih, Tsih(0));
    let heard = talk.say(OPERATIONAL, None, "MaxBurstLength=8192");
    heard.stays();
    assert_eq!(
        heard.text,
        ["MaxBurstLength=8192", "MaxRecvDataSegmentLength=262144"]
    );
    let heard = talk.say(OPERATIONAL, Some(FULL), "");
    assert!(heard.text.is_empty());
    let session = heard.finished();
    assert_eq!(session.operational.max_burst_length, 8192);
    assert_eq!(session.operational.first_burst_length, 8192);
}

#[test]
fn security_can_be_skipped_by_saying_nothing_about_it() {
    let mut talk = Talk::new();
    let heard = talk.say(SECURITY, Some(OPERATIONAL), &names());
    heard.transits_to(OPERATIONAL);
    assert_eq!(heard.text, ["TargetPortalGroupTag=1"]);
}

#[test]
fn leaving_the_security_stage_for_full_feature_phase_keeps_all_defaults() {
    let mut talk = Talk::new();
    let session = talk.say(SECURITY, Some(FULL), &names()).finished();
    assert_eq!(session.operational, OperationalParameters::default());
}

#[test]
fn a_response_without_the_t_bit_never_transits() {
    let mut talk = Talk::new();
    let heard = talk.say(SECURITY, None, &format!("{} AuthMethod=None", names()));
    assert_eq!(
        heard.stays().text,
        ["AuthMethod=None", "TargetPortalGroupTag=1"]
    );
    talk.say(SECURITY, Some(OPERATIONAL), "")
        .transits_to(OPERATIONAL);
}

#[test]
fn target_alias_is_told_after_authentication() {
    let mut talk = Talk::demanding(Authentication::chap_required(chap(false)));
    talk.directory.config.target_alias = Some("Bob-s Disk".to_owned());
    let heard = talk.say(SECURITY, None, &format!("{} AuthMethod=CHAP", names()));
    assert_eq!(heard.text, ["AuthMethod=CHAP", "TargetPortalGroupTag=1"]);

    let mut talk = Talk::new();
    talk.directory.config.target_alias = Some("Bob-s Disk".to_owned());
    let heard = talk.say(SECURITY, Some(OPERATIONAL), &names());
    assert_eq!(
        heard.text,
        ["TargetPortalGroupTag=1", "TargetAlias=Bob-s Disk"]
    );
}

mod discovery {
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
}

mod refusals {
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
}

mod operational {
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
}

mod continuation {
    use super::*;

    #[test]
    fn text_cut_anywhere_is_one_text() {
        let text = format!("InitiatorName={INITIATOR}\0TargetName={TARGET}\0InitialR2T=No\0");
        for cut in 0..=text.len() {
            let mut talk = Talk::new();
            let (head, tail) = text.as_bytes().split_at(cut);
            let request = LoginRequest {
                continues: true,
                current_stage: OPERATIONAL,
                ..talk.header
            };
            let heard = talk.send(&request, head);
            assert!(heard.stays().text.is_empty());
            let request = LoginRequest {
                transit: true,
                current_stage: OPERATIONAL,
                next_stage: FULL,
                ..talk.header
            };
            let heard = talk.send(&request, tail);
            assert_eq!(heard.value("InitialR2T"), "No");
            heard.finished();
        }
    }

    #[test]
    fn the_c_bit_excludes_the_t_bit() {
        let mut talk = Talk::new();
        let request = LoginRequest {
            transit: true,
            continues: true,
            next_stage: OPERATIONAL,
            ..talk.header
        };
        assert_eq!(
            talk.send(&request, b"").refused(),
            LoginStatus::INITIATOR_ERROR
        );
    }

    /// More unknown keys than fit the answers of one response.
    fn long_text() -> String {
        let key = "K".repeat(60);
        (0..150).fold(names(), |text, number| format!("{text} {key}{number:03}=1"))
    }

    fn say_long_text(talk: &mut Talk) -> Vec<u8> {
        let text = long_text();
        let mut data: Vec<u8> = Vec::new();
        for pair in text.split_whitespace() {
            data.extend_from_slice(pair.as_bytes());
            data.push(0);
        }
        let mut pieces = data.chunks(DATA_SEGMENT_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let last = pieces.peek().is_none();
            let request = LoginRequest {
                transit: last,
                continues: !last,
                current_stage: OPERATIONAL,
                next_stage: FULL,
                ..talk.header
            };
            let reply = talk.login.handle(&request, piece, &mut talk.directory);
            assert!(
                matches!(reply.outcome, LoginOutcome::Continue),
                "{:?}",
                reply.outcome
            );
            if last {
                assert!(reply.response.continues && !reply.response.transit);
                assert_eq!(reply.data.len(), DATA_SEGMENT_MAX);
                return reply.data;
            }
            assert!(reply.data.is_empty());
        }
        unreachable!()
    }

    #[test]
    fn long_answers_are_cut_and_the_transition_comes_with_the_last_piece() {
        let mut talk = Talk::new();
        let mut text = say_long_text(&mut talk);
        let request = LoginRequest {
            transit: true,
            current_stage: OPERATIONAL,
            next_stage: FULL,
            ..talk.header
        };
        loop {
            let reply = talk.login.handle(&request, b"", &mut talk.directory);
            text.extend_from_slice(&reply.data);
            if !reply.response.continues {
                assert!(matches!(reply.outcome, LoginOutcome::Finished(_)));
                break;
            }
        }
        assert_eq!(text::parse(&text).unwrap().len(), 152);
    }

    #[test]
    fn text_in_the_middle_of_a_long_answer_ends_the_login() {
        let mut talk = Talk::new();
        say_long_text(&mut talk);
        let heard = talk.say(OPERATIONAL, Some(FULL), "InitialR2T=No");
        assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);
    }

    #[test]
    fn text_without_end_is_refused() {
        let mut talk = Talk::new();
        let request = LoginRequest {
            continues: true,
            ..talk.header
        };
        let piece = [b'x'; DATA_SEGMENT_MAX];
        for _ in 0..text::TEXT_LENGTH_MAX / DATA_SEGMENT_MAX {
            talk.send(&request, &piece).stays();
        }
        assert_eq!(
            talk.send(&request, &piece).refused(),
            LoginStatus::INITIATOR_ERROR
        );
        let mut talk = Talk::new();
        let heard = talk.send(&request, &[0; DATA_SEGMENT_MAX + 1]);
        assert_eq!(heard.refused(), LoginStatus::INITIATOR_ERROR);
    }
}

mod sessions {
    use super::*;

    #[test]
    fn a_tsih_without_session_is_refused_at_once() {
        let mut talk = Talk::new();
        talk.header.tsih = Tsih(7);
        let heard = talk.say(SECURITY, None, &names());
        assert_eq!(heard.refused(), LoginStatus::SESSION_DOES_NOT_EXIST);
        assert_eq!(heard.response.tsih, Tsih(7));
    }

    #[test]
    fn a_continued_session_keeps_its_values_and_the_connection_gets_new_ones() {
        let mut talk = Talk::new();
        talk.header.tsih = Tsih(7);
        let session = OperationalParameters {
            header_digest: Digest::Crc32c,
            max_burst_length: 4096,
            first_burst_length: 1024,
            initiator_max_recv_data_segment_length: 1024,
            ..OperationalParameters::default()
        };
        talk.directory.existing = Some((Tsih(7), session));
        let text = format!("{} MaxBurstLength=65536 DataDigest=CRC32C", names());
        let heard = talk.say(OPERATIONAL, Some(FULL), &text);
        assert_eq!(heard.value("MaxBurstLength"), "Reject");
        assert_eq!(heard.response.tsih, Tsih(7));
        let session = heard.finished();
        assert!(session.continues_session);
        assert_eq!(session.operational.max_burst_length, 4096);
        assert_eq!(session.operational.header_digest, Digest::None);
        assert_eq!(session.operational.data_digest, Digest::Crc32c);
        assert_eq!(
            session.operational.initiator_max_recv_data_segment_length,
            8192
        );
        assert_eq!(
            session.operational.target_max_recv_data_segment_length,
            262_144
        );
    }
}

mod authentication {
    use super::*;

    /// Up to the target's challenge.
    fn challenged(talk: &mut Talk, algorithms: &str) -> Challenge {
        let heard = talk.say(SECURITY, None, &format!("{} AuthMethod=CHAP", names()));
        assert_eq!(
            heard.stays().text,
            ["AuthMethod=CHAP", "TargetPortalGroupTag=1"]
        );
        let heard = talk.say(SECURITY, None, &format!("CHAP_A={algorithms}"));
        heard.stays();
        Challenge {
            algorithm: ChapAlgorithm::from_number(heard.value("CHAP_A").parse().unwrap()).unwrap(),
            identifier: heard.value("CHAP_I").parse().unwrap(),
            bytes: crate::chap::parse_binary_value(heard.value("CHAP_C")).unwrap(),
        }
    }

    fn proof(challenge: &Challenge, name: &str, secret: &str) -> String {
        let response = format_binary_value(&challenge.response(&Secret::from(secret)));
        format!("CHAP_N={name} CHAP_R={response}")
    }

    fn alices_proof(challenge: &Challenge) -> String {
        proof(challenge, "alice", "the secret of alice")
    }

    fn demanding_chap(mutual: bool) -> Talk {
        Talk::demanding(Authentication::chap_required(chap(mutual)))
    }

    #[test]
    fn whoever_knows_the_secret_gets_in() {
        let mut talk = demanding_chap(false);
        let challenge = challenged(&mut talk, "5");
        let heard = talk.say(SECURITY, Some(OPERATIONAL), &alices_proof(&challenge));
        assert!(heard.transits_to(OPERATIONAL).text.is_empty());
        let session = talk.say(OPERATIONAL, Some(FULL), "").finished();
        assert_eq!(session.authenticated_as.as_deref(), Some("alice"));
        assert_eq!(
            talk.directory.established,
            [(Tsih(0x1234), Some("alice".to_owned()))]
        );
    }

    #[test]
    fn a_response_in_base64_is_as_good() {
        use base64::Engine as _;
        let mut talk = demanding_chap(false);
        let challenge = challenged(&mut talk, "7");
        let response = challenge.response(&Secret::from("the secret of alice"));
        let response = base64::engine::general_purpose::STANDARD.encode(response);
        let text = format!("CHAP_N=alice CHAP_R=0b{response}");
        talk.say(SECURITY, Some(OPERATIONAL), &text)
            .transits_to(OPERATIONAL);
    }

    #[test]
    fn the_transition_may_be_asked_for_later() {
        let mut talk = demanding_chap(false);
        let challenge = challenged(&mut talk, "5");
        talk.say(SECURITY, None, &alices_proof(&challenge)).stays();
        talk.say(SECURITY, Some(OPERATIONAL), "")
            .transits_to(OPERATIONAL);
    }

    #[test]
    fn the_transition_is_not_granted_before_the_proof() {
        let mut talk = demanding_chap(false);
        let text = format!("{} AuthMethod=CHAP,None", names());
        talk.say(SECURITY, Some(OPERATIONAL), &text).stays();
        talk.say(SECURITY, Some(FULL), "").stays();
        talk.say(SECURITY, Some(FULL), "CHAP_A=5").stays();
        talk.say(SECURITY, Some(FULL), "").stays();
    }

    #[test]
    fn wrong_proofs_are_authentication_failures() {
        type Answer = fn(&Challenge) -> String;
        let answers: [Answer; 9] = [
            |challenge| proof(challenge, "alice", "not the secret"),
            |challenge| proof(challenge, "bob", "the secret of alice"),
            |challenge| proof(challenge, "nobody", "the secret of alice"),
            |_| "CHAP_N=alice CHAP_R=0x00".to_owned(),
            |_| "CHAP_N=alice CHAP_R=1234".to_owned(),
            |_| "CHAP_N=alice CHAP_R=0xzz".to_owned(),
            |_| "CHAP_N=alice".to_owned(),
            |_| "CHAP_R=0x00000000000000000000000000000000".to_owned(),
            |challenge| format!("{} CHAP_I=1", alices_proof(challenge)),
        ];
        for answer in answers {
            let mut talk = demanding_chap(true);
            let challenge = challenged(&mut talk, "5");
            let heard = talk.say(SECURITY, Some(OPERATIONAL), &answer(&challenge));
            assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
            assert!(heard.text.is_empty());
            assert!(talk.directory.established.is_empty());
        }
    }

    #[test]
    fn going_straight_to_the_operational_stage_is_refused_when_proof_is_required() {
        let mut talk = demanding_chap(false);
        let heard = talk.say(OPERATIONAL, Some(FULL), &names());
        assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
    }

    #[test]
    fn methods_that_do_not_suit_are_rejected() {
        for methods in ["None", "KRB5,SRP", "chap"] {
            let mut talk = demanding_chap(false);
            let heard = talk.say(SECURITY, None, &format!("{} AuthMethod={methods}", names()));
            assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
            assert_eq!(heard.text, ["AuthMethod=Reject"]);
        }
        let mut talk = Talk::new();
        let heard = talk.say(SECURITY, None, &format!("{} AuthMethod=CHAP", names()));
        assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
    }

    #[test]
    fn of_methods_that_suit_the_initiators_first_is_taken() {
        let both = Authentication {
            none_allowed: true,
            chap: Some(chap(false)),
        };
        for (methods, chosen) in [
            ("CHAP,None", "CHAP"),
            ("None,CHAP", "None"),
            ("KRB5,CHAP,None", "CHAP"),
        ] {
            let mut talk = Talk::demanding(both.clone());
            let heard = talk.say(SECURITY, None, &format!("{} AuthMethod={methods}", names()));
            assert_eq!(heard.value("AuthMethod"), chosen);
        }
        let mut talk = Talk::new();
        let heard = talk.say(SECURITY, None, &format!("{} AuthMethod=CHAP,None", names()));
        assert_eq!(heard.value("AuthMethod"), "None");
        let mut talk = demanding_chap(false);
        let heard = talk.say(SECURITY, None, &format!("{} AuthMethod=None,CHAP", names()));
        assert_eq!(heard.value("AuthMethod"), "CHAP");
    }

    #[test]
    fn an_initiator_that_proposes_nothing_is_asked_for_chap() {
        let mut talk = demanding_chap(false);
        let heard = talk.say(SECURITY, Some(OPERATIONAL), &names());
        assert_eq!(heard.stays().value("AuthMethod"), "CHAP");
        let heard = talk.say(SECURITY, None, "AuthMethod=CHAP CHAP_A=5");
        assert_eq!(heard.stays().value("CHAP_A"), "5");
        assert!(!heard.text.iter().any(|pair| pair.starts_with("AuthMethod")));

        for answer in ["", "AuthMethod=None", "AuthMethod=Reject"] {
            let mut talk = demanding_chap(false);
            talk.say(SECURITY, Some(OPERATIONAL), &names()).stays();
            let heard = talk.say(SECURITY, Some(OPERATIONAL), answer);
            assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
        }
    }

    #[test]
    fn the_initiators_first_algorithm_that_is_allowed_is_taken() {
        let mut authentication = chap(false);
        for (offered, chosen) in [
            ("5,6,7,8", ChapAlgorithm::Md5),
            ("8,7,6,5", ChapAlgorithm::Sha3_256),
            ("99,0x7,5", ChapAlgorithm::Sha256),
        ] {
            let mut talk = Talk::demanding(Authentication::chap_required(authentication.clone()));
            let challenge = challenged(&mut talk, offered);
            assert_eq!(challenge.algorithm, chosen);
            assert_eq!(challenge.bytes.len(), chosen.digest_length());
        }
        authentication.algorithms = vec![ChapAlgorithm::Sha256, ChapAlgorithm::Sha1];
        let mut talk = Talk::demanding(Authentication::chap_required(authentication.clone()));
        assert_eq!(
            challenged(&mut talk, "5,6,7").algorithm,
            ChapAlgorithm::Sha1
        );
        let mut talk = Talk::demanding(Authentication::chap_required(authentication));
        talk.say(SECURITY, None, &format!("{} AuthMethod=CHAP", names()))
            .stays();
        let heard = talk.say(SECURITY, None, "CHAP_A=5,8");
        assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
    }

    #[test]
    fn the_target_proves_itself_when_asked() {
        let mut talk = demanding_chap(true);
        let challenge = challenged(&mut talk, "5");
        let text = format!("{} CHAP_I=7 CHAP_C=0b/////w==", alices_proof(&challenge));
        let heard = talk.say(SECURITY, Some(OPERATIONAL), &text);
        heard.transits_to(OPERATIONAL);
        assert_eq!(heard.value("CHAP_N"), "storage");
        let ours = Challenge {
            algorithm: challenge.algorithm,
            identifier: 7,
            bytes: vec![0xff; 4],
        };
        let expected = ours.response(&Secret::from("the secret of storage"));
        assert_eq!(heard.value("CHAP_R"), format_binary_value(&expected));
    }

    #[test]
    fn a_target_that_cannot_prove_itself_says_so() {
        let mut talk = demanding_chap(false);
        let challenge = challenged(&mut talk, "5");
        let text = format!("{} CHAP_I=7 CHAP_C=0x0102030405", alices_proof(&challenge));
        let heard = talk.say(SECURITY, Some(OPERATIONAL), &text);
        assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
    }

    #[test]
    fn a_reflected_challenge_is_not_answered() {
        let mut talk = demanding_chap(true);
        let challenge = challenged(&mut talk, "5");
        let reflected = format_binary_value(&challenge.bytes);
        let text = format!("{} CHAP_I=7 CHAP_C={reflected}", alices_proof(&challenge));
        let heard = talk.say(SECURITY, Some(OPERATIONAL), &text);
        assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
        assert!(heard.text.is_empty());
    }

    #[test]
    fn one_secret_for_both_directions_is_refused() {
        let mut authentication = chap(true);
        authentication.mutual = Some(account("storage", "the secret of alice"));
        let mut talk = Talk::demanding(Authentication::chap_required(authentication));
        let challenge = challenged(&mut talk, "5");
        let heard = talk.say(SECURITY, Some(OPERATIONAL), &alices_proof(&challenge));
        assert_eq!(heard.refused(), LoginStatus::AUTHENTICATION_FAILURE);
    }

    #[test]
    fn keys_of_the_exchange_out_of_order_are_refused() {
        for text in [
            "AuthMethod=None CHAP_A=5",
            "CHAP_A=5",
            "AuthMethod=CHAP CHAP_R=0x00",
        ] {
            let mut talk = Talk::demanding(Authentication {
                none_allowed: true,
                chap: Some(chap(false)),
            });
            let heard = talk.say(SECURITY, None, &format!("{} {text}", names()));
            assert_eq!(
                heard.refused(),
                LoginStatus::AUTHENTICATION_FAILURE,
                "{text}"
            );
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let mut talk = demanding_chap(true);
        challenged(&mut talk, "5");
        let printed = format!("{:?}", talk.login);
        assert!(
            printed.contains("***") && !printed.contains("the secret"),
            "{printed}"
        );
    }
}

#[test]
fn a_refusal_of_the_connection_has_reserved_stages() {
    let talk = Talk::new();
    let request = LoginRequest {
        current_stage: OPERATIONAL,
        ..talk.header
    };
    let response = refuse(&request, LoginStatus::OUT_OF_RESOURCES);
    assert_eq!(response.status, LoginStatus::OUT_OF_RESOURCES);
    assert_eq!(response.current_stage, SECURITY);
    assert!(!response.transit);
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn no_sequence_of_requests_panics_or_gets_past_chap(
            requests in prop::collection::vec(
                (
                    any::<bool>(),
                    any::<bool>(),
                    0_u8..4,
                    0_u8..4,
                    prop::collection::vec(
                        prop::sample::select(vec![
                            "InitiatorName=iqn.1999-07.com.os:hostid.77",
                            "TargetName=iqn.1999-07.com.example:diskarray.sn.88",
                            "SessionType=Normal",
                            "SessionType=Discovery",
                            "AuthMethod=CHAP,None",
                            "AuthMethod=None",
                            "CHAP_A=5,7",
                            "CHAP_N=alice",
                            "CHAP_R=0x00112233445566778899aabbccddeeff",
                            "CHAP_I=1",
                            "CHAP_C=0x00",
                            "MaxBurstLength=0",
                            "HeaderDigest=CRC32C",
                            "FirstBurstLength=x",
                            "Junk",
                        ]),
                        0..5,
                    ),
                ),
                0..8,
            ),
        ) {
            let mut talk = Talk::demanding(Authentication::chap_required(chap(true)));
            talk.directory.discovery_authentication = Authentication::chap_required(chap(true));
            for (transit, continues, from, to, pairs) in requests {
                let mut data = pairs.join("\0").into_bytes();
                data.push(0);
                let request = LoginRequest {
                    transit,
                    continues,
                    current_stage: Stage::from_bits(from),
                    next_stage: Stage::from_bits(to),
                    ..talk.header
                };
                talk.login.handle(&request, &data, &mut talk.directory);
            }
            prop_assert!(talk.directory.established.is_empty());
        }
    }
}
