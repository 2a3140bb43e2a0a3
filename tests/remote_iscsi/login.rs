//! CHAP in both directions, discovery, redirections.

use longshore_initiator::error::Error;
use longshore_initiator::iscsi::{Session, discover};
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_iscsi::chap::{ChapAccount, Secret};
use longshore_tests::server::{Server, ServerBuilder, TARGET, free_port};

use crate::rig::{Rig, host_port, url, with_config};

const CHAP: &str = r#"
[discovery]
accounts = [{ user = "finder", secret = "finders keepers" }]

[[target]]
name = "iqn.2026-11.local.longshore:default"
accounts = [{ user = "alice", secret = "correct horse battery" }]
mutual = { user = "storage", secret = "another secret here" }
"#;

fn account(name: &str, secret: &str) -> ChapAccount {
    ChapAccount {
        name: name.to_owned(),
        secret: Secret::from(secret),
    }
}

fn with_password(server: &Server, user_info: &str, query: &str) -> Url {
    let portal = server.portal(0);
    format!("iscsi://{user_info}{portal}/{TARGET}/0{query}")
        .parse()
        .unwrap()
}

#[test]
fn chap_works_one_way_and_both_ways_and_not_with_wrong_secrets() {
    let server = with_config(CHAP);
    let attach = |user_info: &str, query: &str| {
        let url = with_password(&server, user_info, query);
        Rig::attach(&url, &Options::default())
    };
    let mut rig = attach("alice%correct%20horse%20battery@", "").unwrap();
    assert_eq!(rig.negotiated("AuthMethod"), "CHAP as alice");
    rig.verify(&[512, 100_352]);
    let mutual = "?target_user=storage&target_password=another%20secret%20here";
    attach("alice%correct%20horse%20battery@", mutual).unwrap();
    for (user_info, query, wrong) in [
        ("", "", "put USER%PASSWORD@ into the URL"),
        (
            "alice%wrong%20secret%20here@",
            "",
            "compare user and password",
        ),
        (
            "bob%correct%20horse%20battery@",
            "",
            "compare user and password",
        ),
        (
            "alice%correct%20horse%20battery@",
            "?target_user=storage&target_password=a%20third%20secret!",
            "could not be authenticated",
        ),
        (
            "alice%correct%20horse%20battery@",
            "?target_user=impostor&target_password=another%20secret%20here",
            "could not be authenticated",
        ),
        (
            "alice%correct%20horse%20battery@",
            "?target_user=storage&target_password=correct%20horse%20battery",
            "a secret of its own",
        ),
    ] {
        let error = attach(user_info, query).err().expect("refused");
        assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(wrong), "{text}");
        for secret in ["horse", "secret here", "third"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn whoever_wants_proof_of_the_target_gives_it_too() {
    let server = with_config(CHAP);
    let options = Options {
        mutual_chap: Some(account("storage", "another secret here")),
        ..Options::default()
    };
    let error = Rig::attach(&url(server.portal(0), 0), &options).err();
    let text = error.expect("refused").to_string();
    assert!(text.contains("give user and password as well"), "{text}");
}

#[test]
fn discovery_lists_targets_and_has_accounts_of_its_own() {
    let server = with_config(CHAP);
    let portal = host_port(server.portal(0));
    let error = discover(&portal, &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error}");
    let options = Options {
        chap: Some(account("finder", "finders keepers")),
        ..Options::default()
    };
    let targets = discover(&portal, &options).unwrap();
    assert_eq!(targets.len(), 1);
    assert_eq!(targets[0].name.as_str(), TARGET);
    assert_eq!(targets[0].portals[0].address, portal);
    assert_eq!(targets[0].portals[0].portal_group_tag, Some(1));
}

#[test]
fn a_long_list_of_targets_comes_in_pieces() {
    let mut config = String::new();
    for number in 0..500 {
        config.push_str(&format!(
            "[[target]]\nname = \"iqn.2026-11.local.longshore:target-{number}\"\n\
             luns = [{{ lun = 0, volume = \"disk0\" }}]\n"
        ));
    }
    let server = with_config(&config);
    let mut options = Options::default();
    options.iscsi.preferences.max_recv_data_segment_length = 512;
    let targets = discover(&host_port(server.portal(0)), &options).unwrap();
    assert_eq!(targets.len(), 500);
    assert_eq!(
        targets[499].name.as_str(),
        "iqn.2026-11.local.longshore:target-499"
    );
}

#[test]
fn a_target_that_has_moved_is_followed_and_circles_end() {
    let there = crate::rig::server();
    for permanently in [false, true] {
        let here = with_config(&format!(
            "[[target]]\nname = \"{TARGET}\"\nluns = [{{ lun = 0, volume = \"disk0\" }}]\n\
             moved-to = \"{}\"\nmoved-permanently = {permanently}\n",
            there.portal(0)
        ));
        let mut rig = Rig::of(&here);
        assert_eq!(rig.attachment.portal, there.portal(0));
        rig.verify(&[4096]);
        let mut options = Options::default();
        options.iscsi.redirections_max = 0;
        let error = Rig::attach(&url(here.portal(0), 0), &options).err();
        let error = error.expect("not followed");
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    let own = free_port();
    let circle = ServerBuilder::new()
        .volume("disk0,backend=mem,size=1M")
        .iscsi_at(own, "")
        .config(&format!(
            "[[target]]\nname = \"{TARGET}\"\nluns = [{{ lun = 0, volume = \"disk0\" }}]\n\
             moved-to = \"{own}\"\n"
        ))
        .start()
        .unwrap();
    let error = Rig::attach(&url(circle.portal(0), 0), &Options::default()).err();
    let text = error.expect("a circle").to_string();
    assert!(text.contains("from portal to portal"), "{text}");
}

#[test]
fn every_key_that_was_offered_is_told() {
    let server = crate::rig::server();
    let mut options = Options {
        initiator_alias: Some("a test".to_owned()),
        ..Options::default()
    };
    options.initiator_name =
        Some(longshore_iscsi::name::IscsiName::parse("iqn.2001-04.com.example:me").unwrap());
    options.iscsi.preferences.default_time2wait = 7;
    options.iscsi.preferences.default_time2retain = 0;
    options.iscsi.preferences.max_outstanding_r2t = 3;
    options.iscsi.preferences.data_pdu_in_order = false;
    let rig = Rig::attach(&url(server.portal(0), 0), &options).unwrap();
    for (key, value) in [
        ("InitiatorName", "iqn.2001-04.com.example:me"),
        ("InitiatorAlias", "a test"),
        ("TargetName", TARGET),
        ("TargetPortalGroupTag", "1"),
        ("SessionType", "Normal"),
        ("AuthMethod", "None"),
        ("MaxOutstandingR2T", "3"),
        ("DefaultTime2Wait", "7"),
        ("DefaultTime2Retain", "0"),
        ("ErrorRecoveryLevel", "0"),
        ("DataPDUInOrder", "Yes"),
    ] {
        assert_eq!(rig.negotiated(key), value, "{key}");
    }
    let session = Session::open(&crate::rig::iscsi_url(server.portal(0), 0), 0, &options).unwrap();
    assert_eq!(session.parameters().operational.max_outstanding_r2t, 3);
    session.close();
}
