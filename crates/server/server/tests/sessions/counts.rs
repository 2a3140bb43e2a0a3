//! What is counted of logins, ends of sessions and limits.

use std::net::TcpListener;

use longshore_nvme::nqn::Nqn;
use longshore_reactor::EngineChoice;
use longshore_server::config::{NamespaceMapEntry, NvmeListenerConfig, SubsystemConfig};
use longshore_server::observe::{ClientStatistics, NamedCount, ProtocolClients};
use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::nvme::{Host, HostOptions, SUBSYSTEM};

use crate::scene::*;

fn of(counts: &[NamedCount], name: &str) -> u64 {
    let found = counts.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("no {name}")).count
}

fn clients(scene: &Scene) -> ClientStatistics {
    scene.control().statistics().clients
}

fn iscsi(scene: &Scene) -> ProtocolClients {
    clients(scene).protocols.swap_remove(0)
}

fn nvme(scene: &Scene) -> ProtocolClients {
    clients(scene).protocols.swap_remove(1)
}

#[test]
fn sessions_are_counted_with_the_reasons_of_their_ends() {
    for engine in ENGINES {
        let scene = Scene::with(vec![mem("disk", 512)], engine);
        let (one, two, three) = (scene.host(1), scene.host(2), scene.host(3));
        one.log_out().unwrap();
        drop(two);
        let ends = |name: &str| of(&iscsi(&scene).ends, name);
        eventually("two ends", || ends("logout") == 1 && ends("lost") == 1);
        let id = scene.control().sessions()[0].id;
        scene.control().close_session(id).unwrap();
        let mut three = three;
        // It is asked to log out, and goes without an answer.
        three.receive().unwrap();
        drop(three);
        eventually("the third end", || ends("request") == 1);
        let counted = iscsi(&scene);
        assert_eq!((counted.logins, counted.login_failures), (3, 0));
        assert_eq!(
            (of(&counted.ends, "error"), of(&counted.ends, "access")),
            (0, 0)
        );
    }
}

#[test]
fn refused_logins_and_limits_that_are_reached_are_counted() {
    for engine in ENGINES {
        let mut config = config(vec![mem("disk", 512)], engine);
        config.limits.sessions = 1;
        let scene = Scene::new(config);
        let unknown = Login {
            target: Some("iqn.2026-11.local.longshore:none".to_owned()),
            ..login(1)
        };
        assert!(Initiator::log_in(scene.portals[0], &unknown).is_err());
        eventually("a refusal", || iscsi(&scene).login_failures == 1);
        assert_eq!(of(&clients(&scene).limits, "sessions"), 0);
        let _only = scene.host(1);
        assert!(Initiator::log_in(scene.portals[0], &login(2)).is_err());
        eventually("another", || iscsi(&scene).login_failures == 2);
        assert_eq!(of(&clients(&scene).limits, "sessions"), 1);
        assert_eq!(iscsi(&scene).logins, 1);
    }
}

#[test]
fn controllers_are_counted_and_their_io_queues_are_not() {
    let mut config = config(vec![mem("disk", 512)], EngineChoice::Auto);
    config.subsystems.push(SubsystemConfig {
        nqn: Nqn::new(SUBSYSTEM).unwrap(),
        serial: None,
        hosts: Vec::new(),
        default_namespaces: Some(vec![NamespaceMapEntry {
            nsid: 1,
            volume: 0,
            read_only: false,
        }]),
    });
    config.nvme_listeners.push(NvmeListenerConfig {
        listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        advertise: None,
        discovery_only: false,
        tls: longshore_server::config::TlsUse::None,
    });
    let scene = Scene::new(config);
    let host = Host::connect(scene.nvme_portals[0], &HostOptions::numbered(1)).unwrap();
    assert_eq!((nvme(&scene).logins, iscsi(&scene).logins), (1, 0));
    drop(host);
    eventually("its end", || of(&nvme(&scene).ends, "lost") == 1);
    let unknown = HostOptions {
        subsystem: "nqn.2026-11.local.longshore:none".to_owned(),
        ..HostOptions::numbered(1)
    };
    assert!(Host::connect(scene.nvme_portals[0], &unknown).is_err());
    assert_eq!(nvme(&scene).login_failures, 1);
}
