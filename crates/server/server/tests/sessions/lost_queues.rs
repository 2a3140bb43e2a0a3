//! Hosts that come back over NVMe/TCP while the last writes of their lost queues are under way.

use std::net::TcpListener;
use std::sync::Arc;

use longshore_block::extent::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::CommandSlot;
use longshore_nvme::host::commands::{self, Blocks};
use longshore_nvme::nqn::Nqn;
use longshore_reactor::EngineChoice;
use longshore_server::config::{NamespaceMapEntry, NvmeListenerConfig, SubsystemConfig};
use longshore_tests::nvme::{Host, HostOptions, SUBSYSTEM};

use crate::gate_volume::GateVolume;
use crate::scene::*;

const BLOCK: Blocks = Blocks {
    namespace: NamespaceId(1),
    lba: Lba(5),
    count: 1,
    block_bytes: 512,
};

/// A server with one subsystem, of that volume.
fn scene(volume: Arc<GateVolume>, engine: EngineChoice) -> Scene {
    let mut config = config(vec![volume], engine);
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
    Scene::new(config)
}

fn host(scene: &Scene, number: u8) -> Host {
    Host::connect(scene.nvme_portals[0], &HostOptions::numbered(number)).unwrap()
}

/// A server whose volume holds a write of that host, which is under way.
fn with_a_write_of(
    number: u8,
    engine: EngineChoice,
) -> (Scene, Arc<GateVolume>, Host, CommandSlot) {
    let gate = GateVolume::new(mem("disk", 512));
    let scene = scene(Arc::clone(&gate), engine);
    let mut host = host(&scene, number);
    gate.close_writes();
    let write = commands::write(BLOCK, 0);
    let slot = host.queues[0].start(&write, &[1; 512]).unwrap();
    eventually("the write", || gate.waiting() == 1);
    (scene, gate, host, slot)
}

#[test]
fn a_new_queue_waits_for_the_last_write_of_a_closed_one_of_its_host() {
    for engine in ENGINES {
        let (scene, gate, old, _) = with_a_write_of(1, engine);
        drop(old);
        eventually("the end of the old queues", || {
            scene.control().statistics().connections.is_empty()
        });

        let mut new = host(&scene, 1);
        let queue = &mut new.queues[0];
        let read = queue.start(&commands::read(BLOCK), &[]).unwrap();
        assert!(queue.wait_for(read, WHILE).unwrap().is_none());
        // It is no concern of other hosts.
        let mut other = host(&scene, 2);
        assert_eq!(other.read(BLOCK).unwrap().expect_success().data, [0; 512]);

        gate.open();
        let answer = new.queues[0].wait(read).unwrap().expect_success();
        assert_eq!(answer.data, [1; 512]);
    }
}

#[test]
fn a_new_queue_of_a_host_without_writes_waits_for_nothing() {
    for engine in ENGINES {
        let (scene, gate, mut other, slot) = with_a_write_of(2, engine);
        drop(host(&scene, 1));
        let mut again = host(&scene, 1);
        again.read(BLOCK).unwrap().expect_success();
        gate.open();
        other.queues[0].wait(slot).unwrap().expect_success();
    }
}
