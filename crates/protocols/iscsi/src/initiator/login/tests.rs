//! The two ends of a login, back to back.

use super::*;
use crate::chap::{ChapAlgorithm, Secret};
use crate::negotiation::{DigestPolicy, NegotiationError};
use crate::server;
use crate::server::directory::fixture::{INITIATOR, TARGET, TestDirectory, account, chap, name};
use crate::server::directory::{Authentication, LoginRefusal, PortalAddress};
use crate::server::login::LoginOutcome;
use crate::session_parameters::Digest;
use proptest::prelude::*;

fn config() -> LoginConfig {
    LoginConfig::normal(name(INITIATOR), name(TARGET), Isid([0x80, 1, 2, 3, 0, 4]))
}

fn alice(mutual: bool) -> ChapCredentials {
    ChapCredentials {
        own: account("alice", "the secret of alice"),
        target: mutual.then(|| account("storage", "the secret of storage")),
        algorithms: Vec::new(),
    }
}

/// Fills with bytes that the target's do not reach.
fn random(bytes: &mut [u8]) {
    bytes.fill(0xa5);
}

/// How a login ended: for both sides, or with what the initiator was told.
type Ending = Result<(SessionParameters, SessionParameters), LoginError>;

fn log_in(config: LoginConfig, directory: &mut TestDirectory) -> Ending {
    let mut initiator = Login::new(config, &mut random);
    let mut target = server::login::Login::new();
    let mut step = initiator.start();
    let mut stat_sn = StatSn(100);
    let mut first = true;
    loop {
        let (request, data) = match step {
            LoginStep::Send { request, data } => (request, data),
            LoginStep::Finished(_) => panic!("finished before the target"),
        };
        assert!(!(request.transit && request.continues));
        if !first {
            assert_eq!(request.exp_stat_sn, stat_sn);
        }
        first = false;
        // What travels is the header's bytes.
        let request = LoginRequest::decode(&request.encode_immediate());
        let reply = target.handle(&request, &data, directory);
        let mut response = reply.response;
        response.stat_sn = stat_sn;
        stat_sn = stat_sn.next();
        if let LoginOutcome::Finished(targets) = reply.outcome {
            return match initiator.handle(&response, &reply.data)? {
                LoginStep::Finished(initiators) => Ok((*initiators, *targets)),
                LoginStep::Send { .. } => panic!("the initiator goes on after the end"),
            };
        }
        step = initiator.handle(&response, &reply.data)?;
    }
}

