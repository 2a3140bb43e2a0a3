//! Target ports keep their relative identifiers, whatever is configured beside them.

use std::path::Path;

use longshore_reactor::EngineChoice;
use longshore_server::config::{RelativePorts, ServerConfig, TargetConfig};
use longshore_server::{Server, StartError};
use longshore_tests::initiator::{Data, Initiator, Login};
use longshore_tests::server::TARGET;
use longshore_volume::{BackendName, VolumeSpec};

use crate::scene::*;

const EARLIER: &str = "iqn.2026-11.local.longshore:earlier";
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const APTPL: u8 = 1;

fn on_a_disk(directory: &Path, tags: &[u16], targets: &[&str]) -> ServerConfig {
    let mut spec = VolumeSpec::new("disk", BackendName::FILE);
    spec.path = Some(directory.join("disk"));
    spec.size = Some(1 << 20);
    let mut config = config(
        vec![longshore_volume::open(&spec).unwrap()],
        EngineChoice::Auto,
    );
    config.targets = targets.iter().map(|name| target(name, 1)).collect();
    config.listeners = tags
        .iter()
        .map(|tag| listener("127.0.0.1:0", *tag))
        .collect();
    config.state_directory = Some(directory.join("state"));
    config
}

/// A session through one of the portals.
fn host(scene: &Scene, portal: usize, number: u16, target: &str) -> Initiator {
    let login = Login {
        target: Some(target.to_owned()),
        ..login(number)
    };
    let mut host = Initiator::log_in(scene.portals[portal], &login).unwrap();
    settle(&mut host);
    host
}

/// What VPD page 83h says of the port.
fn identifier(host: &mut Initiator) -> u16 {
    let inquiry = [0x12, 1, 0x83, 1, 0, 0];
    let page = host.command(0, &inquiry, Data::In(256)).unwrap().data;
    let mut rest = &page[4..];
    while let [_, kind, _, length, after @ ..] = rest {
        let (value, next) = after.split_at(usize::from(*length));
        if kind & 0x3f == 0x14 {
            return u16::from_be_bytes([value[2], value[3]]);
        }
        rest = next;
    }
    panic!("no relative target port in {page:?}");
}

/// The ports of the one target port group that REPORT TARGET PORT GROUPS has.
fn reported(host: &mut Initiator) -> Vec<u16> {
    let cdb = [0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let data = host.command(0, &cdb, Data::In(256)).unwrap().data;
    assert_eq!(data[8..12], [0, 1, 0, 1], "active/optimized, group 1");
    let ports = data[16..].chunks_exact(4);
    ports
        .map(|port| u16::from_be_bytes([port[2], port[3]]))
        .collect()
}

fn reserve_out(host: &mut Initiator, action: u8, kind: u8, keys: (u64, u64), flags: u8) {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&keys.0.to_be_bytes());
    list[8..16].copy_from_slice(&keys.1.to_be_bytes());
    list[20] = flags;
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let answer = host.command(0, &cdb, Data::Out(&list)).unwrap();
    assert!(answer.is_good(), "{answer:?}");
}

#[test]
fn a_port_and_its_reservation_stay_when_targets_and_portal_groups_are_added_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let first = Scene::new(on_a_disk(directory.path(), &[7], &[TARGET]));
    let mut one = host(&first, 0, 1, TARGET);
    let number = identifier(&mut one);
    reserve_out(&mut one, REGISTER, 0, (0, 11), APTPL);
    reserve_out(&mut one, RESERVE, EXCLUSIVE_ACCESS, (11, 0), 0);
    drop(first);

    // A target before it, and a portal group with a lower tag.
    let edited = on_a_disk(directory.path(), &[3, 7], &[EARLIER, TARGET]);
    let second = Scene::new(edited);
    let mut one = host(&second, 1, 1, TARGET);
    assert_eq!(identifier(&mut one), number);
    assert!(write(&mut one, 0, 1).is_good(), "it holds the reservation");
    let mut others = Vec::new();
    for (portal, name) in [(0, TARGET), (0, EARLIER), (1, EARLIER)] {
        let mut other = host(&second, portal, 1, name);
        assert_eq!(write(&mut other, 0, 2).status, 0x18, "{name} {portal}");
        others.push(identifier(&mut other));
    }
    others.push(number);
    others.sort_unstable();
    others.dedup();
    assert_eq!(others.len(), 4, "each port has its own: {others:?}");
}

