//! Starting and stopping a server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use longshore_reactor::timer;
use longshore_reactor::{
    BlockingPool, BufferPool, Engine, EngineConfig, EngineKind, MemoryBudget, Waker, affinity,
    lockable_bytes,
};
use longshore_volume::{Geometry, VolumeError};

use crate::config::check::check;
use crate::config::{ServerConfig, StartError, TransmitConfig};
use crate::core::{Core, Shared};
use crate::exports::nvme::{NvmeExports, NvmePort};
use crate::exports::{Exports, Portal, Unit};
use crate::listeners::Listeners;
use crate::mail::addresses::ConnectionAddresses;
use crate::mail::mailbox::post_box;
use crate::mail::message::{Message, Post};
use crate::memory::share::Shares;
use crate::observe::Statistics;
use crate::observe::shard_report::Board;
use crate::placement::load::Load;
use crate::placement::{interrupts, options};
use crate::reservation_store::ReservationStore;
use crate::sessions::hosts::Hosts;
use crate::sessions::iscsi::Sessions;
use crate::shard::Shard;
use crate::shard::mail::Mailer;
use crate::statistics;

/// Freed payload memory that all shards together keep at hand, at most.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// So large a part of payload memory may be registered with io_uring.
const REGISTERED_PART: usize = 4;
/// Helper threads for control work such as storing reservations.
const BLOCKING_THREADS_MAX: usize = 2;

/// A running server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    addresses: Vec<SocketAddr>,
    nvme_addresses: Vec<SocketAddr>,
    engine: EngineKind,
    refusal: Option<String>,
}

/// The size of a volume that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Its name.
    pub volume: String,
    /// Size until now, in blocks.
    pub before: Geometry,
    /// Size from now on.
    pub after: Geometry,
}

impl Server {
    /// Starts the reactors. All listeners accept when this returns.
    ///
    /// # Errors
    /// What is wrong with the configuration or this host.
    pub fn start(mut config: ServerConfig) -> Result<Self, StartError> {
        check(&config)?;
        let pins = pins(&config.cores);
        let shards = pins.len();
        let listeners = std::mem::take(&mut config.listeners);
        let mut portals = Vec::new();
        let mut sockets = Vec::new();
        for listener in listeners {
            let system = |source| StartError::System {
                operation: "getsockname",
                source,
            };
            portals.push(Portal {
                local: listener.local_address().map_err(system)?,
                advertise: listener.advertise,
                portal_group_tag: listener.portal_group_tag,
            });
            sockets.push(listener.listener);
        }
        let addresses = portals.iter().map(|portal| portal.local).collect();
        let mut ports = Vec::new();
        for listener in std::mem::take(&mut config.nvme_listeners) {
            ports.push(listener.port()?);
            sockets.push(listener.listener);
        }
        let nvme_addresses = ports.iter().map(|port| port.local).collect();
        let system = |operation| move |source| StartError::System { operation, source };
        let mut posts = Vec::new();
        let mut mailers = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..shards {
            let waker = Waker::new().map_err(system("eventfd"))?;
            let (mailer, inbox) = post_box(waker.clone());
            posts.push(Post::new(mailer.clone()));
            mailers.push(mailer);
            inboxes.push((waker, inbox));
        }
        let choice = config.engine;
        let shared = Arc::new(share(config, portals, ports, posts)?);
        let budget = Arc::clone(&shared.budget);
        let mut listeners = Some(Listeners::new(
            sockets,
            pins.clone(),
            shared.reactor.sockets,
        ));
        let mailers: Arc<[Mailer]> = mailers.into();
        let (started, reports) = mpsc::channel();
        let mut threads = Vec::new();
        // All count the time from here: connections that move take their deadlines along.
        let now = Instant::now();
        let engine_config = EngineConfig {
            registered_bytes_max: registered_bytes_max(&shared, shards),
            ..EngineConfig::default()
        };
        for (index, (waker, inbox)) in inboxes.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let pool = BufferPool::new(Arc::clone(&budget), kept_bytes_max(&budget, shards));
            let listeners = listeners.take();
            let mailers = Arc::clone(&mailers);
            let pin = pins[index];
            let started = started.clone();
            let body = move || {
                let _others = EndOthers {
                    shared: Arc::clone(&shared),
                };
                if let Some(core) = pin {
                    match affinity::pin_to_core(core) {
                        Ok(()) => shared.loads[index].pin(core),
                        Err(error) => {
                            tracing::warn!(core, %error, "event loop not pinned to its core")
                        }
                    }
                }
                // Responses that wait for their peer have short deadlines.
                if let Err(error) = timer::end_sleeps_on_time() {
                    tracing::debug!(%error, "timer slack not set (PR_SET_TIMERSLACK)");
                }
                let engine = match Engine::new(choice, engine_config, waker) {
                    Ok(engine) => engine,
                    Err(error) => {
                        let _ = started.send(Err(error));
                        return Ok(());
                    }
                };
                options::poll_network(&engine, &shared.reactor.sockets, index);
                let refusal = engine.refusal().map(ToString::to_string);
                let kind = engine.kind();
                let core = Core::new(index, shared, Box::new(engine), pool, now);
                let shard = Shard::new(core, inbox, mailers, listeners, now);
                let _ = started.send(Ok((kind, refusal)));
                drop(started);
                shard.run()
            };
            let thread = std::thread::Builder::new()
                .name(format!("reactor-{index}"))
                .spawn(body)
                .map_err(system("start a thread"))?;
            threads.push(thread);
        }
        drop(started);
        let mut outcome = None;
        let mut failure = None;
        for report in reports {
            match report {
                // Memory for rings may do for some reactors only: then the report of the others counts.
                Ok((kind, refusal)) if refusal.is_some() || outcome.is_none() => {
                    outcome = Some((kind, refusal));
                }
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            shared.broadcast(|| Message::ShutdownNow);
            return Err(error.into());
        }
        let (engine, refusal) = outcome.expect("every shard reports");
        Ok(Self {
            shared,
            threads,
            addresses,
            nvme_addresses,
            engine,
            refusal,
        })
    }

