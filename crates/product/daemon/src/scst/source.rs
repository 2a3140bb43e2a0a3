//! The state that the trees show, and the changes that writes ask for.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longshore_api::change::{Applied, Caller, ChangeOptions, Revision, Wish};
use longshore_api::object::{DISCOVERY, Document, Keys, ObjectId, ObjectKind};
use longshore_api::plane::ControlPlane;
use longshore_api::problem::{Problem, ProblemCode};
use longshore_scst::change::Change;
use longshore_scst::errno::{self, Refusal};
use longshore_scst::map::CopyMap;
use longshore_scst::mutual::{Waiting, discovery, target};
use longshore_scst::node::File;
use longshore_scst::procfs;
use longshore_scst::state::{
    Connection, Device, Nagle, PathKind, Served, Session, State, Tuned, cpu_mask,
};
use longshore_scst::write;
use longshore_server::Control;
use longshore_server::observe::ConnectionStatistics;

use crate::change::plane::{Plane, Whole};

/// How old sessions and sizes may be.
const AGE_MAX: Duration = Duration::from_secs(1);

/// How often a change is tried that another one overtakes.
const TRIES: usize = 16;

/// How long a write waits for a volume to be closed, or a session.
const CLOSING: Duration = Duration::from_secs(25);

/// Counts of a connection at the last reading: idles, reads, reads in Nagle mode.
type Counts = (u64, u64, u64);

struct Seen {
    state: Arc<State>,
    revision: Revision,
    at: Instant,
}

/// What the trees are made of.
pub(super) struct Source {
    plane: Arc<Plane>,
    server: Control,
    seen: Mutex<Option<Seen>>,
    /// By the addresses of connections.
    last_read: Mutex<HashMap<String, Counts>>,
    /// Settings of SCST as a whole that were written since the start.
    settings: Mutex<BTreeMap<&'static str, u64>>,
    /// Attributes without effect that were written since then.
    tuned: Mutex<BTreeMap<Tuned, String>>,
    /// The map of the copy manager, as commands have left it.
    copies: Mutex<CopyMap>,
    /// Accounts that are not in effect yet.
    waiting: Mutex<Waiting>,
    /// Held while objects and accounts that wait change together.
    turn: Mutex<()>,
}

impl Source {
    pub(super) fn new(plane: Arc<Plane>, server: Control) -> Arc<Self> {
        Arc::new(Self {
            plane,
            server,
            seen: Mutex::default(),
            last_read: Mutex::default(),
            settings: Mutex::default(),
            tuned: Mutex::default(),
            copies: Mutex::default(),
            waiting: Mutex::default(),
            turn: Mutex::default(),
        })
    }

    /// What is served now. Objects are those of the last change; sessions may be a second old.
    pub(super) fn state(&self) -> Arc<State> {
        let mut seen = locked(&self.seen);
        if let Some(seen) = &*seen
            && seen.revision == self.plane.revision()
            && seen.at.elapsed() < AGE_MAX
        {
            return Arc::clone(&seen.state);
        }
        let whole = self.plane.whole();
        let state = Arc::new(self.look(&whole));
        *seen = Some(Seen {
            state: Arc::clone(&state),
            revision: whole.revision,
            at: Instant::now(),
        });
        state
    }

    fn look(&self, whole: &Whole) -> State {
        let devices = whole.volumes.iter().map(|volume| {
            let device = Device {
                owner: volume.owner,
                keys: volume.keys.clone(),
                size_bytes: volume.size_bytes,
                serial: volume.serial.clone(),
            };
            (volume.name.clone(), device)
        });
        let mut waiting = locked(&self.waiting);
        if whole.revision == self.plane.revision() {
            waiting.retain(|id| {
                let mut targets = whole.targets.iter();
                id.kind == ObjectKind::Setting || targets.any(|(name, ..)| *name == id.name)
            });
        }
        let targets = whole
            .targets
            .iter()
            .cloned()
            .map(|(name, owner, mut keys)| {
                waiting.show(&target(&name), &mut keys);
                (name, owner, keys)
            });
        let mut state = State::new(devices.collect(), targets, self.sessions());
        for target in self.server.targets() {
            let Some((_, relative_port)) = target.ports.first() else {
                continue;
            };
            let served = Served {
                id: target.id,
                relative_port: *relative_port,
            };
            state.serve(&target.name, served);
        }
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        state.cpu_mask = cpu_mask(cores);
        state.queue_depth = whole.queue_depth;
        state.nop_interval = whole.nop_interval;
        state.nop_timeout = whole.nop_timeout;
        state.settings = locked(&self.settings).clone();
        // A target of the same name that comes later begins anew.
        let mut tuned = locked(&self.tuned);
        tuned.retain(|what, _| state.has(&what.target, what.group.as_deref()));
        state.tuned.clone_from(&tuned);
        drop(tuned);
        let mut copies = locked(&self.copies);
        copies.follow(state.devices.keys());
        state.copies.clone_from(&copies);
        drop(copies);
        for (name, keys) in &whole.settings {
            match &**name {
                DISCOVERY => state.discovery.clone_from(keys),
                _ => state.transmit.clone_from(keys),
            }
        }
        waiting.show(&discovery(), &mut state.discovery);
        state.waiting_changes = waiting.changes();
        drop(waiting);
        state.nagle = Nagle {
            threshold: whole.transmit.nagle_threshold.to_string(),
            margin: whole.transmit.nagle_margin,
        };
        state.look_at = Some(look_at);
        for volume in &whole.in_subsystems {
            *state.in_subsystems.entry(volume.clone()).or_default() += 1;
        }
        state
    }

