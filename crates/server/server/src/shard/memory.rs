//! Scarce memory: its next owners, and connections that make room.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use longshore_reactor::allocator;

use super::state::{Shard, Timer};
use crate::connection::driven::ShardEvent;
use crate::mail::message::Message;
use crate::transport::stall::{asking_interval_ms, standstill_ms};

/// How long tasks without memory wait before they look again.
const MEMORY_RETRY: Duration = Duration::from_millis(5);

impl Shard {
    /// Ends connections whose peers have stalled.
    #[cold]
    pub(super) fn cut_stalled(&mut self) {
        let mut suspects = std::mem::take(&mut self.core.suspects);
        let for_room = std::mem::take(&mut self.memory_short);
        if for_room {
            let connections = self.connections.iter();
            let keepers = connections.filter(|connection| connection.may_make_room(&self.core));
            suspects.extend(keepers.map(|connection| connection.channel().address.slot));
        }
        for slot in suspects {
            let Some(connection) = self.connections.at(slot) else {
                continue;
            };
            // What came while the shard was busy may not have been reported yet.
            connection.channel_mut().set_readable(false);
            let turn = self.core.counters.turns;
            self.core.fairness.begin_receiving(slot, turn);
            match connection.receive_turn(&mut self.core) {
                ControlFlow::Continue(()) => {
                    let event = ShardEvent::Stalled { for_room };
                    connection.handle(&mut self.core, event);
                    self.connections.mark_dirty(slot);
                    self.connections.list(slot);
                }
                ControlFlow::Break(()) => self.close(slot),
            }
        }
    }

    /// Notes that the shard stood still, if it comes much later than it meant to.
    pub(super) fn look_for_standstill(&mut self) {
        // A turn is rarely late at all, and the difference costs more than the comparison.
        if let Some(until) = self.wait_until.filter(|until| *until < self.now) {
            let late = self.now.saturating_duration_since(until);
            let tolerated = standstill_ms(self.core.shared.limits.stall_timeout);
            if late >= Duration::from_millis(tolerated) {
                self.core.stood_still_until_ms = self.core.now_ms;
            }
        }
    }

    /// Lets tasks that wait for memory try again.
    pub(super) fn serve_memory_line(&mut self) {
        // Hosts with their full shares keep nobody waiting, but may have many tasks in line: once each connection has
        // tried in vain, the rest need not.
        let mut in_vain = 0;
        for _ in 0..self.core.memory.line.begin() {
            let Some(task) = self.core.memory.line.serve() else {
                break;
            };
            self.tell(task.connection, ShardEvent::Retry(task));
            let is_back = self.core.memory.line.is_back();
            if !self.core.memory.tried() {
                break;
            }
            in_vain = if is_back { in_vain + 1 } else { 0 };
            if in_vain > self.core.memory.line.connections() {
                break;
            }
        }
    }

    /// Sees to it that tasks without memory try again even if nothing else happens on this shard.
    pub(super) fn watch_memory(&mut self) {
        if !self.core.memory.line.is_empty() && !self.memory_timer {
            self.memory_timer = true;
            self.timers.insert(self.now + MEMORY_RETRY, Timer::Memory);
        }
        if self.core.memory.is_short || !allocator::has_reserve() {
            self.ask_for_memory();
        }
    }

    /// Memory was missing: has all shards look for peers that keep some and do not move.
    #[cold]
    pub(super) fn ask_for_memory(&mut self) {
        let shared = Arc::clone(&self.core.shared);
        if self.core.now_ms < self.ask_again_ms {
            // There may be memory again before it is time to ask.
            let is_back =
                self.core.memory.is_back() && shared.budget.failures() == self.failures_seen;
            self.core.memory.is_short = !is_back;
        } else {
            let interval_ms = asking_interval_ms(shared.limits.stall_timeout);
            self.ask_again_ms = self.core.now_ms + interval_ms;
            self.core.memory.is_short = false;
            shared.broadcast(|| Message::MemoryShort);
            let failures = shared.budget.failures();
            if failures > std::mem::replace(&mut self.failures_seen, failures) {
                tracing::warn!(
                    failures,
                    used_bytes = shared.budget.used_bytes(),
                    "the system has less memory than `limits.memory` allows; clients are asked to retry. Lower `limits.memory`"
                );
            }
        }
    }
}
