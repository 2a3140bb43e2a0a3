//! Change of the exports while all shards serve.
//!
//! ```text
//!  prepare ─► publish ═► all shards know ─► controllers ─► renew ═► all connections know ─► tell hosts
//!                                                                          │
//!             vacate ◄═ flushed ◄─ flush ◄═ nothing refers to them ◄─ remove (units that are exported no more)
//!                ╚═► all shards know ─► close                                  ═►  acknowledged by all shards
//! ```
//!
//! 1. **Publish.** Each shard gets a version of its own ([`View`]) and replaces the one it had at the beginning of a
//!    turn. Units keep their places, so references of commands stay valid; units that go are still there.
//! 2. **Renew.** When all shards have units that are new, NVMe controllers get their namespaces, and each connection
//!    takes over its difference. A migrating connection takes over its difference on arrival. When
//!    all shards have answered, no command for a removed unit can begin any more.
//! 3. **Tell.** Hosts learn of it (the table is in ARCHITECTURE.md). The caller has its answer.
//! 4. **Remove.** Each shard tells when nothing on it needs the unit any more, and ends its tasks after a time. An
//!    operation that the kernel holds keeps its buffer, its unit and its volume for as long as that takes; only the
//!    removal waits for it.
//! 5. **Flush**, then **vacate**: another version without the unit, and when all shards have it, the volume is closed.
//!
//! No shard waits for anything here: an answer is the end of a token ([`Token`]). The steps are a state machine,
//! driven by the waiter: a thread of the server or a simulation.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ptr::addr_eq;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

use longshore_nvme::controller::Reconfigured;
use longshore_reactor::allocator;
use longshore_volume::Volume;

use crate::address::ConnectionAddress;
use crate::config::check::check;
use crate::config::{ExportsConfig, ListenerChanges, ListenerId, StartError};
use crate::core::{Shared, View};
use crate::exports::listener::{Listener, ListenerKind};
use crate::exports::registry::{Next, Registry};
use crate::exports::{Exports, Unit};
use crate::mail::grace::{Answered, Bell, Token};
use crate::mail::message::{Message, Note};
use crate::mail::removal::Removal;
use crate::server::share::portal;
use crate::shard::mail::{Mail, Mailer};

/// Pause between two looks whether a unit has another holder.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What becomes of volumes that are exported no more.
#[derive(Clone)]
pub struct DrainOptions {
    /// How long commands that are under way have to end. Then they are ended.
    pub timeout: Duration,
    /// Called when a volume has been closed, on a thread of the server.
    pub on_closed: Option<OnClosed>,
}

pub type OnClosed = Arc<dyn Fn(ClosedVolume) + Send + Sync>;

impl Default for DrainOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            on_closed: None,
        }
    }
}

impl std::fmt::Debug for DrainOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DrainOptions")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A volume that was removed and is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedVolume {
    pub name: String,
    /// Why data that hosts have written may not be on the medium; `None`: the last flush was successful, or none was
    /// needed.
    pub failure: Option<String>,
    /// Commands did not end in time, and were ended.
    pub timed_out: bool,
}

/// A volume that was removed and is not closed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainingVolume {
    pub name: String,
    /// When it was removed.
    pub since: Instant,
    /// Commands and operations under way.
    pub in_flight: usize,
    /// What is waited for.
    pub state: DrainState,
    /// The time for it is over: the medium does not answer.
    pub is_stuck: bool,
}

/// What the removal of a volume waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainState {
    /// Commands that were under way when it was removed.
    Draining,
    /// The last flush is under way.
    Flushing,
    /// The end of the last that refers to it.
    Closing,
}

/// What a switch has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switched {
    /// Number of the version that is exported now.
    pub revision: u64,
    /// Names of volumes that are exported now and were not.
    pub added: Vec<String>,
    /// Names of volumes that are exported no more, and drain.
    pub removed: Vec<String>,
    /// Addresses at which the system does not let the server listen, although the sockets are there, and why.
    pub not_listening: Vec<(SocketAddr, String)>,
}

