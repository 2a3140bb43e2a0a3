//! A server that only remembers what it was told.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_api::change::{Caller, Revision};
use longshore_api::problem::Problem;
use longshore_api::record::{Intent, Record};
use longshore_api::state::Session;
use longshore_server::config::{ListenerChanges, TransmitConfig};
use longshore_server::{ListenerId, Resized};
use longshore_volume::{Volume, VolumeError};
use serde_json::Value;

use crate::change::switch::{
    Closed, Drain, Exports, Leaving, NotSwitched, Ready, Sessions, Switch, WaitsFor,
};

/// A server that exports what it is told, and closes volumes at once or when told to.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) exports: Mutex<Option<Exports>>,
    pub(super) sessions: Mutex<Vec<Session>>,
    /// An event loop does not answer.
    pub(super) is_busy: AtomicBool,
    pub(super) refuses: AtomicBool,
    /// Refuses what it has prepared.
    pub(super) fails: AtomicBool,
    /// The volume that does not tell its size.
    pub(super) hangs: Mutex<Option<String>>,
    pub(super) record: Mutex<Vec<String>>,
    pub(super) holds: AtomicBool,
    /// The storage of volumes that leave does not answer.
    pub(super) is_stuck: AtomicBool,
    leaving: Mutex<Vec<Leaver>>,
}

type Leaver = (String, Arc<dyn Fn(Closed) + Send + Sync>);

impl Fake {
    /// The exports in short: volumes, then maps.
    pub(super) fn shown(&self) -> Vec<String> {
        let exports = self.exports.lock().unwrap();
        let Some(exports) = &*exports else {
            return Vec::new();
        };
        let name = |volume: usize| exports.volumes[volume].identity().name.clone();
        let mut shown: Vec<String> = (0..exports.volumes.len()).map(name).collect();
        for target in &exports.targets {
            for entry in target.maps().flatten() {
                let mode = if entry.read_only { " ro" } else { "" };
                let (lun, volume) = (entry.lun, name(entry.volume));
                shown.push(format!("{} {lun}={volume}{mode}", target.name.as_str()));
            }
        }
        shown
    }

    fn note(&self, line: String) {
        self.record.lock().unwrap().push(line);
    }

    /// Whether a line of the record contains this.
    pub(super) fn has(&self, text: &str) -> bool {
        let record = self.record.lock().unwrap();
        record.iter().any(|line| line.contains(text))
    }

    pub(super) fn let_go(&self) {
        self.close_all(None);
    }

    pub(super) fn close_all(&self, failure: Option<&str>) {
        for (volume, on_closed) in self.leaving.lock().unwrap().drain(..) {
            on_closed(Closed {
                volume,
                failure: failure.map(str::to_owned),
            });
        }
    }
}

pub(super) struct Handle(pub(super) Arc<Fake>);

struct Next<'a> {
    fake: &'a Fake,
    exports: Exports,
}

impl Ready for Next<'_> {
    fn listeners(&self) -> Vec<ListenerId> {
        Vec::new()
    }

    fn carry_out(self: Box<Self>, drain: Drain) -> Result<Vec<(SocketAddr, String)>, NotSwitched> {
        let fake = self.fake;
        if fake.fails.load(Ordering::Relaxed) {
            return Err(NotSwitched::Refused("no".to_owned()));
        }
        let mut exports = fake.exports.lock().unwrap();
        let before = exports.replace(self.exports);
        let exports = exports.as_ref().unwrap();
        let address = |volume: &Arc<dyn Volume>| Arc::as_ptr(volume).cast::<()>();
        let kept: HashSet<*const ()> = exports.volumes.iter().map(address).collect();
        for volume in before.into_iter().flat_map(|exports| exports.volumes) {
            if !kept.contains(&address(&volume)) {
                let name = volume.identity().name.clone();
                let on_closed = Arc::clone(&drain.on_closed);
                fake.leaving.lock().unwrap().push((name, on_closed));
            }
        }
        if !fake.holds.load(Ordering::Relaxed) {
            fake.let_go();
        }
        Ok(Vec::new())
    }
}

impl Record for Handle {
    fn intend(
        &self,
        caller: &Caller,
        _: Revision,
        steps: &[String],
    ) -> std::io::Result<Box<dyn Intent>> {
        let fake = Arc::clone(&self.0);
        let begun = format!("{}: {}", caller.name, steps.join(", "));
        Ok(Box::new(Intended { fake, begun }))
    }

    fn tell(&self, topic: &str, message: &str, _: Value) {
        self.0.note(format!("{topic}: {message}"));
    }
}

struct Intended {
    fake: Arc<Fake>,
    begun: String,
}

impl Intent for Intended {
    fn end(self: Box<Self>, outcome: Result<Revision, &Problem>) {
        let outcome = match outcome {
            Ok(revision) => format!("revision {}", revision.0),
            Err(problem) => format!("refused: {}", problem.title),
        };
        self.fake.note(format!("{}: {outcome}", self.begun));
    }
}

impl Switch for Handle {
    fn prepare(
        &self,
        exports: Exports,
        _: ListenerChanges,
    ) -> Result<Box<dyn Ready + '_>, NotSwitched> {
        if self.0.refuses.load(Ordering::Relaxed) {
            return Err(NotSwitched::Refused("no".to_owned()));
        }
        let fake = &*self.0;
        Ok(Box::new(Next { fake, exports }))
    }

    fn leaving(&self) -> Vec<Leaving> {
        let leaving = self.0.leaving.lock().unwrap();
        let leaving = leaving.iter().map(|(volume, _)| Leaving {
            volume: volume.clone(),
            waits_for: WaitsFor::Flush,
            stuck: self.0.is_stuck.load(Ordering::Relaxed),
        });
        leaving.collect()
    }

    fn sessions(&self) -> Sessions {
        Sessions {
            all: self.0.sessions.lock().unwrap().clone(),
            is_complete: !self.0.is_busy.load(Ordering::Relaxed),
        }
    }

    fn close_session(&self, id: &str) -> bool {
        let mut sessions = self.0.sessions.lock().unwrap();
        let before = sessions.len();
        sessions.retain(|session| session.id != id);
        sessions.len() != before
    }

    fn refresh_volume(&self, name: &str) -> Option<Result<Option<Resized>, VolumeError>> {
        while self.0.hangs.lock().unwrap().as_deref() == Some(name) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let exports = self.0.exports.lock().unwrap();
        let volumes = &exports.as_ref()?.volumes;
        let volume = volumes.iter().find(|it| it.identity().name == name)?;
        Some(volume.refresh_geometry().map(|_| None))
    }

    fn set_transmit(&self, _: TransmitConfig) {}
}