    fn sessions(&self) -> Vec<Session> {
        let sessions = self.plane.sessions();
        if !sessions.iter().any(|session| session.protocol == "iscsi") {
            return Vec::new();
        }
        let report = self.server.statistics();
        let connections: HashMap<String, _> = report
            .connections
            .iter()
            .map(|connection| (connection.peer.to_string(), connection))
            .collect();
        let iscsi = sessions.into_iter().filter(|it| it.protocol == "iscsi");
        iscsi
            .map(|session| Session {
                id: session.id,
                initiator: session.peer_name,
                target: session.target,
                connections: session
                    .addresses
                    .into_iter()
                    .map(|address| connection(connections.get(&address).copied(), address))
                    .collect(),
                group: None,
            })
            .collect()
    }

    /// What a file reads as. `iscsi/session` counts from its last reading on.
    pub(super) fn text(&self, file: &File) -> String {
        let state = self.state();
        if !matches!(file, File::ProcSession) {
            return file.text(&state);
        }
        let mut last = locked(&self.last_read);
        let table = procfs::session_table(&state, |address| {
            last.get(address).copied().unwrap_or_default()
        });
        let targets = state.targets.values();
        let sessions = targets.flat_map(|target| target.sessions.values());
        *last = sessions
            .flat_map(|session| &session.connections)
            .map(|it| {
                let counts = (it.idles, it.reads, it.reads_in_nagle);
                (it.address.clone(), counts)
            })
            .collect();
        table
    }

