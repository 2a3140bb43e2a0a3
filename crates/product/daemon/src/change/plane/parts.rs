//! What plans changes and carries them out.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use longshore_api::object::Keys;
use longshore_api::record::{NoRecord, Record};
use longshore_api::state::Listener;
use longshore_volume::Volume;

use super::super::exports::OpenVolumes;
use super::super::helpers::Helpers;
use super::super::listening::Listening;
use super::super::locks::locked;
use super::super::start::Start;
use super::super::store::Store;
use super::super::switch::Switch;
use super::super::turn::Turn;
use super::leavers::Leavers;
use super::now::Now;
use crate::config::{Arguments, Config};
use crate::memory::Bounds;

/// Sees what is served after a change.
type Watch = dyn Fn(&Config) + Send + Sync;

/// How long a change waits for the one before.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long storage may take to answer in the course of a change, where nothing else is said.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The process that is controlled, as far as it does not change.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Engine of the event loops: `io_uring` or `epoll`.
    pub engine: String,
    pub listening: Listening,
    /// Where the API is reached over TCP.
    pub api: Option<Listener>,
    pub state_directory: Option<PathBuf>,
    /// How long volumes may take to leave.
    pub drain_timeout: Duration,
    /// How long storage may take to answer in the course of a change. `None`: 30 seconds.
    pub storage_timeout: Option<Duration>,
    /// What volumes of `mem` have room in.
    pub memory: Option<Bounds>,
}

/// Plans changes and carries them out.
pub struct Plane {
    pub(super) process: Process,
    pub(super) started: SystemTime,
    pub(super) arguments: Arguments,
    /// The settings of the file at start.
    pub(super) started_with: Arc<Keys>,
    pub(super) switch: Arc<dyn Switch>,
    pub(super) turn: Turn,
    /// Taken only for a moment.
    pub(super) now: Mutex<Arc<Now>>,
    /// Taken by whose turn it is, and for reading old revisions.
    pub(super) store: Mutex<Option<Store>>,
    pub(super) leaving: Arc<Leavers>,
    pub(super) stopping: AtomicBool,
    /// The last change that was asked for was refused.
    pub(super) has_refused: AtomicBool,
    pub(super) helpers: Helpers,
    /// Called after each change with what is served.
    pub(super) watch: OnceLock<Box<Watch>>,
}

impl Plane {
    /// Over a server that exports what `start` says, with these volumes open.
    #[must_use]
    pub fn new(
        start: Start,
        open: OpenVolumes,
        switch: Box<dyn Switch>,
        process: Process,
    ) -> Arc<Self> {
        let Start {
            arguments,
            file,
            settings,
            objects,
            config,
            revision,
            store,
        } = start;
        let listening = Arc::new(process.listening.clone());
        Arc::new(Self {
            process,
            started: SystemTime::now(),
            started_with: Arc::clone(&settings),
            arguments,
            switch: switch.into(),
            turn: Turn::default(),
            now: Mutex::new(Arc::new(Now {
                revision,
                file,
                settings,
                objects: Arc::new(objects),
                transmit: config.engine.transmit,
                config: Arc::new(config),
                open: Arc::new(open),
                listening,
                needs_restart: Vec::new(),
            })),
            store: Mutex::new(store),
            leaving: Arc::new(Leavers {
                volumes: Mutex::default(),
                failures: Mutex::default(),
                gone: Condvar::new(),
                record: Mutex::new(Arc::new(NoRecord)),
            }),
            stopping: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
            helpers: Helpers::default(),
            watch: OnceLock::new(),
        })
    }

    /// Has `watch` see what is served after each change, the first of them that asks for it.
    pub fn set_watch(&self, watch: impl Fn(&Config) + Send + Sync + 'static) {
        let _ = self.watch.set(Box::new(watch));
    }

    /// Who keeps a record of changes from now on.
    pub fn set_record(&self, record: Arc<dyn Record>) {
        *locked(&self.leaving.record) = record;
    }

    /// The volumes that are open.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.now().open.values().cloned().collect()
    }

    /// Lets the change in progress end, for so long at most, and refuses others.
    pub fn stop(&self, patience: Duration) {
        self.stopping.store(true, Ordering::Release);
        drop(self.turn.take(patience));
    }

    /// Whether the server is about to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Where which service is reached.
    #[must_use]
    pub fn listeners(&self) -> Vec<Listener> {
        let mut all = self.now().listening.shown();
        all.extend(self.process.api.clone());
        all
    }

    pub(super) fn storage_timeout(&self) -> Duration {
        self.process.storage_timeout.unwrap_or(STORAGE_TIMEOUT)
    }

    pub(super) fn now(&self) -> Arc<Now> {
        Arc::clone(&locked(&self.now))
    }
}
