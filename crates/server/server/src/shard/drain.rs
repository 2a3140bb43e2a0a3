//! The end of the server: sessions end, connections end, volumes are flushed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state::{Phase, Shard, Timer};
use crate::connection::driven::{Handled, ShardEvent};
use crate::core::request::Owner;

/// How long initiators have to log out before quiet sessions are closed, and how often is looked
/// for these then.
const DRAIN_GRACE: Duration = Duration::from_secs(1);
const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// How long volumes have to end what they do of their own accord.
const QUIESCE_PATIENCE: Duration = Duration::from_secs(10);

impl Shard {
    /// Stops accepting, and asks peers to leave.
    pub(super) fn begin_drain(&mut self) {
        if self.phase != Phase::Serving {
            return;
        }
        self.phase = Phase::Draining;
        self.core.requests.end_sleep(&mut *self.core.platform);
        if let Some(listeners) = &mut self.listeners {
            listeners.close(&mut *self.core.platform);
        }
        for slot in self.connections.slots() {
            let Some(connection) = self.connections.at(slot) else {
                continue;
            };
            let slot = connection.channel().address.slot;
            match connection.handle(&mut self.core, ShardEvent::Drain) {
                Handled::Over => self.close(slot),
                Handled::Nothing | Handled::Changed => self.connections.mark_dirty(slot),
            }
        }
        let now = self.now;
        self.timers
            .insert(now + self.core.shared.limits.drain_timeout, Timer::Drain);
        self.timers.insert(now + DRAIN_GRACE, Timer::DrainQuiet);
    }

    /// Closes sessions whose initiators did not log out but have nothing in progress.
    pub(super) fn close_quiet(&mut self) {
        let mut waiting = false;
        for slot in self.connections.slots() {
            let Some(connection) = self.connections.at(slot) else {
                continue;
            };
            waiting = true;
            if connection.state().is_quiet {
                let slot = connection.channel().address.slot;
                connection.handle(&mut self.core, ShardEvent::Drop);
                self.connections.mark_dirty(slot);
            }
        }
        if waiting {
            self.timers.insert(self.now + DRAIN_LOOK, Timer::DrainQuiet);
        }
    }

    /// Ends all connections at once.
    pub(super) fn end_connections(&mut self) {
        self.core.requests.end_sleep(&mut *self.core.platform);
        if let Some(listeners) = &mut self.listeners {
            listeners.close(&mut *self.core.platform);
        }
        for slot in self.connections.slots() {
            self.close(slot);
        }
        if self.phase == Phase::Serving {
            self.phase = Phase::Draining;
        }
    }

    /// Goes on to the next phase of shutting down when it is time. Returns whether it is all over.
    pub(super) fn advance_phase(&mut self) -> bool {
        if self.phase == Phase::Draining && self.connections.is_empty() && !self.core.has_requests()
        {
            self.phase = Phase::Quiescing;
            self.timers
                .insert(self.now + QUIESCE_PATIENCE, Timer::Quiesce);
            self.quiesce_volumes();
        }
        if self.phase == Phase::Quiescing && self.core.requests.is_empty() {
            self.begin_flush();
        }
        self.phase == Phase::Flushing && !self.core.has_requests()
    }

    /// Volumes have had their time to end what they do of their own accord.
    pub(super) fn end_quiesce(&mut self) {
        if self.phase == Phase::Quiescing {
            for in_flight in self.core.requests.owners() {
                if let Owner::Quiesce = in_flight.owner {
                    let unit = self.core.unit(in_flight.unit);
                    let volume = &unit.volume.identity().name;
                    tracing::error!(
                        volume,
                        "background work has not ended in time; flushing anyway"
                    );
                    let reason = "background work did not end before the flush";
                    unit.statistics.last_flush_failed(reason.to_owned());
                }
            }
            self.begin_flush();
        }
    }

    fn begin_flush(&mut self) {
        self.phase = Phase::Flushing;
        // No write may come after the flush, wherever it runs.
        if self.core.shared.shards_busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.flush_volumes();
        }
    }

    fn quiesce_volumes(&mut self) {
        for unit in self.units() {
            if let Some((in_flight, ended)) = self.core.quiesce(unit, Owner::Quiesce) {
                self.request_done(in_flight, ended);
            }
        }
    }

    fn flush_volumes(&mut self) {
        for unit in self.units() {
            if let Some((in_flight, ended)) = self.core.flush(unit, Owner::Shutdown) {
                self.request_done(in_flight, ended);
            }
        }
    }

    /// Places of all units, those that are being removed included.
    fn units(&self) -> Vec<usize> {
        let units = self.core.view.exports.units();
        units.map(|(place, _)| place).collect()
    }
}
