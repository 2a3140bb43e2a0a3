//! What a server offers.

use longshore_initiator::info::Protocol;
use longshore_initiator::url::HostPort;
use longshore_initiator::{iscsi, nvme};

use crate::Fact;
use crate::peer::{Maker, Peer};

pub const FACTS: &[Fact] = &[
    Fact::of(
        is_iscsi,
        "send_targets_lists_names_and_portals",
        send_targets,
    ),
    Fact::of(
        is_nvme,
        "the_discovery_log_lists_subsystems_and_ports",
        discovery_log,
    ),
];

fn is_iscsi(peer: &Peer) -> bool {
    peer.protocol == Protocol::Iscsi
}

fn is_nvme(peer: &Peer) -> bool {
    peer.protocol == Protocol::NvmeTcp
}

fn portal(peer: &Peer) -> HostPort {
    HostPort::parse(&peer.portals[0].to_string(), 1).expect("an address")
}

/// An address as the peer itself sees it: guests do not know of the ports that lead to them, but these have
/// the same numbers.
fn advertised(peer: &Peer, index: usize) -> String {
    let address = peer.portals[index];
    match peer.maker {
        Maker::Lio | Maker::Nvmet => format!("10.0.2.15:{}", address.port()),
        Maker::Tgt | Maker::Longshore => address.to_string(),
    }
}

fn send_targets(peer: &Peer) {
    let targets = iscsi::discover(&portal(peer), &peer.options()).unwrap_or_else(|e| panic!("{e}"));
    println!("{targets:#?}");
    let target = targets
        .iter()
        .find(|target| target.name.to_string() == peer.target);
    let target = target.unwrap_or_else(|| panic!("{targets:?}"));
    let portals: Vec<String> = target.portals.iter().map(|p| format!("{p:?}")).collect();
    // tgt lists only the portal that was asked.
    let indexes = if peer.maker == Maker::Tgt { 0..1 } else { 0..2 };
    for index in indexes {
        let address = advertised(peer, index);
        let [host, port] = [0, 1].map(|part| address.split(':').nth(part).unwrap_or_default());
        let is_there = portals.iter().any(|p| p.contains(host) && p.contains(port));
        assert!(is_there, "{address}: {portals:?}");
    }
}

fn discovery_log(peer: &Peer) {
    let entries = nvme::discover(&portal(peer), &peer.options()).unwrap_or_else(|e| panic!("{e}"));
    println!("{entries:#?}");
    let is_ours = |entry: &&nvme::DiscoveryEntry| entry.subsystem == peer.target;
    let found: Vec<String> = entries
        .iter()
        .filter(is_ours)
        .map(|entry| format!("{}:{}", entry.address, entry.service))
        .collect();
    // nvmet lists only the port that was asked.
    let indexes = if peer.maker == Maker::Nvmet {
        0..1
    } else {
        0..2
    };
    for index in indexes {
        assert!(found.contains(&advertised(peer, index)), "{found:?}");
    }
    assert!(
        entries.iter().all(|entry| entry.transport == "tcp"),
        "{entries:?}"
    );
}