/// A change of the exports that was checked and can be carried out. Nothing has changed, and nothing does when it is
/// dropped.
pub struct PreparedSwitch {
    config: ExportsConfig,
    /// All listeners that there are to be.
    listeners: Arc<[Listener]>,
    /// Sockets that come, with their places.
    opening: Vec<(usize, TcpListener)>,
    /// Places of those that go.
    closing: Vec<usize>,
    next: Next,
    /// The version that `next` derives from.
    base: u64,
}

impl PreparedSwitch {
    /// Listeners that come: first those of iSCSI, then those of NVMe, in their order.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerId> {
        let opening = self.opening.iter();
        opening.map(|(place, _)| ListenerId(*place)).collect()
    }
}

impl std::fmt::Debug for PreparedSwitch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedSwitch")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// Why something else is not exported.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// It cannot be exported. Nothing has changed.
    #[error(transparent)]
    Config(#[from] StartError),
    /// The server is about to end. Nothing has changed.
    #[error("the server is shutting down; what it exports does not change any more")]
    Stopping,
    /// A volume was removed and is not closed yet. Nothing has changed.
    #[error("volume {0} was removed and is not closed yet; try again when it is")]
    StillDraining(String),
    /// There is no such listener, or not any more.
    #[error("there is no listener {}", .0.0)]
    NoSuchListener(ListenerId),
    /// A socket cannot be listened on.
    #[error("listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// A reactor has not taken it over. It will when it goes on, and so will hosts be told then.
    #[error("an event loop has not answered within {0:?}; the change is completed when it goes on")]
    Unanswered(Duration),
}

/// How long [`Switchboard::switch`] waits for all shards.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the last flush and the closing of a volume may take at least, until it counts as stuck.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// See the module documentation.
pub(crate) struct Switchboard {
    pub shared: Arc<Shared>,
    mailers: Arc<[Mailer]>,
    bell: Arc<Bell>,
    /// Held by a switch from its beginning to its end.
    turn: Mutex<()>,
    state: Mutex<State>,
    /// Whether removals go on by themselves, on a thread. A simulation takes their steps itself.
    has_threads: bool,
}

struct State {
    registry: Registry,
    /// The first is under way.
    jobs: VecDeque<Job>,
    removals: Vec<Ongoing>,
    /// A thread looks after the removals.
    is_attended: bool,
}

/// Something that all shards have to take over.
enum Job {
    Switch(Box<Switch>),
    /// The place of a unit is to become vacant.
    Vacate {
        removal: Arc<Removal>,
        stage: VacateStage,
    },
}

struct Switch {
    next: Next,
    stage: SwitchStage,
    drain: DrainOptions,
    changes: Reconfigured,
}

impl Switch {
    fn new(next: Next, drain: DrainOptions) -> Self {
        Self {
            next,
            stage: SwitchStage::Waiting,
            drain,
            changes: Reconfigured::default(),
        }
    }
}

enum SwitchStage {
    Waiting,
    Published(Answered),
    Renewed(Answered),
}

enum VacateStage {
    Waiting,
    Published(Answered, Arc<Unit>),
}

/// A removal under way.
struct Ongoing {
    removal: Arc<Removal>,
    /// It is known by this when its place has another one.
    volume: Weak<dyn Volume>,
    name: String,
    since: Instant,
    /// How long what follows the drain may take, and until when that is.
    flush_time: Duration,
    flushed_by: Option<Instant>,
    stage: RemovalStage,
    on_closed: Option<OnClosed>,
}

impl Ongoing {
    const fn state(&self) -> DrainState {
        match self.stage {
            RemovalStage::Draining(_) => DrainState::Draining,
            RemovalStage::Flushing(..) => DrainState::Flushing,
            RemovalStage::Vacating | RemovalStage::Closing(_) => DrainState::Closing,
        }
    }

