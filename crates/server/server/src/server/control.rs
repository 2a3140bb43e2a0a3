//! Control of a running server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use longshore_volume::{Geometry, VolumeError};

use super::share::portal;
use super::switch::{
    DrainOptions, DrainingVolume, PreparedSwitch, SwitchError, Switchboard, Switched,
};
use crate::config::{
    ExportsConfig, ListenerChanges, ListenerConfig, ListenerId, NvmeListenerConfig, StartError,
    TransmitConfig,
};
use crate::core::Shared;
use crate::exports::listener::{Listener, ListenerKind};
use crate::exports::{Exports, Unit};
use crate::mail::grace::{Bell, Token};
use crate::mail::message::Message;
use crate::observe::sessions::{self, NoSuchSession, SessionId, SessionReport, Sessions};
use crate::observe::{Statistics, TargetReport};
use crate::statistics;

/// How long somebody who asks waits for all shards together.
const PATIENCE: Duration = Duration::from_secs(1);

/// The size of a volume that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resized {
    pub volume: String,
    /// Size until now, in blocks.
    pub before: Geometry,
    /// Size from now on.
    pub after: Geometry,
}

/// Controls a server while it runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) board: Arc<Switchboard>,
}

impl Control {
    /// Has every reactor export this from now on. Blocks until all have taken it over, for half a minute at most. A
    /// volume that is exported already (the same `Arc`) stays; volumes that are not listed any more drain in the
    /// background: no command for them begins after this has returned, their data stay what they are.
    ///
    /// Hosts are told of logical units and namespaces that come and go. Sessions whose target or access is gone are
    /// asked to end, and do not see anything meanwhile. Whatever else has changed is for new sessions.
    ///
    /// # Errors
    /// What is wrong with it. Nothing has changed then, unless a reactor has not answered in time.
    pub fn switch(
        &self,
        exports: ExportsConfig,
        drain: DrainOptions,
    ) -> Result<Switched, SwitchError> {
        self.board.switch(exports, drain)
    }

    /// Does all of a switch that can fail, and that neither hosts nor reactors notice: checks it, makes units of new
    /// volumes, reads what is stored of them, gives ports their numbers. [`Self::carry_out`] does the rest.
    ///
    /// # Errors
    /// What is wrong with it, or the server is about to end, or a volume of it was removed and is not closed.
    pub fn prepare(
        &self,
        exports: ExportsConfig,
        listeners: ListenerChanges,
    ) -> Result<PreparedSwitch, SwitchError> {
        self.board.prepare(exports, listeners)
    }

    /// Carries out what was prepared, as [`Self::switch`] does. Listeners that go are closed before, and those that come
    /// accept after all reactors have taken the exports over.
    ///
    /// # Errors
    /// The server is about to end, or a reactor has not answered in time. Only storage that fails can be another reason,
    /// and only where a volume was closed since it was prepared.
    pub fn carry_out(
        &self,
        prepared: PreparedSwitch,
        drain: DrainOptions,
    ) -> Result<Switched, SwitchError> {
        self.board.carry_out(prepared, drain)
    }

    /// Accepts connections of initiators on one socket more, and tells them of it. Blocks as [`Self::switch`] does.
    ///
    /// # Errors
    /// The socket cannot be listened on, or the server is about to end.
    pub fn add_listener(&self, listener: ListenerConfig) -> Result<ListenerId, SwitchError> {
        let kind = portal(&listener)?;
        let place = self.board.add_listener(|_| Ok(kind), listener.listener)?;
        Ok(ListenerId(place))
    }

    /// Accepts connections of NVMe hosts on one socket more. Discovery controllers tell their hosts.
    ///
    /// # Errors
    /// As those of [`Self::add_listener`].
    pub fn add_nvme_listener(
        &self,
        listener: NvmeListenerConfig,
    ) -> Result<ListenerId, SwitchError> {
        let socket = listener.listener.try_clone();
        let socket = socket.map_err(|source| StartError::System {
            operation: "dup",
            source,
        })?;
        let make = |exports: &Exports| {
            let ports = exports.listeners.iter().filter_map(Listener::nvme_port);
            let last = ports.map(|port| port.port_id).max().unwrap_or(0);
            let port = listener.port(last.saturating_add(1))?;
            Ok(ListenerKind::Nvme(Arc::new(port)))
        };
        Ok(ListenerId(self.board.add_listener(make, socket)?))
    }

