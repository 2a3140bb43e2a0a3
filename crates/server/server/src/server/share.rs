//! The state shared by all shards, made from the configuration.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use longshore_reactor::{BlockingPool, MemoryBudget};

use crate::computations::Computations;
use crate::config::check::check;
use crate::config::{ListenerConfig, ServerConfig, StartError};
use crate::core::Shared;
use crate::counters::clients::ClientCounters;
use crate::exports::Portal;
use crate::exports::listener::{Listener, ListenerKind};
use crate::exports::registry::{Registry, UnitOptions};
use crate::mail::addresses::ConnectionAddresses;
use crate::mail::message::Post;
use crate::memory::share::Shares;
use crate::observe::shard_report::Board;
use crate::placement::load::Load;
use crate::sessions::attempts::Attempts;
use crate::sessions::hosts::Hosts;
use crate::sessions::iscsi::Sessions;

/// Freed payload memory that all shards together keep at hand, at most.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Helper threads for control work such as storing reservations.
const BLOCKING_THREADS_MAX: usize = 2;

/// The listeners of a configuration, those of iSCSI first, and their sockets.
pub(crate) fn listeners(
    config: &mut ServerConfig,
) -> Result<(Vec<Listener>, Vec<TcpListener>), StartError> {
    let mut listeners = Vec::new();
    let mut sockets = Vec::new();
    for listener in std::mem::take(&mut config.listeners) {
        listeners.push(Listener::new(portal(&listener)?));
        sockets.push(listener.listener);
    }
    for (listener, port_id) in std::mem::take(&mut config.nvme_listeners)
        .into_iter()
        .zip(1..)
    {
        let port = Arc::new(listener.port(port_id)?);
        listeners.push(Listener::new(ListenerKind::Nvme(port)));
        sockets.push(listener.listener);
    }
    Ok((listeners, sockets))
}

/// A portal, as initiators know it.
pub(crate) fn portal(listener: &ListenerConfig) -> Result<ListenerKind, StartError> {
    let local = listener.local_address();
    Ok(ListenerKind::Portal(Arc::new(Portal {
        local: local.map_err(|source| StartError::System {
            operation: "getsockname",
            source,
        })?,
        advertise: listener.advertise.clone(),
        portal_group_tag: listener.portal_group_tag,
    })))
}

/// Everything that all shards share, and what is exported at first.
pub(crate) fn share(
    mut config: ServerConfig,
    listeners: Vec<Listener>,
    posts: Vec<Post>,
) -> Result<(Arc<Shared>, Registry), StartError> {
    let shards = posts.len();
    let exported = config.take_exports();
    check(&exported)?;
    let options = UnitOptions {
        shards,
        memory: config.limits.memory,
        copies: config.copies,
    };
    let limits = &config.limits;
    let directory = config.state_directory;
    let mut registry = Registry::new(listeners, options, limits, &posts, directory)?;
    let listeners = Arc::clone(&registry.current().listeners);
    let first = registry.prepare(exported, listeners)?;
    registry.adopt(&first);
    let subsystems = &first.exports.nvme.subsystems;
    let _ = subsystems.reconfigure(first.subsystems.unwrap_or_default());
    let memory = usize::try_from(config.limits.memory).unwrap_or(usize::MAX);
    let shared = Shared {
        budget: MemoryBudget::new(memory),
        board: Board::new(shards),
        clients: ClientCounters::default(),
        computations: Computations::new(shards, config.limits.login_timeout),
        sample: config.sample,
        sessions: Sessions::new(config.limits.sessions),
        attempts: Attempts::new(config.limits.login_pause_max),
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
        reservation_store: registry.reservation_store().cloned(),
        sanitize_store: registry.sanitize_store().cloned(),
        blocking: BlockingPool::new(BLOCKING_THREADS_MAX),
        sessions_begun: AtomicU64::new(0),
        closing: AtomicBool::new(false),
        shards_busy: AtomicUsize::new(shards),
    };
    Ok((Arc::new(shared), registry))
}

/// Freed payload memory that a shard keeps at hand, at most. It is lost to the others, so that together
/// they keep a small part of what there is.
pub(crate) fn kept_bytes_max(budget: &MemoryBudget, shards: usize) -> usize {
    KEPT_BYTES_MAX.min(budget.limit_bytes() / 4) / shards
}
