//! Controllers as a host sees them: commands in, completions out.

#![allow(clippy::cast_possible_truncation)]

mod concatenation;
mod connect;
mod events;
mod features;
mod identify;
mod keep_alive;
mod log_pages;
mod properties;
mod random;
mod secure;

use std::sync::{Arc, Mutex};

use longshore_block::names::WorldwideNames;
use longshore_block::reservation::Reservations;
use uuid::Uuid;

use super::access::{HostAccess, HostRule, NamespaceGrant};
use super::*;
use crate::command::{NamespaceId, SubmissionEntry};
use crate::host::commands::{
    self, ANY_CONTROLLER, Command, Connect, Property, Transfer, property_get, property_set,
};
use crate::nqn::{DISCOVERY_NQN, Nqn};
use crate::psk::Identity;
use crate::sgl::SglDescriptor;

const ADMIN_QUEUE: QueueHandle = QueueHandle(1000);
/// EN, CSS NVM, IOSQES 6, IOCQES 4.
const ENABLE: u32 = 0x0046_0001;
fn nqn(name: &str) -> Nqn {
    Nqn::new(&format!("nqn.2026-11.test:{name}")).unwrap()
}

fn discovery() -> Nqn {
    Nqn::new(DISCOVERY_NQN).unwrap()
}

#[derive(Debug, Default)]
struct Driver {
    entries: Vec<DiscoveryEntry>,
    generation: u64,
    discovery_only: bool,
    statistics: Statistics,
    health: Health,
    uptime_ms: u64,
    tls_identity: Option<Identity>,
    has_tls: bool,
    requires_tls: bool,
}

impl Environment for Driver {
    fn discovery_entries(&self, _host: &Nqn) -> Vec<DiscoveryEntry> {
        self.entries.clone()
    }

    fn discovery_generation(&self) -> u64 {
        self.generation
    }

    fn is_discovery_only(&self) -> bool {
        self.discovery_only
    }

    fn statistics(&self, _index: usize) -> Statistics {
        self.statistics
    }

    fn health(&self, _index: usize) -> Health {
        self.health
    }

    fn uptime_ms(&self) -> u64 {
        self.uptime_ms
    }

    fn tls_identity(&self) -> Option<&Identity> {
        self.tls_identity.as_ref()
    }

    fn has_tls(&self) -> bool {
        self.has_tls
    }

    fn requires_tls(&self) -> bool {
        self.requires_tls
    }
}

/// Two subsystems: `shared` with two namespaces for anybody and a map of its own for the host
/// `guest`, and `private` for the host `owner` only.
struct Scene {
    subsystems: Subsystems,
    namespaces: Vec<Arc<Namespace>>,
    driver: Driver,
    notified: Arc<Mutex<Vec<QueueHandle>>>,
    now_ms: u64,
}

fn parameters(block_size: u32, block_count: u64) -> NamespaceParameters {
    NamespaceParameters {
        uuid: Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef + u128::from(block_size)),
        names: WorldwideNames::default(),
        block_size,
        block_count,
        read_only: false,
        volatile_cache: block_size == 512,
        unmap_granularity_blocks: Some(8),
        unmapped_reads_zeros: true,
        rotational: false,
        physical_block_size: 4096,
        can_store_reservations: true,
        reservations: Reservations::new(),
    }
}

fn grant(id: u32, read_only: bool) -> NamespaceGrant {
    NamespaceGrant {
        id: NamespaceId(id),
        read_only,
    }
}

fn subsystem(name: &str, namespaces: &[Arc<Namespace>], hosts: HostAccess) -> SubsystemConfig {
    let ids = [1, 3];
    SubsystemConfig {
        nqn: nqn(name),
        serial: "0123456789ab".to_owned(),
        model: "Longshore".to_owned(),
        firmware: "0.1.0".to_owned(),
        namespaces: namespaces
            .iter()
            .enumerate()
            .map(|(index, namespace)| NamespaceConfig {
                id: NamespaceId(ids[index]),
                namespace: Arc::clone(namespace),
                index,
            })
            .collect(),
        hosts,
    }
}

fn scene() -> Scene {
    scene_with(ControllerLimits::default())
}

fn scene_with(limits: ControllerLimits) -> Scene {
    let namespaces = vec![
        Namespace::new(parameters(512, 2048)),
        Namespace::new(parameters(4096, 1000)),
    ];
    let shared = HostAccess {
        rules: vec![HostRule {
            hosts: vec![nqn("guest").into()],
            namespaces: vec![grant(3, true)],
            credentials: None,
            tls: None,
        }],
        default_namespaces: Some(vec![grant(1, false), grant(3, false)]),
    };
    let private = HostAccess {
        rules: vec![HostRule {
            hosts: vec![nqn("owner").into()],
            namespaces: vec![grant(1, false)],
            credentials: None,
            tls: None,
        }],
        default_namespaces: None,
    };
    let notified = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&notified);
    let subsystems = Subsystems::new(
        vec![
            subsystem("shared", &namespaces, shared),
            subsystem("private", &namespaces, private),
        ],
        limits,
        Arc::new(move |queue| list.lock().unwrap().push(queue)),
    );
    Scene {
        subsystems,
        namespaces,
        driver: Driver::default(),
        notified,
        now_ms: 5000,
    }
}

