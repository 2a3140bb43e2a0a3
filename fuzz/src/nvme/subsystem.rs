//! Subsystems for the targets to use, and hosts that are connected to them.

use std::net::SocketAddr;
use std::sync::Arc;

use longshore_block::names::WorldwideNames;
use longshore_block::reservation::Reservations;
use longshore_nvme::command::{NamespaceId, SubmissionEntry};
use longshore_nvme::controller::access::{HostAccess, HostRule, NamespaceGrant};
use longshore_nvme::controller::{
    Controller, ControllerLimits, DiscoveryEntry, Environment, Namespace, NamespaceConfig,
    NamespaceParameters, QueueHandle, SubsystemConfig, SubsystemType, Subsystems, TlsUse,
};
use longshore_nvme::host::commands::{
    ANY_CONTROLLER, Command, Connect, Property, Transfer, property_set,
};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::sgl::SglDescriptor;
use uuid::Uuid;

/// Blocks of each namespace.
pub(super) const BLOCKS: u64 = 1 << 12;
/// EN, CSS NVM, IOSQES 6, IOCQES 4.
pub(super) const ENABLE: u32 = 0x0046_0001;

/// The subsystem anybody may use.
pub(super) fn shared() -> Nqn {
    name("nqn.2026-11.local.longshore:shared")
}

pub(super) fn name(text: &str) -> Nqn {
    Nqn::new(text).expect("a good name")
}

/// Host number so-and-so. The fourth must not write.
pub(super) fn host(number: u8) -> Nqn {
    name(&format!("nqn.2026-11.local:host{number}"))
}

/// A driver with something to tell.
pub(super) struct Driver;

impl Environment for Driver {
    fn discovery_entries(&self, _: &Nqn) -> Vec<DiscoveryEntry> {
        let entry = |port_id: u16| DiscoveryEntry {
            subsystem: shared(),
            kind: SubsystemType::Nvm,
            address: SocketAddr::from(([192, 0, 2, 1], 4420 + port_id)),
            port_id,
            tls: TlsUse::Permitted,
        };
        (1..4).map(entry).collect()
    }

    fn discovery_generation(&self) -> u64 {
        3
    }
}

/// Two subsystems of the same two namespaces: `shared` for anybody, `private` for the first host.
pub(super) fn subsystems() -> (Subsystems, Vec<Arc<Namespace>>) {
    let namespace = |number: u8| {
        Namespace::new(NamespaceParameters {
            uuid: Uuid::from_u128(u128::from(number) + 1),
            names: WorldwideNames::default(),
            block_size: if number == 0 { 512 } else { 4096 },
            block_count: BLOCKS,
            read_only: false,
            volatile_cache: number == 0,
            unmap_granularity_blocks: Some(8),
            unmapped_reads_zeros: true,
            rotational: false,
            physical_block_size: 4096,
            can_store_reservations: number == 0,
            reservations: Reservations::new(),
        })
    };
    let namespaces: Vec<_> = (0..2).map(namespace).collect();
    let grants = |read_only| {
        let id = |id| NamespaceId(id);
        let grant = |id| NamespaceGrant { id, read_only };
        vec![grant(id(1)), grant(id(3))]
    };
    let rule = |number, read_only| HostRule {
        hosts: vec![host(number).into()],
        namespaces: grants(read_only),
        credentials: None,
        tls: None,
    };
    let subsystem = |nqn, hosts| SubsystemConfig {
        nqn,
        serial: "FUZZ".to_owned(),
        model: "Longshore".to_owned(),
        firmware: "0".to_owned(),
        namespaces: namespaces
            .iter()
            .zip([1, 3])
            .enumerate()
            .map(|(index, (namespace, id))| NamespaceConfig {
                id: NamespaceId(id),
                namespace: Arc::clone(namespace),
                index,
            })
            .collect(),
        hosts,
    };
    let open = HostAccess {
        rules: vec![rule(3, true)],
        default_namespaces: Some(grants(false)),
    };
    let closed = HostAccess {
        rules: vec![rule(0, false)],
        default_namespaces: None,
    };
    let limits = ControllerLimits {
        io_queues_max: 4,
        controllers_max: 8,
        transfer_bytes_max: 64 << 10,
        ..ControllerLimits::default()
    };
    let all = vec![
        subsystem(shared(), open),
        subsystem(name("nqn.2026-11.local.longshore:private"), closed),
    ];
    (Subsystems::new(all, limits, Arc::new(|_| ())), namespaces)
}

/// Connect of a host's admin queue.
pub(super) fn connect(number: u8, subsystem: Nqn) -> Connect {
    Connect {
        host_identifier: [number + 1; 16],
        host: host(number),
        subsystem,
        controller_id: ANY_CONTROLLER,
        queue_id: 0,
        entries: 32,
        disable_flow_control: false,
        keep_alive_ms: 10_000,
    }
}

/// The entry of a command with the SGL a host gives it.
pub(super) fn entry_of(command: &Command) -> SubmissionEntry {
    let mut entry = command.entry;
    entry.set_sgl(match command.transfer {
        Transfer::None => SglDescriptor::NONE,
        Transfer::ToHost(length) => SglDescriptor::Transport { length },
        Transfer::ToController(length) => SglDescriptor::Offset { offset: 0, length },
    });
    entry
}

/// A controller that is enabled.
pub(super) fn controller(subsystems: &Subsystems, number: u8, nqn: Nqn) -> Arc<Controller> {
    let connect = connect(number, nqn);
    let entry = entry_of(&connect.command());
    let queue = QueueHandle(u128::from(number));
    let association = subsystems.connect(&entry, &connect.data(), queue, &Driver, 0);
    let controller = association.expect("a good Connect").controller;
    let entry = entry_of(&property_set(Property::CC, u64::from(ENABLE)));
    controller.admin(&entry, &[], &mut Vec::new(), &Driver, 0);
    assert!(controller.is_enabled());
    controller
}