    /// Addresses of the NVMe/TCP listeners, in the order they were given.
    #[must_use]
    pub fn nvme_addresses(&self) -> &[SocketAddr] {
        &self.nvme_addresses
    }

    /// Addresses of the iSCSI listeners, in the order they were given.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The engine in use.
    #[must_use]
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Why io_uring is not in use although it would have been preferred.
    #[must_use]
    pub fn engine_refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// What controls the server from another thread while this one waits.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Waits for the end of all reactors.
    ///
    /// # Errors
    /// The first error that ended one.
    pub fn wait(self) -> std::io::Result<()> {
        let mut outcome = Ok(());
        for thread in self.threads {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("a reactor thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// Ends the others when a reactor's thread panics, where that does not end the process: they would go on giving it
/// connections and mail. What was written is not flushed then, as the one that panicked counts as one that may still write.
struct EndOthers {
    shared: Arc<Shared>,
}

impl Drop for EndOthers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.closing.store(true, Ordering::Relaxed);
            self.shared.broadcast(|| Message::ShutdownNow);
        }
    }
}

/// Stops a server, and has it look at its volumes again. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
}

impl Stopper {
    /// Looks for volumes whose backing object changed its size, and tells initiators (CAPACITY DATA
    /// HAS CHANGED) and hosts (Namespace Attribute Changed). Blocks.
    pub fn refresh_volumes(&self) -> Vec<(String, Result<Option<Resized>, VolumeError>)> {
        let refresh = |(index, unit): (usize, &Unit)| {
            let volume = unit.volume.identity().name.clone();
            let before = unit.volume.geometry();
            let outcome = unit.volume.refresh_geometry().map(|after| {
                unit.logical_unit.resize(after.block_count);
                if unit.namespace.resize(after.block_count) {
                    let subsystems = &self.shared.exports.nvme.subsystems;
                    subsystems.namespace_resized(index);
                }
                (before != after).then(|| Resized {
                    volume: volume.clone(),
                    before,
                    after,
                })
            });
            (volume, outcome)
        };
        let units = self.shared.exports.units.iter().enumerate();
        units.map(refresh).collect()
    }

    /// The names of the volumes; the place of each is its number.
    #[must_use]
    pub fn volume_names(&self) -> Vec<String> {
        let units = self.shared.exports.units.iter();
        units
            .map(|unit| unit.volume.identity().name.clone())
            .collect()
    }

