//! Completed volume requests.

use longshore_reactor::storage::FileCompletion;
use longshore_volume::Ended;

use super::state::Shard;
use crate::core::request::{InFlight, Owner};

impl Shard {
    /// A storage operation ended; perhaps its request has, too.
    pub(super) fn file_done(&mut self, completion: FileCompletion) {
        let core = &mut self.core;
        core.requests.complete(completion, &mut *core.platform);
        self.end_requests();
    }

    /// Goes on with what waited for requests that are over.
    pub(super) fn end_requests(&mut self) {
        while let Some((in_flight, ended)) = self.core.requests.next_ended() {
            self.core.counters.storage_completed += 1;
            self.request_done(in_flight, ended);
        }
        self.core.counters.bounced_bytes += self.core.requests.take_bounced_bytes();
    }

    pub(super) fn request_done(&mut self, mut in_flight: InFlight, ended: Ended) {
        if in_flight.counted {
            self.core.leave_gate(in_flight.unit);
        }
        match std::mem::replace(&mut in_flight.owner, Owner::Shutdown) {
            Owner::Task(task) => {
                let address = task.connection;
                if let Some(connection) = self.connections.find(address) {
                    connection.storage_done(&mut self.core, task, &in_flight, ended);
                    self.connections.mark_dirty(address.slot);
                }
            }
            Owner::Orphan(orphan) => {
                self.core.memory.recycle(ended.buffer);
                if let Some((unit, task)) = orphan.exclusive {
                    self.core.leave_exclusive(unit, task);
                }
            }
            Owner::Quiesce => {
                if let Err(error) = ended.result {
                    let unit = self.core.unit(in_flight.unit);
                    let volume = &unit.volume.identity().name;
                    tracing::error!(volume, %error, "background work failed");
                    unit.statistics.last_flush_failed(error.to_string());
                }
            }
            Owner::Removal { removal, .. } => {
                self.core.log_flush(in_flight.unit, &ended.result);
                if let Err(error) = ended.result {
                    removal.note_failure(error.to_string());
                }
            }
            owner @ (Owner::Controller(_) | Owner::Shutdown) => {
                let unit = in_flight.unit;
                self.core.log_flush(unit, &ended.result);
                if let (Owner::Shutdown, Err(error)) = (owner, ended.result) {
                    let statistics = &self.core.unit(unit).statistics;
                    statistics.last_flush_failed(error.to_string());
                }
            }
        }
    }
}