fn refused(ending: Ending) -> LoginStatus {
    match ending {
        Err(LoginError::Refused { status, .. }) => status,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn both_sides_end_with_the_same_session() {
    let mut directory = TestDirectory::default();
    directory.config.target_alias = Some("a disk, by name".to_owned());
    let config = LoginConfig {
        initiator_alias: Some("an initiator".to_owned()),
        ..config()
    };
    let (initiators, targets) = log_in(config, &mut directory).unwrap();
    assert_eq!(initiators, targets);
    assert_eq!(initiators.tsih, Tsih(0x1234));
    assert_eq!(initiators.target_alias.as_deref(), Some("a disk, by name"));
    assert_eq!(initiators.initiator_alias.as_deref(), Some("an initiator"));
}

#[test]
fn a_login_may_start_with_the_operational_stage() {
    let config = LoginConfig {
        security: None,
        ..config()
    };
    let (initiators, targets) = log_in(config, &mut TestDirectory::default()).unwrap();
    assert_eq!(initiators, targets);
}

#[test]
fn discovery_sessions_log_in_without_a_target() {
    let config = LoginConfig::discovery(name(INITIATOR), Isid([0; 6]));
    let (initiators, targets) = log_in(config, &mut TestDirectory::default()).unwrap();
    assert_eq!(initiators, targets);
    assert_eq!(initiators.target_name, None);
    assert_eq!(initiators.session_type, SessionType::Discovery);
}

#[test]
fn chap_works_with_every_algorithm_in_both_directions() {
    for algorithm in ChapAlgorithm::ALL {
        for mutual in [false, true] {
            let mut directory = TestDirectory {
                authentication: Authentication::chap_required(chap(true)),
                ..TestDirectory::default()
            };
            let chap = ChapCredentials {
                algorithms: vec![algorithm],
                ..alice(mutual)
            };
            let config = LoginConfig {
                security: Some(Offer {
                    none: mutual,
                    chap: Some(chap),
                }),
                ..config()
            };
            let (initiators, targets) = log_in(config, &mut directory).unwrap();
            assert_eq!(initiators, targets);
            assert_eq!(targets.authenticated_as.as_deref(), Some("alice"));
        }
    }
}

#[test]
fn chap_fails_with_the_wrong_secret_on_either_side() {
    let directory = || TestDirectory {
        authentication: Authentication::chap_required(chap(true)),
        ..TestDirectory::default()
    };
    let with = |chap| LoginConfig {
        security: Some(Offer {
            none: false,
            chap: Some(chap),
        }),
        ..config()
    };
    let mut wrong = alice(false);
    wrong.own.secret = Secret::from("not the secret");
    let ending = log_in(with(wrong), &mut directory());
    assert_eq!(refused(ending), LoginStatus::AUTHENTICATION_FAILURE);

    let mut wrong = alice(true);
    wrong.target = Some(account("storage", "not the secret either"));
    let ending = log_in(with(wrong), &mut directory());
    assert_eq!(ending.unwrap_err(), LoginError::TargetNotAuthenticated);

    let mut wrong = alice(true);
    wrong.target = Some(account("warehouse", "the secret of storage"));
    let ending = log_in(with(wrong), &mut directory());
    assert_eq!(ending.unwrap_err(), LoginError::TargetNotAuthenticated);

    let mut wrong = alice(true);
    wrong.target = Some(account("storage", "the secret of alice"));
    let ending = log_in(with(wrong), &mut directory());
    assert_eq!(ending.unwrap_err(), LoginError::ChapSecretShared);
}

#[test]
fn an_initiator_that_requires_proof_is_not_content_with_none() {
    let config = LoginConfig {
        security: Some(Offer {
            none: false,
            chap: Some(alice(true)),
        }),
        ..config()
    };
    let ending = log_in(config, &mut TestDirectory::default());
    assert_eq!(refused(ending), LoginStatus::AUTHENTICATION_FAILURE);
}

#[test]
fn digests_come_out_as_both_sides_policies_have_it() {
    use DigestPolicy::{Crc32c, None, PreferCrc32c, PreferNone};
    let policies = [None, PreferNone, PreferCrc32c, Crc32c];
    for initiators in policies {
        for targets in policies {
            let mut directory = TestDirectory::default();
            directory.config.header_digest = targets;
            directory.config.data_digest = targets;
            let mut config = config();
            config.preferences.header_digest = initiators;
            config.preferences.data_digest = initiators;
            let ending = log_in(config, &mut directory);
            let expected = match (initiators, targets) {
                (None, Crc32c) | (Crc32c, None) => {
                    assert_eq!(refused(ending), LoginStatus::INITIATOR_ERROR);
                    continue;
                }
                (Crc32c, _) | (_, Crc32c) => Digest::Crc32c,
                (PreferCrc32c, PreferNone | PreferCrc32c) => Digest::Crc32c,
                _ => Digest::None,
            };
            let (initiators, targets) = ending.unwrap();
            assert_eq!(initiators, targets);
            assert_eq!(initiators.operational.header_digest, expected);
            assert_eq!(initiators.operational.data_digest, expected);
        }
    }
}

#[test]
fn a_redirection_says_where_to() {
    let mut directory = TestDirectory {
        refusal: Some(LoginRefusal::MovedTemporarily(PortalAddress(
            "192.0.2.7:3260".to_owned(),
        ))),
        ..TestDirectory::default()
    };
    assert_eq!(
        log_in(config(), &mut directory).unwrap_err(),
        LoginError::Refused {
            status: LoginStatus::TARGET_MOVED_TEMPORARILY,
            addresses: vec!["192.0.2.7:3260".to_owned()],
        }
    );
}

/// A target that says what the test wants it to, after the first request.
fn hear(response: impl FnOnce(&mut LoginResponse), text: &[u8]) -> Result<LoginStep, LoginError> {
    let mut initiator = Login::new(config(), &mut random);
    let LoginStep::Send { request, .. } = initiator.start() else {
        unreachable!()
    };
    let mut answer = server::login::refuse(&request, LoginStatus::SUCCESS);
    answer.transit = true;
    answer.next_stage = Stage::LOGIN_OPERATIONAL_NEGOTIATION;
    response(&mut answer);
    initiator.handle(&answer, text)
}

#[test]
fn what_a_target_may_not_do_ends_the_login() {
    assert!(hear(|_| (), b"AuthMethod=None\0").is_ok());
    assert!(hear(|_| (), b"").is_ok());
    for (result, error) in [
        (
            hear(|answer| answer.isid = Isid([9; 6]), b""),
            LoginError::WrongHeader("ISID"),
        ),
        (
            hear(
                |answer| answer.initiator_task_tag = InitiatorTaskTag(9),
                b"",
            ),
            LoginError::WrongHeader("Initiator Task Tag"),
        ),
        (
            hear(|answer| answer.version_active = 1, b""),
            LoginError::WrongHeader("Version-active"),
        ),
        (
            hear(
                |answer| answer.current_stage = Stage::FULL_FEATURE_PHASE,
                b"",
            ),
            LoginError::WrongHeader("CSG"),
        ),
        (
            hear(|answer| answer.next_stage = Stage::FULL_FEATURE_PHASE, b""),
            LoginError::WrongTransition(Stage::FULL_FEATURE_PHASE),
        ),
        (
            hear(|answer| answer.continues = true, b""),
            LoginError::TransitWithContinue,
        ),
        (
            hear(|_| (), b"AuthMethod=CHAP\0"),
            LoginError::NoCommonAuthMethod,
        ),
        (
            hear(|_| (), b"AuthMethod=Reject\0"),
            LoginError::NoCommonAuthMethod,
        ),
        (
            hear(|_| (), b"TargetPortalGroupTag=65536\0"),
            LoginError::MalformedPortalGroupTag,
        ),
        (
            hear(|_| (), b"SessionType=Normal\0"),
            NegotiationError::WrongSender(Key::SessionType).into(),
        ),
    ] {
        assert_eq!(result.unwrap_err(), error);
    }
}

#[test]
fn unknown_keys_of_a_target_are_answered_in_the_next_stage() {
    let Ok(LoginStep::Send { request, data }) = hear(|_| (), b"AuthMethod=None\0X-key=1\0") else {
        panic!("the login ended");
    };
    assert_eq!(request.current_stage, Stage::LOGIN_OPERATIONAL_NEGOTIATION);
    assert!(data.starts_with(b"X-key=NotUnderstood\0HeaderDigest="));
}

#[test]
fn a_target_cannot_end_chap_early() {
    let chap = Some(alice(true));
    let config = LoginConfig {
        security: Some(Offer { none: false, chap }),
        ..config()
    };
    let mut initiator = Login::new(config, &mut random);
    let LoginStep::Send { request, .. } = initiator.start() else {
        unreachable!()
    };
    assert!(!request.transit);
    let answer = server::login::refuse(&request, LoginStatus::SUCCESS);
    let LoginStep::Send { request, data } =
        initiator.handle(&answer, b"AuthMethod=CHAP\0").unwrap()
    else {
        unreachable!()
    };
    assert_eq!(data, b"CHAP_A=8,7,6,5\0");
    let answer = server::login::refuse(&request, LoginStatus::SUCCESS);
    let text = b"CHAP_A=5\0CHAP_I=1\0CHAP_C=0x0102\0";
    let LoginStep::Send { request, .. } = initiator.handle(&answer, text).unwrap() else {
        unreachable!()
    };
    assert!(request.transit);
    let mut answer = server::login::refuse(&request, LoginStatus::SUCCESS);
    answer.transit = true;
    answer.next_stage = Stage::LOGIN_OPERATIONAL_NEGOTIATION;
    assert_eq!(
        initiator.handle(&answer, b"").unwrap_err(),
        LoginError::TargetNotAuthenticated
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn logins_agree_however_the_text_is_cut(
        data_segment_max in 1_usize..400,
        chap_offered in any::<bool>(),
        mutual in any::<bool>(),
        algorithms in Just(ChapAlgorithm::ALL.to_vec()).prop_shuffle(),
        alias in "[a-zA-Z ]{0,255}",
        max_burst_length in 512_u32..2_000_000,
        first_burst_length in 512_u32..2_000_000,
    ) {
        // Cut finer, such a login takes more requests than a target puts up with.
        let data_segment_max = data_segment_max.max(8);
        let mut directory = TestDirectory::default();
        if chap_offered {
            directory.authentication = Authentication::chap_required(chap(true));
        }
        let chap = chap_offered.then(|| ChapCredentials { algorithms, ..alice(mutual) });
        let mut config = LoginConfig {
            initiator_alias: Some(alias),
            security: Some(Offer { none: true, chap }),
            data_segment_max,
            ..config()
        };
        config.preferences.max_burst_length = max_burst_length;
        config.preferences.first_burst_length = first_burst_length;
        let (initiators, targets) = log_in(config, &mut directory).unwrap();
        prop_assert_eq!(&initiators, &targets);
        prop_assert_eq!(initiators.authenticated_as.is_some(), chap_offered);
    }

    #[test]
    fn no_response_panics_an_initiator(
        responses in prop::collection::vec(
            (any::<bool>(), any::<bool>(), 0_u8..4, 0_u8..4, "[A-C=,0x]{0,20}|AuthMethod=CHAP|CHAP_A=5"),
            0..6,
        ),
    ) {
        let mut initiator = Login::new(config(), &mut random);
        let LoginStep::Send { request, .. } = initiator.start() else { unreachable!() };
        for (transit, continues, current_stage, next_stage, text) in responses {
            let mut answer = server::login::refuse(&request, LoginStatus::SUCCESS);
            answer.transit = transit;
            answer.continues = continues;
            answer.current_stage = Stage::from_bits(current_stage);
            answer.next_stage = Stage::from_bits(next_stage);
            let mut text = text.into_bytes();
            text.push(0);
            if initiator.handle(&answer, &text).is_err() {
                break;
            }
        }
    }
}
