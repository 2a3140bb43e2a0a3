//! Who may see and use what.

use longshore_iscsi::chap::Secret;
use longshore_iscsi::server::directory::{Authentication, ChapAccount, ChapAuthentication};
use longshore_reactor::EngineChoice;
use longshore_server::config::{LunConfig, Moved, ServerConfig};
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::pdu::{self, Pdu, RESERVED_TAG, opcode};
use longshore_tests::server::TARGET;

use crate::scene::*;

const OTHER: &str = "iqn.2026-11.local.longshore:other";

fn two_targets() -> ServerConfig {
    let mut config = config(vec![mem("a", 512), mem("b", 512)], EngineChoice::Auto);
    let mut other = target(OTHER, 0);
    other.default_luns = None;
    other.access = vec![rule(&host_name(1), vec![lun(5, 1)])];
    config.targets.push(other);
    config
}

/// Keys of the answer to SendTargets=All.
fn send_targets(portal: std::net::SocketAddr, number: u16) -> Vec<(String, String)> {
    let discovery = Login {
        target: None,
        ..login(number)
    };
    let mut peer = Initiator::log_in(portal, &discovery).unwrap();
    let request = Pdu::new(opcode::TEXT_REQUEST)
        .set_byte(1, 0x80)
        .set_word(16, peer.new_tag())
        .set_word(20, RESERVED_TAG)
        .set_word(24, peer.cmd_sn)
        .set_word(28, peer.exp_stat_sn)
        .with_data(&pdu::text(&[("SendTargets", "All")]));
    peer.send(&request).unwrap();
    let response = peer.receive().unwrap();
    assert_eq!(response.opcode(), opcode::TEXT_RESPONSE);
    pdu::parse_text(&response.data)
}

fn names(keys: &[(String, String)]) -> Vec<&str> {
    let names = keys.iter().filter(|(key, _)| key == "TargetName");
    names.map(|(_, value)| value.as_str()).collect()
}

fn one_account() -> Authentication {
    Authentication::chap_required(ChapAuthentication {
        accounts: vec![ChapAccount {
            name: "one".to_owned(),
            secret: Secret::new("a secret of one"),
        }],
        ..ChapAuthentication::default()
    })
}

fn status(portal: std::net::SocketAddr, login: &Login) -> u16 {
    Initiator::connect(portal)
        .unwrap()
        .try_login(login)
        .unwrap()
}

#[test]
fn initiator_without_a_rule_is_refused_and_does_not_see_the_target() {
    let scene = Scene::new(two_targets());
    let to_other = |number| Login {
        target: Some(OTHER.to_owned()),
        ..login(number)
    };
    assert_eq!(status(scene.portals[0], &to_other(1)), 0);
    assert_eq!(status(scene.portals[0], &to_other(2)), 0x0202);
    assert_eq!(names(&send_targets(scene.portals[0], 1)), [TARGET, OTHER]);
    assert_eq!(names(&send_targets(scene.portals[0], 2)), [TARGET]);
}

#[test]
fn rule_gives_an_initiator_its_own_map_of_units() {
    let scene = Scene::new(two_targets());
    let to_other = Login {
        target: Some(OTHER.to_owned()),
        ..login(1)
    };
    let mut host = Initiator::log_in(scene.portals[0], &to_other).unwrap();
    let report = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let answer = host.command(0, &report, Data::In(256)).unwrap();
    assert_eq!(
        answer.data,
        [0, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0]
    );
    let missing = host.command(0, &cdb::TEST_UNIT_READY, Data::None).unwrap();
    assert_eq!(missing.sense_code(), Some((5, 0x25, 0)));
    host.command(5, &cdb::TEST_UNIT_READY, Data::None).unwrap();
    let write = cdb::write_16(0, 1, false);
    assert!(
        host.command(5, &write, Data::Out(&[6; 512]))
            .unwrap()
            .is_good()
    );
    // It is the volume that others know as LUN 1.
    let mut other = scene.host(2);
    other.command(1, &cdb::TEST_UNIT_READY, Data::None).unwrap();
    let back = other
        .command(1, &cdb::read_16(0, 1), Data::In(512))
        .unwrap();
    assert_eq!(back.data, [6; 512]);
}

