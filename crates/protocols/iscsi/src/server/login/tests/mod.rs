//! Conversations of an initiator, written out by hand, with the target's login.

mod authentication;
mod continuation;
mod discovery;
mod operational;
mod properties;
mod refusals;
mod sessions;

use super::*;
use crate::chap::{Challenge, ChapAlgorithm, Secret, format_binary_value};
use crate::negotiation::DigestPolicy;
use crate::server::directory::fixture::{INITIATOR, TARGET, TestDirectory, account, chap};
use crate::server::directory::{Authentication, PortalAddress};
use crate::session_parameters::{Digest, OperationalParameters};

const SECURITY: Stage = Stage::SECURITY_NEGOTIATION;
const OPERATIONAL: Stage = Stage::LOGIN_OPERATIONAL_NEGOTIATION;
const FULL: Stage = Stage::FULL_FEATURE_PHASE;

/// An initiator that says what the test wants it to.
struct Talk {
    login: Login,
    directory: TestDirectory,
    header: LoginRequest,
}

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