    /// Carries out what a write asks for, and comes back when its effect is visible.
    pub(super) fn write(&self, file: &File, bytes: &[u8], caller: &Caller) -> Result<(), Refusal> {
        let mut tries = 0;
        loop {
            // Neither the old state nor one between two changes.
            let whole = self.plane.whole();
            let state = self.state_of(&whole);
            let wanted = write::write(&state, file, bytes)?;
            for ignored in &wanted.ignored {
                tracing::warn!("scst: {ignored}");
            }
            let outcome = match wanted.change {
                Change::Nothing => Ok(()),
                Change::Setting { name, value } => {
                    locked(&self.settings).insert(name, value);
                    Ok(())
                }
                Change::Tune { what, value } => {
                    let mut tuned = locked(&self.tuned);
                    match value {
                        Some(value) => drop(tuned.insert(what, value)),
                        None => drop(tuned.remove(&what)),
                    }
                    Ok(())
                }
                Change::Copies(map) => {
                    *locked(&self.copies) = map;
                    Ok(())
                }
                Change::Refresh(_) => {
                    self.plane.refresh_sizes();
                    Ok(())
                }
                Change::Reopen { id, keys } => self.reopen(&whole, id, keys, caller),
                Change::CloseSession(id) => self.close_session(&id, caller),
                Change::Objects {
                    objects,
                    create,
                    replace,
                } => {
                    let seen = (&whole, state.waiting_changes);
                    self.apply(seen, objects, (create, replace), caller)
                }
            };
            *locked(&self.seen) = None;
            match outcome {
                Err(problem) if problem.code == ProblemCode::RevisionChanged && tries < TRIES => {
                    tries += 1;
                }
                Err(problem) => {
                    return Err(Refusal {
                        errno: errno::of_problem(&problem),
                        text: problem.to_string(),
                    });
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// The state of one revision.
    fn state_of(&self, whole: &Whole) -> Arc<State> {
        let seen = locked(&self.seen);
        match &*seen {
            Some(seen) if seen.revision == whole.revision && seen.at.elapsed() < AGE_MAX => {
                Arc::clone(&seen.state)
            }
            _ => Arc::new(self.look(whole)),
        }
    }

    fn apply(
        &self,
        (whole, waiting_changes): (&Whole, u64),
        mut objects: Vec<(ObjectId, Option<Keys>)>,
        (create, replace): (bool, bool),
        caller: &Caller,
    ) -> Result<(), Box<Problem>> {
        let waiting = Waiting::take_out(&mut objects);
        let is_there = |id: &ObjectId| whole.api.of_kind(id.kind).contains_key(&id.name);
        // What of a setting was taken out may have been all of it.
        objects
            .retain(|(id, keys)| id.kind != ObjectKind::Setting || keys.is_some() || is_there(id));
        let gone: Vec<String> = objects
            .iter()
            .filter(|(_, keys)| keys.is_none())
            .map(|(id, _)| id.name.clone())
            .collect();
        // Accounts that wait have no revision.
        let turn = locked(&self.turn);
        if locked(&self.waiting).changes() != waiting_changes {
            let text = "the accounts were changed meanwhile";
            return Err(Box::new(Problem::new(ProblemCode::RevisionChanged, text)));
        }
        if objects.is_empty() {
            if self.plane.revision() != whole.revision {
                let text = "the configuration was changed meanwhile";
                return Err(Box::new(Problem::new(ProblemCode::RevisionChanged, text)));
            }
            locked(&self.waiting).put(waiting);
            return Ok(());
        }
        let wish = if objects.len() == 1 {
            match objects.remove(0) {
                (id, Some(keys)) => Wish::Put { id, keys },
                (id, None) => Wish::Remove { id },
            }
        } else {
            Wish::Replace(with(whole.api.clone(), objects))
        };
        let options = ChangeOptions {
            revision: Some(whole.revision),
            // The tools take away what sessions use, as the kernel's target lets them.
            drain: true,
            force: false,
            replace,
            create,
        };
        self.plane.apply(wish, options, caller)?;
        locked(&self.waiting).put(waiting);
        drop(turn);
        for name in &gone {
            let what = format!("volume {name} is still in use");
            wait_while(what, || self.plane.is_leaving(name))?;
        }
        Ok(())
    }

    /// Two changes: the first one closes the volume, the second one opens it with its new keys. If that is refused, it is
    /// as it was.
    fn reopen(
        &self,
        whole: &Whole,
        id: ObjectId,
        keys: Keys,
        caller: &Caller,
    ) -> Result<(), Box<Problem>> {
        let put = |keys: Keys, revision: Option<Revision>| {
            let options = ChangeOptions {
                revision,
                drain: true,
                ..ChangeOptions::default()
            };
            let id = id.clone();
            self.plane.apply(Wish::Put { id, keys }, options, caller)
        };
        let before = whole.api.volumes.get(&id.name).cloned();
        let Some(before) = before else {
            // It belongs to somebody else, and this says to whom.
            return put(keys, Some(whole.revision)).map(drop);
        };
        let mut closed = before.clone();
        closed.insert("enabled".to_owned(), false.into());
        let closing = put(closed.clone(), Some(whole.revision))?;
        let what = format!("volume {} is still in use", id.name);
        let outcome = wait_while(what, || self.plane.is_leaving(&id.name))
            .and_then(|()| put(keys, Some(closing.revision)).map(drop));
        if outcome.is_err() {
            self.open_again(|revision| put(before.clone(), Some(revision)), &id, &closed)?;
        }
        outcome
    }

    /// Opens a volume as it was, unless somebody else has changed it since it was closed.
    fn open_again(
        &self,
        put: impl Fn(Revision) -> Result<Applied, Box<Problem>>,
        id: &ObjectId,
        closed: &Keys,
    ) -> Result<(), Box<Problem>> {
        let mut tries = 0;
        loop {
            let whole = self.plane.whole();
            if whole.api.volumes.get(&id.name) != Some(closed) {
                return Ok(());
            }
            match put(whole.revision) {
                Err(problem) if problem.code == ProblemCode::RevisionChanged && tries < TRIES => {
                    tries += 1;
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    fn close_session(&self, id: &str, caller: &Caller) -> Result<(), Box<Problem>> {
        self.plane.close_session(id, caller)?;
        wait_while(format!("session {id} has not ended yet"), || {
            self.plane.sessions().iter().any(|session| session.id == id)
        })
    }
}

/// What is at a path, links followed. It is asked where the path is opened next.
fn look_at(path: &str) -> Option<PathKind> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    match () {
        () if kind.is_file() => Some(PathKind::File),
        () if kind.is_block_device() => Some(PathKind::BlockDevice),
        () => None,
    }
}

/// A connection of a session, with its counters if the report has them.
fn connection(found: Option<&ConnectionStatistics>, address: String) -> Connection {
    let Some(found) = found else {
        return Connection {
            address,
            ..Connection::default()
        };
    };
    let transmit = &found.transmit;
    Connection {
        address,
        commands: found.counts.operations,
        active: u64::try_from(found.tasks).unwrap_or(u64::MAX),
        policy: transmit.policy.to_string(),
        nagle: transmit.nagle,
        busy: transmit.busy,
        max_busy: transmit.max_busy,
        avg_busy: transmit.avg_busy,
        idles: transmit.idles,
        reads: transmit.reads,
        reads_in_nagle: transmit.reads_in_nagle,
    }
}

fn with(mut document: Document, objects: Vec<(ObjectId, Option<Keys>)>) -> Document {
    for (id, keys) in objects {
        let kind = document.of_kind_mut(id.kind);
        match keys {
            Some(keys) => drop(kind.insert(id.name, keys)),
            None => drop(kind.remove(&id.name)),
        }
    }
    document
}

/// Waits for the end of what the change began. The change itself is made, whether it ends in time or not.
fn wait_while(what: String, goes_on: impl Fn() -> bool) -> Result<(), Box<Problem>> {
    let end = Instant::now() + CLOSING;
    while goes_on() {
        if Instant::now() >= end {
            return Err(Box::new(Problem::new(ProblemCode::Unavailable, what)));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