    /// Accepts no more connections on a socket, and closes it. Connections that came by it stay, except for those of
    /// iSCSI whose portal group has no listener left: their sessions end as those whose target is removed.
    ///
    /// # Errors
    /// There is no such listener, or the server is about to end.
    pub fn remove_listener(&self, listener: ListenerId) -> Result<(), SwitchError> {
        self.board.remove_listener(listener.0)
    }

    /// The targets that are exported, with the numbers of their ports.
    #[must_use]
    pub fn targets(&self) -> Vec<TargetReport> {
        let exports = self.board.exports();
        let targets = exports.targets.iter();
        targets
            .map(|target| TargetReport {
                name: target.config.name.as_str().to_owned(),
                id: target.id.0,
                ports: target.ports.clone(),
            })
            .collect()
    }

    /// Listeners, with their addresses: those of the configuration in its order, first those of iSCSI, then those
    /// that were added.
    #[must_use]
    pub fn listeners(&self) -> Vec<(ListenerId, SocketAddr)> {
        let exports = self.board.exports();
        let listeners = exports.listeners.iter().enumerate();
        let open = listeners.filter(|(_, listener)| listener.is_open);
        open.map(|(place, listener)| (ListenerId(place), listener.local()))
            .collect()
    }

    /// Volumes that have been removed and are not closed yet.
    #[must_use]
    pub fn draining(&self) -> Vec<DrainingVolume> {
        self.board.draining()
    }