    fn is_stuck(&self, now: Instant) -> bool {
        match self.stage {
            RemovalStage::Draining(_) => self.removal.is_overdue(),
            RemovalStage::Flushing(..) | RemovalStage::Vacating | RemovalStage::Closing(_) => {
                self.flushed_by.is_some_and(|by| by <= now)
            }
        }
    }
}

enum RemovalStage {
    Draining(Answered),
    /// And which shard is to flush.
    Flushing(Answered, usize),
    Vacating,
    /// Nothing but this refers to it any more.
    Closing(Option<Arc<Unit>>),
}

impl State {
    /// A switch is published before places become vacant that have waited so far: what vacates a place derives from the
    /// newest version, and that must be one that shards have had.
    fn enqueue(&mut self, switch: Switch) {
        let waits = |job: &Job| {
            matches!(
                job,
                Job::Vacate {
                    stage: VacateStage::Waiting,
                    ..
                }
            )
        };
        let place = self.jobs.iter().position(waits);
        let place = place.unwrap_or(self.jobs.len());
        self.jobs.insert(place, Job::Switch(Box::new(switch)));
    }

    /// Whether nothing is on its way out.
    fn is_calm(&self) -> bool {
        self.removals.is_empty() && self.jobs.is_empty()
    }

    /// The name of a volume that has been removed, or is about to be, and is not closed.
    fn still_leaving(&self, volume: &Arc<dyn Volume>) -> Option<String> {
        let exports = self.registry.current();
        let is_next = |job: &Job| match job {
            Job::Switch(switch) => {
                let mut removed = switch.next.removed.iter();
                removed.any(|place| Arc::ptr_eq(&exports.unit(*place).volume, volume))
            }
            Job::Vacate { .. } => false,
        };
        let is_it = |one: &&Ongoing| addr_eq(one.volume.as_ptr(), Arc::as_ptr(volume));
        if let Some(one) = self.removals.iter().find(is_it) {
            return Some(one.name.clone());
        }
        let mut jobs = self.jobs.iter();
        jobs.any(is_next).then(|| volume.identity().name.clone())
    }
}

impl std::fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switchboard").finish_non_exhaustive()
    }
}

impl Switchboard {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        registry: Registry,
        mailers: &Arc<[Mailer]>,
        has_threads: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            mailers: Arc::clone(mailers),
            bell: Arc::default(),
            turn: Mutex::default(),
            state: Mutex::new(State {
                registry,
                jobs: VecDeque::new(),
                removals: Vec::new(),
                is_attended: false,
            }),
            has_threads,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn exports(&self) -> Arc<Exports> {
        Arc::clone(self.lock().registry.current())
    }

    /// Has all shards export something else. Blocks until they do.
    pub(crate) fn switch(
        self: &Arc<Self>,
        config: ExportsConfig,
        drain: DrainOptions,
    ) -> Result<Switched, SwitchError> {
        let prepared = self.prepare(config, ListenerChanges::default())?;
        self.carry_out(prepared, drain)
    }

    /// Does all of a switch that can fail, and that nobody sees.
    pub(crate) fn prepare(
        &self,
        config: ExportsConfig,
        changes: ListenerChanges,
    ) -> Result<PreparedSwitch, SwitchError> {
        check(&config)?;
        let mut state = self.lock();
        self.admit(&state, &config)?;
        let before = Arc::clone(state.registry.current());
        let mut listeners = before.listeners.to_vec();
        let mut closing = Vec::new();
        for id in changes.removed {
            let listener = listeners.get_mut(id.0).filter(|listener| listener.is_open);
            let listener = listener.ok_or(SwitchError::NoSuchListener(id))?;
            listener.is_open = false;
            closing.push(id.0);
        }
        let mut opening = Vec::new();
        for listener in changes.iscsi {
            let kind = portal(&listener)?;
            opening.push((listeners.len(), listener.listener));
            listeners.push(Listener::new(kind));
        }
        let ports = listeners.iter().filter_map(Listener::nvme_port);
        let last = ports.map(|port| port.port_id).max().unwrap_or(0);
        for (listener, port_id) in changes.nvme.into_iter().zip(last.saturating_add(1)..) {
            let port = listener.port(port_id)?;
            opening.push((listeners.len(), listener.listener));
            listeners.push(Listener::new(ListenerKind::Nvme(Arc::new(port))));
        }
        let listeners: Arc<[Listener]> = listeners.into();
        let next = state
            .registry
            .prepare(config.clone(), Arc::clone(&listeners))?;
        Ok(PreparedSwitch {
            config,
            listeners,
            opening,
            closing,
            next,
            base: before.revision,
        })
    }

