//! The security stage.

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