/// Connect of an admin queue by a host of its own identifier.
fn connect_by(host: &str, subsystem: &Nqn) -> Connect {
    let mut host_identifier = [0x11; 16];
    host_identifier[..host.len().min(16)].copy_from_slice(&host.as_bytes()[..host.len().min(16)]);
    Connect {
        host_identifier,
        host: nqn(host),
        subsystem: subsystem.clone(),
        controller_id: ANY_CONTROLLER,
        queue_id: 0,
        entries: 32,
        disable_flow_control: false,
        keep_alive_ms: 10_000,
    }
}

/// The entry of a command, with an SGL for what it moves.
fn entry_of(command: &Command) -> SubmissionEntry {
    let mut entry = command.entry;
    entry.set_sgl(match command.transfer {
        Transfer::None => SglDescriptor::NONE,
        Transfer::ToHost(length) => SglDescriptor::Transport { length },
        Transfer::ToController(length) => SglDescriptor::Offset { offset: 0, length },
    });
    entry
}

/// How a command ended.
#[derive(Debug)]
struct Answer {
    outcome: AdminOutcome,
    data: Vec<u8>,
}

impl Answer {
    /// Dwords 0 and 1 of a command that succeeded.
    #[track_caller]
    fn result(&self) -> u64 {
        match self.outcome {
            AdminOutcome::Complete { status, result } if status == Status::SUCCESS => result,
            ref other => panic!("no success: {other:?}"),
        }
    }

    /// Status and result of one that failed.
    #[track_caller]
    fn failure(&self) -> (Status, u64) {
        match self.outcome {
            AdminOutcome::Complete { status, result } if !status.is_success() => {
                assert!(self.data.is_empty(), "data of a command that failed");
                (status.code(), result)
            }
            ref other => panic!("no failure: {other:?}"),
        }
    }

    #[track_caller]
    fn data(self) -> Vec<u8> {
        self.result();
        self.data
    }
}

impl Scene {
    fn connect(&self, connect: &Connect, queue: QueueHandle) -> Result<Association, Refusal> {
        let entry = entry_of(&connect.command());
        let data = connect.data();
        self.subsystems
            .connect(&entry, &data, queue, &self.driver, self.now_ms)
    }

    /// A controller that is not enabled.
    fn connected(&self, host: &str, subsystem: &Nqn) -> Arc<Controller> {
        let association = self.connect(&connect_by(host, subsystem), ADMIN_QUEUE);
        association.unwrap().controller
    }

    /// A controller that is enabled.
    fn enabled(&self, host: &str, subsystem: &Nqn) -> Arc<Controller> {
        let controller = self.connected(host, subsystem);
        self.set_cc(&controller, ENABLE).result();
        assert!(controller.is_enabled());
        controller
    }

    /// Of the host `host` in the subsystem `shared`.
    fn ready(&self) -> Arc<Controller> {
        self.enabled("host", &nqn("shared"))
    }

    fn io_queue(&self, controller: &Controller, queue_id: u16) -> Result<Association, Refusal> {
        let connect = Connect {
            controller_id: controller.id(),
            queue_id,
            entries: 128,
            keep_alive_ms: 0,
            ..connect_by(
                controller.host_nqn().as_str().rsplit(':').next().unwrap(),
                controller.subsystem_nqn(),
            )
        };
        self.connect(&connect, QueueHandle(u128::from(queue_id)))
    }

    fn send(&self, controller: &Controller, command: &Command) -> Answer {
        self.send_data(controller, command, &[])
    }

    fn send_data(&self, controller: &Controller, command: &Command, data: &[u8]) -> Answer {
        self.send_entry(controller, &entry_of(command), data)
    }

    fn send_entry(&self, controller: &Controller, entry: &SubmissionEntry, data: &[u8]) -> Answer {
        let mut out = Vec::new();
        let outcome = controller.admin(entry, data, &mut out, &self.driver, self.now_ms);
        Answer { outcome, data: out }
    }

    fn set_cc(&self, controller: &Controller, value: u32) -> Answer {
        self.send(controller, &property_set(Property::CC, u64::from(value)))
    }

    fn csts(&self, controller: &Controller) -> u64 {
        self.send(controller, &property_get(Property::CSTS))
            .result()
    }
}

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(data[at..at + 2].try_into().unwrap())
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap())
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
}

/// Namespace identifiers up to the first zero.
fn ids(data: &[u8]) -> Vec<u32> {
    let all = data.chunks(4).map(|id| u32_at(id, 0));
    all.take_while(|id| *id != 0).collect()
}