    /// iSCSI sessions and NVMe controllers, oldest first, as far as shards answer: see [`Self::ask_for_sessions`].
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.ask_for_sessions().reports
    }

    /// iSCSI sessions and NVMe controllers, oldest first. Asks the shards; blocks, for a second at most: what a shard
    /// that does not answer has is missing.
    #[must_use]
    pub fn ask_for_sessions(&self) -> Sessions {
        let (answers, inbox) = channel();
        self.shared()
            .broadcast(|| Message::Sessions(answers.clone()));
        drop(answers);
        let until = Instant::now() + PATIENCE;
        let mut parts = Vec::new();
        // A shard that has ended drops the question.
        let is_complete = loop {
            match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(more) => parts.extend(more),
                Err(error) => break error == RecvTimeoutError::Disconnected,
            }
        };
        Sessions {
            reports: sessions::put_together(parts),
            is_complete,
        }
    }

    /// Ends a session or controller. An iSCSI initiator is asked to log out, and disconnected if it does not within the
    /// time for sessions to end; a host is disconnected. Either may come back: its access is what it was.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn close_session(&self, id: SessionId) -> Result<(), NoSuchSession> {
        let found = Arc::new(AtomicBool::new(false));
        let bell = Arc::<Bell>::default();
        let count = bell.count();
        let (token, answered) = Token::new(&bell);
        self.shared().broadcast(|| Message::CloseSession {
            id,
            found: Arc::clone(&found),
            token: Arc::clone(&token),
        });
        drop(token);
        bell.wait(count, Some(Instant::now() + PATIENCE));
        if found.load(Ordering::Relaxed) || !answered.is() {
            return Ok(());
        }
        Err(NoSuchSession(id))
    }

    fn shared(&self) -> &Shared {
        &self.board.shared
    }

    /// Looks for volumes whose backing object changed its size, and tells initiators (CAPACITY DATA
    /// HAS CHANGED) and hosts (Namespace Attribute Changed). Blocks.
    pub fn refresh_volumes(&self) -> Vec<(String, Result<Option<Resized>, VolumeError>)> {
        let names = self.exported_names();
        let outcomes = names.into_iter().filter_map(|name| {
            let outcome = self.refresh_volume(&name)?;
            Some((name, outcome))
        });
        outcomes.collect()
    }

    /// The same for one volume. `None`: none of that name is exported. Blocks for as long as its storage does.
    pub fn refresh_volume(&self, name: &str) -> Option<Result<Option<Resized>, VolumeError>> {
        let exports = self.board.exports();
        let is_it = |(_, unit): &(usize, &Unit)| unit.volume.identity().name == name;
        let (place, _) = exports.exported().find(is_it)?;
        let unit = Arc::clone(exports.shared_unit(place));
        // What blocks here keeps this volume open, and no other that is removed meanwhile.
        drop(exports);
        let before = unit.volume.geometry();
        let outcome = unit.volume.refresh_geometry();
        Some(outcome.map(|after| {
            unit.logical_unit.resize(after.block_count);
            if unit.namespace.resize(after.block_count)
                && let Some(exports) = self.still_has(place, &unit)
            {
                exports.nvme.subsystems.namespace_resized(place);
            }
            (before != after).then(|| Resized {
                volume: name.to_owned(),
                before,
                after,
            })
        }))
    }

    /// The names of volumes that are exported, in the order of the configuration.
    #[must_use]
    pub fn exported_names(&self) -> Vec<String> {
        let exports = self.board.exports();
        let units = exports.exported();
        units
            .map(|(_, unit)| unit.volume.identity().name.clone())
            .collect()
    }

    /// The exports, if they have the unit in that place still.
    fn still_has(&self, place: usize, unit: &Arc<Unit>) -> Option<Arc<Exports>> {
        let exports = self.board.exports();
        Arc::ptr_eq(exports.shared_unit(place), unit).then_some(exports)
    }

    /// The names of the volumes by their numbers, which are theirs as long as they are exported. Where there is no
    /// volume any more, the name is empty.
    #[must_use]
    pub fn volume_names(&self) -> Vec<String> {
        let exports = self.board.exports();
        let units = (0..exports.places()).map(|place| exports.unit(place));
        units
            .map(|unit| unit.volume.identity().name.clone())
            .collect()
    }

    /// Looks at what a volume is stored in, and tells hosts if it has failed or is getting full. Blocks, for as long as a
    /// network file system does not answer.
    pub fn inspect_volume(&self, number: usize) {
        let exports = self.board.exports();
        if number >= exports.places() {
            return;
        }
        let unit = Arc::clone(exports.shared_unit(number));
        // As with sizes, a look that blocks keeps no other volume open.
        drop(exports);
        let is_sound = unit.volume.inspect().is_sound();
        let Some(exports) = self.still_has(number, &unit) else {
            return;
        };
        if !is_sound {
            exports.tell_of_failure(number);
        }
        unit.tell_of_fullness(&exports.nvme.subsystems, number);
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
        let exports = self.board.exports();
        exports
            .units()
            .filter_map(|(_, unit)| failure(unit))
            .collect()
    }

    /// What the server has done so far, after its end too. Asks the shards; blocks, for a second at most.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        statistics::statistics(self.shared(), &self.board.exports(), false)
    }

    /// The same, with what the kernel knows of each connection.
    #[must_use]
    pub fn statistics_with_tcp(&self) -> Statistics {
        statistics::statistics(self.shared(), &self.board.exports(), true)
    }

    /// Has responses leave like this from now on, on all connections.
    pub fn set_transmit(&self, config: TransmitConfig) {
        self.shared().broadcast(|| Message::Transmit(config));
    }

    /// Has the connection of that peer served by another reactor, by its number, as soon as what it has in
    /// progress allows. Nothing happens if there is no such connection or reactor, if it is not one that
    /// moves (those of iSCSI sessions with a target and of NVMe I/O queues do), or is not at rest soon.
    pub fn move_connection(&self, peer: SocketAddr, reactor: usize) {
        let to = reactor;
        self.shared().broadcast(|| Message::Relocate { peer, to });
    }

    /// Stops accepting, asks initiators to log out, finishes what was accepted, flushes, ends.
    pub fn shut_down(&self) {
        self.shared().closing.store(true, Ordering::Relaxed);
        self.shared().broadcast(|| Message::Shutdown);
    }

    /// Drops all connections, flushes, ends.
    pub fn shut_down_now(&self) {
        self.shared().closing.store(true, Ordering::Relaxed);
        self.shared().broadcast(|| Message::ShutdownNow);
    }
}