    /// Carries out what was prepared. Blocks until all shards export it.
    pub(crate) fn carry_out(
        self: &Arc<Self>,
        prepared: PreparedSwitch,
        drain: DrainOptions,
    ) -> Result<Switched, SwitchError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let PreparedSwitch {
            config,
            listeners,
            opening,
            closing,
            mut next,
            base,
        } = prepared;
        self.admit(&self.lock(), &config)?;
        // Nobody comes any more by an address that is left when others get in.
        for place in &closing {
            if let Err(source) = self.listen(*place, None) {
                let address = listeners[*place].local();
                tracing::warn!(%address, "closing a listener: {source}");
            }
        }
        let mut state = self.lock();
        // A place may have become vacant meanwhile.
        if state.registry.current().revision != base {
            next = state.registry.prepare(config, Arc::clone(&listeners))?;
        }
        let mut switched = Self::adopt(&mut state, next, drain);
        drop(state);
        let completed = self.complete();
        // Connections come when all shards know what they come by.
        for (place, socket) in opening {
            match self.listen(place, Some(socket)) {
                Ok(()) => {}
                Err(source) => {
                    let address = listeners[place].local();
                    switched.not_listening.push((address, source.to_string()));
                }
            }
        }
        completed.map(|()| switched)
    }

    /// Waits for the end of the switches that have begun.
    fn complete(self: &Arc<Self>) -> Result<(), SwitchError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let count = self.bell.count();
            self.advance();
            if !self.is_switching() {
                return Ok(());
            }
            if Instant::now() >= until {
                self.attend();
                return Err(SwitchError::Unanswered(PATIENCE));
            }
            self.bell.wait(count, Some(until));
        }
    }

    /// One listener more. Its place.
    pub(crate) fn add_listener(
        self: &Arc<Self>,
        make: impl FnOnce(&Exports) -> Result<ListenerKind, StartError>,
        socket: TcpListener,
    ) -> Result<usize, SwitchError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let exports = self.exports();
        let mut listeners = exports.listeners.to_vec();
        let place = listeners.len();
        let listener = Listener::new(make(&exports)?);
        let address = listener.local();
        listeners.push(listener);
        // Connections come when all shards know what they come by.
        self.change_listeners(listeners.clone())?;
        let opened = self.listen(place, Some(socket));
        if let Err(source) = opened {
            listeners[place].is_open = false;
            self.change_listeners(listeners)?;
            return Err(SwitchError::Listen { address, source });
        }
        Ok(place)
    }

    /// Removes a listener and closes its socket.
    pub(crate) fn remove_listener(self: &Arc<Self>, place: usize) -> Result<(), SwitchError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listeners = self.exports().listeners.to_vec();
        let listener = listeners.get_mut(place).filter(|listener| listener.is_open);
        let listener = listener.ok_or(SwitchError::NoSuchListener(ListenerId(place)))?;
        listener.is_open = false;
        let address = listener.local();
        self.listen(place, None)
            .map_err(|source| SwitchError::Listen { address, source })?;
        self.change_listeners(listeners)
    }

    fn change_listeners(self: &Arc<Self>, listeners: Vec<Listener>) -> Result<(), SwitchError> {
        if self.shared.closing.load(Ordering::Relaxed) {
            return Err(SwitchError::Stopping);
        }
        let mut state = self.lock();
        let next = state.registry.prepare_listeners(listeners)?;
        state.registry.adopt(&next);
        let drain = DrainOptions::default();
        state.enqueue(Switch::new(next, drain));
        drop(state);
        self.complete()
    }

    /// Has the shard that listens do so at that place, or stop.
    fn listen(&self, place: usize, socket: Option<TcpListener>) -> io::Result<()> {
        let (answer, inbox) = mpsc::channel();
        self.shared.posts[0].send(Message::Listen {
            place,
            socket,
            answer,
        });
        match inbox.recv_timeout(PATIENCE) {
            Ok(outcome) => outcome,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Begins to have all shards export something else.
    pub(crate) fn begin(
        &self,
        config: ExportsConfig,
        drain: DrainOptions,
    ) -> Result<Switched, SwitchError> {
        let prepared = self.prepare(config, ListenerChanges::default())?;
        Ok(Self::adopt(&mut self.lock(), prepared.next, drain))
    }

    /// Whether volumes can be exported now.
    fn admit(&self, state: &State, config: &ExportsConfig) -> Result<(), SwitchError> {
        if self.shared.closing.load(Ordering::Relaxed) {
            return Err(SwitchError::Stopping);
        }
        if state.is_calm() {
            return Ok(());
        }
        let mut volumes = config.volumes.iter();
        match volumes.find_map(|volume| state.still_leaving(volume)) {
            Some(name) => Err(SwitchError::StillDraining(name)),
            None => Ok(()),
        }
    }

    fn adopt(state: &mut State, next: Next, drain: DrainOptions) -> Switched {
        let before = Arc::clone(state.registry.current());
        state.registry.adopt(&next);
        let removed = next.removed.iter();
        let switched = Switched {
            revision: next.exports.revision,
            added: next.added.clone(),
            removed: removed
                .map(|place| before.unit(*place).volume.identity().name.clone())
                .collect(),
            ..Switched::default()
        };
        state.enqueue(Switch::new(next, drain));
        switched
    }

    /// Whether a switch is not over.
    pub(crate) fn is_switching(&self) -> bool {
        let state = self.lock();
        state.jobs.iter().any(|job| matches!(job, Job::Switch(_)))
    }

    /// Takes all steps that can be taken now. Does not block.
    pub(crate) fn advance(self: &Arc<Self>) {
        let mut closing = Vec::new();
        let mut state = self.lock();
        while self.take_step(&mut state) {}
        for one in &mut state.removals {
            if let RemovalStage::Closing(unit) = &mut one.stage
                && let Some(unit) = unit.take()
            {
                let closed = ClosedVolume {
                    name: one.name.clone(),
                    failure: one.removal.failure(),
                    timed_out: one.removal.is_overdue(),
                };
                closing.push((unit, closed, one.on_closed.take(), Arc::clone(&one.removal)));
            }
        }
        let needs_attention = !state.removals.is_empty();
        drop(state);
        for (unit, closed, on_closed, removal) in closing {
            let this = Arc::clone(self);
            let close = move || {
                // A change that is being prepared derives from a version that has it, and holds that for a moment.
                while this.has_threads && Arc::strong_count(&unit) > 1 {
                    std::thread::sleep(LOOK_AGAIN);
                }
                drop(unit);
                this.lock()
                    .removals
                    .retain(|one| !Arc::ptr_eq(&one.removal, &removal));
                this.bell.ring();
                match &closed.failure {
                    None => tracing::info!(volume = closed.name, "volume closed"),
                    Some(failure) => {
                        tracing::error!(volume = closed.name, failure, "volume closed");
                    }
                }
                if let Some(on_closed) = on_closed {
                    on_closed(closed);
                }
            };
            self.close(close);
        }
        if needs_attention {
            self.attend();
        }
    }

    /// Closing may take long, and nothing else is to wait for it.
    fn close(&self, close: impl FnOnce() + Send + 'static) {
        if !self.has_threads {
            return close();
        }
        let close = Arc::new(Mutex::new(Some(close)));
        let act = {
            let close = Arc::clone(&close);
            move || take(&close).into_iter().for_each(|close| close())
        };
        let thread = std::thread::Builder::new().name("close".to_owned());
        if let Err(error) = allocator::spawn(thread, act) {
            tracing::warn!(%error, "no thread for closing a volume; other changes wait for it");
            take(&close).into_iter().for_each(|close| close());
        }
    }

    /// Has a thread take the steps of removals, until there is none left.
    fn attend(self: &Arc<Self>) {
        if !self.has_threads || std::mem::replace(&mut self.lock().is_attended, true) {
            return;
        }
        let this = Arc::clone(self);
        let attend = move || {
            loop {
                let count = this.bell.count();
                this.advance();
                let mut state = this.lock();
                if state.removals.is_empty() && state.jobs.is_empty() {
                    state.is_attended = false;
                    return;
                }
                drop(state);
                this.bell.wait(count, None);
            }
        };
        let thread = std::thread::Builder::new().name("removal".to_owned());
        if let Err(error) = allocator::spawn(thread, attend) {
            tracing::error!(%error, "no thread for removing volumes; they are closed with the next change");
            self.lock().is_attended = false;
        }
    }

    /// Takes the next step of anything that can go on.
    fn take_step(&self, state: &mut State) -> bool {
        let State {
            registry,
            jobs,
            removals,
            ..
        } = state;
        let mut went_on = false;
        for one in removals.iter_mut() {
            went_on |= self.go_on_removing(one, registry.current(), jobs);
        }
        let is_over = match jobs.front_mut() {
            None => return went_on,
            Some(Job::Switch(switch)) => match &switch.stage {
                SwitchStage::Waiting => {
                    let answered = self.publish(&switch.next.exports);
                    switch.stage = SwitchStage::Published(answered);
                    false
                }
                SwitchStage::Published(answered) if answered.is() => {
                    let subsystems = &switch.next.exports.nvme.subsystems;
                    if let Some(parameters) = switch.next.subsystems.take() {
                        switch.changes = subsystems.reconfigure(parameters);
                    }
                    let (token, answered) = Token::new(&self.bell);
                    self.shared.broadcast(|| Message::Renew(Arc::clone(&token)));
                    switch.stage = SwitchStage::Renewed(answered);
                    false
                }
                SwitchStage::Renewed(answered) if answered.is() => {
                    self.tell(switch);
                    for place in &switch.next.removed {
                        removals.push(self.remove(*place, registry.current(), &switch.drain));
                    }
                    true
                }
                SwitchStage::Published(_) | SwitchStage::Renewed(_) => return went_on,
            },
            Some(Job::Vacate { removal, stage }) => match stage {
                VacateStage::Waiting => {
                    let (exports, unit) = registry.vacate(removal.unit);
                    *stage = VacateStage::Published(self.publish(&exports), unit);
                    false
                }
                VacateStage::Published(answered, unit) if answered.is() => {
                    registry.reuse(removal.unit);
                    let mut removals = removals.iter_mut();
                    if let Some(one) = removals.find(|one| Arc::ptr_eq(&one.removal, removal)) {
                        one.stage = RemovalStage::Closing(Some(Arc::clone(unit)));
                    }
                    true
                }
                VacateStage::Published(..) => return went_on,
            },
        };
        if is_over {
            jobs.pop_front();
        }
        true
    }

    fn go_on_removing(
        &self,
        one: &mut Ongoing,
        exports: &Exports,
        jobs: &mut VecDeque<Job>,
    ) -> bool {
        match &one.stage {
            RemovalStage::Draining(answered) if answered.is() => {
                one.flushed_by = Instant::now().checked_add(one.flush_time);
                one.stage = RemovalStage::Flushing(self.flush(&one.removal, 0), 0);
            }
            // That shard has ended. Another one may not have.
            RemovalStage::Flushing(answered, shard)
                if answered.is()
                    && !one.removal.is_flushing()
                    && shard + 1 < self.shared.posts.len() =>
            {
                let shard = shard + 1;
                one.stage = RemovalStage::Flushing(self.flush(&one.removal, shard), shard);
            }
            RemovalStage::Flushing(answered, _) if answered.is() => {
                // If all have ended, the last of them has flushed all volumes, this one too.
                let unit = exports.unit(one.removal.unit);
                if let Some(reason) = unit.statistics.last_flush_failure() {
                    one.removal.note_failure(reason.to_owned());
                }
                jobs.push_back(Job::Vacate {
                    removal: Arc::clone(&one.removal),
                    stage: VacateStage::Waiting,
                });
                one.stage = RemovalStage::Vacating;
            }
            RemovalStage::Draining(_)
            | RemovalStage::Flushing(..)
            | RemovalStage::Vacating
            | RemovalStage::Closing(_) => return false,
        }
        true
    }

    fn flush(&self, removal: &Arc<Removal>, shard: usize) -> Answered {
        let (token, answered) = Token::new(&self.bell);
        let removal = Arc::clone(removal);
        self.shared.posts[shard].send(Message::FlushRemoved { removal, token });
        answered
    }

    /// Gives each shard a version of its own.
    fn publish(&self, exports: &Exports) -> Answered {
        let (token, answered) = Token::new(&self.bell);
        // No connection moves meanwhile: it would meet shards that know places of units which others do not.
        let order = self.shared.addresses.begin_move();
        for mailer in self.mailers.iter() {
            let view = View::new(&self.shared, exports);
            let token = Arc::clone(&token);
            let _ = mailer.hand_over(Mail::Exports { view, token });
        }
        drop(order);
        answered
    }

    /// Tells hosts, where connections have not done that themselves.
    fn tell(&self, switch: &Switch) {
        let subsystems = &switch.next.exports.nvme.subsystems;
        subsystems.tell(&switch.changes);
        for controller in &switch.changes.dismissed {
            let name = ConnectionAddress::from_handle(controller.admin_queue());
            let message = Message::Note(name, Note::Dismissed);
            self.shared
                .addresses
                .send(&self.shared.posts, name, message);
        }
        if switch.next.discovery_changed {
            subsystems.discovery_changed();
        }
    }

    fn remove(&self, place: usize, exports: &Exports, drain: &DrainOptions) -> Ongoing {
        let shards = self.shared.posts.len();
        let removal = Removal::new(place, drain.timeout, shards);
        let (token, answered) = Token::new(&self.bell);
        self.shared.broadcast(|| Message::Remove {
            removal: Arc::clone(&removal),
            token: Arc::clone(&token),
        });
        let volume = &exports.unit(place).volume;
        Ongoing {
            removal,
            volume: Arc::downgrade(volume),
            name: volume.identity().name.clone(),
            since: Instant::now(),
            flush_time: drain.timeout.max(FLUSH_TIME),
            flushed_by: None,
            stage: RemovalStage::Draining(answered),
            on_closed: drain.on_closed.clone(),
        }
    }

    /// Volumes that have been removed and are not closed yet.
    pub(crate) fn draining(&self) -> Vec<DrainingVolume> {
        let state = self.lock();
        let now = Instant::now();
        let removals = state.removals.iter().map(|one| DrainingVolume {
            name: one.name.clone(),
            since: one.since,
            in_flight: one.removal.under_way(),
            state: one.state(),
            is_stuck: one.is_stuck(now),
        });
        removals.collect()
    }
}

/// What nobody has taken yet.
fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}
