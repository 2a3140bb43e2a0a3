//! Starting and stopping a server.

mod control;
pub(crate) mod share;
pub(crate) mod switch;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use longshore_reactor::timer;
use longshore_reactor::{
    BufferPool, Engine, EngineConfig, EngineKind, Waker, affinity, lockable_bytes,
};

pub use self::control::{Control, Resized};
use self::share::{kept_bytes_max, listeners, share};
use self::switch::Switchboard;
use crate::config::{ServerConfig, StartError};
use crate::core::{Core, Shared, View};
use crate::exports::listener::Listener;
use crate::listeners::Listeners;
use crate::mail::mailbox::post_box;
use crate::mail::message::{Message, Post};
use crate::placement::{interrupts, options};
use crate::shard::Shard;
use crate::shard::mail::Mailer;

/// So large a part of payload memory may be registered with io_uring.
const REGISTERED_PART: usize = 4;

#[derive(Debug)]
pub struct Server {
    board: Arc<Switchboard>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    addresses: Vec<SocketAddr>,
    nvme_addresses: Vec<SocketAddr>,
    engine: EngineKind,
    refusal: Option<String>,
}

impl Server {
    /// Starts the reactors. All listeners accept when this returns.
    ///
    /// # Errors
    /// What is wrong with the configuration or this host.
    pub fn start(mut config: ServerConfig) -> Result<Self, StartError> {
        let pins = pins(&config.cores);
        let shards = pins.len();
        let (listeners, sockets) = listeners(&mut config)?;
        let (nvme, iscsi): (Vec<&Listener>, Vec<&Listener>) = listeners
            .iter()
            .partition(|listener| listener.nvme_port().is_some());
        let addresses = iscsi.into_iter().map(Listener::local).collect();
        let nvme_addresses = nvme.into_iter().map(Listener::local).collect();
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
        let (shared, registry) = share(config, listeners, posts)?;
        let budget = Arc::clone(&shared.budget);
        let mut sockets = Some(Listeners::new(
            sockets,
            pins.clone(),
            shared.reactor.sockets,
        ));
        let mailers: Arc<[Mailer]> = mailers.into();
        let first = Arc::clone(registry.current());
        let board = Switchboard::new(&shared, registry, &mailers, true);
        let (started, reports) = mpsc::channel();
        let mut threads = Vec::new();
        // All count the time from here: connections that move take their deadlines along.
        let now = Instant::now();
        let engine_config = EngineConfig {
            registered_bytes_max: registered_bytes_max(&shared, shards),
            ..EngineConfig::default()
        };
        for (index, (waker, inbox)) in inboxes.into_iter().enumerate() {
            let view = View::new(&shared, &first);
            let shared = Arc::clone(&shared);
            let pool = BufferPool::new(Arc::clone(&budget), kept_bytes_max(&budget, shards));
            let listeners = sockets.take();
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
                let core = Core::new(index, view, Box::new(engine), pool, now);
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
            board,
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
    pub fn control(&self) -> Control {
        Control {
            board: Arc::clone(&self.board),
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
