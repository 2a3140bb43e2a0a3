//! What controls a server while it runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_volume::{Geometry, VolumeError};

use crate::config::TransmitConfig;
use crate::core::Shared;
use crate::exports::Unit;
use crate::mail::message::Message;
use crate::observe::Statistics;
use crate::statistics;

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

/// Stops a server, and has it look at its volumes again. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper {
    pub(super) shared: Arc<Shared>,
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
