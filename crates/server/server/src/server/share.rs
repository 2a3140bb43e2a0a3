//! What all shards share, made from the configuration.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use longshore_reactor::{BlockingPool, MemoryBudget};

use crate::config::{ServerConfig, StartError};
use crate::core::Shared;
use crate::exports::nvme::{NvmeExports, NvmePort};
use crate::exports::{Exports, Portal, Unit};
use crate::mail::addresses::ConnectionAddresses;
use crate::mail::message::Post;
use crate::memory::share::Shares;
use crate::observe::shard_report::Board;
use crate::placement::load::Load;
use crate::reservation_store::ReservationStore;
use crate::sessions::hosts::Hosts;
use crate::sessions::iscsi::Sessions;
use crate::target_ports::{TargetPorts, TargetPortsError};

/// Freed payload memory that all shards together keep at hand, at most.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Helper threads for control work such as storing reservations.
const BLOCKING_THREADS_MAX: usize = 2;

/// Everything that all shards share.
pub(crate) fn share(
    config: ServerConfig,
    portals: Vec<Portal>,
    ports: Vec<NvmePort>,
    posts: Vec<Post>,
) -> Result<Shared, StartError> {
    let shards = posts.len();
    let state_directory = config.state_directory;
    let store = state_directory
        .as_ref()
        .map(|path| {
            ReservationStore::open(path).map_err(|source| StartError::StateDirectory {
                path: path.clone(),
                source,
            })
        })
        .transpose()?;
    let not_numbered = |error: TargetPortsError| StartError::TargetPorts {
        path: TargetPorts::path(state_directory.as_deref().unwrap_or(Path::new(""))),
        reason: error.to_string(),
    };
    let target_ports = TargetPorts::open(state_directory.as_deref()).map_err(not_numbered)?;
    let units: Vec<Unit> = config
        .volumes
        .into_iter()
        .map(|volume| {
            let memory = config.limits.memory;
            Unit::new(volume, shards, store.is_some(), memory, config.copies)
        })
        .collect();
    if let Some(store) = &store {
        restore_reservations(store, &units)?;
    }
    let nvme = NvmeExports::new(&config.subsystems, ports, &units, &config.limits, &posts);
    let mut exports = Exports {
        units,
        nvme,
        targets: config.targets,
        portals,
        discovery: config.discovery,
        target_ports,
    };
    exports.number_target_ports().map_err(not_numbered)?;
    exports.announce_target_ports();
    let memory = usize::try_from(config.limits.memory).unwrap_or(usize::MAX);
    Ok(Shared {
        exports,
        budget: MemoryBudget::new(memory),
        board: Board::new(shards),
        sample: config.sample,
        sessions: Sessions::new(config.limits.sessions),
        hosts: Hosts::default(),
        shares: Shares::default(),
        limits: config.limits,
        transmit: config.transmit,
        copies: config.copies,
        reactor: config.reactor,
        posts,
        addresses: ConnectionAddresses::default(),
        loads: (0..shards).map(|_| Load::default()).collect(),
        connections: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
        pending_logins: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
        reservation_store: store,
        blocking: BlockingPool::new(BLOCKING_THREADS_MAX),
        closing: AtomicBool::new(false),
        shards_busy: AtomicUsize::new(shards),
    })
}

fn restore_reservations(store: &ReservationStore, units: &[Unit]) -> Result<(), StartError> {
    for unit in units {
        let uuid = unit.volume.identity().uuid;
        let failed = |reason| StartError::Reservations {
            path: store.path(uuid),
            reason,
        };
        let stored = store
            .load(uuid)
            .map_err(|error| failed(error.to_string()))?;
        if let Some(bytes) = stored {
            unit.logical_unit
                .reservations()
                .restore(&bytes)
                .map_err(|error| failed(error.to_string()))?;
        }
    }
    Ok(())
}

/// Freed payload memory that a shard keeps at hand, at most. It is lost to the others, so that together
/// they keep a small part of what there is.
pub(crate) fn kept_bytes_max(budget: &MemoryBudget, shards: usize) -> usize {
    KEPT_BYTES_MAX.min(budget.limit_bytes() / 4) / shards
}