#[test]
fn every_port_through_which_a_unit_is_reached_is_in_its_target_port_group() {
    let directory = tempfile::tempdir().unwrap();
    let scene = Scene::new(on_a_disk(directory.path(), &[3, 7], &[EARLIER, TARGET]));
    let mut all = Vec::new();
    let mut seen = Vec::new();
    for (portal, name) in [(0, EARLIER), (1, EARLIER), (0, TARGET), (1, TARGET)] {
        let mut host = host(&scene, portal, 1, name);
        all.push(identifier(&mut host));
        seen.push(reported(&mut host));
    }
    all.sort_unstable();
    assert_eq!(all.len(), 4);
    assert_eq!(seen, vec![all; 4]);
}

#[test]
fn numbers_of_ports_that_are_gone_are_not_given_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let scene = Scene::new(on_a_disk(directory.path(), &[1], &[EARLIER, TARGET]));
    let earlier = identifier(&mut host(&scene, 0, 1, EARLIER));
    drop(scene);
    let scene = Scene::new(on_a_disk(directory.path(), &[1], &[TARGET]));
    drop(scene);
    let newer = "iqn.2026-11.local.longshore:newer";
    let scene = Scene::new(on_a_disk(directory.path(), &[1], &[newer, TARGET, EARLIER]));
    assert_ne!(identifier(&mut host(&scene, 0, 1, newer)), earlier);
    assert_eq!(identifier(&mut host(&scene, 0, 1, EARLIER)), earlier);
}

fn numbered(name: &str, number: u16) -> TargetConfig {
    TargetConfig {
        relative_ports: RelativePorts::Single(number.try_into().unwrap()),
        ..target(name, 1)
    }
}

#[test]
fn a_port_has_the_number_that_it_is_given_and_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = on_a_disk(directory.path(), &[1], &[EARLIER]);
    config.targets.push(numbered(TARGET, 300));
    let scene = Scene::new(config);
    assert_eq!(identifier(&mut host(&scene, 0, 1, TARGET)), 300);
    assert_eq!(identifier(&mut host(&scene, 0, 1, EARLIER)), 1);
    drop(scene);
    // Without the key in the configuration it is the same port still.
    let scene = Scene::new(on_a_disk(directory.path(), &[1], &[TARGET]));
    assert_eq!(identifier(&mut host(&scene, 0, 1, TARGET)), 300);
}

#[test]
fn the_number_of_another_target_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    drop(Scene::new(on_a_disk(directory.path(), &[1], &[EARLIER])));
    let mut config = on_a_disk(directory.path(), &[1], &[EARLIER]);
    config.targets.push(numbered(TARGET, 1));
    let error = Server::start(config).unwrap_err();
    let StartError::RelativePortTaken {
        identifier, owner, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*identifier, owner.as_str()), (1, EARLIER));
    assert!(error.to_string().contains("`relative-port`"), "{error}");
}

#[test]
fn a_damaged_table_of_target_ports_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    drop(Scene::new(on_a_disk(directory.path(), &[1], &[TARGET])));
    let path = directory.path().join("state/target-ports");
    let stored = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, stored.replacen(TARGET, EARLIER, 1)).unwrap();
    let error = Server::start(on_a_disk(directory.path(), &[1], &[TARGET])).unwrap_err();
    assert!(matches!(error, StartError::TargetPorts { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
}