#[test]
fn read_only_unit_refuses_writes_of_that_initiator_only() {
    let mut config = config(vec![mem("a", 512)], EngineChoice::Auto);
    let read_only = LunConfig {
        read_only: true,
        ..lun(0, 0)
    };
    config.targets[0].access = vec![rule(&host_name(1), vec![read_only])];
    let scene = Scene::new(config);
    let (mut reader, mut writer) = (scene.host(1), scene.host(2));
    assert_eq!(write(&mut reader, 0, 1).sense_code(), Some((7, 0x27, 0)));
    assert!(write(&mut writer, 0, 2).is_good());
    assert_eq!(read(&mut reader, 0), [2; 512]);
    let mode_sense = [0x1a, 8, 0x3f, 0, 255, 0];
    for (host, protected) in [(&mut reader, 0x80), (&mut writer, 0)] {
        let answer = host.command(0, &mode_sense, Data::In(255)).unwrap();
        assert_eq!(answer.data[2] & 0x80, protected);
    }
}

#[test]
fn target_is_reached_and_told_through_its_portal_groups_only() {
    let mut config = two_targets();
    config.targets[0].portal_groups = vec![1];
    config.targets[1].portal_groups = vec![2];
    let mut second = listener("127.0.0.1:0", 2);
    second.advertise = Some("192.0.2.7:3260".to_owned());
    config.listeners.push(second);
    let scene = Scene::new(config);
    assert_eq!(status(scene.portals[0], &login(1)), 0);
    assert_eq!(status(scene.portals[1], &login(1)), 0x0203);
    let keys = send_targets(scene.portals[0], 1);
    let told: Vec<_> = keys.iter().map(|(_, value)| value.as_str()).collect();
    let first = format!("{},1", scene.portals[0]);
    assert_eq!(told, [TARGET, first.as_str(), OTHER, "192.0.2.7:3260,2"]);
}

#[test]
fn target_that_moved_sends_those_it_would_let_in_to_its_new_address() {
    for (permanent, expected) in [(false, 0x0101), (true, 0x0102)] {
        let mut config = two_targets();
        let other = &mut config.targets[1];
        // It takes no proof to be sent on.
        other.authentication = one_account();
        other.moved_to = Some(Moved {
            address: "[2001:db8::7]:3260".to_owned(),
            permanent,
        });
        let scene = Scene::new(config);
        let to_other = |number| Login {
            target: Some(OTHER.to_owned()),
            ..login(number)
        };
        let mut host = Initiator::connect(scene.portals[0]).unwrap();
        assert_eq!(host.try_login(&to_other(1)).unwrap(), expected);
        let told = ("TargetAddress".to_owned(), "[2001:db8::7]:3260".to_owned());
        assert_eq!(host.negotiated, [told]);

        let mut stranger = Initiator::connect(scene.portals[0]).unwrap();
        assert_eq!(stranger.try_login(&to_other(2)).unwrap(), 0x0202);
        assert_eq!(stranger.negotiated, []);
        assert_eq!(status(scene.portals[0], &login(1)), 0);
    }
}

#[test]
fn target_that_moved_stays_visible_in_discovery() {
    let mut config = two_targets();
    config.targets[1].moved_to = Some(Moved {
        address: "192.0.2.7:3260".to_owned(),
        permanent: false,
    });
    let scene = Scene::new(config);
    assert_eq!(names(&send_targets(scene.portals[0], 1)), [TARGET, OTHER]);
    assert_eq!(names(&send_targets(scene.portals[0], 2)), [TARGET]);
}

#[test]
fn unspecified_address_is_told_as_the_one_that_was_reached() {
    let mut config = config(vec![mem("a", 512)], EngineChoice::Auto);
    config.listeners = vec![listener("0.0.0.0:0", 1)];
    let scene = Scene::new(config);
    let reached = std::net::SocketAddr::from(([127, 0, 0, 1], scene.portals[0].port()));
    let keys = send_targets(reached, 1);
    assert_eq!(
        keys[1],
        ("TargetAddress".to_owned(), format!("{reached},1"))
    );
}

#[test]
fn rule_may_ask_for_chap_where_the_target_does_not() {
    let mut config = config(vec![mem("a", 512)], EngineChoice::Auto);
    let mut proved = rule(&host_name(1), vec![lun(0, 0)]);
    proved.authentication = Some(one_account());
    config.targets[0].access = vec![proved];
    let scene = Scene::new(config);
    assert_eq!(status(scene.portals[0], &login(1)), 0x0201);
    assert_eq!(status(scene.portals[0], &login(2)), 0);
}