    /// Looks at what a volume is stored in, and tells hosts if it has failed. Blocks, for as long as a
    /// network file system does not answer.
    pub fn inspect_volume(&self, number: usize) {
        let unit = self.shared.exports.units.get(number);
        if unit.is_some_and(|unit| !unit.volume.inspect().is_sound()) {
            self.shared.tell_of_failure(number);
        }
    }

    /// Volumes that may have lost what was written to them, by name, and why: those that have failed,
    /// and after the end of the server those whose last flush has.
    #[must_use]
    pub fn failed_volumes(&self) -> Vec<(String, String)> {
        let failure = |unit: &Unit| {
            let condition = unit.volume.condition();
            let reason = if condition.is_sound() {
                let last = unit.statistics.last_flush_failure()?;
                format!("the last flush failed: {last}")
            } else {
                condition.to_string()
            };
            Some((unit.volume.identity().name.clone(), reason))
        };
        self.shared
            .exports
            .units
            .iter()
            .filter_map(failure)
            .collect()
    }

    /// What the server has done so far, after its end too. Asks the shards; blocks, for a second at most.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        statistics::statistics(&self.shared)
    }

    /// Has responses leave like this from now on, on all connections.
    pub fn set_transmit(&self, config: TransmitConfig) {
        self.shared.broadcast(|| Message::Transmit(config));
    }

    /// Has the connection of that peer served by another reactor, by its number, as soon as what it has in
    /// progress allows. Nothing happens if there is no such connection or reactor, if it is not one that
    /// moves (those of iSCSI sessions with a target and of NVMe I/O queues do), or is not at rest soon.
    pub fn move_connection(&self, peer: SocketAddr, reactor: usize) {
        let to = reactor;
        self.shared.broadcast(|| Message::Relocate { peer, to });
    }

    /// Stops accepting, asks initiators to log out, finishes what was accepted, flushes, ends.
    pub fn shut_down(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.broadcast(|| Message::Shutdown);
    }

    /// Drops all connections, flushes, ends.
    pub fn shut_down_now(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.broadcast(|| Message::ShutdownNow);
    }
}

/// Freed payload memory that a shard keeps at hand, at most. It is lost to the others, so that together
/// they keep a small part of what there is.
pub(crate) fn kept_bytes_max(budget: &MemoryBudget, shards: usize) -> usize {
    KEPT_BYTES_MAX.min(budget.limit_bytes() / 4) / shards
}

/// Memory that a shard may have registered with io_uring: of payload, and of what may be locked, it shares a quarter with
/// the others. Rings need some of the latter, too.
fn registered_bytes_max(shared: &Shared, shards: usize) -> usize {
    if !shared.copies.registered {
        return 0;
    }
    let lockable = lockable_bytes().map_or(usize::MAX, |bytes| {
        usize::try_from(bytes).unwrap_or(usize::MAX)
    });
    shared.budget.limit_bytes().min(lockable) / REGISTERED_PART / shards
}

/// The cores that reactors are pinned to; `None` for one that is not.
fn pins(cores: &[usize]) -> Vec<Option<usize>> {
    let allowed;
    let cores = if cores.is_empty() {
        allowed = cores_of_choice();
        &allowed
    } else {
        cores
    };
    if cores.is_empty() {
        vec![None]
    } else {
        cores.iter().copied().map(Some).collect()
    }
}

/// The cores that this process may use, but for the one that takes the network's interrupts, if there is
/// one and it can be spared.
fn cores_of_choice() -> Vec<usize> {
    let mut cores = affinity::allowed_cores().unwrap_or_default();
    if let Some(busiest) = interrupts::busiest(&cores) {
        tracing::info!(
            core = busiest,
            "no event loop on this core, as it takes most network interrupts; set `cores` to change that"
        );
        cores.retain(|core| *core != busiest);
    }
    cores
}

pub(crate) fn share(
    config: ServerConfig,
    portals: Vec<Portal>,
    ports: Vec<NvmePort>,
    posts: Vec<Post>,
) -> Result<Shared, StartError> {
    let shards = posts.len();
    let store = config
        .state_directory
        .map(|path| {
            ReservationStore::open(&path)
                .map_err(|source| StartError::StateDirectory { path, source })
        })
        .transpose()?;
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
    let exports = Exports {
        units,
        nvme,
        targets: config.targets,
        portals,
        discovery: config.discovery,
    };
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
